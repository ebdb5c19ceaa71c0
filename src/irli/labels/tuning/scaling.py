"""choose_scaling: how routers, ranker and near rows see rows, by linear classifiers of a sample.

What linear classifiers cannot tell apart, routers cannot either: over dense, sparse, binary and
counted rows of every scale, both prefer the same scaling. Classifiers are trained in a moment.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.engine.linear import find_best_outputs
from irli.labels.build.features import as_sparse, to_arrays
from irli.labels.build.scaling import GIVEN, Scaling, list_scalings
from irli.labels.ranking.negatives import draw_negatives
from irli.labels.ranking.ranker import COST, LEAST_PRUNE, train_ranker
from irli.labels.tuning.choose import Trials
from irli.labels.tuning.objective import BEST, mean_precision

LEAST_ROWS = 200  # of fewer rows, too few are held out to choose by
_ROWS = 5_000  # rows that classifiers learn from, at most
_LABELS, _FEWEST = 100_000, 1_000  # labels of these rows in all, at most; but so many rows
_MEASURED, _SHARE = 2_000, 3  # other rows that they are measured on, at most; one in so many
_TIE = 0.005  # share of the best precision that a scaling before it may lose


def choose_scaling(
    rows: Rows, labels: Sparse, recipe: Recipe, threads: int
) -> tuple[Scaling, Trials]:
    """Return the scaling, and what was tried.

    Parameters
    ----------
    rows : array or CSR of shape (n, d)
    labels : CSR of shape (n, L)
    """
    scalings, trials = list_scalings(rows), Trials()
    useful = np.flatnonzero(np.diff(labels.indptr))
    if not recipe.standardize:  # the paper takes rows as they are
        return GIVEN, trials
    if len(scalings) == 1 or len(useful) < LEAST_ROWS:
        return scalings[0], trials
    mixed = np.random.default_rng([recipe.seed, 0x5C]).permutation(useful)
    held = min(_MEASURED, len(mixed) // _SHARE)
    most = max(_FEWEST, _LABELS * len(useful) // labels.nnz)
    some = mixed[: held + min(_ROWS, len(mixed) - held, most)]
    sample, carried = rows[some], _drop_labels(labels[some])
    negatives = draw_negatives(carried[held:], recipe.seed)
    ones = np.ones(carried.shape[1], dtype=np.float32)

    def measure(scaling: Scaling) -> tuple[float, Scaling]:
        scaled = as_sparse(scaling.apply(sample))
        ranker = train_ranker(
            scaled[held:],
            carried[held:],
            negatives,
            cost=COST,
            importance=ones,
            prune=LEAST_PRUNE,
            threads=threads,
            seed=recipe.seed,
        )
        arrays, k = to_arrays(scaled[:held]), min(BEST, carried.shape[1])
        found = find_best_outputs(0, held, arrays, ranker.packed, k, bias=ranker.bias)[1]
        return mean_precision(found, carried[:held]), scaling

    by_name = {scaling.name: scaling for scaling in scalings}
    return trials.choose("scaling", by_name, measure, _TIE), trials


def _drop_labels(labels: Sparse) -> Sparse:
    """Return the labels without those that no row carries: most of half a million."""
    kept, columns = np.unique(labels.indices, return_inverse=True)
    shape = (labels.shape[0], max(1, len(kept)))
    return sp.csr_array((labels.data, columns.astype(np.int32), labels.indptr), shape=shape)
