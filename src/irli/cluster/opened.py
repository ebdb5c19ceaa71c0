"""OpenShards: an index in shards whose items change. Each shard is an index folder of its own.

An item belongs to the shard that its id leads to, by a hash that is the same everywhere and for
ever. So a change goes to one shard, a shard can be copied, moved or learned anew alone, and filters
by payload run where the items are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import as_vectors, check_int, check_k
from irli.base.distance import resolve_metric
from irli.base.folder import MANIFEST, OPEN_SHARDS, Folder, read_manifest, write_folder
from irli.base.ids import make_ids
from irli.base.index import Index
from irli.base.parts.group import PartGroup
from irli.base.parts.local import Part
from irli.base.recipe import AUTO, Recipe
from irli.base.types import StrPath
from irli.cluster.index import ShardedRange, ShardedResult
from irli.cluster.shards.serve import check_deadline, open_parts
from irli.errors import InvalidParameter, StorageError
from irli.vectors.changes.changeable import Item, as_id, as_list
from irli.vectors.changes.health import Health
from irli.vectors.index import VectorIndex
from irli.vectors.parts.merge import merge, merge_ranges
from irli.vectors.results import RangeResult

_MULTIPLIER, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)

Options = dict[str, Any]  # of `VectorIndex.open`


def find_shards(ids: NDArray[Any] | list[str], shards: int) -> NDArray[np.int64]:
    """Return the shard of each id (n,). It never changes.

    Examples
    --------
    >>> find_shards(np.arange(6), 3), find_shards(["a", "b", "c"], 3)
    (array([0, 0, 1, 0, 1, 1]), array([2, 1, 0]))
    """
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        mixed = ids.astype(np.int64).view(np.uint64) * _MULTIPLIER
        mixed = (mixed ^ (mixed >> _SHIFT)) * _MULTIPLIER
        return (mixed >> np.uint64(32)).astype(np.int64) % shards
    digests = (hashlib.blake2b(str(id).encode(), digest_size=7).digest() for id in ids)
    return np.array([int.from_bytes(d, "little") % shards for d in digests], dtype=np.int64)


class OpenShard(Part):
    """One shard: a `VectorIndex` in a folder, which changes."""

    def __init__(self, path: str, options: Options) -> None:
        self.index = VectorIndex.open(path, **options)

    def facts(self) -> dict[str, Any]:
        """Return stats, loads and history."""
        part = self.index._fitted()
        return part.facts()

    def apply(self, method: str | None, *arguments: Any) -> Any:
        """Call a method of the index. None is for another shard."""
        return None if method is None else getattr(self.index, method)(*arguments)

    def remove(self, ids: Any, filter: Any) -> int:
        """Remove items by their ids or by a filter. None is for another shard."""
        if ids is None and filter is None:
            return 0
        return self.index.remove(ids, filter=filter)

    def look(self, method: str, *arguments: Any) -> Any:
        """Search, and return plain arrays."""
        *asked, options = arguments
        return tuple(getattr(self.index, method)(*asked, **options))

    def read(self, what: str, ids: Any) -> Any:
        """Return vectors or payloads of ids, or which of them are there."""
        if len(ids) == 0:
            return []
        if what == "there":
            return [id in self.index for id in ids]
        return getattr(self.index, what)(ids)

    def count(self) -> int:
        """Return the number of items."""
        return len(self.index)

    def list_ids(self) -> NDArray[Any]:
        """Return the ids of all items."""
        return self.index.ids

    def largest_id(self) -> int:
        """Return the largest id, or -1."""
        part = self.index._fitted()
        return -1 if part.names is not None else int(part.ids.values.max(initial=-1))


def open_shard(options: Options, path: str, mmap: bool = True, verify: bool = True) -> OpenShard:
    """Open the folder of a shard, with options of `VectorIndex.open`."""
    return OpenShard(path, options)


class OpenShards(Index):
    """A vector index in P shards whose items change, with the methods of such a `VectorIndex`.

    `irli.cluster.open` makes one, or opens it again.

    Examples
    --------
    >>> import tempfile
    >>> from irli.cluster import open_shards
    >>> folder = tempfile.mkdtemp() + "/index"
    >>> with open_shards(folder, metric="l2", dim=1, shards=2) as index:
    ...     ids = index.add([[0.0], [1.0], [2.0]], payloads=[{"n": 1}, {"n": 2}, {"n": 3}])
    ...     index.search([0.2], k=2, filter={"n": {"$gt": 1}}).ids
    array([1, 2])
    """

    def __init__(self, root: Path, group: PartGroup, metric: str, dim: int) -> None:
        self.root, self.metric, self.dim = root, metric, dim
        self._group: PartGroup | None = group

    @property
    def group(self) -> PartGroup:
        """All shards."""
        if self._group is None:
            raise StorageError("The index is closed. Open it again.")
        return self._group

    @property
    def shards(self) -> int:
        """P."""
        return len(self.group)

    # --- changing ------------------------------------------------------------------------------

    def add(self, X: Any, ids: Any = None, payloads: Sequence[Any] | None = None) -> Any:
        """Add items, and return their ids: see `VectorIndex.add`.

        Each shard takes its items in one step. If one of them refuses its own, others may have
        taken theirs: `upsert` can be repeated.
        """
        return self._write("add", X, ids, payloads)

    def upsert(self, X: Any, ids: Any, payloads: Sequence[Any] | None = None) -> Any:
        """Add items, in place of those that have the same ids: see `VectorIndex.upsert`."""
        return self._write("upsert", X, ids, payloads)

    def _write(self, how: str, X: Any, ids: Any, payloads: Sequence[Any] | None) -> Any:
        array = np.asarray(X)
        vectors = as_vectors(array[None] if array.ndim == 1 else array, "X", self.dim)
        if ids is None:
            first = max(self.group.ask("largest_id").values) + 1
            named: Any = np.arange(first, first + len(vectors))
        else:
            named = make_ids(as_list(ids), len(vectors)).all()
        if payloads is not None and len(payloads) != len(vectors):
            raise InvalidParameter(
                f"The 'payloads' parameter of {how} must hold a document, or None, for each of "
                f"{len(vectors)} items. Got {len(payloads)} instead. Pass as many."
            )
        if how == "add":
            there = self._read("there", named)
            if any(there):
                known = named.tolist()[there.index(True)]
                raise InvalidParameter(
                    "The 'ids' parameter of add must hold ids that the index does not have. Got "
                    f"{known!r}, which it has. Use upsert to replace items."
                )
        requests = {}
        for shard, places in self._split(named):
            some = None if payloads is None else [payloads[place] for place in places]
            requests[shard] = how, vectors[places], _take(named, places), some
        self._apply(requests)
        return named

    def remove(self, ids: Any = None, *, filter: Any = None) -> int:
        """Remove items by their ids, or all that a filter allows. Return how many there were."""
        if (ids is None) == (filter is None):
            raise InvalidParameter(
                "The 'ids' parameter of remove, or 'filter', must be given, and not both. Got "
                f"{'none' if ids is None else 'both'} of them. Name the items in one way."
            )
        arguments: list[tuple[Any, Any]] = [(None, filter)] * self.shards
        if ids is not None:
            listed = as_list(ids)
            for shard, places in self._split(listed):
                arguments[shard] = _take(listed, places), None
        return sum(self.group.call("remove", arguments).values)

    def set_payload(self, ids: Any, values: Any) -> None:
        """Give items these values at the top level of their payloads. Others stay."""
        listed = as_list(ids)
        self._apply(
            {
                shard: ("set_payload", _take(listed, places), values)
                for shard, places in self._split(listed)
            }
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
        **parameters: Any,
    ) -> ShardedResult:
        """Find the k nearest items of each query in all shards: see `ShardedIndex.search`.

        A filter is ids, a function, or what payloads must say.
        """
        check_k(k, len(self), owner="search")
        array = np.asarray(queries)
        rows = array[None] if array.ndim == 1 else array
        given = {"filter": _check_filter(filter), "threads": threads, **parameters}
        end = check_deadline(deadline, partial, owner="search")
        asked = [("search", rows, k, given)] * self.shards
        answers = self.group.call("look", asked, end, partial)
        distances, ids = _merge(answers.values, k, self.metric)
        result = ShardedResult(*((distances[0], ids[0]) if array.ndim == 1 else (distances, ids)))
        result.metric, result.missing = self.metric, answers.missing
        return result

    def search_range(
        self, queries: Any, radius: float, *, filter: Any = None, **parameters: Any
    ) -> ShardedRange:
        """Find all items within a radius of each query, in all shards."""
        array = np.asarray(queries)
        rows = array[None] if array.ndim == 1 else array
        given = {"filter": _check_filter(filter), **parameters}
        found = self.group.call("look", [("search_range", rows, radius, given)] * self.shards)
        merged = merge_ranges([RangeResult(*one) for one in found.values], self.metric)
        result = ShardedRange(*merged)
        result.metric = self.metric
        return result

    # --- reading -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(self.group.ask("count").values)

    def __contains__(self, id: object) -> bool:
        found: bool = self._read("there", [as_id(id)])[0]
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ids.tolist())

    @property
    def ids(self) -> NDArray[Any]:
        """The ids of all items, shard by shard."""
        some = [ids for ids in self.group.ask("list_ids").values if len(ids)]
        return np.concatenate(some) if some else np.empty(0, dtype=np.int64)

    def vector(self, ids: Any) -> NDArray[np.float32]:
        """Return the vector of an id (d,), or those of several ids (n, d)."""
        if np.ndim(ids) == 0:
            found: NDArray[np.float32] = self.vector([ids])[0]
            return found
        return np.array(self._read("vector", as_list(ids)), dtype=np.float32)

    def payload(self, ids: Any) -> Any:
        """Return the payload of an id, or a list with those of several ids."""
        if np.ndim(ids) == 0:
            return self.payload([ids])[0]
        return self._read("payload", as_list(ids))

    def get(self, id: Any) -> Item:
        """Return an item with its vector and its payload."""
        [(shard, _)] = self._split([as_id(id)])
        found: Item = self._apply({shard: ("get", as_id(id))})[shard]
        return found

    def health(self) -> list[Health]:
        """Measure each shard."""
        healths: list[Health] = self.group.ask("apply", "health").values
        return healths

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many items each bucket holds: an array of the first repetition by shard."""
        return [loads[0] for loads in self.group.ask("apply", "loads").values]

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes of all shards together, as plain values."""
        each = self.group.ask("apply", "stats").values
        summed = {name: sum(one[name] for one in each) for name in ("items", "entries", "bytes")}
        total: dict[str, Any] = each[0] | summed
        return total | {"kind": OPEN_SHARDS, "shards": self.shards}

    @property
    def history(self) -> list[dict[str, Any]]:
        """Loss, recall and loads after each re-partition of each shard."""
        each = [facts["history"] for facts in self.group.ask("facts").values]
        return [entry | {"shard": shard} for shard, h in enumerate(each) for entry in h]

    def __repr__(self) -> str:
        return f"OpenShards(metric={self.metric!r}, {len(self)} items, {self.shards} shards)"

    # --- staying good --------------------------------------------------------------------------

    def refresh(self, shard: int | None = None) -> None:
        """Let the routers of a shard learn anew, or those of all, one after the other."""
        for one in range(self.shards) if shard is None else [self._check_shard(shard)]:
            self._apply({one: ("refresh",)})

    def compact(self, shard: int | None = None) -> None:
        """Pack the arrays of a shard anew, or those of all."""
        for one in range(self.shards) if shard is None else [self._check_shard(shard)]:
            self._apply({one: ("compact",)})

    def record(self, queries: Any) -> None:
        """Record queries that users have asked, for the routers of all shards to learn from."""
        self.group.ask("apply", "record", queries)

    def snapshot(self, path: StrPath) -> None:
        """Copy the folder of each shard, as it is now. Changes of others may come in between."""
        root = Path(path)
        manifest = read_manifest(self.root)
        write_folder(root, Folder(OPEN_SHARDS, manifest["meta"], {}, {}))
        for shard in range(self.shards):
            self._apply({shard: ("snapshot", str(root / name_shard(shard)))})

    def close(self) -> None:
        """Close all shards. A second call does nothing."""
        if self._group is not None:
            group, self._group = self._group, None
            group.ask("apply", "close")
            group.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- how -----------------------------------------------------------------------------------

    def _apply(self, requests: dict[int, tuple[Any, ...]]) -> list[Any]:
        """Call a method of the index in some shards. Others answer None."""
        arguments = [requests.get(shard, (None,)) for shard in range(self.shards)]
        return self.group.call("apply", arguments).values

    def _check_shard(self, shard: int) -> int:
        return check_int("shard", shard, at_least=0, at_most=self.shards - 1)

    def _split(self, ids: Any) -> list[tuple[int, NDArray[np.int64]]]:
        """Return the shards of ids, and the places of each one's ids."""
        listed = np.asarray(ids) if not _is_text(ids) else list(ids)
        owner = find_shards(listed, self.shards)
        return [(int(shard), np.flatnonzero(owner == shard)) for shard in np.unique(owner)]

    def _read(self, what: str, ids: Any) -> list[Any]:
        """Return what shards know of ids, in the order of the ids."""
        found: list[Any] = [None] * len(ids)
        split = dict(self._split(ids))
        nothing = np.empty(0, dtype=np.int64)
        arguments = [(what, _take(ids, split.get(shard, nothing))) for shard in range(self.shards)]
        answers = self.group.call("read", arguments).values
        for shard, places in split.items():
            for place, value in zip(places.tolist(), answers[shard], strict=True):
                found[place] = value
        return found


