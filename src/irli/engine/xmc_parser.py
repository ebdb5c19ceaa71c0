"""Parse the text format of multi-label (XMC) data from bytes to arrays.

`irli.labels.files.xmc_text` calls this and has the error messages. The loop is in
`native/xmc_parser.cpp`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli import _native

GOOD, BAD_LABEL, BAD_PAIR, BAD_VALUE, ROW_TOO_MANY = range(5)


class Parsed(NamedTuple):
    """The rows of a piece of text."""

    label_counts: NDArray[np.int64]  # (rows,)
    labels: NDArray[np.int32]
    pair_counts: NDArray[np.int64]  # (rows,)
    columns: NDArray[np.int32]
    values: NDArray[np.float32]


def parse(
    text: bytes, labelled: bool, n: int, n_columns: int, n_labels: int
) -> tuple[int, int, Parsed]:
    r"""Parse at most `n` rows. Return the kind of fault, where in `text` it is, and the rows.

    `text` must end with a newline. Blank lines after row `n` are allowed.

    Examples
    --------
    >>> fault, _, rows = parse(b"0,2 1:0.5\n1 0:2 3:1\n", True, 2, n_columns=4, n_labels=3)
    >>> fault == GOOD, rows.labels, rows.columns
    (True, array([0, 2, 1], dtype=int32), array([1, 0, 3], dtype=int32))
    """
    fault, at, arrays = _native.parse_xmc(text, labelled, n, n_columns, n_labels)
    return fault, at, Parsed(*arrays)
