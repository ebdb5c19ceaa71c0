"""Rows whose labels are known by how they were made, and small label indexes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from planted import random_partition, random_router

import irli
from irli import Recipe
from irli.engine.label_layout import LabelLayout
from irli.labels.build.assemble import assemble_labels
from irli.labels.ranking.ranker import Ranker, train_ranker
from irli.learning.repetition import Repetition

Floats = NDArray[np.float32]


class Labelled(NamedTuple):
    """Rows (n, d) and the labels (n, L) that they carry."""

    X: sp.csr_array
    Y: sp.csr_array


def labelled(rows: int, labels: int, *, most: int = 2, noise: int = 2, seed: int = 0) -> Labelled:
    """Make rows of one to `most` labels: three features speak for each label, some for none."""
    rng = np.random.default_rng(seed)
    carried = np.zeros((rows, labels), dtype=np.float32)
    for row in range(rows):
        carried[row, row % labels] = 1  # no label without rows
        carried[row, rng.integers(labels, size=row // labels % most)] = 1
    speaks = np.repeat(carried, 3, axis=1) * (rng.random((rows, 3 * labels)) + 0.5)
    chatter = np.zeros((rows, 40))
    for row in range(rows):
        chatter[row, rng.choice(40, noise, replace=False)] = 0.3
    X = np.hstack([speaks, chatter])
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Labelled(sp.csr_array(X.astype(np.float32)), sp.csr_array(carried))


def small_labels(**changes: Any) -> Recipe:
    """The recipe for labels, small: two heads on one trunk."""
    settings = {
        "repetitions": 2,
        "hidden": 16,
        "epochs": 2,
        "buckets": 8,
        "batch_size": 64,
        "learning_rate": 4e-3,
    }
    return irli.recipe("labels", **{**settings, **changes})


def small_paper_labels(**changes: Any) -> Recipe:
    """The paper's recipe for labels, small: two networks, hash start."""
    settings = {
        "repetitions": 2,
        "hidden": 16,
        "epochs": 4,
        "repartition_every": 2,
        "buckets": 8,
        "choices": 3,
        "batch_size": 32,
        "learning_rate": 1e-2,
    }
    return irli.recipe("paper-labels", **{**settings, **changes})


def random_label_layout(
    labels: int = 50,
    buckets: int = 10,
    repetitions: int = 3,
    *,
    dim: int = 12,
    shared: bool = True,
    per_item: int = 1,
    hidden: int = 7,
    seed: int = 0,
) -> LabelLayout:
    """Return an index of random weights and buckets, without a ranker."""
    rng = np.random.default_rng(seed)
    routers = [
        random_router(dim, buckets, linear=0, hidden=hidden, seed=seed + r)
        for r in range(repetitions)
    ]
    if shared:
        trunk = {"project": routers[0].project, "shift": routers[0].shift}
        routers = [router._replace(**trunk) for router in routers]
    repetitions = [
        Repetition(router, random_partition(labels, buckets, per_item, seed=seed + r), [])
        for r, router in enumerate(routers)
    ]
    return assemble_labels(repetitions, rng.integers(0, 9, size=labels))


def random_ranker(labels: int, dim: int, density: float = 0.3, seed: int = 0) -> Ranker:
    """Return a ranker of random weights."""
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(dim, labels)) * (rng.random((dim, labels)) < density)
    bias = rng.normal(size=labels).astype(np.float32)
    return Ranker.pack(sp.csr_array(dense.astype(np.float32)), bias)


def train(X: sp.csr_array, Y: sp.csr_array, negatives: Any = None, **changes: Any) -> Ranker:
    """Train a ranker on all features; without `negatives`, every label was proposed."""
    if negatives is None:
        negatives = np.ones(Y.shape)
    settings = {
        "cost": 1.0,
        "importance": np.ones(Y.shape[1], dtype=np.float32),
        "prune": 0.0,
        "threads": 1,
    }
    return train_ranker(X, Y, sp.csr_array(negatives, dtype=np.float32), **{**settings, **changes})


def random_rows(rows: int, dim: int, density: float = 0.4, seed: int = 0) -> sp.csr_array:
    """Return sparse rows, some of them empty."""
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(rows, dim)) * (rng.random((rows, dim)) < density)
    dense[::7] = 0
    return sp.csr_array(dense.astype(np.float32))
