"""HeldOut: the queries that training never sees, kept in the index to tune the search with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class HeldOut(NamedTuple):
    """Queries that training never sees. `tune` measures recall on them."""

    queries: NDArray[np.float32]  # (v, d)
    rows: NDArray[np.int64]  # (v,): the row of the item that the query is, or -1
