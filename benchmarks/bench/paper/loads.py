"""Loads of the buckets: their standard deviation by K, and the largest against Theorem 2."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

import irli
from bench.commands import Options
from bench.common import format_table
from bench.paper.baselines.cross_polytope import CrossPolytope
from bench.paper.baselines.kmeans import kmeans
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
    begin,
    describe,
    draw_sample,
    list_settings,
    size_recipe,
    train_rounds,
)
from irli._native import place_least_loaded
from irli.learning.initial import make_first_partition
from irli.vectors.build.problem import make_problem

COMMAND = "benchmarks/paper.py loads"
CHOICES = (5, 10, 25)  # K
PAPER = {"hash": 15.3, 5: 17.08, 10: 2.66, 25: 0.46}  # Table 3, with a mean load of 236.7
PAPER_ITEMS, PAPER_BUCKETS = 1_183_514, 5000
PAPER_MEAN = PAPER_ITEMS / PAPER_BUCKETS
# Items, buckets and router of Table 3, and the numbers of items for Theorem 2.
SCALES: dict[str, dict[str, Any]] = {
    "small": {
        "items": 60_672,
        "buckets": 256,
        "hidden": 128,
        "neighbors": 100,
        "learning_rate": 0.01,
        "grown": (7584, 15_168, 30_336),
    },
    "full": {
        "items": PAPER_ITEMS,
        "buckets": PAPER_BUCKETS,
        "hidden": 1024,
        "neighbors": 100,
        "learning_rate": 0.001,
        "grown": (74_000, 296_000),
    },
}
SMOKE = {
    "items": 640,
    "buckets": 32,
    "hidden": 16,
    "neighbors": 10,
    "learning_rate": 0.01,
    "grown": (320,),
}
LEMMA_BUCKETS, LEMMA_DRAWS, LEMMA_CLOSE = 256, 20_000, 0.1  # B, samples, a relative error
SIMULATED = tuple(4**power * 3792 for power in range(5))  # items, up to a million
FEW = (960,)  # in a smoke run


def loads(options: Options) -> None:
    """Table 3, with k-means and LSH beside it, and the largest load as L grows (Theorem 2)."""
    size = SMOKE if options.smoke else SCALES[options.scale]
    recipe = size_recipe(options, size, epochs=EVERY)
    cells = open_cells(options, "loads", **size, recipe=list_settings(recipe))
    seeds = range(1 if options.smoke else options.seeds)
    spread = {}  # of each method, for each seed
    for seed in seeds:
        found = cells.measure(
            f"{size['items']} items, seed {seed}",
            lambda seed=seed: _measure_choices(options, size, size["items"], seed),
        ) | cells.measure(
            f"k-means and LSH, seed {seed}",
            lambda seed=seed: _measure_baselines(options, size, seed),
        )
        for name, loads in found.items():
            spread.setdefault(name, []).append(loads)
    mean = size["items"] / size["buckets"]
    hashed = cells.measure(
        f"hash at the paper's size, {len(seeds)} seeds", lambda: _hash_at_full_size(seeds)
    )
    trained = _grow_trained(options, cells, size, spread)
    drawn = _grow_simulated(options, cells, mean)
    draws = 200 if options.smoke else LEMMA_DRAWS
    lemma = cells.measure(
        f"lemma 1, {draws} draws",
        lambda: {str(choices): measure_lemma(choices, draws) for choices in (1, *CHOICES)},
    )
    head = ["loads", "paper", "standard deviation", "of the mean", "largest / mean"]
    rows = [_tabulate(name, each, mean) for name, each in spread.items()]
    lines = [
        f"{describe(size, len(seeds))}: {mean:.0f} items in a bucket on average. {EVERY} epochs, "
        "then one re-partition.",
        "",
        *format_table(head, rows),
        "",
        f"The largest load with {mean:.0f} items a bucket. *Drawn*: K buckets drawn at random. "
        "*Trained*: the K best of a router after 5 epochs. The bound is that of the appendix "
        "with δ = 0; it exists for K > log2(L / B).",
        "",
        *_tabulate_growth(drawn, trained, mean),
        "",
        f"Lemma 1: K of {LEMMA_BUCKETS} buckets are sampled without replacement, with "
        "probabilities that fall as 1 / rank. The variance of the mean of their probabilities, and "
        "what the lemma says of it, on average over the samples:",
        "",
        *format_table(
            ["K", "variance", "the lemma's"],
            [[choices, *(f"{value:.2e}" for value in pair)] for choices, pair in lemma.items()],
        ),
    ]
    _draw(options, spread, drawn, trained, mean)
    claims = _judge(spread, hashed, drawn, trained, mean)
    write_part(options, "loads", lines, [*claims, judge_lemma(lemma)])


# --- Table 3 -------------------------------------------------------------------------------------


def _measure_choices(
    options: Options, size: dict[str, Any], count: int, seed: int
) -> dict[str, dict[str, float]]:
    """Return standard deviation and maximum of the loads: of a hash, and for each K."""
    items, buckets = draw_sample(options, count).items, count * size["buckets"] // size["items"]
    recipe = size_recipe(options, size, buckets=buckets, epochs=EVERY, seed=seed)
    recipe = recipe.resolve(*items.shape)
    problem, *_ = make_problem(items, "cosine", recipe)
    learner = begin(problem, recipe)
    [head] = learner.heads
    first = head.partition
    found = {"hash": _describe(first.loads())}
    for _ in train_rounds(learner):
        for choices in CHOICES:
            learner.recipe = dataclasses.replace(recipe, choices=min(choices, buckets))
            learner.repartition(head)
            found[f"K = {choices}"] = _describe(head.partition.loads())
            head.partition = first
    return found


def _measure_baselines(
    options: Options, size: dict[str, Any], seed: int
) -> dict[str, dict[str, float]]:
    """Return the same for k-means and for two cross-polytope hashes with about B buckets."""
    items, buckets = draw_sample(options, size["items"]).items, size["buckets"]
    each = 2 * round(buckets**0.5 / 2)  # buckets of a hash
    return {
        "k-means": _describe(kmeans(items, buckets, seed).loads()),
        "LSH": _describe(CrossPolytope(items, (each, each), seed).loads()),
    }


def _hash_at_full_size(seeds: Iterable[int]) -> list[float]:
    """Return the standard deviation of the first loads with the paper's numbers of items and B."""
    items = np.zeros((PAPER_ITEMS, 1), dtype=np.float32)
    found = []
    for seed in seeds:
        recipe = irli.recipe("paper", buckets=PAPER_BUCKETS, seed=seed)
        first, _ = make_first_partition(items, recipe, 0, np.random.default_rng(seed))
        found.append(float(first.loads().std()))
    return found


