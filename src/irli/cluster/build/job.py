"""Job: the base class of VectorJob and LabelJob, with the paths, key and phases of each shard.

A job has all that a worker must know to build a shard.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irli.base.folder import Folder
from irli.base.recipe import Recipe
from irli.learning.repetition import Repetition


@dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """What to build, and where. It is small, since it is sent to every step.

    Attributes
    ----------
    folder : str
        For working files and finished shards. All machines must see it.
    shards : int
        The number of shards (P).
    recipe : Recipe
        Of all shards. `recipe_of` returns it resolved for a single shard.
    step_bytes : int
        The memory that the largest step of a shard needs.
    threads : int
        Threads of each step.
    device : str
        The device of training.
    """

    folder: str
    shards: int
    recipe: Recipe
    step_bytes: int
    threads: int
    device: str = "cpu"

    @abstractmethod
    def describe(self, shard: int) -> list[Any]:
        """Return all inputs that decide what a shard learns, as plain JSON values."""

    @abstractmethod
    def make_problem(self, shard: int, folder: Path | None = None) -> Any:
        """Run the first phase: return a `VectorProblem` or a `LabelProblem`.

        What is large may be filled in files of the `folder` that it is saved to.
        """

    @abstractmethod
    def assemble(self, shard: int, saved: Path, repetitions: list[Repetition]) -> Folder:
        """Run the last phases: return the index of a shard from its problem and repetitions."""

    def learned_by(self, shard: int) -> int:
        """Return the shard that makes the problem of this one and learns its repetitions."""
        return shard

    def recipe_of(self, shard: int) -> Recipe:
        """Return the resolved recipe of one shard."""
        return self.recipe

    def key(self, shard: int) -> str:
        """Return a hash of the inputs of a shard. Results with another key are not reused."""
        described = json.dumps([*self.describe(shard), shard], sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()

    def place(self, shard: int) -> Path:
        """Return the folder of a shard."""
        return Path(self.folder) / f"shard-{shard:04d}"

    def problem(self, shard: int) -> Path:
        """Return the folder of a shard's problem, which is removed when the shard is finished."""
        return self.place(shard) / "problem"

    def index(self, shard: int) -> Path:
        """Return the folder of a shard's finished index."""
        return self.place(shard) / "finished" / "index"
