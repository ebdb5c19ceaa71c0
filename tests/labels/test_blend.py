"""choose_weights: no blend is worse than its parts, and chance decides little."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.labels.tuning.blend import Scored, choose_weights
from irli.labels.tuning.objective import OBJECTIVES, Objective

LABELS = 60


def plant(rows: int, seed: int = 0) -> tuple[Scored, sp.csr_array]:
    """Two labels a row. The first source is good at the top, and blind for one row in three.

    There, the second source puts the labels among the better half: that says nothing of the best,
    but much of how likely the labels are.
    """
    rng = np.random.default_rng(seed)
    own = np.stack([rng.permutation(LABELS)[:2] for _ in range(rows)])
    carried = np.zeros((rows, LABELS), dtype=np.float32)
    np.put_along_axis(carried, own, 1, axis=1)
    seen = (rng.random(rows) < 2 / 3)[:, None]
    first = rng.normal(size=carried.shape) + np.where(seen, 3 * carried, -2 * carried)
    second = rng.normal(size=carried.shape) + 1.5 * carried
    labels = np.tile(np.arange(LABELS), (rows, 1))
    scored = Scored(labels, carried > 0, np.stack([first, second], axis=-1))
    return scored, sp.csr_array(carried)


def precision(scored: Scored, weights: NDArray[np.float64]) -> float:
    order = np.argsort(-(scored.scores @ weights), axis=1)
    return float(
        np.mean([np.take_along_axis(scored.correct, order, 1)[:, :k].mean() for k in (1, 3, 5)])
    )


def test_no_part_is_better_than_the_blend() -> None:
    given, Y = plant(2000)
    weights = choose_weights(given, Y, Objective.of("precision", Y))
    fresh, _ = plant(2000, seed=1)
    parts = [precision(fresh, one) for one in np.eye(2)]
    assert precision(fresh, weights) > max(parts) - 0.002


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_one_source_needs_no_choice(objective: str) -> None:
    given, Y = plant(50)
    only = given._replace(scores=given.scores[..., :1])
    assert choose_weights(only, Y, Objective.of(objective, Y)).tolist() == [1.0]


def test_a_source_of_noise_counts_next_to_nothing() -> None:
    given, Y = plant(1500)
    noise = np.random.default_rng(2).normal(size=given.labels.shape)
    scores = np.concatenate([given.scores[..., :1], noise[..., None]], axis=-1)
    weights = choose_weights(given._replace(scores=scores), Y, Objective.of("precision", Y))
    assert weights[1] <= 0.125


def test_candidates_that_no_source_likes_are_not_looked_at() -> None:
    given, _ = plant(30)
    wide = given._replace(labels=np.where(np.arange(LABELS) < 55, given.labels, -1))
    best = wide.keep_best()
    assert best.labels.shape[1] <= 55
    assert (best.labels < 55).all()
    for source in range(2):
        odds = np.where(wide.labels >= 0, wide.scores[..., source], -np.inf)
        for row, label in enumerate(odds.argmax(axis=1)):
            place = np.flatnonzero(best.labels[row] == label)
            assert best.scores[row, place[0], source] == odds[row, label]
    kept = [set(row[row >= 0]) for row in best.labels]
    assert all(
        len(labels) == (row >= 0).sum() for labels, row in zip(kept, best.labels, strict=True)
    )
    assert (best.correct <= (best.labels >= 0)).all()


def test_rows_without_candidates_or_labels() -> None:
    given, Y = plant(20)
    empty = given._replace(labels=np.full_like(given.labels, -1))
    for scored, truth in ((empty, Y), (given, sp.csr_array(Y.shape, dtype=np.float32))):
        goal = Objective.of("balanced", Y)
        assert np.isfinite(choose_weights(scored, truth, goal)).all()


def test_between_equals_the_weights_are_in_the_middle() -> None:
    """Two sources that say the same may be mixed in any way."""
    given, Y = plant(200)
    twice = given._replace(scores=given.scores[..., [0, 0]])
    weights = choose_weights(twice, Y, Objective.of("precision", Y))
    assert weights.tolist() == pytest.approx([1, 2**-1.5])


def test_a_source_that_knows_it_all_decides() -> None:
    given, Y = plant(300)
    noise = np.random.default_rng(2).normal(size=(*given.labels.shape, 2))
    for place in range(3):
        scored = given._replace(scores=np.insert(noise, place, given.correct, axis=-1))
        weights = choose_weights(scored, Y, Objective.of("balanced", Y))
        assert weights[place] == 1
        assert precision(scored, weights) == precision(scored, np.eye(3)[place])


def plant_rare(rows: int = 800) -> tuple[Scored, sp.csr_array]:
    """The first source knows the common label, the second the rare ones, each a little."""
    rng = np.random.default_rng(3)
    rare = rng.random(rows) < 0.2
    carried = np.zeros((rows, LABELS), dtype=np.float32)
    carried[np.arange(rows), np.where(rare, 1 + rng.integers(LABELS - 1, size=rows), 0)] = 1
    first, second = rng.normal(size=(2, rows, LABELS))
    first[:, 0] += 3
    second += 3 * carried * rare[:, None]
    labels = np.tile(np.arange(LABELS), (rows, 1))
    return Scored(labels, carried > 0, np.stack([first, second], axis=-1)), sp.csr_array(carried)


def choose_by_objective(given: Scored, Y: sp.csr_array) -> list[NDArray[np.float64]]:
    return [choose_weights(given, Y, Objective.of(name, Y)) for name in OBJECTIVES]


def test_only_propensity_pays_with_precision() -> None:
    given, Y = plant_rare()
    plain, balanced, scored = choose_by_objective(given, Y)
    assert scored[1] / scored[0] > balanced[1] / balanced[0]
    assert precision(given, scored) < precision(given, plain) - 0.01
    assert precision(given, balanced) > precision(given, plain) - 0.005


def test_rare_labels_decide_between_blends_of_equal_precision() -> None:
    """A row has a common and a rare label. All blends find both; the second source lifts the rare.

    It comes first if the second source counts more than the first: that is 2 or 4 on the grid.
    """
    rng = np.random.default_rng(4)
    rows = np.arange(1200)
    common, rare = np.zeros((2, len(rows), LABELS), dtype=np.float32)
    common[rows, rng.integers(2, size=len(rows))] = 1
    rare[rows, 2 + rng.integers(LABELS - 2, size=len(rows))] = 1
    scores = np.stack([3 * common + 2 * rare, rare], axis=-1).astype(np.float64)
    labels = np.tile(np.arange(LABELS), (len(rows), 1))
    Y = sp.csr_array(common + rare)
    given = Scored(labels, common + rare > 0, scores)
    plain, balanced, scored = choose_by_objective(given, Y)
    assert plain.tolist() == pytest.approx([1, 2**-1.5])
    assert balanced.tolist() == pytest.approx([1, 2**1.5])
    assert scored.tolist() == pytest.approx([1, 2**1.5])
