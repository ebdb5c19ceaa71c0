"""What the benchmark asks of an index, ours or a peer's.

It imports only NumPy, since the peers' environment imports it too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

Setting = dict[str, Any]


class Method(ABC):
    """An index that is built, saved, loaded and searched in several settings."""

    package: ClassVar[str]
    module: ClassVar[str]

    def __init__(self, metric: str, **build: Any) -> None:
        self.metric, self.settings = metric, build
        # Not imported in `load`: the memory of the index must not include the library.
        self.library = import_module(self.module)

    @abstractmethod
    def build(self, base: np.ndarray, learn: np.ndarray | None, threads: int) -> None:
        """Build the index; `learn` are sample queries, which are never reported on."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write everything that searching needs."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""

    @abstractmethod
    def sweep(self) -> Iterator[list[Setting]]:
        """Yield rows of settings, each row from little work to much."""

    @abstractmethod
    def begin(self, setting: Setting, threads: int) -> None:
        """Get ready to search in this setting; `threads` are for batches."""

    @abstractmethod
    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        """Answer all queries (n, d) in one call."""

    @abstractmethod
    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        """Answer one of the queries that `prepare` returned, on one thread."""

    def prepare(self, queries: np.ndarray) -> list[np.ndarray]:
        """Return the queries one by one, in the shape that the library is fastest with."""
        return list(queries)

    def work(self, queries: np.ndarray, setting: Setting) -> dict[str, float]:
        """Return what a query costs, where known: scanned, exact, router_multiplications."""
        return {}


def doubling(first: int, last: float, step: float = 2.0) -> list[int]:
    """Return whole numbers from `first`, each `step` times the one before.

    Examples
    --------
    >>> doubling(4, 40)
    [4, 8, 16, 32]
    """
    steps = max(0.0, math.log(last / first, step))
    return sorted({round(first * step**i) for i in range(int(steps + 1e-9) + 1)})
