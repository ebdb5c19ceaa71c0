"""Learning on from new rows, beside a new fit: python benchmarks/online.py TRAIN_FILE

Of the training rows, an eighth is held out. The index learns from 80 % of the others and then from
the other 20 % with partial_fit. Labels that only these carry are new. Precision is that of the
held-out rows; test rows are not read.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np
import scipy.sparse as sp

import irli
from irli.labels.files import read_rows
from irli.labels.metrics import precision


def measure(path: Path, seed: int, most: int | None, threads: int | None) -> None:
    """Print P@1/3/5 and seconds of the old index, after partial_fit, and of a new fit."""
    given, labels = read_rows(path)
    rows, truth = sp.csr_array(given, dtype=np.float32), sp.csr_array(labels)
    order = np.random.default_rng(seed).permutation(rows.shape[0])[:most]
    held, others = np.split(order, [len(order) // 8])
    old, new = np.split(others, [int(0.8 * len(others))])
    known, fresh = (
        np.bincount(truth[part].indices, minlength=truth.shape[1]) for part in (old, new)
    )
    place = np.where(known > 0, 0, np.where(fresh > 0, 1, 2))  # new labels after the known ones
    truth = sp.csr_array(truth.tocsc()[:, np.argsort(place, kind="stable")])
    truth.sort_indices()
    before, after = int((place == 0).sum()), int((place < 2).sum())
    print(f"{path.name}: {len(old)} rows, then {len(new)}; {before} labels, then {after}")

    def show(name: str, index: irli.LabelIndex, start: float) -> None:
        seconds = perf_counter() - start
        found = index.predict(rows[held], 5, threads=threads).labels
        figures = " / ".join(f"{100 * precision(found, truth[held], k):.2f}" for k in (1, 3, 5))
        print(f"{name:12} {figures}  {seconds:.1f} s", flush=True)

    start = perf_counter()
    index = irli.LabelIndex().fit(rows[old], truth[old][:, :before], threads=threads)
    show("old rows", index, start)
    start = perf_counter()
    index.partial_fit(rows[new], truth[new][:, :after], threads=threads)
    show("partial_fit", index, start)
    start = perf_counter()
    index = irli.LabelIndex().fit(rows[others], truth[others][:, :after], threads=threads)
    show("new fit", index, start)


def main(arguments: list[str] | None = None) -> None:
    """Measure the file that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="training rows in the XMC format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, help="so many rows, drawn at random")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args(arguments)
    measure(given.path, given.seed, given.rows, given.threads)


if __name__ == "__main__":
    main()
