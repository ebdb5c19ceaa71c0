"""Filters in all their forms, for integer ids and for strings."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irli.base.ids import Allowed, Deny, Ids, TextIds, check_filters, make_ids, split_filter
from irli.errors import InvalidParameter

OWN = np.array([70, 30, 50])
WORDS = ["gold", "", "žába\0"]


def allow(ids: Ids, filter: Any) -> list[bool]:
    allowed = ids.allowed(filter)
    assert allowed is not None
    assert allowed.rows.tolist() == np.flatnonzero(allowed.mask).tolist()
    mask: list[bool] = allowed.mask.tolist()
    return mask


@pytest.mark.parametrize(
    ("filter", "right"),
    [
        ({70, 50, 99}, [True, False, True]),
        (frozenset({30}), [False, True, False]),
        ({30: "x"}.keys(), [False, True, False]),
        (set(), [False, False, False]),
        (range(30, 70), [False, True, True]),
        (range(30, 71, 20), [True, True, True]),
        (range(50, 10, -20), [False, True, True]),
        (range(0), [False, False, False]),
        (range(-(10**30), 10**30), [True, True, True]),
        (range(70, 10**30, 10**25), [True, False, False]),
        (lambda id: id > 40, [True, False, True]),
        ({30: "x"}.get, [False, True, False]),
        (Deny({70}), [False, True, True]),
        (Deny(range(60)), [True, False, False]),
        (Deny(lambda id: id == 50), [True, True, False]),
        (Deny(np.array([True, False, False])), [False, True, True]),
        (Deny(Deny([50])), [False, False, True]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_filters_of_integers(filter: Any, right: list[bool]) -> None:
    assert allow(Ids(OWN), filter) == right


@given(st.integers(-99, 99), st.integers(-99, 99), st.integers(-40, 40).filter(bool))
def test_a_range_holds_what_python_says(start: int, stop: int, step: int) -> None:
    ids = np.random.default_rng(0).permutation(90)
    wanted = range(start, stop, step)
    assert allow(Ids(ids), wanted) == [id in wanted for id in ids]


@pytest.mark.parametrize(
    ("filter", "right"),
    [
        (["gold", "silver"], [True, False, False]),
        (np.array(["gold", ""]), [True, True, False]),
        (np.array(["gold", "žába\0"], dtype=object), [True, False, True]),
        (("žába\0", ""), [False, True, True]),
        ({"", "x"}, [False, True, False]),
        ([], [False, False, False]),
        ([False, True, True], [False, True, True]),
        (str.isalpha, [True, False, False]),
        (Deny(["gold"]), [False, True, True]),
        (Deny(set()), [True, True, True]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_filters_of_strings(filter: Any, right: list[bool]) -> None:
    assert allow(make_ids(WORDS, 3), filter) == right


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ([1, 2], "must hold strings, as the ids of this index are. Got 1 instead"),
        ({1}, "must hold strings.*Got 1 instead"),
        (["gold", 1], "must hold strings.*Got 1 instead"),
        (range(3), r"must hold strings.*Got range\(0, 3\) instead"),
        ("gold", "must be a list or a 1-D array of ids"),
        ([["gold"]], r"Got \['gold'\] instead"),
        ([True], r"have shape \(3,\)"),
    ],
)
def test_filters_of_strings_that_are_wrong(filter: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        make_ids(WORDS, 3).allowed(filter)


def test_an_error_lists_all_kinds_of_filters() -> None:
    with pytest.raises(InvalidParameter, match=r"array, list, set or range.*Deny or a function"):
        Ids(OWN).allowed(iter([70]))


def test_ids_are_found_or_not() -> None:
    assert Ids(OWN).find([50, 1, 70]).tolist() == [2, -1, 0]
    assert Ids(np.arange(3)).find([2, 3, -1]).tolist() == [2, -1, -1]
    words = make_ids(WORDS, 3)
    assert words.find(["žába\0", "žába"]).tolist() == [2, -1]
    assert [id in words for id in ("gold", "", "x", 0, None)] == [True, True, False, False, False]
    assert [id in Ids(OWN) for id in (70, np.int32(30), 2**70, "70")] == [True, True, False, False]


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda x: np.array(x, dtype=object)])
def test_strings_are_taken_as_ids(kind: Any) -> None:
    ids = make_ids(kind(["b", "a"]), 2)
    assert isinstance(ids, TextIds)
    assert ids.all().tolist() == ["b", "a"]
    assert pickle.loads(pickle.dumps(ids)).rows(["a"]).tolist() == [1]
    named = ids.names(np.array([[1, -1], [0, 1]]))
    assert named.tolist() == [["a", None], ["b", "a"]]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a"], "must hold 2 ids.*Got 1 instead"),
        (["a", "a"], "no id twice. Got 'a' in rows 0 and 1"),
        (["a", 1], "strings if its first id is one. Got 1 in row 1"),
        (["a", None], "Got None in row 1"),
        (["a", "\ud800"], "that UTF-8 can write"),
        ([1, "a"], "must hold integers"),
        ([b"a", b"b"], "must hold integers"),
        ([["a"], ["b"]], r"shape \(2, 1\)"),
    ],
)
def test_strings_that_are_no_ids(ids: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        make_ids(ids, 2)


def test_one_filter_for_each_query() -> None:
    for single in (None, [], [1, 2], ["a"], (1,), {1}, range(3), np.arange(3), Deny([1]), [True]):
        assert split_filter(single) is None
    for several in ([[1]], [None], [{1}, [2, 3]], (range(3), None), [Deny([1]), len]):
        assert split_filter(several) == list(several)
    masks = split_filter(np.ones((2, 3), dtype=bool))
    assert masks is not None
    assert [mask.shape for mask in masks] == [(3,), (3,)]
    with pytest.raises(InvalidParameter, match=r"for each of 3 queries\. Got 2 filters"):
        check_filters([None, None], 3)


@pytest.mark.parametrize(
    "mask", [[0, 1, 1], (1, 0, 1), np.array([0, 1, 0], dtype=np.uint8), np.ones(3, int), [0, 0, 0]]
)
def test_a_mask_of_integers_is_not_taken_for_ids(mask: Any) -> None:
    for ids in (Ids(OWN), Ids(np.arange(3))):
        for filter in (mask, Deny(mask)):
            with pytest.raises(InvalidParameter, match=r"3 items.* mask.*filter.astype\(bool\)"):
                ids.allowed(filter)
        with pytest.raises(InvalidParameter, match="as in a mask"):
            ids.allowed(mask)


def test_zeros_and_ones_that_are_no_mask_are_ids() -> None:
    ids = Ids(np.arange(3))
    assert allow(ids, [0, 1]) == allow(ids, [1, 0, 1, 0]) == allow(ids, {0, 1})
    assert allow(ids, [0, 1, 2]) == [True, True, True]
    assert allow(ids, np.array([0, 1, 1]).astype(bool)) == [False, True, True]
    assert allow(Ids(np.arange(2)), [1, 1]) == [False, True]  # so few may be either


@pytest.mark.parametrize("make", [lambda: Ids(np.arange(3)), lambda: make_ids(WORDS, 3)])
def test_what_was_prepared_is_for_the_same_ids_alone(make: Any) -> None:
    ids = make()
    allowed = ids.allowed([True, False, True])
    assert allowed is not None
    prepared = allowed.prepare(ids.token)
    assert allow(ids, prepared) == [True, False, True]
    assert allow(ids, Deny(prepared)) == [False, True, False]
    both = pickle.loads(pickle.dumps(ids)), pickle.loads(pickle.dumps(prepared))
    assert allow(*both) == allow(copy.deepcopy(ids), prepared) == [True, False, True]
    for filter in (prepared, Deny(prepared)):
        with pytest.raises(InvalidParameter, match="prepared for this index of 3 items"):
            make().allowed(filter)


def test_allowed_items_of_each_part() -> None:
    bounds, mask = np.array([0, 2, 2, 9, 10]), np.zeros(10, dtype=bool)
    for rows in ([1], [1, 2, 8, 9], [], range(10)):
        mask[:] = False
        mask[list(rows)] = True
        for some in (Allowed.where(mask), Allowed.of(np.array(rows, dtype=np.int32), 10)):
            parts = some.split(bounds)
            assert [part.items for part in parts] == [2, 0, 7, 1]
            assert np.concatenate([part.mask for part in parts]).tolist() == mask.tolist()
            assert [part.count for part in parts] == [len(part.rows) for part in parts]
