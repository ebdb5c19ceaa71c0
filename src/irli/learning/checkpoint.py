"""Checkpoints: save finished repetitions and epochs to files and load them to resume a build."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np

from irli.base.files import claim_folder, make_folder, write_atomically
from irli.base.logs import get_logger
from irli.base.recipe import Recipe
from irli.base.types import Arrays, StrPath
from irli.engine.router import Router
from irli.errors import FormatError
from irli.learning.partition import Partition
from irli.learning.problem import Problem
from irli.learning.repetition import Repetition, group_repetitions

log = get_logger(__name__)

Read = TypeVar("Read")

_CLAIM = ".irli-build.lock"
_TRUNK = ("project", "shift")  # arrays that all routers of a group share
# What reading raises if some bytes of a file are wrong.
_DAMAGED = (BadZipFile, ValueError, KeyError, EOFError, TypeError, RuntimeError, OSError)


class Checkpoint:
    """A folder of finished repetitions, and of the last epoch of each unfinished one.

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
        arrays: dict[str, Any] = {}
        for place, repetition in enumerate(group):
            for name, value in repetition.router._asdict().items():
                if place == 0 or name not in _TRUNK:
                    arrays[f"{place}.router.{name}"] = value
            history = json.dumps(repetition.history).encode()
            arrays[f"{place}.history"] = np.frombuffer(history, dtype=np.uint8)
            arrays[f"{place}.assignment"] = repetition.partition.assignment
        self._write(_make_path(self.folder, numbers), arrays)
        _make_path(self.folder, numbers, "epoch").unlink(missing_ok=True)

    def save_epoch(self, numbers: list[int], state: Arrays) -> None:
        """Write the state of a group of repetitions after an epoch."""
        if self.folder is None:
            return
        names = np.array(json.dumps(sorted(state)))
        self._write(_make_path(self.folder, numbers, "epoch"), {"names": names, **state})

    def load_epoch(self, numbers: list[int]) -> Arrays | None:
        """Read the state after the last epoch. None as for `load`."""
        return self._load(numbers, "epoch", _read_state)

    def load(self, numbers: list[int]) -> list[Repetition] | None:
        """Read a group. None if it is missing, damaged, or of another problem or recipe."""
        return self._load(numbers, "repetition", partial(_read_group, count=len(numbers)))

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

    def _write(self, path: Path, arrays: dict[str, Any]) -> None:
        with write_atomically(path.parent, path.name) as file:
            np.savez(file, mark=np.array(self.mark), **arrays)

    def _load(
        self, numbers: list[int], kind: str, read: Callable[[Mapping[str, Any]], Read]
    ) -> Read | None:
        if self.folder is None:
            return None
        path = _make_path(self.folder, numbers, kind)
        if not path.exists():
            return None
        with path.open("rb") as file:
            try:
                with np.load(file, allow_pickle=False) as saved:
                    known = "mark" in saved and str(saved["mark"]) == self.mark
                    return read(saved) if known else None
            except _DAMAGED as error:
                log.warning("%s is damaged and is learned again: %s", path, error)
                return None


def _read_group(saved: Mapping[str, Any], count: int) -> list[Repetition]:
    group = []
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


def _read_state(saved: Mapping[str, Any]) -> Arrays:
    return {name: saved[name] for name in json.loads(str(saved["names"]))}


@contextmanager
def open_checkpoint(
    folder: StrPath | None,
    problem: Problem,
    recipe: Recipe,
    start: list[Repetition],
    *,
    needed: bool,
) -> Iterator[Checkpoint]:
    """Open the checkpoint of a problem that is learned on from `start`.

    If one is needed but no folder given, use a temporary.
    """
    if folder is None and not needed:
        yield Checkpoint(None, "")
        return
    routers = [value for one in start for value in one.router if isinstance(value, np.ndarray)]
    mark = problem.fingerprint(recipe, [*routers, *(one.partition.assignment for one in start)])
    if folder is not None:
        with claim_checkpoint(Path(folder)):
            yield Checkpoint(folder, mark)
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Checkpoint(temporary, mark)


@contextmanager
def claim_checkpoint(folder: Path) -> Iterator[None]:
    """Make the folder of a build, and hold it while the build runs. Raise if another one does."""
    make_folder(folder, "'checkpoint' parameter of fit")
    in_use = (
        "The 'checkpoint' parameter of fit must name a folder that no other build uses. Another "
        f"build is running in {folder}. Wait until it ends, or pass another folder."
    )
    with claim_folder(folder, _CLAIM, in_use):
        yield


def _make_path(folder: Path, numbers: list[int], kind: str = "repetition") -> Path:
    return folder / f"{kind}-{numbers[0]:04d}.npz"
