"""Tables 1 and 2 of the paper: precision and milliseconds of labels, beside other methods.

Every method is trained and queried in a process of its own, on the same rows. Nothing is chosen on
test rows. Times are CPU time of one row, among all rows in one call and one by one.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.commands import Options, choose_device
from bench.common import (
    ProcessFailed,
    count_cores,
    find_python,
    format_table,
    list_packages,
    run_module,
    say,
)
from bench.labels.compare import ENVIRONMENT, run_ours, run_peer
from bench.labels.data import PACKAGES, find_files
from bench.paper.files import LABELS, read_row_set
from bench.paper.part import (
    Cells,
    Claim,
    choose_verdict,
    format_interval,
    name_result,
    open_cells,
    use_log_scale,
    write_part,
)
from irli.labels.files.rows import read_rows, write_rows
from irli.labels.metrics import precision, precision_of_possible

KS = (1, 3, 5)
THREADS = min(2, count_cores())
# Training rows, at most, and the paper's recipe: R and B and the hidden layer fit the data.
SMALL: dict[str, tuple[int, dict[str, int]]] = {
    "delicious": (12_920, {"repetitions": 8, "buckets": 100, "hidden": 256}),
    "debian-deps": (12_000, {"repetitions": 8, "buckets": 600, "hidden": 256}),
}
FULL = {"repetitions": 32, "buckets": 20_000, "hidden": 1024}
SMOKE = {"repetitions": 2, "buckets": 16, "hidden": 16}
EPOCHS = {"epochs": 30, "repartition_every": 5}
# Few rows make few steps between two re-partitions, so that a higher rate than the paper's is
# tried, with few repetitions and on training rows that are held out.
RATES, FEW, HELD = (0.001, 0.01), 2, 0.1
GAIN = 0.1  # points of P@5 that count as more precise
# m buckets of each repetition. As in the paper's figure 2 and the authors' code, labels are sorted
# by the sum of their buckets' scores. Votes alone leave many ties.
PROBES: dict[str, dict[str, Any]] = {
    "IRLI, m = 5": {"probes": 5, "score": "probability"},
    "IRLI, m = 10": {"probes": 10, "score": "probability"},
    "IRLI, m = 10, by votes alone": {"probes": 10, "score": "votes"},
}
PEERS = {
    "omikuji-parabel": "Parabel (Omikuji)",
    "omikuji-bonsai": "Bonsai (Omikuji)",
    "xr-linear": "XR-Linear (PECOS)",
    "napkinxc": "eXtremeText's PLT (napkinXC)",
    "slice-like": "SLICE-like (PECOS)",
}
DEFAULT, MACH, PARABEL = "irli, default", "MACH", PEERS["omikuji-parabel"]

# The paper's Tables 1 and 2: P@1, P@3, P@5 and milliseconds on Wiki-500K and on Amazon-670K.
PUBLISHED: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "IRLI, m = 10": ((60.77, 46.09, 43.49, 0.56), (35.56, 32.68, 31.02, 1.08)),
    "IRLI, m = 5": ((60.69, 45.78, 43.15, 0.47), (35.13, 32.20, 30.58, 0.76)),
    "SLICE": ((59.89, 39.89, 30.12, 1.37), (37.77, 33.76, 30.7, 3.49)),
    "Parabel": ((59.34, 39.05, 29.35, 2.94), (33.93, 30.38, 27.49, 2.85)),
    "AnnexML": ((56.81, 36.78, 27.45), (26.36, 22.94, 20.59)),
    "PfastreXML": ((55.00, 36.14, 27.38, 6.36), (28.51, 26.06, 24.17, 19.35)),
    "SLEEC": ((30.86, 20.77, 15.23), (18.77, 16.5, 14.97)),
}

Figures = dict[str, Any]


def labels(options: Options) -> None:
    """Measure every method on every set; write table, plot and claims."""
    sets = LABELS if options.scale == "full" else tuple(SMALL)
    sets = sets[:1] if options.smoke else sets
    seeds = range(1 if options.smoke else options.seeds)
    sizes = _name_sizes(options, sets)
    cells = open_cells(options, "labels", sizes=sizes, epochs=EPOCHS, probes=PROBES)
    found = {name: _measure_set(options, cells, name, seeds) for name in sets}
    _draw(found, name_result(options, "labels", ".png"))
    rates = {name: cells.measured.get(f"{name}, P@1 by rate", {}) for name in sets}
    write_part(options, "labels", _write_lines(found, rates), _answer(found))


def _name_sizes(options: Options, sets: tuple[str, ...]) -> dict[str, Any]:
    return {name: [*_size(options, name)] for name in sets}


def _size(options: Options, name: str) -> tuple[int | None, dict[str, int]]:
    """Return how many training rows to use at most, and the settings of the paper's recipe."""
    if options.smoke:
        return 300, SMOKE
    return (None, FULL) if options.scale == "full" else SMALL[name]


