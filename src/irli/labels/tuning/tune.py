"""Phase 4, tune_labels: train the ranker, and choose on held-out rows how to predict.

Three sources know something of a label: the routers, the ranker and near rows. Each proposes labels
and scores those of the others; `tuning.calibration` blends the scores. What is chosen on
held-out rows: the routers' score and probes, how the ranker's rows are scaled, its cost, which
sources count, candidates, pruning. The history shows what was tried. Rankers that are evaluated are
trained without these rows, and near rows are others. The final ranker is then trained on all rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.progress import Progress
from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.engine.label_layout import LabelLayout
from irli.labels.build.assemble import add_near_rows, add_ranker
from irli.labels.build.features import as_sparse, hash_features
from irli.labels.build.problem import LabelProblem, Split
from irli.labels.build.scaling import GIVEN, LEAST_ROWS, Scaling, list_scalings
from irli.labels.metrics import recall
from irli.labels.parameters import SCORES, LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.ranking.near_rows import NO_ROWS, NearRows
from irli.labels.ranking.negatives import as_pattern, gather_negatives, keep_rows, mine_negatives
from irli.labels.ranking.ranker import COST, LEAST_PRUNE, Ranker, train_ranker, usual_values
from irli.labels.tuning.calibration import (
    ASKED,
    Calibration,
    Candidates,
    calibrate_scores,
    fit_calibration,
)
from irli.labels.tuning.objective import Objective, mean_precision

T = TypeVar("T")

log = get_logger(__name__)

_SHORTLIST = 200  # labels that the index proposes for a row
_MORE_PER_LABEL = 4  # further ones for each label that a row carries on average
_TAUGHT = 20  # of them that are negatives of the ranker
_NEAR = 100  # near rows that vote
_COSTS = (0.0625, 0.125, COST, 0.5, 1.0, 2.0)  # of the ranker, that may be tried
_PRUNES = (LEAST_PRUNE, 0.03, 0.04)  # pruning thresholds that are tried
_LOSS = 0.001  # share of the quality that a cheaper way may cost: there are three such choices
_CANDIDATES = (50, 100, 200)  # numbers of candidates of each source that are tried
_BEST = 5  # labels that are measured
_DOUBT = 0.001  # quality by which near rows must be worse to be left out
_TIE = 0.0005  # quality within which rows stay as they are, and the index is alone
_CLEAR = 0.002  # quality by which another cost must be better: less is chance
_TRIAL = 300_000_000  # products of a pass in which a cost or a scaling is tried, at most
_BLOCK = 65_536  # rows whose shortlists are found at once
_SCORES = tuple(score for score in SCORES if score != "votes")  # those that are tried
_PROBES = (4, 8, 16, 32, 64, 128)  # numbers of probes that are tried
_PROBED, _SUMMED = 10, "probability"  # m of the paper's Table 1, and what its figure 2 sums
_USUAL = 3  # position of the one at which the scores are compared
_TOLERANCE = 0.002  # mean of precision and recall that fewer probes may cost


class Wishes(NamedTuple):
    """What the user wants of ranking.

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
    routing, ranking : Scaling
        How rows are scaled for the routers, and for the ranker and near rows.
    cost : float
        Of the ranker, for training it again.
    held : Held, optional
        If it was wished for: the sources can then be weighed again.
    """

    layout: LabelLayout
    parameters: LabelParameters
    calibration: Calibration
    alone: Calibration
    tuned: LabelTuneResult | None
    routing: Scaling = GIVEN
    ranking: Scaling = GIVEN
    cost: float = COST
    prune: float = LEAST_PRUNE
    trials: Sequence[dict[str, Any]] = ()
    held: Held | None = None


def tune_labels(
    layout: LabelLayout,
    rows: Rows,
    labels: Sparse,
    made: LabelProblem,
    recipe: Recipe,
    wishes: Wishes,
    threads: int,
    progress: Progress = False,
) -> LabelModel:
    """Choose how to predict, and add a ranker and near rows to the layout if they help.

    With `search="votes"` in the recipe there is no ranker unless it is wanted, and nothing is
    chosen: as in the paper, the sum of the scores of their best buckets orders the labels.
    """
    split, routing, want_ranker = made.split, made.scaling, wishes.ranker
    routed = as_sparse(hash_features(routing.apply(rows), recipe))
    predictor = Predictor(layout)
    held, truth = split.held, labels[split.held]
    width = _count_shortlist(labels)
    as_in_paper = recipe.search == "votes" and not want_ranker
    score, trials = wishes.score, Trials()
    if as_in_paper:
        probes = min(_PROBED, layout.bias.shape[1])
        parameters = LabelParameters(probes, width, score or _SUMMED)
    else:
        if score is None:
            score, trials = choose_score(predictor, routed[held], truth, width, threads)
        parameters = _choose_probes(predictor, routed[held], truth, width, score, threads, trials)
    scores, found = predictor.predict(
        routed[held], routed[held], width, parameters, threads=threads
    )
    alone = calibrate_scores(found, scores, truth)
    precision = mean_precision(found, truth)
    index_alone = LabelModel(
        layout,
        parameters,
        alone,
        alone,
        LabelTuneResult(parameters, False, precision, precision, len(held)),
        routing,
        trials=trials,
    )
    if want_ranker is False or as_in_paper:
        return index_alone
    goal = Objective.of(wishes.objective, labels[split.train])
    bench = _Bench(
        layout, routed, rows, labels, split, goal, parameters, recipe.seed, threads, progress
    )
    trial = bench.choose_trial()
    choice = bench.choose_ranking(trial)
    quality = goal.measure(found, truth)
    bench.trials.note("sources", "index alone", quality)
    index_alone = index_alone._replace(trials=[*trials, *bench.trials])
    log.info("held-out quality: index alone %.4f, blended %.4f", quality, choice.quality)
    if want_ranker is None and choice.quality < quality + _TIE:
        return index_alone
    model = bench.complete(trial, choice, index_alone)
    if not wishes.keep_held:
        return model
    return model._replace(held=Held(split.held, bench.list_candidates(trial, choice.way)))


def measure_sources(
    layout: LabelLayout,
    rows: Rows,
    labels: Sparse,
    made: LabelProblem,
    recipe: Recipe,
    wishes: Wishes,
    threads: int,
) -> float:
    """Return the quality on held-out rows, where nothing is chosen.

    With a ranker and near rows, or of the index alone if there shall be no ranker.
    """
    routed = as_sparse(hash_features(made.scaling.apply(rows), recipe))
    goal, held = Objective.of(wishes.objective, labels[made.split.train]), made.split.held
    parameters = LabelParameters(_choose_usual(_list_probes(layout)), _count_shortlist(labels))
    if wishes.ranker is False:
        asked, k = routed[held], min(_BEST, labels.shape[1])
        found = Predictor(layout).predict(asked, asked, k, parameters, threads=threads)[1]
        return goal.measure(found, labels[held])
    bench = _Bench(
        layout, routed, rows, labels, made.split, goal, parameters, recipe.seed, threads, False
    )
    return bench.measure(made.scaling)


class Trials(list[dict[str, Any]]):
    """What was tried for a choice, and its quality on held-out rows. It goes into the history.

    Examples
    --------
    >>> trials = Trials()
    >>> trials.note("cost", 0.25, 0.5)
    >>> trials
    [{'choice': 'cost', 'tried': 0.25, 'quality': 0.5}]
    """

    def note(self, choice: str, tried: Any, quality: float) -> None:
        """Add something that was tried."""
        log.info("%s %s: quality %.4f", choice, tried, quality)
        self.append({"choice": choice, "tried": tried, "quality": quality})


class _Trial(NamedTuple):
    """A ranker that was trained without the held-out rows, and what it was trained with."""

    scaling: Scaling
    ranked: Sparse  # all rows, scaled (n, D)
    negatives: Sparse  # (n, L)
    cost: float
    ranker: Ranker
    whole: bool  # whether it has seen all other rows


class _Way(NamedTuple):
    """A way to predict, before its weights are fitted."""

    parameters: LabelParameters
    ranker: Ranker
    known: NearRows


class _Evaluation(NamedTuple):
    """How well a way predicts, with the weights that were fitted for it."""

    way: _Way
    calibration: Calibration
    quality: float
    precision: float
    prune: float = LEAST_PRUNE


class _Bench:
    """Trains rankers without the held-out rows, and measures ways to predict on these."""

    def __init__(
        self,
        layout: LabelLayout,
        routed: Sparse,
        rows: Rows,
        labels: Sparse,
        split: Split,
        goal: Objective,
        parameters: LabelParameters,
        seed: int,
        threads: int,
        progress: Progress,
    ) -> None:
        self.layout, self.routed, self.rows, self.labels = layout, routed, rows, labels
        self.split, self.goal, self.parameters = split, goal, parameters
        self.seed, self.threads, self.progress = seed, threads, progress
        self.gathered = self.proposed = labels  # until `choose_trial` asks the routers
        self.trials = Trials()

    def measure(self, scaling: Scaling) -> float:
        """Return the quality with a ranker and near rows, before anything is chosen."""
        self._ask_routers()
        return self._measure(self._try_scaling(scaling))

    # --- training --------------------------------------------------------------------------------

    def choose_trial(self) -> _Trial:
        """Choose how the ranker's rows are scaled, mine negatives, and choose its cost."""
        self._ask_routers()
        enough = self.labels.shape[0] >= LEAST_ROWS
        scalings = list_scalings(self.rows) if enough else [GIVEN]
        trials = [self._try_scaling(scaling) for scaling in scalings]
        qualities = [0.0]
        if len(trials) > 1:
            qualities = [self._measure(trial) for trial in trials]
            for trial, quality in zip(trials, qualities, strict=True):
                self.trials.note("scaling", trial.scaling.name, quality)
        # The first, rows as they are, if it is about as good.
        trial = trials[int(np.argmax(np.array(qualities) >= max(qualities) - _TIE))]
        self.gathered = trial.negatives
        negatives = mine_negatives(trial.ranker, trial.ranked, self.gathered, self.threads)
        return self._choose_cost(trial._replace(negatives=negatives))

    def _ask_routers(self) -> None:
        """Take the labels that they propose as negatives.

        Only of rows that they have seen. In new rows they put other labels first, much harder to
        tell from a row's own. If a few rows had such negatives and the others had not, labels would
        be punished by chance. The same holds for rankers: see `complete`.
        """
        proposed = _propose(self.layout, self.routed, self.parameters, self.threads)
        self.proposed = keep_rows(proposed, self.split.train)

    def _try_scaling(self, scaling: Scaling) -> _Trial:
        ranked, chosen = as_sparse(scaling.apply(self.rows)), self.split.train
        negatives = gather_negatives(
            ranked, self.labels, self.proposed, chosen, self.seed, self.threads
        )
        return _Trial(
            scaling, ranked, negatives, COST, *self._train(ranked, negatives, chosen, COST)
        )

    def _choose_cost(self, trial: _Trial) -> _Trial:
        """Climb to the cost with the best quality, one step at a time."""

        def measure(place: int) -> tuple[float, _Trial]:
            train, cost = self.split.train, _COSTS[place]
            ranker, whole = self._train(trial.ranked, trial.negatives, train, cost)
            tried = trial._replace(cost=cost, ranker=ranker, whole=whole)
            quality = self._measure(tried)
            self.trials.note("cost", _COSTS[place], quality)
            return quality, tried

        return _climb(measure, _COSTS.index(COST), len(_COSTS))

    def _measure(self, trial: _Trial) -> float:
        way = _Way(self.parameters, trial.ranker, self._know(trial, self.split.train))
        return self._evaluate(trial, way).quality

    def _know(self, trial: _Trial, chosen: NDArray[np.int64]) -> NearRows:
        return NearRows.pack(trial.ranked[chosen], self.labels[chosen])

    def _train(
        self, ranked: Sparse, negatives: Sparse, chosen: NDArray[np.int64], cost: float
    ) -> tuple[Ranker, bool]:
        """Train on as many of the chosen rows as can be tried in a while. Were they all?"""
        products = negatives.nnz / max(negatives.shape[0], 1) * ranked.nnz
        whole = products <= _TRIAL
        if not whole:
            rng = np.random.default_rng([self.seed, 0x7A])
            count = int(len(chosen) * _TRIAL / products)
            chosen = np.sort(rng.permutation(chosen)[:count])
        return self._train_on(ranked, negatives, chosen, cost, LEAST_PRUNE), whole

    def _train_on(
        self,
        ranked: Sparse,
        negatives: Sparse,
        chosen: NDArray[np.int64],
        cost: float,
        prune: float,
    ) -> Ranker:
        return train_ranker(
            ranked[chosen],
            self.labels[chosen],
            negatives[chosen],
            cost=cost,
            importance=self.goal.importance,
            prune=prune,
            threads=self.threads,
            seed=self.seed,
            progress=self.progress,
        )

    # --- choosing --------------------------------------------------------------------------------

    def choose_ranking(self, trial: _Trial) -> _Evaluation:
        """Choose the sources, then the fewest probes, then the fewest candidates, then pruning.

        Each choice may lose only a little quality.
        """
        train, ranker = self.split.train, trial.ranker
        if not trial.whole:
            ranker = self._train_on(trial.ranked, trial.negatives, train, trial.cost, LEAST_PRUNE)
        known, usual = self._know(trial, train), usual_values(trial.ranked)
        parameters = dataclasses.replace(self.parameters, candidates=_CANDIDATES[-1])
        ways = [
            _Way(dataclasses.replace(parameters, near=_NEAR), ranker, known),
            _Way(dataclasses.replace(parameters, near=0), ranker, NO_ROWS),
        ]
        best = self._find_cheapest(
            trial, "sources", ways, lambda way: f"near={way.parameters.near}", _DOUBT
        )
        best = self._try_parameters(trial, best, "probes", self._list_probes())
        best = self._try_parameters(trial, best, "candidates", list(_CANDIDATES))
        tried = []
        for prune in _PRUNES:
            ranker = ranker.prune(prune, usual)
            evaluation = self._evaluate(trial, best.way._replace(ranker=ranker))
            self.trials.note("pruning", prune, evaluation.quality)
            tried.append(evaluation._replace(prune=prune))
        most = max(evaluation.quality for evaluation in tried)
        return [one for one in tried if one.quality >= most * (1 - _LOSS)][-1]

    def _list_probes(self) -> list[int]:
        return [count for count in _list_probes(self.layout) if count <= self.parameters.probes]

    def _try_parameters(
        self, trial: _Trial, best: _Evaluation, name: str, values: list[Any]
    ) -> _Evaluation:
        """Choose the smallest value of a parameter that is about as good as any."""
        changes: list[dict[str, Any]] = [{name: value} for value in values]
        parameters = best.way.parameters
        ways = [
            best.way._replace(parameters=dataclasses.replace(parameters, **change))
            for change in changes
        ]
        return self._find_cheapest(trial, name, ways, lambda way: getattr(way.parameters, name))

    def _find_cheapest(
        self,
        trial: _Trial,
        choice: str,
        ways: list[_Way],
        describe: Callable[[_Way], Any],
        tie: float | None = None,
    ) -> _Evaluation:
        """Return the first way that is about as good as the best."""
        found = [self._evaluate(trial, way) for way in ways]
        for evaluation in found:
            self.trials.note(choice, describe(evaluation.way), evaluation.quality)
        qualities = np.array([evaluation.quality for evaluation in found])
        least = qualities.max() * (1 - _LOSS) if tie is None else qualities.max() - tie
        return found[int(np.argmax(qualities >= least))]

    def _evaluate(self, trial: _Trial, way: _Way) -> _Evaluation:
        """Choose the weights of the sources, and measure the best labels."""
        held = self.split.held
        near = way.parameters.near if len(way.known.scale) else 0
        way = way._replace(parameters=dataclasses.replace(way.parameters, near=near))
        found, truth = self.list_candidates(trial, way), self.labels[held]
        calibration = fit_calibration(found, truth, self.goal)
        best = rank_candidates(found, calibration)
        quality, precision = self.goal.measure(best, truth), mean_precision(best, truth)
        return _Evaluation(way, calibration.fit_curve(found, truth), quality, precision)

    def list_candidates(self, trial: _Trial, way: _Way) -> Candidates:
        """Return the candidates of the held-out rows, with what all sources know of them."""
        held = self.split.held
        layout = add_near_rows(add_ranker(self.layout, way.ranker), way.known)
        return Predictor(layout).list_candidates(
            self.routed[held], trial.ranked[held], way.parameters, ASKED, self.threads
        )

    # --- completing ------------------------------------------------------------------------------

    def complete(self, trial: _Trial, choice: _Evaluation, alone: LabelModel) -> LabelModel:
        """Train the ranker on all rows, and let all rows be near ones.

        Its negatives are mined by a ranker that has seen all rows, too.
        """
        labelled, ranked = np.union1d(self.split.train, self.split.held), trial.ranked
        first, _ = self._train(ranked, self.gathered, labelled, COST)
        negatives = mine_negatives(first, ranked, self.gathered, self.threads)
        ranker = self._train_on(ranked, negatives, labelled, trial.cost, choice.prune)
        layout = add_ranker(self.layout, ranker)
        parameters, calibration = choice.way.parameters, choice.calibration
        if parameters.near and calibration.by_votes > 0:
            layout = add_near_rows(layout, self._know(trial, labelled))
        else:
            parameters = dataclasses.replace(parameters, near=0)
            calibration = calibration._replace(by_votes=0.0)
        measured = alone.tuned.precision if alone.tuned else 0.0
        tuned = LabelTuneResult(parameters, True, choice.precision, measured, len(self.split.held))
        return alone._replace(
            layout=layout,
            parameters=parameters,
            calibration=calibration,
            tuned=tuned,
            ranking=trial.scaling,
            cost=trial.cost,
            prune=choice.prune,
        )


