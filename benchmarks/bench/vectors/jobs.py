"""Jobs: a build, a rough pass, a timing, or filtered searches.

Each has a fresh process, and none is done twice.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.common import REPOSITORY, ProcessFailed, find_python, run_module, write_json

OURS = ("irli", "irli-queries")  # methods that run in our own environment
PEERS = ".venv-vector-peers"  # the environment of the others


@dataclass(frozen=True)
class Job:
    """What to build, or what to measure on a built index.

    Attributes
    ----------
    folder : str
        Where data, indexes and outcomes are kept.
    data, method : str
        Names of the data set and of the library.
    build : dict
        The settings that the index is built with.
    stage : {"build", "rough", "timed", "filtered"}
        Build, go through all settings once, time the best of them several times, or search with
        filters.
    version : str
        The version of what is measured. Outcomes of another version are not used.
    """

    folder: str
    data: str
    method: str
    build: dict[str, Any]
    stage: str = "build"
    threads: int = 1
    queries: str = ""
    repeats: int = 0
    settings: int = 0
    version: str = ""

    @property
    def name(self) -> str:
        """The build, as a file name."""
        text = ",".join(f"{key}={value}" for key, value in self.build.items())
        return f"{self.method}({text})" if text else self.method

    @property
    def index(self) -> Path:
        """The folder of the built index."""
        return Path(self.folder) / "indexes" / self.data / self.name

    @property
    def file(self) -> Path:
        """The file of the outcome."""
        parts = {
            "build": ["build"],
            "rough": [self.queries, "rough"],
            "timed": [self.queries, str(self.threads)],
            "filtered": ["filtered"],
        }
        name = "-".join(parts[self.stage]) + ".json"
        return Path(self.folder) / "runs" / self.data / self.name / name

    @property
    def key(self) -> str:
        """A digest of everything that decides the outcome."""
        parts = {k: v for k, v in asdict(self).items() if k != "folder"}
        if self.stage == "build":  # an index stays good: --rebuild makes another
            del parts["threads"], parts["version"]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def outcome(self) -> dict[str, Any] | None:
        """Return what was measured, or None if it is still to do or was done differently."""
        try:
            found: dict[str, Any] = json.loads(self.file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return found if found.get("key") == self.key else None

    def keep(self, found: dict[str, Any]) -> None:
        """Write the outcome."""
        write_json(self.file, {"key": self.key, "job": asdict(self) | {"folder": ""}} | found)

    def run(self, fresh: bool = False) -> dict[str, Any]:
        """Return the outcome, from the file or measured in a process of its own."""
        found = None if fresh else self.outcome()
        return found or self._run_in_process()

    def _run_in_process(self) -> dict[str, Any]:
        python = sys.executable if self.method in OURS else find_python(PEERS)
        job = json.dumps(asdict(self))
        try:
            run_module("bench.vectors.runs", job, python=python, threads=self.threads)
        except ProcessFailed as error:
            raise ProcessFailed(f"{self.data} {self.name}: {error}") from None
        found = self.outcome()
        if found is None:
            raise ProcessFailed(f"{self.data} {self.name}: no outcome in {self.file}")
        return found


def source_version() -> str:
    """Return a digest of the source of irli."""
    digest = hashlib.sha256()
    for path in sorted((REPOSITORY / "src" / "irli").rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]
