"""The native prediction of labels against Algorithm 2 written out in NumPy, on every back-end."""

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

from irli import _native
from irli._native import BLOCK, LabelPlan, LabelPredictor
from irli.engine.int8 import unround_rows, untile
from irli.engine.label_layout import LabelLayout
from irli.labels.build.assemble import add_near_rows, add_ranker, assemble_labels, read_ranker
from irli.labels.parameters import SCORES, LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.ranking.near_rows import NearRows
from irli.labels.tuning.calibration import EVERY, INDEX_ALONE, Calibration
from irli.learning.repetition import Repetition

NEAR = [name for name in LabelLayout._fields if name.startswith("near_")]
FUSED = Calibration(by_margin=0.7, by_score=1.3, threshold=-0.4)
often = settings(max_examples=30, deadline=None)
pytestmark = pytest.mark.usefixtures("simd")


def logits_of(layout: LabelLayout, rows: sp.csr_array) -> NDArray[np.float32]:
    """(n, R, B), as the kernels round them: the scores of labels that have a bucket each."""
    buckets = layout.bias.shape[1]
    found = []
    for r in range(len(layout.bias)):
        own, trunk = slice(r, r + 1), slice(r, r + 1) if len(layout.project) > 1 else slice(1)
        part = layout._replace(
            **{
                name: getattr(layout, name)[trunk] for name in ("project", "project_scale", "shift")
            },
            **{name: getattr(layout, name)[own] for name in ("out", "out_scale", "bias")},
            offsets=np.arange(buckets + 1)[None],
            items=np.arange(buckets, dtype=np.int32),
            share=np.ones(buckets, dtype=np.float32),
            prior=np.zeros(buckets, dtype=np.float32),
        )
        parameters = LabelParameters(buckets, score="logit")
        scores, labels = Predictor(part).predict(rows, rows, buckets, parameters)
        found.append(np.take_along_axis(scores, np.argsort(labels, axis=1), axis=1))
    return np.stack(found, axis=1)


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
        votes: dict[int, int] = defaultdict(int)
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
                    votes[label] += 1
                    total[label] += {
                        "votes": 1.0,
                        "weighted-votes": 1.0,
                        "probability": np.exp(values[b]) * share / count,
                        "logit": values[b] / count,
                        "log-probability": (values[b] - weakest) / count,
                    }[score]
        total = {label: total[label] for label in total if votes[label] >= parameters.min_votes}
        if score == "votes":
            self.scores = total
        elif score == "probability":
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
    logits = logits_of(layout, x)
    right = slow_logits(layout, x)
    assert np.abs(logits - right).max() < 0.02 * np.abs(right - layout.bias).max()


def test_trunks_matter() -> None:
    x = random_rows(4, 12)[1:]
    own, shared = (logits_of(random_label_layout(shared=s), x) for s in (False, True))
    np.testing.assert_array_equal(own[:, 0], shared[:, 0])
    assert np.abs(own[:, 1:] - shared[:, 1:]).max() > 0.1


# --- gather ----------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 1000),
    score=st.sampled_from(SCORES),
    votes=st.sampled_from([1, 1, 2, 3, 9]),
    probes=st.integers(1, 14),  # there are 10 buckets
    per_item=st.integers(1, 2),
    shared=st.booleans(),
)
@often
def test_gather(
    seed: int, score: str, votes: int, probes: int, per_item: int, shared: bool
) -> None:
    """Exactly the labels of the probed buckets, each with its score."""
    layout = random_label_layout(per_item=per_item, shared=shared, seed=seed)
    x = random_rows(3, 12, seed=seed)
    parameters = LabelParameters(probes, score=score, min_votes=votes)
    scores, labels = Predictor(layout).predict(x, x, 50, parameters)
    for row, logits in enumerate(logits_of(layout, x)):
        right = Oracle(layout, logits, parameters).scores
        found = labels[row][labels[row] >= 0].tolist()
        assert sorted(found) == sorted(right)
        expected = [right[label] for label in found]
        np.testing.assert_allclose(scores[row, : len(found)], expected, rtol=1e-3, atol=1e-3)


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
    x = random_rows(2, 12)
    _, labels = Predictor(layout).predict(x, x, 40, LabelParameters(probes, score=score))
    first = [layout.items[starts[0] : starts[probes]] for starts in layout.offsets]
    assert set(labels[1].tolist()) - {-1} == set(np.concatenate(first).tolist())


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


