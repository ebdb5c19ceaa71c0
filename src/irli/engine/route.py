"""Kernels of routing: the log-probabilities of all buckets for a block of queries."""

from __future__ import annotations

from typing import Any

import numpy as np

from irli.engine.dense import dot, log_softmax, multiply
from irli.engine.int8 import ZERO, multiply_bytes, round_to_bytes
from irli.engine.jit import arithmetic, inner, kernel
from irli.engine.select import keep_best
from irli.engine.vector_layout import Projection, Scratch, VectorLayout


@arithmetic
def _round(values: Any, out: Any, i: int) -> Any:
    """Round values to bytes around 64 in out[i]. Return the value of one step."""
    return round_to_bytes(values, np.float32(ZERO), np.float32(ZERO - 1), out, i)


@arithmetic
def _project(projection: Projection, queries: Any, scratch: Scratch) -> None:
    """Write the 8-bit projection of up to BLOCK queries (n, d) into `projected`."""
    n, dim = queries.shape
    centred, projected, sums = scratch.centred, scratch.projected, scratch.sums
    steps = np.empty(n, dtype=np.float32)
    for i in range(n):
        for j in range(dim):
            centred[j] = (queries[i, j] - projection.centre[j]) * projection.scale[j]
        steps[i] = _round(centred, scratch.query, i)
    multiply_bytes(scratch.query, n, projection.bytes, 0, sums)
    for i in range(n):
        for c in range(len(projection.step)):
            projected[i, c] = (
                steps[i] * projection.step[c] * np.float32(sums[i, c] - projection.zero[c])
            )
            projected[i, c] += projection.bias[c]


@arithmetic
def _score_bytes(layout: VectorLayout, r: int, features: Any, scratch: Scratch) -> None:
    """Score all buckets with 8-bit weights, a quarter of the bytes to read."""
    n, sums, logits = len(features), scratch.sums, scratch.logits
    zero, bias = layout.zero, layout.bias
    steps = np.empty(n, dtype=np.float32)
    for i in range(n):
        steps[i] = layout.step[r, 0] * _round(features[i], scratch.bytes, i)
    multiply_bytes(scratch.bytes, n, layout.bytes, r, sums)
    for i in range(n):
        for b in range(bias.shape[1]):
            logits[i, r, b] = steps[i] * np.float32(sums[i, b] - zero[r, b]) + bias[r, b]


@inner
def _refine(layout: VectorLayout, r: int, features: Any, logits: Any, scratch: Scratch) -> None:
    """Add the remaining features of a cascade, stage by stage, for the best buckets."""
    alive = scratch.alive
    count = len(logits)
    for b in range(count):
        alive[b] = b
    first = layout.depths[0]
    for stage in range(1, len(layout.depths)):
        start, stop = layout.depths[stage - 1], layout.depths[stage]
        count = keep_best(alive, count, layout.keeps[stage], logits, scratch.order)
        for a in range(count):
            bucket = alive[a]
            weights = layout.fine[r, bucket, start - first : stop - first]
            logits[bucket] += dot(features[start:stop], weights)


@kernel
def route(layout: VectorLayout, queries: Any, scratch: Scratch) -> None:
    """Write the log-probabilities of all buckets for up to BLOCK queries (n, d) into `logits`."""
    n = len(queries)
    first = layout.depths[0]
    width = layout.shift.shape[1]
    if layout.projection.bytes.size > 0:
        _project(layout.projection, queries, scratch)
    for r in range(len(layout.bias)):
        features = scratch.hidden[:n]
        if layout.projection.bytes.size > 0:
            features[:] = scratch.projected[:n, r * width : (r + 1) * width]
        else:
            multiply(queries, layout.project[r], layout.shift[r], features)
        for i in range(n):
            for j in range(layout.linear, features.shape[1]):
                features[i, j] = max(features[i, j], np.float32(0.0))
        if layout.rotation.size > 0:
            multiply(features, layout.rotation[r], layout.rotation_shift[r], scratch.features[:n])
            features = scratch.features[:n]
        if layout.bytes.size > 0:
            _score_bytes(layout, r, features, scratch)
        else:
            multiply(features[:, :first], layout.coarse[r], layout.bias[r], scratch.logits[:n, r])
        for i in range(n):
            if len(layout.depths) > 1:
                _refine(layout, r, features[i], scratch.logits[i, r], scratch)
            log_softmax(scratch.logits[i, r])
