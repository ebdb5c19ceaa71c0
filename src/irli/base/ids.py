"""The ids of items: converting rows to ids and back, and filters by id (`Deny`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import as_array
from irli.errors import InvalidParameter


@dataclass(frozen=True)
class Deny:
    """A filter that allows every item except those with these ids.

    Examples
    --------
    >>> Deny([3, 4]).ids
    [3, 4]
    """

    ids: Any


class Allowed(NamedTuple):
    """The items that a filter allows."""

    mask: NDArray[np.bool_]  # (N,)
    rows: NDArray[np.int32]  # (m,): the same items, in ascending order


class Ids:
    """The ids of all items, to convert rows to ids and back.

    Examples
    --------
    >>> ids = Ids(np.array([70, 30, 50]))
    >>> ids.names(np.array([2, -1]))
    array([50, -1])
    >>> ids.rows([30, 99])
    array([1])
    """

    def __init__(self, values: NDArray[np.int64]) -> None:
        self.values = values.view()
        self.values.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Ids, (self.values,)  # a pickle would forget that nobody may write

    @cached_property
    def _order(self) -> NDArray[np.int64] | None:
        """The order of the ids (N,), or None if they are the row numbers. A search needs none."""
        plain = np.array_equal(self.values, np.arange(len(self)))
        return None if plain else np.argsort(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def names(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of item rows; -1 stays -1."""
        if self._order is None:
            return rows
        return np.where(rows >= 0, self.values[np.maximum(rows, 0)], -1)

    def rows(self, ids: Any) -> NDArray[np.int64]:
        """Return the rows of `ids`. Ids that the index does not have are left out."""
        wanted = as_array(ids, "filter")
        if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
            raise InvalidParameter(
                "The 'filter' parameter must be a 1-D integer array of ids, a boolean array, or "
                f"irli.Deny(ids). Got dtype {wanted.dtype} of shape {wanted.shape} instead. "
                "Pass the ids that the items were fitted with."
            )
        wanted = wanted.astype(np.int64)
        if self._order is None:
            return wanted[(wanted >= 0) & (wanted < len(self))]
        place = np.searchsorted(self.values, wanted, sorter=self._order)
        rows: NDArray[np.int64] = self._order[np.minimum(place, len(self) - 1)]
        there: NDArray[np.int64] = rows[self.values[rows] == wanted]
        return there

    def allowed(self, filter: Any) -> Allowed | None:
        """Return the items that a filter allows, or None without a filter.

        Ids that the index does not have are ignored. A filter may come from a source with more
        items.
        """
        if filter is None:
            return None
        mask = self._make_mask(filter)
        return Allowed(mask, np.flatnonzero(mask).astype(np.int32))

    def _make_mask(self, filter: Any) -> NDArray[np.bool_]:
        if isinstance(filter, Deny):
            mask = np.ones(len(self), dtype=bool)
            mask[self.rows(filter.ids)] = False
            return mask
        values = as_array(filter, "filter")
        if values.dtype != bool:
            mask = np.zeros(len(self), dtype=bool)
            mask[self.rows(values)] = True
            return mask
        if values.shape != (len(self),):
            raise InvalidParameter(
                f"The 'filter' parameter must, as a boolean array, have shape ({len(self)},), "
                f"one value for each item. Got shape {values.shape} instead. Or pass allowed ids."
            )
        return np.ascontiguousarray(values)
