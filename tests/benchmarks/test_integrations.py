"""The adapters for other benchmarks: by the methods that these call, and in their real runners.

The real runners are other people's repositories. A test of one is skipped unless an environment
variable names a clone of it:

    IRLI_ANN_BENCHMARKS       github.com/erikbern/ann-benchmarks
    IRLI_BIG_ANN_BENCHMARKS   github.com/harsha-simhadri/big-ann-benchmarks
    IRLI_VIBE                 github.com/vector-index-bench/vibe
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
INTEGRATIONS = ROOT / "integrations"
if not INTEGRATIONS.exists():
    pytest.skip("the adapters are not part of this distribution", allow_module_level=True)
h5py = pytest.importorskip("h5py")
pytest.importorskip("torch")

HOMES = {
    "ann-benchmarks": "ann_benchmarks/algorithms/irli",
    "vibe": "vibe/algorithms/irli",
    "big-ann-benchmarks": "neurips23/ood/irli",
}
# What a base class offers beyond the methods that an adapter overrides.
STAND_INS = {
    "ann-benchmarks": {
        "ann_benchmarks/algorithms/base/module.py": """
class BaseANN:
    def get_batch_results(self): return self.res
    def get_additional(self): return {}
    def done(self): pass
    def __str__(self): return self.name
"""
    },
    "vibe": {
        "vibe/algorithms/base/module.py": """
class BaseANN:
    def get_batch_results(self): return self.res
    def get_additional(self): return {}
    def __str__(self): return self.name
"""
    },
    "big-ann-benchmarks": {
        "neurips23/ood/base.py": """
class BaseOODANN:
    def track(self): return "ood"
    def get_results(self): return self.res
    def get_range_results(self): return self.res
    def get_additional(self): return {}
    def done(self): pass
""",
        "benchmark/datasets.py": "DATASETS = {}\n",
    },
}
# Changes of the recipe that make learning take a second.
SHORT = {
    "buckets": 16,
    "epochs": 2,
    "repartition_every": 1,
    "epoch_size": 1024,
    "mixed_queries": 100,
}
DIM, COUNT = 8, 10


def draw(count: int, seed: int, spread: float = 0.5) -> np.ndarray:
    """Draw points around 30 centres."""
    centres = np.random.default_rng(0).normal(size=(30, DIM))
    rng = np.random.default_rng(seed)
    points = centres[rng.integers(30, size=count)] + spread * rng.normal(size=(count, DIM))
    return points.astype(np.float32)


BASE, QUERIES, LEARN = draw(800, 1), draw(60, 2), draw(150, 3, spread=1.0)


def find_neighbors(queries: np.ndarray, metric: str, count: int = COUNT) -> np.ndarray:
    """Return the true neighbours, by straightforward code."""
    if metric in ("ip", "cosine", "angular", "normalized"):
        base = BASE if metric == "ip" else BASE / np.linalg.norm(BASE, axis=1, keepdims=True)
        return np.argsort(-queries @ base.T, axis=1)[:, :count]
    squares = ((queries[:, None, :] - BASE[None]) ** 2).sum(axis=2)
    return np.argsort(squares, axis=1)[:, :count]


def count_found(found: Any, truth: np.ndarray) -> float:
    """Return the share of the true neighbours that were found."""
    pairs = zip(found, truth, strict=True)
    return float(np.mean([np.isin(wanted, ids).mean() for ids, wanted in pairs]))


# --- the methods that a runner calls -------------------------------------------------------------


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Return a function that imports an adapter from its place beside stand-ins."""
    before = set(sys.modules)

    def call(name: str) -> Any:
        for path, text in STAND_INS[name].items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        shutil.copytree(INTEGRATIONS / name / "irli", tmp_path / HOMES[name])
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("IRLI_NUM_THREADS", "1")
        [algorithm, *_] = read_algorithms(name)
        module = algorithm["module"]
        if name != "big-ann-benchmarks":
            module += ".module"  # which these two runners append
        return getattr(importlib.import_module(module), algorithm["constructor"])

    yield call
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("ann_benchmarks", "vibe", "neurips23", "benchmark"):
            del sys.modules[name]


def read_algorithms(name: str) -> list[dict[str, Any]]:
    """Return the algorithms that the configuration of an adapter defines."""
    [path] = (INTEGRATIONS / name / "irli").glob("config.y*ml")
    config = yaml.safe_load(path.read_text())
    if name == "big-ann-benchmarks":
        return [each["irli"] for each in config.values()]
    return [algorithm for each in config["float"].values() for algorithm in each]


