"""Theorem 1 and section 3.2: affinities before and after each re-partition.

The theorem is about queries: f(x) of the buckets of their relevant items. Section 3.2 is about the
labels themselves: P_l of the bucket of l, which Definition 2 gives as f(l).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.commands import Options
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
    begin,
    describe,
    draw_sample,
    list_settings,
    size_recipe,
    train_rounds,
)
from irli.learning.network import log_scores
from irli.learning.partition import Partition
from irli.learning.training import Learner
from irli.vectors.build.problem import make_problem

COMMAND = "benchmarks/paper.py affinity"
# Twice the epochs of the paper, to see whether the assignments converge.
SCALES: dict[str, dict[str, Any]] = {
    "small": {
        "items": 15_168,
        "buckets": 64,
        "hidden": 128,
        "neighbors": 100,
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
_BLOCK = 8192  # items scored at a time

Round = dict[str, float]  # what was measured around a re-partition


def affinity(options: Options) -> None:
    """Mean affinities: before, right after, and once the router is trained on the new buckets."""
    size = SMOKE if options.smoke else SCALES[options.scale]
    recipe = list_settings(size_recipe(options, size))
    cells = open_cells(options, "affinity", **size, recipe=recipe)
    runs: list[list[Round]] = [
        cells.measure(f"seed {seed}", lambda seed=seed: _learn(options, size, seed))
        for seed in range(1 if options.smoke else options.seeds)
    ]
    head = ["epoch", "P_l before", "right after", "of relevant items before", "right after"]
    head += ["moved", "recall in 8 buckets", "largest / mean load"]
    lines = [
        f"{describe(size, len(runs))}, {size['items'] / size['buckets']:.0f} items in a bucket, "
        f"K = 10, one repetition, a re-partition every {EVERY} epochs. P_l is the router's sigmoid "
        "for an item in its own bucket, on average over the items (Definition 2). That of relevant "
        "items is the sigmoid for the bucket of a true neighbour, on average over the ten nearest "
        "of 500 held-out queries. Both are taken before a re-partition, and right after it by the "
        "same router. *Before* in the next row is after training on the new partition.",
        "",
        *format_table(head, [_tabulate(rounds) for rounds in zip(*runs, strict=True)]),
    ]
    _draw(options, runs)
    write_part(options, "affinity", lines, _judge(runs))


def _learn(options: Options, size: dict[str, Any], seed: int) -> list[Round]:
    """Learn one repetition; return its rounds. No re-partition follows the last epoch."""
    items = draw_sample(options, size["items"]).items
    recipe = size_recipe(options, size, seed=seed).resolve(*items.shape)
    problem, *_ = make_problem(items, "cosine", recipe)
    learner = begin(problem, recipe)
    [head] = learner.heads
    rounds = []
    for epoch in train_rounds(learner):
        found = {**head.round, "own": measure_own(learner, items, head.partition)}
        if epoch < recipe.epochs:
            found["moved"], _ = learner.repartition(head)
            found["own_after"] = measure_own(learner, items, head.partition)
            found["affinity_after"] = learner.validation.affinity(head.log_scores, head.partition)
        rounds.append(found)
    return rounds


def measure_own(learner: Learner, items: np.ndarray, partition: Partition) -> float:
    """Return the mean of P_l over the items, each in its own bucket."""
    total = 0.0
    for start in range(0, len(items), _BLOCK):
        logits = learner.network.score(items[start : start + _BLOCK], 0)
        scores = np.exp(log_scores(logits, learner.recipe.loss))
        held = partition.assignment[start : start + _BLOCK, :1].astype(np.int64)
        total += float(np.take_along_axis(scores, held, axis=1).sum(dtype=np.float64))
    return total / len(items)


# --- table, plot and claims ----------------------------------------------------------------------


def _tabulate(rounds: tuple[Round, ...]) -> list[str]:
    """Return the row of one epoch, over all seeds."""

    def show(key: str, digits: int = 3) -> str:
        return format_interval([each[key] for each in rounds], digits)

    def show_after(key: str) -> str:
        return show(key) if key in rounds[0] else ""

    shown = [show("own"), show_after("own_after"), show("affinity"), show_after("affinity_after")]
    shown += [show_after("moved"), show("recall"), show("load_max_over_mean", 2)]
    return [f"{rounds[0]['epoch']:.0f}", *shown]


def _judge(runs: list[list[Round]]) -> list[Claim]:
    before, own, recall = (
        np.array([[each[key] for each in rounds] for rounds in runs])
        for key in ("affinity", "own", "recall")
    )
    after, own_after, moved = (  # none after the last epoch
        np.array([[each[key] for each in rounds[:-1]] for rounds in runs])
        for key in ("affinity_after", "own_after", "moved")
    )
    early = np.array([each["epoch"] <= PAPER_EPOCHS for each in runs[0]])
    grows = np.diff(before, axis=1) > 0
    within, jumps, queries = grows[:, early[1:]], own_after - own[:, :-1], after > before[:, :-1]
    trained = early[1:]  # a re-partition of the paper's epochs is followed by more of them
    rises = jumps[:, trained] > 0
    later = jumps[:, ~trained].min() if (~trained).any() else 0.0
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
            f"P_l rises in {rises.sum()} of {rises.size} re-partitions of {PAPER_EPOCHS} epochs: "
            f"from {own[:, 0].mean():.3f} to {own_after[:, 0].mean():.3f} in the first; later it "
            f"changes by {later:+.4f} at worst. That of relevant items rises in "
            f"{queries[:, trained].sum()}",
            choose_verdict(bool(rises.all()), rises.mean() > 0.5),
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
        for before, after in (("affinity", "affinity_after"), ("own", "own_after")):
            steps = [each.get(key, each[before]) for each in rounds for key in (before, after)]
            axes[0].plot(np.repeat(epochs, 2), steps, color="tab:grey", alpha=0.5)
        for key, colour, label in (
            ("own", "tab:orange", "P_l before a re-partition"),
            ("own_after", "tab:green", "right after it, same router"),
            ("affinity", "tab:red", "of relevant items before"),
            ("affinity_after", "tab:blue", "right after"),
        ):
            values = [each[key] for each in rounds[:-1]]
            axes[0].plot(
                epochs[:-1], values, "o", color=colour, label=label if first else None, ms=4
            )
        axes[1].plot(epochs, [each["recall"] for each in rounds], "o-", color="tab:red", ms=4)
        axes[2].plot(
            epochs[:-1], [each["moved"] for each in rounds[:-1]], "o-", color="tab:red", ms=4
        )
    axes[0].set(ylabel="mean affinity", title="Theorem 1 and section 3.2")
    axes[0].legend(fontsize=8)
    axes[1].set(ylabel="recall of 10 neighbours in 8 buckets", title="Recall")
    axes[2].set(ylabel="share of the items that move", title="New assignments", ylim=(0, 1))
    for axis in axes:
        axis.set_xlabel("epoch")
    figure.savefig(name_result(options, "affinity", ".png"), dpi=150)
    plt.close(figure)
