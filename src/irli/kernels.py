"""The loops of Algorithm 2, compiled: route, probe, gather, select, rerank.

Every kernel releases the GIL, is cached between processes and keeps its state in a `Scratch` that
belongs to one thread, so any number of threads may search one index at once. Scratch arrays over
the items are stamped with the number of the query instead of being cleared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irli.compiled import arithmetic, inner, kernel, kth_largest, shell_sort, step
from irli.engine import Engine
from irli.firstpass import fill_table, scan
from irli.frozen import (
    BLOCK,
    CODES,
    COSINE,
    IP,
    L2,
    PROBABILITY,
    VOTES,
    Frozen,
    Plan,
    Scratch,
    next_query,
)
from irli.lanes import fetch
from irli.rounded import sift
from irli.routing import at_least, largest, route

_AHEAD = 4  # vectors asked for before they are compared


@kernel
def unit_rows(rows: Any, out: Any) -> None:
    """Write the rows at unit length; rows of zeros stay zeros."""
    for i in range(rows.shape[0]):
        _take(rows[i], COSINE, out[i])


# --- probe: the best buckets of each repetition ----------------------------------------------


@inner
def _reached(logits: Any, plan: Plan, widen: int, scratch: Scratch) -> int:
    """List the buckets of one repetition that are probed in `alive`; return how many."""
    if plan.probes == 0:
        # Each widening probes down to a quarter of the probability, and always the best bucket.
        cut = np.float32(plan.threshold - widen * np.log(4.0) if widen <= 32 else -np.inf)
        count = at_least(logits, cut, scratch.alive)
        return count if count > 0 else at_least(logits, largest(logits), scratch.alive)
    wanted = plan.probes << widen
    if wanted >= len(logits):
        return at_least(logits, np.float32(-np.inf), scratch.alive)
    scratch.order[: len(logits)] = logits
    cut = kth_largest(scratch.order[: len(logits)], wanted)
    count = at_least(logits, cut, scratch.alive)
    surplus = count - wanted  # of equal buckets, no more than the number of probes asks for
    kept = 0
    for a in range(count):
        bucket = scratch.alive[a]
        if surplus > 0 and not logits[bucket] > cut:
            surplus -= 1
        else:
            scratch.alive[kept] = bucket
            kept += 1
    return kept


@step
def probe(frozen: Frozen, plan: Plan, row: int, widen: int, scratch: Scratch) -> int:
    """List the buckets to probe for query `row` of the block and what each adds to a score.

    With a log-probability score, a bucket adds how far it stands above the weakest probed bucket
    of its repetition, so a bucket that was not probed counts like that one.
    """
    repetitions, buckets = frozen.bias.shape
    count = 0
    for r in range(repetitions):
        logits = scratch.logits[row, r]
        begin, weakest = count, np.float32(0.0)
        for a in range(_reached(logits, plan, widen, scratch)):
            bucket = scratch.alive[a]
            scratch.probed[count] = r * buckets + bucket
            scratch.values[count] = logits[bucket]
            weakest = min(weakest, logits[bucket])
            count += 1
        for c in range(begin, count):
            if plan.score == VOTES:
                scratch.values[c] = 1.0
            elif plan.score == PROBABILITY:
                scratch.values[c] = np.exp(scratch.values[c])
            else:
                scratch.values[c] -= weakest
    if plan.score == CODES:
        # What the best buckets hold soon shuts out most of the rest.
        shell_sort(scratch.values, scratch.probed, count)
    return count


# --- gather: the union of the probed buckets, with votes and scores --------------------------


@kernel
def gather(frozen: Frozen, allowed: Any, probed: int, scratch: Scratch) -> tuple[int, int]:
    """Collect the items of the probed buckets; return how many were found and how many read.

    `allowed` is a boolean for each item, or empty to allow all.
    """
    now = next_query(scratch)
    buckets = frozen.bias.shape[1]
    found = read = 0
    for c in range(probed):
        r, b = divmod(scratch.probed[c], buckets)
        start, stop = frozen.offsets[r, b], frozen.offsets[r, b + 1]
        value = scratch.values[c]
        read += stop - start
        for e in range(start, stop):
            item = frozen.items[e]
            if scratch.stamp[item] == now:
                scratch.votes[item] += 1
                scratch.scores[item] += value
            elif len(allowed) == 0 or allowed[item]:
                scratch.stamp[item] = now
                scratch.votes[item] = 1
                scratch.scores[item] = value
                scratch.touched[found] = item
                found += 1
    return found, read


# --- select: threshold by votes, best C by score ---------------------------------------------


@step
def select(plan: Plan, found: int, scratch: Scratch) -> int:
    """Move the candidates to the front of `touched` and return how many there are."""
    touched, scores = scratch.touched, scratch.scores
    kept = found
    if plan.score == CODES:
        return found  # the first pass chose already
    if plan.min_votes > 1:
        kept = 0
        for t in range(found):
            if scratch.votes[touched[t]] >= plan.min_votes:
                touched[kept] = touched[t]
                kept += 1
    if plan.candidates == 0 or kept <= plan.candidates:
        return kept
    for t in range(kept):
        scratch.order[t] = scores[touched[t]]
    cut = kth_largest(scratch.order[:kept], plan.candidates)
    above = 0
    for t in range(kept):
        above += scores[touched[t]] > cut
    ties = plan.candidates - above
    chosen = 0
    for t in range(kept):
        item = touched[t]
        if scores[item] > cut or (not scores[item] < cut and ties > 0):
            ties -= not scores[item] > cut
            touched[chosen] = item
            chosen += 1
    return chosen


# --- rerank: exact distances, top k ----------------------------------------------------------


@arithmetic
def _distance(query: Any, vector: Any, metric: int) -> Any:
    """Squared L2, or the negated inner product: smaller is nearer."""
    total = np.float32(0.0)
    if metric == L2:
        for j in range(len(query)):
            gap = query[j] - vector[j]
            total += gap * gap
        return total
    for j in range(len(query)):
        total += query[j] * vector[j]
    return -total


@inner
def _sift_down(distances: Any, items: Any, root: int, size: int) -> None:
    """Restore the heap below `root`: the farthest on top, of equals the larger item number."""
    while 2 * root + 1 < size:
        child = 2 * root + 1
        if child + 1 < size and _farther(distances, items, child + 1, child):
            child += 1
        if not _farther(distances, items, child, root):
            return
        distances[root], distances[child] = distances[child], distances[root]
        items[root], items[child] = items[child], items[root]
        root = child


@inner
def _farther(distances: Any, items: Any, a: int, b: int) -> bool:
    if distances[a] != distances[b]:
        return bool(distances[a] > distances[b])
    return bool(items[a] > items[b])


@step
def rerank(
    frozen: Frozen, query: Any, chosen: int, scratch: Scratch, distances: Any, items: Any
) -> None:
    """Fill `distances` and `items` (k,) with the nearest candidates, nearest first."""
    k = len(items)
    distances[:] = np.inf
    items[:] = np.iinfo(np.int64).max  # unfilled places are the farthest of all
    for t in range(min(_AHEAD, chosen)):
        fetch(frozen.vectors[scratch.touched[t]].ctypes.data, 4 * len(query))
    for t in range(chosen):
        if t + _AHEAD < chosen:
            fetch(frozen.vectors[scratch.touched[t + _AHEAD]].ctypes.data, 4 * len(query))
        item = scratch.touched[t]
        distance = _distance(query, frozen.vectors[item], frozen.metric)
        if distance < distances[0] or (distance == distances[0] and item < items[0]):
            distances[0], items[0] = distance, item
            _sift_down(distances, items, 0, k)
    for size in range(k - 1, 0, -1):
        distances[0], distances[size] = distances[size], distances[0]
        items[0], items[size] = items[size], items[0]
        _sift_down(distances, items, 0, size)
    for t in range(k):
        if items[t] == np.iinfo(np.int64).max:
            items[t] = -1


# --- the whole of Algorithm 2 ----------------------------------------------------------------


@step
def shortlist(
    frozen: Frozen, plan: Plan, allowed: Any, row: int, scratch: Scratch
) -> tuple[int, int, int]:
    """Probe and gather for one routed query; return counts of probed, found and read.

    Probing widens until k allowed items are found or every bucket was read, so that a narrow
    filter or a bad first guess never shortens an answer that could be longer.
    """
    repetitions, buckets = frozen.bias.shape
    widen = 0
    while True:
        probed = probe(frozen, plan, row, widen, scratch)
        if plan.score == CODES:
            found, read = scan(frozen, plan, allowed, probed, scratch)
        else:
            found, read = gather(frozen, allowed, probed, scratch)
        if found >= plan.k or probed == repetitions * buckets:
            return probed, found, read
        widen += 1


@step
def _answer(
    frozen: Frozen,
    plan: Plan,
    allowed: Any,
    queries: Any,
    row: int,
    scratch: Scratch,
    distances: Any,
    items: Any,
) -> None:
    """Answer one query of a block that was routed."""
    if plan.score == CODES:
        fill_table(frozen, queries, row, scratch)
    _, found, _ = shortlist(frozen, plan, allowed, row, scratch)
    chosen = select(plan, found, scratch)
    if plan.score == CODES:
        chosen = sift(frozen, queries[row], chosen, plan.k, scratch)
    rerank(frozen, queries[row], chosen, scratch, distances, items)


@kernel
def search(
    engine: Engine,
    plan: Plan,
    allowed: Any,
    queries: Any,
    distances: Any,
    items: Any,
    ids: Any,
    form: int,
) -> bool:
    """Answer `queries` (n, d) into `distances` and `items` (n, k). Algorithm 2 of the paper.

    What else an answer needs is done here too, as around a single query it would take longer than
    the search: the queries are normalised, and `items` and `distances` become what was asked for,
    by `ids` (N,) and `form`. Return whether all queries are finite; if not, nothing is promised.
    """
    frozen, scratch = engine.frozen, engine.scratch
    for start in range(0, len(queries), BLOCK):
        n = min(BLOCK, len(queries) - start)
        block = scratch.rows[:n]
        for row in range(n):
            if not _take(queries[start + row], form, block[row]):
                return False
        route(frozen, block, scratch)
        for row in range(n):
            i = start + row
            _answer(frozen, plan, allowed, block, row, scratch, distances[i], items[i])
            _give(distances[i], items[i], ids, form)
    return True


@inner
def _take(query: Any, form: int, out: Any) -> bool:
    """Copy a query, at unit length where the metric is the angle; return whether it is finite."""
    total = 0.0  # in float64, where no square of a float32 is too large or too small
    for j in range(len(query)):
        total += np.float64(query[j]) * np.float64(query[j])
    scale = 1.0
    if form == COSINE:
        scale = 1.0 / np.sqrt(total) if total > 0 else 0.0
    for j in range(len(query)):
        out[j] = query[j] * scale
    return bool(np.isfinite(total))


@inner
def _give(distances: Any, items: Any, ids: Any, form: int) -> None:
    """Turn kernel distances and item numbers into those that users know."""
    for t in range(len(items)):
        if form == COSINE:
            distances[t] += np.float32(1.0)
        elif form == IP:
            distances[t] = -distances[t]
        if items[t] >= 0 and len(ids) > 0:
            items[t] = ids[items[t]]
