"""The compiled kernels. Their sources are in `native/`."""

from typing import Any, TypedDict, final

import numpy as np
from numpy.typing import NDArray

# --- back-ends ---------------------------------------------------------------------------------

def simd() -> str: ...
def available_simd() -> list[str]: ...
def use_simd(name: str) -> None: ...

# --- vector search -----------------------------------------------------------------------------

@final
class SearchPlan:
    def __init__(
        self,
        *,
        k: int,
        probes: int,
        threshold: float,
        min_votes: int,
        candidates: int,
        score: int,
    ) -> None: ...
    @property
    def k(self) -> int: ...
    @property
    def probes(self) -> int: ...
    @property
    def threshold(self) -> float: ...
    @property
    def min_votes(self) -> int: ...
    @property
    def candidates(self) -> int: ...
    @property
    def score(self) -> int: ...

class Explained(TypedDict):
    items: NDArray[np.int64]
    distances: NDArray[np.float32]
    votes: NDArray[np.int32]
    log_probabilities: NDArray[np.float32]
    probed: NDArray[np.int32]
    candidates: NDArray[np.int32]
    found: int
    read: int
    seconds: tuple[float, float, float, float]

@final
class VectorSearcher:
    def __init__(self, layout: Any) -> None: ...
    def search(
        self,
        queries: NDArray[np.float32],
        plan: SearchPlan,
        allowed: NDArray[np.bool_] | None,
        ids: NDArray[np.int64] | None,
        form: int,
        first: int,
        last: int,
        distances: NDArray[np.float32],
        items: NDArray[np.int64],
    ) -> int: ...
    def search_one(
        self,
        query: NDArray[np.float32],
        plan: SearchPlan,
        ids: NDArray[np.int64],
        form: int,
        distances: NDArray[np.float32],
        items: NDArray[np.int64],
    ) -> bool: ...
    def explain(
        self, query: NDArray[np.float32], plan: SearchPlan, allowed: NDArray[np.bool_] | None
    ) -> Explained: ...
