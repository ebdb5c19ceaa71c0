"""Phase 3, assemble: join routers, partitions, codes and vectors into an untuned index."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.recipe import Recipe
from irli.engine.centroids import find_centroids
from irli.engine.pq import choose_pieces, encode_items
from irli.engine.prefilter import LONG, no_int8_vectors, round_items
from irli.engine.router import Router, make_router, pack
from irli.engine.vector_layout import VectorLayout
from irli.learning.partition import Partition
from irli.learning.repetition import Repetition, join_histories
from irli.vectors.contents import VectorContents, make_layout
from irli.vectors.build.quantize import choose_form
from irli.vectors.build.held_out import HeldOut, hold_out
from irli.vectors.build.self_hits import mend_partition
from irli.vectors.parameters import SearchParameters
from irli.vectors.tune_result import describe_exact

log = get_logger(__name__)

_CODE_STREAM = 1 << 20  # random stream of the codes; repetitions use their own small numbers
_K = 10
_PROBES = 8  # default until the search is tuned


def assemble(
    vectors: NDArray[np.float32],
    metric: str,
    recipe: Recipe,
    repetitions: list[Repetition],
    *,
    ids: NDArray[np.int64],
    tuning: HeldOut,
) -> VectorContents:
    """Return the contents of an index whose search is not tuned yet.

    Parameters
    ----------
    vectors : float32 array of shape (N, d)
        Prepared for the metric: of unit length for cosine.
    recipe : Recipe
        Resolved. If its `pieces` is None, the number is chosen here.
    """
    offsets, items = _join_buckets([repetition.partition for repetition in repetitions])
    rng = np.random.default_rng([recipe.seed, _CODE_STREAM])
    if recipe.pieces is None:
        recipe = dataclasses.replace(recipe, pieces=choose_pieces(vectors, rng))
    l2 = metric == "l2"
    none = no_int8_vectors(vectors.shape[1])
    no_codes = encode_items(vectors, l2, 0, offsets, items, rng)

    def make(routers: list[Router], **parts: Any) -> VectorLayout:
        return make_layout(vectors, metric, pack(routers), linear=routers[0].linear, **parts)

    make_plain = partial(make, offsets=offsets, items=items, codes=no_codes, int8=none)
    learned = [repetition.router for repetition in repetitions]
    routers = choose_form(learned, recipe, make_plain, metric, tuning)
    if recipe.self_hits:
        offsets, items = mend_partition(make_plain(routers), metric, tuning)
    codes = encode_items(vectors, l2, recipe.pieces or 0, offsets, items, rng)
    int8 = none
    if recipe.pieces and vectors.shape[1] >= LONG:
        int8 = round_items(vectors, l2, rng)
    centroids = find_centroids(vectors, metric, offsets[0], items)
    layout = make(
        routers, offsets=offsets, items=items, codes=codes, int8=int8, centroids=centroids
    )
    log.info("assembled: %d entries, codes of %d pieces", len(items), recipe.pieces or 0)
    return VectorContents(
        metric=metric,
        recipe=recipe,
        layout=layout,
        ids=ids,
        tuning=tuning,
        history=join_histories(repetitions),
        defaults=SearchParameters(probes=min(_PROBES, learned[0].buckets)),
        tuned=None,
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
    layout = make_layout(
        vectors,
        metric,
        pack([router]),
        linear=router.linear,
        offsets=offsets,
        items=items,
        codes=encode_items(vectors, False, 0, offsets, items, np.random.default_rng(0)),
        int8=no_int8_vectors(dim),
    )
    tuned = describe_exact(layout, k=min(_K, count))
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
