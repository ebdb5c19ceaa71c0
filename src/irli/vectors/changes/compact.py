"""Pack an index that has changed as if it had just been fitted: one run, no removed items."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.ids import Ids
from irli.base.memory import align
from irli.base.recipe import as_recipe
from irli.base.strings import Strings
from irli.engine.pq import pack_blocks, unpack_blocks
from irli.engine.prefilter import round_items
from irli.engine.router import ARRAYS
from irli.vectors.build.held_out import HeldOut
from irli.vectors.contents import VectorContents, make_layout
from irli.vectors.searcher import Searcher

if TYPE_CHECKING:
    from irli.vectors.changes.payloads import Payloads


class Changed(NamedTuple):
    """An index after changes, as one search sees it: what a part has beside its contents."""

    searcher: Searcher
    ids: Ids
    loads: NDArray[np.int64]  # (R, B)
    places: NDArray[np.int32]  # (n, R, c): the buckets of the added items, padded with -1
    codes: NDArray[np.uint8]  # (n, M)
    keys: NDArray[np.int64]  # (N,): of each row, in the store
    added: int  # items added, and removed
    gone: int


def compact(
    contents: VectorContents, changed: Changed, payloads: Payloads | None, *, even: bool
) -> VectorContents:
    """Return the contents of the items that are left, in one run. Rows are numbered anew.

    With `even`, buckets that hold far more than others give items away.
    If none is left, there is nothing to route to: the index compares all items, as a new one does.
    """
    layout, searcher = contents.layout, changed.searcher
    left = searcher.left.astype(np.int64)
    if len(left) == 0:
        return _empty(contents)
    number = np.full(searcher.items, -1, dtype=np.int64)
    number[left] = np.arange(len(left))
    offsets, items, codes = _join_entries(contents, changed, number, even)
    parts = {"codes": layout.codes, "int8": layout.int8, "centroids": layout.centroids}
    if codes.size:
        # Codes are stored by entry, so entries are the rows that are packed.
        entries = np.arange(len(items), dtype=np.int32)
        blocks, starts = pack_blocks(codes, offsets, entries)
        parts["codes"] = layout.codes._replace(blocks=blocks, offsets=starts)
    vectors = align(searcher.take(left))
    if len(layout.int8.bytes):  # some that were added may lie outside of the 8 bits of the fit
        rng = np.random.default_rng([contents.recipe.seed, len(left)])
        parts["int8"] = round_items(vectors, contents.metric == "l2", rng)
    ids = changed.ids
    names = Strings.of(ids.all().tolist()) if ids.strings is not None else None
    learned = contents.learned
    routers = {name: getattr(layout, name) for name in ARRAYS}
    packed = make_layout(
        vectors,
        contents.metric,
        routers,
        linear=layout.linear,
        offsets=offsets,
        items=items,
        **parts,
    )
    return dataclasses.replace(
        contents,
        layout=packed._replace(projection=layout.projection),  # queries are routed as before
        ids=np.arange(len(left)) if names is not None else ids.all().astype(np.int64),
        strings=names,
        tuning=_renumber(contents.tuning, number),
        keys=changed.keys[left],
        since=learned._replace(
            rows=int(np.searchsorted(left, learned.rows)),
            added=learned.added + changed.added,
            removed=learned.removed + changed.gone,
        ),
        columns=None if payloads is None else payloads.take_columns(left),
    )


def _empty(contents: VectorContents) -> VectorContents:
    from irli.vectors.build.assemble import assemble_exact

    none = contents.layout.vectors[:0]
    exact = as_recipe("exact").resolve(1, none.shape[1])
    ids = np.empty(0, dtype=np.int64)
    strings = None if contents.strings is None else Strings.of([])
    empty = assemble_exact(none, contents.metric, exact, ids=ids)
    return dataclasses.replace(empty, strings=strings, keys=ids)


def _join_entries(
    contents: VectorContents, changed: Changed, number: NDArray[np.int64], even: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]:
    """Return offsets (R, B + 1), items by their new number, and the codes of all entries."""
    layout = contents.layout
    repetitions, buckets = layout.bias.shape
    fitted, copies = len(layout.vectors), changed.places.shape[2]
    loads = np.diff(layout.offsets, axis=1).ravel()
    pair, row = np.repeat(np.arange(loads.size), loads), layout.items.astype(np.int64)
    added = len(changed.places)
    pairs = (changed.places + buckets * np.arange(repetitions)[:, None]).ravel()
    rows = np.repeat(np.arange(fitted, fitted + added), repetitions * copies)
    placed = changed.places.ravel() >= 0
    pair, row = np.concatenate([pair, pairs[placed]]), np.concatenate([row, rows[placed]])
    kept = np.flatnonzero(number[row] >= 0)
    if even and contents.recipe.repartition == "bounded":
        from irli.vectors.changes.level import level

        pair[kept] = level(changed.searcher, pair[kept], row[kept])
    order = kept[np.argsort(pair[kept], kind="stable")]
    ends = np.bincount(pair[order], minlength=repetitions * buckets).cumsum()
    offsets = np.zeros((repetitions, buckets + 1), dtype=np.int64)
    offsets[:, 1:] = ends.reshape(repetitions, buckets)
    offsets[1:, 0] = offsets[:-1, -1]
    codes = np.empty((0, 0), dtype=np.uint8)
    if layout.codes.blocks.size:
        old = unpack_blocks(layout.codes.blocks, layout.codes.offsets, layout.offsets)
        codes = np.concatenate([old, changed.codes[rows[placed] - fitted]])[order]
    return offsets, number[row[order]].astype(np.int32), codes


def _renumber(held: HeldOut, number: NDArray[np.int64]) -> HeldOut:
    """Return what was held out, without the queries that are removed items."""
    there = (held.rows < 0) | (number[held.rows] >= 0)
    rows = np.where(held.rows < 0, -1, number[held.rows])[there]
    relevant = np.where(held.relevant < 0, -1, number[held.relevant])[there]
    return HeldOut(held.queries[there], rows, relevant)
