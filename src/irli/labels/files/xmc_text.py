"""Parse XMC text files: open them, read the header, parse the rows, and report where a line is bad.

`irli.labels.files.rows` describes the format. Sparse text is read in pieces of whole lines. A
compiled parser turns each piece into arrays and stops at the first fault. Python then makes the
error message. Every row is one line, so row r is line r + 2 of the file.
"""

from __future__ import annotations

import gzip
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from irli.base.files import LONGEST_LINE
from irli.base.text_rows import parse_rows, read_lines
from irli.engine.xmc_parser import (
    BAD_LABEL,
    BAD_PAIR,
    BAD_VALUE,
    GOOD,
    ROW_TOO_MANY,
    Parsed,
    parse,
)
from irli.errors import FormatError, InvalidParameter

_BYTES = 1 << 24  # of text parsed at once
_LONGEST = 200  # bytes of the first line, at most
_LARGEST = np.iinfo(np.int32).max  # ids have 32 bits


class Header(NamedTuple):
    """The numbers in the first line."""

    rows: int
    columns: int
    labels: int  # 0 in a file of a single matrix


@contextmanager
def open_input(file: Path) -> Iterator[IO[bytes]]:
    """Open a file to read bytes, decompressed if it ends in `.gz`, or raise a plain error."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            yield cast("IO[bytes]", stream)
    except (FileNotFoundError, IsADirectoryError) as error:
        got = "a folder" if file.is_dir() else "nothing"
        raise InvalidParameter(
            f"The 'path' parameter must be an existing file. There is {got} at '{file}'. "
            "Check the spelling and the working directory."
        ) from error
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise FormatError(
            f"{file} must be a whole packed file. It cannot be unpacked: {error}. "
            "It was cut in the middle, damaged or misnamed. Download it again."
        ) from error


def read_text(file: Path, labelled: bool) -> tuple[Header, Parsed]:
    """Return the header and the rows of a text file. If `labelled`, each row starts with labels."""
    with open_input(file) as stream:
        header = _parse_header(file, stream.readline(_LONGEST), labelled)
        pieces = [_parse_piece(file, b"", 0, header, labelled)]
        for lines, text in _read_pieces(file, stream):
            pieces.append(_parse_piece(file, text, lines, header, labelled))
    rows = sum(len(piece.label_counts) for piece in pieces)
    if rows < header.rows:
        raise FormatError(
            f"{file} must have {header.rows} rows, as its first line says. It ends after {rows}, "
            f"in line {rows + 1}, instead. Was it cut in the middle? "
            "Download it again, or correct line 1."
        )
    return header, Parsed(*map(np.concatenate, zip(*pieces, strict=True)))


def is_dense(file: Path) -> bool:
    """Say if the rows of a matrix in text are D values each, not column:value pairs."""
    with open_input(file) as stream:
        stream.readline(_LONGEST)
        row = next(filter(None, read_lines(file, stream, 2)), b":")
    return b":" not in row


def read_dense(file: Path) -> NDArray[np.float32]:
    """Return the array of shape (N, D) in a text of dense rows."""
    with open_input(file) as stream:
        header = _parse_header(file, stream.readline(_LONGEST), labelled=False)
        rows = parse_rows(file, read_lines(file, stream, 2), header.columns, 2)
    if len(rows) != header.rows:
        raise FormatError(
            f"{file} must have {header.rows} rows, as its first line says. It has {len(rows)} "
            "instead. Was it cut in the middle? Download it again, or correct line 1."
        )
    return rows


def _parse_header(file: Path, line: bytes, labelled: bool) -> Header:
    names, others = ("N D L", "N D") if labelled else ("N D", "N D L")
    words = line.split()
    count, other_count = len(names.split()), len(others.split())
    valid = all(word.isdigit() and int(word) <= _LARGEST for word in words)
    valid = valid and len(line) < _LONGEST
    if valid and len(words) == count:
        return Header(int(words[0]), int(words[1]), int(words[2]) if labelled else 0)
    advice = "It is damaged or of another format. Download it again."
    if valid and len(words) == other_count:
        other = "read_matrix" if labelled else "read_rows"
        advice = f"Files that start with {others} are read by {other}."
    got = f"'{_shorten(line.strip())}'" if line else "nothing (the file is empty)"
    raise FormatError(
        f"{file}, line 1: must be {count} whole numbers, {names}, each at most {_LARGEST}. "
        f"Got {got} instead. {advice}"
    )


def _read_pieces(file: Path, stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the text in pieces that end in a newline, each with the number of lines before it."""
    lines, rest = 0, b""
    while block := stream.read(_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            text = rest + block[:end]
            yield lines, text
            lines += text.count(b"\n")
            rest = block[end:]
        elif len(rest) <= LONGEST_LINE:
            rest += block
        else:
            raise FormatError(
                f"{file}, line {lines + 2}: must have at most {LONGEST_LINE} bytes. Got more "
                "instead. It is damaged or of another format. Write one row in each line."
            )
    if rest:
        yield lines, rest + b"\n"


def _parse_piece(file: Path, text: bytes, lines: int, header: Header, labelled: bool) -> Parsed:
    """Return the rows of a piece of text, which follows `lines` lines after the header."""
    rows = max(0, header.rows - lines)
    fault, at, parsed = parse(text, labelled, rows, header.columns, header.labels)
    if fault != GOOD:
        line = lines + text.count(b"\n", 0, at) + 2
        raise _format_error(file, fault, line, text[at:], header)
    return parsed


def _format_error(file: Path, fault: int, line: int, text: bytes, header: Header) -> FormatError:
    """Return the error for a fault at the start of `text`."""
    end = rb"[^\s,]*" if fault == BAD_LABEL else rb"\S*"
    got = cast("re.Match[bytes]", re.match(end, text)).group()
    must, advice = {
        BAD_LABEL: (
            "labels must be whole numbers with commas between, in the range "
            f"[0, {header.labels - 1}]",
            "They count from 0. Correct the line, or L in line 1.",
        ),
        BAD_PAIR: (
            f"features must be column:value with a column in the range [0, {header.columns - 1}]",
            "Columns count from 0. Correct the line, or D in line 1.",
        ),
        BAD_VALUE: (
            "each value must be a finite number within float32",
            "Correct it or leave it out.",
        ),
        ROW_TOO_MANY: (
            f"the file must end after {header.rows} rows, as its first line says",
            "Correct line 1, or remove the other lines.",
        ),
    }[fault]
    return FormatError(f"{file}, line {line}: {must}. Got '{_shorten(got)}' instead. {advice}")


def _shorten(text: bytes) -> str:
    shown = text[:40].decode("ascii", "backslashreplace")
    return shown + "..." if len(text) > 40 else shown
