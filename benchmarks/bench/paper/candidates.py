"""Recall10@10 against candidates: IRLI beside every baseline of the paper (its Figure 3).

A candidate is an item whose exact distance is computed. Candidates say nothing about the router,
which costs more the fewer they are. So its multiplications are reported beside them, as dot
products of the dimension of the data.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import irli
from bench.commands import Options, choose_device, make_recipe
from bench.common import format_table
from bench.paper.baselines.methods import (
    BUILDS,
    NEURAL,
    Planned,
    measure_baseline,
    name_tag,
    tune_baseline,
)
from bench.paper.baselines.partition import Asked, ask, measure_recall
from bench.paper.files import read_points
from bench.paper.part import (
    VERDICTS,
    Cells,
    Claim,
    choose_verdict,
    format_interval,
    name_result,
    open_cells,
    write_part,
)
from bench.vectors.curves import K, Point, cost_at, front
from irli.learning import LearnOptions, learn
from irli.vectors.build.assemble import assemble
from irli.vectors.build.problem import make_problem
from irli.vectors.contents import pack_vectors

Curves = dict[str, list[list[Point]]]  # a curve for each seed

RECALLS = (0.80, 0.90, 0.95)
AT = 0.90  # the recall of the claim
NAMES = {
    "glove": "GloVe vectors",
    "sift": "SIFT features",
    "local-features": "local features of Fashion-MNIST in the form of SIFT",
}
OURS = PAPER, DEFAULT, CODES = "IRLI, paper", "IRLI, default", "IRLI, default with codes"


@dataclass(frozen=True)
class Size:
    """What is measured at a scale."""

    set: str  # see `read_points`
    items: int | None  # None: all of them
    held: int  # queries to tune on
    asked: int  # reported queries
    bins: int  # of baselines with one level
    epochs: int  # of networks
    hidden: tuple[int, ...]  # widths to try
    paper: dict[str, Any]  # changes of the paper's recipe
    tried: tuple[dict[str, Any], ...]  # more of them, of which the best is taken
    few: int  # repetitions with which they are tried
    counts: tuple[int, ...] = ()  # repetitions from which the curve is drawn, too
    widths: tuple[int, ...] = ()  # hidden units with which it is drawn, too


# Fewer items make fewer steps in an epoch, so that a higher rate than the paper's is tried.
SIZES = {
    "small": Size(
        set="glove",
        items=20_000,
        held=500,
        asked=1000,
        bins=256,
        epochs=12,
        hidden=(256, 512),
        paper={"repetitions": 16, "buckets": 512, "hidden": 128},
        tried=(
            {"choices": 10, "learning_rate": 0.001},
            {"choices": 10, "learning_rate": 0.01},
            {"choices": 25, "learning_rate": 0.01},
        ),
        few=2,
    ),
    "full": Size(
        set="glove",
        items=None,
        held=1000,
        asked=9000,
        bins=256,
        epochs=20,
        hidden=(256, 512),
        paper={},
        tried=(),
        few=0,
    ),
}
SMOKE = Size("glove", None, 30, 60, 8, 1, (16,), {}, ({"choices": 5}, {"choices": 10}), 1)

_PROBES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_VOTES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48)
_THRESHOLDS = tuple(float(cut) for cut in np.geomspace(1e-5, 0.2, 18))
_CODED = (20, 30, 40, 60, 80, 120, 200, 400)
_TUNED = ", tuned"  # ends the name of a cell
_POOR = 0.5  # recalls below this are not drawn


def candidates(options: Options) -> None:
    """Measure all methods, draw the figure and answer the claims."""
    size = SMOKE if options.smoke else SIZES[options.scale]
    seeds = list(range(1 if options.smoke else options.seeds))
    compare(options, "candidates", size, seeds)


def compare(
    options: Options,
    part: str,
    size: Size,
    seeds: list[int],
    answer: Callable[[Curves, Any], list[Claim]] = lambda curves, recipe: [],
) -> None:
    """Measure all methods, draw the figure and answer the claims, those of `answer` first."""
    data, asked = read_data(options, size)
    # Cells of ours are named by these.
    ours = ("paper", "tried", "few", "counts", "widths")
    settings = {key: value for key, value in asdict(size).items() if key not in ours}
    cells = open_cells(options, part, **settings)
    tried = try_settings(options, part, cells, data, size)
    best = min(tried, key=lambda trial: trial.cost, default=Trial({}, []))
    changed = make_recipe(options, "paper", **{**size.paper, **best.changes})
    recipe = changed.resolve(*data.items.shape)
    curves = measure_ours(options, part, cells, data, asked, recipe, seeds)
    curves |= measure_baselines(cells, data, asked, seeds)
    grown = measure_sizes(options, part, cells, data, asked, recipe, size)
    count, dim = data.items.shape
    draw(curves, count, dim, name_result(options, part, ".png"))
    lines = [
        *_describe(size.set, data, recipe, len(seeds)),
        "",
        *tabulate(curves, dim),
        "",
        "What was chosen of the baselines on the held-out queries:",
        "",
        *_tabulate_settings(cells),
    ]
    if tried:
        lines += [
            "",
            f"The paper's recipe with {size.few} repetitions: candidates by votes on the held-out "
            "queries. The best at .90 was taken.",
            "",
            *_tabulate_trials(tried),
        ]
    if grown:
        lines += [
            "",
            "The paper's recipe with R repetitions of h hidden units, in the first seed. Each asks "
            "in the way that needs the fewest candidates of the queries to tune on.",
            "",
            *tabulate(grown, dim),
        ]
    command = f"benchmarks/paper.py {part}"
    claims = [*answer(curves, recipe), *answer_claims(curves, count, command)]
    write_part(options, part, lines, claims + answer_more(grown, recipe, command))


def read_data(options: Options, size: Size) -> tuple[Planned, Asked]:
    """Return the items with the queries to tune on, and the reported queries."""
    base, tests, metric = read_points(options, size.set)
    rng = np.random.default_rng(0)
    items = np.ascontiguousarray(base[np.sort(rng.permutation(len(base))[: size.items])])
    order = rng.permutation(len(tests))
    held, reported = np.split(order[: size.held + size.asked], [size.held])
    settings = metric, size.bins, size.epochs, size.hidden
    data = Planned(items, ask(items, tests[held]), *settings)
    return data, ask(items, tests[reported])


# --- measuring -----------------------------------------------------------------------------------


def measure_baselines(cells: Cells, data: Planned, asked: Asked, seeds: list[int]) -> Curves:
    """Tune each baseline on the held-out queries, and draw its curve for each seed."""
    curves: Curves = {}
    for method in BUILDS:
        for levels in (1, 2):
            name = f"{method}, {name_tag(data, method, levels)}"
            tuned = cells.measure(
                f"{name}{_TUNED}",
                lambda method=method, levels=levels: tune_baseline(data, method, levels),
            )
            curves[name] = [
                cells.measure(
                    f"{name}, seed {seed}",
                    lambda method=method, levels=levels, tuned=tuned, seed=seed: measure_baseline(
                        data, asked, method, levels, tuned, seed
                    ),
                )
                for seed in seeds
            ]
    return curves


@dataclass(frozen=True)
class Trial:
    """Changes of the paper's recipe, and its curve on the held-out queries."""

    changes: dict[str, Any]
    points: list[Point]

    @property
    def cost(self) -> float:
        """The candidates at the recall of the claim."""
        found = cost_at(self.points, AT, "candidates")
        return found if math.isfinite(found) else math.inf


