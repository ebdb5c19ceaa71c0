"""The other libraries: how each is built, saved, loaded, searched, and which settings are tried.

It runs in an environment of its own (see vector-peers.txt) and imports nothing of irli. Vectors are
normalised where the metric is the angle, so that every peer searches by inner product or L2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.vectors.methods import Method, Setting, doubling


class Faiss(Method):
    """An index of FAISS, made by its factory."""

    package = "faiss-cpu"
    module = "faiss"

    def build(self, base: np.ndarray, learn: np.ndarray | None, threads: int) -> None:
        self.library.omp_set_num_threads(threads)
        metric = (
            self.library.METRIC_L2 if self.metric == "l2" else self.library.METRIC_INNER_PRODUCT
        )
        self.index = self.library.index_factory(base.shape[1], self.settings["factory"], metric)
        self._before_training()
        self.index.train(base)
        self.index.add(base)

    def _before_training(self) -> None:
        pass

    def save(self, folder: Path) -> None:
        self.library.write_index(self.index, str(folder / "index.faiss"))

    def load(self, folder: Path) -> None:
        self.index = self.library.read_index(str(folder / "index.faiss"))

    def begin(self, setting: Setting, threads: int) -> None:
        self.library.omp_set_num_threads(threads)

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(queries, k)[1]

    def prepare(self, queries: np.ndarray) -> list[np.ndarray]:
        return [queries[i : i + 1] for i in range(len(queries))]

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(query, k)[1][0]


class FaissFlat(Faiss):
    """All items compared."""

    def sweep(self) -> Iterator[list[Setting]]:
        yield [{}]


class FaissIVF(Faiss):
    """Inverted lists: flat, or with 4-bit codes and exact refinement."""

    def _inner(self) -> Any:
        return self.library.extract_index_ivf(self.index)

    def sweep(self) -> Iterator[list[Setting]]:
        probes = doubling(1, self._inner().nlist, step=2**0.5)
        refine = (0, 2, 4, 8, 16, 32, 64) if "RFlat" in self.settings["factory"] else (None,)
        for factor in refine:
            yield [{"nprobe": n} | ({} if factor is None else {"refine": factor}) for n in probes]

    def begin(self, setting: Setting, threads: int) -> None:
        super().begin(setting, threads)
        self._inner().nprobe = setting["nprobe"]
        # Without refinement the inner index answers.
        self._searched = self.index
        if setting.get("refine") == 0:
            self._searched = self.library.downcast_index(self.index.base_index)
        elif "refine" in setting:
            self.index.k_factor = setting["refine"]

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        return self._searched.search(queries, k)[1]

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        return self._searched.search(query, k)[1][0]

    def work(self, queries: np.ndarray, setting: Setting) -> dict[str, float]:
        self.library.cvar.indexIVF_stats.reset()
        self.batch(queries, 10)
        scanned = self.library.cvar.indexIVF_stats.ndis / len(queries)
        inner = self._inner()
        exact = scanned if "refine" not in setting else 10 * setting["refine"]
        return {
            "scanned": scanned,
            "exact": exact,
            "router_multiplications": inner.nlist * inner.d,
        }


class FaissHNSW(Faiss):
    """The HNSW graph of FAISS."""

    def _before_training(self) -> None:
        self.index.hnsw.efConstruction = 200

    def sweep(self) -> Iterator[list[Setting]]:
        yield [{"efSearch": ef} for ef in doubling(10, 1300, step=2**0.5)]

    def begin(self, setting: Setting, threads: int) -> None:
        super().begin(setting, threads)
        self.index.hnsw.efSearch = setting["efSearch"]

    def work(self, queries: np.ndarray, setting: Setting) -> dict[str, float]:
        self.library.cvar.hnsw_stats.reset()
        self.batch(queries, 10)
        exact = self.library.cvar.hnsw_stats.ndis / len(queries)
        return {"scanned": exact, "exact": exact, "router_multiplications": 0}


class Hnswlib(Method):
    """The HNSW graph by its inventors."""

    package = "hnswlib"
    module = "hnswlib"

    def build(self, base: np.ndarray, learn: np.ndarray | None, threads: int) -> None:
        self._make(base.shape[1])
        self.index.init_index(len(base), M=self.settings["M"], ef_construction=200)
        self.index.add_items(base, num_threads=threads)
        self._dim = base.shape[1]

    def _make(self, dim: int) -> None:
        self.index = self.library.Index(space="l2" if self.metric == "l2" else "ip", dim=dim)

    def save(self, folder: Path) -> None:
        self.index.save_index(str(folder / f"{self._dim}.hnswlib"))

    def load(self, folder: Path) -> None:
        (file,) = folder.glob("*.hnswlib")
        self._make(int(file.stem))
        self.index.load_index(str(file))

    def sweep(self) -> Iterator[list[Setting]]:
        yield [{"ef": ef} for ef in doubling(10, 1300, step=2**0.5)]

    def begin(self, setting: Setting, threads: int) -> None:
        self.index.set_ef(setting["ef"])
        self._threads = threads

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        return self.index.knn_query(queries, k, num_threads=self._threads)[0].astype(np.int64)

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        return self.index.knn_query(query, k, num_threads=1)[0][0]


class Usearch(Method):
    """Another HNSW graph, in half precision if told so."""

    package = "usearch"
    module = "usearch.index"

    def build(self, base: np.ndarray, learn: np.ndarray | None, threads: int) -> None:
        self.index = self.library.Index(
            ndim=base.shape[1],
            metric="l2sq" if self.metric == "l2" else "ip",
            dtype=self.settings["dtype"],
            connectivity=self.settings["M"],
            expansion_add=200,
        )
        self.index.add(np.arange(len(base)), base, threads=threads)

    def save(self, folder: Path) -> None:
        self.index.save(str(folder / "index.usearch"))

    def load(self, folder: Path) -> None:
        self.index = self.library.Index.restore(str(folder / "index.usearch"))

    def sweep(self) -> Iterator[list[Setting]]:
        yield [{"expansion": ef} for ef in doubling(10, 1300, step=2**0.5)]

    def begin(self, setting: Setting, threads: int) -> None:
        self.index.expansion_search = setting["expansion"]
        self._threads = threads

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(queries, k, threads=self._threads).keys.astype(np.int64)

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(query, k, threads=1).keys


class Scann(Method):
    """ScaNN: a tree of one level, 4-bit codes with the score-aware loss, exact reordering."""

    package = "scann"
    module = "scann.scann_ops.py.scann_ops_pybind"

    def build(self, base: np.ndarray, learn: np.ndarray | None, threads: int) -> None:
        given = self.settings
        measure = "squared_l2" if self.metric == "l2" else "dot_product"
        builder = self.library.builder(base, 10, measure).set_n_training_threads(threads)
        spilled = {"soar_lambda": given["soar"]} if given.get("soar") else {}
        builder = builder.tree(
            num_leaves=given["leaves"],
            num_leaves_to_search=1,
            training_sample_size=len(base),
            spherical=self.metric == "cosine",
            **spilled,
        )
        noise = {"anisotropic_quantization_threshold": given["T"]} if given.get("T") else {}
        builder = builder.score_ah(given["dims"], training_sample_size=len(base), **noise)
        self.index = builder.reorder(100).build()

    def save(self, folder: Path) -> None:
        self.index.serialize(str(folder), relative_path=True)

    def load(self, folder: Path) -> None:
        self.index = self.library.load_searcher(str(folder))

    def sweep(self) -> Iterator[list[Setting]]:
        leaves = doubling(1, self.settings["leaves"], step=2**0.5)
        for reorder in (20, 30, 50, 80, 160, 320):
            yield [{"leaves": n, "reorder": reorder} for n in leaves]

    def begin(self, setting: Setting, threads: int) -> None:
        self.index.set_num_threads(threads)
        self._reorder, self._leaves = setting["reorder"], setting["leaves"]
        self._threads = threads

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        search = self.index.search_batched
        if self._threads > 1:
            search = self.index.search_batched_parallel
        return search(queries, k, self._reorder, self._leaves)[0].astype(np.int64)

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(query, k, self._reorder, self._leaves)[0]

    def work(self, queries: np.ndarray, setting: Setting) -> dict[str, float]:
        return {
            "exact": setting["reorder"],
            "router_multiplications": self.settings["leaves"] * queries.shape[1],
        }


class Lorann(Method):
    """LoRANN: clusters with a regression of low rank each.

    It needs at least 64 dimensions, so shorter vectors are padded with zeros.
    """

    package = "lorann"
    module = "lorann"

    def build(self, base: np.ndarray, learn: np.ndarray | None, threads: int) -> None:
        given, base = self.settings, self._widen(base)
        self.index = self.library.LorannIndex(
            base,
            given["clusters"],
            min(given["dim"], base.shape[1] // 32 * 32),
            quantization_bits=given["bits"],
            distance=self.library.L2 if self.metric == "l2" else self.library.IP,
        )
        queries = None
        if given.get("sample_queries"):
            queries = np.concatenate([base, self._widen(learn)])
        self.index.build(n_threads=threads, training_queries=queries)

    def _widen(self, vectors: np.ndarray) -> np.ndarray:
        return np.pad(vectors, ((0, 0), (0, max(0, 64 - vectors.shape[1]))))

    def save(self, folder: Path) -> None:
        self.index.save(str(folder / "index.lorann"))

    def load(self, folder: Path) -> None:
        self.index = self.library.LorannIndex.load(str(folder / "index.lorann"))

    def sweep(self) -> Iterator[list[Setting]]:
        clusters = doubling(1, self.settings["clusters"], step=2**0.5)
        for points in (25, 50, 100, 200, 400, 800, 1600):
            yield [{"clusters": n, "points": points} for n in clusters]

    def begin(self, setting: Setting, threads: int) -> None:
        self._clusters, self._points, self._threads = *setting.values(), threads

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        found = self.index.search(
            self._widen(queries), k, self._clusters, self._points, False, self._threads
        )
        return found.astype(np.int64)

    def prepare(self, queries: np.ndarray) -> list[np.ndarray]:
        return list(self._widen(queries))

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(query, k, self._clusters, self._points, False, 1)

    def work(self, queries: np.ndarray, setting: Setting) -> dict[str, float]:
        dim = min(self.settings["dim"], queries.shape[1])
        return {
            "exact": setting["points"],
            "router_multiplications": self.settings["clusters"] * dim,
        }


METHODS: dict[str, Callable[..., Method]] = {
    "scann": Scann,
    "faiss-ivfpqfs": FaissIVF,
    "faiss-flat": FaissFlat,
    "faiss-hnsw": FaissHNSW,
    "lorann": Lorann,
    "hnswlib": Hnswlib,
    "faiss-ivf": FaissIVF,
    "usearch": Usearch,
}