def _describe(loads: np.ndarray) -> dict[str, float]:
    return {"std": float(loads.std()), "max": int(loads.max()), "mean": float(loads.mean())}


# --- Theorem 2 -----------------------------------------------------------------------------------


def bound_load(items: int, buckets: int, choices: int) -> float:
    """Return the bound of the appendix on the largest load, with δ = 0, or NaN if it has none.

    It is 2 L / B + log_K(log2 L) - log_K(1 - log2(L / B) / K), which exists for K > log2(L / B).

    Examples
    --------
    >>> round(bound_load(items=61_440, buckets=1024, choices=10), 1)
    121.6
    >>> bound_load(items=61_440, buckets=1024, choices=5)
    nan
    """
    left = 1 - np.log2(items / buckets) / choices
    if left <= 0:
        return float("nan")
    return float(2 * items / buckets + np.log(np.log2(items) / left) / np.log(choices))


def measure_lemma(choices: int, draws: int) -> tuple[float, float]:
    """Return the variance of the mean probability of K sampled buckets, and the lemma's.

    The lemma gives it as the sum of p^2 (1 - p) over the sampled buckets, divided by K^2.
    """
    rng = np.random.default_rng(0)
    chances = 1 / np.arange(1, LEMMA_BUCKETS + 1)
    chances /= chances.sum()
    keys = np.log(chances) + rng.gumbel(size=(draws, LEMMA_BUCKETS))  # of the largest, K are drawn
    drawn = chances[np.argpartition(-keys, choices - 1, axis=1)[:, :choices]]
    said = (drawn**2 * (1 - drawn)).sum(axis=1) / choices**2
    return float(drawn.mean(axis=1).var()), float(said.mean())


