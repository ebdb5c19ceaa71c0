"""HeldOut: the queries that training never sees, kept in the index to tune the search with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import LONGEST
from irli.engine.metric import prepare_vectors
from irli.errors import FormatError, InvalidParameter

SAMPLE = 10_000  # items that stand for all of them
_STRANGE, KINDS = 64, 3  # strange queries of each kind
_FAR = 10.0  # deviations
_SEED = 86_028_157


class HeldOut(NamedTuple):
    """Queries that training never sees. `tune` measures recall on them."""

    queries: NDArray[np.float32]  # (v, d)
    rows: NDArray[np.int64]  # (v,): the row of the item that the query is, or -1
    relevant: NDArray[np.int64]  # (v, j): the relevant items, padded with -1; j = 0 for neighbours

    @property
    def by_relevance(self) -> bool:
        """Whether the relevant items were given. Otherwise they are the nearest neighbours."""
        return bool(self.relevant.shape[1])


def hold_out(
    queries: NDArray[np.float32],
    rows: NDArray[np.int64] | None = None,
    relevant: NDArray[np.int64] | None = None,
) -> HeldOut:
    """Return held-out queries, by default no items, whose relevant items are their neighbours."""
    if rows is None:
        rows = np.full(len(queries), -1)
    if relevant is None:
        relevant = np.empty((len(queries), 0), dtype=np.int64)
    return HeldOut(queries, rows, relevant)


def require_queries(queries: NDArray[np.float32]) -> None:
    """Raise if an index that is to be tuned has no held-out queries (v, d)."""
    if len(queries) == 0:
        raise InvalidParameter(
            "The 'queries' parameter of tune must be given for an index that was saved with "
            "held=False. Got none, and the folder has none. Pass queries like those to come."
        )


def sample_items(items: NDArray[np.float32], most: int) -> NDArray[np.float32]:
    """Return every so many items: `most` of them, or nearly twice as many."""
    sample: NDArray[np.float32] = np.array(items[:: max(1, len(items) // most)])
    if not np.isfinite(sample).all():
        raise FormatError(  # only a forged folder has such
            "The vectors of the index must be finite numbers, and some are not. "
            "Build the index again."
        )
    return sample


def make_strange_queries(items: NDArray[np.float32], metric: str) -> NDArray[np.float32]:
    """Make queries (n, d) unlike the items: between two of them, noise, noise far away, and so on.

    Examples
    --------
    >>> between, noise, far = make_strange_queries(np.eye(3, dtype=np.float32), "l2")[:3]
    >>> between.tolist(), bool(np.linalg.norm(far) > np.linalg.norm(noise))
    ([0.0, 0.5, 0.5], True)
    """
    rng = np.random.default_rng(_SEED)
    sample = sample_items(items, SAMPLE).astype(np.float64)
    pairs = sample[rng.integers(len(sample), size=(_STRANGE, 2))]
    noise = sample.std(axis=0) * rng.normal(size=(_STRANGE, 2, sample.shape[1]))
    kinds = np.empty((_STRANGE, KINDS, sample.shape[1]))
    kinds[:, 0] = pairs.mean(axis=1)
    kinds[:, 1:] = sample.mean(axis=0) + [[1.0], [_FAR]] * noise
    lengths = np.linalg.norm(kinds, axis=2, keepdims=True)
    kinds *= LONGEST / np.maximum(lengths, LONGEST)
    return prepare_vectors(kinds.reshape(-1, sample.shape[1]).astype(np.float32), metric)
