"""`Inputs`: dense or sparse rows, which may be mapped files, taken block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.memory import release_pages
from irli.base.types import Rows


class Inputs:
    """Dense or sparse rows, from which some are taken.

    Dense rows may come in two arrays, of which `more` follows `rows`.

    Examples
    --------
    >>> rows = Inputs(np.zeros((2, 3), dtype="f4"), np.ones((1, 3), dtype="f4"))
    >>> rows.take(np.array([2, 0])).sum(axis=1)
    array([3., 0.], dtype=float32)
    >>> len(rows), rows.sparse
    (3, False)
    """

    def __init__(self, rows: Rows, more: NDArray[np.float32] | None = None) -> None:
        self.sparse = sp.issparse(rows)
        self.rows: Any = rows
        self.more = more  # not concatenated, because `rows` may be a mapped file

    def __len__(self) -> int:
        return int(self.rows.shape[0]) + (0 if self.more is None else len(self.more))

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Return some rows."""
        if self.sparse or self.more is None:
            taken: Rows = self.rows[rows]
            return taken
        here = rows < len(self.rows)
        dense = np.empty((len(rows), self.rows.shape[1]), dtype=np.float32)
        dense[here] = self.rows[rows[here]]
        dense[~here] = self.more[rows[~here] - len(self.rows)]
        return dense

    def blocks(self, size: int) -> Iterator[tuple[slice, Rows]]:
        """Yield all rows in blocks."""
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            yield part, self.take(np.arange(part.start, part.stop))
            release_pages(self.rows)
