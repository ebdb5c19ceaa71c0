"""How predictions are timed, ours and the peers' alike: in CPU time of all threads.

It imports only NumPy and the standard library, since the peers' environment imports it too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.common import time_least

TOP = 5  # labels of a prediction
REPEATS = 3  # of all test rows; the fastest counts
SINGLE = 1000  # rows that are predicted one by one, at most
WARM = 50


def time_batch(predict: Callable[[], Any], rows: int) -> float:
    """Return the CPU milliseconds of a row, among all rows in one call."""
    return 1e3 * time_least(predict, REPEATS) / rows


def time_single(predict: Callable[[Any], Any], rows: Sequence[Any]) -> float:
    """Return the median of the CPU milliseconds of rows one by one."""
    for row in rows[:WARM]:
        predict(row)
    times = []
    for row in rows:
        started = time.process_time()
        predict(row)
        times.append(time.process_time() - started)
    return 1e3 * float(np.median(times))
