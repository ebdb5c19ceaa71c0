"""What there is to learn from rows with labels, and which rows are held out so that nothing leaks.

Rows often come in families: versions of one product, packages of one source. Held out at random, a
row is judged beside its siblings in training, which flatters whatever memorises. So whole groups of
similar rows are held out.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.labels.features import hash_features
from irli.labels.profiles import average_profiles, embed_rows, normalize
from irli.learning.problem import Problem

log = logging.getLogger(__name__)

_DIRECTIONS = 128  # of the space in which rows are compared and labels have their profiles
_GROUP = 8  # rows in a group, at most, unless they are all alike
_ALIKE = 0.03  # rows nearer than this, of unit length, are the same in other words
_HELD_SHARE = 0.05
_HELD_MOST = 2000
_VALIDATED = 500  # of the held rows, that judge re-partitions
_WANTED = 10  # labels of such a row, at most
_MIX, _OTHER_MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class Split(NamedTuple):
    """Which rows train, and which are held out to choose by."""

    train: NDArray[np.int64]
    held: NDArray[np.int64]


class LabelProblem(NamedTuple):
    """What there is to learn, and which rows serve for what."""

    problem: Problem
    split: Split
    trained: NDArray[np.uint64]  # keys of all rows that the routers will have learned from

    def save(self, folder: Path) -> None:
        """Write the arrays so that other processes can map them."""
        self.problem.save(folder)
        for name, value in (*self.split._asdict().items(), ("trained", self.trained)):
            np.save(folder / f"label_{name}.npy", value)

    @classmethod
    def load(cls, folder: Path) -> LabelProblem:
        """Read what `save` wrote; the problem is mapped."""
        train, held, trained = (
            np.load(folder / f"label_{name}.npy") for name in ("train", "held", "trained")
        )
        return cls(Problem.load(folder), Split(train, held), trained)


def make_label_problem(
    rows: Rows, labels: Sparse, recipe: Recipe, trained: NDArray[np.uint64] | None = None
) -> LabelProblem:
    """Turn rows and their labels into a problem to learn: the first phase.

    Parameters
    ----------
    rows : array or CSR of shape (n, d)
    labels : CSR of shape (n, L)
    trained : uint64 array, optional
        The keys of the rows that the routers know already: others are held out.
    """
    rng = np.random.default_rng([recipe.seed, 0x1D])
    routed = hash_features(rows, recipe)
    places = normalize(embed_rows(routed, _DIRECTIONS, recipe.seed))
    useful = np.flatnonzero(np.diff(labels.indptr))  # a row without labels teaches nothing
    keys = row_keys(routed)
    unseen = None if trained is None else useful[~np.isin(keys[useful], trained)]
    split = hold_out(places, useful, rng, unseen)
    wanted = labels[split.train]
    count = len(split.train)
    judges = split.held[:_VALIDATED]
    problem = Problem(
        metric="cosine",
        items=average_profiles(places[split.train], wanted),
        items_are_queries=False,
        queries=routed[split.train],
        query_items=np.full(count, -1),
        indptr=wanted.indptr.astype(np.int64),
        indices=wanted.indices.astype(np.int64),
        weights=np.ones(wanted.nnz, dtype=np.float32),
        sampling=np.full(count, 1 / count),
        held_queries=routed[judges],
        held_truth=_list_labels(labels, judges),
    )
    log.info(
        "problem: %d labels, %d training rows, %d held out", labels.shape[1], count, len(split.held)
    )
    known = np.unique(keys[split.train])
    return LabelProblem(problem, split, known if trained is None else np.union1d(known, trained))


def row_keys(rows: Rows) -> NDArray[np.uint64]:
    """Return a number for each row (n,) that hardly any other row has: a hash of its features.

    Examples
    --------
    >>> rows = np.array([[0.0, 2.0], [2.0, 0.0], [0.0, 2.0]], dtype="f4")
    >>> one, two, three = row_keys(rows)
    >>> one == three, one == two
    (np.True_, np.False_)
    """
    given = sp.csr_array(rows)
    bits = given.data.astype(np.float32).view(np.uint32).astype(np.uint64)
    mixed = bits * _MIX ^ (given.indices.astype(np.uint64) + np.uint64(1)) * _OTHER_MIX
    mixed = (mixed ^ mixed >> np.uint64(31)) * _MIX
    mixed = (mixed ^ mixed >> np.uint64(29)) * _OTHER_MIX
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    keys: NDArray[np.uint64] = total[given.indptr[1:]] - total[given.indptr[:-1]]
    return keys


def hold_out(
    places: NDArray[np.float32],
    useful: NDArray[np.int64],
    rng: np.random.Generator,
    unseen: NDArray[np.int64] | None = None,
) -> Split:
    """Hold out whole groups of near rows; a handful of rows, or of families, serves for both.

    Parameters
    ----------
    places : array of shape (n, p)
        Where the rows lie.
    useful : int array
        The rows to split.
    unseen : int array, optional
        Those of them that may be held out, unless they are too few.
    """
    wanted = min(_HELD_MOST, int(_HELD_SHARE * len(useful)))
    if wanted == 0:
        return Split(useful, useful)
    enough = unseen is not None and len(unseen) >= wanted / 2
    groups = _group_rows(places, unseen if unseen is not None and enough else useful, rng)
    groups.sort(key=lambda group: max(len(group), _GROUP, wanted))  # large families last
    if len(groups[0]) > len(useful) // 2:
        return Split(useful, useful)
    sizes = np.cumsum([len(group) for group in groups])
    count = int(np.searchsorted(sizes, wanted)) + 1
    held = np.concatenate(groups[:count])
    return Split(np.setdiff1d(useful, held), rng.permutation(held))


def _group_rows(
    places: NDArray[np.float32], rows: NDArray[np.int64], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Cut the rows into small groups of near ones, in random order."""
    waiting, done = [rows], []
    while waiting:
        group = waiting.pop()
        parts = _cut_group(places, group, rng) if len(group) > _GROUP else [group]
        if len(parts) > 1:
            waiting += parts
        else:
            done += parts
    return [done[place] for place in rng.permutation(len(done))]


def _cut_group(
    places: NDArray[np.float32], group: NDArray[np.int64], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Cut a group in two about the middle, where the gap is widest; rows all alike stay whole."""
    own = places[group]
    one = own[rng.integers(len(group))]
    apart = np.linalg.norm(own - one, axis=1)
    if apart.max() <= _ALIKE:
        return [group]
    along = own @ ((one - own[np.argmax(apart)]) / apart.max())
    order = np.argsort(along, kind="stable")
    middle, reach = len(group) // 2, max(_GROUP, len(group) // 16)
    near = along[order][max(0, middle - reach) : middle + reach + 1]
    if near[-1] - near[0] <= _ALIKE / 2:  # a large family lies across the middle
        alike = np.abs(along - along[order[middle]]) <= _ALIKE / 2
        return [group[alike], group[~alike]]
    cut = max(0, middle - reach) + int(np.argmax(np.diff(near))) + 1
    return [group[order[:cut]], group[order[cut:]]]


def _list_labels(labels: Sparse, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return some labels of each row, padded with -1."""
    padded = np.full((len(rows), _WANTED), -1, dtype=np.int64)
    for place, row in enumerate(rows):
        own = labels.indices[labels.indptr[row] : labels.indptr[row + 1]][:_WANTED]
        padded[place, : len(own)] = own
    return padded
