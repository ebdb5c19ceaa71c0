"""Run the learning of all repetitions: in sequence or in parallel processes, with checkpoints."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from time import monotonic
from typing import TypedDict

from irli.base.progress import track
from irli.base.recipe import Recipe
from irli.base.types import Arrays, StrPath
from irli.errors import InvalidParameter
from irli.learning.checkpoint import Checkpoint, open_checkpoint
from irli.learning.options import LearnOptions
from irli.learning.problem import Problem
from irli.learning.repetition import Repetition, group_repetitions
from irli.learning.state import can_go_on
from irli.learning.threads import use_threads
from irli.learning.training import learn_repetitions

SECONDS = 10.0  # of learning that an interrupt may cost, or one epoch


def learn(
    problem: Problem,
    recipe: Recipe,
    options: LearnOptions,
    start: list[Repetition] | None = None,
) -> list[Repetition]:
    """Learn R repetitions, or on from those of `start`: the outer loop of Algorithm 1.

    With several workers, the recipe must have `boost=False` and `trunk="own"`. Then no repetition
    depends on another.
    """
    _check_workers(options.workers, recipe)
    many = options.workers > 1
    given = start or []
    with open_checkpoint(options.checkpoint, problem, recipe, given, needed=many) as checkpoint:
        if many:
            _learn_in_processes(problem, recipe, given, checkpoint, options)
        done: list[Repetition] = []
        with use_threads(options.thread_count):
            for numbers in group_repetitions(recipe):
                group = checkpoint.load(numbers)
                if group is None:
                    group = learn_repetitions(
                        problem,
                        recipe,
                        numbers,
                        done,
                        start=_pick(given, numbers),
                        device=options.device,
                        progress=options.progress,
                        **_resume(checkpoint, numbers, options.device),
                    )
                    checkpoint.save(numbers, group)
                done += group
        return done


def learn_group(
    problem: Problem,
    recipe: Recipe,
    numbers: list[int],
    checkpoint: Checkpoint,
    options: LearnOptions,
    start: list[Repetition] | None = None,
) -> None:
    """Learn one group of repetitions and save it, unless the checkpoint already has it.

    With `boost=True`, the checkpoint must hold all earlier repetitions.
    """
    if checkpoint.load(numbers) is not None:
        return
    earlier = checkpoint.load_all(recipe, before=numbers[0]) if recipe.boost else []
    with use_threads(options.thread_count):
        group = learn_repetitions(
            problem,
            recipe,
            numbers,
            earlier,
            start=start,
            device=options.device,
            **_resume(checkpoint, numbers, options.device),
        )
    checkpoint.save(numbers, group)


def _pick(start: list[Repetition], numbers: list[int]) -> list[Repetition] | None:
    """Return what a group of repetitions starts from, if there is anything."""
    return [start[number] for number in numbers] if start else None


class _Resume(TypedDict):
    saved: Arrays | None
    save: Callable[[Callable[[], Arrays]], None] | None


class _Saver:
    """Saves the state of a group of repetitions, but not if the last one is seconds old."""

    def __init__(self, checkpoint: Checkpoint, numbers: list[int]) -> None:
        self.checkpoint, self.numbers, self.last = checkpoint, numbers, monotonic()

    def __call__(self, pack: Callable[[], Arrays]) -> None:
        if monotonic() - self.last >= SECONDS:
            self.checkpoint.save_epoch(self.numbers, pack())
            self.last = monotonic()


def _resume(checkpoint: Checkpoint, numbers: list[int], device: str) -> _Resume:
    """Return the last epoch of a group that the checkpoint has, and where the next ones go."""
    if checkpoint.folder is None:
        return {"saved": None, "save": None}
    saved = checkpoint.load_epoch(numbers)
    if saved is not None and not can_go_on(saved, device):
        saved = None
    return {"saved": saved, "save": _Saver(checkpoint, numbers)}


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
    start: list[Repetition],
    checkpoint: Checkpoint,
    options: LearnOptions,
) -> None:
    """Learn the repetitions that the checkpoint does not have, in parallel processes."""
    missing = [group for group in group_repetitions(recipe) if checkpoint.load(group) is None]
    threads = max(1, options.thread_count // options.workers)
    context = get_context("spawn")  # not forked: threads do not survive a fork
    devices = context.SimpleQueue()
    for device in list_devices(options.device, options.workers):
        devices.put(device)
    with tempfile.TemporaryDirectory() as shared:
        problem.save(Path(shared))
        with ProcessPoolExecutor(options.workers, context, _take_device, (devices,)) as pool:
            jobs = [
                pool.submit(
                    _learn_saved, shared, recipe, group, checkpoint, threads, _pick(start, group)
                )
                for group in missing
            ]
            try:
                for job in track(jobs, options.progress, "repetitions"):
                    job.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)  # else an interrupt would wait for all jobs
                raise


def list_devices(device: str, workers: int) -> list[str]:
    """Return the device of each worker: "cuda" stands for all GPUs of the machine, in turn.

    Examples
    --------
    >>> list_devices("cpu", 2)
    ['cpu', 'cpu']
    """
    if device != "cuda":
        return [device] * workers
    import torch

    count = torch.cuda.device_count()
    return [f"cuda:{worker % count}" for worker in range(workers)]


_device = "cpu"  # of this worker process


def _take_device(devices: SimpleQueue[str]) -> None:
    """Take the device of this worker process, when it starts."""
    global _device
    _device = devices.get()


def _learn_saved(
    folder: StrPath,
    recipe: Recipe,
    numbers: list[int],
    checkpoint: Checkpoint,
    threads: int,
    start: list[Repetition] | None = None,
) -> None:
    """Learn one group of a saved problem. Runs in a worker process."""
    options = LearnOptions(threads=threads, device=_device)
    learn_group(Problem.load(Path(folder)), recipe, numbers, checkpoint, options, start)
