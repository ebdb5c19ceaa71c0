"""`irli-annif`: Annif's commands, beside its own backends. They need the real Annif."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from irli.integrations.annif_command import main

MISSING = importlib.util.find_spec("annif") is None
with_annif = pytest.mark.skipif(MISSING, reason="annif is not installed: make test-annif")

WORDS = [
    "ships",
    "bridges",
    "poems",
    "birds",
    "stars",
    "kings",
    "songs",
    "rivers",
    "games",
    "wines",
]
OTHERS = ["history", "handbook", "introduction", "atlas", "theory", "letters"]
SETTINGS = {
    "irli": "backend=irli\nallow_learn=1\nepochs=20\nhidden=64",
    "tfidf": "backend=tfidf",
    "omikuji": "backend=omikuji",
}


def write_line(word: str, other: str, subject: str) -> str:
    return f"{other} about {word}\t<http://example.org/{subject}>"


def run(folder: Path, *arguments: str, text: str = "", code: str | None = None) -> str:
    """Run a command of Annif in a folder, or some code, and return what it printed."""
    code = code or "from irli.integrations.annif_command import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=os.environ | {"IRLI_NUM_THREADS": "1", "ANNIF_CONFIG": "annif.default_config.Config"},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a vocabulary, projects, documents, and a trained project `irli`."""
    folder = tmp_path_factory.mktemp("shop")
    names = [*WORDS, "voyages"]
    vocabulary = "".join(f"<http://example.org/{name}>\t{name}\n" for name in names)
    (folder / "vocabulary.tsv").write_text(vocabulary)
    lines = [write_line(word, other, word) for word in WORDS for other in OTHERS for _ in range(8)]
    (folder / "train.tsv").write_text("\n".join([*lines, write_line("voyages", "ship", "ships")]))
    (folder / "test.tsv").write_text("\n".join(write_line(word, "new", word) for word in WORDS))
    sections = [
        f"[{name}]\nname={name}\nlanguage=en\nanalyzer=simple\nvocab=words\n{settings}\n"
        for name, settings in SETTINGS.items()
    ]
    (folder / "projects.cfg").write_text("\n".join(sections))
    run(folder, "load-vocab", "--language", "en", "words", "vocabulary.tsv")
    run(folder, "train", "--jobs", "1", "irli", "train.tsv")
    return folder


def test_without_annif_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "annif", None)
    monkeypatch.delitem(sys.modules, "irli.integrations.annif", raising=False)
    with pytest.raises(SystemExit, match=r"irli-annif: error: .* pip install 'irli\[annif\]'"):
        main()


@with_annif
def test_annif_knows_the_project(shop: Path) -> None:
    [line] = [line for line in run(shop, "list-projects").splitlines() if line.startswith("irli")]
    assert "True" in line  # it is trained


@with_annif
def test_suggest(shop: Path) -> None:
    first = run(shop, "suggest", "irli", text="a new book about birds").splitlines()[0]
    uri, name, score = first.split("\t")
    assert (uri, name) == ("<http://example.org/birds>", "birds")
    assert 0 < float(score) <= 1


@with_annif
@pytest.mark.parametrize(
    ("name", "jobs"), [("irli", "1"), ("irli", "2"), ("tfidf", "1"), ("omikuji", "1")]
)
def test_eval_beside_the_backends_of_annif(shop: Path, name: str, jobs: str) -> None:
    if name != "irli":
        run(shop, "train", "--jobs", "1", name, "train.tsv")
    run(shop, "eval", "--jobs", jobs, "--metrics-file", "metrics.json", name, "test.tsv")
    metrics = json.loads((shop / "metrics.json").read_text())
    assert metrics["Precision@1"] == 1.0
    assert metrics["Documents_evaluated"] == len(WORDS)


@with_annif
def test_train_from_the_cache_and_learn(shop: Path) -> None:
    run(shop, "train", "--cached", "--jobs", "1", "irli")
    lines = [write_line("voyages", other, "voyages") for other in OTHERS for _ in range(8)]
    lines += [write_line(word, other, word) for word in WORDS for other in OTHERS[:2]]
    (shop / "new.tsv").write_text("\n".join(lines))
    run(shop, "learn", "irli", "new.tsv")
    said = run(shop, "suggest", "irli", text="atlas about voyages")
    assert said.startswith("<http://example.org/voyages>\tvoyages\t")
    assert run(shop, "suggest", "irli", text="atlas about kings").split("\t")[1] == "kings"


@with_annif
def test_the_web_application(shop: Path) -> None:
    code = """
from irli.integrations.annif import create_app

client = create_app().test_client()
answer = client.post("/v1/projects/irli/suggest", data={"text": "letters about rivers"})
print(answer.json()["results"][0]["label"])
"""
    assert run(shop, code=code).strip() == "rivers"
