from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irli.base.ids import Deny, Ids
from irli.errors import InvalidParameter

OWN = np.array([70, 30, 50])


@pytest.fixture(params=["own", "numbered"])
def ids(request: pytest.FixtureRequest) -> Ids:
    return Ids(OWN if request.param == "own" else np.arange(3))


def test_rows_become_ids_and_padding_stays() -> None:
    rows = np.array([[2, 0, -1], [1, -1, -1]])
    np.testing.assert_array_equal(Ids(OWN).names(rows), [[50, 70, -1], [30, -1, -1]])
    np.testing.assert_array_equal(Ids(np.arange(3)).names(rows), rows)


def test_ids_become_rows_and_back(ids: Ids) -> None:
    assert len(ids) == 3
    assert ids.rows(ids.values[::-1]).tolist() == [2, 1, 0]
    assert ids.rows([]).tolist() == []
    assert ids.rows([99, -1, ids.values[1], 10**18]).tolist() == [1]  # others are passed over


def test_the_ids_cannot_be_changed() -> None:
    values = OWN.copy()
    with pytest.raises(ValueError, match="read-only"):
        Ids(values).values[0] = 1
    values[0] = 1  # the caller's array stays writable


def test_filters(ids: Ids) -> None:
    some = ids.values[[0, 2]]
    assert ids.allowed(None) is None  # all of them
    for filter, right in (
        (some, [0, 2]),
        (some[::-1], [0, 2]),
        ([*some, *some], [0, 2]),
        (Deny(some), [1]),
        (np.array([False, True, True]), [1, 2]),
        ([], []),
        (Deny([]), [0, 1, 2]),
        ([99], []),
    ):
        allowed = ids.allowed(filter)
        assert allowed is not None
        assert allowed.rows.dtype == np.int32
        assert allowed.rows.tolist() == right  # in ascending order
        assert allowed.mask.tolist() == [row in right for row in range(3)]


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ([1.5], "Got dtype float64"),
        (["a"], "'filter' parameter must hold integer ids"),
        ([[1, 2]], r"shape \(1, 2\)"),
        (Deny([1.5]), "Got dtype float64"),
        ([True, False], r"must, as a boolean array, have shape \(3,\).*Got shape \(2,\)"),
        ([[1], [2, 3]], "'filter' parameter must be something that numpy"),
    ],
)
def test_filters_that_are_wrong(ids: Ids, filter: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        ids.allowed(filter)
