"""LabelIndex: extreme multi-label classification over feature rows or texts."""

from irli.labels.index import LabelIndex, Prediction
from irli.labels.parameters import LabelParameters
from irli.labels.text import Names, Vectorizer

__all__ = ["LabelIndex", "LabelParameters", "Names", "Prediction", "Vectorizer"]
