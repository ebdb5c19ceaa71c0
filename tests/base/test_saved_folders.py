"""What `save` leaves: permissions that follow the umask, and no queries if none are wanted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import FOLDERS
from folders import read_files

import irli
from irli import InvalidParameter, NotFitted, VectorIndex
from irli.base.folder import read_folder
from irli.cluster import ShardedIndex

N, D = 400, 6


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002], indirect=True)
@pytest.mark.parametrize("name", ["codes", "features", "shards", "label-shards"])
def test_all_permissions_follow_the_umask(name: str, umask: int, tmp_path: Path) -> None:
    irli.load(FOLDERS / name).save(tmp_path / "index")
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "index", *(tmp_path / "index").rglob("*"))
    }
    folders = {name for name in modes if (tmp_path / name).is_dir()}
    assert modes == {name: (0o777 if name in folders else 0o666) & ~umask for name in modes}


# --- without queries -------------------------------------------------------------------------


def make_data() -> tuple[Any, Any]:
    """Return items, and sample queries that are found nowhere else: all are odd whole numbers."""
    rng = np.random.default_rng(0)
    queries = 2 * rng.integers(50, 1000, size=(300, D)).astype(np.float32) + 1
    return rng.normal(size=(N, D)).astype(np.float32), queries


@pytest.fixture(scope="module")
def indexes() -> dict[str, Any]:
    X, queries = make_data()
    recipe = irli.recipe("default", epochs=1, epoch_size=256, buckets=8)
    return {
        "vectors": VectorIndex(recipe=recipe).fit(X, queries=queries, threads=1),
        "shards": ShardedIndex(recipe=recipe, shards=2).fit(X, queries=queries, threads=1),
    }


def find_queries(path: Path) -> int:
    """Return how many of the sample queries lie in the files of a folder."""
    content = b"".join(read_files(path).values())
    return sum(query.tobytes() in content for query in make_data()[1])


@pytest.mark.parametrize("kind", ["vectors", "shards"])
def test_a_folder_has_no_sample_query_if_none_is_wanted(
    kind: str, indexes: dict[str, Any], tmp_path: Path
) -> None:
    index = indexes[kind]
    index.save(tmp_path / "with")
    index.save(tmp_path / "without", held=False)
    assert find_queries(tmp_path / "with") > 0
    assert find_queries(tmp_path / "without") == 0
    again, X = irli.load(tmp_path / "without"), make_data()[0]
    assert np.array_equal(again.search(X, 5).ids, index.search(X, 5).ids)
    with pytest.raises(InvalidParameter, match="'queries' parameter of tune must be given"):
        again.tune()
    assert again.tune(0.9, queries=X[:50] + 0.1).parameters == again.defaults
    again.save(tmp_path / "again")
    assert find_queries(tmp_path / "again") == 0
    assert index.tune().recall > 0  # it still has its own


@pytest.mark.parametrize("kind", ["vectors", "shards"])
def test_saving_over_the_same_folder_removes_the_queries_and_brings_them_back(
    kind: str, indexes: dict[str, Any], tmp_path: Path
) -> None:
    for held in (True, False, True, False, False, True, True):
        indexes[kind].save(tmp_path / "index", held=held)
        assert (find_queries(tmp_path / "index") > 0) == held
        assert len(irli.load(tmp_path / "index")) == N


def test_held_is_true_or_false(indexes: dict[str, Any], tmp_path: Path) -> None:
    for index in indexes.values():
        with pytest.raises(InvalidParameter, match="The 'held' parameter of save must be True or"):
            index.save(tmp_path / "index", held=0)
        assert not (tmp_path / "index").exists()


def test_without_queries_the_arrays_are_empty(indexes: dict[str, Any], tmp_path: Path) -> None:
    indexes["vectors"].save(tmp_path, held=False)
    arrays = read_folder(tmp_path).arrays
    assert arrays["tuning_queries"].shape == (0, D)
    assert arrays["tuning_rows"].shape == (0,)


@pytest.mark.parametrize("index", [VectorIndex(), ShardedIndex(shards=2)])
def test_an_index_that_is_not_fitted_cannot_be_saved(index: Any, tmp_path: Path) -> None:
    with pytest.raises(NotFitted):
        index.save(tmp_path / "index", held=False)
