"""ReadsTexts: what an index that was fitted on texts does with texts, in shards or not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import warn
from irli.base.types import Sparse
from irli.errors import NotFitted
from irli.labels.explain import RowExplanation
from irli.labels.text.vectorizer import Names, Vectorizer, name_labels


class ReadsTexts(ABC):
    """The methods for texts of `LabelIndex` and `ShardedLabelIndex`."""

    predict: Any
    explain: Any
    _fitted: Any

    @property
    @abstractmethod
    def names(self) -> Names | None:
        """The names of the labels, if `fit` was given any."""

    @property
    @abstractmethod
    def vectorizer(self) -> Vectorizer | None:
        """Turns texts into rows of features. It is made by `fit_text`."""

    def predict_text(
        self, texts: Iterable[str], k: int = 5, **options: Any
    ) -> list[list[tuple[str, float]]]:
        """Return the names and probabilities of at most k labels of each text, best first.

        A text without a word that the index knows gets an empty list. A warning says how many such
        texts there are.

        Parameters
        ----------
        **options
            As for `predict`.
        """
        vectorizer, names = self._get_text_model()
        rows = vectorizer.transform(texts, owner="predict_text")
        found, empty = self.predict(rows, k, **options), find_empty(rows)
        found.labels[empty] = -1
        if len(empty):
            warn(describe_empty(len(empty), rows.shape[0]))
        return name_labels(found.scores, found.labels, names)

    def explain_text(self, texts: str | Iterable[str], k: int = 5, **options: Any) -> Any:
        """Return why the k best labels of a text were predicted: see `explain`.

        Parameters
        ----------
        texts : str, or a list of str
            A single text gets one explanation.
        k, **options
            As for `explain`.

        Examples
        --------
        >>> import irli
        >>> pets = ["cat", "dog", "bird"]
        >>> texts = [f"the {pet} {verb}" for pet in pets for verb in ("eats", "naps", "plays")]
        >>> index = irli.LabelIndex(ranker=True)
        >>> index = index.fit_text(texts, [[pet] for pet in pets for _ in "123"])
        >>> best = index.explain_text("My dog plays", k=1).labels[0]
        >>> best.name, best.words[0].word
        ('dog', 'dog')
        """
        vectorizer, _ = self._get_text_model()
        several = [texts] if isinstance(texts, str) else texts
        rows = vectorizer.transform(several, owner="explain_text")
        told = self.explain(rows, k, **options) if rows.shape[0] else []
        empty = find_empty(rows)
        for row in empty:
            told[row] = RowExplanation([])
        if len(empty):
            warn(describe_empty(len(empty), rows.shape[0]))
        return told[0] if isinstance(texts, str) else told

    def features(self, texts: Iterable[str]) -> Sparse:
        """Return texts as rows of features, in the way of `fit_text`."""
        return self._get_text_model()[0].transform(texts, owner="features")

    def _get_text_model(self) -> tuple[Vectorizer, Names]:
        self._fitted()
        if self.vectorizer is None or self.names is None:
            raise NotFitted(
                f"This {type(self).__name__} was fitted on rows of features and cannot read texts. "
                "Turn them into rows of the same features and call predict, or fit the index with "
                "fit_text(texts, labels)."
            )
        return self.vectorizer, self.names


def find_empty(rows: Sparse) -> NDArray[np.int64]:
    """Return the rows without a feature: texts without a known word."""
    return np.flatnonzero(np.diff(rows.indptr) == 0)


def describe_empty(empty: int, texts: int, so: str = "They get no labels.") -> str:
    """Return the warning that some texts have no known word."""
    return (
        f"{empty} of {texts} texts have no word that the index knows. {so} "
        "Are they in the language of the texts that it was fitted on?"
    )
