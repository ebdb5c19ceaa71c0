"""When learning anew is due, by what was measured."""

from __future__ import annotations

import numpy as np
import pytest

from irli.vectors.changes.health import (
    Found,
    compare,
    is_drifted,
    is_outgrown,
    is_sparse,
    is_uneven,
    is_worse,
)

THEN = Found(recall=0.95, margin=0.005, work=10_000.0, work_margin=200.0, queries=400)


@pytest.mark.parametrize(
    ("recall", "work", "growth", "due"),
    [
        (0.95, 10_000.0, 1.0, False),
        (0.95, 10_700.0, 1.0, False),  # within what chance explains
        (0.95, 13_000.0, 1.0, True),
        (0.95, 13_000.0, 1.8, False),  # more items take more work, however fresh
        (0.92, 10_000.0, 1.0, True),
        (0.97, 11_500.0, 1.0, False),  # found better, for the work that it takes
        (0.93, 8_000.0, 1.0, False),
    ],
)
def test_learning_is_due_when_items_are_found_worse(
    recall: float, work: float, growth: float, due: bool
) -> None:
    now = Found(recall, 0.005, work, 200.0, 400)
    assert is_drifted(THEN, now, growth) is due


def test_a_recall_that_is_lower_takes_more_work_to_make_up_for() -> None:
    lower = Found(0.94, 0.005, 10_000.0, 200.0, 400)
    assert compare(THEN, lower) == pytest.approx(0.08)
    assert compare(THEN, THEN) == 0.0


def test_what_was_learned_is_not_taken_if_it_is_worse() -> None:
    dearer = Found(0.95, 0.005, 12_000.0, 200.0, 400)
    assert is_worse(THEN, dearer)
    assert not is_worse(dearer, THEN)
    missed = Found(0.85, 0.005, 8_000.0, 200.0, 400)  # queries that were never learned
    assert not is_worse(missed, THEN)
    assert is_worse(THEN, missed)


def test_sizes_that_ask_for_maintenance() -> None:
    assert [is_outgrown(1000, items) for items in (499, 500, 2000, 2001)] == [
        True,
        False,
        False,
        True,
    ]
    assert not is_sparse(rows=900, removed=800)
    assert is_sparse(rows=2000, removed=201)
    even = np.array([[20, 20, 20, 20], [20, 20, 20, 20]])
    assert not is_uneven(even)
    assert is_uneven(even + np.array([[0, 0, 0, 0], [0, 0, 0, 20]]))
