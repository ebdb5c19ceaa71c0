"""Phase 4, tune_labels: choose on held-out rows how to predict, and train the ranker.

What is chosen: the routers' score and probes, which sources count and how much, and pruning. The
history shows what was tried. The final ranker then learns from all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.progress import Progress
from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.engine.label_layout import LabelLayout
from irli.labels.build.features import as_sparse, hash_features
from irli.labels.build.problem import LabelProblem
from irli.labels.build.scaling import GIVEN, Scaling
from irli.labels.parameters import LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.ranking.ranker import LEAST_PRUNE
from irli.labels.tuning.calibration import Calibration, Candidates, calibrate_scores
from irli.labels.tuning.choose import Trials
from irli.labels.tuning.objective import Objective, mean_precision
from irli.labels.tuning.routers import (
    HeldRows,
    choose_probes,
    choose_score,
    count_shortlist,
)
from irli.labels.tuning.sources import SourceChooser

log = get_logger(__name__)

_PROBED, _SUMMED = 10, "probability"  # m of the paper's Table 1, and what its figure 2 sums


class RankingOptions(NamedTuple):
    """How the user wants labels to be ranked.

    Attributes
    ----------
    ranker : bool or None
        Whether there is a ranker. None means: if it helps on held-out rows.
    objective : str
        See `irli.labels.tuning.objective`.
    keep_held : bool
        Whether `LabelModel.held` is wanted, with a ranker.
    score : str or None
        The routers' score: see `LabelParameters`. None means: the best on held-out rows.
    """

    ranker: bool | None = None
    objective: str = "balanced"
    keep_held: bool = False
    score: str | None = None


class Held(NamedTuple):
    """Held-out rows (n,), and their candidates by a ranker that was trained without them."""

    rows: NDArray[np.int64]
    found: Candidates


class LabelTuneResult(NamedTuple):
    """The parameters that `fit` chose, and what it measured with them on held-out rows.

    Precision is the mean of P@1, P@3 and P@5. The clock decides nothing: the same rows and the same
    seed give the same result.

    Attributes
    ----------
    parameters : LabelParameters
    ranker : bool
        Whether the ranker is used.
    precision : float
        With these parameters, and with the ranker if it is used.
    precision_without_ranker : float
        Of the index alone.
    rows : int
        How many rows were held out. If there were too few, training has seen them, too.
    """

    parameters: LabelParameters
    ranker: bool
    precision: float
    precision_without_ranker: float
    rows: int


class LabelModel(NamedTuple):
    """All that prediction needs: the layout, the parameters and the calibration.

    Attributes
    ----------
    alone : Calibration
        That of the index without the ranker and near rows.
    scaling : Scaling
        How rows are scaled for all sources.
    prune : float
        Of the ranker, for training it again.
    held : Held, optional
        If it was wished for: the sources can then be weighed again.
    """

    layout: LabelLayout
    parameters: LabelParameters
    calibration: Calibration
    alone: Calibration
    tuned: LabelTuneResult | None
    scaling: Scaling = GIVEN
    prune: float = LEAST_PRUNE
    trials: Sequence[dict[str, Any]] = ()
    held: Held | None = None


def tune_labels(
    layout: LabelLayout,
    rows: Rows,
    labels: Sparse,
    made: LabelProblem,
    recipe: Recipe,
    ranking: RankingOptions,
    threads: int,
    progress: Progress = False,
) -> LabelModel:
    """Choose how to predict, and add a ranker and near rows to the layout if they help.

    With `search="votes"` in the recipe there is no ranker unless it is wanted, and nothing is
    chosen: as in the paper, the sum of the scores of their best buckets orders the labels.
    """
    split, trials = made.split, Trials()
    scaled = made.scaling.apply(rows)
    routed, truth = as_sparse(hash_features(scaled, recipe)), labels[split.held]
    predictor = Predictor(layout)
    held = HeldRows(routed[split.held], truth, count_shortlist(labels))
    as_in_paper = recipe.search == "votes" and not ranking.ranker
    if as_in_paper:
        probes = min(_PROBED, layout.bias.shape[1])
        parameters = LabelParameters(probes, held.width, ranking.score or _SUMMED)
    else:
        score = ranking.score or choose_score(predictor, held, threads, trials)
        parameters = choose_probes(predictor, held, score, threads, trials)
    scores, found = predictor.predict(held.rows, held.rows, held.width, parameters, threads=threads)
    precision = mean_precision(found, truth)
    calibration = calibrate_scores(found, scores, truth)
    tuned = LabelTuneResult(parameters, False, precision, precision, len(split.held))
    alone = LabelModel(
        layout, parameters, calibration, calibration, tuned, made.scaling, trials=trials
    )
    if ranking.ranker is False or as_in_paper:
        return alone
    goal = Objective.of(ranking.objective, labels[split.train])
    chooser = SourceChooser(
        layout=layout,
        routed=routed,
        ranked=as_sparse(scaled),
        labels=labels,
        split=split,
        goal=goal,
        parameters=parameters,
        seed=recipe.seed,
        threads=threads,
        progress=progress,
        trials=trials,
    )
    gathered = chooser.gather()
    first = chooser.train_first(gathered)
    blend = chooser.choose(chooser.mine(first, gathered, split.train))
    ways = {"index alone": (goal.measure(found, truth), None), "blended": (blend.quality, blend)}
    better = trials.choose("ranker", ways, lambda way: way)
    if better is None and ranking.ranker is None:
        return alone
    layout, final = chooser.complete(blend, gathered, first)
    sources = final.sources
    return alone._replace(
        layout=layout,
        parameters=sources.parameters,
        calibration=final.calibration,
        tuned=tuned._replace(parameters=sources.parameters, ranker=True, precision=final.precision),
        prune=sources.prune,
        held=Held(split.held, chooser.list_candidates(blend.sources, split.held))
        if ranking.keep_held
        else None,
    )
