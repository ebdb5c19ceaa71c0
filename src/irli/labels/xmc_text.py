"""The text of multi-label data, parsed: `irli.labels.files` says what it looks like.

The text is read in pieces of whole lines. A compiled parser turns the bytes of each into arrays and
stops at the first fault, for which Python then finds the words. Every row is one line, so row r is
line r + 2 of the file.
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

_BYTES = 1 << 24  # text that is parsed at once
_LONGEST = 200  # bytes in the first line
_LARGEST = np.iinfo(np.int32).max  # ids are kept in 32 bits


class Header(NamedTuple):
    """What the first line says."""

    rows: int
    columns: int
    labels: int  # 0 in a file of a single matrix


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """Open a file to read bytes, unpacked if it ends in `.gz`; say so if it is missing or cut."""
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
            "It was cut in the middle, damaged or misnamed: fetch it anew."
        ) from error


def read_text(file: Path, labelled: bool) -> tuple[Header, Parsed]:
    """Return the first line of a text file and all its rows, which have labels or not."""
    pieces = [_room(b"", labelled)]
    lines = 0
    with opened(file) as stream:
        header = _header(file, stream.readline(_LONGEST), labelled)
        for text in _whole_lines(stream):
            pieces.append(_parse_piece(file, text, lines, header, labelled))
            lines += text.count(b"\n")
    if lines < header.rows:
        raise FormatError(
            f"{file} must have {header.rows} rows, as its first line says. It ends after {lines}, "
            f"in line {lines + 1}, instead. Was it cut in the middle? "
            "Fetch it anew or correct line 1."
        )
    return header, Parsed(*map(np.concatenate, zip(*pieces, strict=True)))


def _header(file: Path, line: bytes, labelled: bool) -> Header:
    names, others = ("N D L", "N D") if labelled else ("N D", "N D L")
    words = line.split()
    count, other_count = len(names.split()), len(others.split())
    whole = all(word.isdigit() and int(word) <= _LARGEST for word in words)
    whole = whole and len(line) < _LONGEST
    if whole and len(words) == count:
        return Header(int(words[0]), int(words[1]), int(words[2]) if labelled else 0)
    advice = "It is damaged or of another format: fetch it anew."
    if whole and len(words) == other_count:
        other = "read_matrix" if labelled else "read_rows"
        advice = f"A file that starts with {others} is read by {other}."
    got = f"'{_shown(line.strip())}'" if line else "nothing, the file is empty,"
    raise FormatError(
        f"{file}, line 1: must be {count} whole numbers, {names}, each at most {_LARGEST}. "
        f"Got {got} instead. {advice}"
    )


def _whole_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the text in pieces that end in a newline."""
    rest = b""
    while block := stream.read(_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
    if rest:
        yield rest + b"\n"


def _room(text: bytes, labelled: bool) -> Parsed:
    """Return arrays that have room for whatever `text` holds."""
    rows, pairs = text.count(b"\n"), text.count(b":")
    names = rows + text.count(b",") if labelled else 0
    return Parsed(
        label_counts=np.zeros(rows, dtype=np.int64),
        labels=np.empty(names, dtype=np.int32),
        pair_counts=np.zeros(rows, dtype=np.int64),
        columns=np.empty(pairs, dtype=np.int32),
        values=np.empty(pairs, dtype=np.float32),
    )


def _parse_piece(file: Path, text: bytes, lines: int, header: Header, labelled: bool) -> Parsed:
    """Return the rows in a piece of text that has `lines` lines between the first and itself."""
    rows = max(0, header.rows - lines)
    room = _room(text, labelled)
    codes = np.frombuffer(text, dtype=np.uint8)
    fault, at = parse(codes, labelled, rows, header.columns, header.labels, room)
    if fault != GOOD:
        line = lines + text.count(b"\n", 0, at) + 2
        raise _fault(file, fault, line, text[at:], header)
    names, pairs = int(room.label_counts.sum()), int(room.pair_counts.sum())
    return Parsed(
        label_counts=room.label_counts[:rows],
        labels=room.labels[:names],
        pair_counts=room.pair_counts[:rows],
        columns=room.columns[:pairs],
        values=room.values[:pairs],
    )


def _fault(file: Path, fault: int, line: int, text: bytes, header: Header) -> FormatError:
    """Return the error for `text`, which starts with what is wrong."""
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
            "Correct line 1 or remove what is too much.",
        ),
    }[fault]
    return FormatError(f"{file}, line {line}: {must}. Got '{_shown(got)}' instead. {advice}")


def _shown(text: bytes) -> str:
    shown = text[:40].decode("ascii", "backslashreplace")
    return shown + "..." if len(text) > 40 else shown
