"""Single queries and batches: what one search keeps for the next, and what it must not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import irli
from irli.errors import InvalidParameter
from irli.vectors.parameters import SearchParameters

RECIPE = irli.recipe("default", buckets=8, epochs=1, hidden=4, choices=4)


def vectors(count: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def index() -> irli.VectorIndex:
    return irli.VectorIndex(recipe=RECIPE).fit(vectors(200), threads=1)


def test_a_single_query_is_answered_like_one_of_a_batch(index: irli.VectorIndex) -> None:
    """Whatever its strides, and whether it may be written or not."""
    rows = np.asfortranarray(vectors(20, seed=1))
    right = index.search(rows, 3)
    for i, row in enumerate(rows):
        found = index.search(row, 3)
        np.testing.assert_array_equal(found.ids, right.ids[i])
        np.testing.assert_allclose(found.distances, right.distances[i], rtol=1e-5)
    query = rows[0].copy()
    query.flags.writeable = False
    np.testing.assert_array_equal(index.search(query, 3).ids, right.ids[0])


def test_the_plan_before_serves_only_what_asks_for_the_same(index: irli.VectorIndex) -> None:
    query = vectors(1, seed=1)[0]
    assert len(index.search(query, 1, probes=1).ids) == 1
    with pytest.raises(InvalidParameter, match="probes"):
        index.search(query, 1, probes=True)
    with pytest.raises(InvalidParameter, match="'k'"):
        index.search(query, True, probes=1)
    assert len(index.search(query, 2, probes=1).ids) == 2


def test_new_defaults_count_at_once(index: irli.VectorIndex) -> None:
    query = vectors(1, seed=1)[0]
    kept = index.defaults
    index.defaults = SearchParameters(probes=1)
    few = index.explain(query, 1).probed
    index.defaults = SearchParameters(probes=8)
    many = index.explain(query, 1).probed
    index.defaults = kept
    assert few[0] < many[0] == 8