def try_settings(
    options: Options, part: str, cells: Cells, data: Planned, size: Size
) -> list[Trial]:
    """Learn the paper's recipe with few repetitions and each of the changes."""
    trials = []
    for changes in size.tried:
        every = {**size.paper, **changes, "repetitions": size.few}
        recipe = make_recipe(options, "paper", **every)

        def measure(recipe: Any = recipe) -> list[Point]:
            index = learn_index(options, part, data, recipe)
            sweeps = list_sweeps(PAPER, index.recipe, len(data.items))
            return draw_index(index, data.held, data.held, sweeps)

        trials.append(Trial(changes, cells.measure(f"trial, {_name(every)}", measure)))
    return trials


def measure_ours(
    options: Options,
    part: str,
    cells: Cells,
    data: Planned,
    asked: Asked,
    paper: Any,
    seeds: list[int],
) -> Curves:
    """Draw the curves of the paper's recipe by votes, and of the default one."""
    coded = {"pieces": 8} if options.smoke else {}  # so few items have no codes by default
    default = make_recipe(options, "default", **coded)
    curves: Curves = {name: [] for name in OURS}
    for seed in seeds:

        def measure_paper(seed: int = seed) -> dict[str, list[Point]]:
            seeded = dataclasses.replace(paper, seed=seed)
            index = learn_index(options, part, data, seeded)
            return {PAPER: _draw_curve(PAPER, index, data, asked)}

        def measure_default(seed: int = seed) -> dict[str, list[Point]]:
            seeded = dataclasses.replace(default, seed=seed)
            index = irli.VectorIndex(data.metric, recipe=seeded)
            index.fit(data.items, device=choose_device())
            return {name: _draw_curve(name, index, data, asked) for name in (DEFAULT, CODES)}

        found = cells.measure(_name_cell(paper, seed), measure_paper)
        found |= cells.measure(f"IRLI, default, seed {seed}", measure_default)
        for name in OURS:
            curves[name].append(found[name])
    return curves


