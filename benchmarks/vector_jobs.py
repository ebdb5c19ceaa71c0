"""Jobs: a build, a rough pass or a timing, each in a fresh process, and none done twice."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
FOLDER = ROOT / "results" / "vectors"
PEERS = ROOT.parent / ".venv-vector-peers" / "bin" / "python"
OWN = ("irli", "irli-queries")  # methods that run in our environment
# Whatever library it is, it gets as many threads as the job says.
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "IRLI_NUM_THREADS",
)


@dataclass(frozen=True)
class Job:
    """What to build, or what to measure on a built index.

    `stage` is one of "build", "rough" (all settings, to choose from) and "timed" (some of them
    again and again). `build` are the settings that the index is built with. `version` is that of
    the source that is measured: when it changes, so do the figures.
    """

    data: str
    method: str
    build: dict[str, Any]
    stage: str = "build"
    threads: int = 1
    queries: str = ""
    repeats: int = 0
    settings: int = 0
    version: str = ""
    folder: str = field(default=str(FOLDER), compare=False)

    @property
    def name(self) -> str:
        """The build, as a file name."""
        text = ",".join(f"{key}={value}" for key, value in self.build.items())
        return f"{self.method}({text})" if text else self.method

    @property
    def index(self) -> Path:
        """Where the built index is kept."""
        return Path(self.folder) / "indexes" / self.data / self.name

    @property
    def file(self) -> Path:
        """Where the outcome goes."""
        parts = {
            "build": ["build"],
            "rough": [self.queries, "rough"],
            "timed": [self.queries, str(self.threads)],
        }
        name = "-".join(parts[self.stage]) + ".json"
        return Path(self.folder) / "runs" / self.data / self.name / name

    @property
    def key(self) -> str:
        """Tell apart all that matters to the outcome."""
        said = {k: v for k, v in asdict(self).items() if k != "folder"}
        if self.stage == "build":  # an index stays good: --rebuild makes another
            del said["threads"], said["version"]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def outcome(self) -> dict[str, Any] | None:
        """Return what was measured, or None if that is still to do or was done differently."""
        try:
            found: dict[str, Any] = json.loads(self.file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return found if found.get("key") == self.key else None

    def keep(self, found: dict[str, Any]) -> None:
        """Write the outcome, whole or not at all."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        said = {"key": self.key, "job": asdict(self) | {"folder": ""}}
        rough = self.file.with_suffix(".part")
        rough.write_text(json.dumps(said | found, indent=1, default=float) + "\n")
        rough.replace(self.file)

    def run(self, fresh: bool = False) -> dict[str, Any]:
        """Return the outcome: from the file, or measured in a process of its own."""
        found = None if fresh else self.outcome()
        return found or self._in_fresh_process()

    def _in_fresh_process(self) -> dict[str, Any]:
        python = sys.executable if self.method in OWN else str(PEERS)
        threads = dict.fromkeys(_THREADS, str(self.threads))
        done = subprocess.run(
            [python, str(ROOT / "vector_runs.py"), json.dumps(asdict(self))],
            env={**os.environ, **threads},
            text=True,
            capture_output=True,
        )
        found = self.outcome()
        if done.returncode or found is None:
            raise JobFailed(f"{self.data} {self.name}: {done.stderr.strip()[-2000:]}")
        return found


class JobFailed(Exception):
    """A process ended without an outcome."""


def source_version() -> str:
    """Return a digest of the source of irli."""
    digest = hashlib.sha256()
    for path in sorted((ROOT.parent / "src" / "irli").rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]
