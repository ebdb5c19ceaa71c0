"""Algorithm 2 for items without vectors, compiled: route, vote, score, rank.

A row of features goes to the best buckets of each repetition. Each label found there gets votes and
an aggregated score; the best of them are the candidates, which the ranker puts in order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.compiled import arithmetic, inner, kernel, kth_largest
from irli.engine import Engine
from irli.lanes import PANEL, byte_sums
from irli.routing import sum_of_exps

VOTES, PROBABILITY, LOGIT, LOG_PROBABILITY = 0, 1, 2, 3
BINS = 128  # of values to select from
BLOCK = 8  # rows routed together: each weight that is read serves all of them


class FrozenLabels(NamedTuple):
    """A label index as the kernels read it; see `irli.router`, `irli.ranker`, `irli.labelbytes`."""

    project: NDArray[np.int8]  # (T, d, G): one trunk for all repetitions, or one for each
    project_scale: NDArray[np.float32]  # (T, d)
    shift: NDArray[np.float32]  # (T, G)
    out: NDArray[np.int8]  # (R, B / 64, G / 4, 64, 4), see `irli.lens`
    out_scale: NDArray[np.float32]  # (R, B)
    bias: NDArray[np.float32]  # (R, B)
    offsets: NDArray[np.int64]  # (R, B + 1): where each bucket starts in `items`
    items: NDArray[np.int32]  # (entries,): labels, bucket by bucket
    share: NDArray[np.float32]  # (entries,): P(label | bucket)
    prior: NDArray[np.float32]  # (L,): mean over the repetitions of log P(label | bucket)
    starts: NDArray[np.int64]  # (D + 1,): the ranker's weights by feature; (1,) without a ranker
    gaps: NDArray[np.uint16]  # (weights,)
    weights: NDArray[np.int8]  # (weights,)
    scale: NDArray[np.float32]  # (L,); (0,) without a ranker
    constant: NDArray[np.float32]  # (L,)


class LabelPlan(NamedTuple):
    """What one prediction asks for."""

    k: int
    probes: int
    candidates: int
    score: int
    by_margin: float  # what the ranker's margin weighs; 0 leaves the ranker out
    by_score: float
    threshold: float  # added to the fused score


class LabelScratch(NamedTuple):
    """What one thread needs to label a row."""

    features: NDArray[np.float32]  # (block, G)
    bytes: NDArray[np.uint8]  # (block, G rounded up): features as bytes
    steps: NDArray[np.float32]  # (block,): what one step of them is worth
    sums: NDArray[np.int32]  # (block, B rounded up)
    logits: NDArray[np.float32]  # (block, R, B)
    order: NDArray[np.float32]  # (max(B, L),)
    values: NDArray[np.float32]  # (L,)
    bins: NDArray[np.int32]  # (BINS,)
    probed: NDArray[np.int32]  # (B,)
    stamp: NDArray[np.int64]  # (L,): the row that last touched the label
    scores: NDArray[np.float32]  # (L,)
    touched: NDArray[np.int32]  # (L,)
    margins: NDArray[np.float32]  # (L,)
    clock: NDArray[np.int64]  # (1,)


def make_scratch(frozen: FrozenLabels) -> LabelScratch:
    """Allocate the scratch arrays of one thread."""
    repetitions, buckets = frozen.bias.shape
    labels = len(frozen.prior)
    return LabelScratch(
        features=np.empty((BLOCK, frozen.shift.shape[1]), dtype=np.float32),
        bytes=np.zeros((BLOCK, 4 * frozen.out.shape[2]), dtype=np.uint8),
        steps=np.empty(BLOCK, dtype=np.float32),
        sums=np.empty((BLOCK, PANEL * frozen.out.shape[1]), dtype=np.int32),
        logits=np.empty((BLOCK, repetitions, buckets), dtype=np.float32),
        order=np.empty(max(buckets, labels), dtype=np.float32),
        values=np.empty(labels, dtype=np.float32),
        bins=np.empty(BINS, dtype=np.int32),
        probed=np.empty(buckets, dtype=np.int32),
        stamp=np.zeros(labels, dtype=np.int64),
        scores=np.empty(labels, dtype=np.float32),
        touched=np.empty(labels, dtype=np.int32),
        margins=np.zeros(labels, dtype=np.float32),
        clock=np.zeros(1, dtype=np.int64),
    )


@inner
def _trunk(frozen: FrozenLabels, t: int, indptr: Any, indices: Any, data: Any, out: Any) -> None:
    """Write relu(project' x + shift) for the sparse rows of a block."""
    width = out.shape[1]
    for i in range(len(indptr) - 1):
        total = out[i]
        total[:] = frozen.shift[t]
        for e in range(indptr[i], indptr[i + 1]):
            row = frozen.project[t, indices[e]]
            value = data[e] * frozen.project_scale[t, indices[e]]
            for j in range(width):
                total[j] += value * row[j]
        for j in range(width):
            total[j] = max(total[j], np.float32(0.0))


@arithmetic
def _to_bytes(values: Any, out: Any, i: int) -> Any:
    """Round values, none below 0, to 7 bits in out[i], and return what one step is worth."""
    most = np.float32(0.0)
    for j in range(len(values)):
        most = values[j] if values[j] > most else most
    if not 0 < most < np.inf:
        out[i] = 0
        return np.float32(0.0)
    scale = np.float32(127.0) / most
    for j in range(len(values)):
        out[i, j] = np.int32(np.float32(0.5) + values[j] * scale)
    return most / np.float32(127.0)


@arithmetic
def _score(frozen: FrozenLabels, r: int, steps: Any, scratch: LabelScratch) -> None:
    """Write the logits of repetition `r`; each panel of weights that is read serves all rows."""
    out, scale, bias, sums = frozen.out, frozen.out_scale, frozen.bias, scratch.sums
    for panel in range(out.shape[1]):
        for i in range(len(steps)):
            byte_sums(scratch.bytes, i, out, r, panel, sums)
    for i in range(len(steps)):
        for b in range(bias.shape[1]):
            scratch.logits[i, r, b] = steps[i] * scale[r, b] * sums[i, b] + bias[r, b]


@kernel
def route(
    frozen: FrozenLabels, indptr: Any, indices: Any, data: Any, scratch: LabelScratch
) -> None:
    """Write the logits of all buckets for a block of sparse rows."""
    n = len(indptr) - 1
    features, steps = scratch.features[:n], scratch.steps[:n]
    for r in range(len(frozen.bias)):
        if r < len(frozen.project):
            _trunk(frozen, r, indptr, indices, data, features)
            for i in range(n):
                steps[i] = _to_bytes(features[i], scratch.bytes, i)
        _score(frozen, r, steps, scratch)


@kernel
def _cut(values: Any, count: int, bins: Any, order: Any) -> Any:
    """Return the `count`-th largest of `values`; `order` has room for all of them.

    They are counted in equal bins from the largest down, without a branch to guess wrong, and only
    the bin that the cut falls into is looked at more closely.
    """
    low = high = values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
    width = high - low
    if not 0 < width < np.inf:  # all alike, or some infinite or NaN
        order[: len(values)] = values
        return kth_largest(order[: len(values)], count)
    factor, last = np.float32(len(bins) - 1) / width, np.uint32(len(bins) - 1)
    bins[:] = 0
    for value in values:
        bins[min(np.uint32((high - value) * factor), last)] += 1
    place, above = 0, 0
    while above + bins[place] < count:
        above += bins[place]
        place += 1
    inside = 0
    for value in values:
        order[inside] = value
        inside += min(np.uint32((high - value) * factor), last) == place
    return kth_largest(order[:inside], count - above)


@inner
def _probe(logits: Any, probes: int, scratch: LabelScratch) -> tuple[Any, int]:
    """List the best `probes` buckets; return the weakest logit among them, and their number."""
    cut, count, probed = _cut(logits, probes, scratch.bins, scratch.order), 0, scratch.probed
    for b in range(len(logits)):
        if logits[b] > cut:
            probed[count] = b
            count += 1
    for b in range(len(logits)):
        if count == probes:
            break
        # Not '==': a row so large that its logits overflow to NaN still gets an answer.
        if not (logits[b] > cut or logits[b] < cut):
            probed[count] = b
            count += 1
    return cut, count


@kernel
def gather(frozen: FrozenLabels, plan: LabelPlan, row: int, scratch: LabelScratch) -> int:
    """Collect the labels of the best buckets with their scores; return how many there are."""
    scratch.clock[0] += 1
    now = scratch.clock[0]
    repetitions, buckets = frozen.bias.shape
    stamp, scores, touched = scratch.stamp, scratch.scores, scratch.touched
    found, base = 0, np.float32(0.0)
    each = np.float32(1.0) / np.float32(repetitions)
    for r in range(repetitions):
        logits = scratch.logits[row, r]
        cut, count = _probe(logits, min(plan.probes, buckets), scratch)
        total = np.float32(0.0)
        if plan.score == PROBABILITY or plan.score == LOG_PROBABILITY:
            top = logits.max()
            total = top + np.log(sum_of_exps(logits, top))
        if plan.score == LOG_PROBABILITY:  # what was not probed counts like the weakest that was
            base += (cut - total) * each
        for p in range(count):
            b = scratch.probed[p]
            value = np.float32(1.0)
            if plan.score == PROBABILITY:
                value = np.exp(logits[b] - total)
            elif plan.score == LOGIT:
                value = logits[b] * each
            elif plan.score == LOG_PROBABILITY:
                value = (logits[b] - cut) * each
            for e in range(frozen.offsets[r, b], frozen.offsets[r, b + 1]):
                label = np.uint32(frozen.items[e])
                gain = value * frozen.share[e] if plan.score == PROBABILITY else value
                if stamp[label] == now:
                    scores[label] += gain
                else:
                    stamp[label] = now
                    scores[label] = gain
                    touched[found] = label
                    found += 1
    for t in range(found):
        label = np.uint32(touched[t])
        if plan.score == PROBABILITY:
            scores[label] = np.log(max(scores[label] * each, np.float32(1e-30)))
        else:
            scores[label] += base + frozen.prior[label]
    return found


@inner
def _best(scratch: LabelScratch, found: int, count: int) -> int:
    """Move the `count` labels of the best scores to the front of `touched`."""
    if found <= count:
        return found
    touched, scores, values = scratch.touched, scratch.scores, scratch.values
    for t in range(found):
        values[t] = scores[np.uint32(touched[t])]
    cut = _cut(values[:found], count, scratch.bins, scratch.order)
    ties, equal = count, 0
    for t in range(found):
        ties -= values[t] > cut
        scratch.order[equal] = -touched[t]
        equal += values[t] == cut
    last = -kth_largest(scratch.order[:equal], ties)  # of equals the smaller numbers
    kept = 0
    for t in range(found):
        label = touched[t]
        touched[kept] = label
        kept += values[t] > cut or (values[t] == cut and label <= last)
    return kept


@kernel
def rank(
    frozen: FrozenLabels,
    plan: LabelPlan,
    indices: Any,
    data: Any,
    found: int,
    scratch: LabelScratch,
) -> None:
    """Replace the scores of the candidates by those fused with the ranker."""
    margins = scratch.margins
    for t in range(found):
        margins[scratch.touched[t]] = 0
    # Labels that are no candidates are added up as well: cheaper than asking.
    for e in range(len(indices)):
        value, label = data[e], np.uint32(0)
        for w in range(frozen.starts[indices[e]], frozen.starts[indices[e] + 1]):
            label += np.uint32(frozen.gaps[w])
            margins[label] += value * frozen.weights[w]
    for t in range(found):
        label = np.uint32(scratch.touched[t])
        margin = margins[label] * frozen.scale[label] + frozen.constant[label]
        lack = max(np.float32(0.0), 1 - margin)
        scratch.scores[label] = (
            plan.by_score * scratch.scores[label] - plan.by_margin * lack * lack + plan.threshold
        )


@inner
def _write_best(scratch: LabelScratch, found: int, scores: Any, labels: Any) -> None:
    """Write the best labels, best first; of equals the smaller number."""
    scores[:], labels[:] = -np.inf, -1
    count = _best(scratch, found, len(labels))
    for t in range(count):
        label = scratch.touched[t]
        score = scratch.scores[label]
        place = t
        while place > 0 and (
            scores[place - 1] < score or (scores[place - 1] == score and labels[place - 1] > label)
        ):
            scores[place], labels[place] = scores[place - 1], labels[place - 1]
            place -= 1
        scores[place], labels[place] = score, label


@kernel
def predict(
    engine: Engine,
    plan: LabelPlan,
    routed: Any,
    ranked: Any,
    first: int,
    last: int,
    scores: Any,
    labels: Any,
) -> None:
    """Label the rows from `first` to `last`: Algorithm 2.

    `routed` and `ranked` are (indptr, indices, data) of the same rows: for the routers, whose
    features may be hashed, and for the ranker.
    """
    frozen, scratch = engine.frozen, engine.scratch
    for low in range(first, last, BLOCK):
        high = min(low + BLOCK, last)
        route(frozen, routed[0][low : high + 1], routed[1], routed[2], scratch)
        for row in range(low, high):
            found = gather(frozen, plan, row - low, scratch)
            if plan.by_margin > 0:
                found = _best(scratch, found, max(plan.candidates, plan.k))
                start, stop = ranked[0][row], ranked[0][row + 1]
                rank(frozen, plan, ranked[1][start:stop], ranked[2][start:stop], found, scratch)
            _write_best(scratch, found, scores[row], labels[row])