@given(
    seed=st.integers(0, 1000),
    score=st.sampled_from(SCORES),
    probes=st.integers(1, 12),
    k=st.integers(1, 60),  # there are 50 labels
    rows=st.integers(1, 20),
)
@often
def test_predict_without_a_ranker(seed: int, score: str, probes: int, k: int, rows: int) -> None:
    layout = random_label_layout(seed=seed)
    x = random_rows(rows, 12, seed=seed)
    parameters = LabelParameters(probes, score=score)
    scores, labels = Predictor(layout).predict(x, x, k, parameters)
    assert scores.shape == labels.shape == (rows, k)
    logits = logits_of(layout, x)
    for row in range(rows):
        check_answer(scores[row], labels[row], Oracle(layout, logits[row], parameters).scores, k)


@given(
    seed=st.integers(0, 1000),
    probes=st.integers(1, 12),
    candidates=st.integers(1, 60),
    k=st.integers(1, 12),
)
@often
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


# --- every source ----------------------------------------------------------------------------

BLENDED = Calibration(by_margin=0.7, by_score=1.3, threshold=-0.4, by_votes=0.6, own=True)
SOURCES = [
    FUSED,
    FUSED._replace(own=True),
    BLENDED,
    BLENDED._replace(own=False),
    BLENDED._replace(by_margin=0.0, own=False),
]


def every_source(seed: int = 0, dim: int = 12, per_item: int = 1) -> LabelLayout:
    """An index with a ranker and 40 known rows."""
    rng = np.random.default_rng(seed)
    carried = sp.csr_array((rng.random((40, 50)) < 0.1).astype(np.float32))
    known = NearRows.pack(random_rows(40, dim, seed=seed + 2), carried)
    layout = random_label_layout(seed=seed, per_item=per_item)
    return add_near_rows(add_ranker(layout, random_ranker(50, dim, seed=seed)), known)


@given(
    seed=st.integers(0, 1000),
    calibration=st.sampled_from(SOURCES),
    probes=st.integers(1, 12),
    candidates=st.integers(1, 60),
    near=st.integers(1, 50),
)
@often
def test_candidates_blended_by_hand_are_the_prediction(
    seed: int, calibration: Calibration, probes: int, candidates: int, near: int
) -> None:
    """`list_candidates` and `to_log_odds` together are `predict`."""
    predictor = Predictor(every_source(seed, dim=30))
    routed, ranked = random_rows(11, 12, seed=seed), random_rows(11, 30, seed=seed + 1)
    parameters = LabelParameters(probes, candidates, near=near)
    found = predictor.list_candidates(routed, ranked, parameters, calibration)
    odds = calibration.to_log_odds(found)
    scores, labels = predictor.predict(routed, ranked, 1, parameters, calibration)
    for row in range(11):
        right = dict(zip(found.labels[row].tolist(), odds[row].tolist(), strict=True))
        right.pop(-1, None)
        assert len(right) == (found.labels[row] >= 0).sum()  # none is there twice
        check_answer(scores[row], labels[row], right, 1)
    k = min(candidates, 8)
    scores, labels = predictor.predict(routed, ranked, k, parameters, calibration)
    for row in range(11):
        right = dict(zip(found.labels[row].tolist(), odds[row].tolist(), strict=True))
        right.pop(-1, None)
        check_answer(scores[row], labels[row], right, k)