def measure_sizes(
    options: Options,
    part: str,
    cells: Cells,
    data: Planned,
    asked: Asked,
    paper: Any,
    size: Size,
) -> Curves:
    """Draw the curves of the paper's recipe with more and fewer repetitions, and narrower."""
    curves: Curves = {}
    # As many repetitions as the recipe has are enough of the other widths.
    widths = {hidden: paper.repetitions for hidden in size.widths}
    widths[paper.hidden] = max(size.counts, default=0)
    for hidden, most in widths.items():
        made = None
        for count in (count for count in size.counts if count <= most):
            recipe = dataclasses.replace(paper, hidden=hidden, repetitions=count)
            named = _name_cell(recipe, recipe.seed)
            if named not in cells.measured and made is None:
                made = make_problem(data.items, data.metric, recipe)

            def measure(recipe: Any = recipe, made: Any = made) -> dict[str, list[Point]]:
                index = learn_index(options, part, data, recipe, made)
                return {PAPER: _draw_curve(PAPER, index, data, asked)}

            points = cells.measure(named, measure)[PAPER]
            curves[f"R = {count}, h = {hidden}"] = [points]
    return curves


def _name_cell(recipe: Any, seed: int) -> str:
    return f"IRLI, paper {_describe_recipe(recipe)}, seed {seed}"


def _draw_curve(name: str, index: irli.VectorIndex, data: Planned, asked: Asked) -> list[Point]:
    return draw_index(index, data.held, asked, list_sweeps(name, index.recipe, len(data.items)))


def learn_index(
    options: Options, part: str, data: Planned, recipe: Any, made: Any = None
) -> irli.VectorIndex:
    """Return an index; what was learned before an interruption is not learned again.

    More repetitions go on from fewer. `made` is what `make_problem` returned, if it was made.
    """
    recipe = recipe.resolve(*data.items.shape)
    problem, held, truth = made or make_problem(data.items, data.metric, recipe)
    named = json.dumps(asdict(dataclasses.replace(recipe, repetitions=1)), sort_keys=True).encode()
    folder = name_result(options, part, "-learning") / hashlib.sha256(named).hexdigest()[:16]
    workers = min(options.workers, recipe.repetitions)
    run = LearnOptions(workers=workers, device=choose_device(), checkpoint=folder)
    learned = learn(problem, recipe, run)
    ids = np.arange(len(data.items))
    contents = assemble(data.items, data.metric, recipe, learned, ids=ids, held=held, truth=truth)
    return irli.VectorIndex.from_folder(pack_vectors(contents))


