"""The paper's own data sets, from the files in which they are published.

Each set has a folder of its name: glove-100, sift1m, deep-10m, deep-100m, deep-1b, wiki-500k and
amazon-670k. docs/how-to/paper-files.md says where the files come from. Of several published forms,
the first one is read that is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import irli
from bench.commands import Options, find_file
from bench.paper.local_features import make_local_features
from bench.vectors.data import FILES, METRIC, SIFT, normalize
from irli.labels.files.rows import Rows, read_matrix, read_rows
from irli.vectors import read_ann_benchmark, read_ground_truth, read_vectors

NEIGHBORS = 100  # computed where a set has no ground truth
HELD_OUT = 10_000  # words of GloVe that become queries, as in ann-benchmarks


class VectorSet(NamedTuple):
    """Base vectors (n, d), queries, their exact neighbours, and the learning set if there is one.

    What a file can map stays on disk.
    """

    base: Any
    queries: Any
    neighbors: Any
    learn: Any
    metric: str


class Names(NamedTuple):
    """The files of a set: base vectors, queries, ground truth, and the learning set."""

    base: str
    queries: str
    neighbors: str
    learn: str


_SIFT = Names("sift_base.fvecs", "sift_query.fvecs", "sift_groundtruth.ivecs", "sift_learn.fvecs")
_TEXMEX_DEEP = Names(
    "deep1B_base.fvecs", "deep1B_queries.fvecs", "deep1B_groundtruth.ivecs", "deep1B_learn.fvecs"
)
_QUERIES, _LEARN = "query.public.10K.fbin", "learn.350M.fbin"
VECTORS: dict[str, tuple[str | Names, ...]] = {
    "glove-100": ("glove-100-angular.hdf5", "glove.twitter.27B.100d.txt"),
    "sift1m": ("sift-128-euclidean.hdf5", _SIFT),
    "deep-10m": (Names("base.10M.fbin", _QUERIES, "deep-10M", _LEARN),),
    "deep-100m": (Names("base.100M.fbin", _QUERIES, "deep-100M", _LEARN),),
    "deep-1b": (
        Names("base.1B.fbin", _QUERIES, "deep_new_groundtruth.public.10K.bin", _LEARN),
        _TEXMEX_DEEP,
    ),
}
FULL = {"glove": "glove-100", "sift": "sift1m"}
SMALL = {"glove": FILES["glove"], "sift": SIFT}
LABELS = ("wiki-500k", "amazon-670k")
# The dense features of SLICE, which the paper uses; the newer files; the older ones.
ROWS: tuple[tuple[str, ...], ...] = (
    ("trn_ft_mat.txt", "trn_lbl_mat.txt", "tst_ft_mat.txt", "tst_lbl_mat.txt"),
    ("trn_X_Xf.txt", "trn_X_Y.txt", "tst_X_Xf.txt", "tst_X_Y.txt"),
    ("train.txt", "test.txt"),
)


class Points(NamedTuple):
    """Items (N, d) and queries (n, d), of length 1: on average, unless by the angle."""

    items: np.ndarray
    queries: np.ndarray
    metric: str


def read_points(options: Options, name: str) -> Points:
    """Read "glove", "sift", or "local-features"; at the full scale, GloVe-100 or SIFT1M."""
    if options.scale == "full" and not options.smoke:
        base, test, *_, metric = read_vector_set(options.data, FULL[name])
    elif name == "local-features":  # as many as SIFT1M has, and of its form
        path, metric = find_file(options.data, FILES["fashion"]), "l2"
        base, test = (make_local_features(read_vectors(path, key=k)) for k in ("train", "test"))
    else:
        path, metric = find_file(options.data, SMALL[name]), METRIC.get(name, "l2")
        base, test = (read_vectors(path, key=key) for key in ("train", "test"))
    base, test = np.asarray(base, dtype=np.float32), np.asarray(test, dtype=np.float32)
    if metric == "cosine":
        return Points(normalize(base), normalize(test), metric)
    length = np.float32(np.linalg.norm(base, axis=1).mean())
    return Points(base / length, test / length, metric)


def read_vector_set(data: Path, name: str) -> VectorSet:
    """Read a set of vectors of the paper from `data`/`name`."""
    folder, forms = data / name, VECTORS[name]
    firsts = [form.base if isinstance(form, Names) else form for form in forms]
    form = forms[_find_form(folder, [(first,) for first in firsts])]
    if isinstance(form, Names):
        truth, _ = read_ground_truth(folder / form.neighbors)
        learn = folder / form.learn
        return VectorSet(
            read_vectors(folder / form.base),
            read_vectors(folder / form.queries),
            truth,
            read_vectors(learn) if learn.exists() else None,
            "l2",
        )
    if form.endswith(".txt"):
        return _split_words(read_vectors(folder / form))
    found = read_ann_benchmark(folder / form)
    return VectorSet(found.train, found.test, found.neighbors, None, found.metric)


def read_row_set(data: Path, name: str) -> tuple[Rows, Rows]:
    """Read the training and the test rows of a set of labels of the paper from `data`/`name`."""
    folder = data / name
    paths = [folder / file for file in ROWS[_find_form(folder, ROWS)]]
    if len(paths) == 2:
        return read_rows(paths[0]), read_rows(paths[1])
    train, train_labels, test, test_labels = map(read_matrix, paths)
    return Rows(train, train_labels), Rows(test, test_labels)


def _find_form(folder: Path, forms: Any) -> int:
    """Return the number of the first form whose files are all there, or end with what to do."""
    for number, files in enumerate(forms):
        if all((folder / file).exists() for file in files):
            return number
    wanted = ", or ".join(" and ".join(files) for files in forms)
    raise SystemExit(
        f"There must be {wanted} in {folder}. See docs/how-to/paper-files.md, or say where the "
        "folder is: --data FOLDER"
    )


def _split_words(vectors: np.ndarray) -> VectorSet:
    """Return words as base vectors and held-out queries with their exact neighbours."""
    order = np.random.default_rng(1).permutation(len(vectors))
    held = min(HELD_OUT, len(vectors) // 10)
    base, queries = vectors[order[held:]], vectors[order[:held]]
    exact = irli.VectorIndex("cosine", recipe="exact").fit(base)
    found = exact.search(queries, min(NEIGHBORS, len(base)))
    return VectorSet(base, queries, found.ids, None, "cosine")
