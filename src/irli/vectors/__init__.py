"""VectorIndex: nearest-neighbour search over vectors, and the readers of vector files."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irli.base.vector_files import (
        AnnBenchmark,
        read_ann_benchmark,
        read_glove,
        read_ground_truth,
        read_vectors,
        write_vectors,
    )
    from irli.vectors.index import VectorIndex
    from irli.vectors.parameters import SearchParameters
    from irli.vectors.results import RangeResult, SearchResult
    from irli.vectors.searcher import Explanation
    from irli.vectors.tune_result import TuneResult

__all__ = [
    "AnnBenchmark",
    "Explanation",
    "RangeResult",
    "SearchParameters",
    "SearchResult",
    "TuneResult",
    "VectorIndex",
    "read_ann_benchmark",
    "read_glove",
    "read_ground_truth",
    "read_vectors",
    "write_vectors",
]

_HOME = {
    "Explanation": "irli.vectors.searcher",
    "RangeResult": "irli.vectors.results",
    "SearchParameters": "irli.vectors.parameters",
    "SearchResult": "irli.vectors.results",
    "TuneResult": "irli.vectors.tune_result",
    "VectorIndex": "irli.vectors.index",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used. A search needs no readers and no tuning."""
    if name not in __all__:
        raise AttributeError(f"module 'irli.vectors' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME.get(name, "irli.base.vector_files")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
