"""One method on one runbook, in a process of its own: python -m bench.living.worker ARGUMENTS

It imports only NumPy, since the peers' environment imports it too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.living.methods import METHODS, TARGET, K, Method, count_seconds


class Live:
    """The live items, and what is true of them."""

    def __init__(self, folder: Path) -> None:
        self.vectors = np.load(folder / "vectors.npy")
        self.queries = np.load(folder / "queries.npy")  # that are reported
        self.others = np.load(folder / "others.npy")  # by which peers set how wide they search
        self.truth = np.load(folder / "truth.npy")  # (searches, n): how near the tenth item is
        self.is_live = np.zeros(len(self.vectors), dtype=bool)

    @property
    def ids(self) -> np.ndarray:
        """The ids of the live items."""
        return np.flatnonzero(self.is_live)

    def count(self, found: np.ndarray, queries: np.ndarray, near: np.ndarray) -> np.ndarray:
        """Return the recall of each query (n,). A removed item, or one found twice, is an error."""
        there = found >= 0
        if not self.is_live[found[there]].all():
            raise SystemExit("A removed item was found.")
        ordered = np.sort(np.where(there, found, -1 - np.arange(K)), axis=1)
        if (np.diff(ordered, axis=1) == 0).any():
            raise SystemExit("An item was found twice.")
        cosines = np.einsum("nkd,nd->nk", self.vectors[found], queries)
        return ((cosines >= near[:, None] - 1e-5) & there).mean(axis=1)


def find_tenth(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Return how near the tenth item of each query is (n,)."""
    if len(vectors) < K:
        return np.full(len(queries), -np.inf, dtype=np.float32)
    near = queries @ vectors.T
    tenth: np.ndarray = np.partition(near, len(vectors) - K, axis=1)[:, len(vectors) - K]
    return tenth


def follow(folder: Path, name: str) -> dict[str, Any]:
    """Take one method through a runbook."""
    live = Live(folder)
    plan = json.loads((folder / "steps.json").read_text())
    method = METHODS[name](live.vectors.shape[1], plan["most"])
    begun = name.startswith("irli")  # others begin when there is enough to learn from
    searches: list[dict[str, Any]] = []
    changes, seconds, kept = 0, 0.0, 0.0
    for step in plan["steps"]:
        if step["operation"] == "search":
            number = len(searches)
            told = {"live": int(live.is_live.sum()), "changes": changes}
            told |= {"change_seconds": seconds, "maintain_seconds": kept}
            compared = number in plan["compared"]
            found = _search(method, live, live.truth[number], compared) if begun else {}
            searches.append(told | found)
            continue
        ids = np.arange(step["start"], step["end"])
        if len(ids) == 0:
            continue
        live.is_live[ids] = step["operation"] == "insert"
        if not begun and live.is_live.sum() < plan["most"] // 4:
            continue
        began = count_seconds()
        if not begun:
            ids = live.ids
            method.learn(live.vectors[ids], ids)
        if step["operation"] == "insert":
            method.insert(live.vectors[ids], ids)
        else:
            method.delete(ids)
        seconds += count_seconds() - began
        changes += len(ids)
        if not begun:
            begun = True
            _set_width(method, live)
        began = count_seconds()
        method.maintain()
        kept += count_seconds() - began
    return {"method": name, "searches": searches}


def _set_width(method: Method, live: Live) -> None:
    """Search as wide as it takes to have the recall, on other queries than those reported."""
    near = find_tenth(live.vectors[live.is_live], live.others)
    try:
        while live.count(method.search(live.others), live.others, near).mean() < TARGET:
            method.widen()
    except StopIteration:
        return


def _search(method: Method, live: Live, near: np.ndarray, compared: bool) -> dict[str, Any]:
    began = time.process_time()
    found = method.search(live.queries)
    seconds = time.process_time() - began
    each = live.count(found, live.queries, near)
    told = {
        "recall": float(each.mean()),
        "lowest": float(np.quantile(each, 0.01)),
        "microseconds": 1e6 * seconds / len(live.queries),
    }
    if compared:
        told |= method.compare(live.queries, near)
    return told | method.describe()


def fit_fresh(folder: Path) -> dict[str, Any]:
    """Fit an index of the live items at some searches, and measure it."""
    import irli
    from bench.living.methods import make_recipe, measure_curve

    live = Live(folder)
    plan = json.loads((folder / "steps.json").read_text())
    number, found = 0, []
    for step in plan["steps"]:
        if step["operation"] != "search":
            live.is_live[step["start"] : step["end"]] = step["operation"] == "insert"
            continue
        if number in plan["compared"]:
            began = count_seconds()
            index = irli.VectorIndex("cosine", recipe=make_recipe())
            index.fit(live.vectors[live.is_live], ids=live.ids, threads=1)
            taken = count_seconds() - began
            told = measure_curve(index, live.queries, live.truth[number])
            began = time.process_time()
            index.search(live.queries, K, threads=1)
            asked = 1e6 * (time.process_time() - began) / len(live.queries)
            found.append({"search": number, "seconds": taken, "microseconds": asked} | told)
        number += 1
    return {"method": "fresh", "searches": found}


if __name__ == "__main__":
    root, which, out = sys.argv[1:]
    made = fit_fresh(Path(root)) if which == "fresh" else follow(Path(root), which)
    Path(out).write_text(json.dumps(made))
