"""What all benchmarks share: printing, results, clocks, and processes of their own.

It imports only the standard library, since the peers' environments import it too.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]  # the folder of the commands
REPOSITORY = ROOT.parent
RESULTS = ROOT / "results"
DATA = REPOSITORY.parent / "shared" / "data"  # where data sets are looked for by default

# Whatever the library is, it gets as many threads as it is told.
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "IRLI_NUM_THREADS",
)


# --- printing and results ------------------------------------------------------------------------


def say(text: str) -> None:
    """Print at once: a benchmark takes minutes."""
    print(text, flush=True)


def format_table(head: list[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    """Return the lines of a Markdown table.

    Examples
    --------
    >>> format_table(["method", "recall"], [["irli", 0.9]])
    ['| method | recall |', '| --- | --- |', '| irli | 0.9 |']
    """
    cells = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in row) + " |" for row in cells]


def print_table(head: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a Markdown table."""
    say("\n".join(["", *format_table(head, rows), ""]))


def write_json(path: Path, findings: Any) -> None:
    """Write what was measured, the whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(findings, indent=1, default=float) + "\n")
    part.replace(path)


def report_table(path: Path, head: list[str], rows: list[list[Any]], **more: Any) -> None:
    """Print a table, and write it with whatever else was measured."""
    print_table(head, rows)
    write_json(path, {"head": head, "rows": rows, **more})


# --- clocks and memory ---------------------------------------------------------------------------


def time_least(
    call: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.process_time
) -> float:
    """Call a function several times; return the seconds of the fastest call."""
    seconds = []
    for _ in range(repeats):
        started = clock()
        call()
        seconds.append(clock() - started)
    return min(seconds)


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def read_memory(field: str) -> int:
    """Return a field of this process in bytes: VmRSS is memory now, VmHWM the most so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


# --- other processes -----------------------------------------------------------------------------


class ProcessFailed(Exception):
    """A process of its own ended without a result."""


def run_module(
    module: str, *arguments: Any, python: str = sys.executable, threads: int | None = None
) -> str:
    """Run a module of the benchmarks in a fresh process; return what it printed."""
    limits = {} if threads is None else dict.fromkeys(_THREADS, str(threads))
    done = subprocess.run(
        [python, "-m", module, *map(str, arguments)],
        env=_find_modules() | limits,
        text=True,
        capture_output=True,
    )
    if done.returncode:
        raise ProcessFailed(f"{module} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def run_until(ready: Callable[[], bool], module: str, *arguments: Any) -> None:
    """Run a module in a fresh process, and kill it as soon as `ready` says so."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, env=_find_modules(), stdout=subprocess.DEVNULL) as running:
        while running.poll() is None and not ready():
            time.sleep(0.05)
        running.kill()


def _find_modules() -> dict[str, str]:
    """Return an environment in which the modules of the benchmarks are found."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def find_python(environment: str) -> str:
    """Return the Python of an environment of the repository; this one, if it was never made."""
    python = REPOSITORY / environment / "bin" / "python"
    return str(python) if python.exists() else sys.executable


def list_packages(python: str) -> dict[str, str]:
    """Return the versions of the packages that are installed for a Python."""
    if python == sys.executable:
        return _list_packages()
    return dict(json.loads(run_module("bench.common", python=python)))


def _list_packages() -> dict[str, str]:
    return {each.name: each.version for each in importlib.metadata.distributions() if each.name}


if __name__ == "__main__":
    print(json.dumps(_list_packages()))
