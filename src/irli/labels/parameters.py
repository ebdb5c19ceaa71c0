"""LabelParameters: the arguments of a prediction (probes, candidates, score), checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict, Unpack

from irli._native import LabelPlan
from irli.base.checks import check_choice, check_int, check_keywords
from irli.labels.calibration import Calibration

SCORES = ("votes", "probability", "logit", "log-probability")  # the kernels use the position


class PredictArguments(TypedDict, total=False):
    """The keyword arguments of every `predict`; `LabelParameters` says what they mean."""

    probes: int | None
    candidates: int | None
    score: str | None


@dataclass(frozen=True)
class LabelParameters:
    """How to predict. The defaults of an index are of this class, chosen on held-out rows.

    Attributes
    ----------
    probes : int
        Buckets to probe in each repetition (m in the paper).
    candidates : int
        The number of labels, best score first, that the ranker reranks.
    score : {"votes", "probability", "logit", "log-probability"}
        What a probed bucket adds to the score of its labels.

    Examples
    --------
    >>> LabelParameters().replace(probes=8)
    LabelParameters(probes=8, candidates=200, score='log-probability')
    """

    probes: int = 32
    candidates: int = 200
    score: str = "log-probability"

    def replace(self, **given: Unpack[PredictArguments]) -> LabelParameters:
        """Return the parameters of one call: the given ones, and these where none is given."""
        if not given:
            return self
        check_keywords(given, PredictArguments.__annotations__, owner="predict")
        probes, candidates, score = given.get("probes"), given.get("candidates"), given.get("score")
        for name, value in (("probes", probes), ("candidates", candidates)):
            if value is not None:
                check_int(name, value, at_least=1, owner="predict")
        if score is not None:
            check_choice("score", score, SCORES, owner="predict")
        return LabelParameters(
            probes or self.probes, candidates or self.candidates, score or self.score
        )

    def to_plan(self, k: int, calibration: Calibration) -> LabelPlan:
        """Return the parameters in the form that the kernels take."""
        return LabelPlan(
            k=k,
            probes=min(self.probes, 2**31 - 1),
            candidates=min(self.candidates, 2**31 - 1),
            score=SCORES.index(self.score),
            by_margin=calibration.by_margin,
            by_score=calibration.by_score,
            threshold=calibration.threshold,
        )
