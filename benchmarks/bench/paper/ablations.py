"""Ablations: one setting of the paper's recipe changed at a time, at equal candidates."""

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
    Probed,
    Sample,
    describe,
    draw_sample,
    find_best_buckets,
    list_settings,
    recall_by_candidates,
    size_recipe,
)
from irli.learning.options import LearnOptions
from irli.learning.repetition import Repetition
from irli.learning.runs import learn
from irli.vectors.build.problem import make_problem

COMMAND = "benchmarks/paper.py ablations"
SCALES: dict[str, dict[str, Any]] = {
    "small": {
        "items": 6000,
        "buckets": 96,
        "hidden": 64,
        "neighbors": 25,
        "epochs": 20,
        "learning_rate": 0.01,
        "candidates": 150,
    },
    "full": {
        "items": 1_183_514,
        "buckets": 5000,
        "hidden": 1024,
        "neighbors": 100,
        "epochs": 30,
        "learning_rate": 0.001,
        "candidates": 6000,
    },
}
SMOKE = {
    "items": 500,
    "buckets": 32,
    "hidden": 16,
    "neighbors": 10,
    "epochs": 10,
    "learning_rate": 0.01,
    "candidates": 50,
}
# The base has R = 4, m = 5 and votes; what the recipe `paper` says decides the rest.
R, M, SCORE = 4, 5, "votes"
COUNTS = (1, 2, 4, 8, 16)  # R
PROBES = (1, 2, 5, 10, 20)  # m
SCORES = ("votes", "probability", "log-probability")
# Settings that must be learned anew. The first of each panel, {}, is the base.
LEARNED: dict[str, dict[str, dict[str, Any]]] = {
    "start": {"hash": {}, "k-means": {"start": "kmeans"}},
    "loss": {
        "sigmoid, BCE": {},
        "softmax, BCE": {"loss": "softmax-bce"},
        "softmax": {"loss": "softmax"},
    },
    "choices K": {"10": {}} | {str(k): {"choices": k} for k in (1, 2, 5, 25)},
    "capacity": {"none": {}}
    | {f"{s} x": {"repartition": "bounded", "slack": s} for s in (1.05, 1.3, 2.0)},
    "affinity": {
        "item": {},
        "queries": {"affinity": "sum"},
        "both": {"affinity": "both"},
    },
    "inputs": {"as they are": {}, "standardized": {"standardize": True}},
    "learning rate": {
        "constant": {},
        "a tenth": {"learning_rate": 0.1},
        "one cycle": {"schedule": "one-cycle"},
    },
    "hidden width": {"h": {}, "h / 4": {"hidden": 0.25}, "4 h": {"hidden": 4}},
    "neighbours": {"n": {}, "n / 4": {"neighbors": 0.25}, "4 n": {"neighbors": 4}},
    "training queries": {
        "all": {},
        "30 %": {"training_points": 0.3},
        "10 %": {"training_points": 0.1},
    },
}
BASE = {"repetitions R": str(R), "probes m": str(M), "score": SCORE}
BASE |= {panel: next(iter(settings)) for panel, settings in LEARNED.items()}
ORDER = {"choices K": ("1", "2", "5", "10", "25"), "hidden width": ("h / 4", "h", "4 h")}
ORDER["neighbours"] = ("n / 4", "n", "4 n")

Trial = dict[str, float]  # recall, and the largest load relative to the mean
Panels = dict[str, dict[str, list[Trial]]]  # by panel and setting, one for each seed


