"""Running the steps of a build: one after the other in this process, or as tasks on Ray."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from irli.clusterray import connected, own_errors
from irli.config import Recipe
from irli.learner import learner
from irli.progress import Progress, track

log = logging.getLogger(__name__)

_BASE = 500 << 20  # what a worker needs besides its slice: torch, compiled kernels, batches
_RETRIES = 5  # of a step whose worker or machine was lost


class AnyJob(Protocol):
    """What running needs to know of a build."""

    @property
    def shards(self) -> int:
        """P."""

    @property
    def recipe(self) -> Recipe:
        """How every shard is learned."""

    @property
    def slice_bytes(self) -> int:
        """What the data of the largest shard take."""

    @property
    def threads(self) -> int:
        """Threads of each step."""

    @property
    def device(self) -> str:
        """Where torch learns."""


class Steps(NamedTuple):
    """What is done for each shard; a step that finds its result there does nothing."""

    prepare: Callable[[Any, int], None]
    learn: Callable[[Any, int, list[int]], None]
    finish: Callable[[Any, int], None]


def build(job: AnyJob, steps: Steps, ray: str | None, progress: Progress) -> None:
    """Do all steps of all shards, in this process or on a Ray cluster."""
    learner(job.device if ray is None else "cpu")  # a GPU need only be where the steps run
    from irli.repetitions import groups

    together = groups(job.recipe)
    if ray is None:
        todo: list[tuple[Any, ...]] = []
        for shard in range(job.shards):
            todo.append((steps.prepare, shard))
            todo += [(steps.learn, shard, numbers) for numbers in together]
            todo.append((steps.finish, shard))
        for step, *arguments in track(todo, progress, "shards"):
            step(job, *arguments)
        return
    tasks = _submitted(job, steps, together, connected(ray))
    with own_errors():
        for _ in track(tasks, progress, "shards"):
            pass


class _Tasks:
    """Tasks that have been handed to Ray; going through them waits for each, as they finish."""

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
        finally:  # an error or an interrupt: what has not begun need not begin
            for reference in waiting:
                self.ray.cancel(reference)


def _submitted(job: AnyJob, steps: Steps, together: list[list[int]], ray: Any) -> _Tasks:
    """Hand all steps to Ray at once; each waits for those that it needs."""
    needs: dict[str, Any] = {
        "num_cpus": job.threads,
        "memory": 2 * job.slice_bytes + _BASE,
        "max_retries": _RETRIES,
        "scheduling_strategy": "SPREAD",
    }
    _warn_of_impossible(ray, needs)
    on_gpu = needs | ({"num_gpus": 1} if job.device.startswith("cuda") else {})
    what = ray.put(job)
    run = ray.remote(_after)
    references = []
    for shard in range(job.shards):
        before = run.options(name="prepare", **needs).remote(steps.prepare, what, (shard,))
        references.append(before)
        learned = []
        for numbers in together:
            task = run.options(name="learn", **on_gpu)
            learned.append(task.remote(steps.learn, what, (shard, numbers), before))
            if job.recipe.boost:  # later repetitions learn from the earlier ones
                before = learned[-1]
        references += learned
        task = run.options(name="finish", **needs)
        references.append(task.remote(steps.finish, what, (shard,), *learned))
    return _Tasks(ray, references)


def _after(step: Any, job: Any, arguments: tuple[Any, ...], *before: None) -> None:
    """Run a step; Ray starts it only when the results of those `before` it are there."""
    step(job, *arguments)


def _warn_of_impossible(ray: Any, needs: dict[str, Any]) -> None:
    """Say so if no machine can take a step; one may still join."""
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
