"""Filtered search: recall and queries per second, by the kind of filter and the share it allows.

Our index searches as `fit` left it. The peers are tuned for each filter, on other queries than the
reported ones: the fewest probes of IVFFlat with a bitmap, the fastest way to compare all allowed
items, the least ef of hnswlib.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.commands import Options, find_file
from bench.common import format_table, say, write_json
from bench.smoke import CODES, SHORT
from bench.vectors.builds import builds
from bench.vectors.compare import end, find_versions, is_done
from bench.vectors.curves import K
from bench.vectors.data import FILES, find_truth, write_arrays
from bench.vectors.filtered import HELD, MODES, REPORTED, TARGET, count_held
from bench.vectors.jobs import Job
from bench.vectors.report import format_rate

SHARES = (0.5, 0.1, 0.01, 0.001)  # of the items that a filter allows
METHODS = ("irli", "faiss-ivf", "faiss-flat", "hnswlib")
NAMES = {
    "faiss-ivf": "FAISS IVFFlat, bitmap",
    "faiss-flat": "exact over the allowed",
    "hnswlib": "hnswlib",
}
Case = dict[str, Any]


def filters(options: Options) -> None:
    """Measure whatever is not done yet, and write the tables."""
    folder = Path(options.results) / "vectors"
    names = options.only or (["wordnet"] if options.smoke else ["glove", "wordnet"])
    methods = METHODS[:-1] if options.smoke else METHODS
    failed: list[str] = []
    found: dict[str, list[Case]] = {}
    for name in names:
        about = write_arrays(find_file(options.data, FILES[name]), folder)
        _write_filters(folder / "data" / about["name"])
        found[name] = []
        for method, version in find_versions(options.methods or methods).items():
            for build in _list_builds(about, method, options):
                job = Job(
                    folder=str(folder),
                    data=about["name"],
                    method=method,
                    build=build,
                    stage="filtered",
                    repeats=1 if options.smoke else 3,
                    version=version,
                )
                if is_done(job, options, failed):
                    outcome = job.outcome() or {}
                    found[name] += [
                        {"method": method, "build": build, **case} for case in outcome["cases"]
                    ]
    _report(folder, found, options.clock)
    end(failed)


def _list_builds(about: dict[str, Any], method: str, options: Options) -> list[dict[str, Any]]:
    if method == "irli":
        return [SHORT["default"] | CODES if options.smoke else {}]
    if method == "faiss-flat":
        return [{"factory": "Flat"}]
    made = builds(method, about["count"], about["dim"], about["metric"], learn=False)
    return made[:1] if method == "hnswlib" or options.smoke else made[:2]


# --- filters -------------------------------------------------------------------------------------


def _write_filters(folder: Path) -> None:
    """Write the allowed items (N,) of each filter, and the true answers to all queries."""
    place = folder / "filters"
    if place.exists():
        return
    base, queries = (np.load(folder / f"{name}.npy") for name in ("base", "test"))
    queries = queries[: HELD + REPORTED]
    part = folder / "filters.part"
    part.mkdir(exist_ok=True)
    for kind, score in _score_items(base, queries[: count_held(len(queries))]):
        order = np.argsort(-score, kind="stable")
        for share in SHARES:
            rows = np.sort(order[: max(2 * K, round(share * len(base)))])
            allowed = np.zeros(len(base), dtype=bool)
            allowed[rows] = True
            truth = rows[find_truth(base[rows], queries, "cosine")]
            np.savez(part / f"{kind}-{share}.npz", allowed=allowed, truth=truth)
    part.rename(place)


def _score_items(base: np.ndarray, held: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield kinds of filters and scores (N,): a filter allows the items with the largest ones."""
    rng = np.random.default_rng(0)
    liking = base @ held.mean(axis=0)
    yield "random", rng.random(len(base))
    yield "region", base @ base[rng.integers(len(base))]
    yield "coordinate", base[:, 0]
    yield "near", liking
    yield "far", -liking


# --- tables --------------------------------------------------------------------------------------


def _report(folder: Path, found: dict[str, list[Case]], clock: str) -> None:
    """Write filters.md and filters.json, and print the tables."""
    lines = [
        "# Filtered search",
        "",
        f"Recall10@10 and queries per second ({clock} time) on one thread, by kind of filter and",
        "share of the items that it allows. `random`: drawn at random. `region`: the nearest to an",
        "item. `coordinate`: the largest in one coordinate. `near`, `far`: the most and the least",
        "similar to the mean of the queries. All filters are prepared before the clock starts.",
        "irli searches as `fit` leaves it. The peers are tuned to recall",
        f"{TARGET} for each filter, on other queries. In brackets: how many times faster irli is.",
    ]
    summary = []
    for name, cases in found.items():
        for mode in MODES:
            rows, values = _tabulate(cases, mode, 0 if clock == "wall" else 1)
            head = [f"{name}, {mode}", "allowed", "irli", *NAMES.values()]
            lines += ["", *format_table(head, rows)]
            summary += [{"data": name, "mode": mode, **value} for value in values]
    (folder / "filters.md").write_text("\n".join(lines) + "\n")
    write_json(folder / "filters.json", {"clock": clock, "filters": summary})
    say("\n".join(lines))


def _tabulate(cases: list[Case], mode: str, column: int) -> tuple[list[list[str]], list[Any]]:
    """Return a row for each filter: the fastest build of each method that reaches the recall."""
    rows, values = [], []
    for kind, share in dict.fromkeys((case["kind"], case["share"]) for case in cases):
        best: dict[str, Case] = {}
        for case in cases:
            if (case["kind"], case["share"]) != (kind, share) or mode not in case:
                continue
            point = {
                "recall": case[mode]["recall"],
                "qps": float(np.mean(np.array(case[mode]["rates"])[:, column])),
                "reached": case[mode]["held_recall"] >= TARGET,
                "setting": case["build"] | case[mode]["setting"],
            }
            before = best.get(case["method"])
            if before is None or (point["reached"], point["qps"]) > (
                before["reached"],
                before["qps"],
            ):
                best[case["method"]] = point
        ours = best.get("irli")
        cells = [f"{ours['recall']:.3f}: {format_rate(ours['qps'])}" if ours else "-"]
        for method in NAMES:
            cells.append(_format_peer(best.get(method), ours))
        rows.append([kind, f"{100 * share:g} %", *cells])
        values.append({"kind": kind, "share": share, "methods": best})
    return rows, values


def _format_peer(point: Case | None, ours: Case | None) -> str:
    if point is None:
        return "-"
    times = ours["qps"] / point["qps"] if ours else math.nan
    return f"{point['recall']:.3f}: {format_rate(point['qps'])} ({times:.2f})"
