"""irli for ann-benchmarks. Copy this folder to ann_benchmarks/algorithms/irli."""

import numpy

import irli

from ..base.module import BaseANN


class Irli(BaseANN):
    """An index of irli, searched at the recall that `tune` reaches on held-out base vectors.

    Parameters
    ----------
    metric : {"euclidean", "angular"}
    count : int
        Neighbours that each query will ask for: the search is tuned for them.
    settings : dict
        "recipe" names a recipe. All others are changes of its settings.
    """

    def __init__(self, metric: str, count: int, settings: dict) -> None:
        self._count, self._settings = count, settings
        changes = dict(settings)
        recipe = irli.recipe(changes.pop("recipe", "default"), **changes)
        self._index = irli.VectorIndex(metric, recipe=recipe)
        self.name = f"irli({settings})"

    def fit(self, X: numpy.ndarray) -> None:
        self._index.fit(X)

    def set_query_arguments(self, recall: float) -> None:
        self._index.tune(recall, k=self._count)
        self.name = f"irli({self._settings}, recall={recall})"

    def query(self, q: numpy.ndarray, n: int) -> numpy.ndarray:
        ids = self._index.search(q, n, threads=1).ids
        return ids[ids >= 0]

    def batch_query(self, X: numpy.ndarray, n: int) -> None:
        self.res = [ids[ids >= 0] for ids in self._index.search(X, n).ids]