def ablations(options: Options) -> None:
    """One figure: what each setting of the paper's recipe is worth."""
    size = SMOKE if options.smoke else SCALES[options.scale]
    recipe = list_settings(size_recipe(options, size))
    cells = open_cells(options, "ablations", **size, recipe=recipe)
    sample = draw_sample(options, size["items"])
    seeds = range(1 if options.smoke else options.seeds)
    panels: Panels = {}
    for seed in seeds:
        found = cells.measure(
            f"base, seed {seed}", lambda seed=seed: _measure_base(options, sample, size, seed)
        )
        for panel, settings in found.items():
            for name, trial in settings.items():
                panels.setdefault(panel, {}).setdefault(name, []).append(trial)
    base = panels["repetitions R"][str(R)]

    def measure(name: str, changes: dict[str, Any]) -> list[Trial]:
        return [
            cells.measure(
                f"{name}, seed {seed}",
                lambda seed=seed: _measure(options, sample, size, seed, changes),
            )
            for seed in seeds
        ]

    for panel, settings in LEARNED.items():
        trials = {
            name: measure(f"{panel} {name}", changes) if changes else base
            for name, changes in settings.items()
        }
        panels[panel] = {name: trials[name] for name in ORDER.get(panel, trials)}
    dim = sample.items.shape[1]
    routing = R * size["hidden"] * (dim + size["buckets"]) / dim
    lines = [
        f"{describe(size, len(seeds))}, R = {R}, m = {M}, {size['epochs']} epochs, a re-partition "
        f"every {EVERY}; else the recipe `paper`. h is the hidden width, n the neighbours. "
        f"recall10@10 with the {size['candidates']} items of highest score compared exactly. "
        f"Routing costs as much as {routing:,.0f} distances; it "
        "grows with R and h. Differences are from the base (bold), seed by seed.",
        "",
        *format_table(
            ["setting", "value", "recall10@10", "difference", "largest / mean load"],
            _tabulate(panels),
        ),
    ]
    _draw(options, panels, size)
    write_part(options, "ablations", lines, _judge(panels))


# --- measuring -----------------------------------------------------------------------------------


def _measure_base(
    options: Options, sample: Sample, size: dict[str, Any], seed: int
) -> dict[str, dict[str, Trial]]:
    """Return the recall for each R, m and score: all with the same routers."""
    repetitions = _learn(options, sample, size, seed, {"repetitions": max(COUNTS)})

    def search(count: int = R, probes: int = M, score: str = SCORE) -> Trial:
        return _search(sample, repetitions[:count], size, probes, score)

    return {
        "repetitions R": {str(count): search(count=count) for count in COUNTS},
        "probes m": {str(probes): search(probes=probes) for probes in PROBES},
        "score": {score: search(score=score) for score in SCORES},
    }


def _measure(
    options: Options, sample: Sample, size: dict[str, Any], seed: int, changes: dict[str, Any]
) -> Trial:
    return _search(sample, _learn(options, sample, size, seed, changes), size, M, SCORE)


def _learn(
    options: Options, sample: Sample, size: dict[str, Any], seed: int, changes: dict[str, Any]
) -> list[Repetition]:
    """Learn with some settings changed. Those that depend on the size are multiples of the base."""
    settings = {"repetitions": R, "seed": seed, **changes}
    whole = {key: size[key] for key in ("hidden", "neighbors", "learning_rate")}
    whole["training_points"] = size["items"]
    for key in whole.keys() & changes.keys():
        settings[key] = type(whole[key])(changes[key] * whole[key])
    recipe = size_recipe(options, size, **settings).resolve(*sample.items.shape)
    problem, *_ = make_problem(sample.items, "cosine", recipe)
    return learn(problem, recipe, LearnOptions(device=choose_device()))


def _search(
    sample: Sample, repetitions: list[Repetition], size: dict[str, Any], probes: int, score: str
) -> Trial:
    probed = [_probe(each, sample.queries, probes, score) for each in repetitions]
    [found] = recall_by_candidates(sample, probed, size["buckets"], [size["candidates"]])
    loads = [each.partition.loads() for each in repetitions]
    return {"recall": found, "largest": max(float(each.max() / each.mean()) for each in loads)}


