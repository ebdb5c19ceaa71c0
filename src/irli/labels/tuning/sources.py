"""Which sources know labels beside the routers: a ranker and near rows, and how they are asked.

Three sources know something of a label: the routers, the ranker and near rows. Each proposes labels
and scores those of the others; `tuning.calibration` blends the scores. Rankers that are evaluated
are trained without the held-out rows, and near rows are others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.progress import Progress
from irli.base.types import Sparse
from irli.engine.label_layout import LabelLayout
from irli.labels.build.assemble import add_near_rows, add_ranker
from irli.labels.build.problem import Split
from irli.labels.parameters import LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.ranking.near_rows import NO_ROWS, NearRows
from irli.labels.ranking.negatives import (
    as_pattern,
    gather_negatives,
    join,
    keep_rows,
    mine_negatives,
)
from irli.labels.ranking.ranker import COST, LEAST_PRUNE, Ranker, train_ranker, usual_values
from irli.labels.tuning.calibration import ASKED, Calibration, Candidates, fit_calibration
from irli.labels.tuning.choose import Trials
from irli.labels.tuning.objective import BEST, Objective, mean_precision
from irli.labels.tuning.routers import USUAL_PROBES, list_probes

_TAUGHT = 20  # labels proposed by the routers that are negatives of the ranker
_NEAR = 100  # near rows that vote
_COSTS = (COST, 0.0625)  # of the ranker, that are tried: the less, the less noise is learned
_CLEAR = 0.004  # share of the quality by which another cost must be better: less is chance
_PRUNES = (0.04, 0.03, LEAST_PRUNE)  # pruning thresholds that are tried
_CANDIDATES = (50, 100, 200)  # numbers of candidates of each source that are tried
_MEASURED = 2000  # held-out rows on which options are compared, at most
_TRIED = 75_000_000  # products of a pass of training, at most, for a cost that is tried
_MINED = 300_000_000  # the same for the ranker whose mistakes are mined
_BLOCK = 65_536  # rows whose shortlists are found at once


class Sources(NamedTuple):
    """The sources beside the routers, and the parameters with which all are asked."""

    parameters: LabelParameters
    ranker: Ranker
    near: NearRows
    cost: float  # of the ranker
    prune: float = LEAST_PRUNE


class Blend(NamedTuple):
    """Sources, how much each counts, and how good they are together on held-out rows."""

    sources: Sources
    calibration: Calibration
    quality: float
    precision: float


@dataclass(frozen=True, kw_only=True)
class SourceChooser:
    """Trains rankers, and measures them together with routers and near rows.

    Attributes
    ----------
    layout : LabelLayout
        Of the index alone.
    routed, ranked : CSRs of shape (n, d) and (n, D)
        All rows, with the features of the routers, and with those of the ranker.
    labels : CSR of shape (n, L)
    parameters : LabelParameters
        Those of the index alone.
    """

    layout: LabelLayout
    routed: Sparse
    ranked: Sparse
    labels: Sparse
    split: Split
    goal: Objective
    parameters: LabelParameters
    seed: int
    threads: int
    progress: Progress
    trials: Trials

    # --- choosing --------------------------------------------------------------------------------

    def choose(self, negatives: Sparse) -> Blend:
        """Choose the ranker's cost, whether near rows vote, then what is cheaper and about as good.

        How much the sources count does not change any more while that is compared. So the options
        differ in nothing else. `negatives` (n, L) are those that `mine` returns.
        """
        blend = self._choose_cost(negatives)
        _, alone = self._measure(blend.sources._replace(near=NO_ROWS))
        both = {f"near={_NEAR}": blend, "near=0": alone}
        blend = self.trials.choose("sources", both, lambda one: (one.quality, one))
        probes = [count for count in list_probes(self.layout) if count <= self.parameters.probes]
        blend = self._choose_parameter("probes", probes, blend)
        blend = self._choose_parameter("candidates", _CANDIDATES, blend)
        blend = self._choose_pruning(blend)
        return self._calibrate(blend.sources)

    def _choose_cost(self, negatives: Sparse) -> Blend:
        train = self.split.train
        some = self._draw_some(train, negatives, _TRIED)
        near = NearRows.pack(self.ranked[train], self.labels[train])
        parameters = replace(self.parameters, candidates=_CANDIDATES[-1], near=_NEAR)

        def measure(cost: float, rows: NDArray[np.int64] = some) -> tuple[float, Blend]:
            ranker = self._train(rows, negatives, cost, LEAST_PRUNE)
            return self._measure(Sources(parameters, ranker, near, cost))

        blend = self.trials.choose("cost", {cost: cost for cost in _COSTS}, measure, _CLEAR)
        return blend if len(some) == len(train) else measure(blend.sources.cost, train)[1]

    def _choose_parameter(self, name: str, values: Sequence[int], blend: Blend) -> Blend:
        """Choose the smallest value of a parameter that is about as good as any."""

        def measure(value: int) -> tuple[float, Blend]:
            changes: dict[str, Any] = {name: value}
            parameters = replace(blend.sources.parameters, **changes)
            return self._measure(blend.sources._replace(parameters=parameters), blend.calibration)

        return self.trials.choose(name, {value: value for value in values}, measure)

    def _choose_pruning(self, blend: Blend) -> Blend:
        usual, sources = usual_values(self.ranked), blend.sources

        def measure(prune: float) -> tuple[float, Blend]:
            ranker = sources.ranker.prune(prune, usual)
            return self._measure(sources._replace(ranker=ranker, prune=prune), blend.calibration)

        return self.trials.choose("pruning", {prune: prune for prune in _PRUNES}, measure)

    def _measure(
        self, sources: Sources, calibration: Calibration | None = None
    ) -> tuple[float, Blend]:
        """Measure the best labels of a part. How much the sources count is chosen unless given."""
        held = self.split.held[:_MEASURED]
        found, truth = self.list_candidates(sources, held), self.labels[held]
        blend = self._blend(sources, found, truth, calibration)
        return blend.quality, blend

    def _calibrate(self, sources: Sources) -> Blend:
        """Return what all held-out rows say of the sources, with the curve of log-odds."""
        held = self.split.held
        found, truth = self.list_candidates(sources, held), self.labels[held]
        blend = self._blend(sources, found, truth)
        return blend._replace(calibration=blend.calibration.fit_curve(found, truth))

    def _blend(
        self,
        sources: Sources,
        found: Candidates,
        truth: Sparse,
        calibration: Calibration | None = None,
    ) -> Blend:
        calibration = calibration or fit_calibration(found, truth, self.goal)
        best = rank_candidates(found, calibration)
        quality, precision = self.goal.measure(best, truth), mean_precision(best, truth)
        return Blend(sources, calibration, quality, precision)

    def list_candidates(self, sources: Sources, held: NDArray[np.int64]) -> Candidates:
        """Return the candidates of held-out rows, with what all sources know of them."""
        layout = add_near_rows(add_ranker(self.layout, sources.ranker), sources.near)
        parameters = sources.parameters
        if not len(sources.near.scale):
            parameters = replace(parameters, near=0)
        return Predictor(layout).list_candidates(
            self.routed[held], self.ranked[held], parameters, ASKED, self.threads
        )

    # --- training --------------------------------------------------------------------------------

    def gather(self) -> Sparse:
        """Return the labels that a ranker must learn to tell from those of each row (n, L).

        The routers propose only of rows that they have seen. In new rows they put other labels
        first, much harder to tell from a row's own. If a few rows had such negatives and the others
        had not, labels would be punished by chance. The same holds for rankers: see `mine`.
        """
        train = self.split.train
        proposed = keep_rows(self._propose(), train)
        return gather_negatives(self.ranked, self.labels, proposed, train, self.seed, self.threads)

    def mine(self, gathered: Sparse) -> Sparse:
        """Return the negatives with the mistakes of a first ranker in training rows (n, L).

        It has seen no held-out row: in training rows like these it would find their labels, and a
        ranker that learns from that looks worse on held-out rows than it is.
        """
        train = self.split.train
        return join(gathered, self._find_mistakes(gathered, train, train))

    def _find_mistakes(
        self, gathered: Sparse, seen: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> Sparse:
        """Return what a ranker puts first in `rows` that has seen these and others (n, L)."""
        some = self._draw_some(seen, gathered, _MINED)
        first = self._train(some, gathered, COST, LEAST_PRUNE)
        found = mine_negatives(first, self.ranked[rows], gathered[rows], self.threads)
        ones, count = np.ones(len(rows), dtype=np.int8), gathered.shape[0]
        places = sp.csr_array((ones, (rows, np.arange(len(rows)))), shape=(count, len(rows)))
        return sp.csr_array(places @ found)

    def _propose(self) -> Sparse:
        """Return the labels that the index proposes first for each row (n, L), block by block."""
        predictor, labels = Predictor(self.layout), len(self.layout.prior)
        usual = replace(self.parameters, probes=min(self.parameters.probes, USUAL_PROBES))
        k, parts = min(_TAUGHT, labels), []
        for start in range(0, self.routed.shape[0], _BLOCK):
            rows = self.routed[start : start + _BLOCK]
            found = predictor.predict(rows, rows, k, usual, threads=self.threads)[1]
            parts.append(as_pattern(found, labels))
        return sp.csr_array(sp.vstack(parts))

    def _draw_some(
        self, rows: NDArray[np.int64], negatives: Sparse, most: int
    ) -> NDArray[np.int64]:
        """Return so many of the rows that a pass of training takes at most `most` products."""
        products = negatives.nnz / max(negatives.shape[0], 1) * self.ranked.nnz
        if products <= most:
            return rows
        rng = np.random.default_rng([self.seed, 0x7A])
        return np.sort(rng.permutation(rows)[: int(len(rows) * most / products)])

    def _train(
        self, rows: NDArray[np.int64], negatives: Sparse, cost: float, prune: float
    ) -> Ranker:
        return train_ranker(
            self.ranked[rows],
            self.labels[rows],
            negatives[rows],
            cost=cost,
            importance=self.goal.importance,
            prune=prune,
            threads=self.threads,
            seed=self.seed,
            progress=self.progress,
        )

    def complete(
        self, blend: Blend, gathered: Sparse, negatives: Sparse
    ) -> tuple[LabelLayout, Blend]:
        """Return the layout with a ranker that has learned from all rows, which are all near ones.

        Near rows that do not count are left out.
        """
        rows, (sources, calibration, *_) = np.union1d(*self.split), blend
        new = np.setdiff1d(rows, self.split.train)
        if len(new):
            negatives = join(negatives, self._find_mistakes(gathered, rows, new))
        ranker = self._train(rows, negatives, sources.cost, sources.prune)
        layout = add_ranker(self.layout, ranker)
        if len(sources.near.scale) and calibration.by_votes > 0:
            near = NearRows.pack(self.ranked[rows], self.labels[rows])
            return add_near_rows(layout, near), blend
        sources = sources._replace(parameters=replace(sources.parameters, near=0))
        return layout, blend._replace(
            sources=sources, calibration=calibration._replace(by_votes=0.0)
        )


def rank_candidates(found: Candidates, calibration: Calibration) -> NDArray[np.int64]:
    """Return the five best candidates of each row, best first."""
    odds = calibration.to_log_odds(found)
    some = np.argpartition(-odds, min(BEST, odds.shape[1] - 1), axis=1)[:, :BEST]
    labels = np.take_along_axis(found.labels, some, axis=1)
    order = np.lexsort((labels, -np.take_along_axis(odds, some, axis=1)), axis=1)
    return np.take_along_axis(labels, order, axis=1)
