"""Runbooks in the format of big-ann-benchmarks: made with a seed, written and read as YAML.

A step inserts the rows `start` to `end` of a data set under ids of the same numbers, deletes them,
or searches. The rows are in the order in which they arrive: at random, or cluster after cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import yaml

from bench.vectors.data import normalize, read_base

Step = dict[str, Any]

KINDS = ("sliding", "expiration", "clustered")
ROWS = {"glove": 80_000, "wordnet": 36_000}
BATCHES = 40  # of the sliding window and of the expiration time
CLUSTERS, ROUNDS = 64, 5
_DIRICHLET = (100, 15, 10, 5, 3)  # shares of a cluster that the rounds insert, in some order
_REMOVED = (0.5, 0.9)  # share of a cluster that a round removes, the oldest first
_SEARCHES = 4  # of each half of a round: a search after each step takes too long
_LIVES = (0, 4, 18)  # up to the first, a batch stays for ever; below the second, it lives long
_LONG, _SHORT = 20, 6  # steps


def order_rows(data: Path, name: str, kind: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return some vectors (n, d) of a data set as a runbook inserts them, and the cluster of each.

    The vectors are normalised.
    """
    base = read_base(data, name)
    rng = np.random.default_rng(0)
    vectors = normalize(base[rng.permutation(len(base))[:rows]])
    if kind != "clustered":
        return vectors, np.zeros(len(vectors), dtype=np.int64)
    count = min(CLUSTERS, rows // 40)
    kmeans = faiss.Kmeans(vectors.shape[1], count, niter=10, seed=0, spherical=True)
    kmeans.train(vectors)
    cluster = rng.permutation(count)[kmeans.index.search(vectors, 1)[1][:, 0]]
    order = np.argsort(cluster, kind="stable")
    return vectors[order], cluster[order]


def make_runbook(kind: str, cluster: np.ndarray) -> list[Step]:
    """Return the steps of a runbook, for items whose clusters (n,) are these."""
    rng = np.random.default_rng(1)
    if kind == "sliding":
        return list(_slide(len(cluster)))
    return list(_expire(len(cluster), rng) if kind == "expiration" else _cluster(cluster, rng))


def _slide(rows: int) -> Iterator[Step]:
    """Insert half of the rows. Then each batch takes the place of the oldest one."""
    ends = np.linspace(0, rows, BATCHES + 1).astype(int).tolist()
    for number in range(BATCHES):
        yield _change("insert", ends[number], ends[number + 1])
        old = number - BATCHES // 2
        if old >= 0:
            yield _change("delete", ends[old], ends[old + 1])
        if old >= -1:
            yield {"operation": "search"}


def _expire(rows: int, rng: np.random.Generator) -> Iterator[Step]:
    """Insert batches that stay for ever, for long or, most of them, for a short time."""
    ends = np.linspace(0, rows, BATCHES + 1).astype(int).tolist()
    gone: dict[int, list[int]] = {}
    for number in range(BATCHES):
        yield _change("insert", ends[number], ends[number + 1])
        drawn = int(rng.integers(_LIVES[2] + 1))
        if drawn > _LIVES[0]:
            gone.setdefault(number + (_LONG if drawn < _LIVES[1] else _SHORT), []).append(number)
        for old in gone.get(number, []):
            yield _change("delete", ends[old], ends[old + 1])
        if number >= _SHORT:
            yield {"operation": "search"}


def _cluster(cluster: np.ndarray, rng: np.random.Generator) -> Iterator[Step]:
    """In each round, insert a part of each cluster; then delete the oldest items of each."""
    count = int(cluster.max()) + 1
    first, last = (np.searchsorted(cluster, np.arange(count), side) for side in ("left", "right"))
    shares = np.array([rng.permutation(rng.dirichlet(_DIRICHLET)) for _ in range(count)])
    ends = first[:, None] + (shares.cumsum(axis=1) * (last - first)[:, None]).astype(int)
    inserted, deleted = first.copy(), first.copy()
    every = -(-count // _SEARCHES)
    for number in range(ROUNDS):
        for each in range(count):
            yield _change("insert", inserted[each], ends[each, number])
            inserted[each] = ends[each, number]
            if each % every == every - 1 or each == count - 1:
                yield {"operation": "search"}
        for each in range(count):
            left = inserted[each] - deleted[each]
            end = deleted[each] + int(rng.uniform(*_REMOVED) * left)
            yield _change("delete", deleted[each], end)
            deleted[each] = end
            if each % every == every - 1 or each == count - 1:
                yield {"operation": "search"}


def _change(operation: str, start: int, end: int) -> Step:
    return {"operation": operation, "start": int(start), "end": int(end)}


def write_runbook(path: Path, name: str, steps: list[Step]) -> None:
    """Write steps as big-ann-benchmarks reads them: numbered from 1, with the most live items."""
    live = most = 0
    for step in steps:
        sign = {"insert": 1, "delete": -1}.get(step["operation"], 0)
        live += sign * (step.get("end", 0) - step.get("start", 0))
        most = max(most, live)
    numbered: dict[Any, Any] = {number: step for number, step in enumerate(steps, start=1)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({name: {"max_pts": most} | numbered}, sort_keys=False))


def read_runbook(path: Path, name: str) -> list[Step]:
    """Return the steps of a runbook for a data set, up to the first number that is missing."""
    numbered = yaml.safe_load(path.read_text())[name]
    steps: list[Step] = []
    while len(steps) + 1 in numbered:
        steps.append(numbered[len(steps) + 1])
    return steps
