"""Runbooks: recall, work and cost of indexes that change, step by step."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.commands import Options, find_file
from bench.common import (
    ProcessFailed,
    find_python,
    format_table,
    list_packages,
    run_module,
    say,
    write_json,
)
from bench.living.methods import METHODS
from bench.living.runbooks import KINDS, ROWS, make_runbook, order_rows, read_runbook, write_runbook
from bench.living.worker import Live, find_tenth
from bench.vectors.data import FILES, normalize
from irli.base.vector_files import read_vectors

PEERS = ".venv-living-peers"
COMPARED = 4  # searches at which there is a fresh fit beside
QUERIES, OTHERS = 1000, 500
HEAD = [
    "data, runbook",
    "method",
    "recall, mean",
    "lowest step",
    "1 % of queries",
    "us a query",
    "changes/s",
    "with maintenance",
    "largest / mean",
    "fits",
]
FRESH_HEAD = [
    "data, runbook",
    "method",
    "recall at equal work, less fresh: mean",
    "lowest",
    "work at equal recall / fresh: mean",
    "highest",
    "as it stands: recall less fresh, mean",
    "work / fresh, mean",
]
Run = dict[str, Any]


def runbook(options: Options) -> None:
    """Make the runbooks, or take the methods through them and write the tables."""
    kinds = options.kinds or KINDS
    names = options.only or (["wordnet"] if options.smoke else ["glove", "wordnet"])
    folder = Path(options.results) / "living"
    for name in names:
        for kind in kinds:
            place = _prepare(options, folder / "data", name, kind)
            if options.act == "run":
                _run(options, place, folder / "runs", name, kind)
    if options.act == "run":
        _report(folder)


def _prepare(options: Options, folder: Path, name: str, kind: str) -> Path:
    """Write runbook, vectors, queries and truth, once; return their folder."""
    rows = 600 if options.smoke else options.rows.get(name, ROWS[name])
    place = folder / f"{name}-{rows}-{kind}"
    if (place / "truth.npy").exists():
        return place
    vectors, cluster = order_rows(options.data, name, kind, rows)
    steps = make_runbook(kind, cluster)
    path = find_file(options.data, FILES[name])
    write_runbook(place / "runbook.yaml", f"{name}-{rows}-{kind}", steps)
    steps = read_runbook(place / "runbook.yaml", f"{name}-{rows}-{kind}")
    asked = normalize(np.array(read_vectors(path, key="test")))
    asked = asked[np.random.default_rng(2).permutation(len(asked))]
    queries, others = asked[:QUERIES], asked[QUERIES : QUERIES + OTHERS]
    if options.smoke:
        queries, others = asked[:50], asked[50:]
    live, truth, most = np.zeros(len(vectors), dtype=bool), [], 0
    for step in steps:
        if step["operation"] == "search":
            truth.append(find_tenth(vectors[live], queries))
        else:
            live[step["start"] : step["end"]] = step["operation"] == "insert"
            most = max(most, int(live.sum()))
    searches = len(truth)
    compared = np.linspace(searches - 1, 0, COMPARED, endpoint=False).astype(int).tolist()
    plan = {"steps": steps, "most": most, "compared": sorted(compared)}
    (place / "steps.json").write_text(json.dumps(plan))
    np.save(place / "vectors.npy", vectors)
    np.save(place / "queries.npy", queries)
    np.save(place / "others.npy", others)
    np.save(place / "truth.npy", np.array(truth))
    say(f"{place.name}: {len(steps)} steps, {searches} searches, at most {most} items")
    return place


def _run(options: Options, place: Path, folder: Path, name: str, kind: str) -> None:
    """Take each method through a runbook, in a process of its own."""
    peers = find_python(PEERS)
    versions = list_packages(peers)
    for method in options.methods or ["fresh", *METHODS]:
        out = folder / f"{place.name}-{method}.json"
        if out.exists() and not options.fresh:
            continue
        out.parent.mkdir(parents=True, exist_ok=True)
        ours = method == "fresh" or method.startswith("irli")
        if not ours and METHODS[method].package not in versions:
            say(f"{method}: skipped, since {METHODS[method].package} is not installed")
            continue
        python = sys.executable if ours else peers
        if options.smoke:
            os.environ["BENCH_SMOKE"] = "1"
        try:
            run_module("bench.living.worker", place, method, out, python=python, threads=1)
        except ProcessFailed as error:
            say(f"{method} on {place.name}: {error}")
            continue
        found = json.loads(out.read_text())
        version = None if ours else versions[METHODS[method].package]
        about = {"data": name, "kind": kind, "rows": len(Live(place).vectors), "version": version}
        write_json(out, about | found)
        say(f"{place.name}, {method}: done")


# --- tables --------------------------------------------------------------------------------------


def _report(folder: Path) -> None:
    """Write the tables of all that was run."""
    runs: dict[str, dict[str, Run]] = {}
    for path in sorted((folder / "runs").glob("*.json")):
        run = json.loads(path.read_text())
        title = f"{run['data']}, {run['kind']}, {run['rows']:,} rows"
        runs.setdefault(title, {})[run["method"]] = run
    order = [*METHODS]
    rows, beside = [], []
    for title, found in runs.items():
        for method in [name for name in order if name in found]:
            rows.append([title, method, *_summarize(found[method])])
            if "fresh" in found and method.startswith("irli"):
                beside.append([title, method, *_compare(found[method], found["fresh"])])
    text = [*format_table(HEAD, rows), "", *format_table(FRESH_HEAD, beside)]
    (folder / "runbook.md").write_text("\n".join(text) + "\n")
    say("\n" + "\n".join(text) + "\n")
    write_json(folder / "runbook.json", {title: _trim(found) for title, found in runs.items()})


def _summarize(run: Run) -> list[str]:
    searches = [each for each in run["searches"] if "recall" in each]
    recalls = [each["recall"] for each in searches]
    last = searches[-1]
    kept = last["change_seconds"] + last["maintain_seconds"]
    rate = last["changes"] / max(last["change_seconds"], 1e-9)
    balance = [each["balance"] for each in searches if "balance" in each]
    return [
        f"{np.mean(recalls):.3f}",
        f"{min(recalls):.3f}",
        f"{np.mean([each['lowest'] for each in searches]):.2f}",
        f"{np.mean([each['microseconds'] for each in searches]):.0f}",
        f"{rate:,.0f}",
        f"{last['changes'] / max(kept, 1e-9):,.0f}",
        f"{max(balance):.2f}" if balance else "",
        str(last.get("refreshes", "")),
    ]


def _compare(run: Run, fresh: Run) -> list[str]:
    lost, dearer, less, more = [], [], [], []
    for each in fresh["searches"]:
        [recall, work], searches = each["at"], run["searches"]
        there = searches[each["search"]]
        lost.append(find_recall(there["curve"], work) - recall)
        dearer.append(find_work(there["curve"], recall) / work)
        less.append(there["stands"][0] - each["stands"][0])
        more.append(there["stands"][1] / each["stands"][1])
    return [
        f"{np.mean(lost):+.3f}",
        f"{min(lost):+.3f}",
        f"{np.mean(dearer):.2f}",
        f"{max(dearer):.2f}",
        f"{np.mean(less):+.3f}",
        f"{np.mean(more):.2f}",
    ]


def find_recall(curve: list[list[float]], work: float) -> float:
    """Return the recall at some work, along a curve of (recall, work) by rising work."""
    recalls, works = np.transpose(curve)
    return float(np.interp(np.log(work), np.log(works), np.maximum.accumulate(recalls)))


def find_work(curve: list[list[float]], recall: float) -> float:
    """Return the work at some recall, along a curve of (recall, work) by rising work.

    Examples
    --------
    >>> round(find_work([[0.8, 10.0], [0.9, 1000.0]], 0.85))
    100
    """
    recalls, works = np.transpose(curve)
    best = np.maximum.accumulate(recalls)
    if recall > best[-1]:
        return float("inf")
    return float(np.exp(np.interp(recall, best, np.log(works))))


def _trim(found: dict[str, Run]) -> dict[str, Run]:
    """Return runs without the curves of each step."""
    return {
        method: run
        | {"searches": [{k: v for k, v in s.items() if k != "curve"} for s in run["searches"]]}
        for method, run in found.items()
    }