# --- measuring -----------------------------------------------------------------------------------


def _measure_set(
    options: Options, cells: Cells, name: str, seeds: range
) -> dict[str, list[Figures]]:
    """Return the figures of each method on a set, one for each seed."""
    most, scaled = _size(options, name)
    with _prepare(options, name, most) as (train, test):
        truth = read_rows(test).labels
        found: dict[str, list[Figures]] = {}

        def keep(key: str, call: Callable[[], list[dict[str, Any]]]) -> None:
            if key.split(",")[0] in options.without and f"{name}, {key}" not in cells.measured:
                return
            runs = cells.measure(f"{name}, {key}", lambda: [_score(run, truth) for run in call()])
            for run in runs:
                found.setdefault(run["method"], []).append(run)

        paper = {"recipe": "paper-labels", "ranker": False, **EPOCHS, **scaled}
        if options.smoke:
            paper |= {"epochs": 2, "repartition_every": 1}
        if most is not None and not options.smoke:
            rates = cells.measure(f"{name}, P@1 by rate", lambda: _try_rates(train, paper))
            paper["learning_rate"] = float(max(rates, key=rates.get))
        default = {"buckets": 16, "hidden": 16, "epochs": 2} if options.smoke else {}
        for seed in seeds:
            keep(
                f"the paper's recipe, seed {seed}",
                lambda seed=seed: _learn_on(options, name, train, test, paper | {"seed": seed}),
            )
            keep(
                f"default, seed {seed}",
                lambda seed=seed: _run_irli(train, test, default | {"seed": seed}, {DEFAULT: {}}),
            )
            keep(
                f"MACH, seed {seed}",
                lambda seed=seed: _run_mach(train, test, scaled, seed, options.smoke),
            )
        installed = list_packages(find_python(ENVIRONMENT))
        for peer in PEERS:
            if PACKAGES[peer] not in installed and f"{name}, {peer}" not in cells.measured:
                say(f"{peer}: skipped, since {PACKAGES[peer]} is not installed (make peers).")
                continue
            try:
                keep(peer, lambda peer=peer: _run_peer(peer, train, test))
            except ProcessFailed as failure:
                say(f"{peer}: no result. {failure}")
    return found


@contextmanager
def _prepare(options: Options, name: str, most: int | None) -> Iterator[tuple[Path, Path]]:
    """Write training rows, drawn at random if there are more than `most`, and test rows."""
    if options.scale == "full" and not options.smoke:
        train, test = read_row_set(options.data, name)
    else:
        set_name = name if name in SMALL else "debian-deps"
        train, test = (read_rows(path) for path in find_files(options.data, set_name))
    features, wanted = train
    if most is not None and features.shape[0] > most:
        some = np.sort(np.random.default_rng(0).permutation(features.shape[0])[:most])
        features, wanted = features[some], wanted[some]
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "train.txt", Path(folder) / "test.txt"
        write_rows(paths[0], features, wanted)
        write_rows(paths[1], *test)
        yield paths


def _try_rates(train: Path, paper: dict[str, Any]) -> dict[str, float]:
    """Return the P@1 of the paper's recipe on held-out training rows for each learning rate."""
    features, wanted = read_rows(train)
    order = np.random.default_rng(1).permutation(features.shape[0])
    held, rest = np.split(order, [int(HELD * len(order))])
    way = PROBES["IRLI, m = 10"]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "rest.txt", Path(folder) / "held.txt"
        for path, rows in zip(paths, (rest, held), strict=True):
            write_rows(path, features[rows], wanted[rows])
        for rate in RATES:
            recipe = {**paper, "repetitions": FEW, "learning_rate": rate, "seed": 0}
            [run] = run_ours(*paths, THREADS, recipe, [way])
            found[str(rate)] = precision(np.asarray(run["predictions"]), wanted[held], 1)
    return found


