"""What is built of each peer: several indexes, with settings that its authors advise.

At each recall the report shows the best of them.
"""

from __future__ import annotations

import math

from bench.vectors.methods import Setting

# The most informative come first, so that a run can be stopped early.
PEERS = ("scann", "faiss-ivfpqfs", "faiss-hnsw", "lorann", "hnswlib", "faiss-ivf", "usearch")


def builds(method: str, count: int, dim: int, metric: str, learn: bool) -> list[Setting]:
    """Return the builds of a peer for so many items; `learn` says if there are sample queries."""
    few, more, many = (_power(times * math.sqrt(count)) for times in (1, 4, 8))
    if method == "scann":
        return _scann_builds(few, more, many, dim, metric)
    if method == "faiss-ivfpqfs":
        return _ivfpq_builds(few, more, many, dim)
    if method == "faiss-ivf":
        return [{"factory": f"IVF{nlist},Flat"} for nlist in (few, more, many)]
    if method == "faiss-hnsw":
        return [{"factory": f"HNSW{M},Flat"} for M in (16, 32)]
    if method == "hnswlib":
        return [{"M": M} for M in (16, 32)]
    if method == "usearch":
        return [{"M": 16, "dtype": "f32"}, {"M": 32, "dtype": "f16"}]
    shape = {"clusters": more, "dim": 128, "bits": 8}
    variants = [shape, shape | {"clusters": few}, shape | {"dim": 256}]
    variants = variants if dim > 128 else variants[:2]
    return variants + ([shape | {"dim": 256, "sample_queries": True}] if learn else [])


def _scann_builds(few: int, more: int, many: int, dim: int, metric: str) -> list[Setting]:
    # Tried on WordNet-MiniLM: with four dimensions to a code many times more exact distances are
    # needed, and quantised centroids halve the speed.
    if metric == "l2":  # SOAR needs inner products
        plain = {"leaves": few, "dims": 2}
        wide = [plain | {"dims": 4}] if dim > 512 else []
        return [plain, plain | {"leaves": more}, plain | {"T": 0.2}, *wide]
    plain = {"leaves": more, "dims": 2, "T": 0.2}
    spilled = plain | {"soar": 1.5}
    return [plain, spilled, spilled | {"leaves": many}, plain | {"leaves": few}]


def _ivfpq_builds(few: int, more: int, many: int, dim: int) -> list[Setting]:
    # Sub-quantisers of one dimension each for short vectors, of two to eight for long ones.
    large = dim if dim <= 64 else dim // 2 if dim <= 512 else dim // 4
    small = large // 2
    rotated = f"OPQ{small}_{2 * small}," if dim > 64 else f"OPQ{large}_{dim},"
    codes = small if dim > 64 else large
    return [
        {"factory": f"IVF{more},PQ{large}x4fs,RFlat"},
        {"factory": f"IVF{more},PQ{small}x4fs,RFlat"},
        {"factory": f"{rotated}IVF{more},PQ{codes}x4fs,RFlat"},
        {"factory": f"{rotated}IVF{many},PQ{codes}x4fsr,RFlat"},
        {"factory": f"{rotated}IVF{few},PQ{codes}x4fs,RFlat"},
    ]


def _power(number: float) -> int:
    return 1 << max(0, round(math.log2(number)))
