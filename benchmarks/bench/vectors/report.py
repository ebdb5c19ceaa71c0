"""Tables and plots of what was measured: queries per second at equal recall."""

from __future__ import annotations

import json
import math
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import REPOSITORY, RESULTS, format_table, say, write_json
from bench.vectors.curves import LOWEST, TARGETS, Point, at, front, near
from bench.vectors.jobs import Job

NAMES = {
    "irli": "irli",
    "irli-queries": "irli, sample queries",
    "scann": "ScaNN",
    "lorann": "LoRANN",
    "faiss-ivfpqfs": "FAISS IVFPQ FastScan",
    "faiss-ivf": "FAISS IVFFlat",
    "faiss-hnsw": "FAISS HNSW",
    "hnswlib": "hnswlib",
    "usearch": "usearch",
}
# The palette of Okabe and Ito, which the colour-blind can tell apart.
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


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """Return all timings, with the outcomes of their builds and rough passes."""
    runs = []
    for path in sorted((folder / "runs").glob("*/*/*-[0-9]*.json")):
        run = json.loads(path.read_text())
        built = json.loads((path.parent / "build.json").read_text())
        tried = json.loads((path.parent / f"{run['job']['queries']}-rough.json").read_text())
        runs.append(run | {"built": built, "memory_bytes": tried["memory_bytes"]})
    return runs


def list_points(run: dict[str, Any], mode: str, clock: str, kind: str = "points") -> list[Point]:
    """Return the points of a run: recall, and mean and spread of the repeats."""
    column = 0 if clock == "wall" else 1
    points = []
    for point in run.get(kind, []):
        rates = np.array(point[mode])[:, column]
        points.append(
            {
                "recall": point[f"recall_{mode}"],
                "qps": rates.mean(),
                "spread": rates.std(),
                "setting": point["setting"],
                "work": point["work"],
                "build": run["job"]["build"],
                "run": run,
            }
        )
    return points


def summarize(run: dict[str, Any], targets: Iterable[float]) -> str:
    """Return a line about a run: its speed at the targets, by CPU time."""
    parts = []
    for mode in MODES:
        points = list_points(run, mode, "cpu")
        parts.append(f"{mode} " + " / ".join(format_rate(at(points, t, "qps")) for t in targets))
    return ", ".join(parts)


def leads(job: Job, share: float) -> bool:
    """Whether a build came near the best of its method at any target of the rough pass."""
    speeds = {}
    for path in (Path(job.folder) / "runs" / job.data).glob(f"*/{job.queries}-rough.json"):
        tried = json.loads(path.read_text())
        if tried["job"]["method"] == job.method:
            name = path.parent.name
            speeds[name] = [at(tried["points"], target, "qps") for target in TARGETS]
    best = np.fmax.reduce(list(speeds.values()))
    return any(mine >= share * top for mine, top in zip(speeds[job.name], best, strict=True))


Group = tuple[str, str, int]  # data, queries, threads