def open_shards(
    path: StrPath,
    *,
    metric: str | None = None,
    dim: int | None = None,
    shards: int | None = None,
    recipe: str | Recipe = AUTO,
    ray: str | None = None,
    sync: Literal["full", "normal"] = "full",
    maintain: Literal["auto", "manual"] = "auto",
    writable: bool = True,
) -> OpenShards:
    """Open a folder of shards whose items change, or make one.

    Parameters
    ----------
    path : path
        A folder. On Ray, all machines must see it. A new one needs metric, dim and shards.
    shards : int
        P. It never changes.
    ray : str, optional
        As for `ShardedIndex`. By default all shards are in this process.
    metric, dim, recipe, sync, maintain, writable
        As for `irli.open`.
    """
    root = Path(path).resolve()
    options: Options = {"sync": sync, "maintain": maintain, "writable": writable}
    if recipe != AUTO:
        options["recipe"] = recipe if isinstance(recipe, str) else recipe.name
    if not (root / MANIFEST).exists():
        if metric is None or dim is None or shards is None:
            raise InvalidParameter(
                f"The 'path' parameter of open_shards must be a folder of shards. Got "
                f"{os.fspath(path)!r}, which is none. To make one, pass metric, dim and shards."
            )
        count = check_int("shards", shards, at_least=1, owner="open_shards")
        resolved = resolve_metric(metric, owner="open_shards")
        meta = {"metric": resolved, "dim": dim, "shards": count}
        write_folder(root, Folder(OPEN_SHARDS, meta, {}, {}))
    manifest = read_manifest(root)
    if manifest["kind"] != OPEN_SHARDS:
        raise InvalidParameter(
            f"The 'path' parameter of open_shards must be a folder of shards that change. Got one "
            f"of kind {manifest['kind']!r}. Open it with irli.open or irli.load."
        )
    meta = manifest["meta"]
    for name, wanted in (("shards", shards), ("dim", dim)):
        if wanted is not None and wanted != meta[name]:
            raise InvalidParameter(
                f"The '{name}' parameter of open_shards must be {meta[name]}, as in the folder. "
                f"Got {wanted!r} instead. Leave it out."
            )
    paths = [root / name_shard(shard) for shard in range(meta["shards"])]
    for path in paths:
        if writable and not (path / MANIFEST).exists():
            VectorIndex.open(path, metric=meta["metric"], dim=meta["dim"]).close()
    opener = partial(open_shard, options)
    group = open_parts(paths, opener, ray=ray, replicas=1)
    return OpenShards(root, group, meta["metric"], meta["dim"])


