"""The compiled kernels. Their sources are in `native/`."""

from typing import Any, TypeAlias, TypedDict, final

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

# --- label prediction --------------------------------------------------------------------------

Csr: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]

@final
class LabelPlan:
    def __init__(
        self,
        *,
        k: int,
        probes: int,
        candidates: int,
        score: int,
        by_margin: float,
        by_score: float,
        threshold: float,
    ) -> None: ...
    @property
    def k(self) -> int: ...
    @property
    def probes(self) -> int: ...
    @property
    def candidates(self) -> int: ...
    @property
    def score(self) -> int: ...
    @property
    def by_margin(self) -> float: ...
    @property
    def by_score(self) -> float: ...
    @property
    def threshold(self) -> float: ...

@final
class LabelPredictor:
    def __init__(self, layout: Any) -> None: ...
    def predict(
        self,
        routed: Csr,
        ranked: Csr,
        plan: LabelPlan,
        first: int,
        last: int,
        scores: NDArray[np.float32],
        labels: NDArray[np.int64],
    ) -> int: ...

# --- learning on labels ------------------------------------------------------------------------

def train_classifiers(
    first: int,
    last: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    lengths: NDArray[np.float32],
    usual: NDArray[np.float32],
    positive_indptr: NDArray[np.int64],
    positive_rows: NDArray[np.int32],
    negative_indptr: NDArray[np.int64],
    negative_rows: NDArray[np.int32],
    cost: float,
    importance: NDArray[np.float32],
    prune: float,
    bias: NDArray[np.float32],
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]: ...
def pack_weights(
    indptr: NDArray[np.int64],
    labels: NDArray[np.int32],
    data: NDArray[np.float32],
    label_count: int,
) -> tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[np.int8], NDArray[np.float32]]: ...
def compute_margins(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    starts: NDArray[np.int64],
    gaps: NDArray[np.uint16],
    weights: NDArray[np.int8],
    scale: NDArray[np.float32],
    bias: NDArray[np.float32],
    found: NDArray[np.int64],
    margins: NDArray[np.float32],
) -> None: ...
def vote_near_rows(
    first: int,
    last: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    known: NDArray[np.int64],
    starts: NDArray[np.int64],
    rows: NDArray[np.int32],
    values: NDArray[np.float32],
    label_starts: NDArray[np.int64],
    labels: NDArray[np.int32],
    label_count: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]: ...

ParsedArrays: TypeAlias = tuple[
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.float32],
]

def parse_xmc(
    text: bytes, labelled: bool, n: int, n_columns: int, n_labels: int
) -> tuple[int, int, ParsedArrays]: ...
