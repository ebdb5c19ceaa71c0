"""Cross-polytope LSH with multi-probe. (FALCONN's package compiles for no Python since 3.11.)"""

from __future__ import annotations

import numpy as np

from bench.paper.baselines.partition import Floats, Partition, Scores, no_parents


class CrossPolytope(Partition):
    """Random rotations; the bucket of a vector is its largest coordinate in each, with its sign.

    A query probes the buckets that it misses by the least: the sum over the rotations of the
    squared differences to the largest coordinate, as in FALCONN.
    """

    def __init__(self, items: Floats, shape: tuple[int, ...], seed: int) -> None:
        """Partition by rotations with so many buckets each, an even number."""
        rng = np.random.default_rng(seed)
        dim = items.shape[1]
        self.rotations = [_draw_rotation(rng, dim, count // 2) for count in shape]
        self.shape = tuple(count // 2 * 2 for count in shape)
        self.count = int(np.prod(self.shape))
        self.multiplications = float(sum(rotation.size for rotation in self.rotations))
        codes = [_rotate(items, rotation).argmax(axis=1) for rotation in self.rotations]
        self.assignment = np.ravel_multi_index(codes, self.shape)

    def score(self, queries: Floats, temperature: float = 1.0) -> Scores:
        total = np.zeros((len(queries), 1), dtype=np.float32)
        for rotation in self.rotations:
            signed = _rotate(queries, rotation)
            missed = (signed.max(axis=1, keepdims=True) - signed) ** 2
            total = (total[:, :, None] - missed[:, None, :]).reshape(len(queries), -1)
        return no_parents(total)


def _draw_rotation(rng: np.random.Generator, dim: int, wanted: int) -> Floats:
    """Return `wanted` coordinates (dim, wanted) of a rotation; short vectors are padded first."""
    size = max(dim, wanted)
    rotation, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return np.ascontiguousarray(rotation[:dim, :wanted], dtype=np.float32)


def _rotate(vectors: Floats, rotation: Floats) -> Floats:
    rotated = vectors @ rotation
    return np.concatenate([rotated, -rotated], axis=1)
