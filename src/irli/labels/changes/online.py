"""Learn from new rows in bounded time, without the old ones.

Routers and buckets stay, and new labels are placed in buckets. The classifiers of the ranker start
from their weights and change as little as the new rows allow: the old rows, which are not there,
speak through these weights. How much the new rows count is chosen on halves of them. Near rows, if
the index has them, are joined by the new rows. They also serve new labels as negatives.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.types import Rows, Sparse
from irli.engine.label_layout import LabelLayout
from irli.engine.linear import find_best_outputs
from irli.labels.build.assemble import (
    add_near_rows,
    add_ranker,
    assemble_labels,
    read_near_rows,
    read_ranker,
    read_repetitions,
)
from irli.labels.build.features import as_sparse, hash_features, to_arrays
from irli.labels.build.problem import pair_keys, row_keys
from irli.labels.changes.new_labels import add_to_partitions
from irli.labels.contents import LabelContents
from irli.labels.predictor import Predictor
from irli.labels.ranking.near_rows import NEAREST, NearRows, find_near_labels, scale_to_unit
from irli.labels.ranking.negatives import as_pattern, join, mine_negatives
from irli.labels.ranking.ranker import COST, Ranker, train_ranker, usual_values
from irli.labels.tuning.calibration import Calibration, Candidates, fit_calibration
from irli.labels.tuning.objective import Objective
from irli.labels.tuning.sources import rank_candidates

_COSTS = (0.5, 1.0)  # of the ranker's cost, that are tried: the old rows hold the weights, too
_ROUNDS = 2  # rounds of mining
_UNLIKELY = -1.0  # the bias that new classifiers start from
_RANDOM = 100  # rows drawn for each label that is new or that new rows carry
_REPLAYED = 2000  # known rows that serve new labels as negatives, besides near ones
_COPY = 0.99  # rows with such a cosine are copies of each other
_LEAST_ROWS = 30  # new rows by which the sources are weighed again
_TIE = 0.0005  # quality within which everything stays
_UNIT = 1e-3  # lengths that differ from 1 by less are 1


log = get_logger(__name__)


class NewRows(NamedTuple):
    """Rows (n, d) to learn from, and their labels (n, L): those of the index, then new ones.

    If they are `partly` labelled, only the new labels are known.
    """

    rows: Rows
    labels: Sparse
    partly: bool = False


def learn_rows(
    old: LabelContents, given: NewRows, threads: int, cost: float = _COSTS[0]
) -> LabelContents:
    """Return the contents after learning from new rows. Names stay as they are.

    `cost` is a factor on the ranker's cost: how much a new row counts.
    """
    model, known = old.model, len(old.counts)
    layout, labels, seen = model.layout, given.labels, old.seen
    counts = np.bincount(labels.indices, minlength=labels.shape[1])
    counts[:known] += old.counts
    rows = old.rows if given.partly else old.rows + labels.shape[0]
    scaled = model.scaling.apply(given.rows)
    repetitions = add_to_partitions(
        read_repetitions(layout), scaled, sp.csr_array(labels[:, known:]), old.recipe
    )
    grown = assemble_labels(repetitions, counts)
    ranked = as_sparse(scaled)
    if not given.partly:
        seen = np.union1d(seen, pair_keys(row_keys(hash_features(scaled, old.recipe)), labels))
    near = read_near_rows(layout)
    if len(layout.starts) > 1:
        ranker = read_ranker(layout)
        replayed = ranked[:0]
        if len(near.scale) and labels.shape[1] > known:
            fresh = ranked[np.flatnonzero(np.diff(labels[:, known:].indptr))]
            replayed = choose_replay(near, fresh, old.recipe.seed, spare_copies=given.partly)
        ranker = update_ranker(
            ranker,
            ranked,
            labels,
            replayed,
            cost=cost * COST,
            share=labels.shape[0] / max(old.rows + labels.shape[0], 1),
            importance=Objective.of_counts(old.ranking.objective, counts, rows).importance,
            prune=model.prune,
            partly=given.partly,
            seed=old.recipe.seed,
            threads=threads,
        )
        grown = add_ranker(grown, ranker)
    if len(near.scale):
        labelled = np.flatnonzero(np.diff(labels.indptr))
        left_out = find_left_out(near, layout.starts)
        near = near.extend(ranked[labelled], labels[labelled], left_out)
        grown = add_near_rows(grown, near)
    model = model._replace(layout=grown, calibration=_limit_routers(model.calibration, known))
    return dataclasses.replace(old, rows=rows, counts=counts, seen=seen, model=model)


def update_sources(
    old: LabelContents,
    layout: LabelLayout,
    rows: Sparse,
    labels: Sparse,
    new: NDArray[np.int64],
    threads: int,
) -> LabelLayout:
    """Return the layout of new routers with the sources of an index that has seen most rows.

    The ranker learns from the new rows alone. Near rows are all rows (n, D) with labels (n, L).
    """
    model, near = old.model, read_near_rows(old.model.layout)
    if len(model.layout.starts) > 1:
        ranker = widen_ranker(read_ranker(model.layout), labels.shape[1])
        if len(new):
            others = np.setdiff1d(np.arange(rows.shape[0]), new)
            rng = np.random.default_rng([old.recipe.seed, 0xA1])
            ranker = update_ranker(
                ranker,
                rows[new],
                labels[new],
                rows[rng.permutation(others)[:_REPLAYED]],
                cost=_COSTS[0] * COST,
                share=len(new) / rows.shape[0],
                importance=Objective.of(old.ranking.objective, labels).importance,
                prune=model.prune,
                partly=False,
                seed=old.recipe.seed,
                threads=threads,
            )
        layout = add_ranker(layout, ranker)
    if len(near.scale):
        labelled = np.flatnonzero(np.diff(labels.indptr))
        layout = add_near_rows(layout, NearRows.pack(rows[labelled], labels[labelled]))
    return layout


def _limit_routers(calibration: Calibration, known: int) -> Calibration:
    """Return the calibration for an index with new labels: the routers have not learned these."""
    return calibration._replace(complete=min(calibration.complete, known))


# --- how much the sources count ------------------------------------------------------------------


def recalibrate(
    old: LabelContents, given: NewRows, seed: int, threads: int
) -> tuple[float, Calibration]:
    """Return how much new rows and how much the sources count, by how well they predict new rows.

    The routers know nothing of new labels, and little of rows that are unlike the old ones. So each
    half of the new rows is predicted by an index that has learned from the other half.
    """
    model, (n, count) = old.model, given.labels.shape
    before = _limit_routers(model.calibration, len(old.counts))
    if n < _LEAST_ROWS or not before.is_blended:
        return _COSTS[0], before
    halves = np.array_split(np.random.default_rng([seed, 0xB3]).permutation(n), 2)
    asked = before._replace(
        by_margin=float(len(model.layout.starts) > 1),
        by_score=1.0,
        by_votes=float(len(model.layout.near_scale) > 0),
    )

    def list_candidates(cost: float) -> Candidates:
        found = []
        for held, taught in (halves, halves[::-1]):
            some = NewRows(given.rows[taught], given.labels[taught])
            learned = learn_rows(old, some, threads, cost)
            scaled = model.scaling.apply(given.rows[held])
            found.append(
                Predictor(learned.model.layout).list_candidates(
                    hash_features(scaled, old.recipe),
                    scaled,
                    model.parameters,
                    asked,
                    threads,
                )
            )
        return Candidates(*(np.concatenate(part) for part in zip(*found, strict=True)))

    truth = given.labels[np.concatenate(halves)]
    counts = np.bincount(truth.indices, minlength=count)
    counts[: len(old.counts)] += old.counts
    goal = Objective.of_counts(old.ranking.objective, counts, old.rows + n)
    best, chosen, quality = before, _COSTS[0], -np.inf
    for cost in _COSTS if len(model.layout.starts) > 1 else _COSTS[:1]:
        candidates = list_candidates(cost)
        fitted = fit_calibration(candidates, truth, goal)._replace(complete=asked.complete)
        for tried in (before, fitted):
            reached = goal.measure(rank_candidates(candidates, tried), truth)
            log.info("cost %g, calibration %s: quality %.4f", cost, tried, reached)
            if reached > quality + _TIE:
                kept = tried is before
                best = tried if kept else tried.fit_curve(candidates, truth)
                chosen, quality = cost, reached
    return chosen, best


# --- the ranker ----------------------------------------------------------------------------------


def update_ranker(
    ranker: Ranker,
    rows: Sparse,
    labels: Sparse,
    replayed: Sparse,
    *,
    cost: float,
    share: float,
    importance: NDArray[np.float32],
    prune: float,
    partly: bool,
    seed: int,
    threads: int,
) -> Ranker:
    """Return the ranker after learning from new rows. Labels that it does not know are added.

    Parameters
    ----------
    rows, labels : CSRs of shape (n, D) and (n, L)
    replayed : CSR of shape (m, D)
        Rows that carry none of the new labels, or no rows.
    share : float
        The share of all rows, old and new, that are new.
    cost, importance, prune, seed
        As for `train_ranker`.
    partly : bool
        Whether only the new labels of the rows are known.
    """
    (n, count), known = labels.shape, len(ranker.bias)
    start = updated = widen_ranker(ranker, count)
    everything = sp.csr_array(sp.vstack([rows, replayed], format="csr"))
    carried = _add_empty_rows(labels, replayed.shape[0])
    near = find_near_labels(rows, labels, np.arange(n), threads=threads)
    near = _add_empty_rows(near, replayed.shape[0])
    drawn_for = np.union1d(labels.indices, np.arange(known, count))
    negatives = join(near, _draw_rows(carried.shape, drawn_for, seed))
    for _ in range(_ROUNDS):
        negatives = mine_negatives(updated, everything, negatives, threads)
        negatives = _leave_known(negatives, 0 if partly else n, known)
        updated = train_ranker(
            everything,
            carried,
            negatives,
            cost=cost,
            importance=importance,
            prune=prune,
            threads=threads,
            seed=seed,
            start=start,
        )
        updated = _hold_bias(updated, ranker, share)
    return updated


def _hold_bias(updated: Ranker, ranker: Ranker, share: float) -> Ranker:
    """Return the updated ranker, in which the bias of known labels has moved by a share only.

    Each old row has the bias, as if it were a feature, and none is there to hold it. If it moves
    freely, labels that new rows carry rise or fall together, past the others, whose bias stays.
    """
    known = len(ranker.bias)
    bias = updated.bias.copy()
    bias[:known] = ranker.bias + np.float32(share) * (bias[:known] - ranker.bias)
    return updated._replace(bias=bias)


def widen_ranker(ranker: Ranker, count: int) -> Ranker:
    """Return the ranker with so many labels. The new ones have no weights and are unlikely.

    Examples
    --------
    >>> ranker = Ranker.pack(sp.csr_array(np.eye(2, dtype="f4")), np.zeros(2, dtype="f4"))
    >>> widen_ranker(ranker, 3).margins(sp.csr_array(np.ones((1, 2), dtype="f4")))
    array([[ 1.,  1., -1.]], dtype=float32)
    """
    more = count - len(ranker.bias)
    return ranker._replace(
        scale=np.concatenate([ranker.scale, np.zeros(more, dtype=np.float32)]),
        bias=np.concatenate([ranker.bias, np.full(more, _UNLIKELY, dtype=np.float32)]),
    )


def _add_empty_rows(matrix: Sparse, more: int) -> Sparse:
    ends = np.concatenate([matrix.indptr, np.full(more, matrix.indptr[-1])])
    shape = (matrix.shape[0] + more, matrix.shape[1])
    return sp.csr_array((matrix.data, matrix.indices, ends), shape=shape)


def _draw_rows(shape: tuple[int, ...], labels: NDArray[np.int64], seed: int) -> Sparse:
    """Draw random rows for some labels: a CSR of ones (n, L)."""
    n, count = shape
    rng = np.random.default_rng([seed, 0x9F])
    drawn = np.full((count, min(_RANDOM, n)), -1)
    drawn[labels] = rng.integers(n, size=(len(labels), drawn.shape[1]))
    return sp.csr_array(as_pattern(drawn, n).T.tocsr())


def _leave_known(negatives: Sparse, first: int, known: int) -> Sparse:
    """Drop negatives of known labels from the row `first` on."""
    row = np.repeat(np.arange(negatives.shape[0]), np.diff(negatives.indptr))
    kept = (row < first) | (negatives.indices >= known)
    starts = np.concatenate([[0], np.cumsum(kept)])[negatives.indptr]
    return sp.csr_array(
        (negatives.data[kept], negatives.indices[kept], starts), shape=negatives.shape
    )


# --- near rows -----------------------------------------------------------------------------------


def find_left_out(near: NearRows, ranker_starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which features the near rows were packed without (D,), since they are common.

    The ranker has weights for them. So they are told from features that no old row has.
    """
    if len(ranker_starts) != len(near.starts):
        return np.zeros(len(near.starts) - 1, dtype=np.bool_)
    left_out: NDArray[np.bool_] = (np.diff(near.starts) == 0) & (np.diff(ranker_starts) > 0)
    return left_out


