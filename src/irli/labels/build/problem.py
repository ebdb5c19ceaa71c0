"""Phase 1, make_label_problem: training rows, label profiles, and a held-out split without leaks.

Rows often come in families: versions of one product, packages of one source. If rows are held out
at random, most have relatives in training, and a model that memorises looks better than it is on
rows of a new family. If whole groups of near rows are held out, it looks worse than it is on rows
of a known one. Nobody says which rows will come. Most are like those that came before, so a quarter
of the held-out rows are groups, and the others are drawn at random, with their near copies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.recipe import Recipe
from irli.base.sparse import as_rows
from irli.base.types import Rows, Sparse
from irli.errors import InvalidParameter
from irli.labels.build.features import hash_features
from irli.labels.build.profiles import average_profiles, embed_rows, normalize
from irli.labels.build.scaling import GIVEN, Scaling
from irli.learning.problem import Problem

log = get_logger(__name__)

_DIRECTIONS = 128  # dimensions of embedded rows and of label profiles
_GROUP = 8  # rows in a group, at most, unless they are near copies
_ALIKE = 0.03  # rows of unit length within this distance are near copies
_HELD_SHARE = 0.05  # of the rows
_HELD_LEAST, _HELD_MOST = 20, 5000
_MOST_SHARE = 0.2  # of few rows: less than _HELD_LEAST may be held out of them
_GROUPED = 0.25  # of the held-out rows are in groups of near rows
_FEW_ROWS, _FEW_FAMILIES = 4, 3  # fewer held-out rows, or families of them, decide by chance
_VALIDATION_ROWS = 500  # held-out rows that validate re-partitions, at most
_VALIDATION_LABELS = 10  # labels of each of them, at most
_MIX, _OTHER_MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class Split(NamedTuple):
    """The training rows, and the held-out rows on which everything is tuned."""

    train: NDArray[np.int64]
    held: NDArray[np.int64]


_NO_KEYS = np.empty(0, dtype=np.uint64)


class LabelProblem(NamedTuple):
    """A problem to learn, and the split of the rows that it comes from."""

    problem: Problem
    split: Split
    trained: NDArray[np.uint64]  # keys of all rows that the routers have seen after training
    scaling: Scaling = GIVEN  # of the rows
    trials: Sequence[dict[str, Any]] = ()  # by which it was chosen, for the history
    titles: int = 0  # of labels, which are the last training rows
    seen: NDArray[np.uint64] = _NO_KEYS  # the key of each row with its labels (n,)

    def save(self, folder: Path) -> None:
        """Write the arrays so that other processes can map them."""
        self.problem.save(folder)
        parts = {**self.split._asdict(), "trained": self.trained, **self.scaling.state()}
        parts |= {"titles": np.array(self.titles), "seen": self.seen}
        for name, value in parts.items():
            np.save(folder / f"label_{name}.npy", value)
        (folder / "label_trials.json").write_text(json.dumps(list(self.trials)))

    @classmethod
    def load(cls, folder: Path) -> LabelProblem:
        """Read what `save` wrote. The arrays of the problem are memory-mapped."""
        names = ("train", "held", "trained", "seen")
        train, held, trained, seen = (np.load(folder / f"label_{name}.npy") for name in names)
        parts = {name: np.load(folder / f"label_{name}.npy") for name in Scaling._fields}
        scaling = Scaling.from_state(parts)
        trials = json.loads((folder / "label_trials.json").read_text())
        titles = int(np.load(folder / "label_titles.npy"))
        split = Split(train, held)
        return cls(Problem.load(folder), split, trained, scaling, trials, titles, seen)


def make_label_problem(
    rows: Rows,
    labels: Sparse,
    recipe: Recipe,
    trained: NDArray[np.uint64] | None = None,
    scaling: Scaling = GIVEN,
    titles: int = 0,
) -> LabelProblem:
    """Turn rows and their labels into a problem to learn.

    Parameters
    ----------
    rows : array or CSR of shape (n, d)
    labels : CSR of shape (n, L)
    trained : uint64 array, optional
        Keys of the rows that the routers have already seen. Other rows are held out.
    scaling : Scaling
        Of the rows.
    titles : int
        So many of the last rows are titles of labels. They are never held out, since rows to come
        are unlike them.
    """
    rng = np.random.default_rng([recipe.seed, 0x1D])
    routed = hash_features(scaling.apply(rows), recipe)
    embedded = normalize(embed_rows(routed, _DIRECTIONS, recipe.seed))
    useful = np.flatnonzero(np.diff(labels.indptr))  # rows without labels are of no use
    keys = row_keys(routed)
    given, taught = np.split(useful, [np.searchsorted(useful, rows.shape[0] - titles)])
    unseen = None if trained is None else given[~np.isin(keys[given], trained)]
    split = hold_out(embedded, given, rng, unseen)
    if not _can_be_learned(split, labels):
        split = Split(given, given)
    split = Split(np.concatenate([split.train, taught]), split.held)
    train_labels = labels[split.train]
    count = len(split.train)
    validation = split.held[:_VALIDATION_ROWS]
    problem = Problem(
        metric="cosine",
        items=average_profiles(embedded[split.train], train_labels),
        items_are_queries=False,
        queries=routed[split.train],
        query_items=np.full(count, -1),
        indptr=train_labels.indptr.astype(np.int64),
        indices=train_labels.indices.astype(np.int64),
        weights=np.ones(train_labels.nnz, dtype=np.float32),
        sampling=np.full(count, 1 / count),
        held_queries=routed[validation],
        held_truth=_list_labels(labels, validation),
    )
    log.info(
        "problem: %d labels, %d training rows, %d held out", labels.shape[1], count, len(split.held)
    )
    known = np.unique(keys[split.train])
    every = known if trained is None else np.union1d(known, trained)
    seen = pair_keys(keys, labels)
    return LabelProblem(problem, split, every, scaling, titles=len(taught), seen=seen)


def append_titles(rows: Rows, labels: Sparse, titles: Any) -> tuple[Rows, Sparse]:
    """Return rows and labels with the titles (L, d) as further rows. Those of zeros are left out.

    Examples
    --------
    >>> rows, labels = np.ones((1, 3), dtype="f4"), sp.csr_array(np.ones((1, 2), dtype="f4"))
    >>> rows, labels = append_titles(rows, labels, [[0.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    >>> rows[1], labels.toarray()[1]
    (array([0., 2., 0.], dtype=float32), array([0., 1.], dtype=float32))
    """
    written = as_rows(titles, rows.shape[1])
    if written.shape[0] != labels.shape[1]:
        raise InvalidParameter(
            f"The 'titles' parameter must have a row for each of the {labels.shape[1]} labels. "
            f"Got {written.shape[0]} instead. Use rows of zeros for labels without a title."
        )
    sparse = sp.csr_array(written)
    kept = np.flatnonzero(np.diff(sparse.indptr))
    owner = sp.eye_array(labels.shape[1], dtype=np.float32, format="csr")[kept]
    if isinstance(rows, np.ndarray):
        together: Rows = np.concatenate([rows, sparse[kept].toarray()])
    else:
        together = sp.vstack([rows, sparse[kept]], format="csr")
    return together, sp.vstack([labels, owner], format="csr")


def row_keys(rows: Rows) -> NDArray[np.uint64]:
    """Return a 64-bit hash of the features of each row (n,), which identifies it.

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


def pair_keys(keys: NDArray[np.uint64], labels: Sparse) -> NDArray[np.uint64]:
    """Return a key of each row and its labels (n,), for the keys of the rows alone."""
    return np.asarray(keys ^ row_keys(labels) * _MIX)


def hold_out(
    embedded: NDArray[np.float32],
    useful: NDArray[np.int64],
    rng: np.random.Generator,
    unseen: NDArray[np.int64] | None = None,
) -> Split:
    """Hold out some groups of near rows, and more rows at random.

    Few rows are drawn at random alone, since a single group would decide everything. If rows or
    families of them are too few, all rows are used as both.

    Parameters
    ----------
    embedded : array of shape (n, p)
        Embedded rows, of unit length.
    useful : int array
        The rows to split.
    unseen : int array, optional
        Those of them that may be held out. If they are too few, all may be.
    """
    least = min(_HELD_LEAST, int(_MOST_SHARE * len(useful)))
    wanted = min(_HELD_MOST, max(least, int(_HELD_SHARE * len(useful))))
    if wanted < _FEW_ROWS:
        return Split(useful, useful)
    enough = unseen is not None and len(unseen) >= wanted / 2
    groups = _group_rows(embedded, unseen if unseen is not None and enough else useful, rng)
    groups.sort(key=lambda group: max(len(group), _GROUP, wanted))  # large families last
    families: list[NDArray[np.int64]] = []
    if wanted * _GROUPED >= _GROUP:
        sizes = np.cumsum([len(group) for group in groups])
        families = groups[: int(np.searchsorted(sizes, wanted * _GROUPED)) + 1]
    missing = wanted - sum(map(len, families))
    families += _draw_rows(embedded, groups[len(families) :], missing, rng)
    if len(families) < _FEW_FAMILIES:
        return Split(useful, useful) if unseen is None else hold_out(embedded, useful, rng)
    held = np.concatenate(families)
    return Split(np.setdiff1d(useful, held), rng.permutation(held))


def _can_be_learned(split: Split, labels: Sparse) -> bool:
    """Whether most held-out rows carry a label of a training row. Others tell nothing.

    If each family of rows has labels of its own, a label whose rows are held out is never learned.
    """
    taught = np.zeros(labels.shape[1], dtype=np.float32)
    taught[labels[split.train].indices] = 1
    known = labels[split.held] @ taught > 0
    return bool(np.count_nonzero(known) >= len(known) / 2)


def _draw_rows(
    embedded: NDArray[np.float32],
    groups: list[NDArray[np.int64]],
    wanted: int,
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Draw a row of each group, with its near copies, until there are enough."""
    drawn: list[NDArray[np.int64]] = []
    missing = wanted
    for group in groups:
        if missing <= 0:
            break
        one = embedded[group[rng.integers(len(group))]]
        copies = group[np.linalg.norm(embedded[group] - one, axis=1) <= _ALIKE]
        if len(copies) <= max(_GROUP, missing):
            drawn.append(copies)
            missing -= len(copies)
    return drawn


def _group_rows(
    embedded: NDArray[np.float32], rows: NDArray[np.int64], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Cut the rows into small groups of near rows, in random order."""
    waiting, done = [rows], []
    while waiting:
        group = waiting.pop()
        parts = _cut_group(embedded, group, rng) if len(group) > _GROUP else [group]
        if len(parts) > 1:
            waiting += parts
        else:
            done += parts
    return [done[place] for place in rng.permutation(len(done))]


def _cut_group(
    embedded: NDArray[np.float32], group: NDArray[np.int64], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Cut a group in two at the widest gap near its middle. A group of near copies stays whole."""
    vectors = embedded[group]
    one = vectors[rng.integers(len(group))]
    apart = np.linalg.norm(vectors - one, axis=1)
    if apart.max() <= _ALIKE:
        return [group]
    along = vectors @ ((one - vectors[np.argmax(apart)]) / apart.max())
    order = np.argsort(along, kind="stable")
    middle, reach = len(group) // 2, max(_GROUP, len(group) // 16)
    near = along[order][max(0, middle - reach) : middle + reach + 1]
    if near[-1] - near[0] <= _ALIKE / 2:  # a large family spans the middle
        alike = np.abs(along - along[order[middle]]) <= _ALIKE / 2
        return [group[alike], group[~alike]]
    cut = max(0, middle - reach) + int(np.argmax(np.diff(near))) + 1
    return [group[order[:cut]], group[order[cut:]]]


def _list_labels(labels: Sparse, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first labels of each row (n, 10), padded with -1."""
    padded = np.full((len(rows), _VALIDATION_LABELS), -1, dtype=np.int64)
    for place, row in enumerate(rows):
        first = labels.indices[labels.indptr[row] : labels.indptr[row + 1]][:_VALIDATION_LABELS]
        padded[place, : len(first)] = first
    return padded
