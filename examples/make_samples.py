"""Make the samples in `examples/data` from the whole data sets.

The folder must hold `glove-6b-50-angular.hdf5`, `glove-6b-words.txt.gz` and
`wordnet-minilm-384-angular.hdf5`, which `examples/data/README.md` describes.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np

from irli.base.vector_files import read_vectors
from samples import DATA

WORDS = 20_000  # at most
BASE, QUERIES_OOD, QUERIES = 9_000, 2_500, 500


def make_glove(folder: Path, out: Path) -> None:
    """Keep the most frequent words: the lines of the word list are in order of frequency."""
    path = folder / "glove-6b-50-angular.hdf5"
    lines = np.concatenate([_line_numbers(path, "train_id"), _line_numbers(path, "test_id")])
    vectors = np.concatenate([read_vectors(path, "train"), read_vectors(path, "test")])
    rows = np.argsort(lines)[:WORDS]
    with gzip.open(folder / "glove-6b-words.txt.gz", "rt", encoding="utf-8") as file:
        all_words = file.read().split("\n")
    words = "\n".join(all_words[line] for line in lines[rows])
    np.savez_compressed(
        out / "glove-sample.npz",
        words=np.frombuffer(words.encode(), dtype=np.uint8),
        vectors=vectors[rows].astype(np.float16),
    )


def make_wordnet(folder: Path, out: Path) -> None:
    """Keep random rows, in 8 bits with one scale for all so that distances keep their order."""
    path = folder / "wordnet-minilm-384-angular.hdf5"
    rng = np.random.default_rng(0)
    kept = {}
    for name, key, count in (
        ("base", "train", BASE),
        ("queries_ood", "test_ood", QUERIES_OOD),
        ("queries", "test", QUERIES),
    ):
        vectors = read_vectors(path, key)
        count = min(count, len(vectors))
        kept[name] = vectors[np.sort(rng.choice(len(vectors), count, replace=False))]
    scale = np.float32(max(np.abs(vectors).max() for vectors in kept.values()) / 127)
    codes = {name: np.rint(vectors / scale).astype(np.int8) for name, vectors in kept.items()}
    np.savez_compressed(out / "wordnet-sample.npz", scale=scale, **codes)


def _line_numbers(path: Path, key: str) -> np.ndarray:
    import h5py

    with h5py.File(path, "r") as file:
        return file[key][()]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the whole data sets")
    parser.add_argument("--out", type=Path, default=DATA, help="folder to write to")
    given = parser.parse_args(arguments)
    make_glove(given.data, given.out)
    make_wordnet(given.data, given.out)


if __name__ == "__main__":
    main()
