"""The compiled kernels. Their sources are in `native/`."""

from typing import Any, TypeAlias, TypedDict, final, overload

import numpy as np
from numpy.typing import NDArray

# --- back-ends ---------------------------------------------------------------------------------

def simd() -> str: ...
def available_simd() -> list[str]: ...
def use_simd(name: str) -> None: ...

# --- constants: see `native/layout.h` -----------------------------------------------------------

BLOCK: int
CODES: int
COMPARED: int
COMPARED_LANES: int
COSINE: int
DOT: int
IP: int
L2: int
LANES: int
LEAST_COMPARED: int
LEAST_ROUNDED: int
LEAST_VOTES: float
LEVELS: int
LOG_PROBABILITY: int
MOST: int
MOST_CANDIDATES: int
PANEL: int
PLAIN: int
PROBABILITY: int
VOTES: int
WORDS: int
ZERO: int

# --- vector search -----------------------------------------------------------------------------

@final
class SearchPlan:
    k: int
    thresholds: list[float]
    centroids: list[float]
    probes: int
    fill: bool
    start: float
    exact_from: float
    exact: bool
    likely: float
    unsure: float
    far: float
    wide: int
    picked: int
    length: float
    score: int
    min_votes: int
    candidates: int
    by_score: bool
    def __init__(self) -> None: ...

class Explained(TypedDict):
    items: NDArray[np.int64]
    distances: NDArray[np.float32]
    votes: NDArray[np.int32]
    log_probabilities: NDArray[np.float32]
    probed: NDArray[np.int32]
    candidates: NDArray[np.int32]
    found: int
    read: int
    chosen: int
    level: float
    exact: bool
    strange: bool
    seconds: tuple[float, float, float, float]