def _learn_on(
    options: Options, name: str, train: Path, test: Path, recipe: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run the paper's recipe. What was learned before an interruption is not learned again."""
    folder = name_result(options, "labels", "-learning") / f"{name}-{recipe['seed']}"
    runs = _run_irli(train, test, recipe | {"checkpoint": str(folder)}, PROBES)
    shutil.rmtree(folder)
    return runs


def _run_irli(
    train: Path, test: Path, recipe: dict[str, Any], ways: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    learned = recipe | {"device": choose_device()}
    runs = run_ours(train, test, THREADS, learned, list(ways.values()))
    return [{**run, "method": method} for run, method in zip(runs, ways, strict=True)]


def _run_mach(
    train: Path, test: Path, scaled: dict[str, int], seed: int, smoke: bool
) -> list[dict[str, Any]]:
    epochs = 15 if smoke else EPOCHS["epochs"]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "predictions.npy"
        given = json.dumps({**scaled, "epochs": epochs, "seed": seed})
        figures = json.loads(
            run_module("bench.labels.mach", train, test, THREADS, given, found, threads=THREADS)
        )
        return [{**figures, "method": MACH, "predictions": np.load(found)}]


def _run_peer(peer: str, train: Path, test: Path) -> list[dict[str, Any]]:
    """Return the way of querying a peer as its library does; of several, the fastest."""
    runs = run_peer(peer, train, test, THREADS)
    # PECOS' other beams trade precision for time. The default is the first.
    same = runs[:1] if peer == "xr-linear" else runs
    return [{**min(same, key=lambda run: run["batch_ms"]), "method": PEERS[peer]}]


def _score(run: dict[str, Any], truth: Any) -> Figures:
    """Return what is kept of a run: both definitions of P@k, and times."""
    found = np.asarray(run["predictions"], dtype=np.int64)
    figures = {key: run[key] for key in ("method", "train_cpu_seconds", "batch_ms", "single_ms")}
    figures |= {f"P@{k}": 100 * precision(found, truth, k) for k in KS}
    return figures | {f"of possible@{k}": 100 * precision_of_possible(found, truth, k) for k in KS}


# --- reporting -----------------------------------------------------------------------------------


def _write_lines(
    found: dict[str, dict[str, list[Figures]]], rates: dict[str, dict[str, float]]
) -> list[str]:
    lines = [
        "P@k is hits / k. In brackets, hits / min(k, labels of the row): what the authors' code "
        "computes for k = 3 and 5. IRLI sorts labels by the sum of their buckets' scores, as in "
        "the paper's figure 2; votes alone leave many ties. Means over seeds with 95 % intervals; "
        "libraries of others run once. Milliseconds are CPU time of a row.",
        "",
    ]
    head = ["method", "P@1", "P@3", "P@5", "ms, all rows at once", "ms, one by one", "training s"]
    for name, methods in found.items():
        rows = []
        for method, runs in methods.items():
            shown = [format_interval([run["P@1"] for run in runs], 1)]
            for k in KS[1:]:
                possible = np.mean([run[f"of possible@{k}"] for run in runs])
                shown.append(
                    f"{format_interval([run[f'P@{k}'] for run in runs], 1)} [{possible:.1f}]"
                )
            times = [f"{_mean(runs, key):.3f}" for key in ("batch_ms", "single_ms")]
            whole = [run for run in runs if run["train_cpu_seconds"] is not None]  # uninterrupted
            trained = f"{_mean(whole, 'train_cpu_seconds'):.0f}" if whole else ""
            rows.append([method, *shown, *times, trained])
        lines += [f"**{name}**", "", *format_table(head, rows), ""]
        if rates[name]:
            told = ", ".join(
                f"{100 * p:.1f} at a rate of {rate}" for rate, p in rates[name].items()
            )
            lines += [
                f"P@1 of IRLI with {FEW} repetitions on held-out training rows: {told}. The better "
                "rate was taken.",
                "",
            ]
    lines += [
        "As the paper prints them, not measured here. Those of IRLI for k = 3 and 5 are by "
        "hits / min(k, labels); all others are by hits / k. For DSSM, which the paper cites, it "
        "prints none.",
        "",
    ]
    head = ["method, published", "Wiki-500K P@1/3/5", "ms", "Amazon-670K P@1/3/5", "ms"]
    rows = []
    for method, sets in PUBLISHED.items():
        cells = []
        for figures in sets:
            precisions = " / ".join(f"{value:.2f}" for value in figures[:3])
            cells += [precisions, f"{figures[3]:.2f}" if len(figures) > 3 else "-"]
        rows.append([method, *cells])
    return lines + format_table(head, rows)


COMMAND = "benchmarks/paper.py labels"


def _answer(found: dict[str, dict[str, list[Figures]]]) -> list[Claim]:
    """Return the claims of section 5.1 with our figures."""
    claims = []
    if all(PARABEL in methods for methods in found.values()):
        for method in ("IRLI, m = 5", DEFAULT):
            claims.append(_compare_speed(found, method))
    if all(set(methods) & set(PEERS.values()) for methods in found.values()):
        for method in ("IRLI, m = 10", DEFAULT):
            claims.append(_compare_precision(found, method))
        claims.append(_compare_definitions(found, "IRLI, m = 10"))
    gains = {  # of the same indexes, so seed by seed
        name: [
            ten["P@5"] - five["P@5"]
            for ten, five in zip(methods["IRLI, m = 10"], methods["IRLI, m = 5"], strict=True)
        ]
        for name, methods in found.items()
    }
    claims.append(
        Claim(
            "More buckets (m = 10 for 5) are more precise",
            "P@5 43.49 for 43.15 on Wiki-500K, 31.02 for 30.58 on Amazon-670K",
            "; ".join(f"{name}: P@5 by {format_interval(each, 2)}" for name, each in gains.items()),
            _judge([_lowest(each) > GAIN for each in gains.values()]),
            COMMAND,
        )
    )
    return claims


def _compare_speed(found: dict[str, dict[str, list[Figures]]], method: str) -> Claim:
    """Return the answer to "5 x faster inference than Parabel" for one method.

    It holds if both ways of asking are 5 x faster on every set, and in part if one of them is
    faster on every set.
    """
    told, fast, faster = [], [], []
    for name, methods in found.items():
        ratios = [
            _mean(methods[PARABEL], key) / _mean(methods[method], key)
            for key in ("batch_ms", "single_ms")
        ]
        told.append(f"{name}: {ratios[0]:.1f} x all rows at once, {ratios[1]:.1f} x one by one")
        fast.append(min(ratios) >= 5)
        faster.append(max(ratios) > 1)
    return Claim(
        f"5 x faster inference than Parabel ({method})",
        "2.94 ms for .47 on Wiki-500K, 2.85 for .76 on Amazon-670K",
        "; ".join(told),
        choose_verdict(all(fast), all(faster)),
        COMMAND,
    )


def _compare_precision(found: dict[str, dict[str, list[Figures]]], method: str) -> Claim:
    """Return the answer to "more precise than the best baseline" for one method."""
    told, better = [], []
    for name, methods in found.items():
        others = {key: runs for key, runs in methods.items() if key in PEERS.values()}
        best = max(others, key=lambda key: _mean(others[key], "P@1"))
        ours = [run["P@1"] for run in methods[method]]
        theirs = _mean(others[best], "P@1")
        told.append(f"{name}: P@1 {format_interval(ours, 1)}, {best} {theirs:.1f}")
        better.append(_lowest(ours) > theirs)
    return Claim(
        f"More precise than the best baseline ({method})",
        "P@1 60.77 for SLICE's 59.89 on Wiki-500K, 35.56 for 37.77 on Amazon-670K",
        "; ".join(told),
        _judge(better),
        COMMAND,
    )


def _compare_definitions(found: dict[str, dict[str, list[Figures]]], method: str) -> Claim:
    """Return the answer to "P@5 far above the best baseline's", by one definition for both."""
    told, better = [], []
    for name, methods in found.items():
        others = {key: runs for key, runs in methods.items() if key in PEERS.values()}
        best = max(others, key=lambda key: _mean(others[key], "P@5"))
        ours, theirs = methods[method], _mean(others[best], "P@5")
        told.append(
            f"{name}: {format_interval([run['P@5'] for run in ours], 1)}, {best} {theirs:.1f}; "
            f"by hits / min(5, labels) ours would read {_mean(ours, 'of possible@5'):.1f}"
        )
        better.append(_lowest([run["P@5"] for run in ours]) > theirs)
    return Claim(
        f"P@5 above the best baseline's ({method})",
        "43.49 for SLICE's 30.12 on Wiki-500K, 31.02 for 30.7 on Amazon-670K; ours by "
        "hits / min(5, labels), SLICE's by hits / 5",
        "; ".join(told),
        _judge(better),
        COMMAND,
    )


def _judge(answers: list[bool]) -> str:
    if all(answers):
        return "holds"
    return "holds in part" if any(answers) else "does not hold here"


def _mean(runs: list[Figures], key: str) -> float:
    return float(np.mean([run[key] for run in runs]))


def _lowest(values: list[float]) -> float:
    """Return the lower end of the interval of a mean; the value itself, if there is one only."""
    if len(values) < 2:
        return values[0]
    mean, half = format_interval(values, 6).split(" ± ")
    return float(mean) - float(half)


def _draw(found: dict[str, dict[str, list[Figures]]], path: Path) -> None:
    """Plot precision against milliseconds, one panel for each set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    width = 5.2 * len(found)
    figure, axes = plt.subplots(
        1, len(found), figsize=(width, 4.6), squeeze=False, constrained_layout=True
    )
    names = list(dict.fromkeys(method for methods in found.values() for method in methods))
    shapes = {name: "o" if "IRLI" in name or "irli" in name else "s" for name in names}
    colours = {name: plt.get_cmap("tab10")(number % 10) for number, name in enumerate(names)}
    for axis, (name, methods) in zip(axes[0], found.items(), strict=True):
        for method, runs in methods.items():
            point = _mean(runs, "batch_ms"), _mean(runs, "P@1")
            axis.plot(*point, shapes[method], color=colours[method], label=method, markersize=8)
        use_log_scale(axis)
        axis.set(xlabel="CPU ms of a row, all rows at once", ylabel="P@1 (%)")
        axis.set_title(name)
        axis.grid(alpha=0.3)
    handles, texts = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower center", ncols=3, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
