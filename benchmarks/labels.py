"""Labels beside Omikuji, PECOS XR-Linear and napkinXC: python benchmarks/labels.py NAME

    compare   precision, cost and size on debian-deps, moby-synonyms and delicious
    mach      re-partitioning against the same index without it (MACH), index alone
    large     a million rows and half a million labels within 16 GB

Everything is chosen on held-out training rows; test rows are only reported. Each index, ours or a
peer's, is trained and queried in a fresh process, on the same threads. All times are CPU time, of
all threads together, which hardly depends on what else a machine does. The peers need an
environment of their own: `make peers`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import ROOT, keep, say, table

import irli
from irli.labels.files import Rows, read_rows
from irli.labels.metrics import evaluate

PEERS = ROOT.parent / ".venv-peers" / "bin" / "python"
NAMES = ("debian-deps", "delicious", "moby-synonyms")
# One-vs-all is the ceiling, shown where it finishes; Omikuji does not finish on moby-synonyms.
RIVALS = {
    "debian-deps": ("omikuji-parabel", "omikuji-bonsai", "xr-linear", "napkinxc"),
    "delicious": ("omikuji-parabel", "omikuji-bonsai", "xr-linear", "napkinxc", "one-vs-all"),
    "moby-synonyms": ("xr-linear",),
}
# As `fit` chose it, and faster: the same index, asked with fewer probes and candidates.
ASKED: dict[str, list[dict[str, int]]] = {
    "debian-deps": [{}, {"probes": 16, "candidates": 100}, {"probes": 8, "candidates": 60}],
    "delicious": [{}],
    "moby-synonyms": [{}, {"probes": 16, "candidates": 200}],
}
THREADS = 2
REPEATS = 3  # of all test rows; the fastest counts
SINGLE = 1000  # rows one by one
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


def compare(data: Path, seeds: int, names: list[str]) -> None:
    """Bars 1 to 4."""
    for name in names:
        train, test = data / f"{name}-train.txt.gz", data / f"{name}-test.txt.gz"
        known, truth = read_rows(train).labels, read_rows(test).labels
        rows = []
        for peer in RIVALS[name]:
            rows += [_row(name, [run], known, truth) for run in _peer(peer, train, test)]
        by_seed = [_own(train, test, s, ASKED[name]) for s in range(seeds)]
        rows += [_row(name, list(runs), known, truth) for runs in zip(*by_seed, strict=True)]
        table(HEAD, rows)
        keep(f"labels-{name}", {"head": HEAD, "rows": rows})


def _row(name: str, runs: list[dict[str, Any]], known: Any, truth: Any) -> list[Any]:
    scores = [evaluate(run["predictions"], truth, known) for run in runs]

    def shown(kind: str) -> str:
        return " / ".join(
            f"{100 * np.mean([s[f'{kind}@{k}'] for s in scores]):.2f}" for k in (1, 3, 5)
        )

    def middle(key: str) -> float:
        return float(np.mean([run[key] for run in runs]))

    return [
        name,
        runs[0]["method"],
        shown("P"),
        shown("PSP"),
        f"{middle('train_cpu_seconds'):.0f}",
        f"{middle('batch_ms'):.3f}",
        f"{middle('single_ms'):.3f}",
        f"{middle('model_bytes') / 1e6:.0f}",
    ]


def _peer(peer: str, train: Path, test: Path) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        out, found = Path(folder) / "result.json", Path(folder) / "found.npy"
        command = [PEERS, ROOT / "label_peers.py", "--peer", peer, "--train", train]
        command += ["--test", test, "--threads", THREADS, "--out", out, "--predictions", found]
        subprocess.run(
            [*map(str, command)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        result, predictions = json.loads(out.read_text()), np.load(found)
    say(f"{peer}: trained in {result['train_seconds']:.0f} s")
    shown = []
    for run, labels in zip(result["runs"], predictions, strict=True):
        variant = ", ".join(
            f"{k} {v}" for k, v in run.items() if not k.endswith(("_ms", "_mean", "_median"))
        )
        shown.append(
            {
                "method": f"{peer} ({variant})" if variant else peer,
                "predictions": labels.astype(np.int64),
                "single_ms": run["single_ms_median"],
                "batch_ms": run["batch_ms"],
                "train_cpu_seconds": result["train_cpu_seconds"],
                "model_bytes": result["model_bytes"],
            }
        )
    return shown


def _own(train: Path, test: Path, seed: int, asked: list[dict[str, int]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.npy"
        command = [sys.executable, __file__, "one", "--train", train, "--test", test]
        command += ["--seed", seed, "--asked", json.dumps(asked), "--out", found]
        printed = subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE)
        result: dict[str, Any] = json.loads(printed.stdout)
        predictions = np.load(found)
    say(f"irli, seed {seed}: trained in {result['train_seconds']:.0f} s, {result['index']}")
    shown = []
    for run, labels in zip(result.pop("runs"), predictions, strict=True):
        variant = ", ".join(f"{k} {v}" for k, v in run["asked"].items())
        method = f"irli ({variant})" if variant else "irli"
        shown.append({**result, **run, "method": method, "predictions": labels})
    return shown


def one(train: Path, test: Path, seed: int, asked: list[dict[str, int]], out: Path) -> None:
    """Train and query one index of ours in this process, and print what it took."""
    rows, queries = read_rows(train), read_rows(test)
    wall, cpu = time.perf_counter(), _cpu()
    index = irli.LabelIndex(irli.recipe("labels", seed=seed)).fit(*rows, threads=THREADS)
    wall, cpu = time.perf_counter() - wall, _cpu() - cpu
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    found, runs = [], []
    for options in asked:
        index.predict(queries.features[:64], 5, **options)
        batch = min(_seconds(index, queries, options) for _ in range(REPEATS))
        found.append(index.predict(queries.features, 5, threads=THREADS, **options).labels)
        runs.append(
            {
                "asked": options,
                "batch_ms": 1e3 * batch / queries.features.shape[0],
                "single_ms": 1e3 * _single(index, queries, options),
            }
        )
    np.save(out, np.stack(found))
    stats = index.stats()
    print(
        json.dumps(
            {
                "index": repr(index),
                "train_seconds": wall,
                "train_cpu_seconds": cpu,
                "model_bytes": size,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
                "runs": runs,
                **{
                    key: stats[key]
                    for key in ("ranker_weights", "loads", "defaults", "calibration")
                },
            }
        )
    )


def _seconds(index: irli.LabelIndex, queries: Rows, options: dict[str, int]) -> float:
    start = time.process_time()
    index.predict(queries.features, 5, threads=THREADS, **options)
    return time.process_time() - start


def _single(index: irli.LabelIndex, queries: Rows, options: dict[str, int]) -> float:
    """Return the median time of rows one by one on one thread."""
    times = []
    for i in range(SINGLE):
        row = queries.features[i : i + 1]
        start = time.process_time()
        index.predict(row, 5, threads=1, **options)
        times.append(time.process_time() - start)
    return float(np.median(times[50:]))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def mach(data: Path, seeds: int) -> None:
    """Bar 5: the paper's claim. Hash start, index alone, with re-partition and without."""
    rows = read_rows(data / "debian-deps-train.txt.gz")
    asked = read_rows(data / "debian-deps-test.txt.gz")
    shown = []
    for label, changes in {
        "no re-partition (MACH)": {"every": 100},
        "least loaded of 10": {"repartition": "least-loaded", "choices": 10, "keep": "always"},
        "bounded, lift": {"keep": "always"},
    }.items():
        found, loads = [], []
        for seed in range(seeds):
            recipe = irli.recipe(
                "labels", start="hash", repetitions=4, buckets=500, seed=seed, **changes
            )
            index = irli.LabelIndex(recipe, ranker=False).fit(*rows, threads=THREADS)
            labels = index.predict(asked.features, 100).labels
            found.append(evaluate(labels, asked.labels))
            loads.append(max(summary["max_over_mean"] for summary in index.stats()["loads"]))
            say(f"{label}, seed {seed}: {found[-1]}")
        mean = {key: 100 * np.mean([f[key] for f in found]) for key in found[0]}
        shown.append(
            [
                label,
                f"{mean['recall@100']:.1f}",
                " / ".join(f"{mean[f'P@{k}']:.1f}" for k in (1, 3, 5)),
                f"{max(loads):.2f}",
            ]
        )
    head = ["index alone, hash start", "recall@100", "P@1/3/5", "largest bucket / mean"]
    table(head, shown)
    keep("labels-mach", {"head": head, "rows": shown})


