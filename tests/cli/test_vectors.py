from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from commands import Runner, refused

import irli
from irli.base.vector_files import read_vectors, write_vectors
from irli.cli.app import main
from irli.engine.exact import exact_neighbors
from irli.learning import runs

ITEMS, DIM, K = 600, 8, 10
TINY = ["--threads", "1", *(f"--set={s}" for s in ("epochs=1", "epoch_size=512", "buckets=24"))]


class Files(NamedTuple):
    folder: Path
    base: Path
    queries: Path
    truth: Path
    hdf5: Path


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Points around 20 centres, and queries near some of them, in several formats."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(5)
    centres = 10 * rng.normal(size=(20, DIM))
    base = (centres[np.arange(ITEMS) % 20] + rng.normal(size=(ITEMS, DIM))).astype(np.float32)
    queries = base[:40] + 0.1 * rng.normal(size=(40, DIM)).astype(np.float32)
    truth = exact_neighbors(queries, base, K)
    found = Files(folder, *(folder / n for n in ("x.npy", "q.fvecs", "truth.ivecs", "all.hdf5")))
    np.save(found.base, base)
    write_vectors(found.queries, queries)
    write_vectors(found.truth, truth)
    with h5py.File(found.hdf5, "w") as file:
        file.attrs["distance"] = "euclidean"
        file.update({"train": base, "test": queries, "neighbors": truth})
        file.update({"distances": np.zeros(truth.shape), "test_ood": queries + 1})
    return found


@pytest.fixture(scope="session")
def index(files: Files) -> Path:
    """An index that no test may change."""
    path = files.folder / "index"
    assert main(["build", str(files.hdf5), str(path), *TINY]) == 0
    return path


