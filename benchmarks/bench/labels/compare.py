"""Labels beside Omikuji, PECOS XR-Linear and napkinXC: precision, time and size."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench.commands import Options
from bench.common import find_python, list_packages, report_table, run_module, say
from bench.labels.data import NAMES, PACKAGES, TITLES, find_files
from bench.labels.titles import NAMED, make_title_files
from bench.smoke import SHORT
from irli.labels.files.rows import read_rows
from irli.labels.metrics import evaluate, inverse_propensity

ENVIRONMENT = ".venv-peers"
# One-vs-all is shown where it finishes; Omikuji does not finish on moby-synonyms.
PEERS = {
    "debian-deps": ("omikuji-parabel", "omikuji-bonsai", "xr-linear", "napkinxc"),
    "delicious": ("omikuji-parabel", "omikuji-bonsai", "xr-linear", "napkinxc", "one-vs-all"),
    "moby-synonyms": ("xr-linear",),
    "finna-100k": ("omikuji-parabel", "omikuji-bonsai", "xr-linear", "napkinxc"),
    "finna-100k-bigrams": ("omikuji-bonsai",),
    "finna-100k-names": ("omikuji-bonsai", "xr-linear"),
    "finna": ("omikuji-bonsai", "xr-linear"),
}
# The same index as `fit` set it, and faster, with fewer probes and candidates.
SETTINGS: dict[str, list[dict[str, int]]] = {
    "debian-deps": [{}, {"near": 0}, {"near": 0, "probes": 8, "candidates": 50}],
    "moby-synonyms": [{}, {"near": 0, "probes": 16}],
    "finna-100k": [{}, {"near": 0}],
}
PAIRED = ["metric", "best other", "theirs", "irli", "difference ± SE", "relative"]
HEAD = [
    "data",
    "method",
    "P@1/3/5",
    "PSP@1/3/5",
    "train CPU s",
    "batch CPU ms",
    "single CPU ms",
    "MB",
]


def compare(options: Options) -> None:
    """Train and query every index in a fresh process; ours is the mean over the seeds."""
    names = options.only or (["debian-deps"] if options.smoke else NAMES)
    installed = list_packages(find_python(ENVIRONMENT))
    for name in names:
        changes = SHORT["labels"] if options.smoke else {}
        if name in TITLES:
            folder = Path(options.results) / "labels" / "data"
            files = make_title_files(Path(options.data), folder, name)
            train, test = files.train, files.test
        else:
            train, test = find_files(options.data, name)
        joined = train
        if name.endswith(NAMED):
            joined, changes = files.joined, changes | {"titles": str(files.names)}
        known, truth = read_rows(train).labels, read_rows(test).labels
        rows, others = [], []
        for peer in PEERS[name]:
            if PACKAGES[peer] not in installed:
                say(f"{peer}: skipped, since {PACKAGES[peer]} is not installed (make peers).")
                continue
            runs = run_peer(peer, joined, test, options.threads)
            others += runs
            rows += [_tabulate(name, [run], known, truth) for run in runs]
        seeds = range(1 if options.smoke else options.seeds)
        by_seed = [
            run_ours(
                train, test, options.threads, changes | {"seed": seed}, SETTINGS.get(name, [{}])
            )
            for seed in seeds
        ]
        rows += [_tabulate(name, list(runs), known, truth) for runs in zip(*by_seed, strict=True)]
        first = [runs[0] for runs in by_seed]
        peaks = {run["method"]: round(run["peak_mb"]) for run in (*others, *first)}
        report_table(Path(options.results) / "labels" / f"{name}.json", HEAD, rows, peak_mb=peaks)
        if others:
            pairs = _compare_pairs(first, others, known, truth)
            report_table(Path(options.results) / "labels" / f"{name}-pairs.json", PAIRED, pairs)


def _compare_pairs(
    ours: list[dict[str, Any]], others: list[dict[str, Any]], known: Any, truth: Any
) -> list[list[Any]]:
    """Return how far the mean over our seeds is above the best other method, by each metric.

    The standard error is that of the difference, row by row.
    """
    weights = inverse_propensity(known)
    rows = []
    for kind in ("P", "PSP"):
        for k in (1, 3, 5):
            gains = [
                _gain_by_row(run["predictions"], truth, weights if kind == "PSP" else None, k)
                for run in (*ours, *others)
            ]
            mine = np.mean(gains[: len(ours)], axis=0)
            best = int(np.argmax([gain.mean() for gain in gains[len(ours) :]]))
            theirs = gains[len(ours) + best]
            error = (mine - theirs).std(ddof=1) / len(mine) ** 0.5
            rows.append(
                [
                    f"{kind}@{k}",
                    others[best]["method"],
                    f"{100 * theirs.mean():.2f}",
                    f"{100 * mine.mean():.2f}",
                    f"{100 * (mine.mean() - theirs.mean()):+.2f} ± {100 * error:.2f}",
                    f"{100 * (mine.mean() / theirs.mean() - 1):+.1f} %",
                ]
            )
    return rows


def _gain_by_row(found: np.ndarray, truth: Any, weights: np.ndarray | None, k: int) -> np.ndarray:
    """Return what each row adds to P@k, or with weights to PSP@k: their mean is the metric."""
    best, wide = found[:, :k], truth.shape[1]
    row = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    asked = np.arange(truth.shape[0])[:, None] * wide + best
    hit = np.isin(asked, row * wide + truth.indices) & (best >= 0)
    if weights is None:
        return hit.sum(axis=1) / k
    got = (hit * weights[np.maximum(best, 0)]).sum(axis=1)
    ideal = [
        np.sort(weights[truth.indices[first:last]])[::-1][:k].sum()
        for first, last in pairwise(truth.indptr)
    ]
    return got / np.mean(ideal)


def run_peer(peer: str, train: Path, test: Path, threads: int) -> list[dict[str, Any]]:
    """Return what each way of querying a peer took, and what it predicted."""
    with tempfile.TemporaryDirectory() as folder:
        result, found = Path(folder) / "result.json", Path(folder) / "predictions.npy"
        python = find_python(ENVIRONMENT)
        arguments = (peer, train, test, threads, result, found)
        run_module("bench.labels.peers", *arguments, python=python)
        figures, predictions = json.loads(result.read_text()), np.load(found)
    say(f"{peer}: trained in {figures['train_seconds']:.0f} s")
    runs = []
    for run, labels in zip(figures.pop("runs"), predictions, strict=True):
        times = {key: run.pop(key) for key in ("batch_ms", "single_ms")}
        method = _name_method(peer, run)
        runs.append({**figures, **times, "method": method, "predictions": labels.astype(np.int64)})
    return runs


def run_ours(
    train: Path,
    test: Path,
    threads: int,
    changes: dict[str, Any],
    settings: list[dict[str, int]],
) -> list[dict[str, Any]]:
    """Return what each setting of an index of ours took, and what it predicted."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "predictions.npy"
        arguments = (train, test, threads, json.dumps(changes), json.dumps(settings), found)
        figures: dict[str, Any] = json.loads(run_module("bench.labels.ours", *arguments))
        predictions = np.load(found)
    seed, seconds = changes["seed"], figures["train_seconds"]
    took = "in parts" if seconds is None else f"in {seconds:.0f} s"
    say(f"irli, seed {seed}: trained {took}, {figures['index']}")
    return [
        {**figures, **run, "method": _name_method("irli", run["setting"]), "predictions": labels}
        for run, labels in zip(figures.pop("runs"), predictions, strict=True)
    ]


def _name_method(name: str, setting: dict[str, Any]) -> str:
    """Return the name of a method with its setting.

    Examples
    --------
    >>> _name_method("irli", {"probes": 16}), _name_method("irli", {})
    ('irli (probes 16)', 'irli')
    """
    told = ", ".join(f"{key} {value}" for key, value in setting.items())
    return f"{name} ({told})" if told else name


def _tabulate(name: str, runs: list[dict[str, Any]], known: Any, truth: Any) -> list[Any]:
    """Return a row of the table: means over the runs."""
    scores = [evaluate(run["predictions"], truth, known) for run in runs]

    def format_scores(kind: str) -> str:
        means = [100 * np.mean([score[f"{kind}@{k}"] for score in scores]) for k in (1, 3, 5)]
        return " / ".join(f"{mean:.2f}" for mean in means)

    def mean(key: str) -> float:
        return float(np.mean([run[key] for run in runs]))

    return [
        name,
        runs[0]["method"],
        format_scores("P"),
        format_scores("PSP"),
        f"{mean('train_cpu_seconds'):.0f}",
        f"{mean('batch_ms'):.3f}",
        f"{mean('single_ms'):.3f}",
        f"{mean('model_bytes') / 1e6:.0f}",
    ]
