"""What irli does, in a minute: word neighbours, then queries unlike the data.

With --smoke it takes a few rows and one epoch: a few seconds, to see that everything runs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import faiss
import matplotlib.pyplot as plt
import numpy as np

import irli
from irli.base.metrics import recall
from irli.engine.exact import exact_neighbors
from samples import load_glove, load_wordnet

PICTURE = Path("demo.png")
K = 10


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few rows and one epoch")
    smoke = parser.parse_args(arguments).smoke
    rows, recipe, tried = None, irli.recipe(), (64, 128, 256, 512, 1024)
    if smoke:
        rows, recipe, tried = 1000, irli.recipe(epochs=1, mixed_queries=100), (8, 16)
    words(rows, recipe)
    ours, theirs, loads = strange_queries(rows, recipe, tried)
    draw(ours, theirs, loads)
    print(f"\nThe picture is in {PICTURE}: recall against work, and the loads of the buckets.")


def words(rows: int | None, recipe: irli.Recipe) -> None:
    """Index 20,000 word vectors and look at a few neighbours."""
    names, vectors = load_glove()
    names, vectors = names[:rows], vectors[:rows]
    print(f"1. {len(names):,} GloVe word vectors of {vectors.shape[1]} dimensions\n")
    index = irli.VectorIndex("cosine", recipe=recipe).fit(vectors, progress=True)
    print(index)
    row = {word: i for i, word in enumerate(names)}
    for word in ("coffee", "violin", "quantum", "river", "monday"):
        if word not in row:
            continue
        found = index.search(vectors[row[word]], k=6)
        near = ", ".join(names[i] for i in found.ids if names[i] != word)
        print(f"   {word:8s} {near}")


def strange_queries(
    rows: int | None, recipe: irli.Recipe, tried: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Search dictionary entries by descriptions of software packages, which look different."""
    base, strange, _ = load_wordnet()
    base, learn, asked = base[:rows], strange[:2000][:rows], strange[2000:]
    print(
        f"\n2. {len(base):,} dictionary entries (WordNet, MiniLM embeddings), searched with\n"
        f"   descriptions of software packages: {len(learn):,} to learn from, "
        f"{len(asked)} others to report on\n"
    )
    index = irli.VectorIndex("cosine", recipe=recipe).fit(base, queries=learn, progress=True)
    print(index)
    base, asked = unit(base), unit(asked)
    truth = exact_neighbors(asked, base, K, "cosine")
    ours = our_points(index, asked, truth)
    faiss.omp_set_num_threads(1)
    points = {count: faiss_points(base, asked, truth, count) for count in tried}
    buckets, theirs = min(points.items(), key=lambda pair: at(pair[1], 0.9, 2))
    print_table({"irli": ours, f"FAISS IVFFlat ({buckets})": theirs})
    free = faiss_index(base, index.stats()["buckets"])
    lists = range(free.nlist)
    loads = [index.loads()[0], np.array([free.invlists.list_size(i) for i in lists])]
    return ours, theirs, loads


def our_points(index: irli.VectorIndex, asked: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return rows of (recall, queries per second, work), one for each threshold."""
    routing = index.stats()["router_multiplications"] / asked.shape[1]
    points = []
    for threshold in np.geomspace(0.2, 2e-4, 12):
        setting = {"threshold": threshold, "candidates": 10 * K}
        found, speed = timed(lambda s=setting: index.search(asked, K, threads=1, **s).ids)
        scanned = index.explain(asked, K, **setting).scanned.mean()
        points.append((recall(found, truth, K), speed, scanned + routing))
    return np.array(points)


def faiss_points(
    base: np.ndarray, asked: np.ndarray, truth: np.ndarray, buckets: int
) -> np.ndarray:
    """Return the same for FAISS, one for each number of probes."""
    index = faiss_index(base, buckets)
    points = []
    for probes in np.unique(np.geomspace(1, buckets / 2, 14).astype(int)):
        index.nprobe = int(probes)
        faiss.cvar.indexIVF_stats.reset()
        index.search(asked, K)
        scanned = faiss.cvar.indexIVF_stats.ndis / len(asked)
        found, speed = timed(lambda: index.search(asked, K)[1])
        points.append((recall(found, truth, K), speed, scanned + buckets))
    return np.array(points)


def faiss_index(base: np.ndarray, buckets: int) -> faiss.IndexIVFFlat:
    """Build IVFFlat on unit vectors."""
    quantizer = faiss.IndexFlatIP(base.shape[1])
    index = faiss.IndexIVFFlat(quantizer, base.shape[1], buckets, faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1
    index.train(base)
    index.add(base)
    return index


def timed(search) -> tuple[np.ndarray, float]:  # type: ignore[no-untyped-def]
    """Return the answer and the best of three speeds, in queries per second."""
    answer, times = search(), []
    for _ in range(3):
        started = time.perf_counter()
        search()
        times.append(time.perf_counter() - started)
    return answer, len(answer) / min(times)


def at(points: np.ndarray, target: float, column: int) -> float:
    """Interpolate a column at a recall."""
    order = np.argsort(points[:, 0])
    return float(np.exp(np.interp(target, points[order, 0], np.log(points[order, column]))))


def print_table(methods: dict[str, np.ndarray]) -> None:
    print(f"\n   {'at recall':24s} {'0.90':>8s} {'0.95':>8s}")
    for name, points in methods.items():
        work = [f"{at(points, r, 2):8,.0f}" for r in (0.9, 0.95)]
        speed = [f"{at(points, r, 1):8,.0f}" for r in (0.9, 0.95)]
        print(f"   {name}\n   {'  work (dot products)':24s} {' '.join(work)}")
        print(f"   {'  queries/s, 1 thread':24s} {' '.join(speed)}")


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def draw(ours: np.ndarray, theirs: np.ndarray, loads: list[np.ndarray]) -> None:
    plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False}
    plt.rcParams |= {"legend.frameon": False, "axes.titlelocation": "left"}
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for points, label, colour in ((ours, "irli", "C3"), (theirs, "FAISS IVFFlat", "C0")):
        left.plot(points[:, 2], points[:, 0], "o-", color=colour, label=label)
    left.set(
        xscale="log",
        ylim=(0.6, 1.005),
        xlabel="work: dot products per query",
        ylabel=f"recall {K}@{K}",
        title="Queries unlike the data: less work for the same recall",
    )
    left.set_xticks([500, 1000, 2000, 5000], labels=["500", "1,000", "2,000", "5,000"])
    left.minorticks_off()
    left.grid(alpha=0.3)
    left.legend(loc="lower right")
    for load, label, colour in zip(loads, ("irli", "k-means"), ("C3", "C0"), strict=True):
        share = np.sort(load)[::-1] / load.mean()
        right.plot(np.linspace(0, 100, len(share)), share, color=colour, label=label, lw=2)
    right.set(
        ylim=(0, None),
        xlabel="buckets, fullest first (%)",
        ylabel="items / mean number of items",
        title="As many buckets: none much fuller than the mean",
    )
    right.grid(alpha=0.3)
    right.legend()
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