def large() -> None:
    """Bar 6: one epoch, a re-partition and 10,000 predictions, index and ranker, within 16 GB."""
    count, width, labels = 1_000_000, 200_000, 500_000
    rng = np.random.default_rng(0)

    def power_law(size: tuple[int, int], most: int) -> Any:
        return np.minimum(most * rng.random(size) ** 3, most - 1).astype(np.int32)

    wanted = power_law((count, 5), labels)
    # What a row says depends on its labels: half of its features are theirs.
    own = (wanted.repeat(5, axis=1).astype(np.int64) * 31 + np.tile(np.arange(5), 5) * 7919) % width
    features = np.concatenate([own, power_law((count, 25), width)], axis=1).astype(np.int32)
    X = _csr(features, width)
    Y = _csr(wanted, labels)
    del features, own, wanted
    start = time.perf_counter()
    recipe = irli.recipe(
        "labels", epochs=2, repartition_every=1, repetitions=2, accept="always", hidden=64
    )
    index = irli.LabelIndex(recipe, ranker=True).fit(X, Y, threads=THREADS, progress=True)
    learned = time.perf_counter() - start
    start = time.perf_counter()
    found = index.predict(X[:10_000], 5)
    figures = {
        "rows": count,
        "labels": labels,
        "features": width,
        "train_seconds": learned,
        "predict_ms": (time.perf_counter() - start) / 10,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "P@1 on training rows": evaluate(found.labels, Y[:10_000])["P@1"],
        "ranker_weights": index.stats()["ranker_weights"],
        "moved": [entry["moved"] for entry in index.history],
    }
    table(list(figures), [[*figures.values()]])
    keep("labels-large", figures)


def _csr(columns: Any, width: int) -> Any:
    count, each = columns.shape
    ones = np.ones(columns.size, dtype=np.float32)
    matrix = sp.csr_array(
        (ones, columns.ravel(), np.arange(0, columns.size + 1, each)), shape=(count, width)
    )
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", choices=("compare", "mach", "large", "one"))
    parser.add_argument("--data", type=Path, default=ROOT.parent.parent / "shared" / "data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(NAMES), choices=NAMES)
    for option in ("--train", "--test", "--out"):
        parser.add_argument(option, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--asked", type=json.loads, default=[{}], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.name == "compare":
        compare(given.data, given.seeds, given.only)
    elif given.name == "mach":
        mach(given.data, given.seeds)
    elif given.name == "large":
        large()
    else:
        one(given.train, given.test, given.seed, given.asked, given.out)


if __name__ == "__main__":
    main()
