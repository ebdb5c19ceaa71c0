"""Speed beside the peers: build every index, go through its settings, time the best of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.commands import Options
from bench.common import ProcessFailed, count_cores, find_python, list_packages, say
from bench.smoke import CODES, SHORT
from bench.vectors.builds import PEERS, builds
from bench.vectors.curves import TARGETS
from bench.vectors.data import count_items, write_arrays, write_products
from bench.vectors.jobs import OURS, Job, source_version
from bench.vectors.jobs import PEERS as ENVIRONMENT
from bench.vectors.other_sets import SETS, make_set
from bench.vectors.peers import METHODS
from bench.vectors.report import leads, summarize, write_report

ALL = (*OURS, *PEERS)
BESIDE = ("irli", "irli-queries", "scann", "lorann", "faiss-ivf")  # compared on the other data sets
SMOKE = ("irli-queries", "faiss-ivf", "usearch")
SMALL = 20_000  # data sets with fewer items are for trying out: they must be named
LEADING = 0.7  # a build is timed if it is this near to the best of its method


def compare(options: Options) -> None:
    """Build and measure whatever is not done yet, and write the report."""
    folder = _folder(options)
    sets = [write_arrays(path, folder) for path in find_sets(options)]
    failed = _measure(sets, folder, options, SMOKE if options.smoke else ALL)
    report(options)
    end(failed)


def others(options: Options) -> None:
    """Make data sets from packages, and compare on them."""
    folder = _folder(options) / "others"
    if options.smoke:
        sets = [write_products(folder)]
    else:
        names = [n for n in SETS if not options.only or n.startswith(tuple(options.only))]
        sets = [make_set(folder, name) for name in names]
    failed = _measure(sets, folder, options, ("irli", "faiss-ivf") if options.smoke else BESIDE)
    write_report(folder, options.clock)
    end(failed)


def report(options: Options) -> None:
    """Write the tables and plots of what was measured so far."""
    write_report(_folder(options), options.clock)


def _folder(options: Options) -> Path:
    return Path(options.results) / "vectors"


def _measure(
    sets: list[dict[str, Any]], folder: Path, options: Options, methods: tuple[str, ...]
) -> list[str]:
    """Build and measure whatever is not done yet; return what failed."""
    failed: list[str] = []
    for method, version in find_versions(options.methods or methods).items():
        for about in sets:
            jobs = _list_jobs(about, folder, method, version, options)
            for job in [job for job in jobs if is_done(job, options, failed)]:
                timed_too = method in OURS or leads(job, LEADING)  # what `tune` chose, at least
                for threads in _list_threads(options) if timed_too else ():
                    timed = replace(job, stage="timed", threads=threads, **_choose_effort(options))
                    is_done(timed, options, failed)
    return failed


def end(failed: list[str]) -> None:
    """End with what failed, if anything did."""
    if failed:
        say(f"{len(failed)} measurements failed:")
        raise SystemExit("\n".join(failed))


def find_sets(options: Options) -> list[Path]:
    """Return the files of the data sets to compare on."""
    only = options.only or (["wordnet"] if options.smoke else None)
    found = sorted(options.data.glob("*.hdf5"))
    if only:
        found = [path for path in found if path.stem.startswith(tuple(only))]
    else:
        found = [path for path in found if count_items(path) >= SMALL]
    if not found:
        named = f" whose name begins with {' or '.join(only)}" if only else ""
        raise SystemExit(f"There must be an HDF5 file{named} in {options.data}. Use --data FOLDER")
    return found


def find_versions(methods: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Return the methods that are installed, and the version of each."""
    versions, installed = {}, list_packages(find_python(ENVIRONMENT))
    for method in methods:
        if method in OURS:
            versions[method] = source_version()
            continue
        package = METHODS[method].package
        if package in installed:
            versions[method] = f"{package}=={installed[package]}"
        else:
            say(f"{method}: skipped, since {package} is not installed (make vector-peers).")
    return versions


def _list_threads(options: Options) -> list[int]:
    return options.threads or ([1] if options.smoke else [1, 2])


def _choose_effort(options: Options) -> dict[str, int]:
    if options.smoke:
        return {"repeats": 1, "settings": 2}
    return {"repeats": 2, "settings": 6} if options.quick else {"repeats": 5, "settings": 8}


def _list_jobs(
    about: dict[str, Any], folder: Path, method: str, version: str, options: Options
) -> Iterator[Job]:
    """Yield the rough passes over each build and each set of queries."""
    queries, learn = about["queries"], "test_ood" in about["queries"]
    if method in OURS:
        variants: list[dict[str, Any]] = [SHORT["default"] | CODES if options.smoke else {}]
        if method == "irli-queries":
            variants = [{"sample_queries": True, **variants[0]}]
            queries = [key for key in queries if key == "test_ood"]
    else:
        variants = builds(method, about["count"], about["dim"], about["metric"], learn)
    if options.quick or options.smoke:
        variants = variants[:1]
    if options.smoke:
        queries = queries[-1:]
    for build in variants:
        for key in queries:
            yield Job(
                folder=str(folder),
                data=about["name"],
                method=method,
                build=build,
                stage="rough",
                queries=key,
                version=version,
            )


_rebuilt: set[Path] = set()  # with --rebuild, each index is built once


def is_done(job: Job, options: Options, failed: list[str]) -> bool:
    """Do a job, unless it is done already; note it if it fails."""
    try:
        _do(job, options)
    except ProcessFailed as error:
        failed.append(str(error))
        say(f"FAILED {error}")
        return False
    return True


def _do(job: Job, options: Options) -> None:
    cores = count_cores()
    if job.threads > cores:
        raise ProcessFailed(f"{job.name}: {job.threads} threads need as many cores. Got {cores}.")
    built = replace(
        job, stage="build", queries="", threads=1 if options.smoke else cores, repeats=0, settings=0
    )
    again = options.rebuild and built.index not in _rebuilt
    if again or built.outcome() is None or not job.index.exists():
        _rebuilt.add(built.index)
        found = built.run(fresh=True)
        say(f"{job.data} {job.name}: built in {found['build_seconds']:.0f} s")
    if job.outcome() is not None and not options.fresh and not options.rebuild:
        return
    started = time.perf_counter()
    found = job.run(fresh=True)
    taken = time.perf_counter() - started
    line = f"{job.data} {job.name} {job.queries}"
    if job.stage == "timed":
        line += f", {job.threads} threads: {summarize(found, TARGETS)}"
    say(f"{line} ({job.stage}, {taken:.0f} s)")