def _climb(measure: Callable[[int], tuple[float, T]], start: int, count: int) -> T:
    """Return what is best of `count` places, going from `start` while it gets clearly better.

    Examples
    --------
    >>> _climb(lambda place: (-abs(place - 4), place), 2, 6)
    4
    """
    best, place = measure(start), start
    for step in (-1, 1):
        moved = False
        while 0 <= place + step < count:
            tried = measure(place + step)
            if tried[0] <= best[0] + _CLEAR:
                break
            best, place, moved = tried, place + step, True
        if moved:
            break
    return best[1]


def rank_candidates(found: Candidates, calibration: Calibration) -> NDArray[np.int64]:
    """Return the five best candidates of each row, best first."""
    odds = calibration.to_log_odds(found)
    some = np.argpartition(-odds, min(_BEST, odds.shape[1] - 1), axis=1)[:, :_BEST]
    labels = np.take_along_axis(found.labels, some, axis=1)
    order = np.lexsort((labels, -np.take_along_axis(odds, some, axis=1)), axis=1)
    return np.take_along_axis(labels, order, axis=1)


def _propose(
    layout: LabelLayout, routed: Sparse, parameters: LabelParameters, threads: int
) -> Sparse:
    """Return the labels that the index proposes first for each row (n, L), block by block."""
    predictor, labels = Predictor(layout), len(layout.prior)
    parts = []
    for start in range(0, routed.shape[0], _BLOCK):
        rows = routed[start : start + _BLOCK]
        found = predictor.predict(rows, rows, min(_TAUGHT, labels), parameters, threads=threads)[1]
        parts.append(as_pattern(found, labels))
    return sp.csr_array(sp.vstack(parts))


