"""irli for big-ann-benchmarks. Copy this folder to neurips23/ood/irli."""

import os

import numpy as np
from benchmark.datasets import DATASETS
from neurips23.ood.base import BaseOODANN

import irli


class Irli(BaseOODANN):
    """An index of irli, searched at the recall that `tune` reaches on held-out vectors.

    Parameters
    ----------
    metric : {"euclidean", "ip", "angular"}
    count : int
        Neighbours that each query will ask for: the search is tuned for them.
    settings : dict
        "recipe" names a recipe, and "training_queries" says how many of the data set's training
        queries to learn from (none, if it has none). All others are changes of the recipe.
    """

    def __init__(self, metric: str, count: int, settings: dict) -> None:
        self._count, self._settings = count, settings
        changes = dict(settings)
        self._training_queries = changes.pop("training_queries", 0)
        recipe = irli.recipe(changes.pop("recipe", "default"), **changes)
        self._index = irli.VectorIndex(metric, recipe=recipe)
        self.name = "irli"

    def fit(self, dataset: str) -> None:
        ds = DATASETS[dataset]()
        queries = None
        if self._training_queries and hasattr(ds, "get_query_train"):
            queries = ds.get_query_train(self._training_queries)
        self._index.fit(ds.get_dataset(), queries=queries)
        self._index.save(self._folder(dataset))

    def load_index(self, dataset: str) -> bool:
        folder = self._folder(dataset)
        if not os.path.exists(os.path.join(folder, "manifest.json")):
            return False
        self._index = irli.VectorIndex.load(folder)
        return True

    def index_files_to_store(self, dataset: str) -> list:
        folder = self._folder(dataset)
        return [folder, "", sorted(os.listdir(folder))]

    def set_query_arguments(self, arguments: dict) -> None:
        self._arguments = arguments
        self._index.tune(arguments["recall"], k=self._count)

    def query(self, X: np.ndarray, k: int) -> None:
        self.res = self._index.search(X, k).ids

    def range_query(self, X: np.ndarray, radius: float) -> None:
        self.res = tuple(self._index.search_range(X, radius))

    def _folder(self, dataset: str) -> str:
        """Return the folder of the index, which its settings name."""
        named = "_".join(f"{key}-{value}" for key, value in sorted(self._settings.items()))
        name = DATASETS[dataset]().short_name()
        folder = os.path.join("data", "indices", self.track(), "irli", name, named)
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        return folder

    def __str__(self) -> str:
        return f"irli({self._settings}, {getattr(self, '_arguments', {})})"