def choose_replay(near: NearRows, rows: Sparse, seed: int, *, spare_copies: bool) -> Sparse:
    """Return known rows that are negatives of the labels of new `rows`: near ones and random ones.

    With `spare_copies`, those that are copies of the new rows are left out.
    """
    unit = scale_to_unit(rows)
    cosines, found = find_best_outputs(0, rows.shape[0], to_arrays(unit), near.packed, NEAREST)
    count = len(near.scale)
    rng = np.random.default_rng([seed, 0xA1])
    drawn = rng.permutation(count)[:_REPLAYED]
    chosen = np.union1d(drawn, found[found >= 0])
    if spare_copies:
        chosen = np.setdiff1d(chosen, found[(found >= 0) & (cosines >= _COPY)])
    old, _ = near.unpack(int(near.labels.max(initial=-1)) + 1)
    return restore_lengths(sp.csr_array(old[chosen]), rows)


def restore_lengths(unit: Sparse, like: Sparse) -> Sparse:
    """Return rows of unit length with the lengths that rows with such features have elsewhere.

    Examples
    --------
    >>> ones = sp.csr_array(np.ones((1, 4), dtype="f4"))
    >>> restore_lengths(sp.csr_array(np.full((1, 4), 0.5, dtype="f4")), ones).data
    array([1., 1., 1., 1.], dtype=float32)
    """
    row = np.repeat(np.arange(like.shape[0]), np.diff(like.indptr))
    squares = np.bincount(row, weights=like.data.astype(np.float64) ** 2)
    if (np.abs(np.sqrt(squares[squares > 0]) - 1) < _UNIT).all():
        return unit
    row = np.repeat(np.arange(unit.shape[0]), np.diff(unit.indptr))
    usual = usual_values(like)[unit.indices].astype(np.float64) ** 2
    squares = np.where(usual > 0, unit.data.astype(np.float64) ** 2, 0)
    wanted = np.bincount(row, weights=usual, minlength=unit.shape[0])
    given = np.bincount(row, weights=squares, minlength=unit.shape[0])
    factor = np.sqrt(np.where(given > 0, wanted / np.where(given > 0, given, 1), 1))
    data = (unit.data * factor[row]).astype(np.float32)
    return sp.csr_array((data, unit.indices, unit.indptr), shape=unit.shape)
