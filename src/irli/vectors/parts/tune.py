"""tune_parts: find search parameters for all parts whose merged results reach a recall.

Each part can tune itself, but the merged results need less than that recall from each part. Most
true neighbours of a query are the very nearest items of the parts that hold them, which are the
easiest to find. So the parts propose parameters for several recalls on their own items. The
proposal of least work whose merged results reach the target is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import check_float, check_int
from irli.base.logs import get_logger
from irli.base.parts.group import PartGroup
from irli.vectors.build.held_out import require_queries
from irli.vectors.build.problem import HELD_MOST
from irli.vectors.parameters import SearchParameters
from irli.vectors.tune_result import TuneResult

if TYPE_CHECKING:
    from irli.vectors.parts.several import VectorParts

log = get_logger(__name__)

# Misses that a part may have, as multiples of those that the merged results may have.
_EASIER = (4.0, 2.0, 1.0)
_HARDER = (0.5, 0.0)  # tried if none of these is enough


def tune_parts(
    parts: VectorParts, recall: float, k: int, queries: NDArray[np.float32] | None
) -> TuneResult:
    """Find parameters for all parts whose merged results reach `recall` at k.

    Without `queries`, they are tuned with the held-out items of all parts, and with the sample
    queries that no part has learned from.
    """
    check_float("recall", recall, at_least=0.0, at_most=1.0, owner="tune")
    check_int("k", k, at_least=1, owner="tune")
    group = parts.group
    if len(group) == 1:
        only: TuneResult = group.ask("propose", [recall], k, queries).values[0][0]
        return only
    trial = _MergedTrial(parts, k, queries)
    tried: list[TuneResult] = []
    for proposal in _collect_proposals(group, recall, k, queries):
        merged = trial.measure(proposal.parameters)
        tuned = proposal._replace(
            recall=merged,
            scanned=len(group) * proposal.scanned,
            work=len(group) * proposal.work,
            reached=merged >= recall,
        )
        if tuned.reached:
            log.info("tuned: %s, recall %.4f at k=%d", tuned.parameters, tuned.recall, k)
            return tuned
        tried.append(tuned)
    best = max(tried, key=lambda tuned: tuned.recall)
    log.warning(
        "tune: recall %.3f at k=%d is out of reach; the best is %.3f", recall, k, best.recall
    )
    return best


def _collect_proposals(
    group: PartGroup, recall: float, k: int, queries: Any
) -> Iterator[TuneResult]:
    """Yield the proposals of the shards, the least work first, without duplicates."""
    known: list[SearchParameters] = []
    shards = len(group)
    for misses in (_EASIER, _HARDER):
        recalls = [max(0.0, 1 - share * (1 - recall)) for share in misses]
        turns = [recalls[s::shards] or [recalls[s % len(recalls)]] for s in range(shards)]
        answers = group.call("propose", [(turn, k, queries) for turn in turns]).values
        for tuned in sorted((t for part in answers for t in part), key=lambda t: t.work):
            if tuned.parameters not in known:
                known.append(tuned.parameters)
                yield tuned


class _MergedTrial:
    """Queries with their true neighbours among the items of all parts."""

    def __init__(self, parts: VectorParts, k: int, queries: NDArray[np.float32] | None) -> None:
        self.parts, self.k = parts, k
        self.itself = np.full(0 if queries is None else len(queries), -1)
        if queries is None:
            each = parts.group.ask("held_out", -(-HELD_MOST // len(parts.group))).values
            queries = np.concatenate([*(part[0] for part in each), parts.held])
            no_items = np.full(len(parts.held), -1)
            self.itself = np.concatenate([*(part[1] for part in each), no_items])
            require_queries(queries)
        self.queries = queries
        self.truth = self._find(SearchParameters(exact=True))

    def measure(self, parameters: SearchParameters) -> float:
        """Return the recall of the merged results."""
        found, wanted = self._find(parameters), self.truth >= 0
        hit = (self.truth[:, :, None] == found[:, None, :]).any(axis=2)
        return float(hit[wanted].mean()) if wanted.any() else 1.0

    def _find(self, parameters: SearchParameters) -> NDArray[np.int64]:
        """Return the ids of the k nearest items, but for the query itself: (n, k)."""
        return self._drop_itself(self.parts.search(self.queries, self.k + 1, parameters)[1])

    def _drop_itself(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return k of k + 1 ids: without the query's own item, or else without the last one."""
        dropped = (ids == self.itself[:, None]) & (ids >= 0)
        dropped[~dropped.any(axis=1), -1] = True
        others: NDArray[np.int64] = ids[~dropped].reshape(len(ids), -1)
        return others
