from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from commands import Runner, refused

import irli
from irli.base.folder import read_folder, write_folder
from irli.base.threads import thread_count
from irli.cli.app import main
from irli.errors import FormatError, InvalidParameter, NotFitted
from irli.labels import metrics
from irli.labels.files.rows import write_matrix, write_rows
from irli.labels.text.vectorizer import Names

PETS = ["bird", "cat", "dog", "fish", "hot dog", "ü"]
SOUNDS = ["sings", "purrs", "barks", "bubbles", "sizzles", "öst"]
SETTINGS = ("epochs=12", "hidden=16", "repetitions=2", "buckets=4", "batch_size=16")
SMALL = ["--threads", "1", *(f"--set={setting}" for setting in SETTINGS)]
ROWS, DIM = 120, 8


class Files(NamedTuple):
    """The same pets as texts, and other rows as features with labels 0 to 5."""

    folder: Path
    texts: Path
    labels: Path
    jsonl: Path
    xmc: Path
    x: Path
    y: Path
    dense: Path
    names: Path


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Row i carries label i % 6, which its words or its features tell, and every third "pet"."""
    folder = tmp_path_factory.mktemp("labels")
    names = ("t.txt", "l.txt", "t.jsonl.gz", "x.txt.gz", "x.npz", "y.npz", "x.npy", "names.txt")
    files = Files(folder, *(folder / name for name in names))
    own = [i % 6 for i in range(ROWS)]
    texts = [f"number {i}: it {SOUNDS[pet]}, so it {SOUNDS[pet]}" for i, pet in enumerate(own)]
    lists = [[PETS[pet]] + ["pet"] * (i % 3 == 0) for i, pet in enumerate(own)]
    files.texts.write_text("".join(f"{text}\n" for text in texts))
    files.labels.write_text("".join("\t".join(row) + "\t\n" for row in lists))
    objects = ({"text": t, "labels": row} for t, row in zip(texts, lists, strict=True))
    lines = "".join(json.dumps(each) + "\n" for each in objects)
    files.jsonl.write_bytes(gzip.compress(lines.encode()))
    dense = np.eye(6, DIM)[own] + 0.1 * np.random.default_rng(0).random((ROWS, DIM))
    np.save(files.dense, dense.astype(np.float32))
    x, y = sp.csr_array(dense), sp.csr_array(np.eye(6)[own])
    write_matrix(files.x, x)
    write_matrix(files.y, y)
    write_rows(files.xmc, x, y)
    files.names.write_text("".join(f"{name}\n" for name in PETS))
    return files


@pytest.fixture(scope="session")
def told(files: Files) -> Path:
    """An index of texts that no test may change."""
    path = files.folder / "told"
    texts = ["labels", "fit", str(files.texts), str(files.labels), "--out", str(path)]
    assert main([*texts, *SMALL]) == 0
    return path


@pytest.fixture(scope="session")
def plain(files: Files) -> Path:
    """An index of features whose labels have no names; no test may change it."""
    path = files.folder / "plain"
    assert main(["labels", "fit", str(files.xmc), "--out", str(path), *SMALL]) == 0
    return path


def label_index(path: Path) -> irli.LabelIndex:
    index = irli.load(path)
    assert isinstance(index, irli.LabelIndex)
    return index


# --- fit ---------------------------------------------------------------------------------------


def test_help(run: Runner) -> None:
    for command in (["labels"], ["labels", "--help"]):
        assert run(*command).code == 0
        assert all(word in run(*command).out for word in ("fit", "predict", "eval"))
    assert "--names" in run("labels", "fit", "--help").out
    assert "labels" in run("--help").out


def test_fit_on_texts_keeps_words_and_names(told: Path) -> None:
    index = label_index(told)
    assert list(index.names or ()) == sorted([*PETS, "pet"])
    assert index.vectorizer is not None
    assert "öst" in index.vectorizer.words
    assert index.rows == ROWS
    assert index.counts.tolist() == [20, 20, 20, 20, 20, 40, 20]
    found = index.predict_text(["It barks!", "öst"], k=1)
    assert [[name for name, _ in row] for row in found] == [["dog"], ["ü"]]


def test_fit_tells_what_it_made(run: Runner, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "new" / "index"
    text = run("labels", "fit", files.jsonl, "--out", out, *SMALL, "--no-ranker").out
    assert f"{out}: 7 labels with names, from {ROWS} texts of " in text
    assert "2 x 4" in text
    assert "without a ranker" in text
    assert [path.name for path in out.parent.iterdir()] == ["index"]
    said = run("labels", "fit", files.xmc, "--out", out, *SMALL, "--ranker", "--json").json
    assert (said["items"], said["rows"], said["dim"], said["names"]) == (6, ROWS, DIM, False)
    assert said["ranker_weights"] > 0
    assert said["index"] == str(out)


def test_fit_goes_on_from_an_index(run: Runner, files: Files, told: Path, tmp_path: Path) -> None:
    texts = [*files.texts.read_text().splitlines(), "it crows", "it crows and sings"]
    lists = [*files.labels.read_text().splitlines(), "cock", "cock"]
    (tmp_path / "t.txt").write_text("\n".join(texts))
    (tmp_path / "l.txt").write_text("\n".join(lists))
    given = ("labels", "fit", tmp_path / "t.txt", tmp_path / "l.txt", "--out", tmp_path / "new")
    done = run(*map(str, (*given, "--start", told, "--threads", 1)))
    assert done.code == 0
    old, new = label_index(told), label_index(tmp_path / "new")
    assert list(new.names or ()) == [*(old.names or ()), "cock"]
    assert new.vectorizer is not None
    assert new.vectorizer.words == (old.vectorizer and old.vectorizer.words)
    refused = run(*map(str, (*given, "--start", told, "--ngrams", 2)))
    assert refused.code != 0
    assert "--ngrams option must be left out for an index to start from" in refused.err


def test_all_formats_of_features_are_one(run: Runner, files: Files, tmp_path: Path) -> None:
    write_matrix(tmp_path / "x.txt", sp.load_npz(files.x))
    write_matrix(tmp_path / "y.txt.gz", sp.load_npz(files.y))
    given = [[files.xmc], [files.x, files.y], [tmp_path / "x.txt", tmp_path / "y.txt.gz"]]
    found = []
    for number, paths in enumerate(given):
        out = tmp_path / str(number)
        assert run("labels", "fit", *paths, "--out", out, *SMALL, "--names", files.names).code == 0
        found.append(run("labels", "predict", out, files.x, "--json").json)
        assert found[-1]["labels"] == found[0]["labels"]
    assert [row[0] for row in found[0]["labels"][:6]] == PETS
    out = tmp_path / "dense"
    assert run("labels", "fit", files.dense, files.y, "--out", out, *SMALL).code == 0
    assert run("labels", "eval", out, files.dense, files.y, "--json").json["P@1"] == 1


def test_all_formats_of_texts_are_one(
    run: Runner, files: Files, told: Path, tmp_path: Path
) -> None:
    with gzip.open(files.jsonl, "rt") as lines:
        entries = [json.loads(line) for line in lines]
    rows = [(entry["text"], entry["labels"]) for entry in entries]
    (tmp_path / "t.tsv").write_text("".join(f"{t}\t{'|'.join(names)}\n" for t, names in rows))
    with open(tmp_path / "t.csv", "w", newline="") as out:
        csv.writer(out).writerows([("title", "topics"), *((t, "|".join(n)) for t, n in rows)])
    (tmp_path / "folder").mkdir()
    for number, (text, names) in enumerate(rows):
        file = tmp_path / "folder" / f"{number:03}.txt"
        file.write_text(text)
        file.with_suffix(".key").write_text("\n".join(names))
    right = run("labels", "eval", told, files.texts, files.labels, "--json").json
    assert right["F1@1"] > 0.8
    found = run("labels", "predict", told, files.texts, "--json").json["labels"]
    columns = ["--text", "title", "--label", "topics", "--separator", "|"]
    for name, options in ("t.tsv", columns[-2:]), ("t.csv", columns), ("folder", []):
        said = run("labels", "eval", told, tmp_path / name, *options, "--json").json
        measured = {key for key in said if "@" in key}
        assert len(measured) == 21  # five measures at four depths, and the recall
        assert {key: said[key] for key in measured} == {key: right[key] for key in measured}
        said = run("labels", "predict", told, tmp_path / name, *options, "--json").json
        assert said["labels"] == found


def test_fit_on_uris_with_parts_of_words(run: Runner, tmp_path: Path) -> None:
    forms = ["kirja kirjan", "kissa kissan", "talo talon"]
    rows = [f"{forms[i % 3]} {i}\t<http://onto/p{i % 3}> <http://onto/all>\n" for i in range(60)]
    with gzip.open(tmp_path / "t.tsv.gz", "wt") as out:
        out.writelines(rows)
    (tmp_path / "v.tsv").write_text("<http://onto/p0>\tbooks\n<http://onto/p1>\tcats\n")
    words = ["--ngrams", 2, "--characters", "3,4", "--min-df", 2, "--titles", tmp_path / "v.tsv"]
    fit = ["labels", "fit", tmp_path / "t.tsv.gz", "--out", tmp_path / "x", *SMALL, *words]
    assert run(*fit).code == 0
    index = label_index(tmp_path / "x")
    assert list(index.names or ()) == ["http://onto/all", *(f"http://onto/p{i}" for i in range(3))]
    assert index.vectorizer is not None
    assert {"talo talon", "-alo-", "talon"} <= set(index.vectorizer.words)
    ask = ["labels", "predict", tmp_path / "x", tmp_path / "t.tsv.gz", "-k", 4]
    said = run(*ask, "--json").json
    titles = {"http://onto/p0": "books", "http://onto/p1": "cats"}
    assert said["titles"][0] == [titles.get(name, name) for name in said["labels"][0]]
    assert "books (" in run(*ask).out
    # A form that it has never seen has parts that it knows.
    known = index.features(["talolle"]).indices
    assert {index.vectorizer.words[i] for i in known} == {"ta-", "tal-", "-tal-", "-alo-", "-talo-"}


def test_the_format_can_be_forced(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("3 2 1\none\ntwo\n")
    (tmp_path / "l.txt").write_text("7 8\na\nb\n")
    fit = ["labels", "fit", tmp_path / "t.txt", tmp_path / "l.txt", "--out", tmp_path / "out"]
    refused(run(*fit, *SMALL), "LABELS must be left out", "'xmc'", "--format")
    assert run(*fit, *SMALL[:-2], "--set=buckets=2", "--format", "text").code == 0
    assert list(label_index(tmp_path / "out").names or ()) == ["7", "8", "a", "b"]


def test_the_seed_and_the_recipe_are_taken(run: Runner, files: Files, tmp_path: Path) -> None:
    options = ["--recipe", "paper-labels", "--seed", 5, "--quiet", "--set=choices=2"]
    assert run("labels", "fit", files.xmc, "--out", tmp_path / "x", *SMALL, *options).code == 0
    recipe = label_index(tmp_path / "x").recipe
    assert (recipe.name, recipe.seed, recipe.hidden) == ("paper-labels", 5, 16)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["{texts}"], ["LABELS must be given", "t.txt", "a line of names"]),
        (["{x}"], ["LABELS must be given", "a matrix of labels"]),
        (["{xmc}", "{y}"], ["LABELS must be left out", "'xmc'"]),
        (["{jsonl}", "{labels}"], ["LABELS must be left out", "'jsonl'"]),
        (["{texts}", "{names}"], [f"each of the {ROWS} rows", "Got 6", "names.txt"]),
        (["{texts}", "{labels}", "--names", "{names}"], ["--names", "names already"]),
        (["{xmc}", "--names", "{texts}"], ["'names'", "each of 6 labels", f"Got {ROWS}"]),
        (["{xmc}", "--names", "nowhere.txt"], ["nowhere.txt"]),
        (["nowhere.txt"], ["nowhere.txt"]),
        (["{folder}"], ["at least one row"]),  # texts without labels
        (["{texts}", "nowhere.txt"], ["nowhere.txt"]),
        (["{x}", "{texts}"], ["t.txt, line 1", "2 whole numbers"]),
        (["{xmc}", "--format", "cvs"], ["--format", "'jsonl'"]),
        (["{xmc}", "--ngrams", "2"], ["--ngrams", "rows of features"]),
        (["{xmc}", "--text", "title"], ["--text", "rows of features"]),
        (["{xmc}", "--titles", "v.ttl"], ["--titles", "rows of features"]),
        (["{jsonl}", "--titles", "v.rdf"], ["vocabulary", "'.ttl'"]),
        (["{jsonl}", "--characters", "3-5"], ["--characters", "3,5"]),
        (["{jsonl}", "--characters", "5,3"], ["'characters'", "(3, 5)"]),
        (["{jsonl}", "--text", "title"], ["line 1", "string 'title'"]),
        (["{xmc}", "--format", "jsonl"], ["line 1", "JSON"]),
        (["{texts}", "--format", "xmc"], ["line 1", "3 whole numbers"]),
        (["{texts}", "{labels}", "--format", "matrix"], ["line 1", "2 whole numbers"]),
        (["{xmc}", "--recipe", "best"], ["'labels'"]),
        (["{xmc}", "--set", "epoch=3"], ["'epochs'"]),
        (["{xmc}", "--threads", "0"], ["threads"]),
        ([], ["ROWS"]),
    ],
)
def test_fit_refuses(
    run: Runner, files: Files, tmp_path: Path, given: list[str], words: list[str]
) -> None:
    filled = [option.format(**files._asdict()) for option in given]
    refused(run("labels", "fit", *filled, "--out", tmp_path / "out"), *words)
    assert not any(tmp_path.iterdir())


def test_fit_needs_a_place(run: Runner, files: Files, tmp_path: Path) -> None:
    refused(run("labels", "fit", files.xmc), "--out")
    (tmp_path / "letter.txt").write_text("Dear")
    refused(run("labels", "fit", files.xmc, "--out", tmp_path), "holds other files")


XMC = "3 4 2\n0 1:1\n1 2:1\n0,1 3:1\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.txt", XMC[:-8], ["must have 3 rows", "cut in the middle"]),
        ("x.txt", XMC[:-2], ["line 4", "finite number"]),
        ("x.txt", XMC.replace("3 4 2", "2 4 2"), ["line 4", "must end after 2 rows"]),
        ("x.txt", XMC.replace("3 4 2", "3 4 1"), ["line 3", "range [0, 0]"]),
        ("x.txt", XMC.replace("3 4 2", "3 3 2"), ["line 4", "range [0, 2]"]),
        ("x.txt", "2 4 2\n 1:1\n 2:1\n", ["'Y'", "at least one row"]),
        ("x.txt", "0 4 2\n", ["'X'", "at least one row"]),
        ("x.txt", "", ["LABELS must be given"]),
        ("x.txt.gz", XMC, ["whole packed file"]),
        ("x.jsonl", '{"text": "a", "labels": ["b"]}\n{"text": "c", "lab', ["line 2", "JSON"]),
        ("x.jsonl", '{"text": "a"}\n{"text": "b"}\n', ["'Y'", "at least one row"]),
        ("x.jsonl", '{"text": "?", "labels": ["b"]}\n', ["must have a word"]),
        ("x.jsonl", "", ["must have a word"]),
    ],
)
def test_fit_refuses_damaged_files(
    run: Runner, tmp_path: Path, name: str, content: str, words: list[str]
) -> None:
    (tmp_path / name).write_text(content)
    refused(run("labels", "fit", tmp_path / name, "--out", tmp_path / "out"), *words)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_fit_refuses_matrices_that_are_cut_or_do_not_match(
    run: Runner, files: Files, tmp_path: Path
) -> None:
    (tmp_path / "cut.npz").write_bytes(files.x.read_bytes()[:-99])
    fit = ["labels", "fit", "--out", tmp_path / "out"]
    refused(run(*fit, tmp_path / "cut.npz", files.y), "cut.npz")
    write_matrix(tmp_path / "few.npz", sp.load_npz(files.y)[:7])
    refused(run(*fit, files.x, tmp_path / "few.npz"), f"the {ROWS} rows", "Got 7")


def test_rows_without_features_or_without_labels_are_rows(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("4 3 2\n0 0:1\n1\n 1:1\n1 2:1\n")
    out = tmp_path / "out"
    refused(run("labels", "fit", tmp_path / "x.txt", "--out", out, *SMALL), "'buckets'", "2 labels")
    small = [option for option in SMALL if "buckets" not in option]
    assert run("labels", "fit", tmp_path / "x.txt", "--out", out, *small).code == 0
    said = run("labels", "predict", out, tmp_path / "x.txt", "--json").json
    assert [sorted(row) for row in said["labels"]] == [[0, 1]] * 4
    assert [row[0] for row in said["labels"]][::3] == [0, 1]


# --- predict -----------------------------------------------------------------------------------


def test_predict_answers_as_the_library(run: Runner, told: Path, plain: Path, files: Files) -> None:
    texts = files.texts.read_text().splitlines()
    said = run("labels", "predict", told, files.texts, "-k", 2, "--threads", -1, "--json").json
    expected = label_index(told).predict_text(texts, 2)
    assert said["labels"] == [[name for name, _ in row] for row in expected]
    assert said["scores"] == [[score for _, score in row] for row in expected]
    assert (said["rows"], said["k"]) == (ROWS, 2)
    said = run("labels", "predict", plain, files.x, "-k", 9, "--probes", 4, "--json").json
    assert [row[0] for row in said["labels"]] == [i % 6 for i in range(ROWS)]
    assert {len(row) for row in said["labels"]} == {6}


def test_predict_prints_the_first_rows(run: Runner, told: Path, plain: Path, files: Files) -> None:
    lines = run("labels", "predict", told, files.jsonl, "-k", 1).out.splitlines()
    assert len(lines) == 6
    assert lines[4].startswith("row 4: hot dog (")
    assert f"{ROWS - 5} more" in lines[-1]
    assert run("labels", "predict", plain, files.xmc, "-k", 1).out.startswith("row 0: 0 (")


def test_predict_keeps_answers(run: Runner, told: Path, files: Files, tmp_path: Path) -> None:
    index = label_index(told)
    expected = index.predict(index.features(files.texts.read_text().splitlines()), 3)
    options = ["-k", 3, "--json", "--out"]
    for name in ("found.npz", "found.jsonl", "new/found.npz"):
        said = run("labels", "predict", told, files.texts, *options, tmp_path / name).json
        assert said["out"] == str(tmp_path / name)
        assert "labels" not in said
    with np.load(tmp_path / "found.npz") as kept:
        np.testing.assert_array_equal(kept["labels"], expected.labels)
        np.testing.assert_array_equal(kept["scores"], expected.scores)
    lines = (tmp_path / "found.jsonl").read_text().splitlines()
    assert len(lines) == ROWS
    assert json.loads(lines[5])["labels"][0] == "ü"


def test_predict_takes_parameters(run: Runner, plain: Path, files: Files) -> None:
    options = {"probes": 1, "candidates": 2, "score": "votes"}
    flags = [f"--{name}={value}" for name, value in options.items()]
    said = run("labels", "predict", plain, files.x, *flags, "--no-ranker", "--json").json
    rows = sp.load_npz(files.x)
    expected = label_index(plain).predict(rows, **options, ranker=False)
    got = [[label for label in row if label >= 0] for row in expected.labels.tolist()]
    assert said["labels"] == got


def test_predict_prints_probabilities(run: Runner, told: Path, files: Files) -> None:
    said = run("labels", "predict", told, files.texts, "-k", 4, "--json").json
    assert all(0 < score <= 1 for row in said["scores"] for score in row)
    printed = run("labels", "predict", told, files.texts, "-k", 4).out
    shown = [float(number) for number in re.findall(r"\(([^)]+)\)", printed)]
    first = [score for row in said["scores"][:5] for score in row]
    np.testing.assert_allclose(shown, first, rtol=1e-3)
    assert "probabilities" in run("labels", "predict", "--help").out


def test_predict_with_a_threshold(run: Runner, told: Path, files: Files, tmp_path: Path) -> None:
    asked = ["labels", "predict", told, files.texts, "-k", 4]
    every = run(*asked, "--json").json
    cut = float(np.median(np.concatenate(every["scores"])))
    kept = run(*asked, "--threshold", cut, "--json").json
    assert kept["scores"] == [[one for one in row if one >= cut] for row in every["scores"]]
    assert kept["labels"] == [
        labels[: len(scores)]
        for labels, scores in zip(every["labels"], kept["scores"], strict=True)
    ]
    assert sum(map(len, kept["labels"])) < sum(map(len, every["labels"]))
    assert run(*asked, "--threshold", 1).out.startswith("row 0: nothing")
    out = tmp_path / "found.npz"
    assert run(*asked, "--threshold", cut, "--out", out).code == 0
    with np.load(out) as written:
        np.testing.assert_array_equal((written["labels"] >= 0).sum(1), [*map(len, kept["labels"])])
    for wrong in (-0.5, 1.5, "nan"):
        refused(run(*asked, "--threshold", wrong), "threshold")


def test_near_rows_can_be_left_out(run: Runner, plain: Path, files: Files) -> None:
    asked = [plain, files.x, "--near", 0, "--json"]
    said = run("labels", "predict", *asked).json
    expected = label_index(plain).predict(sp.load_npz(files.x), near=0)
    got = [[label for label in row if label >= 0] for row in expected.labels.tolist()]
    assert said["labels"] == got
    assert run("labels", "eval", plain, files.x, files.y, "--near", 0, "--json").json["P@1"] > 0.5
    refused(run("labels", "predict", plain, files.x, "--near", -1), "near")


def test_fit_with_an_objective(run: Runner, files: Files, tmp_path: Path) -> None:
    asked = ["labels", "fit", files.xmc, "--out", tmp_path / "index", *SMALL]
    assert run(*asked, "--objective", "propensity").code == 0
    assert label_index(tmp_path / "index").get_params()["objective"] == "propensity"
    wrong = ["labels", "fit", files.xmc, "--out", tmp_path / "no", *SMALL]
    refused(run(*wrong, "--objective", "recall"), "'objective'", "'balanced'", "'propensity'")
    assert not (tmp_path / "no").exists()


def test_info_shows_what_was_tried(run: Runner, files: Files, tmp_path: Path) -> None:
    path = tmp_path / "index"
    assert run("labels", "fit", files.xmc, "--out", path, "--ranker", *SMALL).code == 0
    said = run("info", path, "--json").json
    tried = [entry for entry in said["history"] if "choice" in entry]
    rounds, table = run("info", path).out.strip().split("\n\n")[-2:]
    assert rounds.split()[:2] == ["repetition", "epoch"]
    lines = table.splitlines()
    assert lines[0].split() == ["choice", "tried", "quality"]
    assert len(lines) == 1 + len(tried) > 5
    assert lines[-1].split() == ["ranker", "blended", f"{tried[-1]['quality']:.4f}"]


def test_predict_refuses(
    run: Runner, told: Path, plain: Path, files: Files, tmp_path: Path
) -> None:
    refused(run("labels", "predict", plain, files.texts), "features", "not fitted on texts")
    refused(run("labels", "predict", told, files.x), "features", f"Got {DIM} instead")
    refused(run("labels", "predict", told, tmp_path / "no.txt"), "no.txt")
    refused(run("labels", "predict", tmp_path / "no", files.texts), "no index")
    (tmp_path / "none.txt").write_text("")
    refused(run("labels", "predict", told, tmp_path / "none.txt"), "at least one row")
    asked = ["labels", "predict", told, files.texts]
    refused(run(*asked, "--out", tmp_path / "found.csv"), "'.npz'", "'.csv'")
    (tmp_path / "folder.jsonl").mkdir()
    refused(run(*asked, "--out", tmp_path / "folder.jsonl"), "--out option", "Choose another")
    refused(run(*asked, "-k", 0), "-k")
    refused(run(*asked, "--score", "luck"), "'votes'")
    refused(run(*asked, "--probes", 0), "probes")


def test_texts_without_a_known_word(run: Runner, told: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"it {SOUNDS[0]}\nquelque chose\n")
    (tmp_path / "labels.txt").write_text(f"{PETS[0]}\n{PETS[1]}\n")
    said = run("labels", "predict", told, tmp_path / "texts.txt", "-k", 2, "--json")
    assert PETS[0] in said.json["labels"][0]
    assert said.json["labels"][1] == said.json["scores"][1] == []
    assert said.err.startswith("irli: warning: 1 of 2 texts have no word")
    assert said.err.count("\n") == 1
    asked = ["labels", "eval", told, tmp_path / "texts.txt", tmp_path / "labels.txt"]
    measured = run(*asked, "-k", "2", "--json")
    assert measured.json["P@2"] == 0.25  # one of two labels, and the other row is missed
    assert measured.err.startswith("irli: warning: 1 of 2 texts have no word")


def test_label_numbers_in_a_file(run: Runner, files: Files, plain: Path, tmp_path: Path) -> None:
    numbers = np.arange(ROWS)[:, None] % 6
    np.save(tmp_path / "y.npy", numbers)
    out = tmp_path / "index"
    assert run("labels", "fit", files.x, tmp_path / "y.npy", "--out", out, *SMALL).code == 0
    assert len(label_index(out)) == 6
    by_number = run("labels", "eval", plain, files.x, tmp_path / "y.npy", "--json").json
    by_matrix = run("labels", "eval", plain, files.x, files.y, "--json").json
    assert by_number["P@1"] == by_matrix["P@1"]
    np.save(tmp_path / "matrix.npy", np.eye(6, dtype=int)[numbers.ravel()])
    asked = ["labels", "fit", files.x, tmp_path / "matrix.npy", "--out", tmp_path / "no", *SMALL]
    refused(run(*asked), "label numbers", "0 twice in row 0", "astype(bool)")


def test_recipes_of_the_other_kind(run: Runner, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "no"
    asked = ["labels", "fit", files.xmc, "--out", out, "--recipe", "default"]
    refused(run(*asked), "'recipe'", "'labels', 'paper-labels'", "irli build")
    asked = ["build", files.dense, out, "--recipe", "labels"]
    refused(run(*asked), "'recipe'", "'exact', 'paper'", "irli labels fit")
    assert not out.exists()


def test_help_says_what_a_score_is(run: Runner) -> None:
    for command in (["labels", "predict"], ["labels", "eval"], ["search"]):
        said = " ".join(run(*command, "--help").out.split())
        assert "How " in said.partition("--score")[2].partition(" --")[0]


def test_info_and_predict_do_without_torch(plain: Path, files: Files) -> None:
    code = f"""
