"""Measure a peer for extreme classification: precision, training, size, memory and query time.

It runs in an environment of its own (see peers.txt), one peer in one fresh process:

    .venv-peers/bin/python benchmarks/label_peers.py --peer xr-linear --train FILE --test FILE \\
        --threads 2 --out result.json --predictions predictions.npy

The files are in the text format of the Extreme Classification Repository, gzipped or not. Each peer
is trained once and then queried in one or more ways, the ``runs`` of the result. The predictions
are an int32 array of shape (runs, test rows, 5): labels, best first, -1 where a peer gave fewer.
Settings are the peers' own defaults, or those that their authors publish. Omikuji writes megabytes
of progress to the standard output: send it away.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import normalize

TOP = 5
REPEATS = 3  # of the whole test set; the fastest counts
SINGLE = 1000  # queries one by one
WARM = 50
SEED = 0
CHUNK = 64  # queries of one task, where threads are left to us


@dataclass
class Rows:
    """Sparse features with the labels of each row."""

    features: csr_matrix
    labels: list[list[int]]
    label_count: int

    def label_matrix(self) -> csr_matrix:
        """Return the labels as 0 and 1, one row for each row of features."""
        ends = np.cumsum([0, *map(len, self.labels)])
        columns = np.concatenate([np.array(row, dtype=np.int32) for row in self.labels])
        shape = len(self.labels), self.label_count
        return csr_matrix((np.ones(len(columns), np.float32), columns, ends), shape)


def read(path: Path) -> Rows:
    """Read a file of the Extreme Classification Repository."""
    with _opened(path) as lines:
        rows, width, label_count = map(int, lines.readline().split())
        features, labels = load_svmlight_file(
            lines, n_features=width, multilabel=True, zero_based=True, dtype=np.float32
        )
    if len(labels) != rows:  # the reader skips rows with neither labels nor features
        raise SystemExit(f"{path.name} promises {rows} rows, but {len(labels)} were read")
    return Rows(features, [list(map(int, row)) for row in labels], label_count)


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


class Peer(ABC):
    """A peer: prepared, trained, saved, then queried in each of its ways."""

    package: ClassVar[str]
    runs: Sequence[dict[str, Any]]
    settings: dict[str, Any]

    @abstractmethod
    def prepare(self, path: Path, rows: Rows, folder: Path) -> None:
        """Bring the training data into the form that the peer reads."""

    @abstractmethod
    def train(self, threads: int) -> None:
        """Train; the only step that counts as training."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save what predicting needs."""

    @abstractmethod
    def begin(self, run: dict[str, Any], threads: int) -> None:
        """Get ready to be queried in one of the ways."""

    @abstractmethod
    def queries(self, features: csr_matrix) -> Any:
        """Bring queries into the form that `predict` reads."""

    @abstractmethod
    def predict(self, queries: Any) -> Any:
        """Answer all queries, the best five labels each."""

    @abstractmethod
    def labels(self, answer: Any) -> list[list[int]]:
        """Return the labels of an answer, best first."""


class Omikuji(Peer):
    """Partitioned label trees. They are trained from a file and asked one query at a time."""

    package = "omikuji"
    runs = ({"densified": False}, {"densified": True})

    def __init__(self, **changes: Any) -> None:
        import omikuji

        self._module = omikuji
        self._recipe = omikuji.Model.default_hyper_param()
        for name, value in changes.items():
            setattr(self._recipe, name, value)
        names = [name for name, _ in omikuji.ffi.typeof(self._recipe).fields]
        self.settings = {name: getattr(self._recipe, name) for name in names}

    def prepare(self, path: Path, rows: Rows, folder: Path) -> None:
        self._file = folder / "train.txt"
        with _opened(path) as lines:
            self._file.write_bytes(lines.read())

    def train(self, threads: int) -> None:
        self._model = self._module.Model.train_on_data(str(self._file), self._recipe, threads)

    def save(self, folder: Path) -> None:
        self._model.save(str(folder))

    def begin(self, run: dict[str, Any], threads: int) -> None:
        self._model.init_prediction_thread_pool(threads)
        self._pool = ThreadPoolExecutor(threads)
        if run["densified"]:
            self._model.densify_weights(0.05)

    def queries(self, features: csr_matrix) -> Any:
        ends = zip(features.indptr, features.indptr[1:], strict=False)
        return [
            list(zip(features.indices[a:b].tolist(), features.data[a:b].tolist(), strict=True))
            for a, b in ends
        ]

    def predict(self, queries: Any) -> Any:
        if len(queries) == 1:
            return self._predict(queries)
        chunks = [queries[i : i + CHUNK] for i in range(0, len(queries), CHUNK)]
        return [found for part in self._pool.map(self._predict, chunks) for found in part]

    def _predict(self, chunk: Any) -> Any:  # releases the interpreter's lock for each query
        return [self._model.predict(pairs, top_k=TOP) for pairs in chunk]

    def labels(self, answer: Any) -> list[list[int]]:
        return [[label for label, _ in found] for found in answer]


