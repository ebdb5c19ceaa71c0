"""The paper's way to choose candidates: votes of R = 8 repetitions, or aggregated scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.commands import Options, find_file
from bench.common import report_table
from bench.vectors.data import FILES, read_base, read_queries
from bench.vectors.work import fit, format_mean, measure_irli, measure_ivf

VOTING = {"repetitions": 8, "buckets_per_item": 1, "buckets": 1024}
SCORES = ("votes", "probability", "log-probability")


def votes(options: Options) -> None:
    """Exact distances that each score needs for recall .90, beside what IVFFlat scans."""
    path, base = find_file(options.data, FILES["glove"]), read_base(options.data, "glove")
    test, _ = read_queries(path, "test")
    curves = measure_ivf(options, "glove", base, {"test": test})["test"]
    theirs = min(curves, key=lambda curve: curve.at(0.90)).at(0.90, "scanned")
    seeds = range(1 if options.smoke else options.seeds)
    voting = VOTING | ({"repetitions": 2} if options.smoke else {})
    indexes = [fit(options, "glove", base, seed=seed, **voting) for seed in seeds]
    rows = []
    for score in SCORES:
        settings = [
            {"threshold": 0.002, "candidates": int(count), "score": score}
            for count in np.geomspace(200, 6400, 11)
        ]
        exact = [measure_irli(index, test, settings).at(0.90, "exact") for index in indexes]
        rows.append([score, f"{theirs:.0f}", format_mean(exact), f"{np.mean(exact) / theirs:.2f}"])
    head = ["score", "IVFFlat scanned at .90", "exact at .90", "ratio"]
    report_table(Path(options.results) / "paper" / "votes.json", head, rows)
