"""Strings: many strings in two arrays, UTF-8 bytes and offsets, as a folder keeps them."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.arrays import array_error, check_array, check_offsets
from irli.base.memory import release_pages

_BLOCK = 1 << 20  # bytes checked, or strings decoded, at a time


class Strings:
    """A list of strings that takes little memory, and can be memory-mapped.

    Examples
    --------
    >>> strings = Strings.of(["gold", "", "žába"])
    >>> strings[2], len(strings), strings.nbytes
    ('žába', 3, 42)
    >>> strings.places["gold"]
    0
    """

    def __init__(self, bytes: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self.bytes, self.offsets = bytes, offsets

    @classmethod
    def of(cls, strings: Sequence[str]) -> Strings:
        """Encode strings. One that UTF-8 cannot write raises UnicodeEncodeError."""
        encoded = [string.encode() for string in strings]
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    @classmethod
    def read(cls, name: str, bytes: NDArray[Any], offsets: NDArray[Any], count: int) -> Strings:
        """Return `count` strings that come from a file, or raise `FormatError`."""
        check_array(f"{name}_bytes", bytes, np.uint8, None)
        check_array(f"{name}_offsets", offsets, np.int64, count + 1)
        check_offsets(f"{name}_offsets", offsets, len(bytes))
        starts = offsets[offsets < len(bytes)]
        # Bytes like 10xxxxxx continue a character.
        if not _is_utf8(bytes) or ((bytes[starts] & 0xC0) == 0x80).any():
            raise array_error(f"{name}_bytes", "be strings in UTF-8", "other bytes")
        return cls(bytes, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, place: int) -> str:
        start, stop = self.offsets[place], self.offsets[place + 1]
        return self.bytes[start:stop].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _BLOCK):
            bounds = self.offsets[first : first + _BLOCK + 1].tolist()
            content = self.bytes[bounds[0] : bounds[-1]].tobytes()
            for start, stop in pairwise(bounds):
                yield content[start - bounds[0] : stop - bounds[0]].decode()

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each string is. It is made when it is first needed, and takes memory."""
        return {string: place for place, string in enumerate(self)}

    @property
    def nbytes(self) -> int:
        """The size of both arrays."""
        return self.bytes.nbytes + self.offsets.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return Strings, (self.bytes, self.offsets)


def _is_utf8(bytes: NDArray[np.uint8]) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(bytes), _BLOCK):
            decoder.decode(bytes[start : start + _BLOCK].tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    release_pages(bytes)
    return True
