"""The learner of a label index: each function takes checked rows, and returns new contents.

Nothing that is given changes: so an index replaces what it has as a whole, or not at all.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp

from irli.base.logs import get_logger
from irli.base.progress import Phases, Progress
from irli.base.recipe import Recipe
from irli.base.sparse import count_labels
from irli.base.threads import limit_blas
from irli.base.types import Rows, Sparse
from irli.engine.label_layout import LabelLayout
from irli.labels.build.assemble import assemble_labels, read_repetitions
from irli.labels.build.expected import LEARNING, RANKING, SCALING, expect_seconds
from irli.labels.build.features import as_sparse, limit_features
from irli.labels.build.problem import LabelProblem, append_titles, make_label_problem
from irli.labels.changes.new_labels import add_to_partitions
from irli.labels.changes.online import NewRows, learn_rows, recalibrate, update_sources
from irli.labels.contents import LabelContents
from irli.labels.tuning.calibration import EVERY
from irli.labels.tuning.scaling import choose_scaling
from irli.labels.tuning.tune import RankingOptions, tune_labels
from irli.learning import learn
from irli.learning.options import LearnOptions
from irli.learning.repetition import Repetition, group_repetitions, join_histories

log = get_logger(__name__)

_FEW = 0.25  # share of the rows that may be new for an index to keep what it has chosen
_SHORT = 0.2  # share of the epochs that its routers then need


@limit_blas()
def fit_labels(
    rows: Rows,
    labels: Sparse,
    titles: Any,
    recipe: Recipe,
    ranking: RankingOptions,
    run: LearnOptions,
) -> LabelContents:
    """Learn from rows (n, d) with labels (n, L), and from the titles of the labels (L, d)."""
    with Phases(run.progress, expect_seconds(rows, labels, recipe)) as phases:
        phases.begin(SCALING)
        scaling, trials = choose_scaling(rows, labels, recipe, run.thread_count)
        count = rows.shape[0]
        if titles is not None:
            rows, labels = append_titles(rows, labels, titles)
        recipe = limit_features(rows, recipe).resolve_for_labels(labels.shape[1])
        made = make_label_problem(
            rows, labels, recipe, scaling=scaling, titles=rows.shape[0] - count
        )._replace(trials=trials)
        repetitions = _learn_in(phases, made, recipe, run)
        layout = assemble_labels(repetitions, count_labels(labels))
        shown, threads = phases.begin(RANKING), run.thread_count
        return complete_labels(
            made, repetitions, layout, rows, labels, recipe, ranking, threads, shown
        )


@limit_blas()
def learn_on(
    old: LabelContents,
    rows: Rows,
    labels: Sparse,
    titles: Any,
    ranking: RankingOptions,
    run: LearnOptions,
) -> LabelContents:
    """Learn from where an index is, of all rows (n, d), whose labels (n, L) may be more.

    Where most rows are known, with their labels, and there is a ranker, routers need a part of the
    epochs, and the ranker learns from the new rows alone. Nothing is chosen again.
    """
    model, known, recipe, count = old.model, len(old.counts), old.recipe, rows.shape[0]
    if titles is not None:
        rows, labels = append_titles(rows, labels, titles)
    scaled = model.scaling.apply(rows)
    start = add_to_partitions(
        read_repetitions(model.layout), scaled, sp.csr_array(labels[:, known:]), recipe
    )
    made = make_label_problem(
        rows, labels, recipe, old.trained, model.scaling, titles=rows.shape[0] - count
    )
    labelled = np.diff(labels.indptr) > 0
    new = np.flatnonzero(~np.isin(made.seen, old.seen) & labelled)
    few = len(new) <= _FEW * np.count_nonzero(labelled) and ranking == old.ranking
    few = few and model.calibration.is_blended  # else routers are all that learns
    log.info("start: %d of %d rows are new", len(new), rows.shape[0])
    epochs = max(1, int(_SHORT * recipe.epochs)) if few else recipe.epochs
    short, threads = dataclasses.replace(recipe, epochs=epochs), run.thread_count
    with Phases(run.progress, expect_seconds(rows, labels, short)) as phases:
        repetitions = _learn_in(phases, made, short, run, start)
        layout = assemble_labels(repetitions, count_labels(labels))
        shown = phases.begin(RANKING)
        if not few:
            found = complete_labels(
                made, repetitions, layout, rows, labels, recipe, ranking, threads, shown
            )
            return dataclasses.replace(found, history=old.history + found.history)
        layout = update_sources(old, layout, as_sparse(scaled), labels, new, threads)
    calibration = model.calibration
    if calibration.complete:  # the routers have learned the labels that came before
        calibration = calibration._replace(complete=EVERY)
    return dataclasses.replace(
        old,
        model=model._replace(layout=layout, calibration=calibration),
        history=old.history + join_histories(repetitions),
        rows=count,
        counts=count_labels(labels[:count]),
        trained=made.trained,
        seen=np.unique(made.seen),
        titled=_find_titles(made),
    )


def _learn_in(
    phases: Phases,
    made: LabelProblem,
    recipe: Recipe,
    run: LearnOptions,
    start: list[Repetition] | None = None,
) -> list[Repetition]:
    """Learn, and show it as a phase."""
    loops = 1 if run.workers > 1 else len(group_repetitions(recipe))
    shown = dataclasses.replace(run, progress=phases.begin(LEARNING, loops))
    return learn(made.problem, recipe, shown, start)


@limit_blas()
def partial_fit_labels(
    old: LabelContents, rows: Rows, labels: Sparse, threads: int, titles: int = 0
) -> LabelContents:
    """Learn from new rows alone. So many of the last rows are `titles` of labels."""
    used = np.flatnonzero(np.diff(labels.indptr))
    rows, labels, given = rows[used], labels[used], len(used) - titles
    some = NewRows(rows[:given], labels[:given])  # rows to come are unlike titles
    cost, calibration = recalibrate(old, some, old.recipe.seed, threads)
    new = learn_rows(old, NewRows(rows, labels), threads, cost)
    known = len(old.model.layout.near_scale)
    return dataclasses.replace(
        new,
        model=new.model._replace(calibration=calibration),
        rows=new.rows - titles,
        counts=new.counts - count_labels(labels[given:]),
        titled=[*old.titled, (known + given, known + len(used))] if titles else old.titled,
    )


@limit_blas()
def complete_labels(
    made: LabelProblem,
    repetitions: list[Repetition],
    layout: LabelLayout,
    rows: Rows,
    labels: Sparse,
    recipe: Recipe,
    ranking: RankingOptions,
    threads: int,
    progress: Progress = False,
) -> LabelContents:
    """Run the last phase, tune, on rows (n, d) with labels (n, L), those of the layout."""
    model = tune_labels(layout, rows, labels, made, recipe, ranking, threads, progress)
    ranker = "with" if model.calibration.is_blended else "without"
    log.info("tuned: %s, %s ranker", model.parameters, ranker)
    given = rows.shape[0] - made.titles
    return LabelContents(
        recipe=recipe,
        model=model,
        history=[*join_histories(repetitions), *made.trials, *model.trials],
        rows=given,
        dim=rows.shape[1],
        counts=count_labels(labels[:given]),
        trained=made.trained,
        seen=np.unique(made.seen),
        ranking=ranking,
        titled=_find_titles(made),
    )


def _find_titles(made: LabelProblem) -> list[tuple[int, int]]:
    """Return which of the rows with labels are titles: the last ones."""
    near = len(np.union1d(*made.split))
    return [(near - made.titles, near)] if made.titles else []
