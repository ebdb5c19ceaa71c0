"""HeldOut: the queries that training never sees, kept in the index to tune the search with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.errors import InvalidParameter


class HeldOut(NamedTuple):
    """Queries that training never sees. `tune` measures recall on them."""

    queries: NDArray[np.float32]  # (v, d)
    rows: NDArray[np.int64]  # (v,): the row of the item that the query is, or -1
    relevant: NDArray[np.int64]  # (v, j): the relevant items, padded with -1; j = 0 for neighbours

    @property
    def by_relevance(self) -> bool:
        """Whether the relevant items were given. Otherwise they are the nearest neighbours."""
        return bool(self.relevant.shape[1])


def hold_out(
    queries: NDArray[np.float32],
    rows: NDArray[np.int64] | None = None,
    relevant: NDArray[np.int64] | None = None,
) -> HeldOut:
    """Return held-out queries, by default no items, whose relevant items are their neighbours."""
    if rows is None:
        rows = np.full(len(queries), -1)
    if relevant is None:
        relevant = np.empty((len(queries), 0), dtype=np.int64)
    return HeldOut(queries, rows, relevant)


def require_queries(queries: NDArray[np.float32]) -> None:
    """Raise if an index that is to be tuned has no held-out queries (v, d)."""
    if len(queries) == 0:
        raise InvalidParameter(
            "The 'queries' parameter of tune must be given for an index that was saved with "
            "held=False. Got none, and the folder has none. Pass queries like those to come."
        )
