"""ShardedIndex: one index over many machines, each with a part of the items.

The items are cut into P shards, which learn and search without a word to each other; their answers
are merged by distance. With `ray=None` all of that happens in this process; otherwise on Ray.
"""

from __future__ import annotations

import dataclasses
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli import clusterfolder, storage
from irli.checks import (
    as_queries,
    as_vectors,
    check_bool,
    check_choice,
    check_float,
    check_int,
)
from irli.clusterbuild import STEPS
from irli.clusterfiles import Room
from irli.clusterfolder import KIND, Contents
from irli.clusterinputs import as_job
from irli.clustermerge import merged, merged_explanations
from irli.clusterrun import build
from irli.clusterserve import Answers, Here, OnRay, Serving
from irli.clustertune import tune_shards
from irli.config import METRICS, Recipe
from irli.config import recipe as named_recipe
from irli.errors import FormatError, InvalidParameter, NotFitted
from irli.metrics import load_summary
from irli.progress import Progress
from irli.searching import Explanation, SearchParameters
from irli.threads import thread_count
from irli.tuning import Tuned
from irli.vectors import SearchResult


class ShardedResult(SearchResult):
    """Distances and ids, nearest first, and the shards that have no part in them."""

    missing: tuple[int, ...] = ()


class ShardedIndex:
    """A vector index in P shards, with the methods of `VectorIndex`.

    Parameters
    ----------
    metric, recipe
        As for `VectorIndex`; the recipe is that of every shard.
    shards : int
        P. Each holds a slice of the items: the first N / P, the next ones, and so on.
    ray : str, optional
        "auto" joins the Ray cluster that runs here or starts one; an address joins that one.
        By default there is no Ray: shards learn and search one after the other in this process.
    replicas : int
        Ray actors that serve each shard.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(2000, 16))
    >>> index = ShardedIndex(shards=2).fit(X)
    >>> index.search(X[990:1010:5], k=3).ids[:, 0]
    array([ 990,  995, 1000, 1005])
    """

    def __init__(
        self,
        metric: str = "l2",
        *,
        recipe: str | Recipe = "default",
        shards: int = 1,
        ray: str | None = None,
        replicas: int = 1,
    ) -> None:
        self.metric = check_choice("metric", metric, METRICS, owner="ShardedIndex")
        self.recipe = recipe if isinstance(recipe, Recipe) else named_recipe(recipe)
        self._asked = self.recipe
        self.shards = check_int("shards", shards, at_least=1, owner="ShardedIndex")
        self.replicas = check_int("replicas", replicas, at_least=1, owner="ShardedIndex")
        self.ray = ray
        self.defaults = SearchParameters()
        self._serving: Serving | None = None
        self._room: Room | None = None  # kept as long as shards may be opened again
        self._facts: list[dict[str, Any]] = []
        self._sums: list[str] = []  # of the shards, where they have been saved

    # --- learning ------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        ids: Any = None,
        queries: Any = None,
        relevance: Any = None,
        *,
        neighbors: Any = None,
        progress: Progress = False,
        threads: int | None = None,
        workers: int = 1,
        device: str = "cpu",
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> ShardedIndex:
        """Learn to index the vectors `X`, and tune the search to recall 0.95 at k = 10.

        Parameters
        ----------
        X : path, list of paths, or array_like of shape (N, d)
            Files that all machines see: .npy, .*bin and .*vecs are mapped; .npy and .*bin may also
            lie in an object store ("s3://..."). An array is written to a file first.
        ids, queries, relevance, device
            As for `VectorIndex.fit`. Each shard learns from its own neighbours of the queries.
        neighbors, workers
            Must be left alone: shards compute their own neighbours, and Ray decides how many steps
            run side by side.
        progress : bool or callable
            One bar over all steps of all shards.
        threads : int
            Of each step; on Ray 1 by default, which is what a step asks the cluster for.
        checkpoint : path, optional
            A folder that all machines see, for working files and finished shards. A second call
            resumes there. By default a temporary one on this machine.
        """
        _check_unused(neighbors, workers)
        room = Room(checkpoint)
        job, held = as_job(
            room.path,
            X,
            ids,
            queries,
            relevance,
            metric=self.metric,
            recipe=self._asked,
            shards=self.shards,
            threads=1 if self.ray is not None and threads is None else thread_count(threads),
            device=device,
        )
        build(job, STEPS, self.ray, progress)
        self.recipe, self._held, self._room, self._sums = job.recipe, held, room, []
        self._serve([job.index(shard) for shard in range(self.shards)], mmap=True, verify=False)
        self.defaults = SearchParameters(probes=min(8, job.recipe.buckets))
        self.tuned = self.tune()
        return self

    def _serve(self, paths: list[Path], mmap: bool, verify: bool) -> None:
        """Open the shards, here or on Ray."""
        self._serving = (
            Here(paths, mmap, verify)
            if self.ray is None
            else OnRay(self.ray, paths, self.replicas, mmap, verify)
        )
        self._facts = self._ask("facts").values
        sizes = [facts["stats"]["items"] for facts in self._facts]
        self._bounds = np.concatenate([[0], np.cumsum(sizes)])

    # --- searching -----------------------------------------------------------------------------

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        probes: int | None = None,
        threshold: float | None = None,
        min_votes: int | None = None,
        candidates: int | None = None,
        score: str | None = None,
        filter: Any = None,
        threads: int | None = None,
        deadline: float | None = None,
        partial: bool = False,
    ) -> ShardedResult:
        """Find the k nearest items of each query in all shards.

        Parameters
        ----------
        queries, k, probes, threshold, min_votes, candidates, score, filter
            As for `VectorIndex.search`. Probes and candidates are those of each shard.
        threads : int
            In each shard.
        deadline : float
            Seconds after which the call ends, with or without all answers.
        partial : bool
            Whether answers without some shards are welcome when these are down or late. Otherwise
            that is an error.

        Returns
        -------
        ShardedResult
            As from `VectorIndex.search`; `missing` names the shards that did not answer.
        """
        self._fitted()
        prepared, single = as_queries(queries, self._facts[0]["stats"]["dim"])
        k = check_int("k", k, at_least=1, owner="search")
        check_bool("partial", partial, owner="search")
        if threads is not None:
            thread_count(threads)
        if deadline is not None:
            deadline = check_float("deadline", deadline, at_least=0.0, owner="search")
        parameters = self.defaults.changed(probes, threshold, min_votes, candidates, score)
        answers = self._call(
            "search",
            [(prepared, k, parameters, own, threads) for own in self._filters(filter)],
            deadline,
            partial,
        )
        found = merged(answers.values, k, self.metric)
        result = ShardedResult(*((part[0] for part in found) if single else found))
        result.missing = answers.missing
        return result

    def explain(
        self,
        queries: Any,
        k: int = 10,
        *,
        probes: int | None = None,
        threshold: float | None = None,
        min_votes: int | None = None,
        candidates: int | None = None,
        score: str | None = None,
        filter: Any = None,
        threads: int | None = None,
    ) -> Explanation:
        """Report what a search with these arguments does: the work of all shards together.

        Seconds are those of the slowest shard.
        """
        self._fitted()
        prepared, _ = as_queries(queries, self._facts[0]["stats"]["dim"])
        k = check_int("k", k, at_least=1, owner="explain")
        thread_count(threads)
        parameters = self.defaults.changed(probes, threshold, min_votes, candidates, score)
        arguments = [(prepared, k, parameters, own) for own in self._filters(filter)]
        return merged_explanations(self._call("explain", arguments).values, k, self.metric)

    def tune(self, recall: float = 0.95, k: int = 10, queries: Any = None) -> Tuned:
        """Find the cheapest search that reaches `recall` at `k`, and make it the default.

        As `VectorIndex.tune`; all shards get the same parameters, and the seconds are those of a
        batch through all of them.
        """
        self._fitted()
        if queries is not None:
            queries = as_vectors(queries, "queries", self._facts[0]["stats"]["dim"])

        def search(asked: NDArray[np.float32], k: int, parameters: SearchParameters) -> Any:
            arguments = [(asked, k, parameters, None, None)] * self.shards
            return merged(self._call("search", arguments).values, k, self.metric)

        tuned = tune_shards(
            self._ask, search, self.shards, self.metric, recall, k, queries, self._held
        )
        self.defaults = tuned.parameters
        return tuned

    def nearest(self, queries: Any, k: int = 10) -> SearchResult:
        """Return the true k nearest items of each query, by comparing it with all of them."""
        self._fitted()
        asked = as_vectors(queries, "queries", self._facts[0]["stats"]["dim"])
        k = check_int("k", k, at_least=1, owner="nearest")
        return merged(self._ask("nearest", asked, k).values, k, self.metric)

    def _filters(self, filter: Any) -> list[Any]:
        """Return what each shard gets of a filter: its slice of a mask, all of a list of ids."""
        mask = None if filter is None else np.asarray(getattr(filter, "ids", filter))
        if mask is None or mask.dtype != bool or mask.shape != (len(self),):
            return [filter] * self.shards
        return [mask[start:stop] for start, stop in pairwise(self._bounds)]

    def _ask(self, method: str, *arguments: Any, each: bool = False) -> Answers:
        """Call all shards with the same arguments, or with a first one of its own for each."""
        if not each:
            return self._call(method, [arguments] * self.shards)
        first, *rest = arguments
        return self._call(method, [(own, *rest) for own in first])

    def _call(
        self,
        method: str,
        arguments: list[tuple[Any, ...]],
        deadline: float | None = None,
        partial: bool = False,
    ) -> Answers:
        return self._fitted().call(method, arguments, deadline, partial)

    # --- looking -------------------------------------------------------------------------------

    def __len__(self) -> int:
        self._fitted()
        return int(self._bounds[-1])

    def __contains__(self, id: object) -> bool:
        self._fitted()
        if not isinstance(id, int | np.integer):
            return False
        return any(self._ask("contains", int(id)).values)

    def __repr__(self) -> str:
        settings = f"metric={self.metric!r}, recipe={self.recipe.name!r}"
        if self._serving is None:
            return f"ShardedIndex({settings}, {self.shards} shards, not fitted)"
        return (
            f"ShardedIndex({settings}, {len(self)} items, {self.shards} shards, "
            f"{self.recipe.repetitions} x {self.recipe.buckets} buckets each)"
        )

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids of all items (N,), in the order in which `fit` got them."""
        return np.concatenate(self._ask("ids").values)

    @property
    def history(self) -> list[dict[str, Any]]:
        """How learning went, shard by shard."""
        return [
            entry | {"shard": shard}
            for shard, facts in enumerate(self._facts)
            for entry in facts["history"]
        ]

    def loads(self) -> list[NDArray[np.int64]]:
        """Return the loads of the buckets of all shards, (P B,) for each repetition."""
        self._fitted()
        each = [facts["loads"] for facts in self._facts]
        return [np.concatenate(parts) for parts in zip(*each, strict=True)]

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and bytes of all shards together as plain values."""
        self._fitted()
        each: list[dict[str, Any]] = [facts["stats"] for facts in self._facts]
        summed = ("items", "buckets", "entries", "router_multiplications", "bytes", "bytes_vectors")
        return (
            each[0]
            | {name: sum(stats[name] for stats in each) for name in summed}
            | {
                "kind": KIND,
                "shards": self.shards,
                "loads": [load_summary(loads) for loads in self.loads()],
                "defaults": dataclasses.asdict(self.defaults),
            }
        )

    def _fitted(self) -> Serving:
        if self._serving is None:
            raise NotFitted("This ShardedIndex is not fitted yet. Call fit(X) or load(path).")
        return self._serving

    # --- files ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the folder `path`, replacing an index that is there already.

        The shards write themselves, each to a folder within it: all machines must see it.
        """
        self._fitted()

        def save_shards(folders: list[str]) -> list[str]:
            return self._call("save", [(folder,) for folder in folders]).values

        meta = {
            "metric": self.metric,
            "recipe": dataclasses.asdict(self.recipe),
            "defaults": dataclasses.asdict(self.defaults),
        }
        contents = Contents(KIND, self.shards, meta, {"held": self._held})
        root = Path(path).resolve()
        self._sums = clusterfolder.write(root, contents, save_shards, self._sums)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        ray: str | None = None,
        replicas: int = 1,
        mmap: bool = True,
        verify: bool = True,
    ) -> ShardedIndex:
        """Open the folder `path`, on Ray or in this process; `irli.load` opens it in this one.

        Parameters
        ----------
        ray, replicas
            As for the constructor. All machines must see the folder.
        mmap, verify
            As for `irli.load`.
        """
        root = Path(path).resolve()
        folder = storage.read_folder(root, mmap=False, verify=verify)
        if folder.kind != KIND:
            raise FormatError(
                f"{path} must hold an index in shards. Got one of kind '{folder.kind}' instead. "
                "Open it with irli.load."
            )
        paths = clusterfolder.shard_paths(root, folder)
        index = cls(
            folder.meta["metric"],
            recipe=Recipe(**folder.meta["recipe"]),
            shards=len(paths),
            ray=ray,
            replicas=replicas,
        )
        index._held = folder.arrays["held"]
        index._sums = [entry["checksum"] for entry in folder.meta["shards"]]
        index._serve(paths, mmap, verify)
        index.defaults = SearchParameters(**folder.meta["defaults"])
        return index

    def close(self) -> None:
        """End the actors that serve the shards; without it they end with this object."""
        if self._serving is not None:
            self._serving.close()
            self._serving = None


def _check_unused(neighbors: Any, workers: int) -> None:
    if neighbors is not None:
        raise InvalidParameter(
            "The 'neighbors' parameter of fit must be None for a sharded index, whose shards learn "
            f"from neighbours among their own items. Got {type(neighbors).__name__} instead. "
            "Leave it out."
        )
    check_int("workers", workers, at_least=1, at_most=1, owner="fit of a sharded index")