class Pecos(Peer):
    """PECOS XR-Linear; without clusters it is one classifier for each label."""

    package = "libpecos"

    def __init__(self, runs: list[dict[str, Any]], clusters: bool) -> None:
        from pecos.utils import smat_util
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.base import HierarchicalKMeans, MLModel
        from pecos.xmc.xlinear.model import XLinearModel

        self.runs = runs
        self._clusters = clusters
        self._model_class, self._sorted = XLinearModel, smat_util.sorted_csr
        self._embed, self._index = LabelEmbeddingFactory.create, Indexer.gen
        self.settings = MLModel.TrainParams().to_dict(with_meta=False)
        if clusters:
            self.settings |= {"embedding": "pifa", "negative_sampling_scheme": "tfn"}
            self.settings |= HierarchicalKMeans.TrainParams().to_dict(with_meta=False)
        del self.settings["threads"]

    def prepare(self, path: Path, rows: Rows, folder: Path) -> None:
        self._features, self._labels = self.queries(rows.features), rows.label_matrix()

    def train(self, threads: int) -> None:
        chain = None
        if self._clusters:
            embedding = self._embed(self._labels, self._features, method="pifa", threads=threads)
            chain = self._index(embedding, threads=threads)
        self._model = self._model_class.train(
            self._features, self._labels.tocsc(), C=chain, threads=threads
        )

    def save(self, folder: Path) -> None:
        self._model.save(str(folder))
        self._folder = folder

    def begin(self, run: dict[str, Any], threads: int) -> None:
        self._model = None  # so that the memory never holds two
        self._model = self._model_class.load(
            str(self._folder), is_predict_only=True, weight_matrix_type=run["weights"]
        )
        self._ways = {"beam_size": run.get("beam"), "only_topk": TOP, "threads": threads}

    def queries(self, features: csr_matrix) -> Any:
        return normalize(features)  # the other peers do so themselves

    def predict(self, queries: Any) -> Any:
        return self._model.predict(queries, **self._ways)

    def labels(self, answer: Any) -> list[list[int]]:
        answer = self._sorted(answer)
        return [row.tolist() for row in np.split(answer.indices, answer.indptr[1:-1])]


class NapkinXC(Peer):
    """A probabilistic label tree. It writes its model while it trains.

    One tree, its default: an ensemble reads its files again at every call, so that a query takes
    as long as loading.
    """

    package = "napkinxc"
    runs = ({"search": "exact"},)

    def __init__(self) -> None:
        from napkinxc.models import PLT

        self._model_class = PLT
        self.settings = dict(PLT("", seed=SEED).get_params())
        del self.settings["output"], self.settings["threads"]

    def prepare(self, path: Path, rows: Rows, folder: Path) -> None:
        self._rows = rows
        self._folder = folder / "plt"

    def train(self, threads: int) -> None:
        self._model = self._model_class(str(self._folder), threads=threads, seed=SEED)
        self._model.fit(self._rows.features, self._rows.labels)

    def save(self, folder: Path) -> None:
        for file in self._folder.iterdir():
            file.rename(folder / file.name)
        self._folder = folder

    def begin(self, run: dict[str, Any], threads: int) -> None:
        self._model = self._model_class(str(self._folder), threads=threads, seed=SEED)
        self._model.load()

    def queries(self, features: csr_matrix) -> Any:
        return features

    def predict(self, queries: Any) -> Any:
        return self._model.predict(queries, top_k=TOP)

    def labels(self, answer: Any) -> list[list[int]]:
        return list(answer)


