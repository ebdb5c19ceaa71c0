"""Turn texts into rows of features, and names of labels into columns."""

from irli.labels.text.vectorizer import Names, Vectorizer, label_matrix

__all__ = ["Names", "Vectorizer", "label_matrix"]
