"""Train and query one `irli.LabelIndex` in this process, and print what it took.

python -m bench.labels.ours TRAIN TEST THREADS RECIPE SETTINGS PREDICTIONS

RECIPE and SETTINGS are JSON. "recipe" in RECIPE names one other than "labels", "ranker" says if
there is one, "checkpoint" names a folder in which learning resumes, "device" what it runs on, and
"titles" a file with a row for each label: the features of its title.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import irli
from bench.common import read_memory
from bench.labels.timing import SINGLE, TOP, time_batch, time_single
from irli.labels.files.rows import read_rows


def measure(
    train: Path,
    test: Path,
    threads: int,
    index: irli.LabelIndex,
    settings: list[dict[str, Any]],
    checkpoint: str | None = None,
    titles: str | None = None,
    device: str = "cpu",
) -> tuple[dict[str, Any], np.ndarray]:
    """Train an index and query it in each of the settings; return figures and predictions.

    Times of training are None if a part of it was done before.
    """
    resumed = checkpoint is not None and Path(checkpoint).exists()
    rows, features = read_rows(train), read_rows(test).features
    written = None if titles is None else read_rows(Path(titles)).features
    wall, cpu = time.perf_counter(), time.process_time()
    index.fit(*rows, titles=written, threads=threads, checkpoint=checkpoint, device=device)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    stats = index.stats()
    found = {
        "index": repr(index),
        "train_seconds": None if resumed else wall,
        "train_cpu_seconds": None if resumed else cpu,
        "model_bytes": size,
        "runs": [{"setting": each, **_query(index, features, threads, each)} for each in settings],
        "peak_mb": read_memory("VmHWM") / 2**20,
        **{key: stats[key] for key in ("ranker_weights", "loads", "defaults", "calibration")},
    }
    predictions = [
        index.predict(features, TOP, threads=threads, **each).labels for each in settings
    ]
    return found, np.stack(predictions)


def _query(
    index: irli.LabelIndex, features: Any, threads: int, setting: dict[str, Any]
) -> dict[str, float]:
    index.predict(features[:64], TOP, **setting)
    single = [features[i : i + 1] for i in range(min(SINGLE, features.shape[0]))]

    def predict_all() -> None:
        index.predict(features, TOP, threads=threads, **setting)

    def predict_one(row: Any) -> None:
        index.predict(row, TOP, threads=1, **setting)

    return {
        "batch_ms": time_batch(predict_all, features.shape[0]),
        "single_ms": time_single(predict_one, single),
    }


def main(train: str, test: str, threads: str, recipe: str, settings: str, predictions: str) -> None:
    """Measure what the command line says."""
    changes = json.loads(recipe)
    name, ranker = changes.pop("recipe", "labels"), changes.pop("ranker", None)
    checkpoint, titles = changes.pop("checkpoint", None), changes.pop("titles", None)
    device = changes.pop("device", "cpu")
    index = irli.LabelIndex(irli.recipe(name, **changes), ranker=ranker)
    given = json.loads(settings)
    found, predicted = measure(
        Path(train), Path(test), int(threads), index, given, checkpoint, titles, device
    )
    np.save(predictions, predicted)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
