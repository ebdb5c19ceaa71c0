"""The tables and plots of what was measured: queries per second at equal recall."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from vector_curves import LOWEST, TARGETS, Point, at, front, near
from vector_jobs import Job

NAMES = {
    "irli": "irli",
    "irli-queries": "irli, taught queries",
    "scann": "ScaNN",
    "lorann": "LoRANN",
    "faiss-ivfpqfs": "FAISS IVFPQ FastScan",
    "faiss-ivf": "FAISS IVFFlat",
    "faiss-hnsw": "FAISS HNSW",
    "hnswlib": "hnswlib",
    "usearch": "usearch",
}
# Told apart by those who do not see all colours, too: the palette of Okabe and Ito.
LOOKS = {
    "irli": ("#D55E00", "o"),
    "irli-queries": ("#000000", "o"),
    "scann": ("#0072B2", "s"),
    "lorann": ("#009E73", "D"),
    "faiss-ivfpqfs": ("#E69F00", "^"),
    "faiss-ivf": ("#8C6D31", "v"),
    "faiss-hnsw": ("#CC79A7", "P"),
    "hnswlib": ("#56B4E9", "X"),
    "usearch": ("#7F7F7F", "*"),
}
MODES = ("single", "batch")


def measured(folder: Path) -> list[dict[str, Any]]:
    """Read all timings, with the outcomes of their builds and rough passes."""
    runs = []
    for path in sorted((folder / "runs").glob("*/*/*-[0-9]*.json")):
        run = json.loads(path.read_text())
        built = json.loads((path.parent / "build.json").read_text())
        tried = json.loads((path.parent / f"{run['job']['queries']}-rough.json").read_text())
        runs.append(run | {"built": built, "memory_bytes": tried["memory_bytes"]})
    return runs


def points_of(run: dict[str, Any], mode: str, clock: str, kind: str = "points") -> list[Point]:
    """Return the points of a run for a mode: recall, mean of the repeats, their spread."""
    column = 0 if clock == "wall" else 1
    points = []
    for point in run[kind]:
        rates = np.array(point[mode])[:, column]
        said = {"recall": point[f"recall_{mode}"], "qps": rates.mean(), "spread": rates.std()}
        more = {"setting": point["setting"], "work": point["work"]}
        points.append(said | more | {"build": run["job"]["build"], "run": run})
    return points


def summary(run: dict[str, Any], targets: Iterable[float]) -> str:
    """Say what a run reaches, by CPU time."""
    said = []
    for mode in MODES:
        points = points_of(run, mode, "cpu")
        said.append(f"{mode} " + " / ".join(rate(at(points, t, "qps")) for t in targets))
    return ", ".join(said)


def leads(job: Job, share: float) -> bool:
    """Tell whether a build came near the best of its method in the rough pass, at any recall."""
    speeds = {}
    for path in (Path(job.folder) / "runs" / job.data).glob(f"*/{job.queries}-rough.json"):
        tried = json.loads(path.read_text())
        if tried["job"]["method"] == job.method:
            name = path.parent.name
            speeds[name] = [at(tried["points"], target, "qps") for target in TARGETS]
    best = np.fmax.reduce(list(speeds.values()))
    return any(mine >= share * top for mine, top in zip(speeds[job.name], best, strict=True))


Group = tuple[str, str, int]  # data, queries, threads


def grouped(runs: Sequence[dict[str, Any]]) -> dict[Group, dict[str, list[dict[str, Any]]]]:
    """Sort runs by data, queries and threads, then by method."""
    groups: dict[Group, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        job = run["job"]
        groups[job["data"], job["queries"], job["threads"]][job["method"]].append(run)
    return dict(sorted(groups.items()))


def write(folder: Path, clock: str) -> None:
    """Write report.md, report.json and the plots, and print the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = grouped(measured(folder))
    lines = [
        "# Queries per second at equal recall",
        "",
        f"Recall is recall10@10, time is {clock} time, mean ± spread of the repeats. Values are",
        "interpolated along the Pareto front over all builds and settings of a method.",
        "`x peer`: how often the best peer's at the same recall. *tuned*: settings chosen by",
        "`tune` on queries that are not reported, as recall reached: queries per second.",
    ]
    for group, methods in groups.items():
        lines += ["", "## {}, {}, {} thread(s)".format(*group), ""]
        lines += _speeds(methods, clock)
        lines += ["", *_costs(methods, clock)]
    lines += ["", *_noise(groups)]
    (folder / "report.md").write_text("\n".join(lines) + "\n")
    (folder / "report.json").write_text(json.dumps(_fronts(groups, clock), indent=1) + "\n")
    print("\n".join(lines), flush=True)
    for mode in MODES:
        for threads in sorted({threads for _, _, threads in groups}):
            panels = {k[:2]: v for k, v in groups.items() if k[2] == threads}
            plot(panels, mode, threads, clock, folder / f"{mode}-{threads}.png")


