"""Checkpoints: save finished repetitions to files and load them to resume a build."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np

from irli.base.files import claim_folder, write_atomically
from irli.base.logs import get_logger
from irli.base.recipe import Recipe
from irli.base.types import StrPath
from irli.engine.router import Router
from irli.errors import FormatError
from irli.learning.partition import Partition
from irli.learning.problem import Problem
from irli.learning.repetition import Repetition, group_repetitions

log = get_logger(__name__)

_CLAIM = ".irli-build.lock"
_TRUNK = ("project", "shift")  # arrays that all routers of a group share
# What reading raises if some bytes of a file are wrong.
_DAMAGED = (BadZipFile, ValueError, KeyError, EOFError, TypeError, RuntimeError, OSError)


class Checkpoint:
    """A folder of finished repetitions.

    Parameters
    ----------
    folder : path, optional
        None saves nothing.
    mark : str
        Identifies the problem and the recipe. Files with another mark are ignored.
    """

    def __init__(self, folder: StrPath | None, mark: str) -> None:
        self.folder = None if folder is None else Path(folder)
        self.mark = mark

    def save(self, numbers: list[int], group: list[Repetition]) -> None:
        """Write a group of repetitions that were learned together."""
        if self.folder is None:
            return
        arrays: dict[str, Any] = {"mark": np.array(self.mark)}
        for place, repetition in enumerate(group):
            for name, value in repetition.router._asdict().items():
                if place == 0 or name not in _TRUNK:
                    arrays[f"{place}.router.{name}"] = value
            history = json.dumps(repetition.history).encode()
            arrays[f"{place}.history"] = np.frombuffer(history, dtype=np.uint8)
            arrays[f"{place}.assignment"] = repetition.partition.assignment
        with write_atomically(self.folder, _make_path(self.folder, numbers).name) as file:
            np.savez(file, **arrays)

    def load(self, numbers: list[int]) -> list[Repetition] | None:
        """Read a group. None if it is missing, damaged, or of another problem or recipe."""
        if self.folder is None:
            return None
        path = _make_path(self.folder, numbers)
        if not path.exists():
            return None
        with path.open("rb") as file:
            try:
                return self._read(file, len(numbers))
            except _DAMAGED as error:
                log.warning("%s is damaged and is learned again: %s", path, error)
                return None

    def load_all(self, recipe: Recipe, before: int | None = None) -> list[Repetition]:
        """Read all repetitions, or all before number `before`. Raise if one is missing."""
        done: list[Repetition] = []
        for numbers in group_repetitions(recipe):
            if before is not None and numbers[0] >= before:
                break
            group = self.load(numbers)
            if group is None:
                raise FormatError(
                    f"{_make_path(self.folder or Path(), numbers)} must hold a finished "
                    "repetition. It is missing, damaged or of another build. Start the build again "
                    "to learn what is missing."
                )
            done += group
        return done

    def _read(self, file: IO[bytes], count: int) -> list[Repetition] | None:
        group = []
        with np.load(file, allow_pickle=False) as saved:
            if "mark" not in saved or str(saved["mark"]) != self.mark:
                return None
            fields: dict[str, Any] = {}
            for place in range(count):
                names = [n for n in Router._fields if place == 0 or n not in _TRUNK]
                fields |= {name: saved[f"{place}.router.{name}"] for name in names}
                fields["linear"] = int(fields["linear"])
                router = Router(**fields)
                history = json.loads(saved[f"{place}.history"].tobytes())
                partition = Partition(router.buckets, saved[f"{place}.assignment"])
                group.append(Repetition(router, partition, history))
        return group


@contextmanager
def open_checkpoint(
    folder: StrPath | None, problem: Problem, recipe: Recipe, *, needed: bool
) -> Iterator[Checkpoint]:
    """Open the checkpoint of a problem. If one is needed but no folder given, use a temporary."""
    if folder is None and not needed:
        yield Checkpoint(None, "")
        return
    mark = problem.fingerprint(recipe)
    if folder is not None:
        with claim_checkpoint(Path(folder)):
            yield Checkpoint(folder, mark)
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Checkpoint(temporary, mark)


@contextmanager
def claim_checkpoint(folder: Path) -> Iterator[None]:
    """Make the folder of a build, and hold it while the build runs. Raise if another one does."""
    folder.mkdir(parents=True, exist_ok=True)
    in_use = (
        "The 'checkpoint' parameter of fit must name a folder that no other build uses. Another "
        f"build is running in {folder}. Wait until it ends, or pass another folder."
    )
    with claim_folder(folder, _CLAIM, in_use):
        yield


def _make_path(folder: Path, numbers: list[int]) -> Path:
    return folder / f"repetition-{numbers[0]:04d}.npz"
