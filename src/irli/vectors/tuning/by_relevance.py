"""Tune a search to find the relevant items that were given, which distances may not explain.

Results can be ranked by distance or by the learned score. Held-out queries decide. A recall like
that of neighbours is often out of reach: nobody can foresee every click. Then the search of least
work is taken that finds nearly as much as any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.threads import thread_count
from irli.vectors.build.held_out import HeldOut
from irli.vectors.cost import count_work
from irli.vectors.parameters import RANKS, OperatingPoint, SearchParameters
from irli.vectors.searcher import Searcher
from irli.vectors.tune_result import TuneResult

log = get_logger(__name__)

_STRIDES = 12  # of the threshold, from 1 to the least
_LEAST = 1e-6
_NEARLY = 0.99  # of the best recall
_WIDER = 100  # times as many items need a threshold that is this many times smaller


class _Measured(NamedTuple):
    parameters: SearchParameters
    recall: float
    scanned: float
    work: float


def tune_by_relevance(searcher: Searcher, held: HeldOut, recall: float, k: int) -> TuneResult:
    """Find the parameters of least work whose k results hold `recall` of the relevant items."""
    asked = np.flatnonzero((held.relevant >= 0).any(axis=1))
    queries = np.ascontiguousarray(held.queries[asked])
    relevant = held.relevant[asked]
    tried = [
        _measure(searcher, queries, relevant, parameters, k)
        for parameters in _list_parameters(searcher, queries, k)
    ]
    most = max(each.recall for each in tried)
    target = min(recall, _NEARLY * most)
    best = min((each for each in tried if each.recall >= target), key=lambda each: each.work)
    result = TuneResult(
        parameters=_add_points(best, k),
        k=k,
        recall=best.recall,
        self_hits=1.0,
        scanned=best.scanned,
        work=best.work,
        reached=best.recall >= recall,
    )
    log.info("tuned: %s, recall %.4f of relevant items at k=%d", best.parameters, best.recall, k)
    if not result.reached:
        log.warning(
            "tune: the best %d results hold %.3f of the relevant items of held-out queries, ranked "
            "by %s. Recall %.3f is out of reach. Give more queries, learn with more repetitions, "
            "or use a LabelIndex, which learns a ranker.",
            k,
            best.recall,
            best.parameters.rank,
            recall,
        )
    return result


def _list_parameters(
    searcher: Searcher, queries: NDArray[np.float32], k: int
) -> Iterator[SearchParameters]:
    """Yield all rankings, from few buckets to as many as are cheaper than comparing all items."""
    for stride in range(_STRIDES + 1):
        threshold = _LEAST ** (stride / _STRIDES)
        plain = SearchParameters(threshold=threshold)
        work = searcher.measure(queries, plain.to_plan(k), thread_count(None))[2]
        if stride > _STRIDES // 2 and work[:, 1].mean() > len(searcher.layout.vectors):
            return
        for rank in RANKS:
            yield SearchParameters(threshold=threshold, rank=rank)


def _measure(
    searcher: Searcher,
    queries: NDArray[np.float32],
    relevant: NDArray[np.int64],
    parameters: SearchParameters,
    k: int,
) -> _Measured:
    """Return the share of the relevant items among the k results, and the work."""
    _, found, work = searcher.measure(queries, parameters.to_plan(k), thread_count(None))
    hit = (relevant[:, :, None] == found[:, None, :]).any(axis=2) & (relevant >= 0)
    wanted = np.minimum((relevant >= 0).sum(axis=1), k)
    share = np.minimum(hit.sum(axis=1), wanted) / wanted
    probed, scanned, candidates = work[:, :3].mean(axis=0)
    cost = float(count_work(searcher.layout, probed, scanned, candidates, codes=False))
    return _Measured(parameters, float(share.mean()), float(scanned), cost)


def _add_points(best: _Measured, k: int) -> SearchParameters:
    """Return the parameters with operating points: more items need more buckets."""
    threshold = best.parameters.threshold or 0.0
    point = OperatingPoint(k, threshold, candidates=None, work=best.work)
    wider = point._replace(k=_WIDER * k, threshold=threshold / _WIDER, work=best.work * _WIDER**0.5)
    return dataclasses.replace(best.parameters, points=(point, wider))