def _name(changes: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in changes.items())


def _describe_recipe(recipe: Any) -> str:
    return (
        f"R = {recipe.repetitions}, B = {recipe.buckets}, {recipe.hidden} hidden units, "
        f"K = {recipe.choices}, {recipe.epochs} epochs, {recipe.neighbors} neighbours, "
        f"learning rate {recipe.learning_rate:g}, loss {recipe.loss}"
    )


def list_sweeps(name: str, recipe: Any, items: int) -> list[list[dict[str, Any]]]:
    """Return searches in lists, in each of which recall falls."""
    if name == PAPER:
        votes = [least for least in _VOTES if least <= recipe.repetitions]
        return [
            [{"probes": probes, "min_votes": least, "score": "votes"} for least in votes]
            for probes in _PROBES
            if probes <= recipe.buckets
        ]
    if name == DEFAULT:
        every = {"score": "log-probability", "candidates": items}  # all that are read
        return [[{"threshold": cut, **every} for cut in _THRESHOLDS]]
    return [
        [{"threshold": cut, "candidates": count, "score": "codes"} for cut in _THRESHOLDS]
        for count in _CODED
    ]


def draw_index(
    index: irli.VectorIndex, held: Asked, asked: Asked, sweeps: list[list[dict[str, Any]]]
) -> list[Point]:
    """Return the curve of an index, in the searches that need the fewest candidates of `held`.

    Codes choose candidates among what is read, so that 20 candidates would do if all items were
    read. So with codes what is read counts, too.
    """
    tried = []
    for sweep in sweeps:
        for setting in sweep:
            point = _search(index, held, setting)
            spent = point["candidates"] + (point["read"] if setting["score"] == "codes" else 0)
            tried.append({**point, "setting": setting, "speed": 1 / max(spent, 1)})
            if point["recall"] < _POOR:
                break
    return [_search(index, asked, point["setting"]) for point in front(tried, "speed")]


def _search(index: irli.VectorIndex, asked: Asked, setting: dict[str, Any]) -> Point:
    told = index.explain(asked.vectors, K, **setting)
    found = (asked.near[:, :, None] == told.ids[:, None, :]).any(axis=2)
    return {
        **setting,  # its candidates are a limit, which the measured ones replace
        "recall": measure_recall(asked, found),
        "candidates": float(told.candidates.mean()),
        "read": float(told.scanned.mean()),
        "multiplications": float(told.router_multiplications),
    }


# --- the table, the figure and the claims --------------------------------------------------------


def _describe(name: str, data: Planned, recipe: Any, seeds: int) -> list[str]:
    count, dim = data.items.shape
    told = "one seed" if seeds == 1 else f"{seeds} seeds"
    return [
        f"{count:,} {NAMES[name]} of {dim} dimensions, {told}, {len(data.held.vectors)} queries to "
        f"tune on and others to report on. The paper's recipe: {_describe_recipe(recipe)}. "
        f"1-{data.bins} is one level of {data.bins} buckets, 2-{data.branches} two levels with "
        f"{data.branches**2:,} leaves. Candidates are exact distances. The router's "
        "multiplications are divided by the dimension, so that they count as many dot products. "
        "Read: entries of the probed buckets, whose votes or codes are counted before anything is "
        "compared."
    ]


