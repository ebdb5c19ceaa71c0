"""Linear classifiers at the border of the native module: what is packed, found and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.engine.linear import (
    PackedWeights,
    RowLists,
    TrainingRows,
    find_best_outputs,
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


# --- the largest margins ---------------------------------------------------------------------

ROWS = (longs(0, 1), ints(0), floats(3))
PACKED = PackedWeights(
    longs(0, 2), np.array([0, 1], np.uint16), np.array([1, 2], np.int8), floats(1, 1)
)


def unpack(packed: PackedWeights) -> NDArray[np.float64]:
    """(D, outputs), dense."""
    output = unpack_labels(packed.starts, packed.gaps)
    feature = np.repeat(np.arange(len(packed.starts) - 1), np.diff(packed.starts))
    dense = np.zeros((len(packed.starts) - 1, len(packed.scale)))
    np.add.at(dense, (feature, output), packed.weights * packed.scale[output].astype(np.float64))
    return dense


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 8),
    features=st.integers(1, 30),
    outputs=st.sampled_from([1, 2, 40, 700]),
    k=st.integers(1, 50),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    biased=st.booleans(),
    without_itself=st.booleans(),
)
def test_the_best_outputs_are_those_of_dense_products(
    seed: int,
    rows: int,
    features: int,
    outputs: int,
    k: int,
    share: float,
    biased: bool,
    without_itself: bool,
) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(features, outputs)) * (rng.random((features, outputs)) < share)
    matrix = sp.csr_array(dense.astype(np.float32))
    packed = pack_weights(
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, outputs
    )
    given = rng.normal(size=(rows, features)) * (rng.random((rows, features)) < share)
    X = sp.csr_array(given.astype(np.float32))
    arrays = X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data
    bias = rng.normal(size=outputs).astype(np.float32) if biased else None
    itself = rng.integers(-1, outputs, size=rows) if without_itself else None
    right = X.toarray().astype(np.float64) @ unpack(packed) + (0 if bias is None else bias)
    shared = (X.toarray() != 0).astype(int) @ (dense != 0) > 0  # nothing else is found
    if itself is not None:
        shared[np.arange(rows)[itself >= 0], itself[itself >= 0]] = False
    first = rows // 2
    values, found = find_best_outputs(first, rows, arrays, packed, k, bias=bias, itself=itself)
    assert values.shape == found.shape == (rows - first, k)
    for row in range(first, rows):
        count = min(k, int(shared[row].sum()))
        own, best = values[row - first], found[row - first]
        assert (best[count:] == -1).all()
        assert (own[count:] == -np.inf).all()
        assert len(set(best[:count].tolist())) == count
        assert shared[row, best[:count]].all()
        assert (np.diff(own[:count]) <= 0).all()
        np.testing.assert_allclose(own[:count], right[row, best[:count]], atol=1e-4)
        largest = -np.sort(-right[row, shared[row]])[:count]
        np.testing.assert_allclose(own[:count], largest, atol=1e-4)


def test_of_equal_outputs_the_smaller_number_comes_first() -> None:
    count = 50
    packed = pack_weights(
        longs(0, count), np.arange(count, dtype=np.int32), np.ones(count, "f4"), 50
    )
    for k in (1, 7, 49, 50):
        values, found = find_best_outputs(0, 1, ROWS, packed, k)
        assert found.tolist() == [list(range(k))]
        np.testing.assert_allclose(values, 3, rtol=1e-6)
    _, found = find_best_outputs(0, 1, ROWS, packed, 3, itself=longs(1))
    assert found.tolist() == [[0, 2, 3]]


def test_a_row_leaves_nothing_behind() -> None:
    """All rows of a call share their sums."""
    rows = (longs(0, 1, 1, 2), ints(0, 0), floats(3, 3))
    values, found = find_best_outputs(0, 3, rows, PACKED, 2)
    assert values.tolist() == [[6, 3], [-np.inf, -np.inf], [6, 3]]
    assert found.tolist() == [[1, 0], [-1, -1], [1, 0]]


def test_greater_distances_are_bridged() -> None:
    """The bridges are weights of 0 of labels between: these are reached, too."""
    packed = pack_weights(longs(0, 2), ints(70_000, 300_000), floats(1, -1), 300_001)
    values, found = find_best_outputs(0, 1, ROWS, packed, 6)
    assert found[0, [0, 5]].tolist() == [70_000, 300_000]
    np.testing.assert_allclose(values[0, [0, 5]], [3, -3], rtol=1e-6)
    assert (values[0, 1:5] == 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": (longs(0, 1), ints(1), floats(3))}, "indices below 1"),
        ({"rows": (longs(0, 1), ints(-1), floats(3))}, "indices below 1"),
        ({"rows": (longs(0, 2), ints(0), floats(3))}, "ascending indptr"),
        ({"packed": PACKED._replace(gaps=np.array([1, 1], np.uint16))}, "arrays of an index"),
        ({"packed": PACKED._replace(starts=longs(0, 3))}, "arrays of an index"),
        ({"packed": PACKED._replace(starts=longs())}, "'starts'"),
        ({"packed": PACKED._replace(scale=floats(1))}, "arrays of an index"),
        ({"packed": PACKED._replace(weights=np.array([1], np.int8))}, "'weights'"),
        ({"bias": floats(1)}, "'constant'"),
        ({"itself": longs(0, 0)}, "'itself'"),
        ({"first": -1}, "out of range"),
        ({"last": 2}, "out of range"),
    ],
)
def test_malformed_products_are_refused(changes: Any, message: str) -> None:
    given: dict[str, Any] = {"first": 0, "last": 1, "rows": ROWS, "packed": PACKED, "k": 2}
    values, outputs = find_best_outputs(**given)
    assert (values.tolist(), outputs.tolist()) == ([[6, 3]], [[1, 0]])
    with pytest.raises(ValueError, match=message):
        find_best_outputs(**{**given, **changes})


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
        "passes": 12,
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