def judge_lemma(lemma: dict[str, tuple[float, float]]) -> Claim:
    """Answer lemma 1: it holds if variances are the lemma's, in part if they fall with K."""
    found, said = np.array(list(lemma.values())).T
    return Claim(
        "Lemma 1: the variance of the mean probability of K sampled buckets, which falls with K",
        "proof only",
        f"with K = {', '.join(lemma)}, {found[0] / said[0]:.2f} to {found[-1] / said[-1]:.2f} "
        f"times the lemma's; it falls from {found[0]:.1e} to {found[-1]:.1e}",
        choose_verdict(
            bool((np.abs(found / said - 1) < LEMMA_CLOSE).all()), bool((np.diff(found) < 0).all())
        ),
        COMMAND,
    )


def draw_largest(items: int, buckets: int, choices: int, seed: int) -> int:
    """Return the largest load if each item goes to the least loaded of K buckets at random."""
    rng = np.random.default_rng(seed)
    best = rng.integers(buckets, size=(items, choices), dtype=np.int32)
    loads, chosen = np.zeros(buckets, dtype=np.int64), np.empty(items, dtype=np.int32)
    place_least_loaded(np.arange(items), best, loads, chosen)
    return int(loads.max())


def _grow_simulated(options: Options, cells: Cells, mean: float) -> dict[int, dict[str, Any]]:
    """Return the largest loads of the process of Theorem 2, by the number of items."""
    seeds = range(1 if options.smoke else options.seeds)
    grown = {}
    for count in FEW if options.smoke else SIMULATED:
        buckets = round(count / mean)

        def measure(count: int = count, buckets: int = buckets) -> dict[str, list[int]]:
            return {
                f"K = {choices}": [draw_largest(count, buckets, choices, seed) for seed in seeds]
                for choices in (1, *CHOICES)
            }

        grown[count] = cells.measure(f"{count} drawn, {len(seeds)} seeds", measure)
    return grown


def _grow_trained(
    options: Options, cells: Cells, size: dict[str, Any], largest: dict[str, list[Any]]
) -> dict[int, dict[str, Any]]:
    """Return the largest loads with trained routers, by the number of items."""
    grown = {}
    for count in size["grown"]:
        found = cells.measure(
            f"{count} items", lambda count=count: _measure_choices(options, size, count, 0)
        )
        grown[count] = {name: [each["max"]] for name, each in found.items()}
    grown[size["items"]] = {name: [e["max"] for e in each] for name, each in largest.items()}
    return grown


# --- table, plot and claims ----------------------------------------------------------------------


def _tabulate(name: str, found: list[dict[str, float]], mean: float) -> list[str]:
    spread = [each["std"] for each in found]
    largest = [each["max"] / each["mean"] for each in found]
    paper = PAPER.get("hash" if name == "hash" else _read_choices(name))
    return [
        "2-universal hash" if name == "hash" else name,
        "" if paper is None else f"{paper} ({paper / PAPER_MEAN:.1%})",
        format_interval(spread, 2),
        f"{np.mean(spread) / mean:.1%}",
        format_interval(largest, 2),
    ]


def _read_choices(name: str) -> int:
    return int(name.removeprefix("K = ")) if name.startswith("K = ") else 0


def _tabulate_growth(drawn: dict[int, Any], trained: dict[int, Any], mean: float) -> list[str]:
    head = ["L", "K = 1, drawn"]
    for choices in CHOICES:
        head += [f"K = {choices}, drawn", "trained", "bound"]
    rows = []
    for count in sorted({*drawn, *trained}):
        row = [f"{count:,}", _most(drawn.get(count), "K = 1")]
        for choices in CHOICES:
            bound = bound_load(count, round(count / mean), choices)
            row += [
                _most(drawn.get(count), f"K = {choices}"),
                _most(trained.get(count), f"K = {choices}"),
                "none" if bound != bound else f"{bound:.1f}",
            ]
        rows.append(row)
    return format_table(head, rows)


def _most(found: dict[str, list[int]] | None, name: str) -> str:
    return "" if found is None else str(max(found[name]))


