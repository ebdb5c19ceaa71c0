"""The ids of items: integers or strings, converting rows to ids and back, and filters by id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import as_array, as_ids
from irli.base.strings import Strings
from irli.errors import InvalidParameter

_SORTED = 64  # an index has this many times as many items as it pays to sort


@dataclass(frozen=True)
class Deny:
    """A filter that allows every item except those that another filter allows: mostly ids.

    Examples
    --------
    >>> Deny([3, 4]).ids
    [3, 4]
    """

    ids: Any


class Where:
    """The base class of a filter by what the payloads of items say."""


class Allowed:
    """The items that a filter allows, prepared for many searches: see `VectorIndex.allow`.

    Rows and mask are made on demand: few searches need both. If it was prepared, it has the token
    of the ids that prepared it, and allows nothing of any others.

    Attributes
    ----------
    count : int
        How many they are.
    items : int
        N, the items of the index.
    rows : int32 array of shape (count,)
        The items, in ascending order.
    mask : bool array of shape (N,)
        The same items.

    Examples
    --------
    >>> Allowed.of(np.array([0, 2], dtype=np.int32), items=3).mask
    array([ True, False,  True])
    >>> Allowed.where(np.array([True, False, True])).rows
    array([0, 2], dtype=int32)
    """

    count: int
    items: int
    token: bytes | None = None

    @classmethod
    def of(cls, rows: NDArray[np.int32], items: int) -> Allowed:
        """Return these of so many items."""
        allowed = cls()
        allowed.rows, allowed.count, allowed.items = rows, len(rows), items
        return allowed

    @classmethod
    def where(cls, mask: NDArray[np.bool_]) -> Allowed:
        """Return the items for which a mask (N,) is true."""
        allowed = cls()
        allowed.mask, allowed.count, allowed.items = mask, int(np.count_nonzero(mask)), len(mask)
        return allowed

    def prepare(self, token: bytes) -> Allowed:
        """Return the same items, in arrays that nobody else can change, ready for any search."""
        allowed = Allowed.where(self.mask.copy())
        allowed.rows = np.flatnonzero(allowed.mask).astype(np.int32)
        allowed.token = token
        return allowed

    def split(self, bounds: NDArray[np.int64]) -> list[Allowed]:
        """Return the items of each part: from one bound (P + 1,) to the next, and counted from it.

        Examples
        --------
        >>> some = Allowed.of(np.array([1, 4], dtype=np.int32), items=5)
        >>> [part.rows.tolist() for part in some.split(np.array([0, 3, 5]))]
        [[1], [1]]
        """
        slices = list(pairwise(bounds.tolist()))
        if self.known_rows is None or 4 * self.count > self.items:  # a mask is smaller
            return [Allowed.where(self.mask[start:stop]) for start, stop in slices]
        parts = np.split(self.rows, np.searchsorted(self.rows, bounds[1:-1]))
        return [
            Allowed.of(rows - np.int32(start), stop - start)
            for rows, (start, stop) in zip(parts, slices, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        """The size of what is there of rows and mask."""
        return sum(vars(self)[name].nbytes for name in ("rows", "mask") if name in vars(self))

    @property
    def known_rows(self) -> NDArray[np.int32] | None:
        """The rows if they have been made already."""
        return self.__dict__.get("rows")

    @cached_property
    def rows(self) -> NDArray[np.int32]:
        return np.flatnonzero(self.mask).astype(np.int32)

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        mask = np.zeros(self.items, dtype=bool)
        mask[self.rows] = True
        return mask


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

    strings: Strings | None = None

    def __init__(self, values: NDArray[np.int64], token: bytes | None = None) -> None:
        self.values = values.view()
        self.values.flags.writeable = False
        self.token = token or os.urandom(16)  # of the filters that these ids prepare

    def __reduce__(self) -> tuple[Any, ...]:
        return Ids, (self.values, self.token)  # a pickle would forget that nobody may write

    @cached_property
    def _order(self) -> NDArray[np.int64] | None:
        """The order of the ids (N,), or None if they are the row numbers. A search needs none."""
        plain = np.array_equal(self.values, np.arange(len(self)))
        return None if plain else np.argsort(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, int | np.integer) or not -(2**63) <= id < 2**63:
            return False
        return len(self.rows([int(id)])) > 0

    @property
    def nbytes(self) -> int:
        """The size of the ids."""
        return self.values.nbytes

    def all(self) -> NDArray[Any]:
        """Return the ids of all items (N,)."""
        return self.values

    def names(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the ids of item rows; -1 stays -1."""
        if self._order is None:
            return rows
        return np.where(rows >= 0, self.values[np.maximum(rows, 0)], -1)

    def rows(self, ids: Any) -> NDArray[np.int64]:
        """Return the rows of `ids`. Ids that the index does not have are left out."""
        rows = self._find(ids, "filter")
        return rows[rows >= 0]

    def find(self, ids: Any) -> NDArray[np.int64]:
        """Return the rows of ids (n,), or -1 where the index does not have them."""
        return self._find(ids, "ids")

    def locate(self, ids: Any) -> NDArray[np.int64]:
        """Return the row of an id (), or of each of several (n,). All must be known."""
        single = np.ndim(ids) == 0
        rows = self.find([ids] if single else ids)
        if (rows < 0).any():
            unknown = ids if single else list(ids)[int(np.argmin(rows))]
            raise InvalidParameter(
                f"The 'ids' parameter must hold ids of the index. Got {unknown!r}, which it does "
                "not have. Check with 'id in index', or see index.ids."
            )
        return rows.reshape(()) if single else rows

    def _find(self, ids: Any, parameter: str) -> NDArray[np.int64]:
        wanted = as_array(ids, parameter)
        if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
            must = "be a 1-D integer array of ids"
            if parameter == "filter":
                must = "hold integer ids in an array, list, set or range; or be a boolean array, "
                must += "irli.Deny or a function"
            raise InvalidParameter(
                f"The '{parameter}' parameter must {must}. "
                f"Got dtype {wanted.dtype} of shape {wanted.shape} instead. "
                "Pass the ids that the items were fitted with."
            )
        wanted = wanted.astype(np.int64)
        if self._order is None:
            return np.where((wanted >= 0) & (wanted < len(self)), wanted, -1)
        place = np.searchsorted(self.values, wanted, sorter=self._order)
        rows: NDArray[np.int64] = self._order[np.minimum(place, len(self) - 1)]
        return np.where(self.values[rows] == wanted, rows, -1)

    def allowed(self, filter: Any) -> Allowed | None:
        """Return the items that a filter allows, or None without a filter.

        Ids that the index does not have are ignored. A filter may come from a source with more
        items.
        """
        if filter is None:
            return None
        return self._allow(filter)

    def _allow(self, filter: Any) -> Allowed:
        if isinstance(filter, Allowed):
            self._check_prepared(filter)
            return filter
        if isinstance(filter, Deny):
            return Allowed.where(~self._allow(filter.ids).mask)
        if callable(filter):
            allowed = (bool(filter(id)) for id in self._iterate())
            return Allowed.where(self._spread(np.fromiter(allowed, bool, len(self))))
        if isinstance(filter, range):
            return Allowed.where(self._is_in_range(filter))
        given = list(filter) if isinstance(filter, Set) else filter
        values = as_array(given, "filter")
        if values.dtype != bool:
            _check_no_mask(values, len(self))
            # An array of strings would drop the NULs at their ends.
            rows = self.rows(given if values.dtype.kind == "U" else values)
            return self._sort(rows)
        check_mask(values, len(self))
        return Allowed.where(self._spread(np.ascontiguousarray(values)))

    def _spread(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of all items as one of all rows."""
        return mask

    def _check_prepared(self, allowed: Allowed) -> None:
        """Raise unless these ids prepared a filter: it knows items by their rows."""
        if allowed.token != self.token:
            raise InvalidParameter(
                f"The 'filter' parameter must be prepared for this index of {len(self)} items. Got "
                f"one for {allowed.items} items of another index, or from before this one was "
                "fitted or loaded. Prepare it with the `allow` of this index."
            )

    def _sort(self, rows: NDArray[np.int64]) -> Allowed:
        """Return rows in ascending order, each once."""
        count = len(self.values)
        if _SORTED * len(rows) < count:
            rows = rows if (rows[1:] > rows[:-1]).all() else np.unique(rows)
            return Allowed.of(rows.astype(np.int32), count)
        mask = np.zeros(count, dtype=bool)
        mask[rows] = True
        return Allowed.where(mask)

    def _iterate(self) -> Iterable[Any]:
        return map(int, self.values)

    def _is_in_range(self, ids: range) -> NDArray[np.bool_]:
        if not ids:
            return np.zeros(len(self.values), dtype=bool)
        low, high = sorted((ids[0], ids[-1]))
        step = abs(ids.step)
        rest = self.values % step if step < 2**63 else self.values
        inside: NDArray[np.bool_] = (self.values >= low) & (self.values <= high)
        inside &= rest == low % step
        return inside


class TextIds(Ids):
    """Ids that are strings. Kernels number the items by row.

    Examples
    --------
    >>> ids = TextIds(Strings.of(["cat", "dog", "bird"]))
    >>> ids.names(np.array([2, -1]))
    array(['bird', None], dtype=object)
    >>> ids.rows(["dog", "fish"])
    array([1])
    """

    strings: Strings

    def __init__(self, strings: Strings, token: bytes | None = None) -> None:
        super().__init__(np.arange(len(strings)), token)
        self.strings = strings

    def __reduce__(self) -> tuple[Any, ...]:
        return TextIds, (self.strings, self.token)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and id in self.strings.places

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.strings.nbytes

    def all(self) -> NDArray[Any]:
        return np.array(list(self.strings), dtype=object)

    def names(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        named = np.empty(rows.shape, dtype=object)  # of None
        strings = self.strings
        for place in np.argwhere(rows >= 0):
            named[tuple(place)] = strings[rows[tuple(place)]]
        return named

    def _find(self, ids: Any, parameter: str) -> NDArray[np.int64]:
        wanted = _as_list(ids, parameter)
        places = self.strings.places
        for id in wanted:
            if not isinstance(id, str):
                raise InvalidParameter(
                    f"The '{parameter}' parameter must hold strings, as the ids of this index are. "
                    f"Got {id!r} instead. Pass the ids that the items were fitted with."
                )
        return np.array([places.get(id, -1) for id in wanted], dtype=np.int64)

    def _iterate(self) -> Iterable[Any]:
        return self.strings

    def _is_in_range(self, ids: range) -> NDArray[np.bool_]:
        raise InvalidParameter(
            "The 'filter' parameter must hold strings, as the ids of this index are. "
            f"Got {ids!r} instead. Pass a boolean array to choose items by row."
        )


def make_ids(ids: Any, count: int) -> Ids:
    """Return the ids that `fit` was given for `count` items, or their row numbers without any.

    Examples
    --------
    >>> make_ids(["x", "y"], 2).all()
    array(['x', 'y'], dtype=object)
    >>> make_ids([7, 5], 2).all(), make_ids(None, 2).all()
    (array([7, 5]), array([0, 1]))
    """
    if ids is None:
        return Ids(np.arange(count))
    if not are_strings(ids):
        return Ids(as_ids(ids, count).copy())
    return encode_ids(ids, count)


def are_strings(ids: Any) -> bool:
    """Whether ids are strings, by the first of them."""
    if isinstance(ids, list | tuple):
        return len(ids) > 0 and isinstance(ids[0], str)
    array = as_array(ids, "ids")
    plain = array.ndim == 1 and array.size > 0 and array.dtype.kind in "OTU"
    return plain and isinstance(array[0], str)


def _as_list(ids: Any, parameter: str) -> list[Any]:
    if isinstance(ids, list | tuple):
        return list(ids)
    array = as_array(ids, parameter)
    if array.ndim != 1:
        raise InvalidParameter(
            f"The '{parameter}' parameter must be a list or a 1-D array of ids. "
            f"Got shape {array.shape} instead. Put a single id into a list."
        )
    values: list[Any] = array.tolist()
    return values


def encode_ids(given: Any, count: int) -> TextIds:
    """Return ids that must be `count` distinct strings."""
    ids = _as_list(given, "ids")
    must = "The 'ids' parameter must hold"
    if len(ids) != count:
        raise InvalidParameter(
            f"{must} {count} ids, one for each item. Got {len(ids)} instead. "
            "Pass as many ids as vectors, or none to number them."
        )
    first: dict[str, int] = {}
    for row, id in enumerate(ids):
        if not isinstance(id, str):
            raise InvalidParameter(
                f"{must} strings if its first id is one. Got {id!r} in row {row} instead. "
                "Convert all ids with str."
            )
        if first.setdefault(id, row) != row:
            raise InvalidParameter(
                f"{must} no id twice. Got {id!r} in rows {first[id]} and {row}. "
                "Drop one of them or give it a new id."
            )
    try:
        return TextIds(Strings.of(ids))
    except UnicodeEncodeError as error:
        raise InvalidParameter(
            f"{must} strings that UTF-8 can write. Got {error.object!r} instead: {error.reason}. "
            "Repair that id."
        ) from error


def is_item(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where the ids that a search returned are those of items, and not padding.

    Examples
    --------
    >>> is_item(np.array([3, -1])), is_item(np.array(["a", None]))
    (array([ True, False]), array([ True, False]))
    """
    found: NDArray[np.bool_] = ids != None if ids.dtype == object else ids >= 0  # noqa: E711
    return found


def split_filter(filter: Any) -> list[Any] | None:
    """Return the filter of each query, or None if `filter` is a single one for all queries.

    A list of filters, and an array with a row for each query, hold one filter for each query.

    Examples
    --------
    >>> split_filter([{1, 2}, None, range(3)])
    [{1, 2}, None, range(0, 3)]
    >>> split_filter([1, 2]) is None  # ids
    True
    """
    if isinstance(filter, list | tuple):
        several = len(filter) > 0 and all(_is_filter(one) for one in filter)
    else:
        several = getattr(filter, "ndim", 1) == 2
    return list(filter) if several else None


def _check_no_mask(values: NDArray[Any], items: int) -> None:
    """Raise if a filter of integers is a 0 or a 1 for each of so many items: no list of ids is."""
    if values.shape != (items,) or items <= 2 or values.dtype.kind not in "iu":
        return
    if values.min() >= 0 and values.max() <= 1:
        raise InvalidParameter(
            "The 'filter' parameter must hold ids if it holds integers. "
            f"Got nothing but 0 and 1 for {items} items instead, as in a mask. "
            "Pass a mask as filter.astype(bool), and ids each once, for example as a set."
        )


def check_mask(mask: NDArray[np.bool_], items: int) -> None:
    """Raise unless a filter that is a boolean array has a value for each of so many items."""
    if mask.shape != (items,):
        raise InvalidParameter(
            f"The 'filter' parameter must, as a boolean array, have shape ({items},), "
            f"one value for each item. Got shape {mask.shape} instead. Or pass allowed ids."
        )


def check_filters(filters: list[Any], queries: int) -> None:
    """Raise unless there is a filter for each query."""
    if len(filters) != queries:
        raise InvalidParameter(
            f"The 'filter' parameter must hold one filter for each of {queries} queries. "
            f"Got {len(filters)} filters instead. Pass None for a query without a filter."
        )


def _is_filter(value: Any) -> bool:
    """Whether a value is a filter, and not an id or a bool."""
    plain = value is None or isinstance(
        value, Allowed | Deny | Where | Mapping | Set | range | list | tuple
    )
    return plain or callable(value) or np.ndim(value) > 0
