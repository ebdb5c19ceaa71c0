"""Which sources know labels beside the routers: a ranker and near rows, and how they are asked.

Three sources know something of a label: the routers, the ranker and near rows. Each proposes labels
and scores those of the others; `tuning.calibration` blends the scores. Rankers that are evaluated
are trained without the held-out rows, and near rows are others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

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
    keep_labels,
    keep_rows,
    mine_negatives,
)
from irli.labels.ranking.ranker import (
    COST,
    LEAST_PRUNE,
    PASSES,
    Ranker,
    train_ranker,
    usual_values,
)
from irli.labels.tuning.calibration import ASKED, Calibration, Candidates, fit_calibration
from irli.labels.tuning.choose import Trials
from irli.labels.tuning.objective import BEST, Objective, mean_precision
from irli.labels.tuning.routers import USUAL_PROBES, list_probes

_TAUGHT = 20  # labels proposed by the routers that are negatives of the ranker
_NEAR = 100  # near rows that vote
_CANDIDATES = 100  # of each source
_PROBES = 8  # that find enough, since the routers score what other sources propose, too
_CLEAR = 0.002  # share of the quality by which no near rows must be better: less is chance
_PRUNES = (0.04, 0.03, LEAST_PRUNE)  # pruning thresholds that are tried
_MEASURED = 2000  # held-out rows on which options are compared, at most
_MINED = 300_000_000  # products of a pass of the ranker whose mistakes are mined, at most
_ROUGH = 3  # passes of this ranker
_BLOCK = 65_536  # rows whose shortlists are found at once


class Sources(NamedTuple):
    """The sources beside the routers, and the parameters with which all are asked."""

    parameters: LabelParameters
    ranker: Ranker
    near: NearRows
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
        """Choose whether near rows vote, then which weights of the ranker can be left out.

        How much the sources count does not change while that is compared. So the options differ in
        nothing else. `negatives` (n, L) are those that `mine` returns for the training rows.
        """
        train, least = self.split.train, list_probes(self.layout)[0]  # all of one label each
        probes = min(self.parameters.probes, max(_PROBES, least))
        parameters = replace(self.parameters, probes=probes, candidates=_CANDIDATES, near=_NEAR)
        near = NearRows.pack(self.ranked[train], self.labels[train])
        sources = Sources(parameters, self._train(train, negatives), near)
        ways = {f"near={_NEAR}": sources, "near=0": sources._replace(near=NO_ROWS)}
        blend = self.trials.choose("sources", ways, self._measure, _CLEAR)
        return self._calibrate(self._choose_pruning(blend).sources)

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

    def train_first(self, gathered: Sparse) -> Ranker:
        """Return a ranker whose mistakes are mined. It has seen no held-out row.

        It would find their labels, and a ranker that learns from its mistakes looks worse on
        held-out rows than it is.
        """
        return self._train_roughly(self.split.train, gathered)

    def mine(self, first: Ranker, gathered: Sparse, rows: NDArray[np.int64]) -> Sparse:
        """Return the negatives with what a first ranker puts first in these rows (n, L)."""
        found = mine_negatives(first, self.ranked[rows], gathered[rows], self.threads)
        ones, count = np.ones(len(rows), dtype=np.int8), gathered.shape[0]
        places = sp.csr_array((ones, (rows, np.arange(len(rows)))), shape=(count, len(rows)))
        return join(gathered, sp.csr_array(places @ found))

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

    def _train_roughly(
        self, rows: NDArray[np.int64], negatives: Sparse, only: NDArray[np.bool_] | None = None
    ) -> Ranker:
        """Train in a few passes, on so many of the rows that each has `_MINED` products at most."""
        products = negatives.nnz / max(negatives.shape[0], 1) * self.ranked.nnz
        if products > _MINED:
            mixed = np.random.default_rng([self.seed, 0x7A]).permutation(rows)
            rows = np.sort(mixed[: int(len(rows) * _MINED / products)])
        return self._train(rows, negatives, passes=_ROUGH, only=only)

    def _train(
        self,
        rows: NDArray[np.int64],
        negatives: Sparse,
        prune: float = LEAST_PRUNE,
        passes: int = PASSES,
        only: NDArray[np.bool_] | None = None,
    ) -> Ranker:
        """Train the classifiers of all labels, or of some, a mask (L,)."""
        labels, negatives = self.labels[rows], negatives[rows]
        if only is not None:
            labels, negatives = keep_labels(labels, only), keep_labels(negatives, only)
        return train_ranker(
            self.ranked[rows],
            labels,
            negatives,
            cost=COST,
            importance=self.goal.importance,
            prune=prune,
            threads=self.threads,
            seed=self.seed,
            passes=passes,
            progress=self.progress,
        )

    def complete(self, blend: Blend, gathered: Sparse, first: Ranker) -> tuple[LabelLayout, Blend]:
        """Return the layout with a ranker that has learned from all rows, which are all near ones.

        Labels that no held-out row carries keep their classifiers. Those of the others are trained
        again, and so are those whose mistakes are mined: where a classifier has not seen some rows
        of its label, it makes other mistakes. Near rows that do not count are left out.
        """
        rows, (sources, calibration, *_) = np.union1d(*self.split), blend
        ranker, some = sources.ranker, np.zeros(self.labels.shape[1], dtype=np.bool_)
        some[self.labels[np.setdiff1d(rows, self.split.train)].indices] = True
        if some.any():
            first = first.update(self._train_roughly(rows, gathered, some), some)
            negatives = self.mine(first, gathered, rows)
            ranker = ranker.update(self._train(rows, negatives, sources.prune, only=some), some)
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
