"""Recorded: queries that users have asked, and what they have clicked, to learn from."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.vectors.contents import VectorContents
from irli.vectors.parts.part import VectorPart

_MOST = 20_000  # queries that are kept: a random sample of all that were recorded


class Recorded:
    """A random sample of the queries that were recorded. Each is as likely to be in it.

    Examples
    --------
    >>> recorded = Recorded(dim=2, most=3)
    >>> recorded.add(np.ones((10, 2), dtype=np.float32), None)
    >>> len(recorded)
    3
    """

    def __init__(self, dim: int, most: int = _MOST) -> None:
        self._queries = np.empty((0, dim), dtype=np.float32)
        self._clicked: list[list[Any] | None] = []
        self._most, self._seen = most, 0
        self._rng = np.random.default_rng(0)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._queries)

    def add(self, queries: NDArray[np.float32], clicked: list[list[Any]] | None) -> None:
        """Add queries (n, d), and the ids that were relevant to each."""
        with self._lock:
            some = list(clicked) if clicked is not None else [None] * len(queries)
            room = self._most - len(self._queries)
            self._seen += len(queries)
            self._queries = np.concatenate([self._queries, queries[:room]])
            self._clicked += some[:room]
            for row in range(max(0, room), len(queries)):
                place = int(self._rng.integers(self._seen))
                if place < self._most:
                    self._queries[place], self._clicked[place] = queries[row], some[row]

    def take(
        self, part: VectorPart, packed: VectorContents | None
    ) -> tuple[NDArray[np.float32] | None, NDArray[np.int64] | None]:
        """Return the queries (n, d), and the rows (n, j) of `packed` that were relevant to them.

        If any were recorded with ids, these alone are returned. Both are None without any.
        """
        with self._lock:
            queries, clicked = self._queries.copy(), list(self._clicked)
        taught = [row for row, ids in enumerate(clicked) if ids]
        if not taught or packed is None:
            return (queries if len(queries) else None), None
        number = np.full(part.searcher.items, -1, dtype=np.int64)
        left = part.searcher.left
        number[left] = np.arange(len(left))
        found = []
        for row in taught:
            rows = part.ids.find(clicked[row])
            found.append(number[rows[rows >= 0]])
        width = max(1, max(len(rows) for rows in found))
        relevant = np.full((len(found), width), -1, dtype=np.int64)
        for place, rows in enumerate(found):
            relevant[place, : len(rows)] = rows
        some = (relevant >= 0).any(axis=1)
        return queries[taught][some], relevant[some]
