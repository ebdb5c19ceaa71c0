from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import irli
from irli import Deny, VectorIndex
from irli.base.folder import read_folder, write_folder
from irli.errors import FormatError, InvalidParameter

X = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
WORDS = [f"{chr(0x17E)}{row}" for row in range(40)]


def fit(ids: Any, metric: str = "l2") -> VectorIndex:
    return VectorIndex(metric, recipe="exact").fit(X[: len(ids)], ids=ids)


@pytest.fixture(scope="module")
def index() -> VectorIndex:
    return fit(WORDS)


def test_answers_are_those_of_numbers_by_another_name(index: VectorIndex) -> None:
    numbered = VectorIndex(recipe="exact").fit(X)
    for queries, k in ((X[:7], 4), (X[3], 5), (X[:2], 45), (X[0], 45), (X[:0], 3)):
        named, right = index.search(queries, k), numbered.search(queries, k)
        np.testing.assert_array_equal(named.distances, right.distances)
        assert named.ids.dtype == object
        assert named.ids.shape == right.ids.shape
        flat = [None if id < 0 else WORDS[id] for id in right.ids.ravel()]
        assert named.ids.ravel().tolist() == flat
        np.testing.assert_array_equal(named.counts, right.counts)
    told = index.explain(X[:3], 45)
    assert told.ids.tolist() == index.search(X[:3], 45).ids.tolist()


def test_filters_take_them(index: VectorIndex) -> None:
    found = index.search(X[:3], 4, filter=[WORDS[7], WORDS[9], "unknown"])
    assert {*found.ids.ravel()} == {WORDS[7], WORDS[9], None}
    assert found.counts.tolist() == [2, 2, 2]
    assert np.isinf(found.distances[:, 2:]).all()
    mine = index.search(X[:3], 1, filter=Deny({WORDS[0]}))
    assert mine.ids[1:, 0].tolist() == WORDS[1:3]
    assert mine.ids[0, 0] != WORDS[0]
    ends = index.search(X[:3], 3, filter=lambda id: id.endswith("5"))
    assert all(id.endswith("5") for id in ends.ids.ravel())
    with pytest.raises(InvalidParameter, match="must hold strings"):
        index.search(X[0], filter=[1, 2])


def test_they_are_looked_up(index: VectorIndex) -> None:
    assert index.ids.tolist() == WORDS
    assert WORDS[3] in index
    assert 3 not in index
    np.testing.assert_array_equal(index.vector(WORDS[3]), X[3])
    np.testing.assert_array_equal(index.vector(np.array(WORDS[3:5])), X[3:5])
    with pytest.raises(InvalidParameter, match="Got 'x', which it does not have"):
        index.vector(["x", WORDS[0]])


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ids=st.lists(
        st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=40, unique=True
    ),
    mmap=st.booleans(),
)
def test_any_strings_survive_a_folder(ids: list[str], mmap: bool, tmp_path: Path) -> None:
    index = fit(ids)
    index.save(tmp_path / "index")
    again = irli.load(tmp_path / "index", mmap=mmap)
    for one in (again, copy.copy(index)):
        assert one.ids.tolist() == ids
        assert one.search(X[: len(ids)], 1).ids[:, 0].tolist() == ids
        assert all(id in one for id in ids)
        np.testing.assert_array_equal(one.vector(ids), X[: len(ids)])
    assert again.stats() == index.stats()


def test_an_index_changes_between_kinds_of_ids(tmp_path: Path) -> None:
    index = fit(WORDS)
    index.save(tmp_path)
    index.fit(X, ids=np.arange(40) * 2)
    assert index.search(X[4], 1).ids.tolist() == [8]
    index.save(tmp_path)
    assert irli.load(tmp_path).search(X[4], 1).ids.tolist() == [8]


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("ids", lambda ids: ids[::-1].copy(), "must be the row numbers"),
        ("id_offsets", lambda offsets: offsets + 1, "must rise from 0"),
        ("id_offsets", lambda offsets: offsets[:-1], r"shape \(41,\)"),
        ("id_bytes", lambda text: text | 0x80, "be strings in UTF-8"),
    ],
)
def test_a_forged_folder_is_refused(
    index: VectorIndex, tmp_path: Path, name: str, edit: Any, message: str
) -> None:
    index.save(tmp_path)
    folder = read_folder(tmp_path, mmap=False)
    folder.arrays[name] = edit(folder.arrays[name])
    write_folder(tmp_path, folder)
    with pytest.raises(FormatError, match=message):
        irli.load(tmp_path)


def test_a_folder_without_offsets_is_refused(index: VectorIndex, tmp_path: Path) -> None:
    index.save(tmp_path)
    folder = read_folder(tmp_path, mmap=False)
    del folder.arrays["id_offsets"]
    write_folder(tmp_path, folder)
    with pytest.raises(FormatError):
        irli.load(tmp_path)
