"""LabelIndex: extreme multi-label classification over feature rows or texts."""

from irli.labels.explain import LabelExplanation, RowExplanation
from irli.labels.front import Prediction
from irli.labels.index import LabelIndex
from irli.labels.parameters import LabelParameters
from irli.labels.text.vectorizer import Names, Vectorizer
from irli.labels.tuning.tune import LabelTuneResult

__all__ = [
    "LabelExplanation",
    "LabelIndex",
    "LabelParameters",
    "LabelTuneResult",
    "Names",
    "Prediction",
    "RowExplanation",
    "Vectorizer",
]
