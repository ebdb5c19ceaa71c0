"""The other libraries for extreme classification: each is trained once and queried in its ways.

It runs in an environment of its own (see label-peers.txt), in one fresh process for each peer:

    python -m bench.labels.peers PEER TRAIN TEST THREADS RESULT PREDICTIONS

TRAIN and TEST are text files of the Extreme Classification Repository, gzipped or not. RESULT gets
what was measured, as JSON; its `runs` are the ways of querying. PREDICTIONS gets an int32 array of
shape (runs, test rows, 5): labels, best first, and -1 where a peer gave fewer. Settings are the
peers' own defaults, or those that their authors publish.
"""

from __future__ import annotations

import gzip
import sys
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
from scipy.sparse import csc_matrix, csr_matrix
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import normalize

from bench.common import read_memory, write_json
from bench.labels.data import PACKAGES
from bench.labels.timing import SINGLE, TOP, time_batch, time_single

SEED = 0
CHUNK = 64  # queries of one task, where a library leaves threads to us


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


def read_rows(path: Path) -> Rows:
    """Read a file of the Extreme Classification Repository."""
    with _open(path) as lines:
        rows, width, label_count = map(int, lines.readline().split())
        features, labels = load_svmlight_file(
            lines, n_features=width, multilabel=True, zero_based=True, dtype=np.float32
        )
    if len(labels) != rows:  # the reader skips rows with neither labels nor features
        raise SystemExit(f"{path.name} promises {rows} rows, but {len(labels)} were read")
    return Rows(features, [list(map(int, row)) for row in labels], label_count)


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


class Peer(ABC):
    """A library: prepared, trained, saved, then queried in each of its ways."""

    runs: Sequence[dict[str, Any]]
    settings: dict[str, Any]

    @abstractmethod
    def prepare(self, path: Path, rows: Rows, folder: Path) -> None:
        """Bring the training data into the form that the library reads."""

    @abstractmethod
    def train(self, threads: int) -> None:
        """Train; the only step that counts as training."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save what predictions need."""

    @abstractmethod
    def begin(self, run: dict[str, Any], threads: int) -> None:
        """Get ready for one of the ways of querying."""

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
    """Partitioned label trees. They are trained from a file and predict one query at a time."""

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
        with _open(path) as lines:
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

    def _predict(self, chunk: Any) -> Any:  # which releases the lock of the interpreter
        return [self._model.predict(pairs, top_k=TOP) for pairs in chunk]

    def labels(self, answer: Any) -> list[list[int]]:
        return [[label for label, _ in found] for found in answer]


class Pecos(Peer):
    """PECOS XR-Linear; without clusters it is one classifier for each label."""

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
        self._model = None  # so that memory never holds two
        self._model = self._model_class.load(
            str(self._folder), is_predict_only=True, weight_matrix_type=run["weights"]
        )
        self._ways = {"beam_size": run.get("beam"), "only_topk": TOP, "threads": threads}

    def queries(self, features: csr_matrix) -> Any:
        return normalize(features)  # the other libraries do so themselves

    def predict(self, queries: Any) -> Any:
        return self._model.predict(queries, **self._ways)

    def labels(self, answer: Any) -> list[list[int]]:
        answer = self._sorted(answer)
        return [row.tolist() for row in np.split(answer.indices, answer.indptr[1:-1])]


class NapkinXC(Peer):
    """A probabilistic label tree. It writes its model while it trains.

    It has one tree, as by default. An ensemble reads its files again at every call, so that a query
    would take as long as loading.
    """

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


