"""Every benchmark and every example runs at its smallest size, and leaves the results alone."""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS, EXAMPLES = ROOT / "benchmarks", ROOT / "examples"
RESULTS = BENCHMARKS / "results"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not part of this distribution", allow_module_level=True)
if sys.platform != "linux":
    pytest.skip("the benchmarks read the memory of a process as Linux tells it")
for package in ("faiss", "h5py", "matplotlib", "psutil", "torch"):
    pytest.importorskip(package)

COMMANDS = {
    "vectors": [
        "compare",
        "others",
        "filters",
        "report",
        "work",
        "floor",
        "learning-time",
        "threads",
        "latency",
        "concurrent",
        "scale",
    ],
    "labels": ["compare", "mach", "large", "annif", "online"],
    "cluster": ["large", "overhead", "failures", "replicas", "plan", "deep", "deep10m", "labels"],
    "paper": [
        "candidates",
        "sift",
        "loads",
        "epochs",
        "affinity",
        "labels",
        "distributed",
        "ablations",
        "glove",
        "report",
    ],
    "living": ["runbook", "speed", "drift", "filters", "free"],
    "start": ["first-answer", "call"],
    "guarantees": ["measure", "report"],
}
ON_RAY = ["large", "overhead", "failures", "replicas"]

Runner = Callable[..., str]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the results of all tests, so that indexes are built once."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module", autouse=True)
def _untouched() -> Any:
    """No figure of a test may get into the results that are reported."""
    before = {path: path.stat().st_mtime_ns for path in RESULTS.rglob("*")}
    yield
    assert {path: path.stat().st_mtime_ns for path in RESULTS.rglob("*")} == before


