"""Phases 3 to 5: from what was learned to an index that is not tuned yet.

quantize    routers with 8-bit weights, where that costs little
self-hits   one more bucket for items that would not find themselves
encode      codes, 8-bit copies and centroids of the items
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.recipe import Recipe
from irli.engine.centroids import find_centroids
from irli.engine.pq import Codebook, choose_pieces, encode_items, no_codes
from irli.engine.prefilter import LONG, no_int8_vectors, round_items
from irli.engine.router import Router, make_router, pack
from irli.engine.vector_layout import VectorLayout
from irli.learning.partition import Partition
from irli.learning.repetition import Repetition, join_histories
from irli.vectors.build.ground_truth import GroundTruth
from irli.vectors.build.held_out import HeldOut, hold_out
from irli.vectors.build.quantize import quantize
from irli.vectors.build.self_hits import add_self_hits
from irli.vectors.contents import VectorContents, make_layout
from irli.vectors.cost import Sizes
from irli.vectors.parameters import SearchParameters
from irli.vectors.tune_result import describe_exact

log = get_logger(__name__)

_CODE_STREAM = 1 << 20  # random stream of the codes; repetitions use their own small numbers
_PROBES = 8  # default until the search is tuned


def assemble(
    vectors: NDArray[np.float32],
    metric: str,
    recipe: Recipe,
    repetitions: list[Repetition],
    *,
    ids: NDArray[np.int64],
    held: HeldOut,
    truth: GroundTruth,
) -> VectorContents:
    """Return the contents of an index whose search is not tuned yet.

    Parameters
    ----------
    vectors : float32 array of shape (N, d)
        Prepared for the metric: of unit length for cosine.
    recipe : Recipe
        Resolved. If its `pieces` is None, the number is chosen here.
    truth : GroundTruth
        Of the held-out queries, and perhaps of others after them.
    """
    rng = np.random.default_rng([recipe.seed, _CODE_STREAM])
    if recipe.pieces is None:
        recipe = dataclasses.replace(recipe, pieces=choose_pieces(vectors, rng))
    truth = truth.take(slice(len(held.rows)))
    offsets, items = _join_buckets([repetition.partition for repetition in repetitions])
    routers = [repetition.router for repetition in repetitions]
    routers = quantize(routers, recipe, vectors, offsets, items, truth)
    if recipe.self_hits:
        plain = _make_layout(vectors, metric, routers, offsets=offsets, items=items)
        offsets, items = add_self_hits(plain, metric, truth)
    layout, book = _encode(vectors, metric, routers, offsets, items, recipe.pieces or 0, rng)
    log.info("assembled: %d entries, codes of %d pieces", len(items), recipe.pieces or 0)
    return VectorContents(
        metric=metric,
        recipe=recipe,
        layout=layout,
        ids=ids,
        tuning=held,
        history=join_histories(repetitions),
        defaults=SearchParameters(probes=min(_PROBES, routers[0].buckets)),
        tuned=None,
        codebook=book,
    )


def assemble_exact(
    vectors: NDArray[np.float32],
    metric: str,
    recipe: Recipe,
    *,
    ids: NDArray[np.int64],
) -> VectorContents:
    """Return the contents of an index that compares all items: one bucket, and nothing to route."""
    count, dim = vectors.shape
    one = np.zeros((1, 1), dtype=np.float32)
    router = make_router(np.zeros((dim, 1), dtype=np.float32), one[0], 1, one, one[0])
    offsets, items = np.array([[0, count]]), np.arange(count, dtype=np.int32)
    layout = _make_layout(vectors, metric, [router], offsets=offsets, items=items)
    tuned = describe_exact(Sizes.of(layout), k=max(1, min(10, count)))
    return VectorContents(
        metric=metric,
        recipe=recipe,
        layout=layout,
        ids=ids,
        tuning=hold_out(vectors[:0]),
        history=[],
        defaults=tuned.parameters,
        tuned=tuned,
    )


def _join_buckets(
    partitions: list[Partition],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the offsets of all buckets (R, B + 1), and the items in them (entries,)."""
    lists = [partition.invert() for partition in partitions]
    starts = np.cumsum([0] + [len(items) for _, items in lists[:-1]])
    offsets = np.stack([part + start for (part, _), start in zip(lists, starts, strict=True)])
    return offsets, np.concatenate([items for _, items in lists])


def _encode(
    vectors: NDArray[np.float32],
    metric: str,
    routers: list[Router],
    offsets: NDArray[np.int64],
    items: NDArray[np.int32],
    pieces: int,
    rng: np.random.Generator,
) -> tuple[VectorLayout, Codebook | None]:
    """Return the layout with codes and 8-bit copies of long vectors, and what encodes others."""
    l2 = metric == "l2"
    codes, book = encode_items(vectors, l2, pieces, offsets, items, rng)
    parts: dict[str, Any] = {"codes": codes}
    if pieces and vectors.shape[1] >= LONG:
        parts["int8"] = round_items(vectors, l2, rng)
    parts["centroids"] = find_centroids(vectors, metric, offsets[0], items)
    return _make_layout(vectors, metric, routers, offsets=offsets, items=items, **parts), book


def _make_layout(
    vectors: NDArray[np.float32], metric: str, routers: list[Router], **parts: Any
) -> VectorLayout:
    """Return the layout of an index, without codes and 8-bit copies unless they are given."""
    dim, linear = vectors.shape[1], routers[0].linear
    parts = {"codes": no_codes(dim), "int8": no_int8_vectors(dim)} | parts
    return make_layout(vectors, metric, pack(routers), linear=linear, **parts)