def _tabulate_trials(trials: list[Trial]) -> list[str]:
    rows = []
    for trial in trials:
        costs = [cost_at(trial.points, target, "candidates") for target in RECALLS]
        best = max(point["recall"] for point in trial.points)
        rows.append([_name(trial.changes), *(_format([cost]) for cost in costs), f"{best:.3f}"])
    head = [f"candidates at {target:.2f}" for target in RECALLS]
    return format_table(["changes", *head, "best recall"], rows)


def tabulate(curves: Curves, dim: int) -> list[str]:
    """Return the costs of each method at some recalls; the fewest candidates at .90 come first."""
    head = ["method", *(f"candidates at {target:.2f}" for target in RECALLS)]
    head += [f"{what} at {AT:.2f}" for what in ("read", "router", "router + candidates")]
    ranked = sorted(curves, key=lambda name: _key(_costs(curves[name], AT, "candidates")))
    rows = []
    for name in ranked:
        own = curves[name]
        cells = [_format(_costs(own, target, "candidates")) for target in RECALLS]
        router = [value / dim for value in _costs(own, AT, "multiplications")]
        both = np.add(router, _costs(own, AT, "candidates")).tolist()
        rows.append([name, *cells, *(_format(v) for v in (_costs(own, AT, "read"), router, both))])
    return format_table(head, rows)


def _tabulate_settings(cells: Cells) -> list[str]:
    rows = []
    for name, tuned in cells.measured.items():
        if name.endswith(_TUNED):
            built = ", ".join(f"{key} {value}" for key, value in tuned["build"].items())
            rows.append([name.removesuffix(_TUNED), built, tuned["probing"], tuned["temperature"]])
    return format_table(["baseline", "built with", "probed by", "temperature"], rows)


def _costs(seeds: list[list[Point]], target: float, what: str) -> list[float]:
    """Return a cost at a recall for each seed, along its curve."""
    return [_cost(points, target, what) for points in seeds]


def _cost(points: list[Point], target: float, what: str) -> float:
    fewest = cost_at(points, target, "candidates")
    if what not in points[0] or what == "candidates" or not math.isfinite(fewest):
        return fewest  # baselines compare all that they read
    along = sorted((point["recall"], point[what]) for point in points)
    recalls, costs = np.transpose(along)
    return float(np.interp(target, recalls, costs))


def _key(values: list[float]) -> float:
    return float(np.mean(values)) if np.isfinite(values).all() else math.inf


def _format(values: list[float]) -> str:
    if not np.isfinite(values).all():
        return "not reached"
    return format_interval(values, 0) if len(values) > 1 else f"{values[0]:.0f}"


def answer_claims(curves: Curves, count: int, command: str) -> list[Claim]:
    """Compare the recipes with Neural LSH, and with the best baseline, at recall .90."""
    costs = {name: _costs(curves[name], AT, "candidates") for name in curves}
    neural = [name for name in curves if name.startswith(NEURAL)]
    others = [name for name in curves if name not in OURS]
    claims, where = [], f"{count:,} items, recall {AT:.2f}"
    for name, told_as in ((PAPER, "the paper's recipe"), (DEFAULT, "the default recipe")):
        ratios = {other: np.divide(costs[name], costs[other]).tolist() for other in others}
        told = "; ".join(f"{format_interval(ratios[other], 2)} of {other}" for other in neural)
        claims.append(
            Claim(
                f"1/6 of the candidates of Neural LSH at equal recall ({told_as})",
                "about 1/6",
                f"{where}: {told}",
                judge_sixth([ratios[other] for other in neural]),
                command,
            )
        )
        best = min(others, key=lambda other: _key(costs[other]))
        claims.append(
            Claim(
                f"Fewer candidates than every baseline at equal recall ({told_as})",
                "the curve lies above all others (figure 3)",
                f"{where}: {format_interval(ratios[best], 2)} of the best, {best}",
                judge_best(ratios[best]),
                command,
            )
        )
    return claims


