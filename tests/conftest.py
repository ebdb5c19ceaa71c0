"""Fitted indexes that many tests share: no test may change them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

# Before NumPy is imported. The products of tests are small: the threads of BLAS and OpenMP would
# mostly wait for each other, and they wait by spinning, which makes a busy machine slow.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# No test may depend on how busy the machine is.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

pytest.register_assert_rewrite("contract", "folders", "planted", "plantedlabels")

from contract import Case  # noqa: E402
from planted import clusters  # noqa: E402

import irli  # noqa: E402
from irli import Recipe, VectorIndex, _native  # noqa: E402
from irli.cluster import ShardedIndex  # noqa: E402
from irli.vectors.parameters import SearchParameters  # noqa: E402

METRICS = ("l2", "ip", "cosine")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail where a test module cannot be imported.

    Looking for examples in docstrings skips it, and then it has been imported as far as it goes: it
    would have no tests, and nobody would miss them.
    """
    report = yield
    if report.outcome == "skipped" and "unable to import module" in str(report.longrepr):
        report.outcome = "failed"
    return report


def small_default(**changes: object) -> Recipe:
    """The default recipe, short."""
    return irli.recipe(
        "default", **{"epochs": 2, "epoch_size": 2048, "repartition_every": 1, **changes}
    )


def small_paper(**changes: object) -> Recipe:
    """The paper's recipe, small: hash start, plain network, least loaded of K."""
    settings = {
        "repetitions": 4,
        "buckets": 24,
        "hidden": 32,
        "neighbors": 10,
        "choices": 4,
        "epochs": 6,
        "repartition_every": 2,
        "batch_size": 64,
    }
    return irli.recipe("paper", **{**settings, **changes})


class Cases:
    """Make each case once, when a test first asks for it.

    A case is named by a recipe, a metric and a form: "memory" and "shards" come out of `fit`;
    "mapped" and "read" are the index in memory, saved and loaded; "ray" is that in shards, saved
    and served by Ray. "grown" and "living" were empty, have got their items by changes, and have
    learned between them, in memory and in a folder; "reader" follows the one in the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[tuple[str, str, str], Case] = {}

    def __call__(self, recipe: str, metric: str, form: str) -> Case:
        key = (recipe, metric, form)
        if key not in self.made:
            make = {"memory": self._fit, "shards": self._shard, "ray": self._serve}
            make |= dict.fromkeys(("grown", "living"), self._grow) | {"reader": self._follow}
            self.made[key] = make[form](*key) if form in make else self._load(*key)
        return self.made[key]

    def _fit(self, recipe: str, metric: str, _: str) -> Case:
        rng = np.random.default_rng(7)
        X = clusters(n_per=25, centres=20, dim=10, spread=0.6, seed=3).points
        X[10:14] = X[20:24]  # ties
        X[30:35] = X[40]
        ids = rng.permutation(10_000_000)[: len(X)] if metric != "cosine" else None
        index = VectorIndex(metric, recipe=_RECIPES[recipe]())
        index.fit(X.copy(), ids=ids, threads=1)
        if recipe == "codes":  # whatever tuning preferred among so few items
            index.defaults = SearchParameters(threshold=0.01, candidates=80, score="codes")
        queries = X[rng.choice(len(X), 37, replace=False)] + rng.normal(size=(37, 10)) * 0.3
        return Case(
            index=index,
            original=None,
            X=X,
            ids=np.arange(len(X)) if ids is None else ids,
            queries=queries.astype(np.float32),
            metric=metric,
            bounded=recipe != "paper",
        )

    def _shard(self, recipe: str, metric: str, _: str) -> Case:
        case = self(recipe, metric, "memory")
        index = ShardedIndex(metric, recipe=_RECIPES[recipe](), shards=3)
        index.fit(case.X, ids=case.ids, threads=1)
        return case._replace(index=index, shards=3)

    def _serve(self, recipe: str, metric: str, _: str) -> Case:
        case = self(recipe, metric, "shards")
        path = self.folder / f"{recipe}-{metric}-shards"
        case.index.save(path)
        return case._replace(index=ShardedIndex.load(path, ray="auto"), original=case.index)

    def _grow(self, recipe: str, metric: str, form: str) -> Case:
        case, made = self(recipe, metric, "memory"), _RECIPES[recipe]()
        rng = np.random.default_rng(9)
        order = rng.permutation(len(case.X))  # as it comes, all clusters are learned
        X, ids = case.X[order], case.ids[order]
        index = VectorIndex(metric, dim=X.shape[1], recipe=made)
        if form == "living":
            path = self.folder / f"{recipe}-{metric}-living"
            new: dict[str, Any] = {"metric": metric, "dim": X.shape[1], "sync": "normal"}
            index = irli.open(path, recipe=made, maintain="manual", **new)
        index.maintain = "manual"
        strangers = 10_000_000 + np.arange(60)
        index.add(X[:200] + 1, ids=ids[:200])
        index.add(rng.normal(size=(60, X.shape[1])), ids=strangers)
        index.upsert(X[:420], ids=ids[:420])
        index.refresh()
        index.remove(strangers)
        for start in range(420, len(X), 25):
            index.add(X[start : start + 25], ids=ids[start : start + 25])
        if recipe == "codes":
            index.defaults = case.index.defaults
        return case._replace(index=index, X=X, ids=ids, bounded=False, changed=True)

    def _follow(self, recipe: str, metric: str, _: str) -> Case:
        case = self(recipe, metric, "living")
        index = irli.load(self.folder / f"{recipe}-{metric}-living")
        index.defaults = case.index.defaults
        return case._replace(index=index)

    def _load(self, recipe: str, metric: str, form: str) -> Case:
        case = self(recipe, metric, "memory")
        path = self.folder / f"{recipe}-{metric}"
        if not path.exists():
            case.index.save(path)
        return case._replace(index=irli.load(path, mmap=form == "mapped"), original=case.index)


_RECIPES: dict[str, Callable[[], Recipe]] = {
    "default": small_default,
    "two repetitions": lambda: small_default(repetitions=2, buckets=20),
    "paper": small_paper,
    "codes": lambda: small_default(pieces=8),
}


@pytest.fixture(scope="module", params=_native.available_simd())
def simd(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of each back-end of the native engine. Searchers made meanwhile use it."""
    before = _native.simd()
    _native.use_simd(request.param)
    yield request.param
    _native.use_simd(before)


@pytest.fixture(scope="session")
def on_ray() -> Iterator[str]:
    """A small Ray cluster on this machine, for all tests that need one."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray spells it so; or a busy machine starves the workers.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    ray = pytest.importorskip("ray")
    ray.init(
        address="local",
        num_cpus=1,
        object_store_memory=100 << 20,
        include_dashboard=False,
        log_to_driver=False,
    )
    yield "auto"
    ray.shutdown()


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """A function (recipe, metric, form) -> Case."""
    return Cases(tmp_path_factory.mktemp("indexes"))
