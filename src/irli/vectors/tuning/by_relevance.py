"""Tune a search to find the relevant items that were given, which distances may not explain.

Results can be ranked by distance or by the learned score. Held-out queries decide. A recall like
that of neighbours is often out of reach: nobody can foresee every click. Then the search of least
work is taken that finds nearly as much as any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from irli.base.logs import get_logger
from irli.vectors.build.held_out import HeldOut
from irli.vectors.parameters import RANKS, OperatingPoint, SearchParameters
from irli.vectors.tune_result import TuneResult
from irli.vectors.tuning.measure import Ask

log = get_logger(__name__)

_STRIDES = 12  # of the threshold, from 1 to the least
_LEAST = 1e-6
_NEARLY = 0.99  # of the best recall
_WIDER = 100  # times as many items need a threshold that is this many times smaller


def tune_by_relevance(ask: Ask, held: HeldOut, recall: float, k: int) -> TuneResult:
    """Find the parameters of least work whose k results hold `recall` of the relevant items."""
    tried = list(_try_all(ask, held, k))
    target = min(recall, _NEARLY * max(each.recall for each in tried))
    best = min((each for each in tried if each.recall >= target), key=lambda each: each.work)
    best = best._replace(parameters=_add_points(best), reached=best.recall >= recall)
    log.info("tuned: %s, recall %.4f of relevant items at k=%d", best.parameters, best.recall, k)
    if not best.reached:
        log.warning(
            "tune: the best %d results hold %.3f of the relevant items of held-out queries, ranked "
            "by %s. Recall %.3f is out of reach. Give more queries, learn with more repetitions, "
            "or use a LabelIndex, which learns a ranker.",
            k,
            best.recall,
            best.parameters.rank,
            recall,
        )
    return best


def _try_all(ask: Ask, held: HeldOut, k: int) -> Iterator[TuneResult]:
    """Yield what all rankings find, from few buckets to as many as cost less than all items."""
    asked = (held.relevant >= 0).any(axis=1)
    queries, relevant = np.ascontiguousarray(held.queries[asked]), held.relevant[asked]
    wanted = np.minimum((relevant >= 0).sum(axis=1), k)
    items = ask("measure_sizes")[0].items
    for stride in range(_STRIDES + 1):
        for rank in RANKS:
            parameters = SearchParameters(threshold=_LEAST ** (stride / _STRIDES), rank=rank)
            [found] = ask("measure", queries, k, parameters, True)
            scanned = float(found.counts[:, 1].mean())
            if stride > _STRIDES // 2 and scanned > items:
                return
            hits = (relevant[:, :, None] == found.rows[:, None, :]).any(axis=2) & (relevant >= 0)
            share = np.minimum(hits.sum(axis=1), wanted) / wanted
            yield TuneResult(
                parameters=parameters,
                k=k,
                recall=float(share.mean()),
                self_hits=1.0,
                scanned=scanned,
                work=float(found.work.mean()),
                reached=False,
            )


def _add_points(best: TuneResult) -> SearchParameters:
    """Return the parameters with operating points: more items need more buckets."""
    threshold = best.parameters.threshold or 0.0
    point = OperatingPoint(best.k, threshold, candidates=None, work=best.work)
    wider = point._replace(
        k=_WIDER * best.k, threshold=threshold / _WIDER, work=best.work * _WIDER**0.5
    )
    return dataclasses.replace(best.parameters, points=(point, wider))
