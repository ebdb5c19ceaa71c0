"""The ranker's classifiers at the border of the native module: what is packed, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.engine.linear import (
    PackedWeights,
    RowLists,
    TrainingRows,
    compute_margins,
    pack_weights,
    train_classifiers,
    unpack_labels,
)


def longs(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def ints(*values: int) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


def floats(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


# --- packing ---------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 400_000), unique=True).map(sorted), max_size=5))
def test_labels_are_unpacked_as_they_were_packed(lists: list[list[int]]) -> None:
    starts = longs(0, *np.cumsum([len(some) for some in lists], dtype=int))
    labels = np.array([label for some in lists for label in some], dtype=np.int32)
    packed = pack_weights(starts, labels, np.ones(len(labels), dtype=np.float32), 400_001)
    unpacked = unpack_labels(packed.starts, packed.gaps)
    assert unpacked.dtype == np.int32
    np.testing.assert_array_equal(unpacked[packed.weights != 0], labels)
    kept = np.bincount(
        np.repeat(np.arange(len(lists)), np.diff(packed.starts)), weights=packed.weights != 0
    )
    np.testing.assert_array_equal(kept, [len(some) for some in lists[: len(kept)]])


def test_sums_of_gaps_may_overflow() -> None:
    """Each feature has a label of 65,535: together they exceed 32 bits."""
    count = 2**16 + 9
    starts, gaps = np.arange(count + 1), np.full(count, 65_535, dtype=np.uint16)
    assert (unpack_labels(starts, gaps) == 65_535).all()


@pytest.mark.parametrize("value", [0.0, 1e-45, np.inf, np.nan])
def test_odd_weights_become_zero_or_the_largest(value: float) -> None:
    packed = pack_weights(longs(0, 1), ints(0), floats(value), 1)
    assert packed.weights[0] in (0, 127)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((longs(0, 2), ints(1, 0), floats(1, 1), 2), "must ascend"),
        ((longs(0, 2), ints(0, 2), floats(1, 1), 2), "indices below 2"),
        ((longs(0, 2), ints(-1, 0), floats(1, 1), 2), "indices below 2"),
        ((longs(0, 3), ints(0, 1), floats(1, 1), 2), "ascending indptr"),
        ((longs(-1, 2), ints(0, 1), floats(1, 1), 2), "ascending indptr"),
        ((longs(), ints(0, 1), floats(1, 1), 2), "ascending indptr"),
        ((longs(0, 2), ints(0, 1), floats(1), 2), "shape"),
    ],
)
def test_malformed_weights_are_not_packed(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_weights(*arguments)


# --- margins ---------------------------------------------------------------------------------

ROWS = (longs(0, 1), ints(0), floats(3))
PACKED = PackedWeights(
    longs(0, 2), np.array([0, 1], np.uint16), np.array([1, 2], np.int8), floats(1, 1)
)
BIAS, FOUND = floats(0, 0), np.array([[0, 1]])


@pytest.mark.parametrize(
    ("rows", "packed", "found", "message"),
    [
        ((longs(0, 1), ints(1), floats(3)), PACKED, FOUND, "indices below 1"),
        ((longs(0, 2), ints(0), floats(3)), PACKED, FOUND, "ascending indptr"),
        (
            ROWS,
            PACKED._replace(gaps=np.array([1, 1], np.uint16)),
            FOUND,
            "must have weights for labels",
        ),
        (ROWS, PACKED._replace(starts=longs(0, 3)), FOUND, "must rise"),
        (ROWS, PACKED._replace(starts=longs()), FOUND, "'starts'"),
        (ROWS, PACKED._replace(scale=floats(1)), FOUND, "'scale'"),
        (ROWS, PACKED, np.array([[2]]), "candidate is out of range"),
        (ROWS, PACKED, np.zeros((2, 1), dtype=np.int64), "'indptr'"),
    ],
)
def test_malformed_margins_are_refused(
    rows: Any, packed: PackedWeights, found: NDArray[np.int64], message: str
) -> None:
    np.testing.assert_array_equal(compute_margins(ROWS, PACKED, BIAS, FOUND), [[3, 6]])
    with pytest.raises(ValueError, match=message):
        compute_margins(rows, packed, BIAS, found)


# --- training --------------------------------------------------------------------------------


def train(**changes: Any) -> Any:
    given: dict[str, Any] = {
        "first": 0,
        "last": 1,
        "rows": TrainingRows(longs(0, 1, 2), ints(0, 1), floats(1, 1), floats(2, 2), floats(1, 1)),
        "positive": RowLists(longs(0, 1), ints(0)),
        "negative": RowLists(longs(0, 2), ints(0, 1)),
        "cost": 1.0,
        "importance": floats(1),
        "prune": 0.0,
        "bias": floats(0),
        "seed": 0,
    }
    return train_classifiers(**{**given, **changes})


def test_a_classifier_of_two_rows() -> None:
    trained = train()
    assert trained.sizes.tolist() == [2]
    assert trained.features.tolist() == [0, 1]
    assert trained.values[0] > 0 > trained.values[1]


def test_no_labels_and_labels_without_rows() -> None:
    assert [len(part) for part in train(last=0)] == [0, 0, 0]
    empty = RowLists(longs(0, 0), ints())
    assert train(positive=empty, negative=empty).sizes.tolist() == [0]


@pytest.mark.parametrize("cost", [0.0, np.inf])
def test_odd_costs_end(cost: float) -> None:
    assert len(train(cost=cost).sizes) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"first": -1},
        {"last": 2},
        {"positive": RowLists(longs(0, 1), ints(2))},
        {"negative": RowLists(longs(0, 1), ints(-1))},
        {"negative": RowLists(longs(0, 3), ints(0, 1))},
        {"negative": RowLists(longs(0), ints(0, 1))},
        {"importance": floats(1, 1)},
        {"bias": floats(0, 0)},
        {
            "rows": TrainingRows(
                longs(0, 1, 2), ints(0, 2), floats(1, 1), floats(2, 2), floats(1, 1)
            )
        },
        {"rows": TrainingRows(longs(0, 1), ints(0, 1), floats(1, 1), floats(2, 2), floats(1, 1))},
        {"rows": TrainingRows(longs(0, 1, 2), ints(0, 1), floats(1), floats(2, 2), floats(1, 1))},
    ],
)
def test_malformed_training_is_refused(changes: Any) -> None:
    with pytest.raises(ValueError, match=r"shape|well-formed|out of range"):
        train(**changes)
