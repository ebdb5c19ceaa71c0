"""Add, remove, pack, learn anew and measure from the command line, from files of every format."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Runner, refused

import irli
from irli import VectorIndex
from irli.base.vector_files import write_vectors

X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)


def write_lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def records(first: int = 0, last: int = 50, text: bool = True) -> list[Any]:
    return [
        {"id": f"i{row}" if text else row, "vector": X[row].tolist(), "n": row, "odd": row % 2 == 1}
        for row in range(first, last)
    ]


def load(path: Path) -> VectorIndex:
    index = irli.load(path)
    assert isinstance(index, VectorIndex)
    return index


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "items.jsonl", records())


@pytest.fixture
def index(run: Runner, lines: Path, tmp_path: Path) -> Path:
    assert run("add", tmp_path / "index", lines, "--metric", "l2").code == 0
    return tmp_path / "index"


# --- add ---------------------------------------------------------------------------------------


def test_json_lines_have_ids_and_payloads(run: Runner, index: Path) -> None:
    opened = load(index)
    np.testing.assert_array_equal(opened.vector([f"i{row}" for row in range(50)]), X)
    assert opened.payload("i3") == {"n": 3, "odd": True}


def test_json_lines_may_be_packed(run: Runner, tmp_path: Path, lines: Path) -> None:
    path = tmp_path / "items.jsonl.gz"
    path.write_bytes(gzip.compress(lines.read_bytes()))
    found = run("add", tmp_path / "index", path, "--metric", "cosine", "--json").json
    assert (found["added"], found["items"]) == (50, 50)


@pytest.mark.parametrize("fixed", [True, False])
def test_parquet_has_ids_and_payloads(run: Runner, tmp_path: Path, fixed: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    from datetime import date

    from pyarrow import parquet

    kind = pa.list_(pa.float32(), 4) if fixed else pa.list_(pa.float32())
    columns = {
        "key": pa.array(range(50)),
        "embedding": pa.array(X.tolist(), kind),
        "day": [date(2024, 1, 1 + row % 5) for row in range(50)],
        "lang": [None if row % 3 else "en" for row in range(50)],
    }
    parquet.write_table(pa.table(columns), tmp_path / "items.parquet")
    names = ["--key", "embedding", "--id-key", "key"]
    for make in (["add", tmp_path / "a"], ["build"]):
        files = [tmp_path / "items.parquet", *([tmp_path / "a2"] if make == ["build"] else [])]
        assert run(*make, *files, "--metric", "l2", *names).code == 0
    for name in ("a", "a2"):
        opened = load(tmp_path / name)
        np.testing.assert_array_equal(opened.vector(range(50)), X)
        assert opened.payload([0, 1]) == [
            {"day": "2024-01-01", "lang": "en"},
            {"day": "2024-01-02"},
        ]


def test_vectors_with_payloads_and_ids_beside_them(run: Runner, tmp_path: Path) -> None:
    write_vectors(tmp_path / "x.fvecs", X)
    np.save(tmp_path / "ids.npy", np.arange(50) + 7)
    beside = write_lines(tmp_path / "p.jsonl", [{"n": row} if row else None for row in range(50)])
    options = ["--ids", tmp_path / "ids.npy", "--payloads", beside, "--metric", "l2"]
    assert run("add", tmp_path / "a", tmp_path / "x.fvecs", *options).code == 0
    assert run("build", tmp_path / "x.fvecs", tmp_path / "b", *options).code == 0
    for name in ("a", "b"):
        assert load(tmp_path / name).payload([7, 8]) == [None, {"n": 1}]


def test_vectors_are_numbered_on(run: Runner, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    for _ in range(2):
        assert run("add", tmp_path / "a", tmp_path / "x.npy", "--metric", "l2").code == 0
    assert list(load(tmp_path / "a")) == list(range(100))
    found = run("add", tmp_path / "a", tmp_path / "x.npy", "--first-id", 80, "--resume", "--json")
    assert (found.json["added"], found.json["skipped"]) == (30, 20)


def test_build_reads_json_lines(run: Runner, tmp_path: Path, lines: Path) -> None:
    assert run("build", lines, tmp_path / "index", "--limit", 20).code == 0
    opened = load(tmp_path / "index")
    assert len(opened) == 20
    assert opened.payload("i19")["n"] == 19
    assert run("search", tmp_path / "index", lines).code == 2  # a file of items has no queries


def test_a_stopped_add_goes_on(run: Runner, tmp_path: Path, lines: Path) -> None:
    half = write_lines(tmp_path / "half.jsonl", records(0, 30))
    assert run("add", tmp_path / "index", half, "--metric", "l2").code == 0
    refused(run("add", tmp_path / "index", lines), "lines 1 to 50", "'i0'", "--resume")
    found = run("add", tmp_path / "index", lines, "--resume", "--json").json
    assert (found["added"], found["skipped"], found["items"]) == (20, 30, 50)
    changed = write_lines(tmp_path / "new.jsonl", [{"id": "i1", "vector": [9, 9, 9, 9]}])
    found = run("add", tmp_path / "index", changed, "--upsert", "--json").json
    assert (found["added"], found["replaced"], found["items"]) == (0, 1, 50)
    assert load(tmp_path / "index").get("i1").vector.tolist() == [9, 9, 9, 9]


def test_a_killed_add_goes_on(run: Runner, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    big = tmp_path / "big.jsonl"
    write_lines(big, [{"id": i, "vector": rng.random(8).tolist(), "n": i} for i in range(30_000)])
    folder = tmp_path / "index"
    command = [sys.executable, "-m", "irli", "add", folder, big, "--metric", "l2", "--no-refresh"]
    process = subprocess.Popen([str(part) for part in command])
    while process.poll() is None and not (folder / "manifest.json").exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    there = len(load(folder))
    found = run("add", folder, big, "--resume", "--no-refresh", "--json").json
    assert found["skipped"] == there
    opened = load(folder)
    assert sorted(opened) == list(range(30_000))
    assert opened.payload([0, 29_999]) == [{"n": 0}, {"n": 29_999}]


def test_it_learns_when_there_are_many(run: Runner, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(2).normal(size=(6000, 64)).astype("f4"))
    text = run("add", tmp_path / "index", tmp_path / "x.npy", "--metric", "l2").out
    learned = load(tmp_path / "index").recipe.name != "exact"
    assert ("have learned" in text) == learned


LINES = '{"id": 1, "vector": [1, 2]}\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LINES + "{", ["line 2", "JSON"]),
        (LINES + "[1]", ["line 2", "object"]),
        (LINES + '\n{"id": 2, "vector": [1, 2, 3]}', ["line 3", "2 numbers"]),
        (LINES + '{"id": 2, "vector": [1, NaN]}', ["line 2", "numbers"]),
        (LINES + '{"id": 2, "vector": ["1", "2"]}', ["line 2", "numbers"]),
        (LINES + '{"id": 2, "vector": [1, 1e60]}', ["line 2", "numbers"]),
        (LINES + '{"id": 2, "embedding": [1, 2]}', ["line 2", "vector", "--key"]),
        (LINES + '{"vector": [1, 2]}', ["line 2", "'id'"]),
        (LINES + '{"id": "a", "vector": [1, 2]}', ["line 2", "'id'"]),
        (LINES + '{"id": true, "vector": [1, 2]}', ["line 2", "'id'"]),
        (LINES + LINES, ["lines 1 to 2", "ids"]),
        (LINES + '{"id": 2, "vector": [1, 2], "n": NaN}', ["lines 1 to 2", "JSON"]),
        ("", ["must hold one"]),
    ],
)
def test_errors_name_the_line(run: Runner, tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    refused(run("add", tmp_path / "index", tmp_path / "x.jsonl", "--metric", "l2"), *words)


def test_wrong_parquet_names_the_row(run: Runner, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def add(columns: dict[str, Any], *options: Any) -> Any:
        parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
        return run("add", tmp_path / "new", tmp_path / "x.parquet", "--metric", "l2", *options)

    refused(add({"vector": [[1.0, 2.0], [3.0]]}), "row 1", "2 numbers")
    refused(add({"vector": [[1.0, 2.0], None]}), "row 1", "null")
    refused(add({"vector": [[1.0, 2.0], [1.0, float("nan")]]}), "row 1")
    refused(add({"vector": ["a"]}), "lists of numbers")
    refused(add({"x": [[1.0]]}), "column 'vector'", "--key")
    refused(add({"vector": [[1.0]], "id": [1.5]}), "integers or strings")
    (tmp_path / "x.parquet").write_bytes(b"no table")
    refused(run("add", tmp_path / "new", tmp_path / "x.parquet", "--metric", "l2"), "Parquet")


def test_add_says_what_is_missing(run: Runner, tmp_path: Path, lines: Path, index: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    refused(run("add", tmp_path / "new", lines), "--metric")
    refused(run("add", index, lines, "--upsert", "--resume"), "Only one")
    refused(run("add", index, tmp_path / "x.npy", "--resume"), "--first-id")
    refused(run("add", index, tmp_path / "x.npy"), "ids", "strings")
    refused(run("add", index, lines, "--metric", "ip"), "'l2'")
    refused(run("add", index, lines, "--payloads", lines), "one file")
    short = write_lines(tmp_path / "p.jsonl", [{"n": 1}])
    new = ["add", tmp_path / "new", tmp_path / "x.npy", "--metric", "l2"]
    refused(run(*new, "--payloads", short), "--payloads file")


# --- remove, search ----------------------------------------------------------------------------


def test_remove_in_every_way(run: Runner, index: Path, tmp_path: Path) -> None:
    assert run("remove", index, "i0", "i1", "nobody", "--json").json["removed"] == 2
    (tmp_path / "ids.txt").write_text("i2\ni3\n\n")
    assert "2 items removed, 46 left" in run("remove", index, "--ids", tmp_path / "ids.txt").out
    found = run("remove", index, "--filter", '{"n": {"$gte": 40}}', "--json").json
    assert (found["removed"], found["items"]) == (10, 36)
    refused(run("remove", index), "one way")
    refused(run("remove", index, "i5", "--filter", "{}"), "one way")
    refused(run("remove", index, "--filter", "{n: 1}"), "JSON")
    refused(run("remove", index, "--filter", '{"n": {"$no": 1}}'), "$no")


def test_remove_by_numbers(run: Runner, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "x.jsonl", records(text=False))
    assert run("add", tmp_path / "a", lines, "--metric", "l2").code == 0
    assert run("remove", tmp_path / "a", 3, 4, "--json").json["removed"] == 2
    np.save(tmp_path / "ids.npy", [4, 5])
    text = run("remove", tmp_path / "a", "--ids", tmp_path / "ids.npy").out
    assert "1 items removed, 1 were not there, 47 left" in text
    (tmp_path / "ids.txt").write_text("6\nseven\n")
    refused(run("remove", tmp_path / "a", "--ids", tmp_path / "ids.txt"), "line 2", "integer")
    refused(run("remove", tmp_path / "a", "seven"), "integer")


def test_search_filters_and_shows_payloads(run: Runner, index: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", X[:2])
    given = ["search", index, tmp_path / "q.npy", "-k", 2, "--filter", '{"odd": true}', "--payload"]
    found = run(*given, "--json").json
    assert all(payload["odd"] for line in found["payloads"] for payload in line)
    assert found["ids"][1][0] == "i1"
    text = run(*given).out
    assert 'query 1:\n  i1 (0) {"n": 1, "odd": true}\n' in text
    refused(run(*given, "--out", tmp_path / "out.npz"), "--payload")


def test_tune_and_eval_know_the_changes(run: Runner, index: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", X[:9])
    assert run("remove", index, "i7").code == 0
    assert run("eval", index, "--queries-file", tmp_path / "q.npy", "--json").json["queries"] == 9
    assert run("tune", index, "--recall", 0.9, "--queries", tmp_path / "q.npy").code == 0
    assert len(load(index)) == 49
    assert load(index).payload("i8") == {"n": 8, "odd": False}
    assert run("remove", index, "i8", "--json").json["items"] == 48


# --- staying good ------------------------------------------------------------------------------


def test_compact_refresh_health_info(run: Runner, index: Path, tmp_path: Path) -> None:
    assert run("remove", index, "i7").code == 0
    assert run("compact", index, "--json").json["items"] == 49
    np.save(tmp_path / "q.npy", X[:9])
    assert run("refresh", index, "--queries", tmp_path / "q.npy", "--threads", 1).code == 0
    found = run("health", index, "--json").json
    assert found["items"] == 49
    assert "advice    none" in run("health", index).out
    assert "49 of 4 dimensions" in run("info", index).out
    assert load(index).payload("i8") == {"n": 8, "odd": False}


def test_health_and_info_run_beside_a_writer(run: Runner, index: Path, lines: Path) -> None:
    with irli.open(index) as writer:
        writer.remove(["i1"])
        assert run("health", index, "--json").json["items"] == 49
        assert "50 items added and 1 removed" in run("info", index).out
        refused(run("add", index, lines), "open for changes in process")
