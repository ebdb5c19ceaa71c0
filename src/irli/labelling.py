"""Algorithm 2 for labels over a frozen index: parameters and batches on threads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli import labelkernels
from irli.checks import check_choice, check_int
from irli.compiled import read_only
from irli.config import LABEL_SCORES
from irli.engine import Engine, make_engine
from irli.fusion import INDEX_ALONE, Fusion
from irli.labelkernels import FrozenLabels, LabelPlan
from irli.problem import Sparse
from irli.threads import Reserve, run_all

_PIECES = 4  # pieces of a batch for each thread


@dataclass(frozen=True)
class LabelParameters:
    """How to predict; the index keeps one as its defaults, chosen on held-out rows.

    Attributes
    ----------
    probes : int
        Buckets probed in each repetition (m).
    candidates : int
        Labels with the best scores that the ranker puts in order.
    score : {"votes", "probability", "logit", "log-probability"}
        What a probed bucket adds to the score of its labels.
    """

    probes: int = 32
    candidates: int = 200
    score: str = "log-probability"

    def changed(
        self, probes: int | None, candidates: int | None, score: str | None
    ) -> LabelParameters:
        """Return the parameters of one call: what it names, the defaults for the rest."""
        for name, value in (("probes", probes), ("candidates", candidates)):
            if value is not None:
                check_int(name, value, at_least=1, owner="predict")
        if score is not None:
            check_choice("score", score, LABEL_SCORES, owner="predict")
        return LabelParameters(
            probes or self.probes, candidates or self.candidates, score or self.score
        )

    def plan(self, k: int, fusion: Fusion) -> LabelPlan:
        """Return the parameters as the kernels take them."""
        return LabelPlan(
            k=k,
            probes=min(self.probes, 2**31 - 1),
            candidates=min(self.candidates, 2**31 - 1),
            score=LABEL_SCORES.index(self.score),
            by_margin=fusion.by_margin,
            by_score=fusion.by_score,
            threshold=fusion.threshold,
        )


class Labeller:
    """A frozen label index with scratch memory for any number of threads."""

    def __init__(self, frozen: FrozenLabels) -> None:
        fields: dict[str, Any] = frozen._asdict()
        for name, value in fields.items():
            if isinstance(value, np.ndarray):
                fields[name] = read_only(value)
        self.frozen = frozen = FrozenLabels(**fields)
        self._reserve: Reserve[Engine] = Reserve(
            lambda: make_engine(frozen, labelkernels.make_scratch(frozen))
        )

    def predict(
        self,
        routed: Sparse,
        ranked: Sparse,
        k: int,
        parameters: LabelParameters,
        fusion: Fusion = INDEX_ALONE,
        threads: int = 1,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return scores and labels (n, k), best first, -1 where there are fewer.

        `routed` are the rows as the routers see them, `ranked` as the ranker does.
        """
        count = routed.shape[0]
        scores = np.empty((count, k), dtype=np.float32)
        labels = np.empty((count, k), dtype=np.int64)
        plan = parameters.plan(k, fusion)
        first = _arrays(routed)
        second = first if ranked is routed else _arrays(ranked)
        pieces = 1 if threads == 1 else threads * _PIECES
        step = labelkernels.BLOCK * max(1, -(-count // (labelkernels.BLOCK * pieces)))

        def piece(start: int) -> None:
            stop = min(start + step, count)
            with self._reserve.lend() as engine:
                labelkernels.predict(engine, plan, first, second, start, stop, scores, labels)

        run_all([partial(piece, start) for start in range(0, count, step)], threads)
        return scores, labels


def _arrays(rows: Sparse) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return a CSR as the kernels take it: of one type, whoever made it."""
    return (
        read_only(rows.indptr.astype(np.int64, copy=False)),
        read_only(rows.indices.astype(np.int32, copy=False)),
        read_only(rows.data.astype(np.float32, copy=False)),
    )