def _all(runs: list[dict[str, Any]], mode: str, clock: str, kind: str = "points") -> list[Point]:
    return [point for run in runs for point in points_of(run, mode, clock, kind)]


def _speeds(methods: dict[str, list[dict[str, Any]]], clock: str) -> list[str]:
    cases = [(mode, target) for mode in MODES for target in TARGETS]
    rows = []
    for method in (name for name in NAMES if name in methods):
        ours, cells = method.startswith("irli"), []
        for mode, target in cases:
            points = _all(methods[method], mode, clock)
            value, theirs = at(points, target, "qps"), _best_peer(methods, mode, target, clock)
            cell = rate(value, _spread(points, target))
            if ours and value == value and theirs:
                cell += f" (x peer {value / theirs:.2f})"
            cells.append(f"**{cell}**" if value == theirs else cell)
        rows.append([NAMES[method], *cells])
        if ours:
            rows.append([f"{NAMES[method]}, *tuned*", *_tuned(methods, method, clock)])
    return table(["method", *(f"{mode} {target:.2f}" for mode, target in cases)], rows)


def _tuned(methods: dict[str, list[dict[str, Any]]], method: str, clock: str) -> list[str]:
    """Say what `tune` reaches, and compare with the best peer at that very recall."""
    cells = []
    for mode in MODES:
        for point in _all(methods[method], mode, clock, "tuned"):
            cell = f"{point['recall']:.3f}: {rate(point['qps'], point['spread'] / point['qps'])}"
            theirs = _best_peer(methods, mode, point["recall"], clock)
            cells.append(f"{cell} (x peer {point['qps'] / theirs:.2f})" if theirs else cell)
    return cells


def _best_peer(
    methods: dict[str, list[dict[str, Any]]], mode: str, target: float, clock: str
) -> float:
    """Return the most queries per second of any peer at a recall; 0 if none gets there."""
    peers = [runs for method, runs in methods.items() if not method.startswith("irli")]
    speeds = [at(_all(runs, mode, clock), target, "qps") for runs in peers]
    return max((speed for speed in speeds if speed == speed), default=0.0)


def _spread(points: list[Point], target: float) -> float:
    """Return the relative spread of the two points that a value lies between."""
    along = front(points, "qps")
    above = next((i for i, p in enumerate(along) if p["recall"] >= target), len(along) - 1)
    around = along[max(0, above - 1) : above + 1]
    return float(np.mean([p["spread"] / p["qps"] for p in around])) if around else math.nan


def _costs(methods: dict[str, list[dict[str, Any]]], clock: str) -> list[str]:
    """What the build that leads at .95 in batches costs, and what a query of it does."""
    head = ["method at .95", "build", "setting", "build CPU s", "build wall s"]
    head += ["memory MB", "disk MB", "scanned", "exact", "router mult."]
    rows = []
    for method in (name for name in NAMES if name in methods):
        point = near(_all(methods[method], "batch", clock), 0.95, "qps")
        if point is None:
            continue
        run, work = point["run"], point["work"]
        built = run["built"]
        rows.append(
            [
                NAMES[method],
                _words(point["build"]) or "default",
                _words(point["setting"]),
                f"{built['build_cpu_seconds']:.0f}",
                f"{built['build_seconds']:.0f} ({built['build_threads']} threads)",
                f"{run['memory_bytes'] / 1e6:.0f}",
                f"{built['disk_bytes'] / 1e6:.0f}",
                *(
                    f"{work[name]:.0f}" if name in work else "-"
                    for name in ("scanned", "exact", "router_multiplications")
                ),
            ]
        )
    lines = table(head, rows)
    if any(
        run["built"]["source"] != run["job"]["version"] for runs in methods.values() for run in runs
    ):
        lines += [
            "",
            "An index here was built with another version of the source or of the library.",
        ]
    return lines


