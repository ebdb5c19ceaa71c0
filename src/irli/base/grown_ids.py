"""The ids of an index that has changed: those of a fit, and those of items added since.

Each item has a row. Rows of added items come after those of the fit, and an item that is removed
keeps its row, which no id leads to any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.ids import Ids, TextIds
from irli.base.strings import Strings


class AddedRows:
    """Where the ids are that were added, for all versions. Only the writer adds to it."""

    def __init__(self, fitted: int) -> None:
        self.fitted = fitted
        self.ids: list[Any] = []  # of each added row
        self.rows: dict[Any, int] = {}  # the last row of each id

    def append(self, ids: list[Any]) -> None:
        """Add the ids of new rows."""
        start = self.fitted + len(self.ids)
        self.ids.extend(ids)
        self.rows.update(zip(ids, range(start, start + len(ids)), strict=True))

    def skip(self, count: int) -> None:
        """Add rows without an id."""
        self.ids.extend([None] * count)

    def find(self, id: Any, count: int) -> int:
        """Return the last of the first `count` rows that was added with an id, or -1."""
        row = self.rows.get(id, -1)
        if row < count:
            return row
        ids = self.ids[: count - self.fitted]  # an older version of the index asks
        return max((self.fitted + i for i, other in enumerate(ids) if other == id), default=-1)


class GrownIds(Ids):
    """Integer ids of an index that has changed.

    Parameters
    ----------
    fitted : Ids
    added : AddedRows
    values : int64 array of shape (N,)
        The id of each row.
    removed : bool array of shape (N,) or None

    Examples
    --------
    >>> added = AddedRows(2)
    >>> added.append([70])
    >>> gone = np.array([True, False, False])
    >>> ids = GrownIds(Ids(np.array([70, 30])), added, np.array([70, 30, 70]), gone)
    >>> ids.rows([70, 30]), ids.all(), len(ids)
    (array([2, 1]), array([30, 70]), 2)
    """

    def __init__(
        self,
        fitted: Ids,
        added: AddedRows,
        values: NDArray[np.int64],
        removed: NDArray[np.bool_] | None,
        token: bytes | None = None,
    ) -> None:
        super().__init__(values, token)
        self._fitted, self._added, self._removed = fitted, added, removed

    def __reduce__(self) -> tuple[Any, ...]:
        return GrownIds, (self._fitted, self._added, self.values, self._removed, self.token)

    @cached_property
    def _left(self) -> NDArray[np.int64]:
        """The rows of all items."""
        return _list_left(self.values, self._removed)

    def __len__(self) -> int:
        return len(self._left)

    def all(self) -> NDArray[Any]:
        return self.values if self._removed is None else self.values[self._left]

    def names(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return np.where(rows >= 0, self.values[np.maximum(rows, 0)], -1)

    def _find(self, ids: Any, parameter: str) -> NDArray[np.int64]:
        rows = self._fitted._find(ids, parameter)
        wanted = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        return _look_among_added(rows, wanted, self._added, self._removed, len(self.values))

    def _iterate(self) -> Iterable[Any]:
        return map(int, self.all())

    def _spread(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return _spread(mask, self._left, len(self.values))


class GrownTextIds(TextIds):
    """Ids that are strings, of an index that has changed: as `GrownIds`.

    Examples
    --------
    >>> added = AddedRows(2)
    >>> added.append(["cat"])
    >>> ids = GrownTextIds(TextIds(Strings.of(["dog", "bird"])), added, 3, None)
    >>> ids.names(np.array([2, 0])), ids.rows(["cat", "bird"])
    (array(['cat', 'dog'], dtype=object), array([2, 1]))
    """

    def __init__(
        self,
        fitted: TextIds,
        added: AddedRows,
        count: int,
        removed: NDArray[np.bool_] | None,
        token: bytes | None = None,
    ) -> None:
        Ids.__init__(self, np.arange(count), token)
        self.strings = _GrownStrings(fitted.strings, added, count)
        self._fitted, self._added, self._removed = fitted, added, removed

    def __reduce__(self) -> tuple[Any, ...]:
        given = self._fitted, self._added, len(self.values), self._removed, self.token
        return GrownTextIds, given

    @cached_property
    def _left(self) -> NDArray[np.int64]:
        """The rows of all items."""
        return _list_left(self.values, self._removed)

    def __len__(self) -> int:
        return len(self._left)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and bool((self._find([id], "ids") >= 0).all())

    def all(self) -> NDArray[Any]:
        return np.array(list(self._iterate()), dtype=object)

    def _find(self, ids: Any, parameter: str) -> NDArray[np.int64]:
        rows = self._fitted._find(ids, parameter)
        return _look_among_added(rows, list(ids), self._added, self._removed, len(self.values))

    def _iterate(self) -> Iterator[str]:
        if self._removed is None:
            return iter(self.strings)
        left = ~self._removed
        return (id for id, there in zip(self.strings, left.tolist(), strict=True) if there)

    def _spread(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return _spread(mask, self._left, len(self.values))


class _GrownStrings(Strings):
    """The strings of a fit, and those added since."""

    def __init__(self, fitted: Strings, added: AddedRows, count: int) -> None:
        super().__init__(fitted.bytes, fitted.offsets)
        self._fitted, self._added, self._count = fitted, added, count

    def __reduce__(self) -> tuple[Any, ...]:
        return _GrownStrings, (self._fitted, self._added, self._count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> str:
        fitted = len(self._fitted)
        if place < fitted:
            return self._fitted[place]
        id: str = self._added.ids[place - fitted]
        return id

    def __iter__(self) -> Iterator[str]:
        yield from self._fitted
        yield from self._added.ids[: self._count - len(self._fitted)]


def _list_left(rows: NDArray[np.int64], removed: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    return np.arange(len(rows)) if removed is None else np.flatnonzero(~removed)


def _spread(mask: NDArray[np.bool_], left: NDArray[np.int64], rows: int) -> NDArray[np.bool_]:
    if len(left) == rows:
        return mask
    spread = np.zeros(rows, dtype=bool)
    spread[left] = mask
    return spread


def _look_among_added(
    rows: NDArray[np.int64],
    ids: list[Any],
    added: AddedRows,
    removed: NDArray[np.bool_] | None,
    count: int,
) -> NDArray[np.int64]:
    """Return the rows of ids (n,), given those that they had in the fit, or -1 for unknown ids."""
    if added.rows:
        later = np.array([added.find(id, count) for id in ids], dtype=np.int64).reshape(len(rows))
        rows = np.where(later >= 0, later, rows)
    if removed is not None:
        rows = np.where((rows >= 0) & removed[rows], -1, rows)
    return rows
