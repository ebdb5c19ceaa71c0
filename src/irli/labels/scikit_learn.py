"""ActsAsClassifier: what scikit-learn's tools expect of a multi-label classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.checks import check_keywords
from irli.base.index import Configured
from irli.base.types import Sparse
from irli.errors import NoAttributeYet, NotFitted
from irli.labels.given import read_true_labels
from irli.labels.metrics import precision
from irli.labels.parameters import PredictArguments


class ActsAsClassifier(Configured):
    """The classes, scores as sparse arrays, and the quality on rows whose labels are known."""

    predict: Any
    names: Any
    _rank: Any
    _fitted: Any

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels in the order of their columns (L,): their names, or else their numbers."""
        try:
            count = len(self)
        except NotFitted as error:
            raise NoAttributeYet(str(error)) from None
        return np.arange(count) if self.names is None else np.array(list(self.names), dtype=object)

    def decision_function(self, X: Any, k: int = 5, **options: Any) -> Sparse:
        """Return the log-odds of the k best labels of each row: a sparse array (n, L).

        Labels that are not stored were not found. A stored 0 is a score like any other.

        Parameters
        ----------
        X, k, **options
            As for `predict`, without `threshold`.
        """
        known = ("ranker", "threads", *PredictArguments.__annotations__)
        check_keywords(options, known, owner="decision_function")
        ranker, threads = options.pop("ranker", None), options.pop("threads", None)
        scores, labels, _ = self._rank(self._fitted(), _as_batch(X), k, ranker, threads, options)
        return _to_sparse(scores, labels, len(self))

    def predict_proba(self, X: Any, k: int = 5, **options: Any) -> Sparse:
        """Return the probabilities of the k best labels of each row: a sparse array (n, L).

        Parameters
        ----------
        X, k, **options
            As for `predict`.

        Examples
        --------
        >>> import irli
        >>> X = np.eye(3).repeat(4, axis=0)
        >>> index = irli.LabelIndex().fit(X, np.arange(3).repeat(4))
        >>> index.predict_proba(np.eye(3), k=1).toarray().argmax(axis=1)
        array([0, 1, 2])
        """
        found = self.predict(_as_batch(X), k, **options)
        return _to_sparse(found.scores, found.labels, len(self))

    def score(self, X: Any, Y: Any) -> float:
        """Return P@1: the share of rows whose best label is one of theirs. `Y` is as for `fit`."""
        truth = read_true_labels(Y, self._fitted().contents)
        return precision(self.predict(_as_batch(X), 1).labels, truth, 1)


def _as_batch(X: Any) -> Any:
    """Return rows as they are. A single row becomes one of shape (1, d)."""
    given = X if hasattr(X, "ndim") else np.asarray(X)
    return given if given.ndim != 1 else given.reshape(1, -1)


def _to_sparse(values: NDArray[Any], labels: NDArray[np.int64], count: int) -> Sparse:
    """Return the values of the labels found (n, k) as a CSR of shape (n, count)."""
    found = labels >= 0
    order = np.argsort(np.where(found, labels, count), axis=1)
    place = np.take_along_axis(found, order, 1)
    columns = np.take_along_axis(labels, order, 1)[place]
    data = np.take_along_axis(values, order, 1)[place].astype(np.float32)
    starts = np.concatenate([[0], found.sum(axis=1).cumsum()])
    return sp.csr_array((data, columns, starts), shape=(len(labels), count))
