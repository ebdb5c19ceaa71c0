"""All repetitions: one after the other or in parallel processes, resuming where it stopped."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from irli.config import Recipe
from irli.errors import InvalidParameter
from irli.partition import Partition
from irli.problem import Problem
from irli.progress import Progress, track
from irli.router import Router
from irli.training import Repetition, learn_repetition


def learn(
    problem: Problem,
    recipe: Recipe,
    *,
    workers: int = 1,
    threads: int | None = None,
    device: str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress = False,
) -> list[Repetition]:
    """Learn R repetitions: Algorithm 1.

    Parameters
    ----------
    workers : int
        Processes that learn repetitions side by side; needs `boost=False` in the recipe.
    threads : int, optional
        Threads of torch, divided among the workers.
    checkpoint : path, optional
        A folder for finished repetitions. Found again there, they are not learned again.
    """
    if workers > 1 and recipe.boost and recipe.repetitions > 1:
        raise InvalidParameter(
            f"The 'workers' parameter must be 1 with boost=True, where each repetition learns from "
            f"the earlier ones. Got {workers} instead. Use a recipe with boost=False."
        )
    with _folder(checkpoint) as folder:
        mark = problem.fingerprint(recipe) if checkpoint is not None or workers > 1 else ""
        if workers > 1:
            _learn_in_processes(problem, recipe, folder, mark, workers, threads, device, progress)
        done: list[Repetition] = []
        with _torch_threads(threads):
            for number in range(recipe.repetitions):
                repetition = _load(folder, number, mark) if mark else None
                if repetition is None:
                    repetition = learn_repetition(
                        problem, recipe, number, done, device=device, progress=progress
                    )
                    if mark:
                        _save(folder, number, mark, repetition)
                done.append(repetition)
        return done


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
    missing = [r for r in range(recipe.repetitions) if _load(folder, r, mark) is None]
    each = max(1, (threads or torch.get_num_threads()) // workers)
    with tempfile.TemporaryDirectory() as shared:
        problem.save(Path(shared))
        # Fresh processes: torch's threads do not survive a fork.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            jobs = [
                pool.submit(_learn_one, shared, recipe, r, str(folder), mark, each, device)
                for r in missing
            ]
            try:
                for job in track(jobs, progress, "repetitions"):
                    job.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)  # or an interrupt would wait for all of them
                raise


def _learn_one(
    shared: str, recipe: Recipe, number: int, folder: str, mark: str, threads: int, device: str
) -> None:
    torch.set_num_threads(threads)
    repetition = learn_repetition(Problem.load(Path(shared)), recipe, number, [], device=device)
    _save(Path(folder), number, mark, repetition)


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


def _file(folder: Path, number: int) -> Path:
    return folder / f"repetition-{number:04d}.npz"


def _save(folder: Path, number: int, mark: str, repetition: Repetition) -> None:
    """Write a finished repetition; a file under its final name is whole."""
    router = {f"router.{name}": value for name, value in repetition.router._asdict().items()}
    history = np.frombuffer(json.dumps(repetition.history).encode(), dtype=np.uint8)
    handle, name = tempfile.mkstemp(dir=folder, suffix=".tmp")
    with os.fdopen(handle, "wb") as file:
        np.savez(
            file,
            mark=np.array(mark),
            assignment=repetition.partition.assignment,
            history=history,
            **router,
        )
    os.replace(name, _file(folder, number))


def _load(folder: Path, number: int, mark: str) -> Repetition | None:
    """Read a finished repetition of this very problem and recipe, or None."""
    path = _file(folder, number)
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as saved:
        if str(saved["mark"]) != mark:
            return None
        fields: dict[str, Any] = {name: saved[f"router.{name}"] for name in Router._fields}
        fields["linear"] = int(fields["linear"])
        router = Router(**fields)
        history = json.loads(saved["history"].tobytes())
        return Repetition(router, Partition(router.buckets, saved["assignment"]), history)
