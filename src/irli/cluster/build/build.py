"""build: run the steps prepare, learn and finish of all shards, in this process or as Ray tasks.

`prepare` makes the problem of a shard. `learn` trains one repetition, or all heads of a shared
trunk. `finish` assembles the index of the shard. Shards may have a problem and its repetitions in
common: then one of them, the source, runs the first two steps for all. Each step writes files. A
step whose result exists and is intact is skipped. So the steps of a lost worker are run again, and
a new driver resumes where the last one stopped.
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from irli.base.checks import check_int, check_keywords
from irli.base.folder import write_folder
from irli.base.logs import get_logger
from irli.base.progress import Progress, track
from irli.base.threads import limit_blas
from irli.cluster.build.job import Job
from irli.cluster.build.workdir import is_complete, mark_complete, unmark_complete
from irli.cluster.shards.ray_client import connect, unwrap_errors
from irli.errors import ClusterError, InvalidParameter
from irli.learning import check_device
from irli.learning.checkpoint import Checkpoint, claim_checkpoint
from irli.learning.options import LearnArguments, LearnOptions
from irli.learning.problem import Problem
from irli.learning.repetition import group_repetitions

log = get_logger(__name__)

_RETRIES = 5  # of a step whose worker or machine is lost


def build(job: Job, ray: str | None, progress: Progress) -> None:
    """Run all steps of all shards, in this process or on a Ray cluster.

    Other builds in the same folder are refused meanwhile. They would remove each other's files.
    """
    if ray is None:  # else the driver needs no GPU
        check_device(job.device, job.recipe.mixed_precision)
    groups = [
        group_repetitions(job.recipe_of(shard)) if job.learned_by(shard) == shard else []
        for shard in range(job.shards)
    ]
    with claim_checkpoint(Path(job.folder)):
        if ray is None:
            _run_here(job, groups, progress)
            return
        tasks = _submit(job, groups, connect(ray))
        with unwrap_errors():
            for _ in track(tasks, progress, "shards"):
                pass


def _run_here(job: Job, groups: list[list[list[int]]], progress: Progress) -> None:
    steps: list[tuple[Any, ...]] = []
    for shard in range(job.shards):
        if groups[shard]:
            steps.append((prepare, shard))
        steps += [(learn, shard, numbers) for numbers in groups[shard]]
        steps.append((finish, shard))
    for step, *arguments in track(steps, progress, "shards"):
        step(job, *arguments)


def check_options(options: dict[str, Any]) -> LearnOptions:
    """Return the options of a sharded `fit`. Ray replaces workers, so there may be only one."""
    if "start" in options:
        raise InvalidParameter(
            "The 'start' parameter of fit must be left out for a ShardedIndex: its items may come "
            f"into other shards. Got {type(options['start']).__name__}. Use a VectorIndex for it."
        )
    check_keywords(options, LearnArguments.__annotations__, owner="fit")
    workers = options.get("workers", 1)
    check_int("workers", workers, at_least=1, at_most=1, owner="fit of a sharded index")
    return LearnOptions(**options)


def count_step_threads(options: LearnOptions, ray: str | None) -> int:
    """Return the threads of each step. On Ray, the default is 1."""
    return 1 if ray is not None and options.threads is None else options.thread_count


# --- the steps -------------------------------------------------------------------------------


@limit_blas()
def prepare(job: Job, shard: int) -> None:
    """Make the problem of a shard, and write it to files."""
    _check_visible(job)
    folder = job.problem(shard)
    served = _list_served(job, shard)
    damaged = [one for one in served if not _is_finished(job, one, verify=True)]
    for one in damaged:
        unmark_complete(job.index(one).parent)
    if not damaged or is_complete(folder, job.key(shard)):
        return
    folder.mkdir(parents=True, exist_ok=True)
    job.make_problem(shard, folder).save(folder)
    mark_complete(folder, job.key(shard))


@limit_blas()
def learn(job: Job, shard: int, numbers: list[int]) -> None:
    """Learn these repetitions of a shard. Those that they build on must be learned already."""
    if _are_finished(job, shard):
        return
    from irli.learning import runs

    # Fails early if the device is missing here.
    check_device(job.device, job.recipe.mixed_precision)
    problem = Problem.load(job.problem(shard))
    options = LearnOptions(threads=job.threads, device=job.device)
    recipe = job.recipe_of(shard)
    runs.learn_group(problem, recipe, numbers, _open_checkpoint(job, shard), options)


@limit_blas()
def finish(job: Job, shard: int) -> None:
    """Assemble the index of a shard, and save it."""
    source = job.learned_by(shard)
    if not _is_finished(job, shard):
        repetitions = _open_checkpoint(job, source).load_all(job.recipe_of(source))
        write_folder(job.index(shard), job.assemble(shard, job.problem(source), repetitions))
        mark_complete(job.index(shard).parent, job.key(shard))
    if _are_finished(job, source):
        for one in _list_served(job, source):
            _clean(job.place(one))


def _open_checkpoint(job: Job, shard: int) -> Checkpoint:
    return Checkpoint(job.place(shard), job.key(shard))


def _is_finished(job: Job, shard: int, verify: bool = False) -> bool:
    """Whether the shard is finished. Only the first step needs to verify the checksums."""
    return is_complete(job.index(shard).parent, job.key(shard), verify=verify)


def _list_served(job: Job, source: int) -> list[int]:
    """Return the shards that use the problem and the repetitions of this one."""
    return [shard for shard in range(job.shards) if job.learned_by(shard) == source]


def _are_finished(job: Job, source: int) -> bool:
    """Whether nobody needs the problem and the repetitions of this shard any more."""
    return all(_is_finished(job, shard) for shard in _list_served(job, source))


def _clean(place: Path) -> None:
    """Remove the files that a finished shard does not need."""
    for pattern in ("problem/*", "repetition-*.npz", ".irli-*.tmp"):
        for path in place.glob(pattern):
            path.unlink(missing_ok=True)
    with suppress(OSError):  # a network file system keeps files that are still mapped
        (place / "problem").rmdir()


def _check_visible(job: Job) -> None:
    if not Path(job.folder).is_dir():
        raise ClusterError(
            f"The machine {socket.gethostname()} cannot see the folder {job.folder}, where the "
            "build keeps its files. Pass checkpoint= a folder that all machines share."
        )


# --- on Ray ----------------------------------------------------------------------------------


class _Tasks:
    """Tasks on Ray. Iterating over them waits for them in the order in which they finish."""

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
        finally:  # after an error or an interrupt, cancel the rest
            for reference in waiting:
                self.ray.cancel(reference)


def _submit(job: Job, groups: list[list[list[int]]], ray: Any) -> _Tasks:
    """Submit all steps at once. Each waits for the steps that it depends on."""
    needed: dict[str, Any] = {
        "num_cpus": job.threads,
        "memory": job.step_bytes,
        "max_retries": _RETRIES,
        "scheduling_strategy": "SPREAD",
    }
    _warn_if_impossible(ray, needed)
    on_gpu = needed | ({"num_gpus": 1} if job.device.startswith("cuda") else {})
    # Neighbours take the longest, and there is nothing else to do yet: they get all cores.
    cores = max(job.threads, _count_least_cores(ray))
    reference, preparing = ray.put(job), ray.put(dataclasses.replace(job, threads=cores))
    prepared = on_gpu | {"num_cpus": cores}
    run = ray.remote(_run_after)
    references = []
    learned: dict[int, list[Any]] = {}
    for shard in range(job.shards):
        if not groups[shard]:
            continue
        before = run.options(name="prepare", **prepared).remote(prepare, preparing, (shard,))
        references.append(before)
        learned[shard] = []
        for numbers in groups[shard]:
            task = run.options(name="learn", **on_gpu)
            learned[shard].append(task.remote(learn, reference, (shard, numbers), before))
            if job.recipe.boost:  # later repetitions build on the earlier ones
                before = learned[shard][-1]
        references += learned[shard]
    for shard in range(job.shards):
        task = run.options(name="finish", **needed)
        references.append(task.remote(finish, reference, (shard,), *learned[job.learned_by(shard)]))
    return _Tasks(ray, references)


def _run_after(step: Any, job: Any, arguments: tuple[Any, ...], *before: None) -> None:
    """Run a step. Ray starts it when the results in `before` exist."""
    step(job, *arguments)


def _count_least_cores(ray: Any) -> int:
    """Return the cores of the machine of the cluster that has the fewest, of those with any."""
    cores = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    return int(min((count for count in cores if count), default=1))


def _warn_if_impossible(ray: Any, needed: dict[str, Any]) -> None:
    """Warn if no machine has the resources for a step. One may still join."""
    for node in ray.nodes():
        has = node["Resources"] if node["Alive"] else {}
        if has.get("CPU", 0) >= needed["num_cpus"] and has.get("memory", 0) >= needed["memory"]:
            return
    log.warning(
        "No machine of the cluster has the %d CPUs and %.1f GB of memory that a build step needs. "
        "The build waits for one. With more shards, a step needs less memory.",
        needed["num_cpus"],
        needed["memory"] / 1e9,
    )