def name_shard(shard: int) -> str:
    """Return the name of a shard's folder.

    Examples
    --------
    >>> name_shard(3)
    'shard-00003'
    """
    return f"shard-{shard:05d}"


def _take(ids: Any, places: NDArray[np.int64]) -> Any:
    return ids[places] if isinstance(ids, np.ndarray) else [ids[place] for place in places]


def _is_text(ids: Any) -> bool:
    return len(ids) > 0 and isinstance(ids[0], str)


def _check_filter(filter: Any) -> Any:
    if isinstance(filter, np.ndarray) and filter.dtype == bool:
        raise InvalidParameter(
            "The 'filter' parameter must name ids for an index in shards that change, or say what "
            "payloads are. Got a boolean array instead. Pass index.ids[mask]."
        )
    return filter


def _merge(answers: list[Any], k: int, metric: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the k best results of all shards. Ids may be strings, and padding None."""
    if all(ids.dtype != object for _, ids in answers):
        return merge(answers, k, metric)
    distances = np.concatenate([distances for distances, _ in answers], axis=1)
    ids = np.concatenate([ids.astype(object) for _, ids in answers], axis=1)
    there = np.vectorize(lambda id: isinstance(id, str), otypes=[bool])(ids)
    ids[~there] = None
    key = -distances if metric == "ip" else distances
    column = np.lexsort((key, ~there), axis=1)[:, :k]
    return np.take_along_axis(distances, column, axis=1), np.take_along_axis(ids, column, axis=1)
