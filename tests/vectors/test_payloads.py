"""Results carry the payloads of what was found."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irli
from irli import InvalidParameter, VectorIndex

X = np.arange(12, dtype=np.float32).reshape(6, 2)
PAYLOADS: list[Any] = [{"n": 0}, None, {"n": 2}, {"n": 3}, {}, {"n": 5}]


@pytest.fixture(params=["numbers", "texts"])
def index(request: pytest.FixtureRequest) -> VectorIndex:
    ids = [f"i{i}" for i in range(6)] if request.param == "texts" else range(10, 16)
    return VectorIndex().fit(X, ids=ids, payloads=PAYLOADS)


def test_results_carry_payloads(index: VectorIndex) -> None:
    found = index.search(X, k=2, with_payload=True)
    ids = list(index)
    assert found.payloads == [[PAYLOADS[ids.index(id)] for id in line] for line in found.ids]
    plain = index.search(X, k=2)
    assert plain.payloads is None
    np.testing.assert_array_equal(plain.ids, found.ids)
    distances, names = found
    assert distances.shape == names.shape == (6, 2)
    assert "payloads=[[{'n': 0}" in repr(found)
    for other in (copy.copy(found), pickle.loads(pickle.dumps(found))):
        assert other.payloads == found.payloads


def test_a_single_query_has_a_list_of_payloads(index: VectorIndex) -> None:
    assert index.search(X[3], k=1, with_payload=True).payloads == [{"n": 3}]


def test_padding_has_no_payload(index: VectorIndex) -> None:
    found = index.search(X[:2], k=8, filter={"n": 5}, with_payload=True)
    assert found.payloads == [[{"n": 5}] + [None] * 7] * 2
    assert index.search(X[:0], k=3, with_payload=True).payloads == []


def test_range_search_carries_payloads(index: VectorIndex) -> None:
    found = index.search_range(X[[0, 3]], radius=8.0, with_payload=True)
    assert found.payloads is not None
    assert next(part.payloads for part in found.split()) == [{"n": 0}, None]
    assert len(found.payloads) == len(found.ids)
    assert index.search_range(X[:1], radius=1.0).payloads is None


def test_the_metric_stays(tmp_path: Path) -> None:
    index = VectorIndex("cosine").fit(X + 1, payloads=PAYLOADS)
    found = index.search(X[0] + 1, k=1, with_payload=True)
    assert found.metric == "cosine"
    assert found.similarities[0] == pytest.approx(1)


def test_payloads_of_a_fit_are_saved_and_changed(index: VectorIndex, tmp_path: Path) -> None:
    first = next(iter(index))
    index.remove([first])
    index.save(tmp_path / "index")
    for other in (irli.load(tmp_path / "index"), irli.open(tmp_path / "index")):
        assert isinstance(other, VectorIndex)
        assert other.payload(list(other)) == PAYLOADS[1:]
        found = other.search(X[2], k=1, with_payload=True)
        assert found.payloads == [{"n": 2}]
        other.close()


def test_an_index_without_payloads_has_none() -> None:
    found = VectorIndex().fit(X).search(X, k=1, with_payload=True)
    assert found.payloads == [[None]] * 6


@pytest.mark.parametrize(
    ("payloads", "message"), [([{}], "each of 6 items"), ([{"a": {1}}] * 6, "JSON objects")]
)
def test_wrong_payloads_fail_before_learning(payloads: Any, message: str) -> None:
    index = VectorIndex().fit(X)
    with pytest.raises(InvalidParameter, match=message):
        index.fit(X[:6], payloads=payloads)
    assert index.search(X, k=1).ids.shape == (6, 1)
