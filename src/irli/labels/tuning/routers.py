"""How routers alone order labels: by which score, and how many buckets are probed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.types import Sparse
from irli.engine.label_layout import LabelLayout
from irli.labels.metrics import recall
from irli.labels.parameters import SCORES, LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.tuning.choose import Trials
from irli.labels.tuning.objective import mean_precision

_SHORTLIST = 200  # labels that the routers propose for a row
_MORE_PER_LABEL = 4  # further ones for each label that a row carries on average
# Weighted votes come last: they separate labels the least.
_SCORES = [score for score in reversed(SCORES) if score != "votes"]
_PROBES = (4, 8, 16, 32, 64, 128)  # numbers of probes that are tried
USUAL_PROBES = 32  # the number at which the scores are compared
_TOLERANCE = 0.004  # share of the quality that fewer probes may cost


class HeldRows(NamedTuple):
    """Held-out rows (n, d) as the routers see them, their labels (n, L), and how many to list."""

    rows: Sparse
    truth: Sparse
    width: int


def count_shortlist(labels: Sparse) -> int:
    """Return how many labels routers propose for a row, if rows carry such labels (n, L)."""
    return min(_SHORTLIST + _MORE_PER_LABEL * labels.nnz // labels.shape[0], labels.shape[1])


def choose_score(predictor: Predictor, held: HeldRows, threads: int, trials: Trials) -> str:
    """Choose the routers' score with the best labels of held-out rows."""
    probes = list_probes(predictor.layout)
    usual = next((count for count in probes if count >= USUAL_PROBES), probes[-1])

    def measure(score: str) -> tuple[float, str]:
        parameters = LabelParameters(usual, held.width, score)
        return _measure_routers(predictor, held, parameters, threads), score

    return trials.choose("score", {score: score for score in _SCORES}, measure, 0.0)


def choose_probes(
    predictor: Predictor, held: HeldRows, score: str, threads: int, trials: Trials
) -> LabelParameters:
    """Choose the fewest probes that lose almost nothing."""

    def measure(probes: int) -> tuple[float, LabelParameters]:
        parameters = LabelParameters(probes, held.width, score)
        return _measure_routers(predictor, held, parameters, threads), parameters

    probes = {count: count for count in list_probes(predictor.layout)}
    return trials.choose("probes of the index", probes, measure, _TOLERANCE)


def list_probes(layout: LabelLayout) -> list[int]:
    """Return the numbers of probes to try."""
    buckets = layout.bias.shape[1]
    if len(layout.prior) == buckets:
        return [buckets]  # one label per bucket: fewer probes would save nothing
    return sorted({min(probes, buckets) for probes in _PROBES})


def _measure_routers(
    predictor: Predictor, held: HeldRows, parameters: LabelParameters, threads: int
) -> float:
    """Return the mean of precision and of recall among the candidates."""
    found = _find(predictor, held, parameters, threads)
    return (mean_precision(found, held.truth) + recall(found, held.truth, held.width)) / 2


def _find(
    predictor: Predictor, held: HeldRows, parameters: LabelParameters, threads: int
) -> NDArray[np.int64]:
    rows = held.rows
    return predictor.predict(rows, rows, held.width, parameters, threads=threads)[1]