def group_runs(runs: Sequence[dict[str, Any]]) -> dict[Group, dict[str, list[dict[str, Any]]]]:
    """Sort runs by data, queries and threads, then by method."""
    groups: dict[Group, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        job = run["job"]
        groups[job["data"], job["queries"], job["threads"]][job["method"]].append(run)
    return dict(sorted(groups.items()))


def write_report(folder: Path, clock: str) -> None:
    """Write report.md, report.json and the plots, and print the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = group_runs(read_runs(folder))
    lines = [
        "# Queries per second at equal recall",
        "",
        f"Recall is recall10@10. Times are {clock} time, mean ± spread of the repeats. Values are",
        "interpolated along the Pareto front over all builds and settings of a method, so every",
        "method's settings were tuned on the test queries. `x peer` is the ratio to the best peer",
        "at the same recall. Rows *tuned* show the recall that was reached and the queries per",
        "second; there `tune` chose the settings on other queries. The first tables show our index",
        "as `fit` leaves it, the peers at the recall that it reaches, and the ratio to each.",
    ]
    for mode in MODES:
        lines += ["", *_tabulate_defaults(groups, mode, clock)]
    for group, methods in groups.items():
        lines += ["", "## {}, {}, {} thread(s)".format(*group), ""]
        lines += _tabulate_speeds(methods, clock)
        lines += ["", *_tabulate_costs(methods, clock)]
    lines += ["", *_describe_noise(groups)]
    (folder / "report.md").write_text("\n".join(lines) + "\n")
    write_json(folder / "report.json", _list_fronts(groups, clock))
    say("\n".join(lines))
    for mode in MODES:
        for threads in sorted({threads for _, _, threads in groups}):
            panels = {k[:2]: v for k, v in groups.items() if k[2] == threads}
            path = folder / f"{mode}-{threads}.png"
            plot(panels, mode, threads, clock, path)
            if folder == RESULTS / "vectors" and threads == 1:  # the page on performance shows it
                shutil.copyfile(path, REPOSITORY / "docs" / "pictures" / f"vectors-{mode}.png")


def _tabulate_defaults(
    groups: dict[Group, dict[str, list[dict[str, Any]]]], mode: str, clock: str
) -> list[str]:
    """Show what our index does as `fit` leaves it, and the peers at the recall that it reaches."""
    peers = [name for name in NAMES if any(name in methods for methods in groups.values())]
    peers = [name for name in peers if not name.startswith("irli")]
    rows = []
    for (data, queries, threads), methods in groups.items():
        ours = [run for name in methods if name.startswith("irli") for run in methods[name]]
        for point in _join_points(ours, mode, clock, "default"):
            taught = ", sample queries" if point["build"].get("sample_queries") else ""
            speeds = [
                at(_join_points(methods.get(name, []), mode, clock), point["recall"], "qps")
                for name in peers
            ]
            rows.append(
                [
                    f"{data}, {queries}{taught}, {threads} thread(s)",
                    f"{point['recall']:.3f}",
                    format_rate(point["qps"]),
                    *(
                        f"{format_rate(s)} ({point['qps'] / s:.2f})" if s == s else "-"
                        for s in speeds
                    ),
                ]
            )
    head = [f"as fit leaves it, {mode}", "recall", "irli", *(NAMES[name] for name in peers)]
    return format_table(head, rows) if rows else []


def _join_points(
    runs: list[dict[str, Any]], mode: str, clock: str, kind: str = "points"
) -> list[Point]:
    """Return the points of several runs together."""
    return [point for run in runs for point in list_points(run, mode, clock, kind)]


def _tabulate_speeds(methods: dict[str, list[dict[str, Any]]], clock: str) -> list[str]:
    cases = [(mode, target) for mode in MODES for target in TARGETS]
    rows = []
    for method in (name for name in NAMES if name in methods):
        ours, cells = method.startswith("irli"), []
        for mode, target in cases:
            points = _join_points(methods[method], mode, clock)
            value, theirs = at(points, target, "qps"), _find_best_peer(methods, mode, target, clock)
            cell = format_rate(value, _find_spread(points, target))
            if ours and value == value and theirs:
                cell += f" (x peer {value / theirs:.2f})"
            cells.append(f"**{cell}**" if value == theirs else cell)
        rows.append([NAMES[method], *cells])
        if ours:
            rows.append([f"{NAMES[method]}, *tuned*", *_format_tuned(methods, method, clock)])
    return format_table(["method", *(f"{mode} {target:.2f}" for mode, target in cases)], rows)


def _format_tuned(methods: dict[str, list[dict[str, Any]]], method: str, clock: str) -> list[str]:
    """Return cells with what `tune` reaches, beside the best peer at that same recall."""
    cells = []
    for mode in MODES:
        for point in _join_points(methods[method], mode, clock, "tuned"):
            spread = point["spread"] / point["qps"]
            cell = f"{point['recall']:.3f}: {format_rate(point['qps'], spread)}"
            theirs = _find_best_peer(methods, mode, point["recall"], clock)
            cells.append(f"{cell} (x peer {point['qps'] / theirs:.2f})" if theirs else cell)
    return cells


def _find_best_peer(
    methods: dict[str, list[dict[str, Any]]], mode: str, target: float, clock: str
) -> float:
    """Return the most queries per second of any peer at a recall; 0 if none gets there."""
    peers = [runs for method, runs in methods.items() if not method.startswith("irli")]
    speeds = [at(_join_points(runs, mode, clock), target, "qps") for runs in peers]
    return max((speed for speed in speeds if speed == speed), default=0.0)


def _find_spread(points: list[Point], target: float) -> float:
    """Return the relative spread of the two points that a value lies between."""
    along = front(points, "qps")
    above = next((i for i, p in enumerate(along) if p["recall"] >= target), len(along) - 1)
    around = along[max(0, above - 1) : above + 1]
    return float(np.mean([p["spread"] / p["qps"] for p in around])) if around else math.nan


def _tabulate_costs(methods: dict[str, list[dict[str, Any]]], clock: str) -> list[str]:
    """Show what the fastest build at recall .95 in batches costs, and what its queries do."""
    head = ["method at .95", "build", "setting", "build CPU s", "build wall s"]
    head += ["build peak MB", "memory MB", "disk MB", "scanned", "exact", "router mult."]
    rows = []
    for method in (name for name in NAMES if name in methods):
        point = near(_join_points(methods[method], "batch", clock), 0.95, "qps")
        if point is None:
            continue
        run, work = point["run"], point["work"]
        built = run["built"]
        rows.append(
            [
                NAMES[method],
                _format_settings(point["build"]) or "default",
                _format_settings(point["setting"]),
                f"{built['build_cpu_seconds']:.0f}",
                f"{built['build_seconds']:.0f} ({built['build_threads']} threads)",
                f"{built['build_peak_bytes'] / 1e6:.0f}",
                f"{run['memory_bytes'] / 1e6:.0f}",
                f"{built['disk_bytes'] / 1e6:.0f}",
                *(
                    f"{work[name]:.0f}" if name in work else "-"
                    for name in ("scanned", "exact", "router_multiplications")
                ),
            ]
        )
    lines = format_table(head, rows)
    if any(
        run["built"]["source"] != run["job"]["version"] for runs in methods.values() for run in runs
    ):
        lines += [
            "",
            "At least one of these indexes was built by another version of its library.",
        ]
    return lines


def _format_settings(settings: dict[str, Any]) -> str:
    def short(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return " ".join(f"{key}={short(value)}" for key, value in settings.items())


def _describe_noise(groups: dict[Group, dict[str, list[dict[str, Any]]]]) -> list[str]:
    """Say how steady the machine was, by the matrix product timed beside every measurement."""
    runs = [run for methods in groups.values() for each in methods.values() for run in each]
    speeds = [speed for run in runs for speed in run["machine_speed"]]
    if not speeds:
        return []
    low, high = np.percentile(speeds, [5, 95])
    return [
        f"A fixed matrix product, timed beside these, ran at {low:.0f} to {high:.0f} GFLOP/s "
        "(5 to 95 %)."
    ]


def _list_fronts(groups: dict[Group, dict[str, list[dict[str, Any]]]], clock: str) -> list[Any]:
    """Return the Pareto fronts as plain values."""
    found = []
    for (data, queries, threads), methods in groups.items():
        for method, runs in methods.items():
            for mode in MODES:
                head = {"data": data, "queries": queries, "threads": threads}
                along = front(_join_points(runs, mode, clock), "qps")
                kept = ("recall", "qps", "spread", "build", "setting", "work")
                points = [{name: point[name] for name in kept} for point in along]
                found.append(head | {"method": method, "mode": mode, "points": points})
    return found


def format_rate(value: float, spread: float = math.nan) -> str:
    """Return queries per second as text."""
    if value != value:
        return "-"
    text = f"{value:,.0f}" if value < 1000 else f"{value / 1000:.1f}k"
    return text if spread != spread else f"{text} ± {100 * spread:.0f} %"


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
        _label_axes(axis)
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
    along = front(_join_points(runs, mode, clock), "qps")
    along = [point for point in along if point["recall"] >= LOWEST - 0.1]
    ours = method.startswith("irli")
    axis.plot(
        [_scale_recall(p["recall"]) for p in along],
        [p["qps"] for p in along],
        color=colour,
        marker=marker,
        markersize=4.5,
        linewidth=2.4 if ours else 1.3,
        zorder=3 if ours else 2,
    )
    for point in _join_points(runs, mode, clock, "tuned"):
        place = _scale_recall(point["recall"]), point["qps"]
        axis.plot(*place, "o", markersize=11, color=colour, markerfacecolor="none", zorder=4)


def _scale_recall(recall: float) -> float:
    return -math.log10(max(1 - recall, 1e-3))


def _label_axes(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ticks = (0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
    axis.set_xticks([_scale_recall(t) for t in ticks], [str(t) for t in ticks])
    axis.set_xlim(_scale_recall(LOWEST), _scale_recall(0.998))
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}k"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("recall10@10")
    axis.set_ylabel("queries per second")
    axis.grid(which="both", alpha=0.25)
