"""irli labels explain."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import irli
from irli.cli.app import main

PETS = {"cat": "purrs", "dog": "barks", "bird": "sings"}
TEXTS = [f"it {word} {place}" for place in range(20) for word in PETS.values()]
NAMES = [[pet] for _ in range(20) for pet in PETS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explain") / "pets.irli"
    irli.LabelIndex(ranker=True).fit_text(TEXTS, NAMES, threads=1).save(path)
    return path


def test_it_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "explain", str(folder), "a dog barks", "-k", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("dog (")
    assert "barks +" in printed


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["labels", "explain", str(folder), "it sings", "-k", "2", "--json"])
    values = json.loads(capsys.readouterr().out)
    best = values["labels"][0]
    assert best["name"] == "bird"
    assert {"word", "weight", "value", "effect"} <= best["words"][0].keys()
    assert {"repetition", "bucket", "rank", "probability", "probed"} == best["buckets"][0].keys()


def test_the_text_may_be_read(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("purrs\n"))
    main(["labels", "explain", str(folder), "-", "-k", "1"])
    assert capsys.readouterr().out.startswith("cat (")


def test_a_text_without_a_known_word(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["labels", "explain", str(folder), "xyz"])
    assert capsys.readouterr().out == "no label was found\n"
