"""Speed beside the peers: python benchmarks/vectors.py NAME

    compare      recall10@10 against queries per second, single and batch (the default)
    report       only the tables and plots of what was measured so far
    latency      p50 and p99 of single queries on skewed data, beside FAISS IVFFlat
    concurrent   single queries from four threads at once
    scale        a million items or more, beside FAISS HNSW

`compare` builds every index, ours and the peers', in a fresh process, and measures it in others
(see vector_runs.py). What is finished is not repeated; our own measurements are, once the source
of irli has changed. The peers need an environment of their own: `make vector-peers`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import vector_report
from common import Queries, say
from vector_builds import PEERS, builds
from vector_curves import TARGETS
from vector_jobs import FOLDER, OWN, ROOT, Job, JobFailed, source_version
from vector_peers import METHODS

from irli.base.vector_files import read_vectors

REPORTED = {"test": 2000, "test_ood": 1000}
TAUGHT = 4000  # the first queries of test_ood; the last 1,000 are reported
SMALL = 20_000  # data sets with fewer items are for trying out: only if named
LEADING = 0.7  # builds this near to the best of their method in the rough pass are timed


def prepare(path: Path) -> dict[str, Any]:
    """Write the arrays of a data set where every process finds them; return what it is."""
    folder = FOLDER / "data" / path.stem
    about = folder / "about.json"
    if not about.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with h5py.File(path) as file:
            angular = file.attrs["distance"] == "angular"
            asked = [key for key in REPORTED if key in file]
        base = np.array(read_vectors(path, key="train"))
        np.save(folder / "base.npy", _unit(base) if angular else base)
        for key in asked:
            queries = _queries(path, key)
            chosen = queries.sample(REPORTED[key])
            if key == "test_ood":
                chosen = queries[-REPORTED[key] :]
                learn = queries.vectors[: min(TAUGHT, len(queries.vectors) - REPORTED[key])]
                np.save(folder / "learn.npy", _unit(learn) if angular else learn)
            np.save(folder / f"{key}.npy", _unit(chosen.vectors) if angular else chosen.vectors)
            np.save(folder / f"{key}-truth.npy", chosen.truth)
        said = {"metric": "ip" if angular else "l2", "count": len(base), "dim": base.shape[1]}
        about.write_text(json.dumps(said | {"queries": asked}) + "\n")
    return {"name": path.stem, **json.loads(about.read_text())}


def _queries(path: Path, key: str) -> Queries:
    truth = read_vectors(path, key=key.replace("test", "neighbors"))[:, :10]
    return Queries(np.array(read_vectors(path, key=key)), np.array(truth, dtype=np.int64))


def _unit(vectors: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / length, dtype=np.float32)


def compare(given: argparse.Namespace) -> list[str]:
    """Build and measure whatever is not done yet; return what failed."""
    sets = [prepare(path) for path in _files(given.data, given.only)]
    failed: list[str] = []
    for method in given.methods:
        for about in sets:
            jobs = [job for job in _jobs(about, method, given) if _done(job, given, failed)]
            for job in jobs:
                leading = vector_report.leads(job, LEADING)
                for threads in given.threads if leading else ():
                    timed = replace(job, stage="timed", threads=threads, **_effort(given))
                    _done(timed, given, failed)
    return failed


def _files(data: Path, only: list[str]) -> list[Path]:
    found = sorted(data.glob("*.hdf5"))
    if only:
        return [path for path in found if any(path.stem.startswith(name) for name in only)]
    return [path for path in found if _items(path) >= SMALL]


def _items(path: Path) -> int:
    with h5py.File(path) as file:
        return len(file["train"])


def _jobs(about: dict[str, Any], method: str, given: argparse.Namespace) -> Iterator[Job]:
    """Yield the rough passes over each build and query set."""
    taught = "test_ood" in about["queries"]
    queries = about["queries"]
    if method not in OWN:
        variants = builds(method, about["count"], about["dim"], about["metric"], taught)
        version = pinned(METHODS[method].package)
    else:
        variants, version = [{}], source_version()
        if method == "irli-queries":
            variants = [{"taught": True}]
            queries = [key for key in queries if key == "test_ood"]
    for build in variants[:1] if given.quick else variants:
        for key in queries:
            yield Job(about["name"], method, build, stage="rough", queries=key, version=version)


def _effort(given: argparse.Namespace) -> dict[str, int]:
    return {"repeats": 2, "settings": 6} if given.quick else {"repeats": 5, "settings": 8}


def pinned(package: str) -> str:
    """Return the version of a peer that is asked for."""
    lines = (ROOT / "vector-peers.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


def _done(job: Job, given: argparse.Namespace, failed: list[str]) -> bool:
    """See to it that a job is done; note it if it fails."""
    try:
        _do(job, given)
    except JobFailed as error:
        failed.append(str(error))
        say(f"FAILED {error}")
        return False
    return True


def _do(job: Job, given: argparse.Namespace) -> None:
    cores = len(os.sched_getaffinity(0))
    if job.threads > cores:
        raise JobFailed(f"{job.name}: {job.threads} threads need as many cores. Got {cores}.")
    built = Job(job.data, job.method, job.build, threads=cores, version=job.version)
    again = given.rebuild and built.index not in _rebuilt
    if again or built.outcome() is None or not job.index.exists():
        _rebuilt.add(built.index)
        found = built.run(fresh=True)
        say(f"{job.data} {job.name}: built in {found['build_seconds']:.0f} s")
    if job.outcome() is not None and not given.fresh and not given.rebuild:
        return
    started = time.perf_counter()
    found = job.run(fresh=True)
    taken = time.perf_counter() - started
    said = f"{job.data} {job.name} {job.queries}"
    if job.stage == "timed":
        said += f", {job.threads} threads: {vector_report.summary(found, TARGETS)}"
    say(f"{said} ({job.stage}, {taken:.0f} s)")


_rebuilt: set[Path] = set()  # with --rebuild, once is enough


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = ("compare", "report", "latency", "concurrent", "scale")
    parser.add_argument("name", choices=names, nargs="?", default="compare")
    parser.add_argument("--data", type=Path, default=ROOT.parent.parent / "shared" / "data")
    parser.add_argument("--only", nargs="*", help="data sets, by how their names begin")
    parser.add_argument("--methods", nargs="*", choices=[*OWN, *PEERS], default=[*OWN, *PEERS])
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="one build each, two repeats")
    parser.add_argument("--fresh", action="store_true", help="measure again what is finished")
    parser.add_argument("--rebuild", action="store_true", help="build again what is built")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="clock of the report; cpu where other work shares the machine (one thread only)",
    )
    parser.add_argument("--items", type=int, default=1_000_000, help="of scale")
    given = parser.parse_args()
    failed: list[str] = []
    if given.name in ("compare", "report"):
        if given.name == "compare":
            failed = compare(given)
        vector_report.write(FOLDER, given.clock)
    else:
        import vector_serving

        getattr(vector_serving, given.name)(given)
    if failed:
        say(f"{len(failed)} measurements failed:")
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
