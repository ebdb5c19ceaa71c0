"""Learning on with `partial_fit` and `fit(start=)`, beside a new fit on all rows.

Of the training rows, an eighth is held out. The index learns from 90 % of the others, and then from
the other 10 %. Labels that only these carry are new. Precision is that of the held-out rows; test
rows are not read.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import irli
from bench.commands import Options, make_recipe
from bench.common import report_table, say
from bench.labels.data import find_files
from irli.labels.files.rows import read_rows
from irli.labels.metrics import precision

HEAD = ["data", "seed", "index", "P@1/3/5", "CPU s"]


def online(options: Options) -> None:
    """Print P@1/3/5 and seconds of the old index, of what learns on from it, and of a new fit."""
    for name in options.only or ["debian-deps"]:
        rows = []
        for seed in range(1 if options.smoke else options.seeds):
            rows += _measure(options, name, seed)
        report_table(Path(options.results) / "labels" / f"{name}-online.json", HEAD, rows)


def _measure(options: Options, name: str, seed: int) -> list[list[str]]:
    given, labels = read_rows(find_files(options.data, name)[0])
    rows, truth = sp.csr_array(given, dtype=np.float32), sp.csr_array(labels)
    order = np.random.default_rng(seed).permutation(rows.shape[0])
    held, others = np.split(order, [len(order) // 8])
    old, new = np.split(others, [int(0.9 * len(others))])
    known, fresh = (
        np.bincount(truth[part].indices, minlength=truth.shape[1]) for part in (old, new)
    )
    place = np.where(known > 0, 0, np.where(fresh > 0, 1, 2))  # new labels after the known ones
    truth = sp.csr_array(truth.tocsc()[:, np.argsort(place, kind="stable")])
    truth.sort_indices()
    before, after = int((place == 0).sum()), int((place < 2).sum())
    say(f"{name}: {len(old)} rows, then {len(new)}; {before} labels, then {after}")
    recipe, threads = make_recipe(options, "labels", seed=seed), options.threads
    told = []

    def show(what: str, index: irli.LabelIndex, start: float) -> None:
        seconds = time.process_time() - start
        found = index.predict(rows[held], 5, threads=threads).labels
        figures = " / ".join(f"{100 * precision(found, truth[held], k):.2f}" for k in (1, 3, 5))
        told.append([name, str(seed), what, figures, f"{seconds:.0f}"])

    start = time.process_time()
    index = irli.LabelIndex(recipe, ranker=True).fit(
        rows[old], truth[old][:, :before], threads=threads
    )
    show("old rows", index, start)
    start = time.process_time()
    every = rows[others], truth[others][:, :after]
    again = irli.LabelIndex(recipe, ranker=True).fit(*every, start=index, threads=threads)
    show("fit(start=)", again, start)
    start = time.process_time()
    index.partial_fit(rows[new], truth[new][:, :after], threads=threads)
    show("partial_fit", index, start)
    start = time.process_time()
    index = irli.LabelIndex(recipe, ranker=True).fit(*every, threads=threads)
    show("new fit", index, start)
    return told