@given(
    seed=st.integers(0, 1000),
    probes=st.integers(1, 12),
    candidates=st.integers(1, 60),
    own=st.booleans(),
    near=st.sampled_from([0, 5, 100]),
)
@often
def test_each_source_proposes_its_best(
    seed: int, probes: int, candidates: int, own: bool, near: int
) -> None:
    layout = every_source(seed)
    x = random_rows(9, 12, seed=seed + 1)
    parameters = LabelParameters(probes, candidates, near=near)
    calibration = BLENDED._replace(own=own)
    found = Predictor(layout).list_candidates(x, x, parameters, calibration)
    ranker = read_ranker(layout)
    margins, weights = ranker.margins(x), ranker.matrix().toarray() != 0
    logits = logits_of(random_label_layout(seed=seed), x)
    for row in range(9):
        labels = found.labels[row][found.labels[row] >= 0]
        there = slice(0, len(labels))
        oracle = Oracle(layout, logits[row], parameters)
        by_routers = oracle.best(candidates)
        lowest = min((oracle.scores[label] for label in by_routers), default=0.0)
        reached = np.flatnonzero((x[[row]].toarray()[0] != 0) @ weights)
        by_ranker = reached[np.argsort(-margins[row, reached], kind="stable")][:candidates]
        voted = found.votes[row, there] > 0
        proposed = {*by_routers} | ({*by_ranker.tolist()} if own else set())
        assert len(labels) <= candidates * (1 + own + (near > 0))
        assert len(proposed - {*labels.tolist()}) <= 1  # of near equals another may be there
        if not near:
            assert not voted.any()
            assert len({*labels.tolist()} - proposed) <= 1
        expected = [oracle.scores[n] if n in by_routers else lowest for n in labels.tolist()]
        close = np.isclose(found.scores[row, there], expected, rtol=2e-3, atol=2e-3)
        assert (~close).sum() <= 1
        np.testing.assert_allclose(
            found.margins[row, there], margins[row, labels], rtol=1e-4, atol=1e-4
        )
        assert (found.labels[row, len(labels) :] == -1).all()
        assert not found.votes[row, len(labels) :].any()


@given(
    seed=st.integers(0, 1000),
    score=st.sampled_from(SCORES),
    probes=st.integers(1, 12),
    candidates=st.integers(1, 60),
    per_item=st.integers(1, 2),
)
@often
def test_routers_score_what_others_propose(
    seed: int, score: str, probes: int, candidates: int, per_item: int
) -> None:
    """Whoever proposed a label, its score comes from the buckets that hold it, probed or not."""
    layout = every_source(seed, per_item=per_item)
    x = random_rows(9, 12, seed=seed + 1)
    parameters = LabelParameters(probes, candidates, score=score, near=20)
    found, own = (
        Predictor(layout).list_candidates(x, x, parameters, BLENDED._replace(complete=complete))
        for complete in (EVERY, 0)
    )
    np.testing.assert_array_equal(found.labels, own.labels)
    logits = logits_of(random_label_layout(seed=seed), x).astype(np.float64)
    for row in range(9):
        right = score_by_homes(layout, logits[row], parameters)
        labels = found.labels[row][found.labels[row] >= 0]
        np.testing.assert_allclose(
            found.scores[row, : len(labels)], right[labels], rtol=2e-3, atol=2e-3
        )


def score_by_homes(
    layout: LabelLayout, logits: NDArray, parameters: LabelParameters
) -> NDArray[np.float64]:
    """(L,): the scores of all labels; of two buckets of a repetition, the better one counts."""
    score, count = parameters.score, len(logits)
    total, base = np.zeros(len(layout.prior)), 0.0
    for r, values in enumerate(logits):
        weakest = np.sort(values)[::-1][: parameters.probes].min()
        everything = values.max() + np.log(np.exp(values - values.max()).sum())
        base += (weakest - everything) / count if score == "log-probability" else 0.0
        best = np.full(len(total), -np.inf)
        for b in range(len(values)):
            for label, share in bucket_entries(layout, r, b):
                gain = {
                    "probability": np.exp(values[b] - everything) * share,
                    "logit": values[b] / count,
                    "log-probability": (values[b] - weakest) / count,
                }.get(score, float(values[b] >= weakest))
                best[label] = max(best[label], gain)
        total += np.where(np.isfinite(best), best, 0)
    if score == "votes":
        return total
    if score == "probability":
        return np.log(np.maximum(total / count, 1e-30))
    return total + base + layout.prior


