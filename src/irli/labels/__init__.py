"""LabelIndex: extreme multi-label classification over feature rows or texts."""

from irli.labels.index import LabelIndex, Prediction
from irli.labels.parameters import LabelParameters
from irli.labels.text import Names, Vectorizer
from irli.labels.tune import LabelTuneResult

__all__ = [
    "LabelIndex",
    "LabelParameters",
    "LabelTuneResult",
    "Names",
    "Prediction",
    "Vectorizer",
]
