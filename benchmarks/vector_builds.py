"""What is built of each method: several for each peer, as its authors advise for such data.

The report shows the best of all of them at each recall.
"""

from __future__ import annotations

import math

from vector_methods import Setting

# The most informative first: whoever stops early has these.
PEERS = ("scann", "faiss-ivfpqfs", "faiss-hnsw", "lorann", "hnswlib", "faiss-ivf", "usearch")


def builds(method: str, count: int, dim: int, metric: str, taught: bool) -> list[Setting]:
    """Return what to build of a peer for so many items; `taught`: there are queries to learn."""
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
    return variants + ([shape | {"dim": 256, "taught": True}] if taught else [])


def _scann_builds(few: int, more: int, many: int, dim: int, metric: str) -> list[Setting]:
    # Codes of four dimensions a piece need many times the exact distances, and quantised centroids
    # halve the speed: both were tried on WordNet-MiniLM.
    if metric == "l2":  # SOAR knows only inner products
        plain = {"leaves": few, "dims": 2}
        wide = [plain | {"dims": 4}] if dim > 512 else []
        return [plain, plain | {"leaves": more}, plain | {"T": 0.2}, *wide]
    plain = {"leaves": more, "dims": 2, "T": 0.2}
    spilled = plain | {"soar": 1.5}
    return [plain, spilled, spilled | {"leaves": many}, plain | {"leaves": few}]


def _ivfpq_builds(few: int, more: int, many: int, dim: int) -> list[Setting]:
    # Sub-quantisers: of one dimension each where there are few, of two to eight where many.
    large = dim if dim <= 64 else dim // 2 if dim <= 512 else dim // 4
    small = large // 2
    turned = f"OPQ{small}_{2 * small}," if dim > 64 else f"OPQ{large}_{dim},"
    codes = small if dim > 64 else large
    return [
        {"factory": f"IVF{more},PQ{large}x4fs,RFlat"},
        {"factory": f"IVF{more},PQ{small}x4fs,RFlat"},
        {"factory": f"{turned}IVF{more},PQ{codes}x4fs,RFlat"},
        {"factory": f"{turned}IVF{many},PQ{codes}x4fsr,RFlat"},
        {"factory": f"{turned}IVF{few},PQ{codes}x4fs,RFlat"},
    ]


def _power(number: float) -> int:
    return 1 << max(0, round(math.log2(number)))
