"""Health: what changes have done to an index, measured on its own items and recorded queries.

How items find their nearest ones is compared with the day on which the routers have learned: they
know best where the items are that they learned from. So turnover costs work even where new items
are like old ones, and items from places that the routers never saw cost more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from irli.vectors.cost import count_query_work
from irli.vectors.front import RECALL, Request
from irli.vectors.parameters import SearchParameters
from irli.vectors.parts.part import VectorPart

K = 10
SAMPLE = 400  # items or queries that are measured
_DRIFTED = 0.06  # more work, as a share, that learning anew is worth
_WORK_OF_RECALL = 8.0  # a recall lower by .01 takes 8 % more work to make up for, near .95
_DEARER = 0.1  # more work, as a share, for which what was learned is not taken
_MISSED = 0.02  # less recall than it was tuned to
_OUTGROWN = 2.0  # times as many items as were learned, or as few, ask for other buckets
_FEW = 1000  # rows that never need to be packed
_REMOVED = 0.1  # share of removed rows from which on the arrays are packed anew
_BALANCE = 1.5  # the largest bucket, relative to the mean, that needs no packing


@dataclass(frozen=True)
class Found:
    """How some queries find their nearest items.

    Attributes
    ----------
    recall : float
        Recall at 10, with half its 95 % interval in `margin`.
    work : float
        Counted nanoseconds of a query, with half its 95 % interval in `work_margin`.
    queries : int
    """

    recall: float
    margin: float
    work: float
    work_margin: float
    queries: int

    def __str__(self) -> str:
        return f"{self.recall:.3f} +- {self.margin:.3f} at {self.work / 1000:.1f} us counted"


@dataclass(frozen=True)
class Health:
    """What `health` measures. Counts are those since the routers have learned.

    Attributes
    ----------
    items : int
    learned, added, removed : int
        Items when the routers learned, and how many were added and removed since.
    removed_rows : float
        The share of the rows that removed items still take.
    balance : float
        The largest bucket, relative to the mean.
    refreshes : int
        How often routers have learned anew since the index was first learned.
    old, recent, recorded : Found or None
        Items from before and after the learning as queries, and queries that were recorded.
    work_then : float or None
        The counted work of a query on the day that the index was tuned.
    bytes, bytes_to_reclaim : int
        The size of the index, and what packing it anew would give back.
    learning : bool
        Whether routers learn in the background.
    advice : list of str
        What to do. Empty if all is well.
    warnings : list of str
        What has failed in the background, and what to know of the version of SQLite.
    """

    items: int
    learned: int
    added: int
    removed: int
    removed_rows: float
    balance: float
    refreshes: int
    old: Found | None
    recent: Found | None
    recorded: Found | None
    work_then: float | None
    bytes: int
    bytes_to_reclaim: int
    learning: bool
    advice: list[str]
    warnings: list[str]


def measure(
    part: VectorPart,
    parameters: SearchParameters,
    queries: NDArray[np.float32],
    own: NDArray[np.int64] | None = None,
) -> Found | None:
    """Return how queries (n, d) find their nearest items. `own` (n,) are their rows, if any."""
    if len(queries) == 0:
        return None
    k = min(K, len(part) - (own is not None))
    if k < 1:
        return None
    more = k + (own is not None)
    exact = Request(queries, SearchParameters(exact=True))
    true, _ = part.search(exact, more)
    near, ids = part.search(Request(queries, parameters), more)
    if own is not None:
        true, near = true[:, 1:], _leave_out(near, ids, part.ids.values[own])
    if part.metric == "ip":  # larger is nearer
        true, near = -true, -near
    reach = true[:, -1:] + 1e-5 * np.abs(true[:, -1:])
    each = np.minimum((near <= reach).sum(axis=1), k) / k
    plan = part.make_plan(more, parameters)
    work = count_query_work(part.searcher.sizes, part.searcher.measure(queries, plan)[2])
    margins = (1.96 * float(x.std()) / math.sqrt(len(each)) for x in (each, work))
    margin, work_margin = margins
    return Found(float(each.mean()), margin, float(work.mean()), work_margin, len(each))


def _leave_out(
    near: NDArray[np.float32], ids: NDArray[np.int64], own: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return distances without that of the query itself, or without the last one."""
    mine = ids == own[:, None]
    mine[~mine.any(axis=1), -1] = True
    others: NDArray[np.float32] = near[~mine].reshape(len(near), -1)
    return others


def measure_items(
    part: VectorPart, parameters: SearchParameters, first: int, last: int, seed: int
) -> Found | None:
    """Return how some of the items in rows from `first` to `last` find their nearest ones."""
    left = part.searcher.left
    inside = left[np.searchsorted(left, first) : np.searchsorted(left, last)]
    rng = np.random.default_rng(seed)
    rows = rng.choice(inside, min(SAMPLE, len(inside)), replace=False)
    rows = np.sort(rows).astype(np.int64)
    return measure(part, parameters, part.take(rows), rows)


def compare(old: Found, new: Found) -> float:
    """Return how much more work the new takes, as a share, if lower recall is made up for."""
    return new.work / old.work - 1 + _WORK_OF_RECALL * (old.recall - new.recall)


def is_worse(old: Found, new: Found) -> bool:
    """Whether what was learned is not to be taken.

    Where the old routers find far less than they were tuned to, their work is no measure.
    """
    if old.recall < RECALL - _MISSED:
        return new.recall < old.recall
    return compare(old, new) > _DEARER


def is_drifted(then: Found, now: Found, growth: float) -> bool:
    """Whether items are found so much worse than on the day of learning that it is due again.

    Of `growth` times as many items, a fresh index would read more, too.
    """
    fair = replace(then, work=then.work * math.sqrt(growth))
    margins = [_WORK_OF_RECALL * each.margin for each in (then, now)]
    margins += [each.work_margin / fair.work for each in (then, now)]
    return compare(fair, now) - math.hypot(*margins) / 2 > _DRIFTED


def is_outgrown(learned: int, items: int) -> bool:
    """Whether so many items ask for other buckets than those that were learned for fewer."""
    return items > _OUTGROWN * learned or items * _OUTGROWN < learned


def is_sparse(rows: int, removed: int) -> bool:
    """Whether removed items take so much that packing the arrays anew is due."""
    return rows > _FEW and removed > _REMOVED * rows


def is_uneven(loads: NDArray[np.int64]) -> bool:
    """Whether some bucket holds so much more than others (R, B) that packing anew is due."""
    return bool((loads.max(axis=1) > _BALANCE * loads.mean(axis=1) + 1).any())


def give_advice(due: str | None, sparse: bool) -> list[str]:
    """Return what to do about an index whose routers are due to learn, or whose arrays to pack."""
    if due is not None:
        return [f"Call refresh(): {due}."]
    return ["Call compact(): removed items take room, or buckets are uneven."] if sparse else []
