"""Data whose right answer is known by how it was made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli._native import L2, LANES, WORDS
from irli.base.memory import align_fields
from irli.engine.centroids import find_centroids
from irli.engine.int8 import no_projection
from irli.engine.pq import encode_items
from irli.engine.prefilter import no_int8_vectors, round_items
from irli.engine.router import Router, make_router, pack
from irli.engine.vector_layout import (
    NO_CENTROIDS,
    Centroids,
    Codes,
    Int8Vectors,
    Projection,
    VectorLayout,
)
from irli.learning.partition import Partition

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Clusters(NamedTuple):
    """Points around centres that lie at least 10 spreads apart; `owner` is the right bucket."""

    points: Floats
    owner: Ints
    centres: Floats


def clusters(n_per: int, centres: int, dim: int, spread: float = 0.1, seed: int = 0) -> Clusters:
    """Make `centres` clusters of `n_per` points each, in random order."""
    rng = np.random.default_rng(seed)
    middles = np.empty((0, dim))
    scale = 2.0
    while len(middles) < centres:  # rejection: new centres keep their distance
        scale *= 1.02
        candidate = rng.normal(size=dim) * scale
        gaps = np.linalg.norm(middles - candidate, axis=1)
        if not len(gaps) or gaps.min() > 10 * spread * np.sqrt(dim):
            middles = np.vstack([middles, candidate])
    owner = rng.permutation(np.repeat(np.arange(centres), n_per))
    points = middles[owner] + spread * rng.normal(size=(len(owner), dim))
    return Clusters(points.astype(np.float32), owner, middles.astype(np.float32))


class Shifted(NamedTuple):
    """Queries that live far from the items and want those of one cluster, by a known map."""

    items: Clusters
    queries: Floats
    wants: Ints  # (n,): the cluster whose items each query wants
    relevance: sp.csr_array


def shifted_queries(
    n_per: int, centres: int, dim: int, n_queries: int, wanted: int, seed: int = 0
) -> Shifted:
    """Make queries around points of their own; those around point j want cluster j + 1.

    So the geometry is of no help: what is near is never wanted.
    """
    items = clusters(n_per, centres, dim, seed=seed)
    rng = np.random.default_rng(seed + 1)
    source = rng.integers(centres, size=n_queries)
    wants = (source + 1) % centres
    far = 40.0 * np.ones(dim)
    queries = items.centres[source] + far + 0.1 * rng.normal(size=(n_queries, dim))
    rows = np.repeat(np.arange(n_queries), wanted)
    columns = np.concatenate(
        [rng.choice(np.flatnonzero(items.owner == w), wanted, replace=False) for w in wants]
    )
    relevance = sp.csr_array(
        (np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=(n_queries, n_per * centres)
    )
    return Shifted(items, queries.astype(np.float32), wants, relevance)


def exact_distances(queries: NDArray, base: NDArray, metric: str) -> NDArray[np.float64]:
    """Return what a search reports, (n, N) in float64: smaller is nearer but for "ip"."""
    q, x = np.asarray(queries, dtype=np.float64), np.asarray(base, dtype=np.float64)
    if metric == "l2":
        return ((q[:, None, :] - x[None, :, :]) ** 2).sum(axis=2)
    if metric == "cosine":
        lengths = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(x, axis=1)[None, :]
        return 1 - (q @ x.T) / np.where(lengths > 0, lengths, 1)
    return q @ x.T


def nearness(distances: NDArray, metric: str) -> NDArray:
    """Turn reported distances so that smaller is nearer for every metric."""
    return -distances if metric == "ip" else distances


def random_router(
    dim: int,
    buckets: int,
    *,
    linear: int = 6,
    hidden: int = 10,
    rank: int | None = None,
    soften: tuple[float, float, float] = (0.0, 0.0, 0.0),
    seed: int = 0,
) -> Router:
    """Return a router of random weights; its logits have the given rank, at most."""
    rng = np.random.default_rng(seed)
    features = linear + hidden
    out = rng.normal(size=(features, buckets))
    if rank is not None:
        out = rng.normal(size=(features, rank)) @ rng.normal(size=(rank, buckets)) / rank**0.5
    return make_router(
        project=rng.normal(size=(dim, features)).astype(np.float32) / dim**0.5,
        shift=rng.normal(size=features).astype(np.float32),
        linear=linear,
        out=out.astype(np.float32),
        bias=rng.normal(size=buckets).astype(np.float32),
        centre=rng.normal(size=dim).astype(np.float32),
        soften=soften,
    )


def constant_router(dim: int, logits: NDArray) -> Router:
    """Return a router that gives every query the same logits (B,)."""
    return make_router(
        project=np.zeros((dim, 1), dtype=np.float32),
        shift=np.zeros(1, dtype=np.float32),
        linear=1,
        out=np.zeros((1, len(logits)), dtype=np.float32),
        bias=np.asarray(logits, dtype=np.float32),
    )


def assemble_layout(
    routers: list[Router],
    partitions: list[Partition],
    vectors: Floats,
    metric: int = L2,
    pieces: int = 0,
    int8: bool = False,
    centroids: bool = False,
) -> VectorLayout:
    """Put routers of equal shapes and their partitions together as the kernels read them."""
    lists = [partition.invert() for partition in partitions]
    starts = np.cumsum([0] + [len(items) for _, items in lists[:-1]])
    offsets = np.stack([part + start for (part, _), start in zip(lists, starts, strict=True)])
    items = np.concatenate([items for _, items in lists])
    rng = np.random.default_rng(0)
    codes, _ = encode_items(vectors, metric == L2, pieces, offsets, items, rng)
    rounded = no_int8_vectors(vectors.shape[1])
    if int8:
        rounded = round_items(vectors, metric == L2, np.random.default_rng(1))
    means = NO_CENTROIDS
    if centroids:
        means = find_centroids(vectors, "l2" if metric == L2 else "ip", offsets[0], items)
    layout = VectorLayout(
        **pack(routers),
        projection=no_projection(),
        linear=routers[0].linear,
        offsets=offsets,
        items=items,
        vectors=vectors,
        codes=codes,
        int8=rounded,
        metric=metric,
        centroids=means,
    )
    return as_kernels_see(layout)


def as_kernels_see(layout: VectorLayout) -> VectorLayout:
    """Return the layout with aligned, read-only arrays, so that kernels are compiled once."""
    parts = {
        "projection": Projection(**align_fields(layout.projection)),
        "codes": Codes(**align_fields(layout.codes)),
        "int8": Int8Vectors(**align_fields(layout.int8)),
        "centroids": Centroids(**align_fields(layout.centroids)),
    }
    return VectorLayout(**align_fields(layout) | parts)


def plant_codes(layout: VectorLayout, numbers: NDArray, values: NDArray) -> VectorLayout:
    """Return the layout with the codes (N, M) below 16, scored by values (M, 16) for any query."""
    pieces = numbers.shape[1]
    loads = np.diff(layout.offsets, axis=1)
    ends = (-(-loads // LANES)).cumsum().reshape(loads.shape)
    starts = np.concatenate([[[0], *ends[:-1, -1:]], ends], axis=1)
    blocks = np.zeros((ends[-1, -1], pieces // 2, LANES), dtype=np.uint8)
    for r, b in np.ndindex(loads.shape):
        items = layout.items[layout.offsets[r, b] : layout.offsets[r, b + 1]]
        block, lane = np.divmod(np.arange(len(items)), LANES)
        bytes_ = numbers[items, ::2] | numbers[items, 1::2] << 4
        blocks[starts[r, b] + block, :, 2 * (lane % 16) + lane // 16] = bytes_
    codes = Codes(
        rotation=np.zeros((layout.vectors.shape[1], pieces), dtype=np.float32),
        shift=np.zeros(pieces, dtype=np.float32),
        codewords=np.zeros((pieces, 1, WORDS), dtype=np.float32),
        bias=np.asarray(values, dtype=np.float32),
        blocks=blocks,
        offsets=starts.astype(np.int64),
    )
    return as_kernels_see(layout._replace(codes=codes))


def random_partition(items: int, buckets: int, per_item: int = 1, seed: int = 0) -> Partition:
    """Put each item into `per_item` buckets, never twice into the same."""
    rng = np.random.default_rng(seed)
    order = np.argsort(rng.random((items, buckets)), axis=1)[:, :per_item]
    return Partition(buckets, order.astype(np.int32))
