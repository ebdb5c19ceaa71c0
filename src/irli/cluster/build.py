"""Building shards: small steps that leave files, done in this process or as tasks on Ray.

Each shard goes through the same steps. `prepare` makes the problem; `learn` trains one repetition,
or all heads of a shared trunk; `finish` assembles the index of the shard. A step whose result is
there and intact is not done again. So the steps of a lost worker are simply run once more, and a
new driver goes on where the last one stopped.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from irli.base.folder import write_folder
from irli.base.progress import Progress, track
from irli.cluster.job import Job
from irli.cluster.ray_client import connect, unwrap_errors
from irli.cluster.workdir import is_complete, mark_complete, unmark_complete
from irli.errors import ClusterError
from irli.learning import load_runs
from irli.learning.checkpoint import Checkpoint
from irli.learning.options import LearnOptions
from irli.learning.problem import Problem
from irli.learning.repetition import group_repetitions

log = logging.getLogger(__name__)

_BASE = 500 << 20  # bytes that a worker needs besides its slice: torch, compiled kernels, batches
_RETRIES = 5  # of a step whose worker or machine was lost


def build(job: Job, ray: str | None, progress: Progress) -> None:
    """Do all steps of all shards, in this process or on a Ray cluster."""
    load_runs(job.device if ray is None else "cpu")  # a GPU need only be where the steps run
    # Shards may differ: of few labels, one repetition is learned.
    groups = [group_repetitions(job.recipe_of(shard)) for shard in range(job.shards)]
    if ray is not None:
        tasks = _submit(job, groups, connect(ray))
        with unwrap_errors():
            for _ in track(tasks, progress, "shards"):
                pass
        return
    steps: list[tuple[Any, ...]] = []
    for shard in range(job.shards):
        steps.append((prepare, shard))
        steps += [(learn, shard, numbers) for numbers in groups[shard]]
        steps.append((finish, shard))
    for step, *arguments in track(steps, progress, "shards"):
        step(job, *arguments)


# --- the steps -------------------------------------------------------------------------------


def prepare(job: Job, shard: int) -> None:
    """Write down what there is to learn."""
    _check_visible(job)
    folder = job.problem(shard)
    if _is_finished(job, shard, verify=True) or is_complete(folder, job.key(shard)):
        return
    unmark_complete(job.index(shard).parent)
    folder.mkdir(parents=True, exist_ok=True)
    job.make_problem(shard).save(folder)
    mark_complete(folder, job.key(shard))


def learn(job: Job, shard: int, numbers: list[int]) -> None:
    """Learn repetitions of a shard, after those that they learn from."""
    if _is_finished(job, shard):
        return
    runs = load_runs(job.device)  # or say what is missing on this machine
    problem = Problem.load(job.problem(shard))
    options = LearnOptions(threads=job.threads, device=job.device)
    runs.learn_group(problem, job.recipe_of(shard), numbers, _checkpoint(job, shard), options)


def finish(job: Job, shard: int) -> None:
    """Assemble the index of a shard and save it."""
    if _is_finished(job, shard):
        return
    repetitions = _checkpoint(job, shard).load_all(job.recipe_of(shard))
    write_folder(job.index(shard), job.assemble(shard, job.problem(shard), repetitions))
    mark_complete(job.index(shard).parent, job.key(shard))
    _clean(job.place(shard))


def _checkpoint(job: Job, shard: int) -> Checkpoint:
    return Checkpoint(job.place(shard), job.key(shard))


def _is_finished(job: Job, shard: int, verify: bool = False) -> bool:
    """Whether there is nothing left to do; the first step has compared the checksums."""
    return is_complete(job.index(shard).parent, job.key(shard), verify=verify)


def _clean(place: Path) -> None:
    """Remove what only the steps before the last one need."""
    for pattern in ("problem/*", "repetition-*.npz", ".irli-*.tmp"):
        for path in place.glob(pattern):
            path.unlink(missing_ok=True)
    with suppress(OSError):  # a network file system keeps a file that is still mapped
        (place / "problem").rmdir()


def _check_visible(job: Job) -> None:
    if not Path(job.folder).is_dir():
        raise ClusterError(
            f"The machine {socket.gethostname()} cannot see the folder {job.folder}, where the "
            "build keeps its files. Pass checkpoint= a folder on a file system that all share."
        )


# --- on Ray ----------------------------------------------------------------------------------


class _Tasks:
    """Tasks on Ray; iterating over them waits for each, as they finish."""

    def __init__(self, ray: Any, references: list[Any]) -> None:
        self.ray, self.references = ray, references

    def __len__(self) -> int:
        return len(self.references)

    def __iter__(self) -> Iterator[None]:
        waiting = self.references
        try:
            while waiting:
                done, waiting = self.ray.wait(waiting, num_returns=1)
                self.ray.get(done)
                yield
        finally:  # after an error or an interrupt, tasks that have not begun need not begin
            for reference in waiting:
                self.ray.cancel(reference)


def _submit(job: Job, groups: list[list[list[int]]], ray: Any) -> _Tasks:
    """Submit all steps at once; each waits for those that it needs."""
    needs: dict[str, Any] = {
        "num_cpus": job.threads,
        "memory": 2 * job.slice_bytes + _BASE,
        "max_retries": _RETRIES,
        "scheduling_strategy": "SPREAD",
    }
    _warn_if_impossible(ray, needs)
    on_gpu = needs | ({"num_gpus": 1} if job.device.startswith("cuda") else {})
    what = ray.put(job)
    run = ray.remote(_run_after)
    references = []
    for shard in range(job.shards):
        before = run.options(name="prepare", **needs).remote(prepare, what, (shard,))
        references.append(before)
        learned = []
        for numbers in groups[shard]:
            task = run.options(name="learn", **on_gpu)
            learned.append(task.remote(learn, what, (shard, numbers), before))
            if job.recipe.boost:  # later repetitions learn from the earlier ones
                before = learned[-1]
        references += learned
        task = run.options(name="finish", **needs)
        references.append(task.remote(finish, what, (shard,), *learned))
    return _Tasks(ray, references)


def _run_after(step: Any, job: Any, arguments: tuple[Any, ...], *before: None) -> None:
    """Run a step; Ray starts it only when the results of those `before` it are there."""
    step(job, *arguments)


def _warn_if_impossible(ray: Any, needs: dict[str, Any]) -> None:
    """Warn if no machine can take a step; one may still join."""
    for node in ray.nodes():
        has = node["Resources"] if node["Alive"] else {}
        if has.get("CPU", 0) >= needs["num_cpus"] and has.get("memory", 0) >= needs["memory"]:
            return
    log.warning(
        "No machine of the cluster has %d CPUs and %.1f GB of memory for a step of the build yet: "
        "it waits for one. More shards need less memory each.",
        needs["num_cpus"],
        needs["memory"] / 1e9,
    )
