"""An index that reads its vectors from the file that `fit` got says so when the file changes."""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import irli
from irli import VectorIndex
from irli.base.memory import MappedFile

SHORT = {"epochs": 1, "epoch_size": 256, "buckets": 8}
CHANGED = "has changed since fit, and the index reads its vectors from there"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(300, 6)).astype("f4"))
    return tmp_path / "X.npy"


def fit(X: NDArray[Any], metric: str = "l2") -> VectorIndex:
    return VectorIndex(metric, recipe=irli.recipe("default", **SHORT)).fit(X, threads=1)


def overwrite(path: Path) -> None:
    """Write to the file in place, at another time."""
    written = np.load(path, mmap_mode="r+")
    written[:] = 7
    written.flush()
    os.utime(path, ns=(0, 0))


def use_quietly(index: VectorIndex) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.search(np.zeros((3, 6)), k=2)
        index.search(np.zeros(6, np.float32), k=2)


def test_a_changed_file_is_noticed_by_whatever_comes_first(path: Path, tmp_path: Path) -> None:
    index = fit(np.load(path, mmap_mode="r"))
    query = np.zeros(6, np.float32)
    use_quietly(index)
    for step, use in enumerate(
        [
            lambda: index.search(query, k=2),
            lambda: index.search(query[None], k=2),
            lambda: index.search(query[None], k=2, exact=True),
            lambda: index.tune(),
            lambda: index.save(tmp_path / "index"),
        ]
    ):
        overwrite(path)
        os.utime(path, ns=(0, step + 1))
        with pytest.warns(UserWarning, match=CHANGED):
            use()
        use_quietly(index)  # once for each change


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_the_file_is_shared_and_not_copied(path: Path, mode: Any) -> None:
    index = fit(np.load(path, mmap_mode=mode))
    overwrite(path)
    with pytest.warns(UserWarning, match=CHANGED):
        assert (index.vectors == 7).all()


@pytest.mark.parametrize(
    ("read", "metric"),
    [
        (lambda path: np.load(path), "l2"),
        (lambda path: np.load(path, mmap_mode="c"), "l2"),
        (lambda path: np.asarray(np.load(path, mmap_mode="r")), "ip"),
        (lambda path: np.load(path, mmap_mode="r")[:, ::2].repeat(2, axis=1), "l2"),
        (lambda path: np.load(path, mmap_mode="r"), "cosine"),
    ],
)
def test_what_is_copied_is_not_watched(path: Path, read: Any, metric: str) -> None:
    X = read(path)
    index = fit(X, metric)
    before = index.vectors.copy()
    overwrite(path)
    if X.flags.writeable:
        X[:] = 7
    use_quietly(index)
    assert np.array_equal(index.vectors, before)


def test_a_file_that_is_removed_or_replaced_stays_as_it_was(path: Path) -> None:
    index = fit(np.load(path, mmap_mode="r"))
    before = index.vectors.copy()
    path.unlink()
    use_quietly(index)
    np.save(path.with_name("new.npy"), np.zeros((5, 2)))
    path.with_name("new.npy").rename(path)
    use_quietly(index)
    assert np.array_equal(index.vectors, before)


def test_pickles_and_folders_have_vectors_of_their_own(path: Path, tmp_path: Path) -> None:
    index = fit(np.load(path, mmap_mode="r"))
    before = index.vectors.copy()
    pickled = pickle.loads(pickle.dumps(index))
    index.save(tmp_path / "index")
    loaded = irli.load(tmp_path / "index")
    overwrite(path)
    for other in (pickled, loaded):
        use_quietly(other)
        assert np.array_equal(other.vectors, before)


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_copies_in_memory_read_the_same_file(path: Path, make: Any) -> None:
    copied = make(fit(np.load(path, mmap_mode="r")))
    overwrite(path)
    with pytest.warns(UserWarning, match=CHANGED):
        copied.search(np.zeros(6), k=1)


def test_a_second_fit_forgets_the_file(path: Path) -> None:
    index = fit(np.load(path, mmap_mode="r"))
    index.fit(np.load(path), threads=1)
    overwrite(path)
    use_quietly(index)


def test_a_file_that_was_never_there_is_no_reason_to_warn(tmp_path: Path) -> None:
    MappedFile(str(tmp_path / "nothing")).warn_if_changed()