def _judge(
    spread: dict[str, list[dict[str, float]]],
    hashed: list[float],
    drawn: dict[int, Any],
    trained: dict[int, Any],
    mean: float,
) -> list[Claim]:
    found = {name: np.array([each["std"] for each in spread[name]]) for name in spread}
    means = {name: float(each.mean()) for name, each in found.items()}
    five, ten, many = (found[f"K = {choices}"] for choices in CHOICES)
    falls = (five > ten) & (ten > many)
    skew = {name: means[name] / means["hash"] for name in ("k-means", "LSH")}
    return [
        Claim(
            "The loads get more even as K grows (Table 3)",
            "17.08, 2.66, 0.46 with K = 5, 10, 25 (mean 236.7)",
            ", ".join(f"{means[f'K = {c}']:.2f}" for c in CHOICES) + f" (mean {mean:.0f})",
            choose_verdict(bool(falls.all()), bool(falls.any())),
            COMMAND,
        ),
        Claim(
            "K = 10 balances the loads better than a random hash does",
            "2.66 against 15.3",
            f"{means['K = 10']:.2f} against {means['hash']:.2f}",
            choose_verdict(bool((ten < found["hash"]).all()), means["K = 10"] < means["hash"]),
            COMMAND,
        ),
        Claim(
            "A 2-universal hash of 1,183,514 items into 5,000 buckets (Table 3)",
            "a standard deviation of 15.3",
            format_interval(hashed, 2),
            choose_verdict(abs(np.mean(hashed) - 15.3) < 0.5, 10 < np.mean(hashed) < 20),
            COMMAND,
        ),
        Claim(
            "k-means and LSH have extremely skewed loads (Section 2)",
            "no figure",
            f"a standard deviation {skew['k-means']:.1f} and {skew['LSH']:.1f} times a hash's",
            choose_verdict(min(skew.values()) > 2, max(skew.values()) > 2),
            COMMAND,
        ),
        _judge_bound("with K buckets drawn at random", drawn, mean),
        _judge_bound("with the K best buckets of trained routers", trained, mean),
    ]


def _judge_bound(how: str, grown: dict[int, Any], mean: float) -> Claim:
    """Compare the largest loads with the bound, wherever there is one."""
    kept, tried, worst = 0, 0, 0.0
    for count, found in grown.items():
        for choices in CHOICES:
            bound = bound_load(count, round(count / mean), choices)
            if bound == bound:
                largest = max(found[f"K = {choices}"])
                kept, tried = kept + (largest < bound), tried + 1
                worst = max(worst, largest / bound)
    return Claim(
        f"Theorem 2: the largest load stays below its bound, {how}",
        "proof only",
        f"in {kept} of {tried} cases; at most {worst:.2f} of the bound",
        choose_verdict(kept == tried, kept > 0),
        COMMAND,
    )


def _draw(
    options: Options,
    spread: dict[str, list[dict[str, float]]],
    drawn: dict[int, Any],
    trained: dict[int, Any],
    mean: float,
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    names = list(spread)
    values = [[each["std"] / mean for each in spread[name]] for name in names]
    paper = [PAPER.get("hash" if name == "hash" else _read_choices(name)) for name in names]
    left.bar(names, [np.mean(each) for each in values], color="tab:red", label="here")
    for place, each in enumerate(values):
        left.plot([place] * len(each), each, "k.", markersize=4)
    known = [(place, value / PAPER_MEAN) for place, value in enumerate(paper) if value]
    left.plot(*np.transpose(known), "D", color="tab:blue", label="paper (GloVe-100, B = 5,000)")
    left.set(yscale="log", ylabel="standard deviation / mean load", title="Loads by K (Table 3)")
    left.legend()
    colours = {1: "grey", 5: "tab:orange", 10: "tab:red", 25: "tab:purple"}
    for choices, colour in colours.items():
        for grown, style in ((drawn, "-"), (trained, "o:")):
            name, along = f"K = {choices}", sorted(grown)
            if name in grown[along[0]]:
                most = [max(grown[count][name]) / mean for count in along]
                label = name if style == "-" else None
                right.plot(along, most, style, color=colour, label=label, markersize=4)
    along = sorted(drawn)
    for choices in CHOICES:
        bound = [bound_load(count, round(count / mean), choices) / mean for count in along]
        if bound[0] == bound[0]:
            label = f"bound, K = {choices}"
            right.plot(along, bound, "--", color=colours[choices], label=label)
    right.set(xscale="log", xlabel="items L", ylabel="largest load / mean load")
    right.set_title("Theorem 2: drawn (lines), trained (points)")
    right.legend(fontsize=8, ncols=2, loc="upper right", bbox_to_anchor=(1, 0.94))
    figure.savefig(name_result(options, "loads", ".png"), dpi=150)
    plt.close(figure)
