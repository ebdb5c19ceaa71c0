"""Arrays that grow at their end: `Growing` in one piece, `Chunks` in pieces that never move."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 20  # bytes of a chunk, about


class Growing:
    """Rows of one shape. Appending takes the same time for each row, whatever the number of rows.

    An array that was handed out stays as it is: new rows go behind it, or into a larger array.

    Examples
    --------
    >>> rows = Growing((2,), np.int32)
    >>> rows.append(np.array([[1, 2], [3, 4]]))
    >>> rows.array.tolist(), len(rows)
    ([[1, 2], [3, 4]], 2)
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._memory = np.empty((16, *shape), dtype=dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows (n, ...) at the end."""
        count = self._count + len(rows)
        if count > len(self._memory):
            larger = np.empty((2 * count, *self._memory.shape[1:]), dtype=self._memory.dtype)
            larger[: self._count] = self.array
            self._memory = larger
        self._memory[self._count : count] = rows
        self._count = count

    @property
    def array(self) -> NDArray[Any]:
        """All rows."""
        return self._memory[: self._count]


class Chunks:
    """Rows of one shape, in chunks of a power of two of them, which stay where they are.

    Examples
    --------
    >>> rows = Chunks((1 << 17,), np.float32)
    >>> rows.append(np.zeros((3, 1 << 17), dtype=np.float32))
    >>> [chunk.shape for chunk in rows.chunks]
    [(2, 131072), (2, 131072)]
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._empty = np.empty((0, *shape), dtype=dtype)
        bytes = self._empty.itemsize * int(np.prod(shape, dtype=np.int64))
        self.rows = 1 << (max(1, _CHUNK // bytes).bit_length() - 1)
        self.chunks: list[NDArray[Any]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows (n, ...) at the end."""
        while len(rows):
            place = self._count % self.rows
            if place == 0:
                self.chunks.append(np.empty((self.rows, *rows.shape[1:]), self._empty.dtype))
            taken = min(len(rows), self.rows - place)
            self.chunks[-1][place : place + taken] = rows[:taken]
            self._count += taken
            rows = rows[taken:]

    def take_all(self) -> NDArray[Any]:
        """Return all rows in one new array."""
        joined: NDArray[Any] = np.concatenate([self._empty, *self.chunks])[: self._count]
        return joined
