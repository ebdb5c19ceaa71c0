"""Theorem 1: the affinity of relevant items before and after each re-partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.commands import Options, choose_device
from bench.common import format_table
from bench.paper.part import (
    Claim,
    choose_verdict,
    format_interval,
    name_result,
    open_cells,
    write_part,
)
from bench.paper.trial import (
    EVERY,
    describe,
    draw_sample,
    list_settings,
    size_recipe,
)
from irli.learning.options import LearnOptions
from irli.learning.runs import learn
from irli.vectors.build.problem import make_problem

COMMAND = "benchmarks/paper.py affinity"
# Twice the epochs of the paper, to see whether the assignments converge.
SCALES: dict[str, dict[str, Any]] = {
    "small": {
        "items": 15_000,
        "buckets": 240,
        "hidden": 128,
        "neighbors": 25,
        "epochs": 60,
        "learning_rate": 0.01,
    },
    "full": {
        "items": 1_183_514,
        "buckets": 5000,
        "hidden": 1024,
        "neighbors": 100,
        "epochs": 60,
        "learning_rate": 0.001,
    },
}
SMOKE = {
    "items": 640,
    "buckets": 32,
    "hidden": 16,
    "neighbors": 10,
    "epochs": 15,
    "learning_rate": 0.01,
}
PAPER_EPOCHS = 30
CONVERGED = 0.02  # a smaller share of moved items counts as none

Round = dict[str, float]  # a row of the history of a repetition


def affinity(options: Options) -> None:
    """The mean affinity of relevant items: before, right after, and trained on the new buckets."""
    size = SMOKE if options.smoke else SCALES[options.scale]
    recipe = list_settings(size_recipe(options, size))
    cells = open_cells(options, "affinity", **size, recipe=recipe)
    runs: list[list[Round]] = [
        cells.measure(f"seed {seed}", lambda seed=seed: _learn(options, size, seed))
        for seed in range(1 if options.smoke else options.seeds)
    ]
    head = ["epoch", "before", "right after", "moved", "recall in 8 buckets", "largest / mean load"]
    lines = [
        f"{describe(size, len(runs))}, K = 10, one repetition, a re-partition every {EVERY} "
        "epochs. "
        "Affinity is the router's sigmoid for the bucket of a true neighbour, on average over the "
        "ten nearest of 500 held-out queries: before a re-partition, and right after it by the "
        "same router. *Before* in the next row is after training on the new partition.",
        "",
        *format_table(head, [_tabulate(rounds) for rounds in zip(*runs, strict=True)]),
    ]
    _draw(options, runs)
    write_part(options, "affinity", lines, _judge(runs))


def _learn(options: Options, size: dict[str, Any], seed: int) -> list[Round]:
    """Learn one repetition; return its history. No re-partition follows the last epoch."""
    items = draw_sample(options, size["items"]).items
    recipe = size_recipe(options, size, seed=seed).resolve(*items.shape)
    problem, *_ = make_problem(items, "cosine", recipe)
    [repetition] = learn(problem, recipe, LearnOptions(device=choose_device()))
    return repetition.history


# --- table, plot and claims ----------------------------------------------------------------------


def _tabulate(rounds: tuple[Round, ...]) -> list[str]:
    """Return the row of one epoch, over all seeds."""

    def show(key: str, digits: int = 3) -> str:
        return format_interval([each[key] for each in rounds], digits)

    moved = [show("affinity_after"), show("moved")] if rounds[0]["moved"] else ["", ""]
    shown = [show("affinity"), *moved, show("recall"), show("load_max_over_mean", 2)]
    return [f"{rounds[0]['epoch']:.0f}", *shown]


def _judge(runs: list[list[Round]]) -> list[Claim]:
    before, after, moved, recall = (
        np.array([[each[key] for each in rounds] for rounds in runs])
        for key in ("affinity", "affinity_after", "moved", "recall")
    )
    after, moved = after[:, :-1], moved[:, :-1]  # none after the last epoch
    early = np.array([each["epoch"] <= PAPER_EPOCHS for each in runs[0]])
    grows = np.diff(before, axis=1) > 0
    within, jumps = grows[:, early[1:]], after > before[:, :-1]
    risen = recall[:, early][:, -1] > recall[:, 0]
    together = np.mean(grows == (np.diff(recall, axis=1) > 0))
    return [
        Claim(
            "Theorem 1: the affinity of relevant items grows with each re-partition, "
            "once the router is trained on it",
            "δ > 0, no figure",
            f"in {within.sum()} of {within.size} rounds of {PAPER_EPOCHS} epochs; "
            f"from {before[:, 0].mean():.3f} to {before[:, early][:, -1].mean():.3f}",
            choose_verdict(bool(within.all()), within.mean() > 0.5),
            COMMAND,
        ),
        Claim(
            "A re-partition makes a partition of more affinity than the current one (Section 3.2)",
            "no figure",
            f"in {jumps.sum()} of {jumps.size} re-partitions; "
            f"by {np.mean(after[:, 0] - before[:, 0]):+.3f} in the first, "
            f"{np.mean(after[:, -1] - before[:, -2]):+.3f} in the last",
            choose_verdict(bool(jumps.all()), jumps.mean() > 0.5),
            COMMAND,
        ),
        Claim(
            "More affinity means more recall",
            "no figure",
            f"recall in 8 buckets from {recall[:, 0].mean():.3f} to {recall[:, -1].mean():.3f}; "
            f"both grow or fall together in {together:.0%} of the rounds",
            choose_verdict(bool(risen.all()), bool(risen.any())),
            COMMAND,
        ),
        Claim(
            "The number of new assignments converges to zero",
            "no figure",
            f"{moved[:, 0].mean():.0%} of the items move in the first re-partition, "
            f"{moved[:, -1].mean():.0%} in the last, after {runs[0][-2]['epoch']:.0f} epochs",
            choose_verdict(
                bool((moved[:, -1] < CONVERGED).all()),
                bool((moved[:, -1] < 0.25 * moved[:, 0]).all()),
            ),
            COMMAND,
        ),
    ]


def _draw(options: Options, runs: list[list[Round]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
    for seed, rounds in enumerate(runs):
        epochs = [each["epoch"] for each in rounds]
        first = seed == 0
        # A saw: training, then a re-partition at the same epoch.
        steps = [value for each in rounds for value in (each["affinity"], each["affinity_after"])]
        axes[0].plot(np.repeat(epochs, 2), steps, color="tab:red", alpha=0.5)
        for key, colour, label in (
            ("affinity", "tab:red", "before a re-partition"),
            ("affinity_after", "tab:blue", "right after it, same router"),
        ):
            values = [each[key] for each in rounds[:-1]]
            axes[0].plot(
                epochs[:-1], values, "o", color=colour, label=label if first else None, ms=4
            )
        axes[1].plot(epochs, [each["recall"] for each in rounds], "o-", color="tab:red", ms=4)
        axes[2].plot(
            epochs[:-1], [each["moved"] for each in rounds[:-1]], "o-", color="tab:red", ms=4
        )
    axes[0].set(ylabel="mean affinity of relevant items", title="Theorem 1")
    axes[0].legend()
    axes[1].set(ylabel="recall of 10 neighbours in 8 buckets", title="Recall")
    axes[2].set(ylabel="share of the items that move", title="New assignments", ylim=(0, 1))
    for axis in axes:
        axis.set_xlabel("epoch")
    figure.savefig(name_result(options, "affinity", ".png"), dpi=150)
    plt.close(figure)
