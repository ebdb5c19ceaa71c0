"""Building shards of labels: which labels a shard has, and the steps that learn them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli import storage
from irli.clusterfiles import seal, sealed
from irli.clusterrun import Steps
from irli.config import Recipe
from irli.labels import LabelIndex


def dealt(counts: NDArray[np.int64], shards: int) -> list[NDArray[np.int64]]:
    """Deal the labels out, the most common first, so that all shards have as many of each kind.

    Examples
    --------
    >>> dealt(np.array([5, 1, 9, 2, 7]), 2)
    [array([0, 1, 2]), array([3, 4])]
    """
    order = np.argsort(-counts, kind="stable")
    return [np.sort(order[shard::shards]) for shard in range(shards)]


@dataclass(frozen=True)
class LabelJob:
    """All that a worker must know."""

    rows: str  # .npy, or .npz of a CSR
    labels: str
    shards: int
    folder: str
    asked: Recipe
    recipe: Recipe  # resolved
    slice_bytes: int
    threads: int
    device: str

    def place(self, shard: int) -> Path:
        """Where the files of a shard are."""
        return Path(self.folder) / f"shard-{shard:04d}"

    def index(self, shard: int) -> Path:
        """Where the finished index of a shard is."""
        return self.place(shard) / "finished" / "index"

    def key(self, shard: int) -> str:
        """Identify what is learned for a shard."""
        names = [Path(self.rows).name, Path(self.labels).name]
        said = [storage.VERSION, names, self.shards, shard, dataclasses.asdict(self.asked)]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _prepare(job: LabelJob, shard: int) -> None:
    """Make the folder; what there is to learn is found out by each step that needs it."""
    job.place(shard).mkdir(parents=True, exist_ok=True)


def _learn(job: LabelJob, shard: int, numbers: list[int]) -> None:
    from irli.repetitions import learning_only

    if not _finished(job, shard):
        with learning_only(numbers):
            _fit(job, shard)


def _finish(job: LabelJob, shard: int) -> None:
    if not _finished(job, shard):
        _fit(job, shard).save(job.index(shard))
        seal(job.index(shard).parent, job.key(shard))
        for path in job.place(shard).glob("repetition-*.npz"):
            path.unlink()


def _finished(job: LabelJob, shard: int) -> bool:
    return sealed(job.index(shard).parent, job.key(shard))


def _fit(job: LabelJob, shard: int) -> LabelIndex:
    rows: Any = np.load(job.rows) if job.rows.endswith(".npy") else sp.load_npz(job.rows)
    labels = sp.csr_array(sp.load_npz(job.labels))
    # Log-odds come from the ranker; a single shard need not be compared with others.
    index = LabelIndex(job.asked, ranker=None if job.shards == 1 else True)
    return index.fit(
        rows,
        part_of(labels, shard, job.shards),
        threads=job.threads,
        device=job.device,
        checkpoint=job.place(shard),
    )


def part_of(labels: Any, shard: int, shards: int) -> Any:
    """Return the labels of a shard (n, L / P + 1), with "elsewhere" as the last one."""
    if shards == 1:
        return labels
    counts = np.bincount(labels.indices, minlength=labels.shape[1])
    own = sp.csc_array(labels)[:, dealt(counts, shards)[shard]]
    none = np.asarray(own.sum(axis=1)).ravel() == 0
    somewhere = np.diff(labels.indptr) > 0
    elsewhere = sp.csr_array((none & somewhere).astype(np.float32)[:, None])
    return sp.csr_array(sp.hstack([own, elsewhere]))


STEPS = Steps(_prepare, _learn, _finish)
