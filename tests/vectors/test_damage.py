"""No damage to the folder of a vector index makes a kernel leave the bounds of an array."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import small_default
from damage import Array, change, change_meta, edits, put, read
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import clusters

from irli import FormatError, VectorIndex
from irli.base.folder import Folder, read_folder
from irli.engine.router import ARRAYS as TENSORS
from irli.vectors.parameters import SCORES

NAMES = ("codes", "int8", "int8-l2", "floats")
ARRAYS = sorted({name for kind in NAMES for name in (*read(kind).arrays, *read(kind).tensors)})


def search_in_every_way(index: VectorIndex) -> None:
    """Run all kernels of a search; what they answer does not matter."""
    rng = np.random.default_rng(0)
    items, dim = index.vectors.shape
    queries = rng.normal(size=(9, dim)).astype(np.float32)
    coded = index._fitted().searcher.layout.codes.blocks.size > 0
    for score in SCORES[: len(SCORES) if coded else -1]:
        for ways in ({"probes": 2}, {"threshold": 0.0}, {"threshold": 0.9}):
            found = index.search(queries, k=5, score=score, candidates=7, threads=1, **ways)
            assert found.ids.shape == (9, 5)
    assert index.search(queries[0], k=3).ids.shape == (3,)
    assert index.search(queries, k=items + 2, filter=index.ids[:4], threads=1).counts.max() <= 4
    assert index.explain(queries, k=2, min_votes=1).ids.shape == (9, 2)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_damaged_opens(name: str) -> None:
    search_in_every_way(VectorIndex.from_folder(read(name)))


def widen(array: Array) -> Array:
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, 1)])


def drop(array: Array) -> Array:
    return array[:-1]


# The folder, the array, what is done to it, and the array that the error names.
DAMAGE: list[tuple[str, str, Callable[[Array], Array], str]] = [
    ("codes", "vectors", drop, "items"),
    ("codes", "vectors", widen, "project"),
    ("codes", "vectors", lambda a: a.astype(np.float64), "vectors"),
    ("codes", "vectors", lambda a: a[:0], "items"),
    ("codes", "vectors", np.ravel, "vectors"),
    ("codes", "ids", drop, "ids"),
    ("codes", "ids", lambda a: a.astype(np.int32), "ids"),
    ("codes", "items", put(0, -1), "items"),
    ("codes", "items", put(-1, 10**6), "items"),
    ("codes", "items", drop, "offsets"),
    ("codes", "items", lambda a: a.astype(np.int64), "items"),
    ("codes", "offsets", put((0, 0), 1), "offsets"),
    ("codes", "offsets", put((0, 1), -5), "offsets"),
    ("codes", "offsets", put((0, 1), 10**9), "offsets"),
    ("codes", "offsets", put((-1, -1), 10**9), "offsets"),
    ("codes", "offsets", widen, "offsets"),
    ("codes", "tuning_queries", widen, "tuning_queries"),
    ("codes", "tuning_rows", drop, "tuning_rows"),
    ("codes", "tuning_rows", put(0, 10**6), "tuning_rows"),
    ("codes", "tuning_rows", put(0, -2), "tuning_rows"),
    ("codes", "code_rotation", widen, "code_rotation"),
    ("codes", "code_shift", drop, "code_shift"),
    ("codes", "code_codewords", drop, "code_codewords"),
    ("codes", "code_codewords", widen, "code_codewords"),
    ("codes", "code_codewords", lambda a: a[:-4], "code_rotation"),
    ("codes", "code_codewords", lambda a: np.zeros((520, 1, 16), np.float32), "code_codewords"),
    ("codes", "code_bias", drop, "code_bias"),
    ("codes", "code_blocks", drop, "code_blocks"),
    ("codes", "code_blocks", lambda a: a[:, :-1], "code_blocks"),
    ("codes", "code_blocks", lambda a: a.astype(np.int8), "code_blocks"),
    ("codes", "code_offsets", put((0, 1), 10**6), "code_offsets"),
    ("codes", "code_offsets", put((0, 1), -1), "code_offsets"),
    ("codes", "code_offsets", lambda a: a[:, :-1], "code_offsets"),
    ("codes", "bias", widen, "offsets"),
    ("codes", "shift", widen, "project"),
    ("codes", "project", widen, "project"),
    ("codes", "step", widen, "step"),
    ("codes", "bytes", drop, "bytes"),
    ("codes", "bytes", lambda a: a[:, :0], "bytes"),
    ("codes", "bytes", widen, "bytes"),
    ("codes", "zero", put((0, 0), 2**31 - 1), "zero"),
    ("codes", "zero", widen, "zero"),
    ("codes", "weights", lambda a: np.zeros((a.shape[0], 1, a.shape[2]), a.dtype), "weights"),
    ("int8", "int8_bytes", drop, "int8_bytes"),
    ("int8", "int8_bytes", lambda a: a[:, :-1], "int8_bytes"),
    ("int8", "int8_bytes", lambda a: a.view(np.uint8), "int8_bytes"),
    ("int8", "int8_shift", drop, "int8_shift"),
    ("int8", "int8_step", drop, "int8_step"),
    ("int8", "int8_lengths", widen, "int8_lengths"),
    ("int8-l2", "int8_lengths", drop, "int8_lengths"),
    ("int8-l2", "int8_lengths", lambda a: a[:0], "int8_lengths"),
    ("floats", "weights", widen, "weights"),
    ("floats", "weights", lambda a: a[:, :-1], "weights"),
    ("floats", "zero", lambda a: np.zeros((len(a), 3), np.int32), "zero"),
]


@pytest.mark.parametrize(("name", "array", "edit", "named"), DAMAGE)
def test_an_array_that_does_not_fit_is_named(
    name: str, array: str, edit: Callable[[Array], Array], named: str
) -> None:
    with pytest.raises(FormatError, match=rf"^The array '{named}' of the index must .* Got .*"):
        VectorIndex.from_folder(change(read(name), array, edit))


@pytest.mark.parametrize("name", NAMES)
def test_every_array_must_be_there(name: str) -> None:
    folder = read(name)
    optional = {f"int8_{part}" for part in ("bytes", "shift", "step", "lengths")}
    firsts = {"int8_bytes", "centroid_centre"}
    for missing in {*folder.arrays, *(folder.tensors.keys() & TENSORS)} - firsts:
        arrays = {key: value for key, value in folder.arrays.items() if key != missing}
        tensors = {key: value for key, value in folder.tensors.items() if key != missing}
        with pytest.raises(FormatError, match=missing.removeprefix("code_")):
            VectorIndex.from_folder(Folder(folder.kind, folder.meta, arrays, tensors))
    arrays = {key: value for key, value in folder.arrays.items() if key not in optional}
    search_in_every_way(
        VectorIndex.from_folder(Folder(folder.kind, folder.meta, arrays, folder.tensors))
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"linear": -1},
        {"linear": 10**6},
        {"linear": 1.5},
        {"linear": None},
        {"metric": "euclidean"},
        {"metric": ["l2"]},
        {"defaults": {"probes": -1}},
        {"defaults": {"probes": "many"}},
        {"defaults": {"threshold": 2.0}},
        {"defaults": {"candidates": 0.5}},
        {"defaults": {"min_votes": -3}},
        {"defaults": {"score": "best"}},
        {"defaults": {"probes": 1, "threshold": 0.5}},
        {"defaults": {"steps": 1}},
        {"defaults": None},
        {"defaults": {"points": [{"k": 1}]}},
        {"defaults": {"points": 3}},
        {"defaults": {"centroids": -1}},
        {"defaults": {"exact": "no"}},
        {"tuned": {"k": 3}},
        {"tuned": "well"},
        {"recipe": {"seed": -1}},
        {"recipe": None},
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    for name in NAMES:
        with pytest.raises(FormatError):
            VectorIndex.from_folder(change_meta(read(name), **changes))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.tuples(st.sampled_from(ARRAYS), edits()), max_size=3))
def test_any_damage_is_refused_or_harmless(name: str, damage: list[tuple[str, Any]]) -> None:
    folder = read(name)
    for array, edit in damage:
        if array in folder.arrays or array in folder.tensors:
            folder = change(folder, array, edit)
    try:
        index = VectorIndex.from_folder(folder)
    except FormatError:
        return
    search_in_every_way(index)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder with all that this version writes."""
    X = clusters(6, 20, dim=8, spread=0.5, seed=1).points
    path = tmp_path_factory.mktemp("learned") / "index"
    VectorIndex(recipe=small_default(buckets=8, pieces=4)).fit(X, threads=1).save(path)
    return read_folder(path)


