"""Near rows at the border of the native module: what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irli.engine.postings import Postings, QueryRows, vote_near_rows

QUERIES = QueryRows(
    np.array([0, 1, 2]),
    np.array([0, 1], dtype=np.int32),
    np.ones(2, dtype=np.float32),
    np.array([0, -1]),
)
KNOWN = Postings(
    np.array([0, 2, 2]),  # both known rows have feature 0
    np.array([0, 1], dtype=np.int32),
    np.ones(2, dtype=np.float32),
    np.array([0, 1, 3]),
    np.array([0, 1, 2], dtype=np.int32),
)


def test_a_row_does_not_vote_for_itself() -> None:
    sizes, labels = vote_near_rows(0, 2, QUERIES, KNOWN, 3)
    assert sizes.tolist() == [2, 0]
    assert labels.tolist() == [1, 2]
    assert [len(part) for part in vote_near_rows(1, 1, QUERIES, KNOWN, 3)] == [0, 0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("indptr", [0, 1]),
        ("indptr", [0, 1, 3]),
        ("indptr", [1, 0, 2]),
        ("indices", [0, 2]),
        ("indices", [0, -1]),
        ("data", [1]),
        ("known", [0]),
        ("starts", [0, 2, 3]),
        ("starts", []),
        ("rows", [0, 2]),
        ("values", [1]),
        ("label_starts", [0, 1]),
        ("label_starts", []),
        ("labels", [0, 1, 3]),
    ],
)
def test_malformed_lists_are_refused(name: str, value: Any) -> None:
    queries, known = QUERIES, KNOWN
    if name in QueryRows._fields:
        queries = queries._replace(**{name: np.array(value, getattr(queries, name).dtype)})
    else:
        known = known._replace(**{name: np.array(value, getattr(known, name).dtype)})
    with pytest.raises(ValueError, match=r"shape|well-formed"):
        vote_near_rows(0, 2, queries, known, 3)


@pytest.mark.parametrize(("first", "last"), [(-1, 1), (0, 3)])
def test_rows_out_of_range_are_refused(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        vote_near_rows(first, last, QUERIES, KNOWN, 3)
