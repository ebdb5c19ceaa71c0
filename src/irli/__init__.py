"""irli: a learned index. Small networks route queries to balanced buckets of items.

What is exported here is imported when it is first used: `import irli` itself takes no time, and a
process that only searches imports nothing of learning.

>>> import irli
>>> index = irli.VectorIndex("cosine")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irli import errors
    from irli.base.ids import Deny
    from irli.base.recipe import Recipe, recipe
    from irli.base.threads import set_threads
    from irli.errors import (
        ClusterError,
        DeadlineExceeded,
        DimensionMismatch,
        FormatError,
        IncompatibleVersion,
        IndexInUse,
        InvalidParameter,
        IrliError,
        IrliWarning,
        MissingDependency,
        NoAttributeYet,
        NotFitted,
        NotInShards,
        ShardUnavailable,
        StorageError,
    )
    from irli.labels.front import Prediction
    from irli.labels.index import LabelIndex
    from irli.loading import load, open
    from irli.store.filters import field
    from irli.vectors.index import VectorIndex
    from irli.vectors.parameters import SearchParameters
    from irli.vectors.results import RangeResult, SearchResult
    from irli.versions import show_versions

__version__ = "0.1.0"

__all__ = [
    "ClusterError",
    "DeadlineExceeded",
    "Deny",
    "DimensionMismatch",
    "FormatError",
    "IncompatibleVersion",
    "IndexInUse",
    "InvalidParameter",
    "IrliError",
    "IrliWarning",
    "LabelIndex",
    "MissingDependency",
    "NoAttributeYet",
    "NotFitted",
    "NotInShards",
    "Prediction",
    "RangeResult",
    "Recipe",
    "SearchParameters",
    "SearchResult",
    "ShardUnavailable",
    "StorageError",
    "VectorIndex",
    "errors",
    "field",
    "load",
    "open",
    "recipe",
    "set_threads",
    "show_versions",
]

_HOME = {
    "Deny": "irli.base.ids",
    "LabelIndex": "irli.labels.index",
    "Prediction": "irli.labels.front",
    "RangeResult": "irli.vectors.results",
    "Recipe": "irli.base.recipe",
    "SearchParameters": "irli.vectors.parameters",
    "SearchResult": "irli.vectors.results",
    "VectorIndex": "irli.vectors.index",
    "field": "irli.store.filters",
    "load": "irli.loading",
    "open": "irli.loading",
    "recipe": "irli.base.recipe",
    "set_threads": "irli.base.threads",
    "show_versions": "irli.versions",
}
_ROOMS = ("base", "cluster", "engine", "errors", "labels", "learning", "store", "vectors")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"irli.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'irli' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME.get(name, "irli.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
