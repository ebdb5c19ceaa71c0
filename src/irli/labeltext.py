"""The text of multi-label data, parsed: `irli.labeldata` says what it looks like.

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
from numpy.typing import NDArray

from irli.compiled import kernel
from irli.errors import FormatError, InvalidParameter

_BYTES = 1 << 24  # text that is parsed at once
_LONGEST = 200  # bytes in the first line
_LARGEST = np.iinfo(np.int32).max  # ids are kept in 32 bits

_GOOD, _BAD_LABEL, _BAD_PAIR, _BAD_VALUE, _ROW_TOO_MANY = range(5)
_TAB, _NEWLINE, _RETURN, _SPACE, _COMMA, _COLON = b"\t\n\r ,:"
_ZERO, _NINE, _PLUS, _MINUS, _POINT, _E, _SMALL_E = b"09+-.Ee"
_POWERS = np.array([float(f"1e{k}") for k in range(309)])  # NumPy's are off by a bit


class Header(NamedTuple):
    """What the first line says."""

    rows: int
    columns: int
    labels: int  # 0 in a file of a single matrix


class Parsed(NamedTuple):
    """What the parser fills for the rows of a piece of text."""

    label_counts: NDArray[np.int64]  # (rows,)
    labels: NDArray[np.int32]
    pair_counts: NDArray[np.int64]  # (rows,)
    columns: NDArray[np.int32]
    values: NDArray[np.float32]


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
    fault, at = _parse(codes, labelled, rows, header.columns, header.labels, room)
    if fault != _GOOD:
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
    end = rb"[^\s,]*" if fault == _BAD_LABEL else rb"\S*"
    got = cast("re.Match[bytes]", re.match(end, text)).group()
    must, advice = {
        _BAD_LABEL: (
            "labels must be whole numbers with commas between, in the range "
            f"[0, {header.labels - 1}]",
            "They count from 0. Correct the line, or L in line 1.",
        ),
        _BAD_PAIR: (
            f"features must be column:value with a column in the range [0, {header.columns - 1}]",
            "Columns count from 0. Correct the line, or D in line 1.",
        ),
        _BAD_VALUE: (
            "each value must be a finite number within float32",
            "Correct it or leave it out.",
        ),
        _ROW_TOO_MANY: (
            f"the file must end after {header.rows} rows, as its first line says",
            "Correct line 1 or remove what is too much.",
        ),
    }[fault]
    return FormatError(f"{file}, line {line}: {must}. Got '{_shown(got)}' instead. {advice}")


def _shown(text: bytes) -> str:
    shown = text[:40].decode("ascii", "backslashreplace")
    return shown + "..." if len(text) > 40 else shown


@kernel
def _parse(
    text: NDArray[np.uint8],
    labelled: bool,
    n: int,
    n_columns: int,
    n_labels: int,
    out: Parsed,
) -> tuple[int, int]:
    """Fill `out` with at most `n` rows; return the fault and where in `text` it starts.

    `text` ends in a newline, so that no loop over a line has to look for the end of the text. Blank
    lines after row `n` are no fault.
    """
    row = at = names = pairs = 0
    while at < len(text):
        if labelled and row < n and not _ends(text[at]) and not _is_pair(text, at):
            more = True
            while more:
                label, end = _whole(text, at, n_labels)
                more = text[end] == _COMMA
                if label < 0 or not (more or _ends(text[end])):
                    return _BAD_LABEL, at
                out.labels[names] = label
                names += 1
                out.label_counts[row] += 1
                at = end + 1 if more else end
        while text[at] != _NEWLINE:
            if _ends(text[at]):
                at += 1
                continue
            if row >= n:
                return _ROW_TOO_MANY, at
            column, end = _whole(text, at, n_columns)
            if column < 0 or text[end] != _COLON:
                return _BAD_PAIR, at
            value, stop = _number(text, end + 1)
            if not np.isfinite(value) or not _ends(text[stop]):
                return _BAD_VALUE, end + 1
            out.columns[pairs] = column
            out.values[pairs] = value
            pairs += 1
            out.pair_counts[row] += 1
            at = stop
        at += 1
        row += 1
    return _GOOD, at


@kernel
def _ends(code: int) -> bool:
    """Whether a word ends before this character."""
    return code in (_SPACE, _NEWLINE, _TAB, _RETURN)


@kernel
def _is_pair(text: NDArray[np.uint8], at: int) -> bool:
    while not _ends(text[at]):
        if text[at] == _COLON:
            return True
        at += 1
    return False


@kernel
def _whole(text: NDArray[np.uint8], at: int, limit: int) -> tuple[int, int]:
    """Return the number that starts at `at`, -1 unless it is in [0, limit), and where it ends."""
    start = at
    value = 0
    while _ZERO <= text[at] <= _NINE:
        value = min(value * 10 + int(text[at]) - _ZERO, limit)
        at += 1
    return (-1 if at == start or value == limit else value), at


@kernel
def _number(text: NDArray[np.uint8], at: int) -> tuple[np.float32, int]:
    """Return the number that starts at `at`, or nan, and where it ends."""
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    # The number is mantissa * 10 ** (dropped - fraction + exponent).
    mantissa = digits = fraction = dropped = 0
    pointed = False
    while _ZERO <= text[at] <= _NINE or (text[at] == _POINT and not pointed):
        if text[at] == _POINT:
            pointed = True
        else:
            digits += 1
            fraction += pointed
            if mantissa < 10**17:
                mantissa = mantissa * 10 + int(text[at]) - _ZERO
            else:
                dropped += 1
        at += 1
    exponent = 0
    if digits and (text[at] == _E or text[at] == _SMALL_E):
        below = text[at + 1] == _MINUS
        start = at + 2 if below or text[at + 1] == _PLUS else at + 1
        exponent, at = _whole(text, start, 10**9)
        if at == start:
            digits = 0
        exponent = 10**9 if exponent < 0 else exponent
        exponent = -exponent if below else exponent
    if digits == 0:
        return np.float32(np.nan), at
    value = np.float64(mantissa)
    power = dropped - fraction + exponent
    if power >= 0:
        value *= _POWERS[min(power, 308)]
    else:
        value /= _POWERS[min(-power, 308)]
    return np.float32(-value if negative else value), at
