"""ShardedIndex, the public class: fit, search, tune, save and load vectors in P shards.

Each shard has a slice of the items. Shards learn and search independently of each other, and their
results are merged by distance. With `ray=None` everything runs in this process, otherwise on Ray.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from irli.base.arrays import array_error, check_array, check_finite
from irli.base.checks import check_bool, check_int
from irli.base.distance import resolve_metric
from irli.base.folder import SHARDS, Folder, check_kind, read_folder, reading, retry_if_replaced
from irli.base.ids import TextIds, are_strings, encode_ids
from irli.base.parts.group import check_shards
from irli.base.recipe import Recipe, as_recipe, read_recipe
from irli.base.strings import Strings
from irli.base.types import StrPath
from irli.cluster.build.build import build, check_options, count_step_threads
from irli.cluster.build.vector_job import make_vector_job
from irli.cluster.build.workdir import WorkDir
from irli.cluster.shards.serve import check_deadline, open_parts
from irli.vectors.front import RECALL, K, VectorFront
from irli.vectors.parameters import SearchArguments, SearchParameters
from irli.vectors.parts.part import open_part
from irli.vectors.parts.several import VectorParts
from irli.vectors.results import RangeResult, SearchResult
from irli.vectors.tune_result import TuneResult


class ShardedResult(SearchResult):
    """Distances and ids, nearest first, and the shards that did not answer (`missing`)."""

    missing: tuple[int, ...] = ()


class ShardedRange(RangeResult):
    """All items within a radius, and the shards that did not answer (`missing`)."""

    missing: tuple[int, ...] = ()


class ShardedIndex(VectorFront[VectorParts]):
    """A vector index in P shards, with the methods of `VectorIndex`.

    Parameters
    ----------
    metric, recipe
        As for `VectorIndex`, but by default shards always learn. All use the same recipe.
    shards : int
        P. Each shard holds N / P consecutive items.
    ray : str, optional
        "auto" joins the Ray cluster on this machine, or starts one. An address joins the cluster
        there. By default, shards learn and search one after the other in this process.
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
        self._given = {
            "metric": metric,
            "recipe": recipe,
            "shards": shards,
            "ray": ray,
            "replicas": replicas,
        }
        self.metric = resolve_metric(metric, owner="ShardedIndex")
        self.recipe = as_recipe(recipe)  # `fit` resolves it for its data
        self.shards = check_int("shards", shards, at_least=1, owner="ShardedIndex")
        self.replicas = check_int("replicas", replicas, at_least=1, owner="ShardedIndex")
        self.ray = ray

    # --- learning ------------------------------------------------------------------------------

    def fit(
        self, X: Any, ids: Any = None, queries: Any = None, relevance: Any = None, **options: Any
    ) -> ShardedIndex:
        """Learn an index of the vectors `X`, and tune the search to recall 0.95 at k = 10.

        Parameters
        ----------
        X : path, list of paths, or array_like of shape (N, d)
            Files must be visible to all machines. .npy, .*bin and .*vecs files are memory-mapped.
            .npy and .*bin files may also be in an object store ("s3://..."). An array is written to
            a file first, in `checkpoint` or in the temporary folder.
        ids, queries, relevance
            As for `VectorIndex.fit`. `queries` may also be files, which each step reads by itself.
            For each shard, the neighbours of a query are among its own items.
        **options
            See `LearnOptions`, with these differences. `progress` is one bar over the steps of all
            shards. `threads` is per step; on Ray the default is 1, and a step reserves that many
            CPUs. `checkpoint` is a folder that all machines see, with room for some four times the
            vectors; a second call resumes there. The default is a temporary folder.
            `workers` must be 1, since Ray runs steps in parallel.
        """
        run, given = check_options(options), self._given  # settings may have changed
        ray, replicas = given["ray"], given["replicas"]
        text = ids is not None and are_strings(ids)
        workdir = WorkDir(run.checkpoint)
        job, held = make_vector_job(
            workdir.path,
            X,
            None if text else ids,
            queries,
            relevance,
            metric=resolve_metric(given["metric"]),
            recipe=as_recipe(given["recipe"]),
            shards=given["shards"],
            threads=count_step_threads(run, ray),
            device=run.device,
        )
        named = encode_ids(ids, job.bounds[-1]) if text else None
        build(job, ray, run.progress)
        paths = [job.index(shard) for shard in range(job.shards)]
        group = open_parts(paths, open_part, ray=ray, replicas=replicas, kept=workdir)
        engine = VectorParts(group, held, named)
        tuned = engine.tune(RECALL, K, None)
        return self._take_over(
            engine,
            recipe=job.recipe,
            shards=job.shards,
            ray=ray,
            replicas=replicas,
            defaults=tuned.parameters,
            tuned=tuned,
        )

    # --- searching -----------------------------------------------------------------------------

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        filter: Any = None,
        threads: int | None = None,
        deadline: float | None = None,
        partial: bool = False,
        **parameters: Unpack[SearchArguments],
    ) -> ShardedResult:
        """Find the k nearest items of each query in all shards.

        Parameters
        ----------
        queries, k, filter, **parameters
            As for `VectorIndex.search`. `probes` and `candidates` apply to each shard.
        threads : int
            Threads in each shard.
        deadline : float
            Seconds after which the call ends, even if shards have not answered. Without it, shards
            that work may take any time, and those that are down have 30 seconds to come back.
        partial : bool
            Whether to return results without the shards that are down or late. If False, they
            raise an error.

        Returns
        -------
        ShardedResult
            As for `VectorIndex.search`. `missing` lists the shards that did not answer.
        """
        engine = self._within(deadline, partial, owner="search")
        found = self._search(engine, queries, k, filter, threads, parameters)
        result = ShardedResult(*found)
        result.metric, result.missing = self.metric, engine.missing
        return result

    def _within(self, deadline: float | None, partial: bool, *, owner: str) -> VectorParts:
        return self._fitted().within(check_deadline(deadline, partial, owner=owner), partial)

    def search_range(
        self,
        queries: Any,
        radius: float,
        *,
        filter: Any = None,
        threads: int | None = None,
        deadline: float | None = None,
        partial: bool = False,
        **parameters: Unpack[SearchArguments],
    ) -> ShardedRange:
        """Find all items within a radius of each query, in all shards.

        Parameters
        ----------
        queries, radius, filter, **parameters
            As for `VectorIndex.search_range`.
        threads, deadline, partial
            As for `search`.
        """
        engine = self._within(deadline, partial, owner="search_range")
        result = ShardedRange(
            *self._search_range(engine, queries, radius, filter, threads, parameters)
        )
        result.metric, result.missing = self.metric, engine.missing
        return result

    # --- inspecting ----------------------------------------------------------------------------

    def _describe(self) -> str:
        if self._engine is None:
            return f"{self.shards} shards, not fitted"
        repetitions, buckets = self.recipe.repetitions, self.recipe.buckets
        each = f"{repetitions} x {buckets} buckets each"
        return f"{len(self)} items, {self.shards} shards, {each}"

    def _list_facts(self) -> dict[str, object]:
        where = "in this process" if self.ray is None else f"on Ray, replicas: {self.replicas}"
        return {"shards": f"{self.shards} {where}"}

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes of all shards together, as plain values."""
        return super().stats() | {"kind": SHARDS, "shards": self.shards}

    # --- files ---------------------------------------------------------------------------------

    def save(self, path: StrPath, *, held: bool = True) -> None:
        """Write the index folder `path`. An index that is there already is replaced.

        Each shard writes its own files, so all machines must see `path`. `held` is as for
        `VectorIndex.save`.
        """
        engine = self._fitted()
        meta = {
            "metric": self.metric,
            "recipe": dataclasses.asdict(self.recipe),
            "defaults": self.defaults.to_json(),
            "tuned": self.tuned and self.tuned.to_json(),
        }
        kept = check_bool("held", held, owner="save")
        arrays: dict[str, NDArray[Any]] = {
            "tuning_queries": engine.held if kept else engine.held[:0]
        }
        if engine.names is not None:
            strings = engine.names.strings
            arrays |= {"id_bytes": strings.bytes, "id_offsets": strings.offsets}
        engine.group.save(path, Folder(SHARDS, meta, arrays, {}), kept)

    @classmethod
    def load(
        cls,
        path: StrPath,
        *,
        ray: str | None = None,
        replicas: int = 1,
        mmap: bool = True,
        verify: bool = True,
    ) -> ShardedIndex:
        """Open the index folder `path`, on Ray or in this process. `irli.load` uses this process.

        Parameters
        ----------
        ray, replicas
            As for the constructor. All machines must see the folder.
        mmap, verify
            As for `irli.load`.
        """
        root = Path(path).resolve()
        options: dict[str, Any] = {"ray": ray, "replicas": replicas, "mmap": mmap, "verify": verify}
        return retry_if_replaced(root, lambda: cls._load(root, **options))

    @classmethod
    def _load(
        cls, root: Path, *, ray: str | None, replicas: int, mmap: bool, verify: bool
    ) -> ShardedIndex:
        folder = read_folder(root, mmap=mmap, verify=verify)
        check_kind(folder, SHARDS)
        with reading():
            paths = [root / part for part in folder.parts]
            metric, recipe = folder.meta["metric"], read_recipe(folder.meta["recipe"])
            defaults = SearchParameters.from_json(folder.meta["defaults"])
            saved = folder.meta["tuned"]
            tuned = TuneResult.from_json(saved) if saved else None
            arrays = folder.arrays
            tuning = np.array(arrays["tuning_queries"])
            _, dim = check_array("tuning_queries", tuning, np.float32, None, None)
            check_finite("tuning_queries", tuning)
            index = cls(metric, recipe=recipe, shards=len(paths), ray=ray, replicas=replicas)
        group = open_parts(paths, open_part, ray=ray, replicas=replicas, mmap=mmap, verify=verify)
        facts = group.facts
        check_shards(facts, "metric", [metric] * len(facts))
        check_shards(facts, "dim", [dim] * len(facts))
        check_shards(facts, "repetitions", [facts[0]["stats"]["repetitions"]] * len(facts))
        engine = VectorParts(group, tuning)
        with reading():
            if "id_bytes" in arrays:
                engine.names = _read_names(engine, arrays["id_bytes"], arrays["id_offsets"])
        return index._take_over(engine, defaults=defaults, tuned=tuned)

    def close(self) -> None:
        """End the Ray actors that serve the shards. Otherwise they end with this object."""
        if self._engine is not None:
            self._engine.group.close()
            self._engine = None


def _read_names(engine: VectorParts, bytes: NDArray[Any], offsets: NDArray[Any]) -> TextIds:
    """Return the ids that are strings. Shards know their items by row."""
    if not engine.are_numbered():
        raise array_error("ids", "be the row numbers, since there are strings", "other numbers")
    return TextIds(Strings.read("id", bytes, offsets, len(engine)))