@pytest.mark.parametrize(
    ("array", "edit"),
    [
        ("centroid_centre", drop),
        ("centroid_centre", lambda a: a[:0]),
        ("centroid_columns", drop),
        ("centroid_columns", widen),
        ("centroid_columns", lambda a: a.astype(np.float64)),
        ("centroid_bias", drop),
        ("centroid_bias", lambda a: a[None]),
        ("centroid_spread", drop),
        ("centroid_base", drop),
        ("centroid_reach", drop),
        ("centroid_reach", widen),
    ],
)
def test_centroids_that_do_not_fit(
    learned: Folder, array: str, edit: Callable[[Array], Array]
) -> None:
    search_in_every_way(VectorIndex.from_folder(learned))
    with pytest.raises(FormatError, match="'centroid_"):
        VectorIndex.from_folder(change(learned, array, edit))


def test_folders_without_centroids_open(learned: Folder) -> None:
    arrays = {key: value for key, value in learned.arrays.items() if "centroid" not in key}
    index = VectorIndex.from_folder(dataclasses.replace(learned, arrays=arrays))
    search_in_every_way(index)
    assert index._fitted().searcher.layout.centroids.centre.size == 0


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 3e38])
def test_odd_centroids_are_searched(learned: Folder, odd: float) -> None:
    """Any bucket may seem the nearest then; each is probed at most once."""
    for array in ("centroid_centre", "centroid_columns", "centroid_bias"):
        index = VectorIndex.from_folder(change(learned, array, lambda a: np.full_like(a, odd)))
        search_in_every_way(index)
        assert (index.search(index.vectors[:9], k=30).ids >= 0).all()