def test_sources_of_no_weight_are_left_out() -> None:
    """Whatever a layout has: the calibration says what is read."""
    layout = every_source()
    x = random_rows(9, 12)
    parameters = LabelParameters(4, 10, near=20)
    bare = layout._replace(**{name: getattr(random_label_layout(), name) for name in NEAR})
    for calibration in (INDEX_ALONE, FUSED, FUSED._replace(own=True)):
        one, other = (
            Predictor(each).predict(x, x, 5, parameters, calibration) for each in (layout, bare)
        )
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)
    without = Predictor(layout).predict(x, x, 5, LabelParameters(4, 10, near=0), BLENDED)
    right = Predictor(bare).predict(x, x, 5, parameters, BLENDED._replace(by_votes=0.0))
    for one, two in zip(without, right, strict=True):
        np.testing.assert_array_equal(one, two)


def test_blended_rows_leave_no_trace() -> None:
    """Margins and votes of a row are cleared before the next; threads change nothing."""
    predictor = Predictor(every_source())
    x = random_rows(70, 12, seed=5)
    parameters = LabelParameters(4, 6, near=9)
    whole = predictor.list_candidates(x, x, parameters, BLENDED, threads=3)
    answers = predictor.predict(x, x, 5, parameters, BLENDED, threads=2)
    for row in range(70):
        one = x[[row]]
        for left, right in zip(
            predictor.list_candidates(one, one, parameters, BLENDED), whole, strict=True
        ):
            np.testing.assert_array_equal(left[0], right[row])
        for left, right in zip(
            predictor.predict(one, one, 5, parameters, BLENDED), answers, strict=True
        ):
            np.testing.assert_array_equal(left[0], right[row])


def test_blended_rows_that_are_odd() -> None:
    """Without features, and with values that overflow: an answer, and no trace."""
    predictor = Predictor(every_source())
    usual = random_rows(3, 12, seed=5)[[1]]
    odd = [
        np.zeros((1, 12)),
        np.full((1, 12), 3e38),
        np.full((1, 12), -3e38),
        1e-30 * np.eye(1, 12),
    ]
    x = sp.csr_array(sp.vstack([usual, *odd, usual]).astype(np.float32))
    scores, labels = predictor.predict(x, x, 5, LabelParameters(10, 50, near=40), BLENDED)
    assert (labels >= 0).all()
    assert all(len(set(row)) == 5 for row in labels.tolist())
    np.testing.assert_array_equal(labels[0], labels[-1])
    np.testing.assert_array_equal(scores[0], scores[-1])


