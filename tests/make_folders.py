"""Write the small saved folders in `tests/data`, and what their indexes answer.

Run it after a change of the format: `python tests/make_folders.py`. The neighbours and the labels
are known from how the data are made, so the tests also judge what it wrote.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from planted import clusters
from plantedlabels import labelled, small_labels

import irli
from irli.cluster import ShardedIndex, ShardedLabelIndex

FOLDERS = Path(__file__).parent / "data" / "format-1"
SMALL = {"epochs": 1, "epoch_size": 256, "hidden": 4}
NAMES = [f"label {number} ö" for number in range(9)]
NOISES = {"cat": "purrs", "dog": "barks", "fish": "bubbles", "east": "ÖST!", "pan": "sizzles"}

Asked = dict[str, Any]


def write(name: str, index: Any, asks: list[Asked], **inputs: Any) -> None:
    """Save an index, and what it answers."""
    shutil.rmtree(FOLDERS / name, ignore_errors=True)
    index.save(FOLDERS / name)
    known = {"asks": np.array(json.dumps(asks)), **inputs}
    for number, ask in enumerate(asks):
        numbers, found = answer(index, inputs, ask)
        known |= {f"numbers_{number}": numbers, f"found_{number}": found}
    np.savez_compressed(FOLDERS / f"{name}.npz", **known)
    for lock in FOLDERS.rglob(".irli*"):
        lock.unlink()


def answer(index: Any, inputs: Any, ask: Asked) -> tuple[Any, Any]:
    """Return distances and ids, or scores and labels."""
    if "queries" in inputs:
        return tuple(index.search(inputs["queries"], 5, threads=1, **ask))
    if "texts" in inputs:
        return tuple(index.predict(index.features(list(inputs["texts"])), 4, threads=1, **ask))
    return tuple(index.predict(inputs["rows"], 4, threads=1, **ask))


def make_vectors() -> None:
    """Write indexes with codes, with 8-bit copies, and in two shards."""
    made = clusters(38, 8, 8)
    X, queries = made.points[:300], made.points[::15] + np.float32(0.01)
    recipe = irli.recipe("default", buckets=8, choices=4, pieces=8, **SMALL)
    ids = np.random.default_rng(0).permutation(1000)[:300]
    ways = [{}, {"probes": 3, "candidates": 30, "score": "codes"}]
    by_votes = {"threshold": 0.05, "score": "votes", "candidates": 20}
    index = irli.VectorIndex(recipe=recipe).fit(X, ids=ids, threads=1)
    write("codes", index, [*ways, by_votes], queries=queries)
    long = np.random.default_rng(1).normal(size=(16, 128)).astype(np.float32)
    recipe = irli.recipe("default", buckets=2, choices=2, pieces=4, **SMALL)
    index = irli.VectorIndex("cosine", recipe=recipe).fit(long, threads=1)
    ways = [{}, {"probes": 2, "candidates": 10, "score": "codes"}]
    write("int8", index, ways, queries=long + np.float32(0.1))
    recipe = irli.recipe("default", buckets=8, choices=4, pieces=8, **SMALL)
    sharded = ShardedIndex(recipe=recipe, shards=2).fit(X[:200], queries=X[200:], threads=1)
    write("shards", sharded, [{}, {"probes": 2}], queries=queries)


def make_labels() -> None:
    """Write indexes of rows with a ranker, of texts, and in two shards."""
    X, Y = labelled(120, 9)
    rows = labelled(20, 9, seed=1).X.toarray()
    few = small_labels(buckets=None, hidden=8, epochs=6, batch_size=16)
    index = irli.LabelIndex(few, ranker=True).fit(X, Y, names=NAMES, threads=1)
    write("features", index, [{}, {"ranker": False, "probes": 3}], rows=rows)
    recipe = small_labels(buckets=3, hidden=8, epochs=6, batch_size=16)
    sharded = ShardedLabelIndex(recipe, shards=2).fit(X, Y, names=NAMES, threads=1)
    write("label-shards", sharded, [{}, {"probes": 2}], rows=rows)
    texts = [f"it {noise} {turn % 3}" for turn in range(18) for noise in NOISES.values()]
    named = [[name] for _ in range(18) for name in NOISES]
    index = irli.LabelIndex(recipe, ranker=False).fit_text(texts, named, threads=1)
    ways = [{}, {"probes": 2, "candidates": 3}]
    write("texts", index, ways, texts=np.array(list(NOISES.values())))


def make_changed() -> None:
    """Write an index that has changed since its arrays were written, in format 2."""
    folder = FOLDERS.with_name("format-2") / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    made = clusters(38, 8, 8).points
    with irli.open(folder, metric="l2", dim=8, maintain="manual") as index:
        index.add(made[:200], payloads=[{"n": n, "odd": n % 2 == 1} for n in range(200)])
        index.search(made[0], filter={"odd": True})  # which makes a column
        index.compact()
        index.remove(range(10))
        index.upsert(made[200:205], ids=[10, 11, 12, 300, 301], payloads=[{"n": 7}] * 5)
        index.set_payload(50, {"n": -1})
    for lock in folder.glob(".irli*"):
        lock.unlink()


if __name__ == "__main__":
    make_vectors()
    make_changed()
    make_labels()