def test_info_and_search_do_without_torch(index: Path, files: Files) -> None:
    code = f"""
import sys
from irli.cli.app import main
assert main(["info", {str(index)!r}]) == 0
assert main(["search", {str(index)!r}, {str(files.queries)!r}]) == 0
assert not {{"torch", "faiss", "ray"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True)


# --- build -------------------------------------------------------------------------------------


def test_build_takes_the_metric_of_the_file(run: Runner, index: Path) -> None:
    assert irli.load(index).metric == "l2"
    assert not index.with_name("index.partial").exists()


def test_build_tells_what_it_made(run: Runner, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "new" / "index"
    text = run("build", files.base, out, *TINY, "--metric", "cosine").out
    assert f"{out}: {ITEMS} items of {DIM} dimensions, cosine" in text
    assert "1 x 24" in text
    assert "recall" in text
    said = run("build", files.base, out, *TINY, "--json", "--limit", 300, "--seed", 3).json
    assert (said["items"], said["buckets"], said["repetitions"]) == (300, 24, 1)
    assert said["reached"] == (said["recall"] >= 0.95)
    assert said["max_over_mean"] >= 1
    replaced = irli.load(out)
    assert (len(replaced), replaced.metric, replaced.recipe.seed) == (300, "l2", 3)


def test_build_with_all_that_is_known(run: Runner, files: Files, tmp_path: Path) -> None:
    base = np.load(files.base)
    np.save(tmp_path / "ids.npy", np.arange(ITEMS) + 1000)
    near = exact_neighbors(base, base, 5, rows=np.arange(ITEMS))
    write_vectors(tmp_path / "near.ibin", near)
    wanted = sp.csr_array(np.eye(40, ITEMS, dtype=np.float32))
    sp.save_npz(tmp_path / "wanted.npz", wanted)
    options = ["--ids", tmp_path / "ids.npy", "--neighbors", tmp_path / "near.ibin"]
    options += ["--queries", files.hdf5, "--queries-key", "test_ood"]
    for relevance in (tmp_path / "wanted.npz", files.truth):
        out = tmp_path / relevance.stem
        said = run("build", files.base, out, *TINY, *options, "--relevance", relevance).code
        assert said == 0
        assert run("search", out, files.queries, "--json").json["ids"][0][0] >= 1000


def test_recipe_settings_have_types(run: Runner, files: Files, tmp_path: Path) -> None:
    options = ["--set=boost=false", "--set=noise=0.5", "--set=affinity=item", "--recipe=default"]
    assert run("build", files.base, tmp_path / "x", *TINY, *options).code == 0
    recipe = irli.load(tmp_path / "x").recipe
    assert (recipe.boost, recipe.noise, recipe.affinity) == (False, 0.5, "item")


def test_codes_can_be_left_out_or_asked_for(run: Runner, files: Files, tmp_path: Path) -> None:
    for pieces in (0, 8):
        out = tmp_path / str(pieces)
        assert run("build", files.base, out, *TINY, "--set", f"pieces={pieces}").code == 0
        assert irli.load(out).recipe.pieces == pieces
        found = run("search", out, files.queries, "--candidates", 20, "--score", "codes")
        if pieces:
            assert found.code == 0
        else:
            refused(found, "'codes'")


@pytest.mark.parametrize(("name", "metric"), [("euclidean", "l2"), ("dot", "ip")])
def test_metrics_have_other_names(
    run: Runner, files: Files, tmp_path: Path, name: str, metric: str
) -> None:
    said = run("build", files.base, tmp_path / "x", *TINY, "--metric", name, "--json").json
    assert said["metric"] == irli.load(tmp_path / "x").metric == metric


def test_threads_may_be_one_for_each_core(
    run: Runner, index: Path, files: Files, tmp_path: Path
) -> None:
    assert run("build", files.base, tmp_path / "x", *TINY[2:], "--threads", -1).code == 0
    asked = ["search", index, files.queries, "--json", "--threads"]
    assert run(*asked, -1).json["ids"] == run(*asked, 1).json["ids"]
    refused(run(*asked, 0), "threads")
    refused(run(*asked, -2), "threads")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "epoch=3"], ["no setting 'epoch'", "'epochs'"]),
        (["--set", "epochs"], ["KEY=VALUE"]),
        (["--recipe", "best"], ["'auto', 'default'", "'exact', 'paper'"]),
        (["--metric", "l1"], ["'l2', 'ip', 'cosine'"]),
        (["--metric", "euclidian"], ["Did you mean 'euclidean'?"]),
        (["--recipe", "default", "--device", "toaster"], ["device", "toaster"]),
        (["--workers", "0"], ["workers"]),
        (["--limit", "0"], ["--limit"]),
        (["--threads", "0"], ["threads"]),
        (["--key", "train"], ["key"]),
        (["--ids", "nowhere.npy"], ["nowhere.npy"]),
        (["--relevance", "nowhere.npz", "--queries", "{queries}"], ["nowhere.npz"]),
        (["--relevance", "{base}"], ["integers"]),
        (["--relevance", "{truth}"], ["queries"]),
        (["--ids", "{queries}"], ["whole .npy"]),
        (["--neighbors", "{truth}"], ["shape (600, j)"]),
    ],
)
def test_build_refuses(
    run: Runner, files: Files, tmp_path: Path, options: list[str], words: list[str]
) -> None:
    filled = [option.format(**files._asdict()) for option in options]
    refused(run("build", files.base, tmp_path / "out", *filled), *words)
    assert not any(tmp_path.iterdir())


def test_build_refuses_files_that_are_no_vectors(run: Runner, files: Files, tmp_path: Path) -> None:
    refused(run("build", tmp_path / "no.npy", tmp_path / "out"), "no.npy")
    (tmp_path / "x.csv").write_text("1,2")
    refused(run("build", tmp_path / "x.csv", tmp_path / "out"), "'.csv'")
    (tmp_path / "x.npy").write_text("1,2")
    refused(run("build", tmp_path / "x.npy", tmp_path / "out"), ".npy")
    (tmp_path / "wanted.npz").write_text("1,2")
    options = ["--queries", files.queries, "--relevance", tmp_path / "wanted.npz"]
    refused(run("build", files.base, tmp_path / "out", *options), "save_npz")
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file["train"] = np.ones((20, 2))
    refused(run("build", tmp_path / "x.hdf5", tmp_path / "out"), "--metric")


def test_build_refuses_what_is_no_place_for_an_index(
    run: Runner, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(irli.VectorIndex, "fit", lambda *_, **__: pytest.fail("time was spent"))
    (tmp_path / "letter.txt").write_text("Dear")
    refused(run("build", files.base, tmp_path), "holds other files")
    refused(run("build", files.base, tmp_path / "letter.txt"), "is a file")
    refused(run("build", files.base, tmp_path / "letter.txt" / "out"), "letter.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_an_interrupted_build_resumes(
    run: Runner, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn, learned, interrupt = runs.learn_repetitions, [], True

    def spy(problem: Any, recipe: Any, numbers: list[int], *rest: Any, **options: Any) -> Any:
        if interrupt and 1 in numbers:
            raise KeyboardInterrupt
        learned.extend(numbers)
        return learn(problem, recipe, numbers, *rest, **options)

    monkeypatch.setattr(runs, "learn_repetitions", spy)
    two = ["--set=repetitions=2"]
    command = ["build", files.base, tmp_path / "out", *TINY, *two]
    stopped = run(*command)
    assert (stopped.code, stopped.out, stopped.err.count("\n")) == (130, "", 1)
    assert "resumes" in stopped.err
    assert (tmp_path / "out.partial").is_dir()
    assert not (tmp_path / "out").exists()

    interrupt = False
    assert run(*command, "--json").json["repetitions"] == 2
    assert learned == [0, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_build_leaves_other_files_alone(run: Runner, files: Files, tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "letter.txt").write_text("Dear")
    assert run("build", files.base, tmp_path / "out", *TINY).code == 0
    assert [path.name for path in (tmp_path / "out.partial").iterdir()] == ["letter.txt"]


# --- search ------------------------------------------------------------------------------------


def test_search_answers_as_the_library(run: Runner, index: Path, files: Files) -> None:
    said = run("search", index, files.queries, "-k", 3, "--probes", 4, "--json").json
    expected = irli.load(index).search(read_vectors(files.queries), 3, probes=4)
    assert said["ids"] == expected.ids.tolist()
    np.testing.assert_allclose(said["distances"], expected.distances)
    assert (said["queries"], said["parameters"]["probes"]) == (40, 4)
    same = run("search", index, files.hdf5, "--k", 3, "--probes", 4, "--json").json
    assert same["ids"] == said["ids"]


def test_search_prints_the_first_answers(run: Runner, index: Path, files: Files) -> None:
    lines = run("search", index, files.queries, "--k", 2).out.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("query 0: 0 (0.")
    assert "35 more" in lines[-1]
    assert len(run("search", index, files.queries, "--limit", 2).out.splitlines()) == 2


def test_search_keeps_answers(run: Runner, index: Path, files: Files, tmp_path: Path) -> None:
    expected = irli.load(index).search(read_vectors(files.queries), 5)
    for name in ("found.npz", "found.ivecs", "new/found.npz", "new/more/found.ivecs"):
        ran = run("search", index, files.queries, "--k", 5, "--out", tmp_path / name, "--json")
        assert ran.json["out"] == str(tmp_path / name)
    with np.load(tmp_path / "found.npz") as kept:
        np.testing.assert_array_equal(kept["ids"], expected.ids)
        np.testing.assert_array_equal(kept["distances"], expected.distances)
    np.testing.assert_array_equal(read_vectors(tmp_path / "found.ivecs"), expected.ids)


def test_search_filters(run: Runner, index: Path, files: Files, tmp_path: Path) -> None:
    some, mask = np.array([3, 5]), np.zeros(ITEMS, dtype=bool)
    mask[some] = True
    np.save(tmp_path / "ids.npy", some)
    np.save(tmp_path / "mask.npy", mask)
    everywhere = ["--probes", 24, "--json"]
    for name in ("ids.npy", "mask.npy"):
        said = run("search", index, files.queries, "--filter", tmp_path / name, *everywhere).json
        assert {i for row in said["ids"] for i in row} == {3, 5, -1}
        assert said["distances"][0][2:] == [None] * 8
    said = run("search", index, files.queries, "--deny", tmp_path / "ids.npy", *everywhere).json
    assert not {i for row in said["ids"] for i in row} & {3, 5, -1}
    np.save(tmp_path / "digits.npy", mask.astype(np.uint8))
    for option in ("--filter", "--deny"):
        asked = run("search", index, files.queries, option, tmp_path / "digits.npy")
        refused(asked, "'filter' parameter", "as in a mask", "astype(bool)")
    np.save(tmp_path / "none.npy", some[:0])
    lines = run("search", index, files.queries, "--filter", tmp_path / "none.npy").out
    assert lines.startswith("query 0: nothing\n")


def test_search_refuses(run: Runner, index: Path, files: Files, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.ones((3, DIM + 1)))
    refused(run("search", index, tmp_path / "wide.npy"), "8 dimensions", "9 dimensions")
    refused(run("search", tmp_path / "nothing", files.queries), "no index")
    refused(run("search", tmp_path, files.queries), "not an index folder")
    refused(run("search", files.base, files.queries), "is a file")
    refused(run("search", index, tmp_path / "no.npy"), "no.npy")
    refused(run("search", index, files.hdf5, "--key", "tests"), "'tests'")
    asked = ["search", index, files.queries]
    refused(run(*asked, "--probes", 2, "--threshold", 0.1), "probes", "threshold")
    refused(run(*asked, "--threshold", 2), "threshold")
    refused(run(*asked, "--score", "luck"), "'votes'")
    refused(run(*asked, "--out", tmp_path / "found.csv"), "'.npz'", "'.csv'")
    (tmp_path / "letter.txt").write_text("Dear")
    (tmp_path / "folder.npz").mkdir()
    for place in ("letter.txt/found.npz", "folder.npz"):
        refused(run(*asked, "--out", tmp_path / place), "--out option", place, "Choose another")
    refused(run(*asked, "--filter", files.queries, "--deny", files.queries), "--filter and --deny")
    refused(run(*asked, "--filter", files.base), "filter")
    refused(run(*asked, "--filter", tmp_path / "none.npy"), "must be an existing file")
    os.mkfifo(tmp_path / "pipe.npy")  # nobody writes to it
    refused(run(*asked, "--deny", tmp_path / "pipe.npy"), "There is a pipe or a device at")


# --- eval --------------------------------------------------------------------------------------


def test_eval_measures(run: Runner, index: Path, files: Files) -> None:
    said = run("eval", index, files.hdf5, "--json").json
    (row,) = said["results"]
    opened = irli.load(index)
    queries = read_vectors(files.queries)
    pairs = zip(opened.search(queries).ids, read_vectors(files.truth), strict=True)
    hits = [len(set(found) & set(true)) for found, true in pairs]
    assert (said["queries"], said["k"]) == (40, 10)
    assert not said["truth_computed"]
    assert row["recall"] == pytest.approx(np.mean(hits) / 10)
    assert row["recall"] > 0.7
    told = opened.explain(queries)
    assert row["scanned"] == pytest.approx(told.scanned.mean())
    assert row["exact"] == pytest.approx(told.candidates.mean())
    assert row["work"] == pytest.approx(row["scanned"] + told.router_multiplications / DIM)
    assert row["qps_one_thread"] > 0


def test_eval_compares(run: Runner, index: Path, files: Files) -> None:
    said = run("eval", index, files.hdf5, "--probes", "1,4,24", "--json").json
    recalls = [row["recall"] for row in said["results"]]
    assert recalls == sorted(recalls)
    assert recalls[-1] == 1.0
    lines = run("eval", index, files.hdf5, "--threshold", "0.1,0.001", "-k", 5).out.splitlines()
    assert len(lines) == 3
    assert "recall5@5" in lines[0]
    assert "threshold=0.001" in lines[2]


def test_eval_takes_or_computes_the_truth(run: Runner, index: Path, files: Files) -> None:
    own = ["eval", index, "--queries-file", files.queries, "--probes", 24, "--json"]
    for options in (["--truth", files.truth], []):
        said = run(*own, *options).json
        assert said["truth_computed"] == (not options)
        assert said["results"][0]["recall"] == 1.0
    said = run("eval", index, files.hdf5, "--queries", "test_ood", "--limit", 7, "--json").json
    assert (said["queries"], said["truth_computed"]) == (7, True)


def test_eval_of_an_index_over_a_part(run: Runner, files: Files, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(ITEMS)[::-1] + 7)
    part = ["--limit", 100, "--ids", tmp_path / "ids.npy"]
    assert run("build", files.hdf5, tmp_path / "out", *TINY, *part).code == 0
    said = run("eval", tmp_path / "out", files.hdf5, "--probes", 24, "--json").json
    assert said["truth_computed"]
    assert said["results"][0]["recall"] == 1.0


def test_eval_refuses(run: Runner, index: Path, files: Files, tmp_path: Path) -> None:
    refused(run("eval", index), "--queries-file")
    refused(run("eval", index, files.hdf5, "--queries-file", files.queries), "both")
    refused(run("eval", index, files.hdf5, "--queries", "tests"), "'tests'")
    refused(run("eval", index, files.hdf5, "--probes", "1", "--threshold", "1"), "Only one")
    refused(run("eval", index, files.hdf5, "--probes", "1,x"), "1,x")
    refused(run("eval", index, files.hdf5, "--probes", "0"), "probes")
    refused(run("eval", index, files.hdf5, "--k", 11), "k = 11")
    refused(run("eval", tmp_path, files.hdf5), "not an index folder")
    own = ["eval", index, "--queries-file", files.queries, "--truth"]
    write_vectors(tmp_path / "far.ivecs", np.full((40, 10), ITEMS))
    refused(run(*own, tmp_path / "far.ivecs"), "600 items")
    write_vectors(tmp_path / "few.ivecs", np.zeros((4, 10)))
    refused(run(*own, tmp_path / "few.ivecs"), "40 queries")
    np.save(tmp_path / "wide.npy", np.ones((3, DIM + 1)))
    refused(run("eval", index, "--queries-file", tmp_path / "wide.npy"), "8 dimensions")


# --- tune and info -----------------------------------------------------------------------------


def test_tune_saves_the_defaults(run: Runner, index: Path, files: Files, tmp_path: Path) -> None:
    copy = shutil.copytree(index, tmp_path / "copy")
    said = run("tune", copy, "--recall", 1, "-k", 5, "--json").json
    assert said["reached"]
    assert said["k"] == 5
    assert run("info", copy, "--json").json["defaults"] == said["parameters"]
    ran = run("tune", copy, "--recall", 0.5, "--queries", files.hdf5)
    assert ran.code == 0
    assert "recall" in ran.out


def test_tune_says_what_is_out_of_reach(
    run: Runner, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(index, tmp_path / "copy")
    best = irli.load(copy).tune()._replace(reached=False)
    monkeypatch.setattr("irli.vectors.tuning.tune.tune", lambda *_, **__: best)
    ran = run("tune", copy, "--recall", 0.99)
    assert ran.code == 3
    assert "0.99 is out of reach" in ran.out
    assert irli.load(copy).defaults == best.parameters


def test_tune_refuses(run: Runner, index: Path) -> None:
    refused(run("tune", index, "--recall", 95), "recall", "[0.0, 1.0]")
    refused(run("tune", index, "--queries", "no.npy"), "no.npy")


def test_info_tells(run: Runner, index: Path) -> None:
    said = run("info", index, "--json").json
    assert (said["items"], said["recipe"]["epochs"], len(said["history"])) == (ITEMS, 1, 1)
    assert said["simd"] in irli._native.available_simd()
    text = run("info", index).out
    assert "600 of 8 dimensions, l2" in text
    assert "epoch_size=512" in text
    assert "affinity" in text.splitlines()[-2]


def test_info_verifies(run: Runner, index: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(index, tmp_path / "copy")
    (vectors,) = copy.glob("vectors.*.npy")
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"?")
    refused(run("info", copy), "damaged")
    assert run("info", copy, "--no-verify").code == 0
    refused(run("info", tmp_path / "nowhere"), "no index")


def test_ids_may_be_strings(run: Runner, files: Files, tmp_path: Path) -> None:
    words = np.array([f"item {row}" for row in range(len(read_vectors(files.base)))])
    np.save(tmp_path / "ids.npy", words)
    np.save(tmp_path / "some.npy", words[:2])
    index = tmp_path / "index"
    options = ["--ids", tmp_path / "ids.npy", "--recipe", "exact"]
    assert run("build", files.base, index, *options).code == 0
    right = irli.load(index).search(read_vectors(files.queries), 3)
    assert run("search", index, files.queries, "-k", 3, "--json").json["ids"] == right.ids.tolist()
    assert f"{right.ids[0, 0]} (" in run("search", index, files.queries, "-k", 3).out
    few = ["--filter", tmp_path / "some.npy", "-k", 3]
    said = run("search", index, files.queries, *few, "--json").json
    assert {id for line in said["ids"] for id in line} == {"item 0", "item 1", None}
    assert run("search", index, files.queries, *few, "--out", tmp_path / "x.npz").code == 0
    with np.load(tmp_path / "x.npz") as saved:  # without pickle
        assert sorted(saved["ids"][0].tolist()) == ["", "item 0", "item 1"]
    out = tmp_path / "x.ivecs"
    refused(run("search", index, files.queries, "--out", out), "must be .npz if ids are strings")
    said = run("eval", index, "--queries-file", files.queries, "-k", 3, "--json").json
    assert said["results"][0]["recall"] == 1.0
