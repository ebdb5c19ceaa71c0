"""Build time and memory, the first answer of a fresh process, and the gain of a second thread."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import METRIC, keep, load, say, table

import irli

BATCH = 10_000


def build(data: Path) -> None:
    """Bar 5: GloVe with the default recipe, neighbours included, in a process of its own."""
    code = (
        "import sys, time, resource; sys.path.insert(0, sys.argv[1]);"
        "from pathlib import Path; from common import load; import irli;"
        "base, _ = load(Path(sys.argv[2]), 'glove'); started = time.perf_counter();"
        "irli.VectorIndex('cosine').fit(base);"
        "print(time.perf_counter() - started,"
        " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    here = str(Path(__file__).parent)
    out = subprocess.run(
        [sys.executable, "-c", code, here, str(data)], check=True, capture_output=True, text=True
    )
    seconds, peak = map(float, out.stdout.split())
    table(["build seconds", "peak memory GB"], [[f"{seconds:.0f}", f"{peak:.2f}"]])
    keep("build", {"seconds": seconds, "peak_gb": peak})


def first_answer(data: Path) -> None:
    """Bar 6: from the start of a process to its first answer, with nothing heavy imported."""
    base, queries = load(data, "wordnet")
    base = base[:20_000]
    recipe = irli.recipe("default", epochs=1, epoch_size=4096, training_points=4096)
    with tempfile.TemporaryDirectory() as folder:
        irli.VectorIndex("cosine", recipe=recipe).fit(base).save(folder)
        np.save(Path(folder).with_suffix(".npy"), queries.vectors[:1])
        code = (
            "import sys, irli, numpy as np; index = irli.load(sys.argv[1]);"
            "index.search(np.load(sys.argv[2])[0]);"
            "print([m for m in ('torch', 'ray', 'faiss', 'fastapi') if m in sys.modules])"
        )
        times = []
        for _ in range(4):
            started = time.perf_counter()
            command = [sys.executable, "-c", code, folder, f"{folder}.npy"]
            out = subprocess.run(command, check=True, capture_output=True, text=True)
            times.append(time.perf_counter() - started)
    say(f"heavy modules imported: {out.stdout.strip()}")
    warm = times[1:]
    table(["first answer after, s (kernels cached)"], [[f"{min(warm):.2f} to {max(warm):.2f}"]])
    keep("first-answer", {"seconds": warm, "imported": out.stdout.strip()})


def two_threads(data: Path) -> None:
    """Bar 7: a batch of 10,000 on one thread and on two."""
    rows = []
    for name in ("glove", "wordnet"):
        base, queries = load(data, name)
        batch = np.resize(queries.vectors, (BATCH, base.shape[1]))
        recipe = irli.recipe("default", epochs=1, epoch_size=8192, training_points=2048)
        index = irli.VectorIndex(METRIC[name], recipe=recipe).fit(base)
        seconds = {1: [], 2: []}
        index.search(batch[:100])
        for _ in range(5):  # in turns, so that a slow minute hits both
            for threads, times in seconds.items():
                started = time.perf_counter()
                index.search(batch, threads=threads)
                times.append(time.perf_counter() - started)
        one, two = (BATCH / min(times) for times in seconds.values())
        rows.append([name, f"{one:.0f}", f"{two:.0f}", f"{two / one:.2f}"])
    table(["data", "queries/s, 1 thread", "2 threads", "ratio"], rows)
    keep(
        "threads",
        {"rows": rows, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024},
    )
