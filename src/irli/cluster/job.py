"""A job: all that a worker must know to build a shard, in terms of the phases of learning.

`VectorJob` and `LabelJob` say what the phases are for each kind of index.
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
    """What is built, and where: small, since it travels to every step.

    Attributes
    ----------
    folder : str
        For working files and finished shards; every machine must see it.
    shards : int
        P.
    recipe : Recipe
        Of all shards; `recipe_of` resolves what is left open for each.
    slice_bytes : int
        What the data of the largest shard take.
    threads : int
        Of each step.
    device : str
        Where torch learns.
    """

    folder: str
    shards: int
    recipe: Recipe
    slice_bytes: int
    threads: int
    device: str = "cpu"

    @abstractmethod
    def describe(self, shard: int) -> list[Any]:
        """Return, as plain JSON, all that decides what is learned for a shard."""

    @abstractmethod
    def make_problem(self, shard: int) -> Any:
        """Return what there is to learn: a `VectorProblem` or a `LabelProblem`."""

    @abstractmethod
    def assemble(self, shard: int, saved: Path, repetitions: list[Repetition]) -> Folder:
        """Return the index of a shard, given its saved problem and what was learned."""

    def recipe_of(self, shard: int) -> Recipe:
        """Return the resolved recipe of one shard."""
        return self.recipe

    def key(self, shard: int) -> str:
        """Identify what is learned for a shard: results under another key are not used."""
        said = json.dumps([*self.describe(shard), shard], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()

    def place(self, shard: int) -> Path:
        """Where the files of a shard are."""
        return Path(self.folder) / f"shard-{shard:04d}"

    def problem(self, shard: int) -> Path:
        """Where the problem of a shard is, until it is learned."""
        return self.place(shard) / "problem"

    def index(self, shard: int) -> Path:
        """Where the finished index of a shard is."""
        return self.place(shard) / "finished" / "index"
