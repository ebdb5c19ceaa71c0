"""Try an installed irli: learn, save, open and search one index of each kind.

    python smoke.py learn FOLDER
    python smoke.py search FOLDER   # opens what `learn` has saved

`search` may run on another platform than `learn`. The data come from a seed, so both see the same.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import irli

TOPICS = 20


def make_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return vectors (2000, 16), the labels of each (2000, 20), and queries near them (100, 16)."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(TOPICS, 16))
    topics = rng.integers(TOPICS, size=2000)
    X = centers[topics] + 0.3 * rng.normal(size=(2000, 16))
    return X, np.eye(TOPICS)[topics], X[:100] + 0.01 * rng.normal(size=(100, 16))


def learn(folder: Path) -> None:
    X, Y, _ = make_data()
    irli.VectorIndex("l2").fit(X).save(folder / "vectors")
    irli.LabelIndex().fit(X, Y).save(folder / "labels")


def search(folder: Path) -> None:
    _, Y, Q = make_data()
    vectors: Any = irli.load(folder / "vectors")
    labels: Any = irli.load(folder / "labels")
    found = vectors.search(Q, k=1).ids[:, 0]
    predicted = labels.predict(Q, k=1).labels[:, 0]
    check("nearest items", np.mean(found == np.arange(len(Q))))
    check("labels", np.mean(predicted == Y[: len(Q)].argmax(axis=1)))


def check(what: str, share: float) -> None:
    if share < 0.8:
        sys.exit(f"Only {share:.0%} of the {what} are right; at least 80% must be.")
    print(f"{share:.0%} of the {what} are right.")


def main(command: str, folder: Path) -> None:
    if command == "learn":
        folder.mkdir(parents=True, exist_ok=True)
        learn(folder)
    search(folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
