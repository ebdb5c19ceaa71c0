"""What the benchmark asks of an index, ours or a peer's. NumPy only."""

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
    """An index that can be built, kept, and asked in several settings."""

    package: ClassVar[str]
    module: ClassVar[str]

    def __init__(self, metric: str, **build: Any) -> None:
        self.metric, self.settings = metric, build
        # Here and not in `load`, so that the index's memory does not count the library's.
        self.library = import_module(self.module)

    @abstractmethod
    def build(self, base: np.ndarray, learn: np.ndarray | None, threads: int) -> None:
        """Build the index; `learn` are queries that no one reports on."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write all that searching needs."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read it."""

    @abstractmethod
    def sweep(self) -> Iterator[list[Setting]]:
        """Yield rows of settings, each from little work to much."""

    @abstractmethod
    def begin(self, setting: Setting, threads: int) -> None:
        """Get ready to answer in this setting; `threads` are those of a batch."""

    @abstractmethod
    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        """Answer all queries (n, d) in one call."""

    @abstractmethod
    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        """Answer one of the queries that `prepared` returned, on one thread."""

    def prepared(self, queries: np.ndarray) -> list[np.ndarray]:
        """Return queries one by one, in the shape that costs the peer least."""
        return list(queries)

    def work(self, queries: np.ndarray, setting: Setting) -> dict[str, float]:
        """Say, where known, what a query costs: scanned, exact, router_multiplications."""
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
