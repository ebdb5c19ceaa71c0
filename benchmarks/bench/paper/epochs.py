"""Recall by epoch for several R, candidates found by t repetitions, and what the union misses."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from bench.commands import Options
from bench.common import format_table, say
from bench.paper.part import (
    Cells,
    Claim,
    choose_verdict,
    format_interval,
    name_result,
    open_cells,
    write_part,
)
from bench.paper.trial import (
    EVERY,
    Probed,
    Sample,
    add_up,
    begin,
    describe,
    draw_sample,
    find_best_buckets,
    list_settings,
    recall_by_candidates,
    size_recipe,
    train_rounds,
)
from irli.base.recipe import Recipe
from irli.learning.problem import Problem
from irli.vectors.build.problem import make_problem

COMMAND = "benchmarks/paper.py epochs"
VOTES = (2, 4, 8)  # t
PAPER = {5: 5011, 10: 19_151, 15: 36_252, 20: 43_605, 25: 47_072, 30: 48_969}  # Table 4, t = 4
PAPER_ITEMS = 1_183_514
# `probes` is m, 2 % of the buckets as in Table 4. K is that of figure 4.
SCALES: dict[str, dict[str, Any]] = {
    "small": {
        "items": 10_000,
        "buckets": 160,
        "hidden": 64,
        "neighbors": 25,
        "choices": 25,
        "epochs": 30,
        "repetitions": 32,
        "learning_rate": 0.01,
        "probes": 3,
        "candidates": 200,
    },
    "full": {
        "items": PAPER_ITEMS,
        "buckets": 5000,
        "hidden": 1024,
        "neighbors": 100,
        "choices": 25,
        "epochs": 30,
        "repetitions": 32,
        "learning_rate": 0.001,
        "probes": 100,
        "candidates": 12_000,
    },
}
SMOKE = {
    "items": 640,
    "buckets": 40,
    "hidden": 16,
    "neighbors": 10,
    "choices": 10,
    "epochs": 10,
    "repetitions": 8,
    "learning_rate": 0.01,
    "probes": 3,
    "candidates": 100,
}

# What the union of all repetitions misses if each names its best bucket, however many candidates
# that makes. Buckets have the paper's 237 items, and K is that of its other experiments.
MISSED_BY = (1, 2, 4, 8, 16)  # R
UNION: dict[str, dict[str, Any]] = {
    "small": {
        "items": 15_168,
        "buckets": 64,
        "hidden": 128,
        "neighbors": 100,
        "choices": 10,
        "epochs": 20,
        "repetitions": 16,
        "learning_rate": 0.01,
        "probes": 1,
    },
    "full": {**SCALES["full"], "choices": 10, "repetitions": 16, "probes": 1},
}
SMOKE_UNION = SMOKE | {"probes": 1}
STRAIGHT = 0.99  # squared correlation from which points count as a line

Measured = dict[str, dict[str, float]]  # by epoch: recall for each R, candidates for each t


def epochs(options: Options) -> None:
    """Figure 4 and Table 4: what more epochs and more repetitions are worth."""
    size = SMOKE if options.smoke else SCALES[options.scale]
    sample = draw_sample(options, size["items"])
    recipe = size_recipe(options, size).resolve(*sample.items.shape)
    cells = open_cells(options, "epochs", **size, recipe=list_settings(recipe))
    learning = Learning(sample, recipe, size, name_result(options, "epochs", ""))
    most = size["repetitions"]
    # Every seed has repetitions of its own.
    runs: list[Measured] = [
        cells.measure(f"seed {seed}", lambda first=seed * most: learning.measure(first))
        for seed in range(1 if options.smoke else options.seeds)
    ]
    double = None
    if len(runs) > 1:
        double = cells.measure(f"R = {2 * most}", lambda: learning.recall_at_the_end(2 * most))
    counts = _list_counts(most)
    cost = {r: r * (sample.items.shape[1] + recipe.buckets) * recipe.hidden for r in counts}
    spent = ", ".join(f"{cost[r] / sample.items.shape[1]:,.0f} (R = {r})" for r in counts)
    lines = [
        f"{describe(size, len(runs))}, K = {size['choices']}, a re-partition every {EVERY} "
        f"epochs. Each repetition names its best m = {size['probes']} buckets; the "
        f"{size['candidates']} items with the most votes are compared exactly, so every R compares "
        f"as many. Routing costs as much as so many distances: {spent}.",
        "",
        *format_table(["recall10@10 after epoch", *runs[0]], _tabulate_recall(runs, counts)),
        "",
        f"Items that at least t of {most} repetitions name, on average over the queries:",
        "",
        *format_table(["t", *runs[0]], _tabulate_candidates(runs, size)),
        "",
    ]
    missed, described = _measure_union(options, cells)
    lines += [
        f"True neighbours in no probed bucket, m = 1: {described}.",
        "",
        *format_table(
            ["R", *missed], [["missed", *(format_interval(each) for each in missed.values())]]
        ),
    ]
    _draw(options, runs, size)
    claims = _judge(runs, double, size)
    write_part(options, "epochs", lines, [*claims, judge_union(missed)])


def _measure_union(options: Options, cells: Cells) -> tuple[dict[str, list[float]], str]:
    """Return the share of true neighbours that R repetitions miss, for each seed, and the size."""
    size = SMOKE_UNION if options.smoke else UNION[options.scale]
    sample = draw_sample(options, size["items"])
    recipe = size_recipe(options, size).resolve(*sample.items.shape)
    learning = Learning(sample, recipe, size, name_result(options, "epochs", ""))
    most = size["repetitions"]
    runs = [
        cells.measure(
            f"union, R to {most}, {describe(size, 1)}, {size['epochs']} epochs, seed {seed}",
            lambda first=seed * most: learning.measure_missed(first),
        )
        for seed in range(1 if options.smoke else options.seeds)
    ]
    told = (
        f"{describe(size, len(runs))}, {size['items'] / size['buckets']:.0f} items in a bucket, "
        f"K = {size['choices']}, {size['epochs']} epochs"
    )
    return {f"{r}": [run[str(r)] for run in runs] for r in MISSED_BY}, told


def _list_counts(most: int) -> list[int]:
    """Return the numbers of repetitions to compare.

    Examples
    --------
    >>> _list_counts(32)
    [4, 8, 16, 32]
    """
    return [most // part for part in (8, 4, 2, 1)]


class Learning:
    """Repetitions of one problem. What each finds after each round is kept in a file."""

    def __init__(self, sample: Sample, recipe: Recipe, size: dict[str, Any], folder: Path) -> None:
        self.sample, self.recipe, self.size, self.folder = sample, recipe, size, folder
        self.problem: Problem | None = None
        self.rounds = list(range(EVERY, recipe.epochs + 1, EVERY))

    def measure(self, first: int) -> Measured:
        """Return recall and candidates by epoch, with repetitions from number `first` on."""
        most = self.size["repetitions"]
        kept = [self.learn(first + number) for number in range(most)]
        measured: Measured = {}
        for place, epoch in enumerate(self.rounds):
            probed = [each[place] for each in kept]
            found = {f"R = {r}": self._recall(probed[:r]) for r in _list_counts(most)}
            measured[str(epoch)] = found | self._count_candidates(probed)
        return measured

    def recall_at_the_end(self, count: int) -> float:
        """Return the recall with the first `count` repetitions, after the last epoch."""
        return self._recall([self.learn(number)[-1] for number in range(count)])

    def measure_missed(self, first: int) -> dict[str, float]:
        """Return the share of true neighbours that no repetition names, by their number."""
        kept = [self.learn(first + number)[-1] for number in range(max(MISSED_BY))]
        every = [len(self.sample.items)]  # all that was named is compared
        buckets = self.recipe.buckets
        return {
            str(r): 1 - recall_by_candidates(self.sample, kept[:r], buckets, every)[0]
            for r in MISSED_BY
        }

    def learn(self, number: int) -> list[Probed]:
        """Return what a repetition finds after each round. It is learned if no file has it."""
        mark = hashlib.sha256(repr((list_settings(self.recipe), self.size)).encode()).hexdigest()[
            :12
        ]
        path = self.folder / f"{mark}-{number}.npz"
        if not path.exists():
            say(f"learn repetition {number} ...")
            buckets, assignment = self._learn(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"part-{path.name}")
            np.savez_compressed(part, buckets=buckets, assignment=assignment)
            part.replace(path)
        with np.load(path) as kept:
            pairs = zip(kept["buckets"].astype(np.int64), kept["assignment"], strict=True)
            return [Probed(best, np.ones(best.shape, np.float32), held) for best, held in pairs]

    def _learn(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the best buckets of each query, and the bucket of each item, by round."""
        if self.problem is None:
            self.problem, *_ = make_problem(self.sample.items, "cosine", self.recipe)
        learner = begin(self.problem, self.recipe, number)
        [head] = learner.heads
        best, held = [], []
        for epoch in train_rounds(learner):
            [router] = learner.network.read().to_routers()
            scores = router.log_probabilities(self.sample.queries)
            best.append(find_best_buckets(scores, self.size["probes"]))
            held.append(head.partition.assignment[:, 0])
            if epoch < self.recipe.epochs:
                learner.repartition(head)
        return np.array(best, dtype=np.uint16), np.array(held, dtype=np.uint16)

    def _recall(self, probed: list[Probed]) -> float:
        wanted = [self.size["candidates"]]
        [found] = recall_by_candidates(self.sample, probed, self.recipe.buckets, wanted)
        return found

    def _count_candidates(self, probed: list[Probed]) -> dict[str, float]:
        total = dict.fromkeys(VOTES, 0)
        for _, votes in add_up(probed, self.recipe.buckets):
            for least in VOTES:
                total[least] += int((votes >= least).sum())
        return {f"t = {least}": count / len(self.sample.queries) for least, count in total.items()}


