"""LabelIndex: labels without vectors."""

from irli.labels.index import LabelIndex, Prediction
from irli.labels.parameters import LabelParameters
from irli.labels.text import Names, Vectorizer

__all__ = ["LabelIndex", "LabelParameters", "Names", "Prediction", "Vectorizer"]
