"""The compiled prediction of labels against Algorithm 2 written out in NumPy."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import random_partition, random_router
from plantedlabels import random_label_layout, random_ranker, random_rows

from irli.engine import predict as kernels
from irli.engine.int8 import unround_rows, untile
from irli.engine.label_layout import BLOCK, LabelLayout, LabelScratch, make_label_scratch
from irli.labels.assemble import add_ranker, assemble_labels
from irli.labels.calibration import INDEX_ALONE, Calibration
from irli.labels.parameters import SCORES, LabelParameters
from irli.labels.predictor import Predictor
from irli.learning.repetition import Repetition

FUSED = Calibration(by_margin=0.7, by_score=1.3, threshold=-0.4)


def route(layout: LabelLayout, rows: sp.csr_array) -> LabelScratch:
    scratch = make_label_scratch(layout)
    kernels.route(layout, rows.indptr.astype(np.int64), rows.indices, rows.data, scratch)
    return scratch


def logits_of(layout: LabelLayout, rows: sp.csr_array) -> NDArray[np.float32]:
    """(n, R, B), as the kernels round them."""
    count = rows.shape[0]
    return np.concatenate([route(layout, rows[[i]]).logits[:1].copy() for i in range(count)])


def slow_logits(layout: LabelLayout, rows: sp.csr_array) -> NDArray[np.float64]:
    """(n, R, B), by matrix products of features that are not rounded."""
    x = rows.toarray().astype(np.float64)
    logits = []
    project = unround_rows(layout.project, layout.project_scale)
    shape = layout.shift.shape[1], layout.bias.shape[1]
    for r, tiles in enumerate(layout.out):
        out = unround_rows(untile(tiles, *shape).T, layout.out_scale[r])
        t = r if len(project) > 1 else 0
        features = x @ project[t] + layout.shift[t]
        logits.append(np.maximum(features, 0) @ out.T + layout.bias[r])
    return np.stack(logits, axis=1)


def bucket_entries(layout: LabelLayout, r: int, b: int) -> list[tuple[int, float]]:
    part = slice(layout.offsets[r, b], layout.offsets[r, b + 1])
    return list(zip(layout.items[part].tolist(), layout.share[part].tolist(), strict=True))


class Oracle:
    """Scores of all labels found for one row, given its logits (R, B)."""

    def __init__(self, layout: LabelLayout, logits: NDArray, parameters: LabelParameters) -> None:
        total: dict[int, float] = defaultdict(float)
        everywhere = 0.0
        score, count = parameters.score, len(logits)
        for r, values in enumerate(logits.astype(np.float64)):
            if score != "logit":
                values = values - values.max()
                values = values - np.log(np.exp(values).sum())
            chosen = np.argsort(-values, kind="stable")[: parameters.probes]
            weakest = values[chosen].min()
            if score == "log-probability":
                everywhere += weakest / count
            for b in chosen:
                for label, share in bucket_entries(layout, r, int(b)):
                    total[label] += {
                        "votes": 1.0,
                        "probability": np.exp(values[b]) * share / count,
                        "logit": values[b] / count,
                        "log-probability": (values[b] - weakest) / count,
                    }[score]
        if score == "probability":
            self.scores = {label: np.log(max(p, 1e-30)) for label, p in total.items()}
        else:
            prior = layout.prior
            self.scores = {label: s + everywhere + prior[label] for label, s in total.items()}

    def best(self, count: int) -> list[int]:
        return sorted(self.scores, key=lambda label: (-self.scores[label], label))[:count]

    def fused(
        self, candidates: int, margins: NDArray, calibration: Calibration
    ) -> dict[int, float]:
        lack = np.maximum(0, 1 - margins.astype(np.float64))
        return {
            label: calibration.by_score * self.scores[label]
            - calibration.by_margin * lack[label] ** 2
            + calibration.threshold
            for label in self.best(candidates)
        }


def check_answer(
    scores: NDArray, labels: NDArray, right: dict[int, float], k: int, tolerance: float = 2e-3
) -> None:
    """The k best of `right`, best first, then padding; whichever of near equals comes first."""
    count = min(k, len(right))
    assert len(set(labels[:count].tolist())) == count
    assert (labels[count:] == -1).all()
    assert (scores[count:] == -np.inf).all()
    assert (np.diff(scores[:count]) <= 0).all()
    expected = sorted(right.values(), reverse=True)[:count]
    np.testing.assert_allclose(scores[:count], expected, rtol=tolerance, atol=tolerance)
    own = [right[int(label)] for label in labels[:count]]
    np.testing.assert_allclose(scores[:count], own, rtol=tolerance, atol=tolerance)


# --- route -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("rows", [1, 5, BLOCK])
@pytest.mark.parametrize("buckets", [10, 64, 130])
def test_route(shared: bool, rows: int, buckets: int) -> None:
    """Features are rounded to a 127th of the largest, so logits are off by a percent or so."""
    layout = random_label_layout(200, buckets, shared=shared)
    assert len(layout.project) == (1 if shared else 3)
    x = random_rows(rows, 12)
    logits = route(layout, x).logits[:rows]
    right = slow_logits(layout, x)
    assert np.abs(logits - right).max() < 0.02 * np.abs(right - layout.bias).max()


def test_trunks_matter() -> None:
    x = random_rows(4, 12)[1:]
    own, shared = (route(random_label_layout(shared=s), x).logits[:3] for s in (False, True))
    np.testing.assert_array_equal(own[:, 0], shared[:, 0])
    assert np.abs(own[:, 1:] - shared[:, 1:]).max() > 0.1


# --- gather ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    score=st.sampled_from(SCORES),
    probes=st.integers(1, 14),  # there are 10 buckets
    per_item=st.integers(1, 2),
    shared=st.booleans(),
)
def test_gather(seed: int, score: str, probes: int, per_item: int, shared: bool) -> None:
    layout = random_label_layout(per_item=per_item, shared=shared, seed=seed)
    scratch = route(layout, random_rows(3, 12, seed=seed))
    parameters = LabelParameters(probes, score=score)
    for row in range(3):  # one scratch for all: a row leaves no trace
        right = Oracle(layout, scratch.logits[row].copy(), parameters)
        found = kernels.gather(layout, parameters.to_plan(5, INDEX_ALONE), row, scratch)
        seen = scratch.touched[:found].tolist()
        assert sorted(seen) == sorted(right.scores)
        for label in seen:
            assert scratch.scores[label] == pytest.approx(right.scores[label], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("score", SCORES)
def test_probing_everything_finds_every_label(score: str) -> None:
    layout = random_label_layout()
    predictor = Predictor(layout)
    rows = random_rows(20, 12)
    for probes in (10, 11, 2**40):
        _, labels = predictor.predict(rows, rows, 50, LabelParameters(probes, score=score))
        assert (np.sort(labels, axis=1) == np.arange(50)).all()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("probes", [1, 3, 9])
def test_ties_do_not_probe_more(score: str, probes: int) -> None:
    """All buckets are equal: exactly `probes` of them are read in each repetition."""
    layout = random_label_layout(labels=40, buckets=10, repetitions=2)
    layout = layout._replace(out=np.zeros_like(layout.out), bias=np.full_like(layout.bias, 2.0))
    scratch = route(layout, random_rows(2, 12))
    plan = LabelParameters(probes, score=score).to_plan(5, INDEX_ALONE)
    found = kernels.gather(layout, plan, 1, scratch)
    first = [layout.items[starts[0] : starts[probes]] for starts in layout.offsets]
    assert set(scratch.touched[:found]) == set(np.concatenate(first))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_odd_values_do_no_harm(odd: float) -> None:
    """Logits that overflowed: an answer of the right length, whatever it is."""
    layout = random_label_layout()
    layout.bias[:, 3] = odd
    x = random_rows(9, 12)
    for score in SCORES:
        _, labels = Predictor(layout).predict(x, x, 50, LabelParameters(10, score=score))
        assert (np.sort(labels, axis=1) == np.arange(50)).all()


# --- predict ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    score=st.sampled_from(SCORES),
    probes=st.integers(1, 12),
    k=st.integers(1, 60),  # there are 50 labels
    rows=st.integers(1, 20),
)
def test_predict_without_a_ranker(seed: int, score: str, probes: int, k: int, rows: int) -> None:
    layout = random_label_layout(seed=seed)
    x = random_rows(rows, 12, seed=seed)
    parameters = LabelParameters(probes, score=score)
    scores, labels = Predictor(layout).predict(x, x, k, parameters)
    assert scores.shape == labels.shape == (rows, k)
    logits = logits_of(layout, x)
    for row in range(rows):
        check_answer(scores[row], labels[row], Oracle(layout, logits[row], parameters).scores, k)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    probes=st.integers(1, 12),
    candidates=st.integers(1, 60),
    k=st.integers(1, 12),
)
def test_the_ranker_orders_the_candidates(seed: int, probes: int, candidates: int, k: int) -> None:
    """The rows that the ranker sees are not those that the routers see."""
    ranker = random_ranker(50, 30, seed=seed)
    layout = random_label_layout(seed=seed)
    routed, others = random_rows(9, 12, seed=seed), random_rows(9, 30, seed=seed + 1)
    parameters = LabelParameters(probes, candidates)
    predictor = Predictor(add_ranker(layout, ranker))
    scores, labels = predictor.predict(routed, others, k, parameters, FUSED)
    margins = ranker.margins(others)
    logits = logits_of(layout, routed)
    for row in range(9):
        oracle = Oracle(layout, logits[row], parameters)
        right = oracle.fused(max(candidates, k), margins[row], FUSED)
        check_answer(scores[row], labels[row], right, k)


def test_a_ranker_of_no_weight_is_left_out() -> None:
    layout, ranker = random_label_layout(), random_ranker(50, 12)
    x = random_rows(9, 12)
    parameters = LabelParameters(4)
    one = Predictor(layout).predict(x, x, 5, parameters)
    other = Predictor(add_ranker(layout, ranker)).predict(x, x, 5, parameters, INDEX_ALONE)
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def equal_buckets(items: NDArray[np.int32], repetitions: int = 1) -> LabelLayout:
    """An index in which all labels have the same score, found in the order of their buckets."""
    router = random_router(4, 5, linear=0)._replace(
        coarse=np.zeros((10, 5), np.float32), bias=np.zeros(5, np.float32)
    )
    group = [
        Repetition(router, random_partition(len(items), 5, seed=r), []) for r in range(repetitions)
    ]
    layout = assemble_labels(group, np.ones(len(items), dtype=np.int64))
    return layout._replace(
        prior=np.zeros_like(layout.prior), share=np.ones_like(layout.share), items=items
    )


@pytest.mark.parametrize("score", SCORES)
def test_of_equals_the_smaller_number_comes_first(score: str) -> None:
    items = np.random.default_rng(0).permutation(30).astype(np.int32)
    x = random_rows(9, 4)
    _, labels = Predictor(equal_buckets(items)).predict(x, x, 30, LabelParameters(5, score=score))
    assert (labels == np.arange(30)).all()


@pytest.mark.parametrize("k", [1, 7, 29])
@pytest.mark.parametrize("calibration", [INDEX_ALONE, FUSED], ids=["alone", "fused"])
def test_fewer_of_equals_are_the_first_of_many(k: int, calibration: Calibration) -> None:
    items = np.random.default_rng(0).permutation(30).astype(np.int32)
    ranker = random_ranker(30, 4, density=0.0)._replace(bias=np.zeros(30, np.float32))
    predictor = Predictor(add_ranker(equal_buckets(items), ranker))
    x = random_rows(9, 4)
    _, labels = predictor.predict(x, x, k, LabelParameters(5), calibration)
    assert (labels == np.arange(k)).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_and_batches_change_nothing(threads: int) -> None:
    layout = add_ranker(random_label_layout(), random_ranker(50, 12))
    predictor = Predictor(layout)
    x = random_rows(70, 12)
    whole = predictor.predict(x, x, 5, LabelParameters(4, 12), FUSED, threads)
    for row in (0, 1, 8, 69):
        one = x[[row]]
        alone = predictor.predict(one, one, 5, LabelParameters(4, 12), FUSED)
        for left, right in zip(alone, whole, strict=True):
            np.testing.assert_array_equal(left[0], right[row])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rows_of_any_index_type(dtype: Any) -> None:
    layout = add_ranker(random_label_layout(), random_ranker(50, 12))
    x = random_rows(9, 12)
    other = x.copy()
    other.indices, other.indptr = x.indices.astype(dtype), x.indptr.astype(dtype)
    one, two = (Predictor(layout).predict(r, r, 5, LabelParameters(4), FUSED) for r in (x, other))
    np.testing.assert_array_equal(one[1], two[1])