class Slice(Peer):
    """As SLICE: a graph over the labels gives a shortlist, which a classifier for each label ranks.

    The vector of a label is the mean of its rows. A classifier learns from the rows that have the
    label and from those that have it in their shortlist. Sizes are the defaults of SLICE. Graph and
    classifiers are those of PECOS, which multiplies both scores.
    """

    runs = ({"shortlist": 300},)
    settings: ClassVar[dict[str, Any]] = {"M": 100, "efC": 300, "efS": 300, "shortlist": 300}

    def __init__(self) -> None:
        from pecos.ann.hnsw import HNSW
        from pecos.xmc.base import MLModel, MLProblem

        self._graph_class, self._model_class, self._problem = HNSW, MLModel, MLProblem

    def prepare(self, path: Path, rows: Rows, folder: Path) -> None:
        self._features, self._labels = self.queries(rows.features), rows.label_matrix()

    def train(self, threads: int) -> None:
        features, labels = self._features, self._labels
        given = self._graph_class.TrainParams(
            M=self.settings["M"], efC=self.settings["efC"], threads=threads
        )
        means = normalize(csr_matrix(labels.T @ features)).astype(np.float32)
        self._graph = self._graph_class.train(means, given)
        self._start(threads)
        reached = csr_matrix(self._shortlist(features) + labels)
        reached.data[:] = 1
        count = labels.shape[1]
        alone = csc_matrix((np.ones(count, np.float32), np.arange(count), np.arange(count + 1)))
        problem = self._problem(
            features, labels.tocsc(), C=alone, M=reached.tocsc(), threads=threads
        )
        self._model = self._model_class.train(problem, threads=threads)

    def save(self, folder: Path) -> None:
        for part, name in ((self._graph, "graph"), (self._model, "model")):
            (folder / name).mkdir()
            part.save(str(folder / name))

    def begin(self, run: dict[str, Any], threads: int) -> None:
        self._start(threads)

    def _start(self, threads: int) -> None:
        most = min(self.settings["shortlist"], self._labels.shape[1])
        self._given = self._graph_class.PredParams(
            efS=self.settings["efS"], topk=most, threads=threads
        )
        self._searchers = self._graph.searchers_create(threads)
        self._threads = threads

    def _shortlist(self, queries: Any) -> csr_matrix:
        """Return the similarities (n, L) of the labels that the graph finds."""
        near = csr_matrix(self._graph.predict(queries, self._given, self._searchers))
        near.data = np.maximum(1 - near.data, 1e-6)  # from distances
        return near

    def queries(self, features: csr_matrix) -> Any:
        return normalize(features)

    def predict(self, queries: Any) -> Any:
        return self._model.predict(
            queries, csr_codes=self._shortlist(queries), only_topk=TOP, threads=self._threads
        )

    def labels(self, answer: Any) -> list[list[int]]:
        rows = (answer[i] for i in range(answer.shape[0]))
        return [row.indices[np.argsort(-row.data)].tolist() for row in rows]


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
    "slice-like": Slice,
}


def measure(peer: Peer, train: Path, test: Path, threads: int) -> tuple[dict[str, Any], np.ndarray]:
    """Train, save and query a peer; return what was measured and the predictions."""
    rows, queries = read_rows(train), read_rows(test).features
    found: dict[str, Any] = {"peak_mb_data": read_memory("VmHWM") / 2**20}
    with tempfile.TemporaryDirectory() as folder:
        peer.prepare(train, rows, Path(folder))
        wall, cpu = time.perf_counter(), time.process_time()
        peer.train(threads)
        found["train_seconds"] = time.perf_counter() - wall
        found["train_cpu_seconds"] = time.process_time() - cpu
        found["peak_mb_train"] = read_memory("VmHWM") / 2**20
        model = Path(folder) / "model"
        model.mkdir()
        peer.save(model)
        sizes = [file.stat().st_size for file in model.rglob("*") if file.is_file()]
        found["model_bytes"] = sum(sizes)
        predictions = np.full((len(peer.runs), queries.shape[0], TOP), -1, dtype=np.int32)
        found["runs"] = [
            {**run, **_query(peer, run, queries, threads, out)}
            for run, out in zip(peer.runs, predictions, strict=True)
        ]
    found["peak_mb"] = read_memory("VmHWM") / 2**20
    return found, predictions


def _query(
    peer: Peer, run: dict[str, Any], features: csr_matrix, threads: int, out: np.ndarray
) -> dict[str, float]:
    """Time one way of querying; write the labels to `out`."""
    peer.begin(run, threads)
    queries = peer.queries(features)
    for row, labels in zip(out, peer.labels(peer.predict(queries)), strict=True):
        row[: len(labels)] = labels
    single = [peer.queries(features[i]) for i in range(min(SINGLE, features.shape[0]))]
    batch_ms = time_batch(lambda: peer.predict(queries), features.shape[0])
    peer.begin(run, 1)
    return {"batch_ms": batch_ms, "single_ms": time_single(peer.predict, single)}


def main(name: str, train: str, test: str, threads: str, result: str, predictions: str) -> None:
    """Measure the peer that the command line names."""
    peer = PEERS[name]()
    found, predicted = measure(peer, Path(train), Path(test), int(threads))
    head = {"peer": name, "package": f"{PACKAGES[name]} {version(PACKAGES[name])}"}
    head |= {"settings": peer.settings, "threads": int(threads)}
    write_json(Path(result), head | found)
    np.save(predictions, predicted)


if __name__ == "__main__":
    main(*sys.argv[1:])
