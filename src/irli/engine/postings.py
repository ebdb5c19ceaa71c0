"""The nearest rows through inverted lists, and the labels that they vote for.

`irli.labels.hard_negatives` calls this. The loops are in `native/near_rows.cpp`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli import _native


class QueryRows(NamedTuple):
    """Query rows as a CSR, and the number of the known row that each one is, or -1."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[np.float32]
    known: NDArray[np.int64]


class Postings(NamedTuple):
    """The inverted lists of the known rows by feature, and the labels of each row as a CSR."""

    starts: NDArray[np.int64]  # (D + 1,)
    rows: NDArray[np.int32]
    values: NDArray[np.float32]
    label_starts: NDArray[np.int64]  # (known rows + 1,)
    labels: NDArray[np.int32]


def vote_near_rows(
    first: int, last: int, queries: QueryRows, known: Postings, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the number of labels found for each row from `first` to `last`, and the labels.

    The 30 nearest known rows vote for their labels. The 300 of the `count` labels with the most
    votes are returned.
    """
    starts, rows, values, label_starts, labels = known
    return _native.vote_near_rows(
        first, last, *queries, starts, rows, values, label_starts, labels, count
    )