def equal_buckets(items: NDArray[np.int32], repetitions: int = 1) -> LabelLayout:
    """An index in which all labels have the same score, found in the order of their buckets."""
    router = random_router(4, 5, linear=0)._replace(
        weights=np.zeros((10, 5), np.float32), bias=np.zeros(5, np.float32)
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


# --- every back-end --------------------------------------------------------------------------


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("buckets", [1, 15, 16, 17, 64, 65, 200])
@pytest.mark.parametrize("hidden", [1, 16, 63, 64, 130])
def test_all_back_ends_agree(simd: str, score: str, buckets: int, hidden: int) -> None:
    """To the bit where there is FMA, else within 1e-6."""
    layout = random_label_layout(300, buckets, hidden=hidden, shared=False, seed=buckets)
    layout = add_ranker(layout, random_ranker(300, 12))
    x = random_rows(9, 12)
    parameters = LabelParameters(7, 100, score)
    scores, labels = Predictor(layout).predict(x, x, 20, parameters, FUSED)
    _native.use_simd(_native.available_simd()[-1])
    best = Predictor(layout).predict(x, x, 20, parameters, FUSED)
    _native.use_simd(simd)
    if simd == "plain":
        np.testing.assert_allclose(scores, best[0], rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(scores, best[0])
        np.testing.assert_array_equal(labels, best[1])


# --- edges -----------------------------------------------------------------------------------


def test_a_single_label() -> None:
    layout = add_ranker(random_label_layout(1, 1), random_ranker(1, 12))
    x = random_rows(9, 12)
    for calibration in (INDEX_ALONE, FUSED):
        scores, labels = Predictor(layout).predict(x, x, 3, LabelParameters(1), calibration)
        assert labels.tolist() == [[0, -1, -1]] * 9
        assert np.isfinite(scores[:, 0]).all()


def test_rows_without_features() -> None:
    """They are labelled by the biases alone."""
    layout = add_ranker(random_label_layout(), random_ranker(50, 12))
    empty = sp.csr_array((11, 12), dtype=np.float32)
    scores, labels = Predictor(layout).predict(empty, empty, 5, LabelParameters(4), FUSED)
    assert (labels == labels[0]).all()
    assert (scores == scores[0]).all()
    assert (labels >= 0).all()


@pytest.mark.parametrize("value", [3e38, -3e38])
def test_values_that_overflow(value: float) -> None:
    layout = add_ranker(random_label_layout(), random_ranker(50, 12, density=1.0))
    rows = sp.csr_array(np.full((9, 12), value, dtype=np.float32))
    for score in SCORES:
        _, labels = Predictor(layout).predict(rows, rows, 50, LabelParameters(10, 50, score), FUSED)
        assert (np.sort(labels, axis=1) == np.arange(50)).all()


@pytest.mark.parametrize("score", SCORES)
def test_labels_beyond_24_bits_are_exact(score: str) -> None:
    """A float32 holds only every second number here."""
    count, first = 2**24 + 99, 2**24 + 1
    few = random_label_layout(labels=40, buckets=4)
    x = random_rows(9, 12)
    parameters = LabelParameters(4, score=score)
    _, right = Predictor(few._replace(prior=few.prior * 0)).predict(x, x, 40, parameters)
    many = few._replace(items=few.items + np.int32(first), prior=np.zeros(count, np.float32))
    _, labels = Predictor(many).predict(x, x, 40, parameters)
    np.testing.assert_array_equal(labels, right + first)


def test_a_row_leaves_no_trace() -> None:
    """All rows share one scratch memory."""
    predictor = Predictor(random_label_layout())
    one, other = random_rows(2, 12, seed=1)[[1]], random_rows(3, 12, seed=2)[[2]]
    many = sp.csr_array(sp.vstack([one, other] * 300))
    for score in SCORES:
        _, labels = predictor.predict(many, many, 5, LabelParameters(2, score=score))
        assert (labels[::2] == labels[0]).all()
        assert (labels[1::2] == labels[1]).all()


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("score", SCORES)
def test_zeros_of_either_sign(zero: float, score: str) -> None:
    """A score of -0 means internally that a label was not found. No label may be found twice."""
    layout = random_label_layout(labels=40, buckets=5)
    layout = layout._replace(
        out=np.zeros_like(layout.out),
        bias=np.full_like(layout.bias, zero),
        share=np.full_like(layout.share, zero),
    )
    x = random_rows(20, 12)
    _, labels = Predictor(layout).predict(x, x, 40, LabelParameters(5, score=score))
    assert (np.sort(labels, axis=1) == np.arange(40)).all()


# --- what the native module refuses ----------------------------------------------------------


def plan(**changes: Any) -> LabelPlan:
    given: dict[str, Any] = {
        "k": 5,
        "probes": 4,
        "candidates": 10,
        "score": 3,
        "by_margin": 0.0,
        "by_score": 1.0,
        "threshold": 0.0,
    }
    return LabelPlan(**{**given, **changes})


def arrays(indptr: Any, indices: Any, count: int | None = None) -> Any:
    values = np.ones(len(indices) if count is None else count, dtype=np.float32)
    return np.array(indptr, dtype=np.int64), np.array(indices, dtype=np.int32), values


def call(predictor: LabelPredictor, rows: Any, used: LabelPlan, count: int = 2) -> None:
    scores, labels = np.empty((count, used.k), np.float32), np.empty((count, used.k), np.int64)
    predictor.predict(rows, rows, used, 0, count, scores, labels)


@pytest.mark.parametrize(
    "rows",
    [
        arrays([0, 1, 3], [0, 1]),  # ends behind the arrays
        arrays([0, 1, 2], [0, 1], count=1),
        arrays([0, 2, 1], [0, 1]),  # descends
        arrays([-1, 1, 2], [0, 1]),
        arrays([0, 1, 2], [0, 12]),  # there are 12 features
        arrays([0, 1, 2], [0, -1]),
    ],
)
def test_malformed_rows_are_refused(rows: Any) -> None:
    predictor = LabelPredictor(random_label_layout())
    call(predictor, arrays([0, 1, 2], [0, 11]), plan())
    with pytest.raises(ValueError, match="The rows 'routed' must be well-formed"):
        call(predictor, rows, plan())


def test_calls_that_do_not_fit_are_refused() -> None:
    layout = random_label_layout()
    predictor, rows = LabelPredictor(layout), arrays([0, 1, 2], [0, 1])
    with pytest.raises(ValueError, match="uses a ranker, and the index has none"):
        call(predictor, rows, plan(by_margin=1.0))
    with pytest.raises(ValueError, match=r"'scores' must have the shape \(2, 5\)"):
        call(predictor, rows, plan(), count=3)
    with pytest.raises(ValueError, match="int64, int32 and float32"):
        call(predictor, (rows[0].astype(np.int32), *rows[1:]), plan())
    with pytest.raises(ValueError, match="uses near rows, and the index has none"):
        call(predictor, rows, plan(near=3, by_votes=1.0))
    both = LabelPredictor(add_ranker(every_source(), random_ranker(50, 7)))
    with pytest.raises(ValueError, match="must have the same features"):
        call(both, rows, plan(by_margin=1.0, near=3, by_votes=1.0))
    ranked = LabelPredictor(add_ranker(layout, random_ranker(50, 7)))
    with pytest.raises(ValueError, match=r"'ranked' must be well-formed.*below 7"):
        call(ranked, arrays([0, 1, 2], [0, 8]), plan(by_margin=1.0))


@pytest.mark.parametrize("wrong", ["k", "probes", "candidates", "score", "min_votes", "near"])
def test_plans_out_of_range_are_refused(wrong: str) -> None:
    for value in {"score": (-1, 5), "near": (-1,)}.get(wrong, (0, -1)):
        with pytest.raises(ValueError, match="LabelPlan are out of range"):
            plan(**{wrong: value})


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("items", 0, 50),
        ("items", 7, -1),
        ("offsets", (1, 0), -1),
        ("offsets", (2, 10), 10_000),
        ("offsets", (0, 3), 49),
        ("starts", 12, 10_000),
        ("starts", 0, -1),
        ("gaps", 3, 60_000),
        ("near_starts", 12, 10_000),
        ("near_starts", 0, -1),
        ("near_gaps", 3, 60_000),
        ("near_label_starts", 40, 10_000),
        ("near_label_starts", 3, -1),
        ("near_labels", 0, 50),
        ("near_labels", 1, -1),
    ],
)
def test_arrays_that_point_outside_are_refused(name: str, place: Any, value: int) -> None:
    layout = every_source()
    LabelPredictor(layout)
    array = getattr(layout, name).copy()
    array[place] = value
    with pytest.raises(ValueError, match="arrays of an index are damaged"):
        LabelPredictor(layout._replace(**{name: array}))


@pytest.mark.parametrize(
    "name", [name for name in LabelLayout._fields if name not in ("starts", "near_starts")]
)
def test_arrays_of_another_shape_are_refused(name: str) -> None:
    layout = every_source()
    shorter = np.ascontiguousarray(getattr(layout, name)[..., :-1])
    with pytest.raises(ValueError, match="array"):
        LabelPredictor(layout._replace(**{name: shorter}))