def answer_more(grown: Curves, recipe: Any, command: str) -> list[Claim]:
    """Say what twice as many repetitions as the recipe's gain."""
    few, many = (f"R = {count * recipe.repetitions}, h = {recipe.hidden}" for count in (1, 2))
    if few not in grown or many not in grown:
        return []
    before, after = (_cost(grown[name][0], AT, "candidates") for name in (few, many))
    return [
        Claim(
            f"Beyond R = {recipe.repetitions}, more repetitions gain little",
            "no considerable gain",
            f"R = {2 * recipe.repetitions} needs {after:.0f} candidates for recall {AT:.2f}, "
            f"R = {recipe.repetitions} {before:.0f} (one seed)",
            choose_verdict(after > 0.9 * before, after > 0.75 * before),
            command,
        )
    ]


def judge_sixth(ratios: list[list[float]]) -> str:
    """Judge our candidates divided by those of the variants of Neural LSH, for each seed.

    Up to 1/5 of each of them holds. Fewer than each of them in every seed holds in part.

    Examples
    --------
    >>> judge_sixth([[0.1, 0.2], [0.15, 0.2]]), judge_sixth([[0.1, 0.2], [0.9, 0.8]])
    ('holds', 'holds in part')
    >>> judge_sixth([[0.1, 0.2], [0.9, 1.1]])
    'does not hold here'
    """
    if all(np.mean(variant) <= 0.2 for variant in ratios):
        return VERDICTS[0]
    return VERDICTS[1] if all(max(variant) < 1 for variant in ratios) else VERDICTS[2]


def judge_best(ratios: list[float]) -> str:
    """Judge our candidates divided by those of the best baseline, for each seed.

    Examples
    --------
    >>> judge_best([0.8, 0.9]), judge_best([0.9, 1.1]), judge_best([1.1, 1.2])
    ('holds', 'holds in part', 'does not hold here')
    """
    if max(ratios) < 1:
        return VERDICTS[0]
    return VERDICTS[1] if np.mean(ratios) < 1.05 else VERDICTS[2]


def draw(curves: Curves, count: int, dim: int, path: Path) -> None:
    """Draw recall against candidates, as in the paper, and against all dot products."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    figure, axes = plt.subplots(1, 2, figsize=(12, 5), sharey=True, constrained_layout=True)
    for name, seeds in curves.items():
        lowest = max(min(point["recall"] for point in points) for points in seeds)
        recalls = np.linspace(max(_POOR, lowest), 0.99, 50)
        costs = np.array([_costs(seeds, at, "candidates") for at in recalls])
        router = np.array([_costs(seeds, at, "multiplications") for at in recalls]) / dim
        style = _choose_style(name, list(curves))
        axes[0].plot(costs.mean(axis=1), recalls, label=name, **style)
        axes[1].plot((costs + router).mean(axis=1), recalls, **style)
    axes[0].set(xlabel="candidates (exact distances)", ylabel="recall10@10")
    axes[1].set(xlabel="candidates + router, in dot products")
    for axis in axes:
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(which="both", alpha=0.2)
        axis.axvline(count, color="black", linewidth=0.8, linestyle=":")
        axis.annotate("all items ", (count, _POOR), fontsize=8, ha="right")
    figure.legend(loc="outside right upper", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _choose_style(name: str, names: list[str]) -> dict[str, Any]:
    """Return a colour for each method; the second of its curves is dashed. Ours are red."""
    ours = dict(zip(OURS, ("-", "--", ":"), strict=True))
    if name in ours:
        return {"color": "red", "linewidth": 2.4, "linestyle": ours[name]}
    method = name.split(", ")[0]
    palette = ("blue", "orange", "green", "olive", "purple", "brown", "gray", "pink")
    colour = palette[list(BUILDS).index(method)]
    first = next(other for other in names if other.split(", ")[0] == method)
    return {"color": f"tab:{colour}", "linewidth": 1.2, "linestyle": "-" if name == first else "--"}
