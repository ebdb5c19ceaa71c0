"""What queries want, told to `fit`: it is learned, in whatever form it comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import small_default
from contract import same
from numpy.typing import NDArray
from planted import shifted_queries
from problems import points

from irli import IrliWarning, Recipe, VectorIndex, recipe
from irli.engine.exact import exact_neighbors
from irli.errors import InvalidParameter


def fit(X: NDArray, recipe: Recipe | None = None, **given: Any) -> VectorIndex:
    return VectorIndex(recipe=recipe or small_default(epochs=1)).fit(X, threads=1, **given)


def assert_identical(one: VectorIndex, other: VectorIndex) -> None:
    """Both learned the same, to the last bit."""
    left, right = one._fitted().searcher.layout, other._fitted().searcher.layout
    for name in ("project", "bytes", "bias", "offsets", "items"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    assert one.history == other.history
    same(one.search(one.vectors, k=3, probes=2), other.search(one.vectors, k=3, probes=2))


def test_explicit_relevance_is_learned() -> None:
    """Queries that want what is not near them: only a learned router can know where it is.

    One small index of three may be unlucky.
    """
    made = shifted_queries(25, 12, dim=8, n_queries=660, wanted=5, seed=0)
    seen, fresh = slice(0, 600), range(600, 660)

    def share_in_first_buckets(index: VectorIndex) -> float:
        """A filter on the wanted cluster widens the search if it is not in the probed buckets."""
        hits = []
        for row in fresh:
            wanted = np.flatnonzero(made.items.owner == made.wants[row])
            told = index.explain(made.queries[row], k=1, probes=2, filter=wanted)
            hits.append(told.probed[0] == 2)
        return float(np.mean(hits))

    shares = []
    for seed in range(3):
        recipe = small_default(epochs=6, buckets=24, seed=seed)
        given = {"queries": made.queries[seen], "relevance": made.relevance[seen]}
        without, learned = fit(made.items.points, recipe), fit(made.items.points, recipe, **given)
        shares.append((share_in_first_buckets(learned), share_in_first_buckets(without)))
    found = np.mean(shares, axis=0)
    assert found[0] > 0.6
    assert found[1] < 0.4


def test_a_filter_leaves_the_ranking_that_was_learned() -> None:
    """Who wants what is no matter of distance. What is wanted is found under a filter, too."""
    rng = np.random.default_rng(0)
    items, kinds = 1500, 30
    wanted = rng.permutation(items).reshape(kinds, -1)[:, :10]
    kind = rng.permutation(np.repeat(np.arange(kinds), 60))
    queries = 2 * rng.normal(size=(kinds, 16))[kind] + 0.3 * rng.normal(size=(len(kind), 16))
    index = fit(
        rng.normal(size=(items, 16)).astype(np.float32),
        recipe("relevance", epochs=5),
        queries=queries[200:],
        relevance=wanted[kind[200:]],
    )
    assert index.defaults.rank == "score"
    asked = queries[:200].astype(np.float32)

    def share_of_wanted(ids: NDArray[np.int64]) -> float:
        return float((ids[:, :, None] == wanted[kind[:200], None]).any(axis=2).mean())

    plain = share_of_wanted(index.search(asked, 3).ids)
    assert plain > 0.7
    some = rng.random(items)
    for allowed in (some > some.min(), some < 0.9, some < 0.6):
        for options in ({}, {"rank": "score"}):
            batch = index.search(asked, 3, filter=allowed, **options).ids
            each = index.search(asked, 3, filter=[allowed] * len(asked), **options).ids
            alone = [index.search(query, 3, filter=allowed, **options).ids for query in asked]
            np.testing.assert_array_equal(batch, each)
            np.testing.assert_array_equal(batch, alone)
            assert allowed[batch].all()
            assert share_of_wanted(batch) > plain - 0.05
    near = index.search(asked, 3, filter=allowed, rank="distance").ids
    assert share_of_wanted(near) < 0.1


def test_relevance_as_sparse_or_as_rows_is_the_same() -> None:
    made = shifted_queries(10, 8, dim=6, n_queries=60, wanted=3, seed=1)
    rows = made.relevance.indices.reshape(60, 3)
    one, other = (
        fit(made.items.points, queries=made.queries, relevance=relevance)
        for relevance in (made.relevance, np.pad(rows, ((0, 0), (0, 2)), constant_values=-1))
    )
    assert_identical(one, other)


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_queries_may_want_nothing(share: float) -> None:
    made = shifted_queries(10, 8, dim=6, n_queries=40, wanted=3, seed=1)
    keep = sp.diags_array((np.random.default_rng(0).random(40) >= share).astype(np.float32))
    relevance = sp.csr_array(keep @ made.relevance)
    index = fit(made.items.points, queries=made.queries, relevance=relevance)
    assert (index.search(made.queries, k=3).ids >= 0).all()


def test_a_relevance_of_nothing_is_refused() -> None:
    X = points()
    nothing = sp.csr_array((5, len(X)), dtype=np.float32)
    with pytest.raises(InvalidParameter, match=r"'relevance' .* at least one query"):
        fit(X, queries=X[:5], relevance=nothing)


def test_neighbours_that_are_given_need_not_be_computed() -> None:
    X = points()
    near = exact_neighbors(X, X, 20, rows=np.arange(len(X)))
    computed, given = fit(X), fit(X, neighbors=near)
    assert_identical(computed, given)
    itself = np.hstack([np.arange(len(X))[:, None], near])  # each item first among its own
    again = fit(X, neighbors=itself)  # as which it does not count
    assert (
        again._fitted().searcher.layout.items.shape == given._fitted().searcher.layout.items.shape
    )
    assert (again.search(X, k=1, threshold=0.0).ids[:, 0] == np.arange(len(X))).all()


def test_few_votes_are_said() -> None:
    X = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    index = VectorIndex(recipe=recipe("default", epochs=1, buckets=16)).fit(X)
    for queries in (X[:3], X[0]):
        with pytest.warns(IrliWarning, match="min_votes=3 leaves out"):
            found = index.search(queries, k=5, probes=1, min_votes=3)
        assert (found.counts == 0).all()
