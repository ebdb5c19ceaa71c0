"""VectorIndex: nearest-neighbour search over vectors, and the readers of vector files."""

from irli.base.vector_files import (
    AnnBenchmark,
    read_ann_benchmark,
    read_ground_truth,
    read_vectors,
    write_vectors,
)
from irli.vectors.index import SearchResult, VectorIndex
from irli.vectors.parameters import SearchParameters
from irli.vectors.searcher import Explanation
from irli.vectors.tune import TuneResult

__all__ = [
    "AnnBenchmark",
    "Explanation",
    "SearchParameters",
    "SearchResult",
    "TuneResult",
    "VectorIndex",
    "read_ann_benchmark",
    "read_ground_truth",
    "read_vectors",
    "write_vectors",
]
