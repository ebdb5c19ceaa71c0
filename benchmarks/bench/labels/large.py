"""A million rows and half a million labels, made up: time and memory of one machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import irli
from bench.commands import Options, make_recipe
from bench.common import print_table, read_memory, write_json
from irli.labels.metrics import evaluate

ROWS, FEATURES, LABELS = 1_000_000, 200_000, 500_000
SMOKE = 1000, 400, 200
PREDICTED = 10_000  # rows


def large(options: Options) -> None:
    """Two epochs, a re-partition and 10,000 predictions, with index and ranker."""
    count, width, labels = SMOKE if options.smoke else (ROWS, FEATURES, LABELS)
    X, Y = _make_rows(count, width, labels)
    recipe = make_recipe(
        options,
        "labels",
        epochs=2,
        repartition_every=1,
        repetitions=2,
        accept="always",
        hidden=64,
    )
    started = time.perf_counter()
    index = irli.LabelIndex(recipe, ranker=True).fit(X, Y, threads=options.threads, progress=True)
    learned = time.perf_counter() - started
    some = min(PREDICTED, count)
    started = time.perf_counter()
    found = index.predict(X[:some], 5)
    figures = {
        "rows": count,
        "labels": labels,
        "features": width,
        "train_seconds": learned,
        "predict_ms": 1e3 * (time.perf_counter() - started) / some,
        "peak_gb": read_memory("VmHWM") / 1e9,
        "P@1 on training rows": evaluate(found.labels, Y[:some])["P@1"],
        "ranker_weights": index.stats()["ranker_weights"],
        "moved": [entry["moved"] for entry in index.history if "moved" in entry],
    }
    print_table(list(figures), [[*figures.values()]])
    write_json(Path(options.results) / "labels" / "large.json", figures)


def _make_rows(count: int, width: int, labels: int) -> tuple[Any, Any]:
    """Make rows with 5 labels each. Half of their 50 features are those of their labels."""
    rng = np.random.default_rng(0)

    def draw(size: tuple[int, int], most: int) -> Any:
        """Draw numbers below `most` by a power law."""
        return np.minimum(most * rng.random(size) ** 3, most - 1).astype(np.int32)

    wanted = draw((count, 5), labels)
    own = (wanted.repeat(5, axis=1).astype(np.int64) * 31 + np.tile(np.arange(5), 5) * 7919) % width
    features = np.concatenate([own, draw((count, 25), width)], axis=1).astype(np.int32)
    return _to_csr(features, width), _to_csr(wanted, labels)


def _to_csr(columns: Any, width: int) -> Any:
    count, each = columns.shape
    ones = np.ones(columns.size, dtype=np.float32)
    matrix = sp.csr_array(
        (ones, columns.ravel(), np.arange(0, columns.size + 1, each)), shape=(count, width)
    )
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix
