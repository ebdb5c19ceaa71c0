"""Re-partitioning against the same index without it, which is MACH."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import irli
from bench.commands import Options, make_recipe
from bench.common import report_table, say
from bench.labels.data import find_files
from bench.labels.ours import THREADS
from irli.labels.files import read_rows
from irli.labels.metrics import evaluate

VARIANTS: dict[str, dict[str, Any]] = {
    "no re-partition (MACH)": {"repartition_every": 100},
    "least loaded of 10": {"repartition": "least-loaded", "choices": 10, "accept": "always"},
    "bounded, normalized": {"accept": "always"},
}
COMMON = {"start": "hash", "repetitions": 4, "buckets": 500}


def mach(options: Options) -> None:
    """Recall and precision of the index alone, which starts from hash buckets."""
    train, test = (read_rows(path) for path in find_files(options.data, "debian-deps"))
    rows = []
    for name, changes in VARIANTS.items():
        found, loads = [], []
        for seed in range(1 if options.smoke else options.seeds):
            recipe = make_recipe(options, "labels", seed=seed, **COMMON, **changes)
            index = irli.LabelIndex(recipe, ranker=False).fit(*train, threads=THREADS)
            found.append(evaluate(index.predict(test.features, 100).labels, test.labels))
            loads.append(max(summary["max_over_mean"] for summary in index.stats()["loads"]))
            say(f"{name}, seed {seed}: {found[-1]}")
        mean = {key: 100 * np.mean([scores[key] for scores in found]) for key in found[0]}
        precision = " / ".join(f"{mean[f'P@{k}']:.1f}" for k in (1, 3, 5))
        rows.append([name, f"{mean['recall@100']:.1f}", precision, f"{max(loads):.2f}"])
    head = ["index alone, hash start", "recall@100", "P@1/3/5", "largest bucket / mean"]
    report_table(Path(options.results) / "labels" / "mach.json", head, rows)