# By default PECOS keeps its weights for binary search; hashed they can be faster.
SEARCHED, HASHED = "BINARY_SEARCH_CHUNKED", "HASH_CHUNKED"
XR_LINEAR = [{"beam": 10, "weights": SEARCHED}]
XR_LINEAR += [{"beam": beam, "weights": HASHED} for beam in (1, 2, 5, 10, 20)]

PEERS: dict[str, Callable[[], Peer]] = {
    "omikuji-parabel": Omikuji,
    "omikuji-bonsai": lambda: Omikuji(cluster_balanced=False, cluster_k=100, max_depth=3),
    "xr-linear": lambda: Pecos(XR_LINEAR, clusters=True),
    "one-vs-all": lambda: Pecos([{"weights": SEARCHED}, {"weights": HASHED}], clusters=False),
    "napkinxc": NapkinXC,
}


def measure(peer: Peer, train: Path, test: Path, threads: int) -> tuple[dict[str, Any], np.ndarray]:
    """Train, save and query a peer; return what was measured and the predictions."""
    rows, asked = read(train), read(test).features
    found: dict[str, Any] = {"peak_mb_data": _peak()}
    with tempfile.TemporaryDirectory() as folder:
        peer.prepare(train, rows, Path(folder))
        started, used = time.perf_counter(), _cpu()
        peer.train(threads)
        found["train_seconds"] = time.perf_counter() - started
        found["train_cpu_seconds"] = _cpu() - used
        found["peak_mb_train"] = _peak()
        model = Path(folder) / "model"
        model.mkdir()
        peer.save(model)
        sizes = [file.stat().st_size for file in model.rglob("*") if file.is_file()]
        found["model_bytes"] = sum(sizes)
        predictions = np.full((len(peer.runs), asked.shape[0], TOP), -1, dtype=np.int32)
        found["runs"] = [
            {**run, **_query(peer, run, asked, threads, kept)}
            for run, kept in zip(peer.runs, predictions, strict=True)
        ]
    found["peak_mb"] = _peak()
    return found, predictions


def _query(
    peer: Peer, run: dict[str, Any], asked: csr_matrix, threads: int, kept: np.ndarray
) -> dict[str, float]:
    """Time one way of querying; write the labels to `kept`."""
    peer.begin(run, threads)
    queries, seconds = peer.queries(asked), []
    for _ in range(REPEATS):
        started = time.process_time()
        answer = peer.predict(queries)
        seconds.append(time.process_time() - started)
    for row, labels in zip(kept, peer.labels(answer), strict=True):
        row[: len(labels)] = labels

    peer.begin(run, 1)
    singles = [peer.queries(asked[i]) for i in range(min(SINGLE, asked.shape[0]))]
    for query in singles[:WARM]:
        peer.predict(query)
    times = []
    for query in singles:
        started = time.process_time()
        peer.predict(query)
        times.append(time.process_time() - started)
    return {
        "batch_ms": 1e3 * min(seconds) / asked.shape[0],
        "single_ms_mean": 1e3 * float(np.mean(times)),
        "single_ms_median": 1e3 * float(np.median(times)),
    }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)  # all threads
    return used.ru_utime + used.ru_stime


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure the peer that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--predictions", type=Path, required=True)
    given = parser.parse_args()
    peer = PEERS[given.peer]()
    found, predictions = measure(peer, given.train, given.test, given.threads)
    head = {"peer": given.peer, "package": f"{peer.package} {version(peer.package)}"}
    head |= {"settings": peer.settings, "threads": given.threads}
    given.out.write_text(json.dumps(head | found, indent=1) + "\n")
    np.save(given.predictions, predictions)


if __name__ == "__main__":
    main()
