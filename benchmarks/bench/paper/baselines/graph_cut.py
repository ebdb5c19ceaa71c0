"""A balanced cut of the neighbour graph, by KaHIP: the buckets of Neural LSH."""

from __future__ import annotations

import kahip
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_IMBALANCE = 0.03  # a bucket holds at most 3 % more than the mean


def cut_graph(near: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """Return a bucket for each item (N,), so that few neighbours `near` (N, j) are divided."""
    graph = make_graph(near)
    ones = np.ones(graph.nnz, dtype=np.int64)
    _, buckets = kahip.kaffpa(
        [1] * len(near),
        graph.indptr.tolist(),
        ones.tolist(),
        graph.indices.tolist(),
        count,
        _IMBALANCE,
        True,  # it prints nothing
        seed,
        kahip.FASTSOCIAL,  # neighbour graphs have hubs, as social networks do
    )
    return np.array(buckets, dtype=np.int64)


def make_graph(near: NDArray[np.int64]) -> sp.csr_array:
    """Return the graph (N, N) of neighbours (N, j) without directions and loops.

    Examples
    --------
    >>> make_graph(np.array([[1], [2], [1]])).toarray()
    array([[0, 1, 0],
           [1, 0, 1],
           [0, 1, 0]], dtype=int8)
    """
    count, width = near.shape
    rows = np.repeat(np.arange(count), width)
    other = near.ravel()
    real = (other >= 0) & (other != rows)
    rows, other = rows[real], other[real]
    edges = np.ones(2 * len(rows), dtype=np.int8)
    ends = np.concatenate([rows, other]), np.concatenate([other, rows])
    graph = sp.csr_array((edges, ends), shape=(count, count))
    graph.sum_duplicates()
    graph.data[:] = 1
    return graph
