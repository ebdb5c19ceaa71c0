"""What changes cost an index that never changes: this code beside that of another checkout.

The part that measures runs in a process of its own, with the Python of a checkout, and is given to
it as a script: python free.py FOLDER ARGUMENTS. It imports only irli and NumPy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

ROUNDS, BATCH, SINGLE = 7, 2000, 1000
HEAD = ["figure", "before", "now", "now / before"]


def free(options: Any) -> None:
    """Search, memory and folder, in turns: the least of each counts."""
    import numpy as np

    from bench.commands import find_file
    from bench.common import REPOSITORY, say
    from bench.living.runbooks import order_rows
    from bench.living.tables import keep_table
    from bench.vectors.data import FILES, normalize
    from irli.base.vector_files import read_vectors

    items = 600 if options.smoke else options.rows.get("glove", 60_000)
    place = Path(options.results) / "living" / "data" / f"free-{items}"
    place.mkdir(parents=True, exist_ok=True)
    vectors, _ = order_rows(options.data, "glove", "sliding", items)
    asked = normalize(np.array(read_vectors(find_file(options.data, FILES["glove"]), key="test")))
    np.save(place / "vectors.npy", vectors)
    np.save(place / "queries.npy", asked[:BATCH])
    sides = {"before": options.old or REPOSITORY, "now": REPOSITORY}
    short = "short" if options.smoke else "whole"
    for name, root in sides.items():
        if options.fresh or not (place / name).exists():
            _run(root, place, name, "fit", short)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(2 if options.smoke else ROUNDS):
        for name in list(sides) if number % 2 else reversed(sides):
            found[name].append(json.loads(_run(sides[name], place, name, "search", short)))
        say(f"round {number}: {found['before'][-1]} {found['now'][-1]}")
    rows = []
    for figure in found["before"][0]:
        before, now = ([each[figure] for each in found[name]] for name in sides)
        if figure == "answers":  # the same fit must give the same ones, or nothing is compared
            rows.append([figure, before[0], now[0], "same" if before == now else "others"])
            continue
        ratio = min(now) / min(before)
        rows.append([figure, f"{min(before):,.2f}", f"{min(now):,.2f}", f"{ratio:.3f}"])
    sizes = {name: _measure_folder(place / name) for name in sides}
    ratio = sizes["now"] / sizes["before"]
    rows.append(["folder, bytes", f"{sizes['before']:,}", f"{sizes['now']:,}", f"{ratio:.3f}"])
    keep_table(Path(options.results) / "living" / "free", HEAD, rows, measured=found)


def _run(root: Path, *arguments: Any) -> str:
    """Run this file with the code of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "IRLI_NUM_THREADS": "1"}
    environment["OMP_NUM_THREADS"] = "1"
    python = root / ".venv" / "bin" / "python"
    command = [str(python if python.exists() else sys.executable), __file__]
    done = subprocess.run(
        [*command, *map(str, arguments)], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{root}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _measure_folder(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


# --- in a process of its own ---------------------------------------------------------------------


def _fit(place: Path, name: str, short: str) -> None:
    import numpy as np

    import irli

    given: dict[str, Any] = {"buckets": 16, "epochs": 2} if short == "short" else {}
    index = irli.VectorIndex("cosine", recipe=irli.recipe("default", **given))
    index.fit(np.load(place / "vectors.npy"), threads=1).save(place / name)


def _search(place: Path, name: str) -> None:
    import numpy as np

    import irli

    queries = np.load(place / "queries.npy")
    before = _read_memory()
    index: Any = irli.load(place / name, mmap=False, verify=False)
    answers = index.search(queries, 10, threads=1).ids
    memory = _read_memory() - before
    batch, single = [], []
    for _ in range(10):
        began = time.process_time()
        index.search(queries, 10, threads=1)
        batch.append(time.process_time() - began)
        began = time.process_time()
        for query in queries[:SINGLE]:
            index.search(query, 10)
        single.append(time.process_time() - began)
    told = {
        "batch, us a query": 1e6 * min(batch) / len(queries),
        "single, us a query": 1e6 * min(single) / min(SINGLE, len(queries)),
        "memory, MB": memory / 1e6,
        "answers": zlib.crc32(answers.tobytes()),
    }
    print(json.dumps(told))


def _read_memory() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmRSS")


if __name__ == "__main__":
    folder, which, stage, size = sys.argv[1:]
    if stage == "fit":
        _fit(Path(folder), which, size)
    else:
        _search(Path(folder), which)
