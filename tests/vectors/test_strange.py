"""What `tune` lets strange queries do: the work that they take, and how they share it out."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest
from bench.guarantees.shapes import make_shape
from hypothesis import given, settings
from hypothesis import strategies as st

import irli
from irli import VectorIndex
from irli.errors import FormatError
from irli.vectors.build.ground_truth import GroundTruth, find_truth
from irli.vectors.build.held_out import make_strange_queries
from irli.vectors.cost import Sizes, count_centroid_work, count_query_work, count_work
from irli.vectors.parameters import OperatingPoint, Strange
from irli.vectors.searcher import Searcher
from irli.vectors.tuning import strange_queries as module
from irli.vectors.tuning import tune as tuning
from irli.vectors.tuning.measure import Evaluator, Meter

# --- the queries ---------------------------------------------------------------------------------


def test_strange_queries_are_of_three_kinds() -> None:
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(5000, 6)) * [1, 2, 3, 4, 5, 6] + 100).astype(np.float32)
    between, noise, far = (make_strange_queries(X, "l2")[kind::3] for kind in range(3))
    sums = X[:, None, 0] + X[None, :, 0]
    for query in between[:5]:
        assert np.isclose(sums, 2 * query[0], rtol=1e-6).any()
    assert not (between[0] == X).all(axis=1).any()
    for queries, times in ((noise, 1), (far, 10)):
        np.testing.assert_allclose(queries.std(axis=0) / np.arange(1, 7), times, rtol=0.35)
        assert np.abs(queries.mean(axis=0) - 100).max() < 3 * times


def test_strange_queries_are_the_same_each_time() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    np.testing.assert_array_equal(make_strange_queries(X, "l2"), make_strange_queries(X, "l2"))
    lengths = np.linalg.norm(make_strange_queries(X, "cosine"), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)


@pytest.mark.parametrize("length", [0.0, 1e-15, 1e18])
def test_strange_queries_can_be_searched(length: float) -> None:
    """Their squares are float32 numbers, too."""
    queries = make_strange_queries(np.array([[length, 0], [-length, 0]], dtype=np.float32), "l2")
    with np.errstate(over="raise"):
        assert np.isfinite(np.square(queries).sum(axis=1)).all()


def test_items_that_are_not_finite_are_refused() -> None:
    with pytest.raises(FormatError, match="finite"):
        make_strange_queries(np.array([[1.0], [np.inf]], dtype=np.float32), "ip")


# --- what they may do ----------------------------------------------------------------------------


@cache
def learned() -> VectorIndex:
    base = make_shape("loose clusters", 8000, 1).base
    return VectorIndex(recipe=irli.recipe("default", epochs=1, buckets=128)).fit(base)


def find_point(searcher: Searcher) -> OperatingPoint:
    tuned = tuning.tune(Meter(searcher, "l2").ask, learned()._fitted().tuning, "l2", 0.95, 10)
    [point] = [each for each in tuned.parameters.points if each.k == 10]
    return point


def test_strange_queries_take_what_they_may() -> None:
    index = learned()
    searcher, parameters = index._fitted().searcher, index.defaults
    [point] = [each for each in parameters.points if each.k == 10]
    queries = make_strange_queries(index.vectors, "l2")
    counts = searcher.measure(queries, parameters.to_plan(10))[2]
    work, strange = count_query_work(Sizes.of(searcher.layout), counts), counts[:, 4] > 0
    assert strange.mean() > 0.5
    most = max(work[kind::3][strange[kind::3]].mean() for kind in range(3))
    assert 3 * point.work < most <= 4.05 * point.work


def test_a_sharp_threshold_leaves_queries_strange() -> None:
    """Few ordinary queries have a bucket of that probability. Their best ones still tell."""
    index = learned()
    evaluator = Evaluator(
        Meter(index._fitted().searcher, "l2").ask, "l2", 10, find_held_truth(index)
    )
    for threshold in (0.9999, 0.5, 0.01):
        likely, unsure = module._find_unsure(evaluator, threshold)
        assert 0 < likely <= threshold
        assert unsure > 0
        routed = [np.exp(logits) for _, logits in evaluator.route()]
        sure = np.concatenate([np.where(p >= likely, p, 0).sum(axis=(1, 2, 3)) for p in routed])
        assert 0 < (sure < unsure).mean() < 0.02


def find_held_truth(index: VectorIndex) -> GroundTruth:
    held = index._fitted().tuning
    return find_truth(index.vectors, "l2", held.queries, held.rows, 10)


def test_codes_that_tell_nothing_leave_more_candidates() -> None:
    """If all codes are equal, nothing but comparing what is read finds neighbours."""
    searcher = learned()._fitted().searcher
    layout = searcher.layout
    load = len(layout.items) / layout.bias.size
    equal = layout.codes._replace(blocks=np.zeros_like(layout.codes.blocks))
    point, blind = find_point(searcher), find_point(Searcher(layout._replace(codes=equal)))
    assert point.picked < 0.3 * point.wide * load
    assert blind.picked > 0.6 * blind.wide * load


@settings(max_examples=100, deadline=None)
@given(share=st.sampled_from(module._SHARES), times=st.floats(2, 8), coded=st.booleans())
def test_buckets_and_candidates_take_the_work(share: float, times: float, coded: bool) -> None:
    layout = learned()._fitted().searcher.layout
    sizes = Sizes.of(layout)
    point = next(each for each in learned().defaults.points if each.k == 10)
    work = times * point.work
    probed = 2.0  # by the others
    wide = module._split_work(sizes, point, work, probed, coded, share)
    more, load = wide.wide - probed, len(layout.items) / layout.bias.size
    total = point.work + count_centroid_work(sizes)
    total += count_work(sizes, more, more * load, wide.picked, True)
    total -= count_work(sizes, 0, 0, 0, coded)  # routed once, and with one table
    bucket = count_work(sizes, 1, load, 0, True) - count_work(sizes, 0, 0, 0, True)
    assert total <= work or more <= 0
    assert total >= work - bucket or wide.wide == layout.bias.size - 1
    assert wide.picked >= 10


def test_unsure_queries_keep_what_others_find() -> None:
    """Codes that tell nothing choose for strange queries only. Items still find themselves."""
    index = learned()
    layout = index._fitted().searcher.layout
    equal = layout.codes._replace(blocks=np.zeros_like(layout.codes.blocks))
    blind = Searcher(layout._replace(codes=equal))
    point = next(each for each in index.defaults.points if each.k == 10)
    point = point._replace(candidates=None, wide=40, picked=10)
    parameters = dataclasses.replace(
        index.defaults,
        score="log-probability",
        points=(point,),
        strange=Strange(point.threshold, 1.0, np.inf),
    )
    items = index.vectors[:500]
    distances, found, counts = blind.measure(items, parameters.to_plan(1))
    assert (counts[:, 4] > 0).mean() > 0.5
    sure = dataclasses.replace(parameters, strange=None)
    expected = blind.measure(items, sure.to_plan(1))[0]
    assert (distances <= expected).all()
    assert (found[:, 0] == np.arange(500)).mean() > 0.95
