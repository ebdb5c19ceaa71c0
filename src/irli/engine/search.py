"""Kernels of vector search (Algorithm 2), stage by stage: route, scan, select, rerank.

A search is a sequence of stages, and this file has them in their order. `search` runs all stages
for each query. `run_stage` runs one stage, so that `explain` can read the clock and the counts
after each.

Every kernel releases the GIL and keeps its state in the `Scratch` of its thread. So any number of
threads may search one index at the same time. Scratch arrays over the items are not cleared between
queries. Instead each entry is stamped with the number of its query.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irli.engine.dense import copy_row, dot, squared_distance
from irli.engine.handle import Engine
from irli.engine.jit import inlined, inner, kernel
from irli.engine.prefilter import prefilter
from irli.engine.route import route
from irli.engine.scan import fill_table, scan
from irli.engine.select import (
    find_at_least,
    find_largest,
    keep_best,
    kth_largest,
    sort_down,
)
from irli.engine.simd import fetch
from irli.engine.vector_layout import (
    BLOCK,
    CODES,
    COSINE,
    IP,
    L2,
    PROBABILITY,
    VOTES,
    Scratch,
    SearchPlan,
    VectorLayout,
    next_query,
)

STAGES = ("route", "scan", "select", "rerank")
ROUTE, SCAN, SELECT, RERANK = 0, 1, 2, 3
PROBED, FOUND, READ, CHOSEN = 0, 1, 2, 3  # places in `Scratch.counts`

_AHEAD = 4  # vectors that are prefetched ahead


@kernel
def search(
    engine: Engine,
    plan: SearchPlan,
    allowed: Any,
    queries: Any,
    distances: Any,
    items: Any,
    ids: Any,
    form: int,
) -> bool:
    """Search `queries` (n, d) and write `distances` and `items` (n, k). Algorithm 2 of the paper.

    Queries are normalized here if `form` says so. Items are converted to `ids` (N,), and distances
    to those of the metric. In Python this would take longer than the search of a single query.

    Return whether all queries are finite. If not, the answers are not valid.
    """
    layout, scratch = engine.layout, engine.scratch
    for start in range(0, len(queries), BLOCK):
        n = min(BLOCK, len(queries) - start)
        block = scratch.rows[:n]
        for row in range(n):
            if not copy_row(queries[start + row], form == COSINE, block[row]):
                return False
        route(layout, block, scratch)
        for row in range(n):
            i = start + row
            answer = distances[i], items[i]
            _run_stages(SCAN, RERANK, layout, plan, allowed, block, row, scratch, *answer)
            _to_user(distances[i], items[i], ids, form)
    return True


@kernel
def run_stage(
    stage: int,
    engine: Engine,
    plan: SearchPlan,
    allowed: Any,
    query: Any,
    distances: Any,
    items: Any,
) -> None:
    """Run one stage for one prepared query (1, d). The stages before it must have run."""
    layout, scratch = engine.layout, engine.scratch
    if stage == ROUTE:
        route(layout, query, scratch)
    else:
        _run_stages(stage, stage, layout, plan, allowed, query, 0, scratch, distances, items)


@kernel
def count_votes(engine: Engine, allowed: Any) -> None:
    """Count the votes of the items in the probed buckets. A code scan does not count them."""
    gather(engine.layout, allowed, engine.scratch.counts[PROBED], engine.scratch)


@inlined
def _run_stages(
    first: int,
    last: int,
    layout: VectorLayout,
    plan: SearchPlan,
    allowed: Any,
    queries: Any,
    row: int,
    scratch: Scratch,
    distances: Any,
    items: Any,
) -> None:
    """Run the stages from `first` to `last` for query `row` of a routed block.

    This is the one description of a search. Each stage writes its counts to `counts`.
    """
    counts = scratch.counts
    if first <= SCAN <= last:
        if plan.score == CODES:
            fill_table(layout, queries, row, scratch)
        counts[PROBED], counts[FOUND], counts[READ] = _probe_and_scan(
            layout, plan, allowed, row, scratch
        )
    if first <= SELECT <= last:
        counts[CHOSEN] = select(plan, counts[FOUND], scratch)
        if plan.score == CODES:
            counts[CHOSEN] = prefilter(layout, queries[row], counts[CHOSEN], plan.k, scratch)
    if first <= RERANK <= last:
        rerank(layout, queries[row], counts[CHOSEN], scratch, distances, items)


# --- scan: probe the best buckets of each repetition and collect their items -----------------


@inlined
def _probe_and_scan(
    layout: VectorLayout, plan: SearchPlan, allowed: Any, row: int, scratch: Scratch
) -> tuple[int, int, int]:
    """Probe and scan for one routed query. Return how many are probed, found and read.

    Probing widens until k allowed items are found or every bucket was read. So a narrow filter
    never leads to fewer than k answers if there are k.
    """
    repetitions, buckets = layout.bias.shape
    widen = 0
    while True:
        probed = probe(layout, plan, row, widen, scratch)
        if plan.score == CODES:
            found, read = scan(layout, plan, allowed, probed, scratch)
        else:
            found, read = gather(layout, allowed, probed, scratch)
        if found >= plan.k or probed == repetitions * buckets:
            return probed, found, read
        widen += 1


@inner
def _list_probed(logits: Any, plan: SearchPlan, widen: int, scratch: Scratch) -> int:
    """List the buckets to probe in one repetition in `alive`. Return how many they are."""
    if plan.probes == 0:
        # Each widening divides the threshold by four. The best bucket is always probed.
        cut = np.float32(plan.threshold - widen * np.log(4.0) if widen <= 32 else -np.inf)
        count = find_at_least(logits, cut, scratch.alive)
        return count if count > 0 else find_at_least(logits, find_largest(logits), scratch.alive)
    wanted = plan.probes << widen
    if wanted >= len(logits):
        return find_at_least(logits, np.float32(-np.inf), scratch.alive)
    scratch.order[: len(logits)] = logits
    cut = kth_largest(scratch.order[: len(logits)], wanted)
    count = find_at_least(logits, cut, scratch.alive)
    surplus = count - wanted  # ties beyond the number of probes
    kept = 0
    for a in range(count):
        bucket = scratch.alive[a]
        if surplus > 0 and not logits[bucket] > cut:
            surplus -= 1
        else:
            scratch.alive[kept] = bucket
            kept += 1
    return kept


@inlined
def probe(layout: VectorLayout, plan: SearchPlan, row: int, widen: int, scratch: Scratch) -> int:
    """List the buckets to probe for query `row` of the block, and what each adds to a score.

    With a log-probability score, a bucket adds its lead over the weakest probed bucket of its
    repetition. So a bucket that is not probed counts like the weakest one.
    """
    repetitions, buckets = layout.bias.shape
    count = 0
    for r in range(repetitions):
        logits = scratch.logits[row, r]
        begin, weakest = count, np.float32(0.0)
        for a in range(_list_probed(logits, plan, widen, scratch)):
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
        # Best buckets first: the sums of their items soon exclude most of the others.
        sort_down(scratch.values, scratch.probed, count)
    return count


@kernel
def gather(layout: VectorLayout, allowed: Any, probed: int, scratch: Scratch) -> tuple[int, int]:
    """Collect the items of the probed buckets. Return how many were found and how many read.

    `allowed` holds a boolean for each item, or is empty if all are allowed.
    """
    now = next_query(scratch)
    buckets = layout.bias.shape[1]
    found = read = 0
    for c in range(probed):
        r, b = divmod(scratch.probed[c], buckets)
        start, stop = layout.offsets[r, b], layout.offsets[r, b + 1]
        value = scratch.values[c]
        read += stop - start
        for e in range(start, stop):
            item = layout.items[e]
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


# --- select: the candidates, by votes and score ----------------------------------------------


@inlined
def select(plan: SearchPlan, found: int, scratch: Scratch) -> int:
    """Move the candidates to the front of `touched`. Return how many they are."""
    if plan.score == CODES:
        return found  # the scan has already chosen them
    touched, kept = scratch.touched, found
    if plan.min_votes > 1:
        kept = 0
        for t in range(found):
            if scratch.votes[touched[t]] >= plan.min_votes:
                touched[kept] = touched[t]
                kept += 1
    if plan.candidates == 0:
        return kept
    return keep_best(touched, kept, plan.candidates, scratch.scores, scratch.order)


# --- rerank: exact distances and the top k ---------------------------------------------------


@inlined
def _compute_distance(query: Any, vector: Any, metric: int) -> Any:
    """Return the squared L2 distance or the negated inner product. Smaller is nearer."""
    if metric == L2:
        return squared_distance(query, vector)
    return -dot(query, vector)


@inner
def _sift_down(distances: Any, items: Any, root: int, size: int) -> None:
    """Restore the heap below `root`. The farthest is on top, and the larger item among ties."""
    while 2 * root + 1 < size:
        child = 2 * root + 1
        if child + 1 < size and _is_farther(distances, items, child + 1, child):
            child += 1
        if not _is_farther(distances, items, child, root):
            return
        distances[root], distances[child] = distances[child], distances[root]
        items[root], items[child] = items[child], items[root]
        root = child


@inner
def _is_farther(distances: Any, items: Any, a: int, b: int) -> bool:
    if distances[a] != distances[b]:
        return bool(distances[a] > distances[b])
    return bool(items[a] > items[b])


@inlined
def rerank(
    layout: VectorLayout, query: Any, chosen: int, scratch: Scratch, distances: Any, items: Any
) -> None:
    """Fill `distances` and `items` (k,) with the nearest candidates, nearest first."""
    k = len(items)
    distances[:] = np.inf
    items[:] = np.iinfo(np.int64).max  # empty places are farther than any item
    for t in range(min(_AHEAD, chosen)):
        fetch(layout.vectors[scratch.touched[t]].ctypes.data, 4 * len(query))
    for t in range(chosen):
        if t + _AHEAD < chosen:
            fetch(layout.vectors[scratch.touched[t + _AHEAD]].ctypes.data, 4 * len(query))
        item = scratch.touched[t]
        distance = _compute_distance(query, layout.vectors[item], layout.metric)
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


@inner
def _to_user(distances: Any, items: Any, ids: Any, form: int) -> None:
    """Convert kernel distances to those of the metric, and item numbers to ids."""
    for t in range(len(items)):
        if form == COSINE:
            distances[t] += np.float32(1.0)
        elif form == IP:
            distances[t] = -distances[t]
        if items[t] >= 0 and len(ids) > 0:
            items[t] = ids[items[t]]
