"""Kernels that parse the text format of multi-label (XMC) data from bytes to arrays.

`irli.labels.xmc_text` calls them and has the error messages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.engine.jit import kernel

GOOD, BAD_LABEL, BAD_PAIR, BAD_VALUE, ROW_TOO_MANY = range(5)
_TAB, _NEWLINE, _RETURN, _SPACE, _COMMA, _COLON = b"\t\n\r ,:"
_ZERO, _NINE, _PLUS, _MINUS, _POINT, _E, _SMALL_E = b"09+-.Ee"
_POWERS = np.array([float(f"1e{k}") for k in range(309)])  # NumPy's powers are not exact


class Parsed(NamedTuple):
    """The arrays that the parser fills for the rows of a piece of text."""

    label_counts: NDArray[np.int64]  # (rows,)
    labels: NDArray[np.int32]
    pair_counts: NDArray[np.int64]  # (rows,)
    columns: NDArray[np.int32]
    values: NDArray[np.float32]


@kernel
def parse(
    text: NDArray[np.uint8],
    labelled: bool,
    n: int,
    n_columns: int,
    n_labels: int,
    out: Parsed,
) -> tuple[int, int]:
    """Fill `out` with at most `n` rows. Return the kind of error and where in `text` it is.

    `text` must end with a newline, so that loops over a line need not check for the end of the
    text. Blank lines after row `n` are allowed.
    """
    row = at = names = pairs = 0
    while at < len(text):
        if labelled and row < n and not _is_space(text[at]) and not _is_pair(text, at):
            more = True
            while more:
                label, end = _read_whole(text, at, n_labels)
                more = text[end] == _COMMA
                if label < 0 or not (more or _is_space(text[end])):
                    return BAD_LABEL, at
                out.labels[names] = label
                names += 1
                out.label_counts[row] += 1
                at = end + 1 if more else end
        while text[at] != _NEWLINE:
            if _is_space(text[at]):
                at += 1
                continue
            if row >= n:
                return ROW_TOO_MANY, at
            column, end = _read_whole(text, at, n_columns)
            if column < 0 or text[end] != _COLON:
                return BAD_PAIR, at
            value, stop = _read_number(text, end + 1)
            if not np.isfinite(value) or not _is_space(text[stop]):
                return BAD_VALUE, end + 1
            out.columns[pairs] = column
            out.values[pairs] = value
            pairs += 1
            out.pair_counts[row] += 1
            at = stop
        at += 1
        row += 1
    return GOOD, at


@kernel
def _is_space(code: int) -> bool:
    """Whether this character separates words."""
    return code in (_SPACE, _NEWLINE, _TAB, _RETURN)


@kernel
def _is_pair(text: NDArray[np.uint8], at: int) -> bool:
    """Whether the word that starts at `at` is a pair 'column:value'."""
    while not _is_space(text[at]):
        if text[at] == _COLON:
            return True
        at += 1
    return False


@kernel
def _read_whole(text: NDArray[np.uint8], at: int, limit: int) -> tuple[int, int]:
    """Return the integer that starts at `at`, or -1 if not in [0, limit), and where it ends."""
    start = at
    value = 0
    while _ZERO <= text[at] <= _NINE:
        value = min(value * 10 + int(text[at]) - _ZERO, limit)
        at += 1
    return (-1 if at == start or value == limit else value), at


@kernel
def _read_number(text: NDArray[np.uint8], at: int) -> tuple[np.float32, int]:
    """Return the number that starts at `at`, or NaN if there is none, and where it ends."""
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
        exponent, at = _read_whole(text, start, 10**9)
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