def _words(said: dict[str, Any]) -> str:
    def short(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return " ".join(f"{key}={short(value)}" for key, value in said.items())


def _noise(groups: dict[Group, dict[str, list[dict[str, Any]]]]) -> list[str]:
    """Say how even the machine was: the same product, timed beside every measurement."""
    speeds = [s for methods in groups.values() for rs in methods.values() for r in rs
              for s in r["machine_speed"]]  # fmt: skip
    if not speeds:
        return []
    low, high = np.percentile(speeds, [5, 95])
    return [
        f"A fixed matrix product ran at {low:.0f} to {high:.0f} GFLOP/s beside these (5 - 95 %)."
    ]


def _fronts(groups: dict[Group, dict[str, list[dict[str, Any]]]], clock: str) -> list[Any]:
    """Return the fronts as plain values."""
    found = []
    for (data, queries, threads), methods in groups.items():
        for method, runs in methods.items():
            for mode in MODES:
                head = {"data": data, "queries": queries, "threads": threads}
                along = front(_all(runs, mode, clock), "qps")
                kept = ("recall", "qps", "spread", "build", "setting", "work")
                points = [{name: point[name] for name in kept} for point in along]
                found.append(head | {"method": method, "mode": mode, "points": points})
    return found


def rate(value: float, spread: float = math.nan) -> str:
    """Write queries per second for people."""
    if value != value:
        return "-"
    text = f"{value:,.0f}" if value < 1000 else f"{value / 1000:.1f}k"
    return text if spread != spread else f"{text} ± {100 * spread:.0f} %"


def table(head: list[str], rows: list[list[Any]]) -> list[str]:
    """Return the lines of a Markdown table."""
    cells = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in row) + " |" for row in cells]


def plot(
    panels: dict[tuple[str, str], dict[str, list[dict[str, Any]]]],
    mode: str,
    threads: int,
    clock: str,
    path: Path,
) -> None:
    """Draw recall against queries per second, a panel for each data and query set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(3, len(panels) + 1)
    rows = -(-(len(panels) + 1) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(5 * columns, 4 * rows), squeeze=False)
    cells = list(axes.flat)
    for axis, ((data, queries), methods) in zip(cells, panels.items(), strict=False):
        for method in (name for name in NAMES if name in methods):
            _draw(axis, methods[method], method, mode, clock)
        axis.set_title(f"{data}, {queries}", fontsize=10)
        _dress(axis)
    for axis in cells[len(panels) :]:
        axis.axis("off")
    shown = [name for name in NAMES if any(name in methods for methods in panels.values())]
    marks = [
        plt.Line2D([], [], color=LOOKS[name][0], marker=LOOKS[name][1], label=NAMES[name])
        for name in shown
    ]
    if any(name.startswith("irli") for name in shown):
        ring = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "linestyle": ""}
        marks.append(plt.Line2D([], [], color="#555555", label="chosen by tune", **ring))
    cells[len(panels)].legend(handles=marks, loc="center", fontsize=11, frameon=False)
    kind = "one query at a time" if mode == "single" else "all queries in one call"
    figure.suptitle(f"Up and to the right is better: {kind}, {threads} thread(s)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw(axis: Any, runs: list[dict[str, Any]], method: str, mode: str, clock: str) -> None:
    colour, marker = LOOKS[method]
    along = [p for p in front(_all(runs, mode, clock), "qps") if p["recall"] >= LOWEST - 0.1]
    ours = method.startswith("irli")
    axis.plot(
        [_nines(p["recall"]) for p in along],
        [p["qps"] for p in along],
        color=colour,
        marker=marker,
        markersize=4.5,
        linewidth=2.4 if ours else 1.3,
        zorder=3 if ours else 2,
    )
    for point in _all(runs, mode, clock, "tuned"):
        place = _nines(point["recall"]), point["qps"]
        axis.plot(*place, "o", markersize=11, color=colour, markerfacecolor="none", zorder=4)


def _nines(recall: float) -> float:
    return -math.log10(max(1 - recall, 1e-3))


def _dress(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ticks = (0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
    axis.set_xticks([_nines(t) for t in ticks], [str(t) for t in ticks])
    axis.set_xlim(_nines(LOWEST), _nines(0.998))
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}k"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("recall10@10")
    axis.set_ylabel("queries per second")
    axis.grid(which="both", alpha=0.25)