def _probe(repetition: Repetition, queries: np.ndarray, probes: int, score: str) -> Probed:
    """Return the best buckets, and what each adds to the score of its items.

    A log-probability counts from that of the best bucket that is not probed.
    """
    chances = repetition.router.log_probabilities(queries)
    best = find_best_buckets(chances, probes + 1)
    found = np.take_along_axis(chances, best, axis=1)
    weights = {
        "votes": np.ones_like(found),
        "probability": np.exp(found),
        "log-probability": found - found[:, -1:],
    }[score]
    return Probed(best[:, :probes], weights[:, :probes], repetition.partition.assignment[:, 0])


# --- table, plot and claims ----------------------------------------------------------------------


def _tabulate(panels: Panels) -> list[list[str]]:
    rows = []
    for panel, settings in panels.items():
        base = _recalls(settings[BASE[panel]])
        for name, trials in settings.items():
            found, largest = _recalls(trials), [each["largest"] for each in trials]
            cells = [format_interval(list(found)), "", f"{np.mean(largest):.2f}"]
            if name == BASE[panel]:
                name = f"**{name}**"
            else:
                cells[1] = format_interval(list(found - base))
            rows.append([panel, name, *cells])
    return rows


def _recalls(trials: list[Trial]) -> np.ndarray:
    return np.array([each["recall"] for each in trials])


def _judge(panels: Panels) -> list[Claim]:
    """Answer the claims. A smaller K gets better recall if each K beats all larger ones."""
    by_k = {name: _recalls(trials) for name, trials in panels["choices K"].items()}
    few, ten, many = (by_k[k] for k in ("5", "10", "25"))
    best = max(by_k, key=lambda k: by_k[k].mean())
    lead = float(by_k[best].mean() - ten.mean())
    votes, *others = (_recalls(panels["score"][score]).mean() for score in SCORES)
    better = max(others) - votes
    seeds = " (one seed)" if len(ten) == 1 else ""
    figures = ", ".join(f"{each.mean():.3f}" for each in by_k.values())
    falls = np.diff(np.array(list(by_k.values())), axis=0) < 0
    return [
        Claim(
            "A smaller K gets better recall (Table 3)",
            "no figure",
            f"recall10@10 of {figures} with K = {', '.join(by_k)}{seeds}",
            choose_verdict(bool(falls.all()), bool(few.mean() > ten.mean() > many.mean())),
            COMMAND,
        ),
        Claim(
            "K = 10 is the sweet spot",
            "no figure",
            f"K = {best} has the best recall, {lead:+.3f} against K = 10{seeds}",
            choose_verdict(lead < 0.01, lead < 0.03),
            COMMAND,
        ),
        Claim(
            "Candidates are best chosen by how often they are found",
            "no figure",
            f"the best sum of scores gets {better:+.3f} recall10@10 against votes{seeds}",
            choose_verdict(better < 0.005, better < 0.02),
            COMMAND,
        ),
    ]


def _draw(options: Options, panels: Panels, size: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 5, figsize=(15, 8), sharey=True, constrained_layout=True)
    for axis, (panel, settings) in zip(axes.flat, panels.items(), strict=False):
        base = _recalls(settings[BASE[panel]]).mean()
        axis.axhline(base, color="grey", linestyle=":", linewidth=1)
        for place, (name, trials) in enumerate(settings.items()):
            colour = "tab:red" if name == BASE[panel] else "tab:blue"
            found = _recalls(trials)
            axis.bar(place, found.mean(), color=colour, width=0.6)
            axis.plot([place] * len(found), found, "k.", ms=4)
        axis.set_title(panel)
        axis.set_xticks(range(len(settings)), list(settings), fontsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel(f"recall10@10, {size['candidates']} candidates")
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    axes.flat[-1].bar(0, 0, color="tab:red", label="base")
    axes.flat[-1].bar(0, 0, color="tab:blue", label="changed")
    axes.flat[-1].plot([], [], "k.", label="one seed")
    axes.flat[-1].legend(loc="center", fontsize=11)
    figure.savefig(name_result(options, "ablations", ".png"), dpi=150)
    plt.close(figure)
