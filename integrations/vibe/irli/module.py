"""irli for VIBE. Copy this folder to vibe/algorithms/irli."""

import numpy

import irli

from ..base.module import BaseANN


class Irli(BaseANN):
    """An index of irli, searched at the recall that `tune` reaches on held-out vectors.

    Where a data set has training queries, the index learns from them, and `tune` must reach the
    recall on those that it held out.

    Parameters
    ----------
    metric : {"euclidean", "cosine", "ip", "normalized"}
    count : int
        Neighbours that each query will ask for: the search is tuned for them.
    settings : dict
        "recipe" names a recipe. All others are changes of its settings.
    """

    def __init__(self, metric: str, count: int, settings: dict) -> None:
        self._count, self._settings = count, settings
        changes = dict(settings)
        recipe = irli.recipe(changes.pop("recipe", "default"), **changes)
        # Normalized vectors have the same neighbours by each metric.
        kind = "cosine" if metric == "normalized" else metric
        self._index = irli.VectorIndex(kind, recipe=recipe)
        self.name = f"irli({settings})"

    def fit(self, X: numpy.ndarray) -> None:
        self._index.fit(X)

    def fit_ood(
        self, X: numpy.ndarray, X_learn: numpy.ndarray, X_learn_neighbors: numpy.ndarray
    ) -> None:
        """Learn from the training queries. Their neighbours are not needed: `fit` finds them."""
        self._index.fit(X, queries=X_learn)

    def set_query_arguments(self, recall: float) -> None:
        self._index.tune(recall, k=self._count)
        self.name = f"irli({self._settings}, recall={recall})"

    def query(self, q: numpy.ndarray, n: int) -> numpy.ndarray:
        ids = self._index.search(q, n, threads=1).ids
        return ids[ids >= 0]

    def batch_query(self, X: numpy.ndarray, n: int) -> None:
        self.res = [ids[ids >= 0] for ids in self._index.search(X, n).ids]
