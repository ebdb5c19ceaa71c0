"""irli: a learned index. Small networks route queries to balanced buckets of items.

>>> import irli
>>> index = irli.VectorIndex("cosine")
"""

import logging

from irli.config import Recipe, recipe
from irli.errors import IrliError
from irli.filters import Deny
from irli.index import load
from irli.labels import LabelIndex, Prediction
from irli.threads import set_threads
from irli.vectors import SearchResult, VectorIndex

logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.1.0"

__all__ = [
    "Deny",
    "IrliError",
    "LabelIndex",
    "Prediction",
    "Recipe",
    "SearchResult",
    "VectorIndex",
    "load",
    "recipe",
    "set_threads",
]
