"""Payloads: the documents of the items of an index, by row, and filters by what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.growing import Growing
from irli.store.columns import Columns
from irli.store.filters import Condition
from irli.store.log import Batch
from irli.store.store import Store


class Payloads:
    """The payloads of all versions of an index.

    A payload that has changed is the new one for all versions: a search has no time to lose on the
    old one.
    """

    def __init__(self, store: Store, keys: Growing, columns: Columns | None) -> None:
        self.store, self._keys = store, keys
        self._columns = columns or Columns(self._read)
        self._columns.source = self._read

    def match(self, condition: Condition, rows: int) -> NDArray[np.bool_]:
        """Return which of the first so many rows meet a condition."""
        return self._columns.evaluate(condition, rows)

    def take(self, rows: NDArray[np.int64]) -> list[dict[str, Any] | None]:
        """Return the payloads of rows."""
        return self.store.payloads(self._keys.array[rows])

    def add(self, start: int, batch: Batch) -> None:
        """Take over the payloads of rows that were added."""
        if batch.payloads is not None:
            self._columns.extend(start, batch.payloads)

    def change(self, rows: NDArray[np.int64]) -> None:
        """Read the payloads of these rows again."""
        self._columns.update(rows)

    def take_columns(self, rows: NDArray[np.int64]) -> Columns | None:
        """Return the columns of some rows, to be kept with the arrays of these."""
        return self._columns.take(rows, self._read) if self._columns.paths else None

    def _read(self, rows: NDArray[np.int64]) -> list[str | None]:
        return self.store.texts(self._keys.array[rows])