@final
class VectorSearcher:
    @overload
    def __init__(self, layout: Any) -> None: ...
    @overload
    def __init__(
        self,
        base: VectorSearcher,
        items: int,
        runs: list[Any],
        vectors: list[NDArray[np.float32]],
        bytes: list[NDArray[np.int8]],
        lengths: list[NDArray[np.float32]],
    ) -> None: ...
    def search(
        self,
        queries: NDArray[np.float32],
        plan: SearchPlan,
        allowed: NDArray[np.bool_] | None,
        rows: NDArray[np.int32] | None,
        removed: NDArray[np.bool_] | None,
        ids: NDArray[np.int64] | None,
        form: int,
        first: int,
        last: int,
        distances: NDArray[np.float32],
        items: NDArray[np.int64],
        work: NDArray[np.int64] | None = ...,
        routed: NDArray[np.float32] | None = ...,
    ) -> int: ...
    def search_one(
        self,
        query: NDArray[np.float32],
        plan: SearchPlan,
        ids: NDArray[np.int64],
        form: int,
        distances: NDArray[np.float32],
        items: NDArray[np.int64],
        allowed: NDArray[np.bool_] | None = ...,
        rows: NDArray[np.int32] | None = ...,
        removed: NDArray[np.bool_] | None = ...,
    ) -> bool: ...
    def route(self, queries: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write the log-probabilities (n, R, B) of all buckets."""

    def route_part(
        self,
        query: NDArray[np.float32],
        plan: SearchPlan,
        form: int,
        first: int,
        last: int,
        out: NDArray[np.float32],
    ) -> None:
        """Write the log-probabilities of some repetitions of one query (d,) into `out` (R, B)."""

    def explain(
        self,
        query: NDArray[np.float32],
        plan: SearchPlan,
        allowed: NDArray[np.bool_] | None,
        rows: NDArray[np.int32] | None,
        removed: NDArray[np.bool_] | None = ...,
    ) -> Explained: ...

# --- dense rows --------------------------------------------------------------------------------

def multiply_rows(
    rows: NDArray[np.float32],
    matrix: NDArray[np.float32],
    bias: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write rows (n, d) @ matrix (d, w) + bias (w,) to `out`."""

def normalize_rows(rows: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write the rows (n, d) scaled to unit length. A row that is not finite becomes NaN."""

def add_rows(
    rows: NDArray[np.float32], groups: NDArray[np.int64], sums: NDArray[np.float64]
) -> None:
    """Add each row (n, d) to the row of `sums` (w, d) that its group (n,) names."""

@final
class Panels:
    """A matrix (w, d) that rows are multiplied with, and what is added for each of its rows."""

    def __init__(self, matrix: NDArray[np.float32], offsets: NDArray[np.float32]) -> None: ...
    def find_best(self, rows: NDArray[np.float32], best: NDArray[np.int64]) -> None:
        """Write the place of the largest of rows (n, d) @ matrix.T + offsets for each row."""

    def score(self, rows: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write rows (n, d) @ matrix.T + offsets (n, w)."""

# --- training ----------------------------------------------------------------------------------

@final
class TrainingQueries:
    """Dense queries (n, d), or the arrays of a CSR."""

    def __init__(
        self,
        dense: NDArray[np.float32] | None,
        starts: NDArray[np.int64] | None,
        columns: NDArray[np.int32] | None,
        values: NDArray[np.float32] | None,
        dim: int,
    ) -> None: ...

@final
class TrainingPairs:
    """The relevant items of queries: the arrays of a CSR (n, count)."""

    def __init__(
        self,
        starts: NDArray[np.int64],
        items: NDArray[np.int32] | NDArray[np.int64],
        weights: NDArray[np.float32],
        count: int,
    ) -> None: ...

@final
class Trainer:
    """A network, and what training it needs. Names of arrays: see `native/trainer.h`."""

    def __init__(
        self, dim: int, linear: int, width: int, heads: int, buckets: int, sparse: bool
    ) -> None: ...
    def write(self, name: str, values: NDArray[np.float32]) -> None: ...
    def read(self, name: str, values: NDArray[np.float32]) -> None: ...
    def set_scale(self, scale: float) -> None: ...
    def soften(self, near: float, most: float, slope: float) -> None: ...
    def train(
        self,
        queries: TrainingQueries,
        pairs: TrainingPairs,
        assignments: list[NDArray[np.int32]],
        noise: NDArray[np.float32] | None,
        seed: int,
        loss: int,
        rows: NDArray[np.int64],
        first: int,
        batch: int,
        rates: NDArray[np.float64],
        steps_before: int,
        threads: int,
        losses: NDArray[np.float64],
    ) -> int:
        """Take a step for each batch of rows. Return after a while: how many rows were used."""

    def score(
        self,
        queries: TrainingQueries,
        head: int,
        rows: NDArray[np.int64],
        logits: NDArray[np.float32],
    ) -> None:
        """Write the logits (n, B) of one head for some of the queries."""

# --- learning ----------------------------------------------------------------------------------

def rank_buckets(
    items: NDArray[np.int64],
    allowed: NDArray[np.bool_],
    other_buckets: NDArray[np.int32],
    other_suits: NDArray[np.float32],
    held: NDArray[np.int32],
    item_weight: NDArray[np.float32],
    indptr: NDArray[Any],  # int32 or int64
    queries: NDArray[Any],
    weights: NDArray[np.float32],
    best_buckets: NDArray[Any],  # uint16 or int32
    best_chances: NDArray[np.float32],
    factors: NDArray[np.float32],
    ranking: NDArray[np.int32],
    lead: NDArray[np.float32],
) -> None: ...
def place_least_loaded(
    order: NDArray[np.int64],
    best: NDArray[np.int32],
    loads: NDArray[np.int64],
    chosen: NDArray[np.int32],
) -> None:
    """Put each item, in this order, into the least loaded of its best buckets (section 3.2).

    `best` (n, K) holds the best buckets, padded with -1. `loads` (B,) is updated. `chosen` (n,) is
    written.
    """

def place_bounded(
    order: NDArray[np.int64],
    rows: NDArray[np.int64],
    best: NDArray[np.int32],
    limit: int,
    loads: NDArray[np.int64],
    taken: NDArray[np.int32],
    chosen: NDArray[np.int32],
) -> None:
    """Put each item, in this order, into its best bucket that has room.

    The best buckets of item order[n] are best[rows[n]]. The bucket taken[item] is skipped. If no
    bucket has room, chosen[item] is left as it is.
    """

def find_top_k(
    scores: NDArray[np.float32], values: NDArray[np.float32], columns: NDArray[np.int64]
) -> None: ...
def search_clusters(
    queries: NDArray[np.float32],
    skip: NDArray[np.int64],
    items: NDArray[np.float32],
    centre: NDArray[np.float32],
    order: NDArray[np.int64],
    ends: NDArray[np.int64],
    asking: NDArray[np.int64],
    starts: NDArray[np.int64],
    first: int,
    last: int,
    values: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Merge the items of the clusters from `first` to `last` into the best so far (n, k).

    Cluster c has the rows order[ends[c] : ends[c + 1]] of `items` (N, d), and is searched for the
    rows asking[starts[c] : starts[c + 1]] of `queries` (n, d), which are less the centre. Ids are
    places in `order`, and scores are those of the smallest distance.
    """

def merge_best(
    scores: NDArray[np.float32],
    first: int,
    skip: NDArray[np.int64],
    values: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Merge the scores (n, width) of ids `first`, `first` + 1, ... into the best so far (n, k).

    The id skip[i] is left out of row i. Of equal scores the smaller id is better.
    """

def log_sum_exps(scores: NDArray[np.float32], sums: NDArray[np.float32]) -> None: ...
def find_codes(
    x: NDArray[np.float32], codewords: NDArray[np.float32], codes: NDArray[np.uint8]
) -> None:
    """Write the nearest of the codewords (M, s, 16) of vectors (n, M s) to `codes` (n, M)."""

def improve_codes(
    x: NDArray[np.float32],
    along: NDArray[np.float32],
    codewords: NDArray[np.float32],
    eta: float,
    codes: NDArray[np.uint8],
) -> None:
    """Improve codes (n, M), piece by piece. An error along the vector counts `eta` times."""

def improve_codewords(
    x: NDArray[np.float32],
    along: NDArray[np.float32],
    codes: NDArray[np.uint8],
    eta: float,
    codewords: NDArray[np.float32],
) -> None:
    """Move the codewords (M, 16, s) to where the loss of their vectors is smallest."""

def fill_blocks(
    codes: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    items: NDArray[np.int32],
    starts: NDArray[np.int64],
    blocks: NDArray[np.uint8],
) -> None:
    """Write codes (N, M) into blocks (blocks, M / 2, 32), bucket by bucket."""

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
        min_votes: int = ...,
        near: int = ...,
        by_votes: float = ...,
        own: bool = ...,
        complete: int = ...,
    ) -> None: ...
    @property
    def k(self) -> int: ...
    @property
    def probes(self) -> int: ...
    @property
    def candidates(self) -> int: ...
    @property
    def near(self) -> int: ...
    @property
    def by_votes(self) -> float: ...
    @property
    def own(self) -> bool: ...
    @property
    def complete(self) -> int: ...
    @property
    def score(self) -> int: ...
    @property
    def by_margin(self) -> float: ...
    @property
    def by_score(self) -> float: ...
    @property
    def threshold(self) -> float: ...
    @property
    def min_votes(self) -> int: ...

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
        logits: NDArray[np.float32] | None = None,
    ) -> int: ...
    def route_part(self, routed: Csr, first: int, last: int, out: NDArray[np.float32]) -> None:
        """Write the logits of some repetitions of one row into `out` (R, B)."""

    def list_candidates(
        self,
        routed: Csr,
        ranked: Csr,
        plan: LabelPlan,
        first: int,
        last: int,
        labels: NDArray[np.int64],
        scores: NDArray[np.float32],
        margins: NDArray[np.float32],
        votes: NDArray[np.float32],
    ) -> int: ...

# --- learning on labels ------------------------------------------------------------------------

def are_ordered_rows(
    indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], columns: int
) -> bool: ...
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
    start_indptr: NDArray[np.int64],
    start_features: NDArray[np.int32],
    start_values: NDArray[np.float32],
    cost: float,
    importance: NDArray[np.float32],
    prune: float,
    bias: NDArray[np.float32],
    seed: int,
    passes: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]: ...
def pack_weights(
    indptr: NDArray[np.int64],
    labels: NDArray[np.int32],
    data: NDArray[np.float32],
    label_count: int,
) -> tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[np.int8], NDArray[np.float32]]: ...
def find_best_outputs(
    first: int,
    last: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    starts: NDArray[np.int64],
    gaps: NDArray[np.uint16],
    weights: NDArray[np.int8],
    scale: NDArray[np.float32],
    constant: NDArray[np.float32],
    itself: NDArray[np.int64],
    values: NDArray[np.float32],
    outputs: NDArray[np.int64],
) -> None: ...

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
