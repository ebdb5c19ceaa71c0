"""The two samples of real vectors in `examples/data`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).parent / "data"

Vectors = NDArray[np.float32]


def load_glove() -> tuple[list[str], Vectors]:
    """Return the 20,000 most frequent words of GloVe, and their vectors of shape (20000, 50)."""
    with np.load(DATA / "glove-sample.npz") as sample:
        words = sample["words"].tobytes().decode().split("\n")
        return words, sample["vectors"].astype(np.float32)


def load_wordnet() -> tuple[Vectors, Vectors, Vectors]:
    """Return base vectors, queries unlike them, and queries like them, each of shape (n, 384).

    The base are dictionary entries, the queries unlike them one-line descriptions of software.
    """
    with np.load(DATA / "wordnet-sample.npz") as sample:
        scale = sample["scale"]
        base, unlike, like = (sample[name] * scale for name in ("base", "queries_ood", "queries"))
        return base, unlike, like
