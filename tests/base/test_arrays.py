"""Checks of arrays that come from a file."""

from __future__ import annotations

import numpy as np
import pytest

from irli.base.arrays import check_array, check_buckets, check_offsets, check_range
from irli.errors import FormatError


@pytest.mark.parametrize(
    ("shape", "wanted", "filled"),
    [
        ((2, 3), (2, 3), True),
        ((2, 3), (None, 3), True),
        ((0, 3), (None, 3), False),
        ((5,), (None,), True),
        ((), (), True),
    ],
)
def test_an_array_that_fits(shape: tuple[int, ...], wanted: tuple[int, ...], filled: bool) -> None:
    array = np.zeros(shape, dtype=np.float32)
    assert check_array("a", array, np.float32, *wanted, filled=filled) == shape


@pytest.mark.parametrize(
    ("shape", "wanted", "must"),
    [
        ((2, 3), (3, 2), r"\(3, 2\)"),
        ((2, 3), (None, 4), r"\(any, 4\)"),
        ((2, 3), (6,), r"\(6,\)"),
        ((2,), (2, 1), r"\(2, 1\)"),
        ((0, 3), (None, 3), r"\(any, 3\) and not empty"),
    ],
)
def test_an_array_of_another_shape(
    shape: tuple[int, ...], wanted: tuple[int, ...], must: str
) -> None:
    with pytest.raises(
        FormatError, match=f"The array 'a' of the index must be int8 of shape {must}"
    ):
        check_array("a", np.zeros(shape, dtype=np.int8), np.int8, *wanted, filled=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.bool_])
def test_an_array_of_another_dtype(dtype: type[np.generic]) -> None:
    with pytest.raises(FormatError, match=r"must be int8 of shape \(3,\)\. Got"):
        check_array("a", np.zeros(3, dtype=dtype), np.int8, 3)


@pytest.mark.parametrize("values", [[], [-1], [5], [-1, 0, 5]])
def test_numbers_within_the_range(values: list[int]) -> None:
    check_range("a", np.array(values, dtype=np.int64), -1, 5)


@pytest.mark.parametrize(("values", "got"), [([-2, 0], -2), ([6, 0], 6), ([-(2**63), 6], -(2**63))])
def test_numbers_beyond_the_range(values: list[int], got: int) -> None:
    with pytest.raises(FormatError, match=rf"in the range \[-1, 5\]\. Got {got} instead"):
        check_range("a", np.array(values), -1, 5)


@pytest.mark.parametrize(
    "offsets", [[0], [0, 4], [0, 0, 4], [0, 4, 4], [[0, 2, 3], [3, 3, 4]], [[0, 0], [0, 4], [4, 4]]]
)
def test_offsets_that_rise(offsets: list[int]) -> None:
    check_offsets("a", np.array(offsets), np.max(offsets))


@pytest.mark.parametrize(
    "offsets",
    [
        [1, 4],
        [0, 3],
        [0, 5],
        [0, 3, 2, 4],
        [-1, 4],
        [0, 5, 4],
        [[0, 2], [3, 4]],
        [[0, 3], [2, 4]],
        [[0, 2], [2, 3]],
        [[0, -(2**63)], [-(2**63), 4]],
    ],
)
def test_offsets_that_do_not(offsets: list[int]) -> None:
    with pytest.raises(FormatError, match="'a' of the index must rise from 0 to 4"):
        check_offsets("a", np.array(offsets), 4)


def test_buckets() -> None:
    offsets, items = np.array([[0, 2, 3], [3, 3, 6]]), np.array([0, 2, 1, 2, 1, 0], dtype=np.int32)
    check_buckets(offsets, items, (2, 2), 3)
    with pytest.raises(FormatError, match="'items'"):
        check_buckets(offsets, items, (2, 2), 2)
    with pytest.raises(FormatError, match="'offsets'"):
        check_buckets(offsets, items[1:], (2, 2), 3)
    with pytest.raises(FormatError, match="'offsets'"):
        check_buckets(offsets, items, (1, 4), 3)
