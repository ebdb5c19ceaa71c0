"""Rounds of the paper's recipe: recall and affinity grow, and more choices even out the loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import irli
from bench.commands import Options, make_recipe
from bench.common import print_table, report_table, say, write_json
from bench.vectors.data import normalize, read_base
from irli.learning.affinity import Affinity
from irli.learning.batches import Inputs
from irli.learning.partition import assign_least_loaded
from irli.learning.training import Learner
from irli.vectors.problem import make_problem

ITEMS = 60_000
SCALED = {"repetitions": 2, "hidden": 256, "buckets": 1000, "neighbors": 100}
CHOICES = (5, 10, 25)
EPOCHS = 5  # before the loads are measured


def rounds(options: Options) -> None:
    """Recall and the affinity of relevant items grow with the re-partitions (Theorem 1)."""
    items = _sample(options)
    index = irli.VectorIndex("cosine", recipe=make_recipe(options, "paper", **SCALED)).fit(items)
    shapes = {
        "repetition": "",
        "epoch": "",
        "loss": ".4f",
        "moved": ".2f",
        "recall": ".3f",
        "affinity": ".4f",
        "load_std": ".1f",
        "load_max_over_mean": ".2f",
    }
    rows = [[f"{entry[key]:{shape}}" for key, shape in shapes.items()] for entry in index.history]
    print_table(list(shapes), rows)
    folder = Path(options.results) / "paper"
    write_json(
        folder / "rounds.json", {"items": len(items), "recipe": SCALED, "history": index.history}
    )
    _draw(index.history, folder / "rounds.png")


def loads(options: Options) -> None:
    """Table 3: train for 5 epochs, then re-partition with different K."""
    items = normalize(_sample(options))
    recipe = make_recipe(options, "paper", **SCALED).resolve(*items.shape)
    problem, _ = make_problem(items, "cosine", recipe)
    torch.manual_seed(0)
    learner = Learner(problem, recipe, numbers=[0], earlier=[], device="cpu")
    found = {"random hash": float(learner.heads[0].partition.loads().std())}
    for _ in range(min(EPOCHS, recipe.epochs)):
        learner.train_epoch()
    points = Inputs(*problem.scored_points())
    rank = Affinity(learner.network, 0, points, learner.wanted_by, recipe)
    for choices in CHOICES:
        rng = np.random.default_rng(0)
        chosen = assign_least_loaded(rank, len(items), recipe.buckets, choices, rng)
        found[f"K = {choices}"] = float(np.bincount(chosen, minlength=recipe.buckets).std())
    say(f"standard deviation of the loads; their mean is {len(items) / recipe.buckets:.0f}")
    rows = [[f"{value:.2f}" for value in found.values()]]
    report_table(Path(options.results) / "paper" / "loads.json", list(found), rows)


def _sample(options: Options) -> np.ndarray:
    base = read_base(options.data, "glove")
    return base[np.random.default_rng(0).permutation(len(base))[:ITEMS]]


def _draw(history: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3), constrained_layout=True)
    for axis, key in zip(axes, ("recall", "affinity"), strict=True):
        for repetition in sorted({entry["repetition"] for entry in history}):
            own = [entry for entry in history if entry["repetition"] == repetition]
            axis.plot([entry["epoch"] for entry in own], [entry[key] for entry in own], "o-")
        axis.set(xlabel="epoch", title=f"validation {key}")
    figure.savefig(path, dpi=150)
    plt.close(figure)