@pytest.fixture
def run(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Runner:
    """Return a function that runs a command here, and returns what it printed."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("IRLI_NUM_THREADS", "1")

    def call(command: str, *arguments: str) -> str:
        main = runpy.run_path(str(BENCHMARKS / f"{command}.py"))["main"]
        main([*arguments, "--smoke", "--results", str(results)])
        return capsys.readouterr().out

    return call


def read_rows(printed: str) -> list[list[str]]:
    """Return the cells of the tables that were printed, without their heads."""
    lines = [line.strip("| ").split(" | ") for line in printed.splitlines() if line[:1] == "|"]
    return [cells for cells in lines if set(cells[0]) != {"-"}]


def test_every_command_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for command, names in COMMANDS.items():
        script = runpy.run_path(str(BENCHMARKS / f"{command}.py"))
        assert list(script["BENCHMARKS"]) == names
        listed = re.findall(r"^    (\S+) ", script["__doc__"], flags=re.MULTILINE)
        assert listed == names
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == set(COMMANDS)


# --- vectors -------------------------------------------------------------------------------------


def test_compare_and_report(run: Runner, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import bench.vectors.compare

    first = run("vectors", "compare")
    assert "built in" in first
    rows = {cells[0] for cells in read_rows(first)}
    assert {"irli, sample queries", "irli, sample queries, *tuned*", "FAISS IVFFlat"} <= rows
    again = run("vectors", "report")
    assert again in first
    folder = results / "vectors"
    assert (folder / "report.md").read_text() in again
    assert (folder / "batch-1.png").exists()
    fronts = json.loads((folder / "report.json").read_text())
    assert {front["method"] for front in fronts} >= {"irli-queries", "faiss-ivf"}

    # What is finished is not repeated, and what is not installed is left out.
    installed = {"faiss-cpu": importlib.metadata.version("faiss-cpu")}
    monkeypatch.setattr(bench.vectors.compare, "list_packages", lambda python: installed)
    printed = run("vectors", "compare", "--methods", "irli-queries", "scann")
    assert "scann: skipped, since scann is not installed (make vector-peers)" in printed
    assert "built in" not in printed
    assert "(rough" not in printed
    assert "FAISS IVFFlat" in printed


def test_guarantees(run: Runner, results: Path) -> None:
    printed = run("guarantees", "measure", "report")
    assert "tight clusters: recall" in printed
    assert "The worst recall10@10 of ordinary queries is" in printed
    page = (results / "guarantees" / "report.md").read_text()
    assert "| tight clusters (l2) | 32 |" in page
    assert run("guarantees", "measure") == ""  # what is measured is not repeated


def test_others(run: Runner, results: Path) -> None:
    printed = run("vectors", "others")
    [row] = [cells for cells in read_rows(printed) if cells[0] == "products, test, 1 thread(s)"][:1]
    assert float(row[1]) > 0.5  # recall, by inner product, of the index as fit leaves it
    assert (results / "vectors" / "others" / "report.json").exists()


def test_filters(run: Runner, results: Path) -> None:
    rows = read_rows(run("vectors", "filters"))
    shares = ["50 %", "10 %", "1 %", "0.1 %"]
    assert [cells[1] for cells in rows if cells[0] == "far"] == 2 * shares  # batch and single
    for cells in rows:
        if cells[1] in shares:
            _, ivf, exact = (float(cell.split(":")[0]) for cell in cells[2:5])
            assert ivf > 0.8  # tuned to .95 on 33 other queries
            assert exact > 0.999
    assert (results / "vectors" / "filters.json").exists()


def test_work(run: Runner) -> None:
    rows = read_rows(run("vectors", "work"))
    work = [cells for cells in rows if cells[0].startswith("wordnet test")]
    assert len(work) == 8
    assert all(float(cells[2]) > 0 for cells in work)


def test_floor(run: Runner) -> None:
    [_, cells] = read_rows(run("vectors", "floor"))
    assert cells[0] == "wordnet"
    assert all(0 < float(recall) <= 1 for recall in cells[1:3])
    assert all(float(ratio) > 0 for ratio in cells[3:])


def test_learning_time(run: Runner) -> None:
    rows = read_rows(run("vectors", "learning-time", "--methods", "faiss-ivf"))
    ours = [cells for cells in rows if cells[2].startswith("irli")]
    assert [cells[2] for cells in ours] == ["irli", "irli from an earlier index", "irli with torch"]
    assert all(float(cell) > 0 for cells in ours for cell in cells[3:])


def test_threads(run: Runner) -> None:
    rows = read_rows(run("vectors", "threads"))
    assert [cells[0] for cells in rows[1:]] == ["glove", "wordnet"]


def test_latency_concurrent_and_scale(run: Runner) -> None:
    """One after the other: they search the same indexes."""
    rows = read_rows(run("vectors", "latency"))
    assert [cells[0] for cells in rows[1:5]] == ["irli", "irli", "faiss-ivf", "faiss-ivf"]
    [_, _, four] = read_rows(run("vectors", "concurrent"))
    assert (four[0], four[2]) == ("4", "0")  # callers, and answers that differ
    rows = read_rows(run("vectors", "scale"))
    assert [cells[0] for cells in rows[1:]] == ["faiss-hnsw"]


def test_the_peers_parts_import_nothing_of_irli() -> None:
    modules = ["bench.vectors.runs", "bench.vectors.peers", "bench.labels.peers"]
    code = f"""
import sys
for name in ("irli", "h5py", "faiss"):
    sys.modules[name] = None
import {", ".join(modules)}
"""
    subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS, check=True, timeout=120)


# --- labels --------------------------------------------------------------------------------------


def test_labels_compare(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    import bench.labels.compare

    monkeypatch.setattr(bench.labels.compare, "list_packages", lambda python: {})
    printed = run("labels", "compare", "--threads", "1")
    assert "napkinxc: skipped, since napkinxc is not installed (make peers)" in printed
    rows = read_rows(printed)
    ours = [cells for cells in rows if cells[1].startswith("irli")]
    assert len(ours) == 3
    assert float(ours[0][2].split(" / ")[0]) > 50  # P@1: the labels can be learned


def test_mach(run: Runner) -> None:
    rows = read_rows(run("labels", "mach", "--threads", "1"))
    assert [cells[0] for cells in rows[1:3]] == ["MACH", "no re-partition"]
    assert len(rows) == 5


def test_large_labels(run: Runner) -> None:
    [_, cells] = read_rows(run("labels", "large", "--threads", "1"))
    assert cells[:3] == ["1000", "200", "400"]


def test_annif(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for what runs in Annif's environment."""
    import bench.labels.annif as module

    monkeypatch.setattr(module, "list_packages", lambda python: {})
    printed = run("labels", "annif")
    assert "annif: skipped, since annif or omikuji is not installed (make annif)" in printed

    seen = {}

    def answer(module: str, folder: Path, stage: str, project: str, *more: Any, **keys: Any) -> str:
        seen[stage] = [line for line in (folder / "test.tsv").read_text().splitlines() if line]
        figures = ["seconds", "cpu_seconds", "peak_mb", "batch_ms", "single_ms", "suggest_mb"]
        scores = ["F1@5", "NDCG", "NDCG@5", "NDCG@10", "Precision@1"]
        return "said\n" + json.dumps(dict.fromkeys([*figures, *scores], 0.5))

    monkeypatch.setattr(module, "list_packages", lambda python: {"annif": "1", "omikuji": "1"})
    monkeypatch.setattr(module, "run_module", answer)
    printed = run("labels", "annif", "--test-titles", "9")
    assert [cells[0] for cells in read_rows(printed)[1:]] == ["tfidf", "omikuji", "irli"]
    assert {stage: len(lines) for stage, lines in seen.items()} == dict.fromkeys(
        ["load", "train", "suggest"], 9
    )
    assert re.fullmatch(r"word\d+.*\t<http://www.yso.fi/onto/yso/p\d+>.*", seen["load"][0])


# --- indexes that change -------------------------------------------------------------------------


def test_runbooks(run: Runner, results: Path) -> None:
    from bench.living.runbooks import KINDS, read_runbook

    ours = ["fresh", "irli", "irli-manual"]
    rows = read_rows(run("living", "runbook", "--methods", *ours))
    titles = [f"wordnet, {kind}, 600 rows" for kind in sorted(KINDS)]
    assert [cells[0] for cells in rows if cells[1] == "irli"] == 2 * titles
    for cells in rows:
        if cells[1] == "irli" and len(cells) == 10:
            assert float(cells[2]) > 0.6  # recall
    for kind in KINDS:
        name = f"wordnet-600-{kind}"
        path = results / "living" / "data" / name / "runbook.yaml"
        live: set[int] = set()
        for step in read_runbook(path, name):
            rows_of = range(step.get("start", 0), step.get("end", 0))
            if step["operation"] == "insert":
                assert live.isdisjoint(rows_of)
                live.update(rows_of)
            elif step["operation"] == "delete":
                assert live.issuperset(rows_of)
                live.difference_update(rows_of)
    assert (results / "living" / "runbook.json").exists()


def test_speed_of_changes(run: Runner) -> None:
    [row] = read_rows(run("living", "speed", "--methods", "irli"))[1:]
    assert float(row[4]) > 0.8  # recall


def test_drift_of_queries(run: Runner) -> None:
    names = [cells[0] for cells in read_rows(run("living", "drift"))[1:]]
    assert (names[0], names[-1]) == ("taught nothing", "taught")


def test_filters_by_payload(run: Runner) -> None:
    rows = read_rows(run("living", "filters", "--methods", "irli"))[1:]
    assert [cells[1] for cells in rows] == ["50 %", "10 %", "1 %", "0.1 %"]
    assert all(float(cells[2]) > 0.8 for cells in rows)


def test_what_changes_cost_others(run: Runner) -> None:
    rows = read_rows(run("living", "free"))[1:]
    assert rows[-1][0] == "folder, bytes"
    assert abs(float(rows[-1][3]) - 1) < 0.01


# --- cluster -------------------------------------------------------------------------------------


def test_commands_on_ray(results: Path) -> None:
    """In a process of their own: this one may be on another Ray cluster."""
    pytest.importorskip("ray")
    command = [sys.executable, str(BENCHMARKS / "cluster.py"), *ON_RAY, "--smoke"]
    done = subprocess.run(
        [*command, "--results", str(results)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    methods = [cells[0] for cells in read_rows(done.stdout)]
    assert {"irli, all", "irli, codes", "FAISS PQ32", "FAISS PQ48"} <= set(methods)
    found = json.loads((results / "cluster" / "failures.json").read_text())
    assert (found["same_bytes"], found["wrong"], found["recovered"]) == (True, 0, True)
    assert json.loads((results / "cluster" / "overhead.json").read_text())["rows"]
    found = json.loads((results / "cluster" / "replicas.json").read_text())
    assert (found["killed"]["failed"], found["shard"]["right"]) == (0, True)


@pytest.mark.parametrize("name", ["plan", "deep", "deep10m"])
def test_plan(run: Runner, name: str) -> None:
    rows = {cells[1]: cells for cells in read_rows(run("cluster", name))}
    assert {"build_seconds", "build_worker_bytes", "shard_bytes"} <= set(rows)
    assert rows["repetitions learned"][4] == "+0 %"  # also after the process was killed


def test_sharded_labels(run: Runner) -> None:
    rows = read_rows(run("cluster", "labels"))
    assert [cells[0] for cells in rows[1:]] == ["one machine", "2", "4"]


# --- paper ---------------------------------------------------------------------------------------


def test_loads(run: Runner, results: Path) -> None:
    """Table 3 of the paper: more choices even out the loads."""
    rows = {cells[0]: cells for cells in read_rows(run("paper", "loads"))}
    five, ten, many = (float(rows[f"K = {k}"][2].split()[0]) for k in (5, 10, 25))
    assert five > ten > many
    assert (results / "paper" / "small" / "loads.png").exists()


def test_epochs(run: Runner) -> None:
    rows = {cells[0]: cells for cells in read_rows(run("paper", "epochs"))}
    first, last = (float(cell.split()[0]) for cell in rows["R = 8"][1:])
    assert 0 < first < last


def test_affinity(run: Runner) -> None:
    rows = read_rows(run("paper", "affinity"))
    before, after = (float(cell.split()[0]) for cell in rows[1][1:3])
    assert 0 < before < after


def test_ablations(run: Runner) -> None:
    rows = [cells for cells in read_rows(run("paper", "ablations")) if len(cells) == 5]
    recall = {(cells[0], cells[1].strip("*")): float(cells[2].split()[0]) for cells in rows[1:]}
    assert len({panel for panel, _ in recall}) == 13
    assert recall["repetitions R", "1"] < recall["repetitions R", "16"]


def test_what_is_measured_of_the_paper_is_not_repeated(run: Runner) -> None:
    run("paper", "affinity")
    assert "measure" not in run("paper", "affinity")


def test_the_page_of_the_paper(run: Runner, results: Path) -> None:
    run("paper", "loads")
    assert "claims" in run("paper", "report")
    page = (results / "docs" / "paper.md").read_text()
    assert "![Plot of loads](pictures/paper-loads.png)" in page
    assert (results / "docs" / "pictures" / "paper-loads.png").exists()


def test_candidates(run: Runner, results: Path) -> None:
    rows = read_rows(run("paper", "candidates"))
    methods = {cells[0] for cells in rows[1:]}
    assert {"IRLI, paper", "IRLI, default", "Neural LSH, 1-8", "Neural LSH, 2-6"} <= methods
    folder = results / "paper" / "small"
    assert (folder / "candidates.png").exists()
    claims = json.loads((folder / "candidates.claims.json").read_text())
    assert sum("1/6 of the candidates" in claim["claim"] for claim in claims) == 2
    assert "..." not in run("paper", "candidates")  # what is measured is not repeated


def test_glove(run: Runner, results: Path) -> None:
    printed = run("paper", "glove")
    assert "| choices 10 |" in printed  # one of the changes that were tried
    assert {"R = 1, h = 16", "R = 2, h = 16", "R = 1, h = 8"} <= {c[0] for c in read_rows(printed)}
    assert "Neural LSH, 2-6" in {cells[0] for cells in read_rows(printed)}
    claims = json.loads((results / "paper" / "small" / "glove.claims.json").read_text())
    assert "by votes" in claims[0]["claim"]


def test_sift(run: Runner, results: Path) -> None:
    assert "SIFT features" in run("paper", "sift")
    claims = json.loads((results / "paper" / "small" / "sift.claims.json").read_text())
    assert len(claims) == 4


def test_labels_online(run: Runner) -> None:
    rows = read_rows(run("labels", "online"))
    assert [cells[2] for cells in rows[1:]] == ["old rows", "fit(start=)", "partial_fit", "new fit"]


def test_paper_labels(run: Runner, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import bench.paper.labels

    monkeypatch.setattr(bench.paper.labels, "list_packages", lambda python: {})
    printed = run("paper", "labels")
    assert "slice-like: skipped, since libpecos is not installed (make peers)" in printed
    methods = [cells[0] for cells in read_rows(printed)]
    ways = ["m = 5", "m = 10", "m = 10, by votes alone"]
    ours = [f"{name}, {way}" for name in ("IRLI", "IRLI with sigmoids") for way in ways]
    assert methods[1:9] == [*ours, "irli, default", "MACH"]
    assert {"SLEEC", "AnnexML", "PfastreXML"} <= set(methods)
    folder = results / "paper" / "small"
    claims = json.loads((folder / "labels.claims.json").read_text())
    assert {"holds", "holds in part", "does not hold here"} >= {each["verdict"] for each in claims}
    assert (folder / "labels.png").exists()
    assert "measure debian-deps" not in run("paper", "labels")  # what is measured is not repeated


def test_paper_distributed(run: Runner, results: Path) -> None:
    printed = run("paper", "distributed")
    rows = read_rows(printed)
    methods = {
        "IRLI, the paper's recipe",
        "irli, default",
        "FAISS PQ32",
        "FAISS PQ48",
        "exact search",
    }
    assert methods <= {cells[0] for cells in rows}
    assert [cells[1] for cells in rows[-2:]] == ["100,000,000", "1,000,000,000"]
    shares = [float(cells[2].split()[0]) for cells in rows if cells[0] == "irli, default"]
    assert shares[-1] > 0.9  # with 20 probes, on 700 items
    folder = results / "paper" / "small"
    assert len(json.loads((folder / "distributed.claims.json").read_text())) == 6
    assert (folder / "distributed.png").exists()
    assert "measure IRLI" not in run("paper", "distributed")  # what is measured is not repeated


# --- start ---------------------------------------------------------------------------------------


def test_first_answer(run: Runner) -> None:
    rows = read_rows(run("start", "first-answer"))
    names = ["import numpy", "import irli", "first answer"]
    assert [cells[0] for cells in rows[1:]] == names + [
        f"{name}, nothing writable" for name in names
    ]
    assert [cells[2] for cells in rows[1::3]] == ["1.00", "1.00"]


def test_call(run: Runner) -> None:
    rows = read_rows(run("start", "call"))
    search, native, way = (float(cells[1]) for cells in rows[1:])
    assert way == pytest.approx(search - native, abs=0.02)


# --- examples ------------------------------------------------------------------------------------


def run_example(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


def test_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    run_example(monkeypatch, "demo", "--smoke")
    out, err = capsys.readouterr()
    assert "FAISS IVFFlat" in out
    assert "learning" in err  # progress
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_query_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run_example(monkeypatch, "query_log")
    found = re.findall(r"recall@10 (\S+)", capsys.readouterr().out)
    assert float(found[0]) > 0.8


def test_make_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import h5py
    from bench.smoke import DIM, ITEMS, QUERIES, write_files

    data = write_files(tmp_path / "data")
    with h5py.File(data / "glove-6b-50-angular.hdf5", "r+") as file:
        file["train_id"], file["test_id"] = np.arange(ITEMS), ITEMS + np.arange(QUERIES)
    words = "\n".join(f"word{i}" for i in range(ITEMS + QUERIES))
    with gzip.open(data / "glove-6b-words.txt.gz", "wt") as file:
        file.write(words)
    run_example(monkeypatch, "make_samples", "--data", str(data), "--out", str(tmp_path))
    with np.load(tmp_path / "glove-sample.npz") as sample:
        assert sample["vectors"].shape == (ITEMS + QUERIES, DIM)
        assert sample["words"].tobytes().decode() == words
    with np.load(tmp_path / "wordnet-sample.npz") as sample:
        assert sample["base"].dtype == np.int8
