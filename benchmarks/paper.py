"""The paper's own recipe, scaled down: it learns, and more choices even out the loads."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from common import ROOT, keep, load, say, table

import irli
from irli.learning.affinity import Affinity
from irli.learning.partition import assign_least_loaded
from irli.learning.problem import make_problem
from irli.learning.training import Learner

ITEMS = 60_000
SCALED = {"repetitions": 2, "hidden": 256, "buckets": 1000, "neighbors": 100}


def learns(data: Path) -> None:
    """Bar 4: recall and the affinity of relevant items grow with the re-partitions (Theorem 1)."""
    base, _ = load(data, "glove")
    sample = np.random.default_rng(0).permutation(len(base))[:ITEMS]
    index = irli.VectorIndex("cosine", recipe=irli.recipe("paper", **SCALED))
    index.fit(base[sample])
    head = ["repetition", "epoch", "loss", "moved", "recall", "affinity", "load std", "max/mean"]
    table(
        head,
        [
            [
                h["repetition"],
                h["epoch"],
                f"{h['loss']:.4f}",
                f"{h['moved']:.2f}",
                f"{h['recall']:.3f}",
                f"{h['affinity']:.4f}",
                f"{h['load_std']:.1f}",
                f"{h['load_max_over_mean']:.2f}",
            ]
            for h in index.history
        ],
    )
    _draw(index.history)
    keep("paper", {"items": ITEMS, "recipe": SCALED, "history": index.history})
    _choices(base[sample])


def _draw(history: list[dict[str, float]]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), constrained_layout=True)
    for axis, key in zip(axes, ("recall", "affinity"), strict=True):
        for repetition in sorted({h["repetition"] for h in history}):
            rounds = [h for h in history if h["repetition"] == repetition]
            axis.plot([h["epoch"] for h in rounds], [h[key] for h in rounds], "o-")
        axis.set(xlabel="epoch", title=f"validation {key}")
    figure.savefig(ROOT / "results" / "paper.png", dpi=150)


def _choices(vectors: np.ndarray) -> None:
    """Table 3: train for 5 epochs, re-partition with different K."""
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    recipe = irli.recipe("paper", **SCALED).resolve(*vectors.shape)
    problem, _ = make_problem(vectors, "cosine", recipe)
    torch.manual_seed(0)
    learner = Learner(problem, recipe, 0, [], "cpu")
    row = {"random hash": learner.partition.loads().std()}
    for _ in range(5):
        learner.train_epoch()
    rank = Affinity(learner.network, learner.items, learner.queries[:0], learner.wanted_by, recipe)
    for choices in (5, 10, 25):
        rng = np.random.default_rng(0)
        chosen = assign_least_loaded(rank, len(vectors), recipe.buckets, choices, rng)
        row[f"K = {choices}"] = np.bincount(chosen, minlength=recipe.buckets).std()
    say(f"standard deviation of the load, mean {len(vectors) / recipe.buckets:.0f}:")
    table(list(row), [[f"{value:.2f}" for value in row.values()]])
    keep("choices", {key: float(value) for key, value in row.items()})
