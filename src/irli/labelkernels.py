"""Algorithm 2 for items without vectors, compiled: route, vote, score, rank.

A row of features goes to the best buckets of each repetition. Each label found there gets votes and
an aggregated score; the best of them are the candidates, which the ranker puts in order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.kernels import _dot, _kth_largest, _normalise, arithmetic, kernel

VOTES, PROBABILITY, LOGIT, LOG_PROBABILITY = 0, 1, 2, 3
BLOCK = 8  # rows routed together: each weight that is read serves all of them


class FrozenLabels(NamedTuple):
    """A label index as the kernels read it; see `irli.router` and `irli.ranker`."""

    project: NDArray[np.float32]  # (T, d, G): one trunk for all repetitions, or one for each
    shift: NDArray[np.float32]  # (T, G)
    linear: int
    out: NDArray[np.float32]  # (R, B, G)
    bias: NDArray[np.float32]  # (R, B)
    offsets: NDArray[np.int64]  # (R, B + 1): where each bucket starts in `items`
    items: NDArray[np.int32]  # (entries,): labels, bucket by bucket
    share: NDArray[np.float32]  # (entries,): P(label | bucket)
    prior: NDArray[np.float32]  # (L,): mean over the repetitions of log P(label | bucket)
    starts: NDArray[np.int64]  # (D + 1,): the ranker's weights by feature; (1,) without a ranker
    ranked: NDArray[np.int32]  # (weights,)
    weights: NDArray[np.float32]  # (weights,)
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
    logits: NDArray[np.float32]  # (block, R, B)
    order: NDArray[np.float32]  # (max(B, L),)
    stamp: NDArray[np.int64]  # (L,): the row that last touched the label
    votes: NDArray[np.int32]  # (L,)
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
        logits=np.empty((BLOCK, repetitions, buckets), dtype=np.float32),
        order=np.empty(max(buckets, labels), dtype=np.float32),
        stamp=np.zeros(labels, dtype=np.int64),
        votes=np.zeros(labels, dtype=np.int32),
        scores=np.empty(labels, dtype=np.float32),
        touched=np.empty(labels, dtype=np.int32),
        margins=np.zeros(labels, dtype=np.float32),
        clock=np.zeros(1, dtype=np.int64),
    )


@kernel
def _trunk(frozen: FrozenLabels, t: int, indptr: Any, indices: Any, data: Any, out: Any) -> None:
    """Write relu(project' x + shift) for the sparse rows of a block."""
    width = out.shape[1]
    for i in range(len(indptr) - 1):
        total = out[i]
        total[:] = frozen.shift[t]
        for e in range(indptr[i], indptr[i + 1]):
            row, value = frozen.project[t, indices[e]], data[e]
            for j in range(width):
                total[j] += value * row[j]
        for j in range(frozen.linear, width):
            total[j] = max(total[j], np.float32(0.0))


@arithmetic
def _score(features: Any, out: Any, bias: Any, logits: Any) -> None:
    """logits[i] = out @ features[i] + bias, four rows at a time: a weight is read once for them."""
    n, whole = len(features), len(features) - len(features) % 4
    for b in range(len(bias)):
        weights = out[b]
        for i in range(0, whole, 4):
            one, two, three, four = features[i], features[i + 1], features[i + 2], features[i + 3]
            a = c = d = e = np.float32(0.0)
            for j in range(len(weights)):
                a += weights[j] * one[j]
                c += weights[j] * two[j]
                d += weights[j] * three[j]
                e += weights[j] * four[j]
            logits[i, b], logits[i + 1, b] = a + bias[b], c + bias[b]
            logits[i + 2, b], logits[i + 3, b] = d + bias[b], e + bias[b]
        for i in range(whole, n):
            logits[i, b] = _dot(weights, features[i]) + bias[b]


@kernel
def route(
    frozen: FrozenLabels, indptr: Any, indices: Any, data: Any, scratch: LabelScratch
) -> None:
    """Write the logits of all buckets for a block of sparse rows."""
    n = len(indptr) - 1
    features = scratch.features[:n]
    for r in range(len(frozen.bias)):
        if r < len(frozen.project):
            _trunk(frozen, r, indptr, indices, data, features)
        _score(features, frozen.out[r], frozen.bias[r], scratch.logits[:n, r])


@kernel
def gather(frozen: FrozenLabels, plan: LabelPlan, row: int, scratch: LabelScratch) -> int:
    """Collect the labels of the best buckets with votes and scores; return how many there are."""
    scratch.clock[0] += 1
    now = scratch.clock[0]
    repetitions, buckets = frozen.bias.shape
    probes = min(plan.probes, buckets)
    found, base = 0, np.float32(0.0)
    for r in range(repetitions):
        logits = scratch.logits[row, r]
        if plan.score != LOGIT:
            _normalise(logits)
        scratch.order[:buckets] = logits
        cut = _kth_largest(scratch.order[:buckets], probes)
        ties = probes
        for b in range(buckets):
            ties -= logits[b] > cut
        if plan.score == LOG_PROBABILITY:  # what was not probed counts like the weakest that was
            base += cut / np.float32(repetitions)
        for b in range(buckets):
            if not (logits[b] > cut or (not logits[b] < cut and ties > 0)):
                continue
            ties -= not logits[b] > cut
            value = np.float32(1.0)
            if plan.score == PROBABILITY:
                value = np.exp(logits[b])
            elif plan.score == LOGIT:
                value = logits[b] / np.float32(repetitions)
            elif plan.score == LOG_PROBABILITY:
                value = (logits[b] - cut) / np.float32(repetitions)
            for e in range(frozen.offsets[r, b], frozen.offsets[r, b + 1]):
                label = frozen.items[e]
                if scratch.stamp[label] != now:
                    scratch.stamp[label] = now
                    scratch.votes[label] = 0
                    scratch.scores[label] = 0
                    scratch.touched[found] = label
                    found += 1
                scratch.votes[label] += 1
                scratch.scores[label] += (
                    value * frozen.share[e] if plan.score == PROBABILITY else value
                )
    for t in range(found):
        label = scratch.touched[t]
        if plan.score == PROBABILITY:
            share = scratch.scores[label] / np.float32(repetitions)
            scratch.scores[label] = np.log(max(share, np.float32(1e-30)))
        else:
            scratch.scores[label] += base + frozen.prior[label]
    return found


@kernel
def _best(scratch: LabelScratch, found: int, count: int) -> int:
    """Move the `count` labels of the best scores to the front of `touched`."""
    if found <= count:
        return found
    touched, scores = scratch.touched, scratch.scores
    for t in range(found):
        scratch.order[t] = scores[touched[t]]
    cut = _kth_largest(scratch.order[:found], count)
    ties, equal = count, 0
    for t in range(found):
        label = touched[t]
        ties -= scores[label] > cut
        if scores[label] == cut:
            scratch.order[equal] = -label
            equal += 1
    last = -_kth_largest(scratch.order[:equal], ties)  # of equals the smaller numbers
    kept = 0
    for t in range(found):
        label = touched[t]
        if scores[label] > cut or (scores[label] == cut and label <= last):
            touched[kept] = label
            kept += 1
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
        margins[scratch.touched[t]] = frozen.constant[scratch.touched[t]]
    # Labels that are no candidates are added up as well: cheaper than asking.
    for e in range(len(indices)):
        value = data[e]
        for w in range(frozen.starts[indices[e]], frozen.starts[indices[e] + 1]):
            margins[frozen.ranked[w]] += value * frozen.weights[w]
    for t in range(found):
        label = scratch.touched[t]
        lack = max(np.float32(0.0), 1 - margins[label])
        scratch.scores[label] = (
            plan.by_score * scratch.scores[label] - plan.by_margin * lack * lack + plan.threshold
        )


@kernel
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
    frozen: FrozenLabels,
    plan: LabelPlan,
    routed: Any,
    ranked: Any,
    first: int,
    last: int,
    scratch: LabelScratch,
    scores: Any,
    labels: Any,
) -> None:
    """Label the rows from `first` to `last`: Algorithm 2.

    `routed` and `ranked` are (indptr, indices, data) of the same rows: for the routers, whose
    features may be hashed, and for the ranker.
    """
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