import sys
from irli.cli.app import main
assert main(["info", {str(plain)!r}]) == 0
assert main(["labels", "predict", {str(plain)!r}, {str(files.x)!r}]) == 0
assert not {{"torch", "sklearn"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True)


# --- eval --------------------------------------------------------------------------------------


def test_eval_measures_as_the_library(run: Runner, plain: Path, files: Files) -> None:
    said = run("labels", "eval", plain, files.x, files.y, "-k", "1,2", "--b", 2, "--json").json
    truth = sp.load_npz(files.y)
    found = label_index(plain).predict(sp.load_npz(files.x), 2).labels
    expected = metrics.evaluate(found, truth, truth, ks=(1, 2), b=2)
    for name in ("P@1", "P@2", "nDCG@2", "PSP@1", "PSP@2", "F1@2"):
        assert said[name] == pytest.approx(expected[name])
    assert said["hits/min(k,labels)@2"] == metrics.precision_of_possible(found, truth, 2)
    assert (said["P@1"], said["P@2"], said["hits/min(k,labels)@2"]) == (1, 0.5, 1)
    assert (said["recall@100"], said["unknown_labels"], said["rows"]) == (1, 0, ROWS)
    assert said["ms_per_row"] > 0


def test_eval_prints_a_table(run: Runner, told: Path, files: Files) -> None:
    text = run("labels", "eval", told, files.texts, files.labels, "--threads", 1).out
    assert text.split()[:4] == ["@1", "@3", "@5", "@10"]
    assert "recall@100" in text
    assert "120 rows, threads=1" in text
    assert "unknown" not in text
    assert text == text.rstrip() + "\n"
    cores = thread_count(-1)
    every = run("labels", "eval", told, files.texts, files.labels, "--threads", -1)
    assert f"120 rows, threads={cores}" in every.out


def test_labels_never_seen_count_as_missed(
    run: Runner, told: Path, plain: Path, files: Files, tmp_path: Path
) -> None:
    (tmp_path / "new.jsonl").write_text(
        '{"text": "it barks, it barks", "labels": ["dog"]}\n'
        '{"text": "it moos, it moos", "labels": ["cow", "ox"]}\n'
    )
    said = run("labels", "eval", told, tmp_path / "new.jsonl", "--k", 1, "--json").json
    assert (said["P@1"], said["recall@100"], said["unknown_labels"]) == (0.5, 0.5, 2)
    assert said["PSP@1"] < 0.5  # the missed ones are the rarest
    text = run("labels", "eval", told, tmp_path / "new.jsonl").out
    assert "2 of the labels are unknown" in text
    y = np.eye(6)[np.arange(ROWS) % 6]
    write_matrix(tmp_path / "wide.npz", sp.csr_array(np.hstack([y, y])))
    said = run("labels", "eval", plain, files.x, tmp_path / "wide.npz", "--json").json
    assert (said["P@1"], said["recall@100"], said["unknown_labels"]) == (1, 0.5, 6)
    write_matrix(tmp_path / "narrow.npz", sp.csr_array(y[:, :3]))
    said = run("labels", "eval", plain, files.x, tmp_path / "narrow.npz", "--json").json
    assert (said["P@1"], said["unknown_labels"]) == (0.5, 0)


def test_eval_refuses(run: Runner, told: Path, plain: Path, files: Files, tmp_path: Path) -> None:
    refused(run("labels", "eval", told, files.texts), "LABELS must be given")
    refused(run("labels", "eval", told, files.texts, files.names), f"the {ROWS} rows", "Got 6")
    refused(run("labels", "eval", plain, files.jsonl), "not fitted on texts")
    refused(run("labels", "eval", told, files.xmc), "features")
    for depths in ("0", "1,x", "", "-1"):
        refused(run("labels", "eval", plain, files.xmc, f"--k={depths}"), "--k", "1,3,5")
    refused(run("labels", "eval", plain, files.xmc, "--a", -1), "'a'")
    (tmp_path / "empty.jsonl").write_text('{"text": "it barks"}\n')
    refused(run("labels", "eval", told, tmp_path / "empty.jsonl"), "at least one row")


# --- both kinds of index -----------------------------------------------------------------------


def test_info_tells(run: Runner, told: Path, plain: Path) -> None:
    said = run("info", told, "--json").json
    assert (said["kind"], said["items"], said["rows"], said["text"]) == ("labels", 7, ROWS, True)
    assert said["history"]
    text = run("info", told).out
    assert f"7 labels with names, from {ROWS} texts of " in text
    assert "epochs=12" in text
    assert "affinity" in text
    assert f"6 labels without names, from {ROWS} rows of 8 features" in run("info", plain).out


def test_commands_of_the_other_kind_name_the_right_one(
    run: Runner, plain: Path, files: Files, tmp_path: Path
) -> None:
    for command in (["search", plain, files.dense], ["tune", plain], ["eval", plain, files.dense]):
        refused(run(*command), "kind 'labels'", "irli labels predict")
    vectors = ["--set=epochs=1", "--set=buckets=4", "--set=choices=2", "--threads", 1]
    assert run("build", files.dense, tmp_path / "vectors", *vectors).code == 0
    for name in ("predict", "eval"):
        refused(run("labels", name, tmp_path / "vectors", files.xmc), "kind 'vectors'", "search")


# --- text in LabelIndex ------------------------------------------------------------------------


def test_text_survives_saving(told: Path, files: Files, tmp_path: Path) -> None:
    index = label_index(told)
    index.save(tmp_path / "again")
    again = label_index(tmp_path / "again")
    texts = files.texts.read_text().splitlines()
    assert again.predict_text(texts, 3) == index.predict_text(texts, 3)
    assert (again.rows, again.counts.tolist()) == (index.rows, index.counts.tolist())
    assert again.stats() == index.stats()


def test_a_text_has_no_more_labels_than_there_are(told: Path) -> None:
    ((*found,),) = label_index(told).predict_text(["barks"], k=99, probes=4)
    assert sorted(name for name, _ in found) == sorted([*PETS, "pet"])
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert np.isfinite(scores).all()


def test_an_index_of_features_reads_no_texts(plain: Path) -> None:
    for read in (label_index(plain).predict_text, label_index(plain).features):
        with pytest.raises(NotFitted, match="fit_text"):
            read(["barks"])
    with pytest.raises(NotFitted, match="not fitted yet"):
        irli.LabelIndex().predict_text(["barks"])


def test_texts_and_labels_must_match() -> None:
    with pytest.raises(InvalidParameter, match=r"'labels' parameter of fit_text.* Got 1"):
        irli.LabelIndex().fit_text(["a", "b"], [["x"]])
    with pytest.raises(InvalidParameter, match="Got str instead"):
        irli.LabelIndex().fit_text(["a"], ["x"])


def new_label(width: int = 1) -> tuple[Any, Any]:
    return sp.csr_array(np.eye(3, DIM)), sp.csr_array(np.ones((3, width)))


def test_added_labels_have_names_if_the_others_have(
    run: Runner, plain: Path, files: Files, tmp_path: Path
) -> None:
    fit = ["labels", "fit", files.xmc, "--out", tmp_path / "x", "--names", files.names]
    assert run(*fit, *SMALL).code == 0
    named, nameless = label_index(tmp_path / "x"), label_index(plain)
    with pytest.raises(InvalidParameter, match="must name the 1 new labels"):
        named.add_labels(*new_label())
    with pytest.raises(InvalidParameter, match="Got 'cat' at 1 and 6"):
        named.add_labels(*new_label(), names=["cat"])
    with pytest.raises(InvalidParameter, match="left out"):
        nameless.add_labels(*new_label(), names=["cow"])
    assert (len(named), len(nameless)) == (6, 6)
    named.add_labels(*new_label(2), names=["cow", "ox"])
    nameless.add_labels(*new_label())
    assert (list(named.names or ()), nameless.names) == ([*PETS, "cow", "ox"], None)
    named.save(tmp_path / "x")
    assert len(label_index(tmp_path / "x").names or ()) == len(named) == 8
    x, y = sp.load_npz(files.x), sp.hstack([sp.load_npz(files.y), np.ones((ROWS, 3))])
    with pytest.raises(InvalidParameter, match="'names' parameter of fit"):
        named.fit(x, y, start=named)
    named.fit(x, y, names=["ape"], start=named)
    assert list(named.names or ())[-2:] == ["ox", "ape"]


def test_names_can_be_given_to_fit(files: Files) -> None:
    x, y = sp.load_npz(files.x), sp.load_npz(files.y)
    recipe = irli.recipe("labels", epochs=1, hidden=8)
    index = irli.LabelIndex(recipe).fit(x, y, names=Names.of(PETS), threads=1)
    assert list(index.names or ()) == PETS
    assert index.fit(x, y, threads=1).names is None
    with pytest.raises(InvalidParameter, match=r"each of 6 labels\. Got 1"):
        index.fit(x, y, names=["cat"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta, _: meta.pop("rows"), "'rows'"),
        (lambda meta, _: meta.pop("text"), "'text'"),
        (lambda meta, _: meta["text"].pop("ngrams"), "saved text model.*'ngrams'"),
        (lambda _, arrays: arrays.pop("idf"), "saved text model.*'idf'"),
        (lambda _, arrays: arrays.pop("names_offsets"), "saved text model.*'names_offsets'"),
        (lambda _, arrays: arrays.pop("items"), "'items'"),
        (lambda _, arrays: arrays.pop("counts"), "'counts'"),
    ],
)
def test_folders_that_lack_something(told: Path, tmp_path: Path, change: Any, message: str) -> None:
    copy = shutil.copytree(told, tmp_path / "copy")
    folder = read_folder(copy, mmap=False)
    change(folder.meta, folder.arrays)
    write_folder(copy, folder)
    with pytest.raises(FormatError, match=message):
        irli.load(copy)
