"""Labels in shards against one machine: precision on the test rows of debian-deps."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import irli
from bench.commands import Options, make_recipe
from bench.common import report_table, say
from bench.labels.data import find_files
from irli.cluster.label_index import ShardedLabelIndex
from irli.labels.files.rows import read_rows
from irli.labels.metrics import precision

SHARDS = (2, 4)


def labels(options: Options) -> None:
    """Train one index and sharded ones; nothing is chosen on the test rows."""
    train, test = (read_rows(path) for path in find_files(options.data, "debian-deps"))
    rows: list[list[Any]] = []
    for shards in (0, *SHARDS):
        figures = []
        for seed in range(1 if options.smoke else options.seeds):
            recipe = make_recipe(options, "labels", seed=seed)
            index = ShardedLabelIndex(recipe, shards=shards) if shards else irli.LabelIndex(recipe)
            started = process_time()
            index.fit(train.features, train.labels, threads=1)
            seconds = process_time() - started
            found = index.predict(test.features, k=5).labels
            scores = [100 * precision(found, test.labels, k) for k in (1, 3, 5)]
            figures.append([*scores, seconds])
            shown = " / ".join(f"{score:.2f}" for score in scores)
            say(f"{shards or 'no'} shards, seed {seed}: P@1/3/5 {shown}")
        *scores, seconds = np.mean(figures, axis=0)
        cells = [f"{score:.2f}" for score in scores]
        rows.append([shards or "one machine", *cells, f"{seconds:.0f}"])
    head = ["shards", "P@1", "P@3", "P@5", "train CPU s"]
    report_table(Path(options.results) / "cluster" / "labels.json", head, rows)
