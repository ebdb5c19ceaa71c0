"""VectorContents: the parts of a vector index, packed into an index folder and unpacked again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.arrays import (
    array_error,
    check_array,
    check_finite,
    check_history,
    check_range,
    damage_error,
)
from irli.base.checks import check_int
from irli.base.folder import VECTORS, Folder, check_kind, reading
from irli.base.recipe import Recipe, read_recipe
from irli.base.strings import Strings
from irli.engine.int8 import make_projection, no_projection
from irli.engine.metric import KERNEL_METRIC
from irli.engine.pq import Codebook
from irli.engine.prefilter import no_int8_vectors
from irli.engine.router import ARRAYS, check_names
from irli.engine.vector_layout import (
    NO_CENTROIDS,
    Centroids,
    Codes,
    Int8Vectors,
    VectorLayout,
    check_layout,
)
from irli.vectors.build.held_out import HeldOut, hold_out
from irli.vectors.parameters import SearchParameters
from irli.vectors.tune_result import TuneResult

if TYPE_CHECKING:  # what a search does not need is imported where it is used
    from irli.learning.repetition import History
    from irli.store.columns import Columns

_SAMPLE = 4096  # vectors that set the scale of the 8-bit projection


class Since(NamedTuple):
    """What the routers have learned from, and what has changed since, up to these arrays."""

    items: int
    rows: int  # the first of these arrays that are of the items learned
    added: int = 0
    removed: int = 0
    refreshes: int = 0

    def anew(self, items: int) -> Since:
        """Return the same after the routers have learned from so many items."""
        return Since(items, items, refreshes=self.refreshes + (self.items > 0))


@dataclass(frozen=True, eq=False)
class VectorContents:
    """All parts of a vector index.

    Attributes
    ----------
    metric : {"l2", "ip", "cosine"}
    recipe : Recipe
        Resolved.
    layout : VectorLayout
        What the kernels read.
    ids : int64 array of shape (N,)
    tuning : HeldOut
        Queries that training never saw, and that `tune` uses.
    history : list of dict
        One entry for each re-partition of each repetition.
    defaults : SearchParameters
    tuned : TuneResult or None
        What `tune` found, unless the index was never tuned.
    strings : Strings or None
        The ids, if they are strings. Then `ids` are the row numbers.
    codebook : Codebook or None
        What encodes the items that are added, if there are codes.
    keys : int64 array of shape (N,) or None
        The keys of the items in the store of changes, ascending. None is the row numbers.
    columns : Columns or None
        What filters know of the payloads.
    since : Since or None
        What has changed since the routers have learned. None is nothing.
    """

    metric: str
    recipe: Recipe
    layout: VectorLayout
    ids: NDArray[np.int64]
    tuning: HeldOut
    history: History
    defaults: SearchParameters
    tuned: TuneResult | None
    strings: Strings | None = None
    codebook: Codebook | None = None
    keys: NDArray[np.int64] | None = None
    columns: Columns | None = None
    since: Since | None = None

    def tuned_as(self, defaults: SearchParameters, tuned: TuneResult | None) -> VectorContents:
        """Return the contents with the parameters of an index, if there is something to find."""
        if len(self.ids) == 0:
            return self
        return dataclasses.replace(self, defaults=defaults, tuned=tuned)

    @property
    def learned(self) -> Since:
        """What the routers have learned from."""
        count = 0 if self.recipe.name == "exact" else len(self.ids)
        return self.since or Since(count, count)


def pack_vectors(contents: VectorContents) -> Folder:
    """Return the contents as an index folder in memory: arrays and plain values."""
    layout = contents.layout
    arrays: dict[str, NDArray[Any]] = {
        "vectors": layout.vectors,
        "offsets": layout.offsets,
        "items": layout.items,
        **{f"code_{name}": value for name, value in layout.codes._asdict().items()},
        "ids": contents.ids,
        "tuning_queries": contents.tuning.queries,
        "tuning_rows": contents.tuning.rows,
    }
    if contents.strings is not None:
        strings = contents.strings
        arrays |= {"id_bytes": strings.bytes, "id_offsets": strings.offsets}
    if contents.codebook is not None:
        book = contents.codebook
        arrays |= {"book_centre": book.centre, "book_rotation": book.rotation}
        arrays["book_unit"] = np.array([book.unit])
    if contents.tuning.by_relevance:
        arrays["tuning_relevant"] = contents.tuning.relevant
    if len(layout.int8.bytes):
        arrays |= {f"int8_{name}": value for name, value in layout.int8._asdict().items()}
    if len(layout.centroids.centre):
        centroids = layout.centroids._asdict().items()
        arrays |= {f"centroid_{name}": value for name, value in centroids}
    if contents.keys is not None:
        arrays["keys"] = contents.keys
    described: list[dict[str, Any]] = []
    if contents.columns is not None:
        columns, described = contents.columns.save()
        arrays |= columns
    tensors = {name: value for name, value in layout._asdict().items() if name in ARRAYS}
    meta = {
        "metric": contents.metric,
        "recipe": dataclasses.asdict(contents.recipe),
        "defaults": contents.defaults.to_json(),
        "tuned": contents.tuned and contents.tuned.to_json(),
        "history": contents.history,
        "linear": layout.linear,
    }
    if described:
        meta["columns"] = described
    if contents.since is not None:
        meta["learned"] = contents.since._asdict()
    return Folder(VECTORS, meta, arrays, tensors)


def unpack_vectors(folder: Folder) -> VectorContents:
    """Return the contents that `pack_vectors` put into a folder, or raise `FormatError`."""
    check_kind(folder, VECTORS)
    meta, arrays = folder.meta, folder.arrays
    with reading():
        contents = VectorContents(
            metric=meta["metric"],
            recipe=read_recipe(meta["recipe"]),
            layout=_unpack_layout(arrays, folder.tensors, meta),
            ids=arrays["ids"],
            strings=_unpack_strings(arrays),
            tuning=hold_out(
                arrays["tuning_queries"], arrays["tuning_rows"], arrays.get("tuning_relevant")
            ),
            history=check_history(meta["history"]),
            defaults=SearchParameters.from_json(meta["defaults"]),
            tuned=meta["tuned"] and TuneResult.from_json(meta["tuned"]),
        )
        items, dim = contents.layout.vectors.shape
        book = _unpack_codebook(arrays, contents.layout, contents.metric)
        contents = dataclasses.replace(
            contents,
            codebook=book,
            keys=arrays.get("keys"),
            columns=_unpack_columns(folder),
            since=_unpack_learned(meta, items),
        )
        if contents.keys is not None:
            check_array("keys", contents.keys, np.int64, items)
            if (np.diff(contents.keys) <= 0).any() or (items and contents.keys[0] < 0):
                raise array_error("keys", "ascend from 0 up", "others")
        check_array("ids", contents.ids, np.int64, items)
        check_range("ids", contents.ids, 0, np.iinfo(np.int64).max)  # -1 stands for no item
        (held, _) = check_array("tuning_queries", contents.tuning.queries, np.float32, None, dim)
        check_array("tuning_rows", contents.tuning.rows, np.int64, held)
        check_finite("tuning_queries", contents.tuning.queries)
        check_range("tuning_rows", contents.tuning.rows, -1, items - 1)
        check_array("tuning_relevant", contents.tuning.relevant, np.int64, held, None)
        check_range("tuning_relevant", contents.tuning.relevant, -1, items - 1)
        by_codes = contents.defaults.score == "codes" or any(
            point.picked for point in contents.defaults.points
        )
        if by_codes and contents.layout.codes.blocks.size == 0:
            raise damage_error("field 'defaults'", "have a score that it can compute", "'codes'")
        return contents


def _unpack_codebook(
    arrays: dict[str, NDArray[Any]], layout: VectorLayout, metric: str
) -> Codebook | None:
    """Return what encodes items that are added, or None without codes."""
    codes, dim = layout.codes, layout.vectors.shape[1]
    if codes.blocks.size == 0:
        return None
    centre, rotation, unit = (arrays[f"book_{name}"] for name in ("centre", "rotation", "unit"))
    check_array("book_centre", centre, np.float32, dim)
    check_array("book_rotation", rotation, np.float32, *codes.rotation.shape)
    check_array("book_unit", unit, np.float64, 1)
    for name, array in (("centre", centre), ("rotation", rotation), ("unit", unit)):
        check_finite(f"book_{name}", array)
    check_range("book_unit", np.sign(unit).astype(np.int64), 1, 1)
    return Codebook.of(codes, metric == "l2", centre, unit[0], rotation)


def _unpack_learned(meta: dict[str, Any], items: int) -> Since | None:
    if "learned" not in meta:
        return None
    given = {name: check_int(name, meta["learned"][name], at_least=0) for name in Since._fields}
    if given["rows"] > items:
        raise damage_error("field 'learned'", f"name at most {items} rows", str(given["rows"]))
    return Since(**given)


def _unpack_columns(folder: Folder) -> Columns | None:
    """Return the columns of payloads. Whoever opens the store says where payloads come from."""
    described = folder.meta.get("columns")
    if described is None:
        return None
    from irli.store.columns import Columns

    return Columns.load(folder.arrays, described, _no_source)


def _no_source(rows: NDArray[np.int64]) -> list[str | None]:
    return [None] * len(rows)


def _unpack_strings(arrays: dict[str, NDArray[Any]]) -> Strings | None:
    """Return the ids that are strings, or None if they are integers."""
    if "id_bytes" not in arrays:
        return None
    numbers = arrays["ids"]
    if not np.array_equal(numbers, np.arange(len(numbers))):
        raise array_error("ids", "be the row numbers, since there are strings", "other numbers")
    return Strings.read("id", arrays["id_bytes"], arrays["id_offsets"], len(numbers))


def _unpack_layout(
    arrays: dict[str, NDArray[Any]], tensors: dict[str, NDArray[Any]], meta: Any
) -> VectorLayout:
    check_names(tensors)
    vectors = arrays["vectors"]
    check_array("vectors", vectors, np.float32, None, None)
    int8 = no_int8_vectors(vectors.shape[-1])
    if "int8_bytes" in arrays:
        int8 = Int8Vectors(**{name: arrays[f"int8_{name}"] for name in Int8Vectors._fields})
    centroids = NO_CENTROIDS
    if "centroid_centre" in arrays:
        centroids = Centroids(**{n: arrays[f"centroid_{n}"] for n in Centroids._fields})
    return make_layout(
        vectors,
        meta["metric"],
        {name: tensors[name] for name in ARRAYS},
        linear=meta["linear"],
        offsets=arrays["offsets"],
        items=arrays["items"],
        codes=Codes(**{name: arrays[f"code_{name}"] for name in Codes._fields}),
        int8=int8,
        centroids=centroids,
    )


def make_layout(
    vectors: NDArray[np.float32], metric: str, tensors: dict[str, Any], **parts: Any
) -> VectorLayout:
    """Return the layout that the kernels read, checked.

    `tensors` has the stacked arrays of all routers, and `parts` the other fields.

    The 8-bit projection of queries, for routers and codes, is computed here and never saved.
    """
    layout = VectorLayout(
        **tensors,
        **parts,
        projection=no_projection(),
        vectors=vectors,
        metric=KERNEL_METRIC[metric],
    )
    check_layout(layout)
    if layout.bytes.size == 0:  # only compact routers have a projection
        return layout
    codes = layout.codes
    matrices, shifts = [*layout.project, codes.rotation], [*layout.shift, codes.shift]
    sample = np.asarray(vectors[:: max(1, len(vectors) // _SAMPLE)])
    columns = np.concatenate(matrices, axis=1)
    projection = make_projection(sample, columns, np.concatenate(shifts))
    return layout._replace(projection=projection)
