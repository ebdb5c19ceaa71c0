"""Parse text that has one row of numbers in each line: word vectors, and dense features of labels.

Lines are read and parsed in blocks, so that the text is never in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from irli.base.files import LONGEST_LINE
from irli.errors import FormatError

_ROWS = 1 << 12  # parsed at once


def read_lines(file: Path, stream: IO[bytes], line: int) -> Iterator[bytes]:
    """Yield the lines of a stream without their ends. `line` is the number of the first one."""
    while text := stream.readline(LONGEST_LINE + 1):
        if len(text) > LONGEST_LINE:
            raise FormatError(
                f"{file}, line {line}: must have at most {LONGEST_LINE} bytes. Got more instead. "
                "It is damaged or of another format. Write one row in each line."
            )
        yield text.rstrip()
        line += 1


def parse_rows(file: Path, lines: Iterable[bytes], width: int, line: int) -> NDArray[np.float32]:
    """Return the numbers of lines as an array of shape (lines, width).

    Examples
    --------
    >>> parse_rows(Path("x.txt"), [b"0.5 1", b"2"], width=2, line=1)
    Traceback (most recent call last):
    irli.errors.FormatError: x.txt, line 2: must have 2 numbers with spaces between. Got 1 instead.
    It was cut in the middle or is of another format. Download it again.
    """
    rest = iter(lines)
    blocks = [np.empty((0, width), dtype=np.float32)]
    while block := list(islice(rest, _ROWS)):
        found = _parse_block(block) if all(block) else None
        if found is None or found.shape != (len(block), width):
            raise _name_fault(file, block, width, line)
        blocks.append(found)
        line += len(block)
    return np.concatenate(blocks)


def _parse_block(block: list[bytes]) -> NDArray[np.float32] | None:
    try:
        return np.loadtxt(block, dtype=np.float32, comments=None, encoding="latin1", ndmin=2)
    except ValueError:
        return None


def _name_fault(file: Path, block: list[bytes], width: int, line: int) -> FormatError:
    """Return the error for the first fault in a block whose first line is number `line`."""
    for number, words in enumerate((text.split() for text in block), start=line):
        if len(words) != width:
            return FormatError(
                f"{file}, line {number}: must have {width} numbers with spaces between. Got "
                f"{len(words)} instead. It was cut in the middle or is of another format. "
                "Download it again."
            )
        for word in words:
            if _parse_block([word]) is None:
                shown = word[:40].decode("ascii", "backslashreplace")
                return FormatError(
                    f"{file}, line {number}: must hold numbers. Got '{shown}' instead. "
                    "Correct it, or download the file again."
                )
    return FormatError(f"{file}, line {line}: must hold rows of numbers. Download it again.")
