"""All repetitions: one after the other or in parallel processes, resuming where it stopped."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from irli.config import Recipe
from irli.errors import FormatError, InvalidParameter
from irli.partition import Partition
from irli.problem import Problem
from irli.progress import Progress, track
from irli.router import Router
from irli.training import Repetition, learn_repetitions

log = logging.getLogger(__name__)


def learn(
    problem: Problem,
    recipe: Recipe,
    *,
    workers: int = 1,
    threads: int | None = None,
    device: str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress = False,
    start: tuple[list[Router], list[Partition]] | None = None,
) -> list[Repetition]:
    """Learn R repetitions: Algorithm 1.

    Parameters
    ----------
    workers : int
        Processes that learn repetitions side by side; the recipe must have `boost=False` and
        `trunk="own"`, so that they learn nothing from each other.
    threads : int, optional
        Threads of torch, divided among the workers.
    checkpoint : path, optional
        A folder for finished repetitions. Found again there, they are not learned again.
    start : (routers, partitions), optional
        Where to go on from, instead of beginning anew.
    """
    _check_workers(workers, recipe)
    with _folder(checkpoint) as folder:
        mark = problem.fingerprint(recipe) if checkpoint is not None or workers > 1 else ""
        chosen = _chosen.get()
        if chosen is not None:
            if _load(folder, chosen, mark) is None:
                with _torch_threads(threads):
                    learned = learn_repetitions(problem, recipe, chosen, [], device=device)
                _save(folder, chosen, mark, learned)
            raise LearnedChosen
        if workers > 1:
            _learn_in_processes(problem, recipe, folder, mark, workers, threads, device, progress)
        done: list[Repetition] = []
        with _torch_threads(threads):
            for numbers in groups(recipe):
                group = _load(folder, numbers, mark) if mark else None
                if group is None:
                    known = None
                    if start is not None:
                        known = [Repetition(start[0][n], start[1][n], []) for n in numbers]
                    group = learn_repetitions(
                        problem,
                        recipe,
                        numbers,
                        done,
                        start=known,
                        device=device,
                        progress=progress,
                    )
                    if mark:
                        _save(folder, numbers, mark, group)
                done += group
        return done


class LearnedChosen(Exception):
    """Ends a `fit` whose only aim was to leave some repetitions in its checkpoint."""


@contextmanager
def learning_only(numbers: list[int]) -> Iterator[None]:
    """Let every `learn` within learn one of the `groups`, save it to its checkpoint, and end there.

    So other processes can learn what a later `fit` with the same checkpoint puts together.
    """
    token = _chosen.set(numbers)
    try:
        yield
    except LearnedChosen:
        pass
    finally:
        _chosen.reset(token)


_chosen: ContextVar[list[int] | None] = ContextVar("chosen", default=None)


def groups(recipe: Recipe) -> list[list[int]]:
    """Return the repetitions that are learned together: all on a shared trunk, or each alone."""
    everyone = list(range(recipe.repetitions))
    return [everyone] if recipe.trunk == "shared" else [[number] for number in everyone]


def _check_workers(workers: int, recipe: Recipe) -> None:
    if workers == 1 or recipe.repetitions == 1:
        return
    learned = "boost=True" if recipe.boost else "trunk='shared'"
    if recipe.boost or recipe.trunk == "shared":
        raise InvalidParameter(
            f"The 'workers' parameter must be 1 with {learned}, where repetitions learn from each "
            f"other. Got {workers} instead. Use a recipe with boost=False and trunk='own'."
        )


def _learn_in_processes(
    problem: Problem,
    recipe: Recipe,
    folder: Path,
    mark: str,
    workers: int,
    threads: int | None,
    device: str,
    progress: Progress,
) -> None:
    """Learn what is missing in `folder`, each repetition in a fresh process."""
    missing = [group for group in groups(recipe) if _load(folder, group, mark) is None]
    each = max(1, (threads or torch.get_num_threads()) // workers)
    with tempfile.TemporaryDirectory() as shared:
        problem.save(Path(shared))
        # Fresh processes: torch's threads do not survive a fork.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            jobs = [
                pool.submit(learn_group, shared, recipe, group, str(folder), mark, each, device)
                for group in missing
            ]
            try:
                for job in track(jobs, progress, "repetitions"):
                    job.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)  # or an interrupt would wait for all of them
                raise


def learn_group(
    shared: str | os.PathLike[str],
    recipe: Recipe,
    numbers: list[int],
    folder: str | os.PathLike[str],
    mark: str,
    threads: int | None = None,
    device: str = "cpu",
) -> None:
    """Learn one of the `groups` of a saved problem, in a process of its own.

    Parameters
    ----------
    shared : path
        Where `Problem.save` wrote.
    folder : path
        For finished repetitions. Those found there are not learned again; repetitions that learn
        from earlier ones find them there.
    mark : str
        What belongs together: files with another mark do not count.
    """
    if _load(Path(folder), numbers, mark) is not None:
        return
    problem = Problem.load(Path(shared))
    earlier = finished(folder, recipe, mark, numbers[0]) if recipe.boost else []
    with _torch_threads(threads):
        group = learn_repetitions(problem, recipe, numbers, earlier, device=device)
    _save(Path(folder), numbers, mark, group)


def finished(
    folder: str | os.PathLike[str], recipe: Recipe, mark: str, before: int | None = None
) -> list[Repetition]:
    """Return what `learn_group` has left in `folder`: all repetitions, or those `before` one."""
    done: list[Repetition] = []
    for numbers in groups(recipe):
        if before is not None and numbers[0] >= before:
            break
        group = _load(Path(folder), numbers, mark)
        if group is None:
            raise FormatError(
                f"{_file(Path(folder), numbers)} must hold a finished repetition. It is missing, "
                "damaged or of another build. Start the build again: it learns what is missing."
            )
        done += group
    return done


@contextmanager
def _folder(checkpoint: str | os.PathLike[str] | None) -> Iterator[Path]:
    if checkpoint is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        Path(checkpoint).mkdir(parents=True, exist_ok=True)
        yield Path(checkpoint)


@contextmanager
def _torch_threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _file(folder: Path, numbers: list[int]) -> Path:
    return folder / f"repetition-{numbers[0]:04d}.npz"


_TRUNK = ("project", "shift")  # the same arrays in all routers of a group


def _save(folder: Path, numbers: list[int], mark: str, group: list[Repetition]) -> None:
    """Write finished repetitions; a file under its final name is whole."""
    arrays: dict[str, Any] = {"mark": np.array(mark)}
    for place, repetition in enumerate(group):
        for name, value in repetition.router._asdict().items():
            if place == 0 or name not in _TRUNK:
                arrays[f"{place}.router.{name}"] = value
        history = json.dumps(repetition.history).encode()
        arrays[f"{place}.history"] = np.frombuffer(history, dtype=np.uint8)
        arrays[f"{place}.assignment"] = repetition.partition.assignment
    handle, name = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, _file(folder, numbers))
    except BaseException:
        Path(name).unlink(missing_ok=True)  # a full disk needs the room
        raise


def _load(folder: Path, numbers: list[int], mark: str) -> list[Repetition] | None:
    """Read finished repetitions of this very problem and recipe, or None; checksums must hold."""
    try:
        return _read(_file(folder, numbers), len(numbers), mark)
    except FileNotFoundError:
        return None
    except (BadZipFile, ValueError, KeyError, EOFError, TypeError) as error:
        log.warning("%s is damaged and is learned again: %s", _file(folder, numbers), error)
        return None


def _read(path: Path, count: int, mark: str) -> list[Repetition] | None:
    group = []
    with np.load(path, allow_pickle=False) as saved:
        if "mark" not in saved or str(saved["mark"]) != mark:
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
