"""The loops of Algorithm 2, compiled: route, probe, gather, select, rerank.

Every kernel releases the GIL, is cached between processes and keeps its state in a `Scratch` that
belongs to one thread, so any number of threads may search one index at once. Scratch arrays over
the items are stamped with the number of the query instead of being cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

L2, DOT = 0, 1  # how a distance is computed; cosine is DOT on normalised vectors
VOTES, PROBABILITY, LOG_PROBABILITY = 0, 1, 2  # what a probed bucket adds to an item's score

_TILE = 256  # buckets scored at once: the sums of 8 queries stay in the first-level cache


def kernel(function: Kernel) -> Kernel:
    """Compile without the GIL and keep the machine code for the next process."""
    return cast("Kernel", numba.njit(nogil=True, cache=True, error_model="numpy")(function))


def arithmetic(function: Kernel) -> Kernel:
    """Like `kernel`, for loops of sums that may be reordered to fill vector registers."""
    flags = {"reassoc", "contract", "nsz"}  # not 'nnan' or 'ninf': infinities mean something here
    return cast(
        "Kernel",
        numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=flags)(function),
    )


class Frozen(NamedTuple):
    """An index as the kernels read it: R routers (see `irli.router`) and R partitions."""

    project: NDArray[np.float32]  # (R, d, G)
    shift: NDArray[np.float32]  # (R, G)
    linear: int
    turn: NDArray[np.float32]  # (R, G, F), or (R, 0, 0)
    turn_shift: NDArray[np.float32]  # (R, F), or (R, 0)
    coarse: NDArray[np.float32]  # (R, D, B)
    fine: NDArray[np.float32]  # (R, B, F - D)
    bias: NDArray[np.float32]  # (R, B)
    depths: NDArray[np.int64]  # (stages,)
    keeps: NDArray[np.int64]  # (stages,)
    offsets: NDArray[np.int64]  # (R, B + 1): where each bucket starts in `items`
    items: NDArray[np.int32]  # (entries,): bucket 0 of repetition 0, its bucket 1, ...
    vectors: NDArray[np.float32]  # (N, d)
    metric: int  # L2 or DOT


class Plan(NamedTuple):
    """What one search asks for."""

    k: int
    probes: int  # buckets in each repetition, or 0 to probe by threshold
    threshold: float  # log-probability that a probed bucket must reach
    min_votes: int
    candidates: int  # exact distances at most, or 0 for all that were gathered
    score: int  # VOTES, PROBABILITY or LOG_PROBABILITY


class Scratch(NamedTuple):
    """What one thread needs to answer a query."""

    hidden: NDArray[np.float32]  # (block, G)
    features: NDArray[np.float32]  # (block, F)
    alive: NDArray[np.int32]  # (B,): the buckets that are still being scored
    logits: NDArray[np.float32]  # (block, R, B): log-probabilities once normalised
    order: NDArray[np.float32]  # (max(B, N),): values to select from
    probed: NDArray[np.int32]  # (R * B,): r * B + bucket
    values: NDArray[np.float32]  # (R * B,): what each probed bucket adds to a score
    stamp: NDArray[np.int64]  # (N,): the query that last touched the item
    votes: NDArray[np.int32]  # (N,)
    scores: NDArray[np.float32]  # (N,)
    touched: NDArray[np.int32]  # (N,): the items gathered for this query
    clock: NDArray[np.int64]  # (1,): the number of the query


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written: mapped or not, kernels are compiled for one type."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


BLOCK = 8  # queries routed together: each weight that is read serves all of them


def make_scratch(frozen: Frozen) -> Scratch:
    """Allocate the scratch arrays of one thread."""
    repetitions, buckets = frozen.bias.shape
    items = len(frozen.vectors)
    return Scratch(
        hidden=np.empty((BLOCK, frozen.shift.shape[1]), dtype=np.float32),
        features=np.empty((BLOCK, frozen.turn.shape[2]), dtype=np.float32),
        alive=np.empty(buckets, dtype=np.int32),
        logits=np.empty((BLOCK, repetitions, buckets), dtype=np.float32),
        order=np.empty(max(buckets, items), dtype=np.float32),
        probed=np.empty(repetitions * buckets, dtype=np.int32),
        values=np.empty(repetitions * buckets, dtype=np.float32),
        stamp=np.zeros(items, dtype=np.int64),
        votes=np.empty(items, dtype=np.int32),
        scores=np.empty(items, dtype=np.float32),
        touched=np.empty(items, dtype=np.int32),
        clock=np.zeros(1, dtype=np.int64),
    )


# --- route: R x B log-probabilities ----------------------------------------------------------


@arithmetic
def _matmul(rows: Any, matrix: Any, start: Any, out: Any) -> None:
    """out[i] = rows[i] @ matrix + start, tile by tile, four rows of `matrix` at a time."""
    depth, width = matrix.shape
    whole = depth - depth % 4
    for low in range(0, width, _TILE):
        high = min(low + _TILE, width)
        for i in range(len(rows)):
            total = out[i, low:high]
            total[:] = start[low:high]
            for j in range(0, whole, 4):
                a, b, c, d = rows[i, j], rows[i, j + 1], rows[i, j + 2], rows[i, j + 3]
                w, x = matrix[j, low:high], matrix[j + 1, low:high]
                y, z = matrix[j + 2, low:high], matrix[j + 3, low:high]
                for t in range(high - low):
                    total[t] += a * w[t] + b * x[t] + c * y[t] + d * z[t]
            for j in range(whole, depth):
                a = rows[i, j]
                w = matrix[j, low:high]
                for t in range(high - low):
                    total[t] += a * w[t]


@kernel
def _normalise(logits: Any) -> None:
    """Turn logits into log-probabilities, in place."""
    top = logits.max()
    total = 0.0
    for b in range(len(logits)):
        gap = logits[b] - top
        if gap > -30.0:  # beyond that a float32 sum does not notice
            total += np.exp(gap)
    logits -= top + np.float32(np.log(total))


@kernel
def _kth_largest(values: Any, k: int) -> Any:
    """Return the k-th largest of `values` (k >= 1), reordering them (Hoare's selection)."""
    low, high, want = 0, len(values) - 1, k - 1
    while low < high:
        a, b, c = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if want <= j:
            high = j
        elif want >= i:
            low = i
        else:
            break
    return values[want]


@kernel
def _narrow(logits: Any, alive: Any, count: int, keep: int, order: Any) -> int:
    """Move the `keep` best of the first `count` buckets of `alive` to its front."""
    for a in range(count):
        order[a] = logits[alive[a]]
    cut = _kth_largest(order[:count], keep)
    ties = keep
    for a in range(count):
        ties -= logits[alive[a]] > cut
    kept = 0
    for a in range(count):
        bucket = alive[a]
        if logits[bucket] > cut or (not logits[bucket] < cut and ties > 0):
            ties -= not logits[bucket] > cut
            alive[kept] = bucket
            kept += 1
    return kept


@arithmetic
def _dot(a: Any, b: Any) -> Any:
    total = np.float32(0.0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@kernel
def _refine(frozen: Frozen, r: int, features: Any, logits: Any, scratch: Scratch) -> None:
    """Add the remaining features, stage by stage, for the buckets that look best."""
    alive = scratch.alive
    count = len(logits)
    for b in range(count):
        alive[b] = b
    first = frozen.depths[0]
    for stage in range(1, len(frozen.depths)):
        start, stop = frozen.depths[stage - 1], frozen.depths[stage]
        count = _narrow(logits, alive, count, frozen.keeps[stage], scratch.order)
        for a in range(count):
            bucket = alive[a]
            weights = frozen.fine[r, bucket, start - first : stop - first]
            logits[bucket] += _dot(features[start:stop], weights)


@kernel
def route(frozen: Frozen, queries: Any, scratch: Scratch) -> None:
    """Write the log-probabilities of all buckets for up to BLOCK queries (n, d) into logits."""
    n = len(queries)
    first = frozen.depths[0]
    for r in range(len(frozen.bias)):
        features = scratch.hidden[:n]
        _matmul(queries, frozen.project[r], frozen.shift[r], features)
        for i in range(n):
            for j in range(frozen.linear, features.shape[1]):
                features[i, j] = max(features[i, j], np.float32(0.0))
        if frozen.turn.size > 0:
            _matmul(features, frozen.turn[r], frozen.turn_shift[r], scratch.features[:n])
            features = scratch.features[:n]
        _matmul(features[:, :first], frozen.coarse[r], frozen.bias[r], scratch.logits[:n, r])
        for i in range(n):
            _refine(frozen, r, features[i], scratch.logits[i, r], scratch)
            _normalise(scratch.logits[i, r])


# --- probe: the best buckets of each repetition ----------------------------------------------


@kernel
def _cut(logits: Any, plan: Plan, widen: int, order: Any) -> Any:
    """Return the log-probability down to which one repetition is probed."""
    if plan.probes == 0:
        # Each widening probes down to a quarter of the probability.
        if widen > 32:
            return np.float32(-np.inf)
        cut = plan.threshold - widen * np.log(4.0)
        return np.float32(min(cut, logits.max()))  # at least one bucket
    wanted = plan.probes << widen
    if wanted >= len(logits):
        return np.float32(-np.inf)
    order[: len(logits)] = logits
    return _kth_largest(order[: len(logits)], wanted)


@kernel
def probe(frozen: Frozen, plan: Plan, row: int, widen: int, scratch: Scratch) -> int:
    """List the buckets to probe for query `row` of the block and what each adds to a score.

    With a log-probability score, a bucket adds how far it stands above the weakest probed bucket
    of its repetition, so a bucket that was not probed counts like that one.
    """
    repetitions, buckets = frozen.bias.shape
    count = 0
    for r in range(repetitions):
        logits = scratch.logits[row, r]
        cut = _cut(logits, plan, widen, scratch.order)
        begin, weakest = count, np.float32(0.0)
        ties = buckets  # of equal buckets, no more than the number of probes asks for
        if plan.probes > 0:
            ties = min(plan.probes << widen, buckets)
            for b in range(buckets):
                ties -= logits[b] > cut
        for b in range(buckets):
            # Not '>=': a query so large that its logits overflow to NaN still gets an answer.
            if logits[b] > cut or (not logits[b] < cut and ties > 0):
                ties -= not logits[b] > cut
                scratch.probed[count] = r * buckets + b
                scratch.values[count] = logits[b]
                weakest = min(weakest, logits[b])
                count += 1
        for c in range(begin, count):
            if plan.score == VOTES:
                scratch.values[c] = 1.0
            elif plan.score == PROBABILITY:
                scratch.values[c] = np.exp(scratch.values[c])
            else:
                scratch.values[c] -= weakest
    return count


# --- gather: the union of the probed buckets, with votes and scores --------------------------


@kernel
def gather(frozen: Frozen, allowed: Any, probed: int, scratch: Scratch) -> tuple[int, int]:
    """Collect the items of the probed buckets; return how many were found and how many read.

    `allowed` is a boolean for each item, or empty to allow all.
    """
    scratch.clock[0] += 1
    now = scratch.clock[0]
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


@kernel
def select(plan: Plan, found: int, scratch: Scratch) -> int:
    """Move the candidates to the front of `touched` and return how many there are."""
    touched, scores = scratch.touched, scratch.scores
    kept = found
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
    cut = _kth_largest(scratch.order[:kept], plan.candidates)
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


@kernel
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


@kernel
def _farther(distances: Any, items: Any, a: int, b: int) -> bool:
    if distances[a] != distances[b]:
        return bool(distances[a] > distances[b])
    return bool(items[a] > items[b])


@kernel
def rerank(
    frozen: Frozen, query: Any, chosen: int, scratch: Scratch, distances: Any, items: Any
) -> None:
    """Fill `distances` and `items` (k,) with the nearest candidates, nearest first."""
    k = len(items)
    distances[:] = np.inf
    items[:] = np.iinfo(np.int64).max  # unfilled places are the farthest of all
    for t in range(chosen):
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


@kernel
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
        found, read = gather(frozen, allowed, probed, scratch)
        if found >= plan.k or probed == repetitions * buckets:
            return probed, found, read
        widen += 1


@kernel
def search(
    frozen: Frozen,
    plan: Plan,
    allowed: Any,
    queries: Any,
    scratch: Scratch,
    distances: Any,
    items: Any,
) -> None:
    """Answer `queries` (n, d) into `distances` and `items` (n, k). Algorithm 2 of the paper."""
    for start in range(0, len(queries), BLOCK):
        block = queries[start : start + BLOCK]
        route(frozen, block, scratch)
        for row in range(len(block)):
            _, found, _ = shortlist(frozen, plan, allowed, row, scratch)
            chosen = select(plan, found, scratch)
            i = start + row
            rerank(frozen, block[row], chosen, scratch, distances[i], items[i])