@pytest.mark.parametrize("metric", ["euclidean", "angular"])
def test_ann_benchmarks(load: Callable[[str], Any], metric: str) -> None:
    algo = load("ann-benchmarks")(metric, COUNT, {"recipe": "default", **SHORT})
    algo.fit(BASE)
    truth = find_neighbors(QUERIES, metric)
    for recall in (0.5, 0.99):
        algo.set_query_arguments(recall)
        assert str(recall) in str(algo)
        found = [algo.query(query, COUNT) for query in QUERIES]
        assert all(len(ids) == len(set(ids)) <= COUNT for ids in found)
        assert count_found(found, truth) > recall - 0.1
        algo.batch_query(QUERIES, COUNT)
        np.testing.assert_array_equal(algo.get_batch_results(), found)
    algo.done()


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "ip", "normalized"])
def test_vibe(load: Callable[[str], Any], metric: str) -> None:
    algo = load("vibe")(metric, COUNT, {"recipe": "default", **SHORT})
    algo.fit(BASE)
    algo.set_query_arguments(0.95)
    found = [algo.query(query, COUNT) for query in QUERIES]
    assert count_found(found, find_neighbors(QUERIES, metric)) > 0.85


def test_vibe_learns_from_training_queries(load: Callable[[str], Any]) -> None:
    algo = load("vibe")("euclidean", COUNT, {"recipe": "default", **SHORT})
    algo.fit_ood(BASE, LEARN[:100], find_neighbors(LEARN[:100], "euclidean"))
    algo.set_query_arguments(0.95)
    found = [algo.query(query, COUNT) for query in LEARN[100:]]
    assert count_found(found, find_neighbors(LEARN[100:], "euclidean")) > 0.85


class Planted:
    """A data set with the methods that the adapter asks for."""

    def get_dataset(self) -> np.ndarray:
        return BASE

    def get_query_train(self, most: int) -> np.ndarray:
        assert most == 100
        return LEARN[:most]

    def short_name(self) -> str:
        return "planted"


