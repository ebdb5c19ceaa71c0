"""Copies and pickles of indexes: in this process, in another one, and of another version."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
from damage import FOLDERS

import irli
from irli import IncompatibleVersion, LabelIndex, NotFitted, VectorIndex
from irli.base import index as index_module
from irli.cluster import ShardedIndex, ShardedLabelIndex
from irli.cluster.shards.ray_shards import RayShards
from irli.errors import ClusterError

NAMES = ("codes", "int8", "features", "texts", "shards", "label-shards")
COPIES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    lambda index: pickle.loads(pickle.dumps(index)),
    lambda index: pickle.loads(pickle.dumps(index, protocol=2)),
]


def answer(index: Any) -> tuple[Any, ...]:
    """Return what an index answers to some queries or rows."""
    rng = np.random.default_rng(0)
    queries = rng.random((5, index.stats()["dim"])).astype(np.float32)
    if hasattr(index, "search"):
        return (*index.search(queries, k=4), *index.search(queries[0], k=3), index.ids)
    return tuple(index.predict(queries, 3))


def same(one: tuple[Any, ...], two: tuple[Any, ...]) -> bool:
    return all(map(np.array_equal, one, two))


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("make", COPIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_copy_answers_like_the_original(
    name: str, make: Callable[[Any], Any], mmap: bool
) -> None:
    index = irli.load(FOLDERS / name, mmap=mmap)
    expected = answer(index)
    copied = make(index)
    assert type(copied) is type(index)
    assert repr(copied) == repr(index)
    assert copied.stats() == index.stats()
    assert same(answer(copied), expected)
    del index
    assert same(answer(copied), expected)


@pytest.mark.parametrize("make", COPIES)
def test_a_copy_has_settings_of_its_own(make: Callable[[Any], Any]) -> None:
    index = irli.load(FOLDERS / "codes")
    before = index.defaults
    copied = make(index)
    copied.defaults = copied.defaults.replace(probes=1)
    copied.remark = "mine"
    assert index.defaults == before
    assert not hasattr(index, "remark")
    assert make(copied).remark == "mine"


@pytest.mark.parametrize("make", COPIES)
def test_what_nobody_may_write_stays_so(make: Callable[[Any], Any]) -> None:
    copied = make(irli.load(FOLDERS / "codes", mmap=False))
    for array in (copied.ids, copied.vectors):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("make", COPIES)
@pytest.mark.parametrize(
    "index",
    [
        VectorIndex("cosine", recipe="paper"),
        LabelIndex(ranker=False),
        ShardedIndex("ip", shards=3),
        ShardedLabelIndex(shards=2),
    ],
    ids=lambda index: type(index).__name__,
)
def test_an_index_that_is_not_fitted(index: Any, make: Callable[[Any], Any]) -> None:
    copied = make(index)
    assert repr(copied) == repr(index)
    with pytest.raises(NotFitted):
        len(copied)


def test_a_fitted_index_keeps_everything() -> None:
    X = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    recipe = irli.recipe("default", epochs=1, epoch_size=256)
    index = VectorIndex(recipe=recipe).fit(X, threads=1)
    copied = pickle.loads(pickle.dumps(index))
    assert copied.tuned == index.tuned
    assert copied.history == index.history
    assert same(answer(copied), answer(index))
    assert len(copied.fit(X[:200], threads=1)) == 200  # by the recipe as it was given
    assert len(index) == 300


@pytest.mark.parametrize("name", ["codes", "features", "shards"])
def test_another_process_answers_alike(name: str) -> None:
    index = irli.load(FOLDERS / name)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert same(pool.submit(answer, index).result(), answer(index))


def test_joblib_passes_an_index_to_its_workers() -> None:
    joblib = pytest.importorskip("joblib")
    index = irli.load(FOLDERS / "codes")
    queries = np.random.default_rng(0).random((3, 8)).astype(np.float32)
    search = joblib.delayed(index.search)
    with joblib.parallel_config("loky", n_jobs=2):
        parts = joblib.Parallel()(search(query, 4) for query in queries)
    found = index.search(queries, 4).ids
    assert [part.ids.tolist() for part in parts] == found.tolist()


@pytest.mark.parametrize("name", ["codes", "features", "shards"])
def test_a_pickle_of_another_version_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(irli.load(FOLDERS / name))
    with monkeypatch.context() as patch:
        patch.setattr(index_module, "package_version", lambda: "9.9")
        with pytest.raises(IncompatibleVersion, match=r"this is irli 9\.9\. Keep an index with"):
            pickle.loads(pickled)
    monkeypatch.setattr(index_module, "VERSION", 0)
    with pytest.raises(IncompatibleVersion, match="must be opened by the irli that made it"):
        pickle.loads(pickled)


@pytest.mark.parametrize("state", [{}, {"metric": "l2"}, None, 7, {"format": 2, "irli": None}])
def test_a_state_that_is_none_is_refused(state: Any) -> None:
    with pytest.raises(IncompatibleVersion):
        object.__new__(VectorIndex).__setstate__(state)


def test_shards_on_ray_say_what_to_do() -> None:
    shards = object.__new__(RayShards)
    for make in (pickle.dumps, copy.deepcopy):
        with pytest.raises(ClusterError, match="Save it, and open the folder where it is needed"):
            make(shards)