def choose_score(
    predictor: Predictor, rows: Sparse, truth: Sparse, width: int, threads: int
) -> tuple[str, Trials]:
    """Choose the routers' score with the best labels of held-out rows. Return what was tried, too.

    Quality is here the mean of precision and of the recall of the candidates.
    """
    probes, trials = _choose_usual(_list_probes(predictor.layout)), Trials()
    for score in _SCORES:
        parameters = LabelParameters(probes, width, score)
        reached = _measure_routers(predictor, rows, truth, parameters, threads)
        trials.note("score", score, reached)
    # Among equals the last one wins. Weighted votes come first: they separate labels the least.
    best: str = sorted(trials, key=itemgetter("quality"))[-1]["tried"]
    return best, trials


def _choose_probes(
    predictor: Predictor,
    rows: Sparse,
    truth: Sparse,
    width: int,
    score: str,
    threads: int,
    trials: Trials,
) -> LabelParameters:
    """Choose the fewest probes that lose almost nothing."""
    ways = [LabelParameters(probes, width, score) for probes in _list_probes(predictor.layout)]
    reached = [_measure_routers(predictor, rows, truth, way, threads) for way in ways]
    for way, quality in zip(ways, reached, strict=True):
        trials.note("probes of the index", way.probes, quality)
    return ways[int(np.argmax(np.array(reached) >= reached[-1] - _TOLERANCE))]


def _measure_routers(
    predictor: Predictor, rows: Sparse, truth: Sparse, parameters: LabelParameters, threads: int
) -> float:
    """Return the mean of precision and recall among the candidates."""
    width = parameters.candidates
    _, found = predictor.predict(rows, rows, width, parameters, threads=threads)
    return (mean_precision(found, truth) + recall(found, truth, width)) / 2


def _count_shortlist(labels: Sparse) -> int:
    return min(_SHORTLIST + _MORE_PER_LABEL * labels.nnz // labels.shape[0], labels.shape[1])


def _choose_usual(probes: list[int]) -> int:
    return probes[min(len(probes) - 1, _USUAL)]


def _list_probes(layout: LabelLayout) -> list[int]:
    """Return the numbers of probes to try."""
    buckets = layout.bias.shape[1]
    if len(layout.prior) == buckets:
        return [buckets]  # one label per bucket: fewer probes would save nothing
    return sorted({min(probes, buckets) for probes in _PROBES})
