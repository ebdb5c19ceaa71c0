"""MACH, and what re-partitioning adds to an index that starts from the same hash buckets.

python -m bench.labels.mach TRAIN TEST THREADS SETTINGS PREDICTIONS

trains MACH alone in this process and prints what it took. SETTINGS is JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import irli
from bench.commands import Options, make_recipe
from bench.common import report_table, say
from bench.labels.data import find_files
from bench.labels.timing import SINGLE, TOP, time_batch, time_single
from irli.labels.files.rows import read_rows
from irli.labels.metrics import evaluate

VARIANTS: dict[str, dict[str, Any]] = {
    "no re-partition": {"repartition_every": 100},
    "least loaded of 10": {"repartition": "least-loaded", "choices": 10, "accept": "always"},
    "bounded, normalized": {"accept": "always"},
}
COMMON = {"start": "hash", "repetitions": 4, "buckets": 500}
MACH = {"repetitions": 4, "buckets": 500, "hidden": 256, "epochs": 15}
SHORT = {"repetitions": 2, "buckets": 16, "hidden": 16, "epochs": 15}  # in a smoke run

_PRIME = 2**31 - 1  # of the hash
_BATCH = 256  # rows of a step of learning
_BLOCK = 1024  # rows predicted at once


class Mach:
    """MACH (Medini et al., 2019): R independent networks over fixed hash buckets.

    A label is hashed to one of B buckets in each repetition. A network with one hidden layer learns
    by binary cross-entropy which buckets hold a label of a row. The score of a label is the mean of
    its buckets' scores.

    Parameters
    ----------
    repetitions, buckets, hidden, epochs : int
        R, B, the width of the hidden layer, and the passes over the rows.
    """

    def __init__(
        self, repetitions: int, buckets: int, hidden: int, epochs: int, seed: int = 0
    ) -> None:
        self.repetitions, self.buckets = repetitions, buckets
        self.hidden, self.epochs, self.seed = hidden, epochs, seed

    def fit(self, features: Any, labels: Any) -> Mach:
        """Learn from sparse features (n, D) and labels (n, L)."""
        rows, wanted = _normalize(features), sp.csr_array(labels)
        rng = np.random.default_rng(self.seed)
        numbers = np.arange(wanted.shape[1], dtype=np.int64)
        self.hashes, self.networks = [], []
        for repetition in range(self.repetitions):
            a, b = rng.integers(1, _PRIME), rng.integers(_PRIME)
            hashed = (a * numbers + b) % _PRIME % self.buckets
            ones = np.ones(len(numbers), dtype=np.float32)
            shape = len(numbers), self.buckets
            held = sp.csr_array(wanted @ sp.csr_array((ones, (numbers, hashed)), shape=shape))
            held.data[:] = 1  # a bucket is wanted once, however many of its labels are
            torch.manual_seed(1000 * self.seed + repetition)
            network = _Network(rows.shape[1], self.hidden, self.buckets)
            _train(network, rows, held, self.epochs, rng)
            self.hashes.append(hashed)
            self.networks.append(network)
        return self

    def predict(self, features: Any, k: int) -> np.ndarray:
        """Return the k labels (n, k) with the highest mean score, best first."""
        rows = _normalize(features)
        starts = range(0, rows.shape[0], _BLOCK)
        return np.concatenate([self._predict(rows[at : at + _BLOCK], k) for at in starts])

    def _predict(self, rows: Any, k: int) -> np.ndarray:
        total = torch.zeros(rows.shape[0], len(self.hashes[0]))
        with torch.no_grad():
            for network, hashed in zip(self.networks, self.hashes, strict=True):
                total += torch.sigmoid(network(*_to_bags(rows)))[:, hashed]
        return total.topk(k, dim=1).indices.numpy()


class _Network(torch.nn.Module):
    def __init__(self, width: int, hidden: int, buckets: int) -> None:
        super().__init__()
        # A sum over the nonzero features: a linear layer whose input is sparse.
        self.first = torch.nn.EmbeddingBag(width, hidden, mode="sum", sparse=True)
        torch.nn.init.normal_(self.first.weight, std=(2 / hidden) ** 0.5)
        self.bias = torch.nn.Parameter(torch.zeros(hidden))
        self.last = torch.nn.Linear(hidden, buckets)

    def forward(self, columns: Any, starts: Any, values: Any) -> Any:
        hidden = self.first(columns, starts, per_sample_weights=values)
        return self.last(torch.relu(hidden + self.bias))


def _train(network: _Network, rows: Any, held: Any, epochs: int, rng: Any) -> None:
    sparse = torch.optim.SparseAdam([network.first.weight], lr=1e-3)
    dense = torch.optim.Adam([network.bias, *network.last.parameters()], lr=1e-3)
    for _ in range(epochs):
        order = rng.permutation(rows.shape[0])
        for at in range(0, len(order), _BATCH):
            some = order[at : at + _BATCH]
            logits = network(*_to_bags(rows[some]))
            target = torch.from_numpy(held[some].toarray().astype(np.float32))
            # The sum over buckets, as in the paper: its mean would all but stop the first epochs.
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                logits, target, reduction="sum"
            )
            for optimizer in (sparse, dense):
                optimizer.zero_grad()
            (loss / len(some)).backward()
            for optimizer in (sparse, dense):
                optimizer.step()


def _normalize(features: Any) -> Any:
    rows = sp.csr_array(features).astype(np.float32)
    norms = np.sqrt(rows.multiply(rows).sum(axis=1))
    return sp.csr_array(sp.diags_array(1 / np.maximum(norms, 1e-12)) @ rows).astype(np.float32)


def _to_bags(rows: Any) -> tuple[Any, Any, Any]:
    parts = rows.indices.astype(np.int64), rows.indptr[:-1].astype(np.int64), rows.data
    columns, starts, values = map(torch.from_numpy, parts)
    return columns, starts, values


def mach(options: Options) -> None:
    """Recall and precision of the index alone, which starts from hash buckets, and of MACH."""
    train, test = (read_rows(path) for path in find_files(options.data, "debian-deps"))
    torch.set_num_threads(options.threads)
    seeds = range(1 if options.smoke else options.seeds)
    most = min(100, train.labels.shape[1])
    rows = []
    found = []
    for seed in seeds:
        model = Mach(**(SHORT if options.smoke else MACH), seed=seed).fit(*train)
        found.append(evaluate(model.predict(test.features, most), test.labels))
        say(f"MACH, seed {seed}: {found[-1]}")
    rows.append(["MACH", *_format_means(found), "-"])
    for name, changes in VARIANTS.items():
        found, loads = [], []
        for seed in seeds:
            recipe = make_recipe(options, "labels", seed=seed, **COMMON, **changes)
            index = irli.LabelIndex(recipe, ranker=False).fit(*train, threads=options.threads)
            found.append(evaluate(index.predict(test.features, most).labels, test.labels))
            loads.append(max(summary["max_over_mean"] for summary in index.stats()["loads"]))
            say(f"{name}, seed {seed}: {found[-1]}")
        rows.append([name, *_format_means(found), f"{max(loads):.2f}"])
    head = ["index alone, hash start", "recall@100", "P@1/3/5", "largest bucket / mean"]
    report_table(Path(options.results) / "labels" / "mach.json", head, rows)


def _format_means(found: list[dict[str, float]]) -> tuple[str, str]:
    mean = {key: 100 * np.mean([scores[key] for scores in found]) for key in found[0]}
    [recall] = [value for key, value in mean.items() if key.startswith("recall")]
    return f"{recall:.1f}", " / ".join(f"{mean[f'P@{k}']:.1f}" for k in (1, 3, 5))


def main(train: str, test: str, threads: str, settings: str, predictions: str) -> None:
    """Measure what the command line says, as `bench.labels.ours` does."""
    torch.set_num_threads(int(threads))
    features = read_rows(Path(test)).features
    started = time.process_time()
    model = Mach(**json.loads(settings)).fit(*read_rows(Path(train)))
    found: dict[str, Any] = {"train_cpu_seconds": time.process_time() - started}
    np.save(predictions, model.predict(features, TOP))
    single = [features[i : i + 1] for i in range(min(SINGLE, features.shape[0]))]
    found["batch_ms"] = time_batch(lambda: model.predict(features, TOP), features.shape[0])
    torch.set_num_threads(1)
    found["single_ms"] = time_single(lambda row: model.predict(row, TOP), single)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
