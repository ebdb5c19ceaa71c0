"""Labels in shards against one machine (bar 6): python benchmarks/cluster_labels.py --data FOLDER

Trains one index and sharded ones on the training rows of debian-deps and reports precision on its
test rows, mean of some seeds. Nothing is chosen on these.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time

import numpy as np
from common import keep, say, table

import irli
from irli.cluster.label_index import ShardedLabelIndex
from irli.labels.files import read_rows
from irli.labels.metrics import precision

HEAD = ["shards", "P@1", "P@3", "P@5", "train CPU s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--shards", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    train = read_rows(arguments.data / "debian-deps-train.txt.gz")
    test = read_rows(arguments.data / "debian-deps-test.txt.gz")
    rows = []
    for shards in [0, *arguments.shards]:
        figures = []
        for seed in range(arguments.seeds):
            recipe = irli.recipe("labels", seed=seed)
            index = ShardedLabelIndex(recipe, shards=shards) if shards else irli.LabelIndex(recipe)
            start = process_time()
            index.fit(train.features, train.labels, threads=arguments.threads)
            seconds = process_time() - start
            found = index.predict(test.features, k=5).labels
            scores = [100 * precision(found, test.labels, k) for k in (1, 3, 5)]
            figures.append([*scores, seconds])
            shown = " / ".join(f"{score:.2f}" for score in scores)
            say(f"{shards or 'no'} shards, seed {seed}: P@1/3/5 {shown}")
        mean = np.mean(figures, axis=0)
        rows.append(
            [shards or "one machine", *(f"{score:.2f}" for score in mean[:3]), f"{mean[3]:.0f}"]
        )
    table(HEAD, rows)
    keep("cluster-labels", {"head": HEAD, "rows": rows})


if __name__ == "__main__":
    main()