def test_big_ann(load: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    make = load("big-ann-benchmarks")
    settings = {"recipe": "default", "training_queries": 100, **SHORT}
    algo = make("euclidean", COUNT, settings)
    datasets = sys.modules["benchmark.datasets"].DATASETS
    monkeypatch.setitem(datasets, "planted", Planted)
    assert (algo.track(), algo.load_index("planted")) == ("ood", False)
    algo.fit("planted")
    algo.set_query_arguments({"recall": 0.95})
    algo.query(QUERIES, COUNT)
    found = algo.get_results()
    assert found.shape == (len(QUERIES), COUNT)
    assert count_found(found, find_neighbors(QUERIES, "euclidean")) > 0.85

    again = make("euclidean", COUNT, settings)
    assert again.load_index("planted")
    again.set_query_arguments({"recall": 0.95})
    again.query(QUERIES, COUNT)
    np.testing.assert_array_equal(again.get_results(), found)
    folder, prefix, files = again.index_files_to_store("planted")
    assert "manifest.json" in files
    assert all((Path(folder) / (prefix + file)).is_file() for file in files)
    other = make("euclidean", COUNT, {**settings, "repetitions": 2})
    assert not other.load_index("planted")  # other settings, another index

    radius = 1.5
    again.range_query(QUERIES, radius)
    limits, distances, ids = again.get_range_results()
    squares = ((QUERIES[:, None, :] - BASE[None]) ** 2).sum(axis=2)
    wanted = [set(np.flatnonzero(row < radius)) for row in squares]
    parts = [set(ids[a:b]) for a, b in pairwise(limits)]
    assert all(part <= all_of for part, all_of in zip(parts, wanted, strict=True))
    assert sum(map(len, parts)) > 0.8 * sum(map(len, wanted))
    assert (distances < radius).all()


@pytest.mark.parametrize("name", HOMES)
def test_each_adapter_is_whole(name: str) -> None:
    folder = INTEGRATIONS / name / "irli"
    [image] = [path for path in folder.iterdir() if path.name in ("Dockerfile", "image.def")]
    assert re.search(r'"irli"$', image.read_text(), re.M)
    page = (INTEGRATIONS / "README.md").read_text()
    assert f"{name}/irli" in page
    assert HOMES[name] in page
    for algorithm in read_algorithms(name):
        module = algorithm["module"].replace(".", "/")
        assert module.startswith(HOMES[name])
        file = "module.py" if module == HOMES[name] else Path(module).name + ".py"
        assert re.search(rf"^class {algorithm['constructor']}\b", (folder / file).read_text(), re.M)


# --- the real runners ----------------------------------------------------------------------------


def copy_clone(name: str, needs: list[str], folder: Path) -> Path:
    """Return a copy of a runner's packages with the adapter in its place, or skip the test."""
    variable = "IRLI_" + name.upper().replace("-", "_")
    clone = os.environ.get(variable)
    if not clone:
        pytest.skip(f"{variable} does not name a clone of {name}")
    missing = [package for package in needs if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"{name} needs {', '.join(missing)}, not installed here")
    for package in {home.split("/")[0] for home in [*STAND_INS[name], HOMES[name]]}:
        shutil.copytree(Path(clone) / package, folder / package)
    home = folder / HOMES[name]
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(INTEGRATIONS / name / "irli", home)
    return folder


def run_program(folder: Path, program: str, queries: np.ndarray, metric: str) -> list[float]:
    """Run a program in a clone; return the recalls of the results that its runner stored."""
    program = program.replace("SHORT", repr(SHORT))
    environment = {**os.environ, "IRLI_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    truth, recalls = find_neighbors(queries, metric), []
    for path in (folder / "results").rglob("*.hdf5"):
        with h5py.File(path) as file:  # VIBE has a group for each argument of the queries
            for group in [file] if "neighbors" in file else file.values():
                recalls.append(count_found(group["neighbors"][()], truth))
    return sorted(recalls)


def write_hdf5(path: Path, distance: str, **more: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs.update(distance=distance, dimension=DIM, type="dense", point_type="float")
        for key, array in {"train": BASE, "test": QUERIES, **more}.items():
            file[key] = array


@pytest.mark.parametrize("batch", [False, True])
def test_the_real_ann_benchmarks(tmp_path: Path, batch: bool) -> None:
    folder = copy_clone("ann-benchmarks", ["colors", "docker"], tmp_path)
    write_hdf5(folder / "data" / "random-xs-20-euclidean.hdf5", "euclidean")
    program = f"""
from ann_benchmarks.definitions import get_definitions
from ann_benchmarks.runner import run
known = get_definitions({DIM}, "float", "euclidean", {COUNT})
ours = [each for each in known if each.algorithm == "irli"]
assert len(ours) == 2 and len(ours[0].query_argument_groups) == 9
ours[0].arguments[-1].update(SHORT)
ours[0].query_argument_groups = [[0.5], [0.95]]
run(ours[0], "random-xs-20-euclidean", {COUNT}, 1, {batch})
"""
    recalls = run_program(folder, program, QUERIES, "euclidean")
    assert len(recalls) == 2
    assert recalls[1] > 0.85


def test_the_real_vibe(tmp_path: Path) -> None:
    folder = copy_clone("vibe", ["numba"], tmp_path)
    learn, asked = LEARN[:100], LEARN[100:]
    near = find_neighbors(learn, "cosine")
    path = folder / "data" / "planted-cosine.hdf5"
    write_hdf5(path, "cosine", test=asked, learn=learn, learn_neighbors=near)
    program = f"""
from vibe.definitions import get_definitions
from vibe.runner import run
known = get_definitions({DIM}, "float", "cosine", {COUNT})
ours = [each for each in known if each.algorithm == "irli"]
assert len(ours) == 2 and ours[0].ood
ours[0].arguments[-1].update(SHORT)
ours[0].query_argument_groups = [[0.5], [0.95]]
run(ours[0], "planted-cosine", {COUNT}, 1)
"""
    recalls = run_program(folder, program, asked, "cosine")
    assert len(recalls) == 2
    assert recalls[1] > 0.85


def test_the_real_big_ann(tmp_path: Path) -> None:
    folder = copy_clone("big-ann-benchmarks", ["colors", "docker"], tmp_path)
    data = folder / "data" / "random10000"
    data.mkdir(parents=True)
    for file, rows in ((f"data_10000_{DIM}", BASE), (f"queries_1000_{DIM}", QUERIES)):
        (data / file).write_bytes(struct.pack("<II", *rows.shape) + rows.tobytes())
    program = f"""
from benchmark.algorithms.definitions import get_definitions
from benchmark.datasets import DATASETS, RandomDS
from benchmark.runner import run

class Small(RandomDS):
    def __init__(self):
        super().__init__(10000, 1000, {DIM})
        self.nb, self.nq = {len(BASE)}, {len(QUERIES)}

DATASETS["random-xs"] = Small
[ours] = get_definitions("neurips23/ood/irli/config.yaml", {DIM}, "random-xs", "euclidean", {COUNT})
ours.arguments[-1].update(SHORT)
groups = [[each] for each in ours.query_argument_groups]
for rebuild in (True, False):
    run(ours._replace(query_argument_groups=groups), "random-xs", {COUNT}, 1, rebuild,
        neurips23track="ood")
"""
    recalls = run_program(folder, program, QUERIES, "euclidean")
    assert len(recalls) == 3
    assert recalls[2] > 0.85
