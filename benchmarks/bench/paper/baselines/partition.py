"""A partition: items in buckets, and scores that order the buckets for a query.

Every baseline is one. `draw_curve` walks down its order, bucket by bucket, and counts what is found
and what it costs. So all of them are measured by the same few lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from bench.vectors.curves import K, Point

Floats = NDArray[np.float32]
PROBINGS = ("probes", "threshold")

_STEPS = 48  # points of a curve
_BEYOND = 10  # neighbours after the last, which may be as near as it
_TIE = 1e-6  # of the squared distance


class Scores(NamedTuple):
    """Scores for n queries, higher first.

    Attributes
    ----------
    buckets : float32 array of shape (n, B)
    parents : float32 array of shape (n, P)
        What is looked at before the buckets below it: at least the scores of these. A search opens
        those that score as high as the last bucket that it probes. P = 0 with one level.
    """

    buckets: Floats
    parents: Floats


class Partition(ABC):
    """Items in buckets.

    Attributes
    ----------
    assignment : int array of shape (N,)
        The bucket of each item.
    count : int
        B
    multiplications : float
        To route a query, without opening a parent.
    opening : float
        Multiplications to open a parent.
    temperatures : tuple of float
        What `score` may be called with.
    """

    assignment: NDArray[np.int64]
    count: int
    multiplications: float
    opening: float = 0.0
    temperatures: tuple[float, ...] = (1.0,)

    @abstractmethod
    def score(self, queries: Floats, temperature: float = 1.0) -> Scores:
        """Score the buckets for queries (n, d). A higher temperature makes them more alike."""

    def loads(self) -> NDArray[np.int64]:
        """Return the number of items in each bucket (B,)."""
        return np.bincount(self.assignment, minlength=self.count)


class Asked(NamedTuple):
    """Queries (n, d), the rows of their nearest items (n, w), and which are true answers (n, w).

    An item that is as near as the K-th is an answer, too, so that ties cost nobody anything.
    """

    vectors: Floats
    near: NDArray[np.int64]
    wanted: NDArray[np.bool_]


def ask(items: Floats, queries: Floats) -> Asked:
    """Find the answers to queries (n, d) among the items (N, d) by Euclidean distance."""
    squares, near = faiss.knn(queries, items, min(K + _BEYOND, len(items)))
    return Asked(queries, near, squares <= squares[:, K - 1 : K] + _TIE)


def measure_recall(asked: Asked, found: NDArray[np.bool_]) -> float:
    """Return recall10@10, given which of `asked.near` were found (n, w)."""
    hits = (found & asked.wanted).sum(axis=1)
    return float(np.minimum(hits, K).mean() / K)


def draw_curve(
    partition: Partition, asked: Asked, probing: str = "probes", temperature: float = 1.0
) -> list[Point]:
    """Return recall10@10, candidates and multiplications as more and more buckets are probed.

    Parameters
    ----------
    probing : {"probes", "threshold"}
        "probes": as many buckets for each query. "threshold": all that score as high as a cut.
    """
    scores = partition.score(asked.vectors, temperature)
    curve = _walk_probes if probing == "probes" else _walk_cuts
    return curve(partition, scores, asked)


def _walk_probes(partition: Partition, scores: Scores, asked: Asked) -> list[Point]:
    order = np.argsort(-scores.buckets, axis=1, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(partition.count)[None, :], axis=1)
    item_place = np.take_along_axis(place, partition.assignment[asked.near], axis=1)
    read = np.cumsum(partition.loads()[order], axis=1)
    lowest = np.take_along_axis(scores.buckets, order, axis=1)
    points = []
    for probes in np.unique(np.geomspace(1, partition.count, _STEPS).astype(int)):
        cut = lowest[:, probes - 1 : probes]
        found, candidates = item_place < probes, read[:, probes - 1]
        points.append(_make_point(partition, scores, asked, found, candidates, cut))
    return points


def _walk_cuts(partition: Partition, scores: Scores, asked: Asked) -> list[Point]:
    loads = partition.loads().astype(np.float32)
    item_score = np.take_along_axis(scores.buckets, partition.assignment[asked.near], axis=1)
    shares = np.geomspace(1 / partition.count, 1, _STEPS)
    points = []
    # One of the scores each: between -inf, that of a bucket that is not there, is no number.
    for cut in np.unique(np.quantile(scores.buckets, 1 - shares, method="lower")):
        candidates = (scores.buckets >= cut) @ loads
        found = item_score >= cut
        points.append(_make_point(partition, scores, asked, found, candidates, cut))
    return points


def _make_point(
    partition: Partition,
    scores: Scores,
    asked: Asked,
    found: NDArray[np.bool_],
    candidates: NDArray[np.float32] | NDArray[np.int64],
    cut: Floats | float,
) -> Point:
    opened = float((scores.parents >= cut).sum(axis=1).mean())
    return {
        "recall": measure_recall(asked, found),
        "candidates": float(candidates.mean()),
        "multiplications": partition.multiplications + partition.opening * opened,
    }


def no_parents(buckets: Floats) -> Scores:
    """Return the scores of a partition with one level."""
    return Scores(buckets, np.empty((len(buckets), 0), dtype=np.float32))


def log_softmax(scores: Floats) -> Floats:
    """Return the logarithms of the probabilities (n, B).

    Examples
    --------
    >>> np.exp(log_softmax(np.zeros((1, 4), dtype=np.float32)))
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    shifted = scores - scores.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
