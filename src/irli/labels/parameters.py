"""LabelParameters: the arguments of a prediction (probes, min_votes, ...), checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from irli._native import LabelPlan
from irli.base.checks import check_choice, check_int, check_keywords
from irli.labels.tuning.calibration import Calibration

# The kernels use the position.
SCORES = ("weighted-votes", "probability", "logit", "log-probability", "votes")


class PredictArguments(TypedDict, total=False):
    """The keyword arguments of every `predict`; `LabelParameters` says what they mean."""

    probes: int | None
    candidates: int | None
    score: str | None
    min_votes: int | None
    near: int | None


@dataclass(frozen=True)
class LabelParameters:
    """How to predict. The defaults of an index are of this class, chosen on held-out rows.

    Attributes
    ----------
    probes : int
        Buckets to probe in each repetition (m in the paper).
    candidates : int
        The number of labels that each source proposes: the buckets, the ranker, near rows.
    score : {"weighted-votes", "probability", "logit", "log-probability", "votes"}
        What a probed bucket adds to the score of its labels. "votes" adds 1, as in the paper. The
        others also weigh how common a label is in its buckets.
    min_votes : int
        The number of probed buckets that must hold a label for them to propose it.
    near : int
        The number of nearest training rows that vote for their labels. 0 leaves them out, which
        is faster.

    Examples
    --------
    >>> LabelParameters().replace(probes=8)
    LabelParameters(probes=8, candidates=200, score='log-probability', min_votes=1, near=0)
    """

    probes: int = 32
    candidates: int = 200
    score: str = "log-probability"
    min_votes: int = 1
    near: int = 0

    def replace(self, **given: Unpack[PredictArguments]) -> LabelParameters:
        """Return the parameters of one call: the given ones, and these where none is given."""
        if not given:
            return self
        also = ("threshold", "ranker", "threads")
        check_keywords(given, PredictArguments.__annotations__, owner="predict", also=also)
        for name in ("probes", "candidates", "min_votes"):
            if given.get(name) is not None:
                check_int(name, given.get(name), at_least=1, owner="predict")
        if given.get("near") is not None:
            check_int("near", given.get("near"), at_least=0, owner="predict")
        if given.get("score") is not None:
            check_choice("score", given.get("score"), SCORES, owner="predict")
        near = given.get("near")
        return LabelParameters(
            given.get("probes") or self.probes,
            given.get("candidates") or self.candidates,
            given.get("score") or self.score,
            given.get("min_votes") or self.min_votes,
            self.near if near is None else near,
        )

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> LabelParameters:
        """Return the parameters of a folder."""
        return cls().replace(**values)

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
            min_votes=min(self.min_votes, 2**31 - 1),
            near=min(self.near, 2**31 - 1) if calibration.by_votes > 0 else 0,
            by_votes=calibration.by_votes,
            own=calibration.own,
            complete=calibration.complete,
        )
