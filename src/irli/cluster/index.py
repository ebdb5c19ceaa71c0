"""ShardedIndex, the public class: fit, search, tune, save and load vectors in P shards.

Each shard has a slice of the items. Shards learn and search independently of each other, and their
results are merged by distance. With `ray=None` everything runs in this process, otherwise on Ray.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from irli.base.arrays import array_error, check_array, check_finite
from irli.base.checks import (
    as_array,
    as_queries,
    as_vectors,
    check_bool,
    check_float,
    check_int,
    check_k,
)
from irli.base.distance import resolve_metric
from irli.base.folder import SHARDS, check_kind, read_folder, reading
from irli.base.ids import (
    Allowed,
    Deny,
    Ids,
    TextIds,
    are_strings,
    as_id_list,
    check_filters,
    check_items,
    check_known,
    check_mask,
    encode_ids,
    split_filter,
)
from irli.base.index import Configured
from irli.base.logs import describe_few, warn
from irli.base.metrics import load_summary
from irli.base.parts.folders import ShardedContents, check_shards, find_shards, read_checksums
from irli.base.parts.group import PartGroup
from irli.base.recipe import Recipe, as_recipe, read_recipe
from irli.base.strings import Strings
from irli.base.threads import thread_count
from irli.base.types import StrPath
from irli.cluster.build.build import build, check_options, count_step_threads
from irli.cluster.build.vector_job import make_vector_job
from irli.cluster.build.workdir import WorkDir
from irli.cluster.shards.serve import check_deadline, open_parts
from irli.errors import InvalidParameter, NotFitted
from irli.vectors.notebook import show_index
from irli.vectors.parameters import SearchArguments, SearchParameters
from irli.vectors.parts.merge import merge, merge_explanations, merge_ranges
from irli.vectors.parts.part import VectorShard
from irli.vectors.parts.tune import tune_shards
from irli.vectors.range_search import rank_by_distance
from irli.vectors.results import RangeResult, SearchResult
from irli.vectors.searcher import Explanation
from irli.vectors.tune_result import TuneResult


class ShardedResult(SearchResult):
    """Distances and ids, nearest first, and the shards that did not answer (`missing`)."""

    missing: tuple[int, ...] = ()


class ShardedRange(RangeResult):
    """All items within a radius, and the shards that did not answer (`missing`)."""

    missing: tuple[int, ...] = ()


class ShardedIndex(Configured):
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
        self.defaults = SearchParameters()
        self.tuned: TuneResult | None = None
        self._group: PartGroup | None = None
        self._names: TextIds | None = None  # by row, if ids are strings

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
            As for `VectorIndex.fit`. For each shard, the neighbours of a query are among its own
            items.
        **options
            See `LearnOptions`, with these differences. `progress` is one bar over the steps of all
            shards. `threads` is per step; on Ray the default is 1, and a step reserves that many
            CPUs. `checkpoint` is a folder that all machines see, with room for some four times the
            vectors; a second call resumes there. The default is a temporary folder.
            `workers` must be 1, since Ray runs steps in parallel.
        """
        learned = type(self)(**self._given)  # settings may have changed since the last `fit`
        learned._learn(X, ids, queries, relevance, options)
        vars(self).update(vars(learned))
        return self

    def _learn(
        self, X: Any, ids: Any, queries: Any, relevance: Any, options: dict[str, Any]
    ) -> None:
        run = check_options(options)
        text = ids is not None and are_strings(ids)
        workdir = WorkDir(run.checkpoint)
        job, held = make_vector_job(
            workdir.path,
            X,
            None if text else ids,
            queries,
            relevance,
            metric=self.metric,
            recipe=self.recipe,
            shards=self.shards,
            threads=count_step_threads(run, self.ray),
            device=run.device,
        )
        named = encode_ids(ids, job.bounds[-1]) if text else None
        build(job, self.ray, run.progress)
        self.recipe, self._tuning = job.recipe, held
        paths = [job.index(shard) for shard in range(self.shards)]
        self._open(paths, kept=workdir)
        self.defaults = SearchParameters(probes=min(8, job.recipe.buckets))
        self._names = named
        self.tune()

    def _open(self, paths: list[Path], **options: Any) -> None:
        self._group = open_parts(
            paths, VectorShard, ray=self.ray, replicas=self.replicas, **options
        )
        sizes = [facts["stats"]["items"] for facts in self._group.facts]
        self._bounds = np.concatenate([[0], np.cumsum(sizes)])
        self._dim: int = self._group.facts[0]["stats"]["dim"]

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
        group = self._fitted()
        prepared, single = as_queries(queries, self._dim)
        k = check_k(k, len(self), owner="search")
        deadline = check_deadline(deadline, partial, owner="search")
        if threads is not None:
            thread_count(threads)
        chosen = self._choose(parameters)
        filters = self._split_filter(filter, len(prepared))
        arguments = [(prepared, k, chosen, part, threads) for part in filters]
        answers = group.call("search", arguments, deadline, partial)
        distances, rows = merge(answers.values, k, self.metric)
        if chosen.min_votes > 1 and (rows[:, : len(self)] < 0).any():
            warn(describe_few(k, "items", "queries", chosen.min_votes))
        ids = self._name(rows)
        result = ShardedResult(*((distances[0], ids[0]) if single else (distances, ids)))
        result.metric, result.missing = self.metric, answers.missing
        return result

    def _choose(self, given: SearchArguments) -> SearchParameters:
        """Return the parameters of one search. Learned scores of different shards are no match."""
        chosen = self.defaults.replace(**given)
        if chosen.rank != "distance":
            raise InvalidParameter(
                "The 'rank' parameter of search must be 'distance' for a ShardedIndex: each shard "
                f"has its own routers. Got {chosen.rank!r} instead. Use a VectorIndex for it."
            )
        return chosen

    def allow(self, filter: Any) -> Allowed:
        """Prepare a filter that many calls will use: see `VectorIndex.allow`.

        It needs the ids of all items, which it asks the shards for.
        """
        names = Ids(self.ids) if self._names is None else self._names
        return names.prepare(filter)

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
        group = self._fitted()
        prepared, _ = as_queries(queries, self._dim)
        radius = check_float("radius", radius, owner="search_range")
        deadline = check_deadline(deadline, partial, owner="search_range")
        if threads is not None:
            thread_count(threads)
        chosen = self.defaults.replace(**rank_by_distance(parameters))
        filters = self._split_filter(filter, len(prepared))
        arguments = [(prepared, radius, chosen, part, threads) for part in filters]
        answers = group.call("search_range", arguments, deadline, partial)
        lims, distances, rows = merge_ranges(answers.values, self.metric)
        result = ShardedRange(lims, distances, self._name(rows))
        result.metric, result.missing = self.metric, answers.missing
        return result

    def explain(
        self,
        queries: Any,
        k: int = 10,
        *,
        filter: Any = None,
        **given: Unpack[SearchArguments],
    ) -> Explanation:
        """Report the work of a search, summed over all shards.

        Seconds are those of the slowest shard.
        """
        group = self._fitted()
        prepared, _ = as_queries(queries, self._dim)
        k = check_int("k", k, at_least=1, owner="explain")
        chosen = self._choose(given)
        filters = self._split_filter(filter, len(prepared))
        arguments = [(prepared, k, chosen, part) for part in filters]
        answers = group.call("explain", arguments).values
        explanation = merge_explanations(answers, k, self.metric)
        return explanation._replace(ids=self._name(explanation.ids))

    def tune(self, recall: float = 0.95, k: int = 10, queries: Any = None) -> TuneResult:
        """Find the search of least work that reaches `recall` at `k`, and make it the default.

        It is like `VectorIndex.tune`. All shards get the same parameters. The counted work is that
        of a query in all shards.
        """
        group = self._fitted()
        if queries is not None:
            queries = as_vectors(queries, "queries", self._dim)
        tuned = tune_shards(group, self.metric, recall, k, queries, self._tuning)
        vars(self).update(defaults=tuned.parameters, tuned=tuned)
        return tuned

    def _name(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return the ids that users know of those that shards return."""
        return ids if self._names is None else self._names.names(ids)

    def _split_filter(self, filter: Any, queries: int) -> list[Any]:
        """Return the filter of each shard, which may be a list of one for each query."""
        several = split_filter(filter)
        if several is None:
            return self._split_one(filter)
        check_filters(several, queries)
        parts = {id(one): self._split_one(one) for one in several}  # most queries share theirs
        return [[parts[id(one)][shard] for one in several] for shard in range(self.shards)]

    def _split_one(self, filter: Any) -> list[Any]:
        """Return the filter of each shard: its slice of a mask, or else the whole filter."""
        if self._names is not None:
            filter = self._names.allowed(filter)  # shards know their items by row
        if isinstance(filter, Deny):
            return [Deny(part) for part in self._split_one(filter.ids)]
        if filter is None or callable(filter) or isinstance(filter, range):
            return [filter] * self.shards
        if isinstance(filter, Allowed):
            check_items(filter, len(self))
            mask = filter.mask
        else:
            mask = as_array(list(filter) if isinstance(filter, Set) else filter, "filter")
        if mask.dtype != bool:
            return [mask] * self.shards
        check_mask(mask, len(self))
        return [mask[start:stop] for start, stop in pairwise(self._bounds)]

    # --- inspecting ----------------------------------------------------------------------------

    def __len__(self) -> int:
        self._fitted()
        return int(self._bounds[-1])

    def __contains__(self, id: object) -> bool:
        group = self._fitted()
        if self._names is not None:
            return id in self._names
        return isinstance(id, int | np.integer) and any(group.ask("contains", int(id)).values)

    def __repr__(self) -> str:
        settings = f"metric={self.metric!r}, recipe={self.recipe.name!r}"
        if self._group is None:
            return f"ShardedIndex({settings}, {self.shards} shards, not fitted)"
        return (
            f"ShardedIndex({settings}, {len(self)} items, {self.shards} shards, "
            f"{self.recipe.repetitions} x {self.recipe.buckets} buckets each)"
        )

    def _repr_html_(self) -> str:
        if self._group is None:
            return f"<code>{escape(repr(self))}</code>"
        where = "in this process" if self.ray is None else f"on Ray, replicas: {self.replicas}"
        shards = f"{self.shards} {where}"
        return show_index("ShardedIndex", self.stats(), self.tuned, self.loads()[0], shards=shards)

    @property
    def ids(self) -> NDArray[Any]:
        """The ids of all items (N,), in the order of the rows given to `fit`."""
        group = self._fitted()
        if self._names is not None:
            return self._names.all()
        return np.concatenate(group.ask("ids").values)

    @property
    def ntotal(self) -> int:
        """The number of items, like `len(index)`. FAISS calls it so."""
        return len(self)

    @property
    def dim(self) -> int:
        """The number of dimensions."""
        self._fitted()
        return self._dim

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """The type of the stored vectors: float32."""
        self._fitted()
        return np.dtype(np.float32)

    def vector(self, ids: Any) -> NDArray[np.float32]:
        """Return the vector of an id (d,), or those of several ids (n, d).

        For cosine, they are of unit length: lengths are not kept.
        """
        group = self._fitted()
        wanted, single = as_id_list(ids)
        rows = wanted
        if self._names is not None:
            rows = self._names.find(wanted)
            check_known(wanted, rows >= 0)
        found = group.ask("find_vectors", rows).values
        check_known(wanted, np.any([known for known, _ in found], axis=0))
        vectors = np.empty((len(wanted), self._dim), dtype=np.float32)
        for known, part in found:
            vectors[known] = part
        return vectors[0] if single else vectors

    @property
    def history(self) -> list[dict[str, Any]]:
        """Loss, recall and loads after each re-partition, shard by shard."""
        return [] if self._group is None else self._group.history

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many items each bucket holds: an array of shape (P B,) for each repetition."""
        each = [facts["loads"] for facts in self._fitted().facts]
        return [np.concatenate(parts) for parts in zip(*each, strict=True)]

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes of all shards together, as plain values."""
        counts = ("items", "buckets", "entries", "router_multiplications")
        sizes = ("bytes", "bytes_vectors", "bytes_codes")
        return self._fitted().sum_stats((*counts, *sizes)) | {
            "kind": SHARDS,
            "shards": self.shards,
            "loads": [load_summary(loads) for loads in self.loads()],
            "defaults": self.defaults.to_json(),
        }

    def _fitted(self) -> PartGroup:
        if self._group is None:
            raise NotFitted("This ShardedIndex is not fitted yet. Call fit(X) or load(path).")
        return self._group

    # --- files ---------------------------------------------------------------------------------

    def save(self, path: StrPath, *, held: bool = True) -> None:
        """Write the index folder `path`. An index that is there already is replaced.

        Each shard writes its own folder within it, so all machines must see `path`. `held` is as
        for `VectorIndex.save`.
        """
        group = self._fitted()
        meta = {
            "metric": self.metric,
            "recipe": dataclasses.asdict(self.recipe),
            "defaults": self.defaults.to_json(),
            "tuned": self.tuned and self.tuned.to_json(),
        }
        kept = check_bool("held", held, owner="save")
        arrays: dict[str, NDArray[Any]] = {
            "tuning_queries": self._tuning if kept else self._tuning[:0]
        }
        if self._names is not None:
            strings = self._names.strings
            arrays |= {"id_bytes": strings.bytes, "id_offsets": strings.offsets}
        contents = ShardedContents(SHARDS, self.shards, meta, arrays)
        group.save(path, contents, **({} if kept else {"held": False}))

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
        folder = read_folder(root, mmap=mmap, verify=verify)
        check_kind(folder, SHARDS)
        with reading():
            paths, sums = find_shards(root, folder), read_checksums(folder)
            metric, recipe = folder.meta["metric"], read_recipe(folder.meta["recipe"])
            defaults = SearchParameters.from_json(folder.meta["defaults"])
            saved = folder.meta["tuned"]
            tuned = TuneResult.from_json(saved) if saved else None
            arrays = folder.arrays
            tuning = np.array(arrays["tuning_queries"])
            _, dim = check_array("tuning_queries", tuning, np.float32, None, None)
            check_finite("tuning_queries", tuning)
            index = cls(metric, recipe=recipe, shards=len(paths), ray=ray, replicas=replicas)
        index.defaults, index.tuned, index._tuning = defaults, tuned, tuning
        index._open(paths, mmap=mmap, verify=verify, sums=sums)
        facts = index._fitted().facts
        check_shards(facts, "metric", [metric] * len(facts))
        check_shards(facts, "dim", [dim] * len(facts))
        check_shards(facts, "repetitions", [facts[0]["stats"]["repetitions"]] * len(facts))
        with reading():
            if "id_bytes" in arrays:
                index._names = index._read_names(arrays["id_bytes"], arrays["id_offsets"])
        return index

    def _read_names(self, bytes: NDArray[Any], offsets: NDArray[Any]) -> TextIds:
        """Return the ids that are strings. Shards know their items by row."""
        starts = [(int(start),) for start in self._bounds[:-1]]
        if not all(self._fitted().call("are_numbered_from", starts).values):
            raise array_error("ids", "be the row numbers, since there are strings", "other numbers")
        return TextIds(Strings.read("id", bytes, offsets, len(self)))

    def close(self) -> None:
        """End the Ray actors that serve the shards. Otherwise they end with this object."""
        if self._group is not None:
            self._group.close()
            self._group = None
