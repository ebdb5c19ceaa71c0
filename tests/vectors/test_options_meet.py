"""All options of a search together, beside a plain search written in NumPy.

A cheaper way to an answer (codes, all allowed items at once, an early stop) must not change what
was asked for: the ranking, the votes, the filter.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import small_default
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import clusters, exact_distances, nearness

from irli import VectorIndex
from irli.base.ids import Allowed
from irli.engine.metric import ANSWER_FORM, prepare_vectors
from irli.vectors.parameters import SCORES, FilterPlan, SearchParameters
from irli.vectors.results import SearchResult

METRICS = ("l2", "ip", "cosine")
N, DIM = 600, 8


@cache
def learned(metric: str) -> VectorIndex:
    """Two repetitions, two buckets for each item, codes, and a tuned search."""
    X = clusters(30, 20, dim=DIM, spread=1.5, seed=5).points
    recipe = small_default(repetitions=2, buckets=24, pieces=8)
    return VectorIndex(metric, recipe=recipe).fit(X, threads=1)


def some_queries(metric: str, strange: bool, seed: int) -> NDArray[np.float32]:
    """Queries like the items, or far from all of them."""
    rng = np.random.default_rng(seed)
    X = learned(metric).vectors
    if strange:
        return (30 * np.abs(X).max() * rng.normal(size=(6, DIM))).astype(np.float32)
    return X[rng.integers(N, size=6)] + 0.1 * rng.normal(size=(6, DIM)).astype(np.float32)


class Plain(NamedTuple):
    """What a plain search finds for one query: everything that may be an answer."""

    items: NDArray[np.int64]  # allowed, in a probed bucket, with enough votes
    scores: NDArray[np.float64]  # (N,)
    near: NDArray[np.float64]  # (N,): smaller is nearer


def search_plainly(
    index: VectorIndex,
    query: NDArray[np.float32],
    k: int,
    allowed: NDArray[np.bool_],
    parameters: SearchParameters,
) -> Plain:
    """Algorithm 2 of the paper. Twice as many buckets are read until k items, or all, are found."""
    layout = index._fitted().searcher.layout
    repetitions = len(layout.bias)
    if index.metric == "cosine":
        query = query / np.linalg.norm(query)
    at_length = query
    if parameters.length is not None:
        at_length = query * (parameters.length / np.linalg.norm(query))
    logits = (
        index._fitted().searcher.route(at_length[None].astype(np.float32))[0].astype(np.float64)
    )
    near = nearness(exact_distances(query[None], layout.vectors, index.metric), index.metric)[0]
    wider = 1.0
    while True:
        votes, scores = np.zeros(N, dtype=int), np.zeros(N)
        for r in range(repetitions):
            best = np.argsort(-logits[r], kind="stable")
            if parameters.exact or wider == 2**32:
                probed = best
            elif parameters.probes is not None:
                probed = best[: int(parameters.probes * wider)]
            else:
                cut = np.log(parameters.threshold) if parameters.threshold else -np.inf
                cut -= 2 * np.log(wider)
                probed = best[: max(1, int((logits[r, best] >= cut).sum()))]
            weakest = logits[r, probed].min()
            for b in probed:
                items = layout.items[layout.offsets[r, b] : layout.offsets[r, b + 1]]
                votes[items] += 1
                scores[items] += {
                    "votes": 1.0,
                    "probability": np.exp(logits[r, b]),
                    "log-probability": logits[r, b] - weakest,
                }[parameters.score]
        found = (votes > 0) & allowed
        if found.sum() >= min(k, N) or wider >= 2**32 or parameters.exact:
            break
        wider *= 2
    items = np.flatnonzero(found & (votes >= parameters.min_votes))
    return Plain(items, scores, near)


def check(index: VectorIndex, found: Any, plain: Plain, given: SearchParameters, k: int) -> None:
    """The k best of what a plain search finds, in the right order. Ties may go either way."""
    ids, near = found.ids[found.ids >= 0], plain.near
    assert len(ids) == len(set(ids)) == min(k, len(plain.items))
    assert set(ids) <= set(plain.items)
    slack = 1e-5 + 1e-4 * np.abs(near).max()
    distances = nearness(found.distances[: len(ids)], index.metric)
    np.testing.assert_allclose(distances, near[ids], atol=slack)
    if given.rank == "distance":
        right = np.sort(near[plain.items])[: len(ids)]
        np.testing.assert_allclose(near[ids], right, atol=2 * slack)
        return
    scores, small = plain.scores, 1e-3
    right = np.sort(scores[plain.items])[::-1][: len(ids)]
    np.testing.assert_allclose(scores[ids], right, atol=small)
    order = np.lexsort((near[ids], -np.round(scores[ids] / small)))
    same = np.isclose(scores[ids], scores[ids][order], atol=2 * small)
    assert same.all()
    if given.score == "votes":  # whole numbers: of equal ones, the nearest first
        best = plain.items[np.lexsort((near[plain.items], -scores[plain.items]))][: len(ids)]
        np.testing.assert_allclose(near[ids], near[best], atol=2 * slack)


WIDTHS = st.one_of(
    st.fixed_dictionaries({"probes": st.sampled_from([1, 2, 5, 24])}),
    st.fixed_dictionaries({"threshold": st.sampled_from([0.0, 1e-4, 0.02, 0.3])}),
    st.just({"exact": True}),
)
OPTIONS = {
    "metric": st.sampled_from(METRICS),
    "strange": st.booleans(),
    "seed": st.integers(0, 2**32 - 1),
    "k": st.sampled_from([1, 3, 10, 50, N + 7]),
    "share": st.sampled_from([None, 0.0, 0.005, 0.1, 0.5, 0.999, 1.0]),
}
RANKING = {
    "rank": st.sampled_from(["distance", "score"]),
    "score": st.sampled_from(SCORES[:3]),
    "min_votes": st.sampled_from([None, 1, 2, 3, 1000]),
}


@settings(max_examples=300, deadline=None)
@given(
    **OPTIONS,
    width=WIDTHS,
    ranking=st.fixed_dictionaries(RANKING),
    each=st.booleans(),
)
def test_any_options_mean_the_same_as_in_a_plain_search(
    metric: str,
    strange: bool,
    seed: int,
    k: int,
    share: float | None,
    width: dict[str, Any],
    ranking: dict[str, Any],
    each: bool,
) -> None:
    """With `each`, every query has a filter of its own."""
    index, queries = learned(metric), some_queries(metric, strange, seed)
    rng = np.random.default_rng(seed)
    allowed = rng.random((len(queries), N)) < (1.0 if share is None else share)
    if not each:
        allowed[:] = allowed[0]
    given = {**width, **ranking}
    meant = index.defaults.replace(**given)
    filters = None if share is None else allowed if each else allowed[0]
    batch = index.search(queries, k, filter=filters, **given)
    told = index.explain(queries, k, filter=filters, **given)
    for row, query in enumerate(queries):
        alone = None if share is None else allowed[row]
        found = index.search(query, k, filter=alone, **given)
        exact = index.explain(query, k, filter=alone, **given).exact[0]
        whole = type(batch)(batch.distances[row], batch.ids[row])
        for answer, compared in ((whole, told.exact[row]), (found, exact)):
            plain = search_plainly(index, query, k, allowed[row], meant)
            if compared:  # all allowed items may be compared instead: they can only be nearer
                assert meant.by_distance
                plain = plain._replace(items=np.flatnonzero(allowed[row]))
            check(index, answer, plain, meant, k)


@settings(max_examples=200, deadline=None)
@given(
    **OPTIONS,
    width=WIDTHS,
    ranking=st.fixed_dictionaries(RANKING),
    gone=st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]),
)
def test_removed_items_are_as_good_as_never_there(
    metric: str,
    strange: bool,
    seed: int,
    k: int,
    share: float | None,
    width: dict[str, Any],
    ranking: dict[str, Any],
    gone: float,
) -> None:
    """In every way to search, with a filter or without."""
    index, queries = learned(metric), some_queries(metric, strange, seed)
    rng = np.random.default_rng(seed)
    removed, form = rng.random(N) < gone, ANSWER_FORM[metric]
    mask = rng.random(N) < (1.0 if share is None else share)
    allowed = None if share is None else Allowed.where(mask)
    meant, k = index.defaults.replace(**width, **ranking), min(k, N)  # as a front asks for them
    plan = meant.to_plan(k, None if share is None else FilterPlan())
    searcher = index._fitted().searcher.change(None, removed)
    distances, ids = searcher.search(queries, plan, allowed, form=form)
    prepared = prepare_vectors(queries, metric)
    told = searcher.explain(prepared, plan, allowed)
    measured = searcher.measure(prepared, plan, 1, allowed)[1]
    for row, query in enumerate(queries):
        plain = search_plainly(index, query, k, mask & ~removed, meant)
        one = searcher.search_one(query, plan, allowed, np.arange(N), form)
        assert one is not None
        answers = [(distances[row], ids[row]), one, (distances[row], told.ids[row])]
        for near, found in (*answers, (distances[row], measured[row])):
            check(index, SearchResult(near, found), plain, meant, k)


@settings(max_examples=150, deadline=None)
@given(
    **OPTIONS,
    rank=st.sampled_from([None, "distance", "score"]),
    score=st.sampled_from([None, *SCORES]),
    min_votes=st.sampled_from([None, 1, 2, 3, 1000]),
)
def test_a_tuned_search_ranks_what_it_read(
    metric: str,
    strange: bool,
    seed: int,
    k: int,
    share: float | None,
    rank: str | None,
    score: str | None,
    min_votes: int | None,
) -> None:
    """How much it reads is its own business. What it answers follows from what it has read."""
    if score == "codes" and (rank == "score" or (min_votes or 1) > 1):
        return  # refused
    index, queries = learned(metric), some_queries(metric, strange, seed)
    allowed = np.random.default_rng(seed).random(N) < (1.0 if share is None else share)
    options: dict[str, Any] = {"rank": rank, "score": score, "min_votes": min_votes}
    meant = index.defaults.replace(**options)
    options["filter"] = None if share is None else allowed
    batch = index.search(queries, k, **options)
    told = index.explain(queries, k, **options)
    np.testing.assert_array_equal(told.ids, batch.ids)
    layout = index._fitted().searcher.layout
    for row, query in enumerate(queries):
        if not told.exact[row]:  # else it may pay for several queries alone
            np.testing.assert_array_equal(index.search(query, k, **options).ids, batch.ids[row])
        ids = batch.ids[row][batch.ids[row] >= 0]
        assert allowed[ids].all()
        assert len(set(ids)) == len(ids)
        everything = search_plainly(index, query, k, allowed, SearchParameters(exact=True))
        mine = everything.near[ids]
        distances = nearness(batch.distances[row][: len(ids)], metric)
        np.testing.assert_allclose(distances, mine, atol=1e-4 * (1 + np.abs(mine).max(initial=0)))
        if meant.by_distance:
            assert len(ids) == min(k, allowed.sum())
            assert (np.diff(mine) >= -1e-4 * (1 + np.abs(mine[1:]))).all()
        else:
            assert not told.exact[row]
            assert (told.votes[row][: len(ids)] >= meant.min_votes).all()
        if told.exact[row]:
            right = np.sort(everything.near[allowed])[: len(ids)]
            np.testing.assert_allclose(mine, right, atol=1e-4 * (1 + np.abs(right).max(initial=0)))
        if (min_votes or 1) > layout.bias.shape[0] * 2 + 1:
            assert len(ids) == 0


# --- what went wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"rank": "score"}, {"min_votes": 2}])
@pytest.mark.parametrize("share", [0.02, 0.2, 0.5])
def test_a_batch_reads_as_much_as_each_of_its_queries(
    options: dict[str, Any], share: float
) -> None:
    """Comparing all allowed items costs less in a batch, but is no answer here."""
    index = learned("l2")
    allowed = Allowed.where(np.arange(N) < share * N)
    meant = index.defaults.replace(**options)
    part = index._fitted()
    alone, together = (part.make_plan(10, meant, allowed, queries) for queries in (1, 1000))
    assert not alone.exact
    assert alone.start == together.start == pytest.approx(-np.log2(share))


@pytest.mark.parametrize("exact", [None, True])
@pytest.mark.parametrize("share", [None, 0.05, 0.9])
def test_nothing_has_a_thousand_votes(exact: bool | None, share: float | None) -> None:
    allowed = None if share is None else np.arange(N) < share * N
    found = learned("l2").search(
        some_queries("l2", False, 0), 10, min_votes=1000, filter=allowed, exact=exact
    )
    assert (found.ids == -1).all()
