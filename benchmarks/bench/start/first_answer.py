"""From the start of a process to its first answer, beside `import numpy`."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import irli
from bench.commands import Options, make_recipe
from bench.common import report_table

DIM = 96
NUMPY, IRLI = "import numpy", "import irli; irli.VectorIndex; irli.load"
ANSWER = (
    "import sys, numpy, irli; "
    f"irli.load(sys.argv[1]).search(numpy.ones({DIM}, dtype=numpy.float32))"
)


def first_answer(options: Options) -> None:
    """Milliseconds of fresh processes, and how many times longer than `import numpy` they take."""
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        _save_index(index, options)
        normal = _set_environment(Path(folder) / "bytecode")
        bare = {name: value for name, value in normal.items() if name != "HOME"}
        bare["PYTHONDONTWRITEBYTECODE"] = "1"
        kinds = [
            ("import numpy", NUMPY, normal),
            ("import irli", IRLI, normal),
            ("first answer", ANSWER, normal),
            ("import numpy, nothing writable", NUMPY, bare),
            ("import irli, nothing writable", IRLI, bare),
            ("first answer, nothing writable", ANSWER, bare),
        ]
        times: dict[str, list[float]] = {name: [] for name, _, _ in kinds}
        for turn in range(2 if options.smoke else 1 + options.runs):
            for name, code, environment in kinds:
                seconds = _time_process(code, index, environment, read_only=environment is bare)
                if turn:  # the first one compiles the modules to bytecode
                    times[name].append(1000 * seconds)
    rows = []
    for name, _, environment in kinds:
        base = "import numpy" if environment is normal else "import numpy, nothing writable"
        median, reference = (statistics.median(times[each]) for each in (name, base))
        rows.append([name, f"{median:.0f}", f"{median / reference:.2f}"])
    path = Path(options.results) / "start" / "first-answer.json"
    report_table(path, ["process", "ms", "x import numpy"], rows, milliseconds=times)


def _save_index(path: Path, options: Options) -> None:
    """Save an index that was learned in a hurry: how well it searches does not matter here."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(300, DIM))
    count = 700 if options.smoke else options.items
    items = centres[rng.integers(len(centres), size=count)] + rng.normal(size=(count, DIM))
    recipe = make_recipe(options, epochs=1, epoch_size=4096, training_points=4096)
    irli.VectorIndex("cosine", recipe=recipe).fit(items).save(path)


def _set_environment(bytecode: Path) -> dict[str, str]:
    """Return an environment in which Python keeps bytecode, as it does of installed packages."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(irli.__file__).parents[1])]
    return {**kept, "PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONPATH": os.pathsep.join(paths)}


def _time_process(code: str, index: Path, environment: dict[str, str], read_only: bool) -> float:
    """Return the seconds of a process, from its start to its end."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, str(index)],
        env=environment,
        cwd="/",
        check=True,
        preexec_fn=_forbid_writing if read_only else None,
    )
    return time.perf_counter() - started


def _forbid_writing() -> None:
    """Let this process write no byte to any file, as if the file system were read-only."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
