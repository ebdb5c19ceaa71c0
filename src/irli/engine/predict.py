"""Kernels of label prediction (Algorithm 2 for labels): route, gather, score, rank.

A row of features is routed to the best buckets of each repetition. Each label found there gets a
score. The labels with the best scores are the candidates, and the ranker puts them in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irli.engine.dense import sum_exps
from irli.engine.handle import Engine
from irli.engine.int8 import multiply_bytes, round_to_bytes
from irli.engine.jit import arithmetic, inner, kernel
from irli.engine.label_layout import (
    BLOCK,
    LOG_PROBABILITY,
    LOGIT,
    PROBABILITY,
    LabelLayout,
    LabelPlan,
    LabelScratch,
)
from irli.engine.select import insert_best, kth_largest, kth_largest_by_bins


@inner
def _compute_features(
    layout: LabelLayout, t: int, indptr: Any, indices: Any, data: Any, out: Any
) -> None:
    """Write the features relu(project' x + shift) for a block of sparse rows."""
    width = out.shape[1]
    for i in range(len(indptr) - 1):
        total = out[i]
        total[:] = layout.shift[t]
        for e in range(indptr[i], indptr[i + 1]):
            row = layout.project[t, indices[e]]
            value = data[e] * layout.project_scale[t, indices[e]]
            for j in range(width):
                total[j] += value * row[j]
        for j in range(width):
            total[j] = max(total[j], np.float32(0.0))


@arithmetic
def _score_buckets(layout: LabelLayout, r: int, steps: Any, scratch: LabelScratch) -> None:
    """Write the logits of repetition `r` for all rows of a block."""
    out, scale, bias, sums = layout.out, layout.out_scale, layout.bias, scratch.sums
    multiply_bytes(scratch.bytes, len(steps), out, r, sums)
    for i in range(len(steps)):
        for b in range(bias.shape[1]):
            scratch.logits[i, r, b] = steps[i] * scale[r, b] * sums[i, b] + bias[r, b]


@kernel
def route(layout: LabelLayout, indptr: Any, indices: Any, data: Any, scratch: LabelScratch) -> None:
    """Write the logits of all buckets for a block of sparse rows."""
    n = len(indptr) - 1
    features, steps = scratch.features[:n], scratch.steps[:n]
    for r in range(len(layout.bias)):
        if r < len(layout.project):
            _compute_features(layout, r, indptr, indices, data, features)
            for i in range(n):
                steps[i] = round_to_bytes(
                    features[i], np.float32(0.0), np.float32(127.0), scratch.bytes, i
                )
        _score_buckets(layout, r, steps, scratch)


@inner
def _probe(logits: Any, probes: int, scratch: LabelScratch) -> tuple[Any, int]:
    """List the best `probes` buckets. Return the lowest logit among them, and their number."""
    cut, count, probed = (
        kth_largest_by_bins(logits, probes, scratch.bins, scratch.order),
        0,
        scratch.probed,
    )
    for b in range(len(logits)):
        if logits[b] > cut:
            probed[count] = b
            count += 1
    for b in range(len(logits)):
        if count == probes:
            break
        # Not '==', so that a row whose logits overflow to NaN still gets an answer.
        if not (logits[b] > cut or logits[b] < cut):
            probed[count] = b
            count += 1
    return cut, count


@kernel
def gather(layout: LabelLayout, plan: LabelPlan, row: int, scratch: LabelScratch) -> int:
    """Collect the labels of the best buckets and their scores. Return the number of labels."""
    scratch.clock[0] += 1
    now = scratch.clock[0]
    repetitions, buckets = layout.bias.shape
    stamp, scores, touched = scratch.stamp, scratch.scores, scratch.touched
    found, base = 0, np.float32(0.0)
    each = np.float32(1.0) / np.float32(repetitions)
    for r in range(repetitions):
        logits = scratch.logits[row, r]
        cut, count = _probe(logits, min(plan.probes, buckets), scratch)
        total = np.float32(0.0)
        if plan.score == PROBABILITY or plan.score == LOG_PROBABILITY:
            top = logits.max()
            total = top + np.log(sum_exps(logits, top))
        if plan.score == LOG_PROBABILITY:  # buckets that are not probed count like the weakest
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
            for e in range(layout.offsets[r, b], layout.offsets[r, b + 1]):
                label = np.uint32(layout.items[e])
                gain = value * layout.share[e] if plan.score == PROBABILITY else value
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
            scores[label] += base + layout.prior[label]
    return found


@inner
def _keep_candidates(scratch: LabelScratch, found: int, count: int) -> int:
    """Move the `count` labels with the best scores to the front of `touched`."""
    if found <= count:
        return found
    touched, scores, values = scratch.touched, scratch.scores, scratch.values
    for t in range(found):
        values[t] = scores[np.uint32(touched[t])]
    cut = kth_largest_by_bins(values[:found], count, scratch.bins, scratch.order)
    ties, equal = count, 0
    for t in range(found):
        ties -= values[t] > cut
        scratch.order[equal] = -touched[t]
        equal += values[t] == cut
    last = -kth_largest(scratch.order[:equal], ties)  # the smaller label wins a tie
    kept = 0
    for t in range(found):
        label = touched[t]
        touched[kept] = label
        kept += values[t] > cut or (values[t] == cut and label <= last)
    return kept


@kernel
def rank(
    layout: LabelLayout,
    plan: LabelPlan,
    indices: Any,
    data: Any,
    found: int,
    scratch: LabelScratch,
) -> None:
    """Replace the scores of the candidates by scores calibrated with the ranker's margins."""
    margins = scratch.margins
    for t in range(found):
        margins[scratch.touched[t]] = 0
    # Add up the margins of all labels: checking which ones are candidates would take longer.
    for e in range(len(indices)):
        value, label = data[e], np.uint32(0)
        for w in range(layout.starts[indices[e]], layout.starts[indices[e] + 1]):
            label += np.uint32(layout.gaps[w])
            margins[label] += value * layout.weights[w]
    for t in range(found):
        label = np.uint32(scratch.touched[t])
        margin = margins[label] * layout.scale[label] + layout.constant[label]
        shortfall = max(np.float32(0.0), 1 - margin)
        scratch.scores[label] = (
            plan.by_score * scratch.scores[label]
            - plan.by_margin * shortfall * shortfall
            + plan.threshold
        )


@inner
def _write_best(scratch: LabelScratch, found: int, scores: Any, labels: Any) -> None:
    """Write the best labels, best first. The smaller label wins a tie."""
    scores[:], labels[:] = -np.inf, -1
    for t in range(_keep_candidates(scratch, found, len(labels))):
        label = scratch.touched[t]
        insert_best(scores, labels, t, scratch.scores[label], np.int64(label))


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
    """Predict the labels of the rows from `first` to `last`: Algorithm 2.

    `routed` and `ranked` are the same rows as (indptr, indices, data). `routed` is for the routers,
    whose features may be hashed, and `ranked` for the ranker.
    """
    layout, scratch = engine.layout, engine.scratch
    for low in range(first, last, BLOCK):
        high = min(low + BLOCK, last)
        route(layout, routed[0][low : high + 1], routed[1], routed[2], scratch)
        for row in range(low, high):
            found = gather(layout, plan, row - low, scratch)
            if plan.by_margin > 0:
                found = _keep_candidates(scratch, found, max(plan.candidates, plan.k))
                start, stop = ranked[0][row], ranked[0][row + 1]
                rank(layout, plan, ranked[1][start:stop], ranked[2][start:stop], found, scratch)
            _write_best(scratch, found, scores[row], labels[row])
