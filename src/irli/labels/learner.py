"""The learner of a label index: each function takes checked rows, and returns new contents.

Nothing that is given changes: so an index replaces what it has as a whole, or not at all.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from irli.base.logs import get_logger
from irli.base.progress import Phases, Progress
from irli.base.recipe import Recipe
from irli.base.sparse import count_labels
from irli.base.threads import limit_blas
from irli.base.types import Rows, Sparse
from irli.engine.label_layout import LabelLayout
from irli.labels.build.assemble import assemble_labels, read_repetitions
from irli.labels.build.expected import LEARNING, RANKING, SCALING, expect_seconds
from irli.labels.build.features import limit_features
from irli.labels.build.problem import LabelProblem, append_titles, make_label_problem
from irli.labels.changes.new_labels import add_to_partitions
from irli.labels.changes.online import NewRows, learn_rows, recalibrate
from irli.labels.contents import LabelContents
from irli.labels.tuning.scaling import choose_scaling
from irli.labels.tuning.tune import RankingOptions, tune_labels
from irli.learning import learn
from irli.learning.options import LearnOptions
from irli.learning.repetition import Repetition, group_repetitions, join_histories

log = get_logger(__name__)


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
def refit_labels(
    old: LabelContents,
    rows: Rows,
    labels: Sparse,
    epochs: int,
    ranking: RankingOptions,
    run: LearnOptions,
) -> LabelContents:
    """Continue learning on all rows (n, d), whose labels (n, L) may be more than the known ones."""
    scaling = old.model.scaling
    start = add_to_partitions(
        read_repetitions(old.model.layout),
        scaling.apply(rows),
        labels[:, len(old.counts) :],
        old.recipe,
    )
    made = make_label_problem(rows, labels, old.recipe, old.trained, scaling)
    recipe = dataclasses.replace(old.recipe, epochs=epochs)
    with Phases(run.progress, expect_seconds(rows, labels, recipe)) as phases:
        repetitions = _learn_in(phases, made, recipe, run, start)
        layout = assemble_labels(repetitions, count_labels(labels))
        shown, threads = phases.begin(RANKING), run.thread_count
        new = complete_labels(
            made, repetitions, layout, rows, labels, old.recipe, ranking, threads, shown
        )
    return dataclasses.replace(
        new, history=old.history + new.history, names=old.names, vectorizer=old.vectorizer
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
    near = len(np.union1d(*made.split))  # rows with labels, the titles last
    return LabelContents(
        recipe=recipe,
        model=model,
        history=[*join_histories(repetitions), *made.trials, *model.trials],
        rows=given,
        dim=rows.shape[1],
        counts=count_labels(labels[:given]),
        trained=made.trained,
        ranking=ranking,
        titled=[(near - made.titles, near)] if made.titles else [],
    )