# --- table, plot and claims ----------------------------------------------------------------------


def _tabulate_recall(runs: list[Measured], counts: list[int]) -> list[list[str]]:
    return [
        [f"R = {r}", *(format_interval([run[e][f"R = {r}"] for run in runs]) for e in runs[0])]
        for r in counts
    ]


def _tabulate_candidates(runs: list[Measured], size: dict[str, Any]) -> list[list[str]]:
    rows = [
        [
            f"{t}",
            *(format_interval([run[epoch][f"t = {t}"] for run in runs], 0) for epoch in runs[0]),
        ]
        for t in VOTES
    ]
    share = [f"{np.mean([run[e]['t = 4'] for run in runs]) / size['items']:.1%}" for e in runs[0]]
    theirs = [f"{PAPER[int(e)] / PAPER_ITEMS:.1%}" for e in runs[0]]
    return [*rows, ["4, share of all items", *share], ["the paper's share", *theirs]]


def _judge(runs: list[Measured], double: float | None, size: dict[str, Any]) -> list[Claim]:
    most, steps = size["repetitions"], list(runs[0])
    recall = {
        r: np.array([[run[epoch][f"R = {r}"] for epoch in steps] for run in runs])
        for r in _list_counts(most)
    }
    whole = recall[most].mean(axis=0)
    last = float(whole[-1] - whole[-2])
    gain = recall[most][:, -1] - recall[most // 2][:, -1]
    found = np.array([[run[epoch]["t = 4"] for epoch in steps] for run in runs]).mean(axis=0)
    share = found / size["items"]
    seeds = " (one seed)" if len(runs) == 1 else ""
    claims = [
        Claim(
            "Recall converges after epoch 25 (figure 4)",
            "no gain from epoch 25 to 30",
            f"recall {whole[-2]:.3f} after epoch {steps[-2]}, {whole[-1]:.3f} after {steps[-1]}"
            + seeds,
            choose_verdict(abs(last) < 0.01, last < 0.25 * (whole[-2] - whole[0])),
            COMMAND,
        ),
        Claim(
            f"From R = {most // 2} to {most}, recall improves significantly",
            "figure 4 only",
            f"by {format_interval(list(gain))} at equal candidates",
            choose_verdict(bool((gain > 0.01).all()), bool(gain.mean() > 0)),
            COMMAND,
        ),
        Claim(
            "More training puts more candidates into at least 4 of 32 repetitions (Table 4)",
            "from 0.4% of all items after epoch 5 to 4.1% after epoch 30",
            f"from {share[0]:.1%} to {share[-1]:.1%}{seeds}",
            choose_verdict(bool((np.diff(found) > 0).all()), bool(found[-1] > found[0])),
            COMMAND,
        ),
    ]
    if double is not None:
        more = double - float(recall[most][:2, -1].mean())
        claims.append(
            Claim(
                f"Beyond R = {most}, more repetitions gain little",
                "no considerable gain",
                f"R = {2 * most} gains {more:+.3f} at equal candidates (one seed)",
                choose_verdict(more < 0.01, more < gain.mean()),
                COMMAND,
            )
        )
    return claims


def judge_union(missed: dict[str, list[float]]) -> Claim:
    """Say how what the union misses falls with R.

    A exp(-c R) is a line if its logarithm is drawn against R; a power of R is one against log R.
    Over queries of unequal difficulty, the mean of exponentials bends a little. The claim holds if
    the first line fits, and better than the second; in part if it only fits better.
    """
    counts = np.array([int(r) for r in missed])
    errors = np.array([np.mean(each) for each in missed.values()])
    straight, power = (
        float(np.corrcoef(along, np.log(np.maximum(errors, 1e-9)))[0, 1] ** 2)
        for along in (counts, np.log(counts))
    )
    told = ", ".join(f"{error:.3f}" for error in errors)
    seeds = " (one seed)" if len(next(iter(missed.values()))) == 1 else ""
    return Claim(
        "The error falls exponentially with R (Section 4)",
        "no figure",
        f"the union of the best buckets misses {told} with R = {', '.join(missed)}, whatever the "
        f"candidates; the squared correlation of its logarithm is {straight:.3f} with R, "
        f"{power:.3f} with log R{seeds}",
        choose_verdict(straight >= STRAIGHT and straight > power, straight > power),
        COMMAND,
    )


def _draw(options: Options, runs: list[Measured], size: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    along = [int(epoch) for epoch in runs[0]]

    def plot(axis: Any, key: str, label: str, scale: float = 1.0) -> None:
        values = np.array([[run[epoch][key] for epoch in run] for run in runs]) / scale
        [line] = axis.plot(along, values.mean(axis=0), "o-", label=label, ms=4)
        low, high = values.min(axis=0), values.max(axis=0)
        axis.fill_between(along, low, high, color=line.get_color(), alpha=0.2)

    for r in reversed(_list_counts(size["repetitions"])):
        plot(left, f"R = {r}", f"R = {r}")
    left.set(ylabel=f"recall10@10 with {size['candidates']} candidates", title="Figure 4")
    for t in VOTES:
        plot(right, f"t = {t}", f"at least {t} of {size['repetitions']}", size["items"])
    theirs = [PAPER[epoch] / PAPER_ITEMS for epoch in along]
    right.plot(along, theirs, "kD--", ms=4, label="paper, at least 4 of 32")
    right.set(ylabel="share of all items", yscale="log", title="Table 4: found so often")
    for axis in (left, right):
        axis.set_xlabel("epoch")
        axis.legend(fontsize=8)
    figure.savefig(name_result(options, "epochs", ".png"), dpi=150)
    plt.close(figure)
