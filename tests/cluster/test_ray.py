"""Shards on Ray: the same bytes and answers, also when workers and actors are killed."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from conftest import small_default
from contract import same
from folders import read_files
from planted import clusters

from irli.cluster import ShardedIndex
from irli.cluster.ray_client import connect
from irli.errors import ClusterError, DeadlineExceeded, DimensionMismatch, InvalidParameter

pytestmark = pytest.mark.usefixtures("on_ray")

X = clusters(n_per=12, centres=10, dim=6, spread=0.5, seed=1).points
RECIPE = small_default(epochs=1, epoch_size=256, repetitions=2, buckets=8)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> tuple[ShardedIndex, Path]:
    """The same index, made without Ray, and the folder of its build."""
    folder = tmp_path_factory.mktemp("local")
    index = ShardedIndex(recipe=RECIPE, shards=2).fit(X, threads=1, checkpoint=folder)
    index.save(folder.parent / "saved")
    return index, folder


@pytest.fixture(scope="module")
def served(local: tuple[ShardedIndex, Path]) -> Iterator[ShardedIndex]:
    index = ShardedIndex.load(local[1].parent / "saved", ray="auto")
    yield index
    index.close()


def workers(*names: str) -> list[psutil.Process]:
    """Processes of this Ray cluster that do one of these steps just now."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if any(title.startswith(f"ray::{name}") for name in names):
            found.append(process)
    return found


def test_a_build_survives_the_loss_of_a_worker(
    local: tuple[ShardedIndex, Path], tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill_once(done: int, total: int, what: str) -> None:
        assert (total, what) == (8, "shards")
        end = time.monotonic() + 30
        while not killed and done < total and time.monotonic() < end:
            for process in workers("prepare", "learn", "finish"):
                process.kill()
                killed.append(process.pid)
                return

    index = ShardedIndex(recipe=RECIPE, shards=2, ray="auto")
    index.fit(X, checkpoint=tmp_path, progress=kill_once)
    assert killed
    assert read_files(tmp_path) == read_files(local[1])
    same(index.search(X, k=5, probes=3), local[0].search(X, k=5, probes=3))
    index.close()


def test_an_actor_that_dies_comes_back(
    local: tuple[ShardedIndex, Path], served: ShardedIndex
) -> None:
    right = local[0].search(X, k=4, probes=2)
    same(served.search(X, k=4, probes=2), right)
    processes = served._fitted().ask("process").values
    os.kill(processes[1], signal.SIGKILL)
    partial = served.search(X, k=4, probes=2, partial=True)
    if partial.missing:  # or it has come back already
        assert partial.missing == (1,)
        assert (partial.ids < 60).all()
    again = served.search(X, k=4, probes=2, deadline=120)
    assert again.missing == ()
    same(again, right)
    assert served._fitted().ask("process").values[1] != processes[1]


def test_no_call_outlives_its_deadline(served: ShardedIndex) -> None:
    stopped = psutil.Process(served._fitted().ask("process").values[0])
    stopped.suspend()
    try:
        with pytest.raises(DeadlineExceeded, match=r"0.* of 2"):
            served.search(X, deadline=0.2)
        found = served.search(X, k=3, deadline=4.0, partial=True)
        assert found.missing == (0,)
        assert (found.ids >= 60).all()
    finally:
        stopped.resume()
    assert served.search(X, k=3, deadline=120).missing == ()


def test_replicas_take_over(local: tuple[ShardedIndex, Path]) -> None:
    index = ShardedIndex.load(local[1].parent / "saved", ray="auto", replicas=2)
    one, other = index._fitted()._serving.actors[0]  # type: ignore[union-attr]
    ray = pytest.importorskip("ray")
    assert ray.get(one.process.remote()) != ray.get(other.process.remote())
    ray.kill(one)  # for good
    for _ in range(4):  # whoever's turn it is
        found = index.search(X, k=4, probes=2, partial=True)
        assert found.missing == ()
        same(found, local[0].search(X, k=4, probes=2))
    index.close()


def test_errors_arrive_as_they_were_raised(served: ShardedIndex, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="'filter'"):
        served.search(X, filter=[[1.5]])
    with pytest.raises(DimensionMismatch):
        served.search(X[:, :3])
    broken = X.copy()
    broken[100] = np.inf
    np.save(tmp_path / "x.npy", broken)
    index = ShardedIndex(recipe=RECIPE, shards=2, ray="auto")
    with pytest.raises(InvalidParameter, match="rows from 60 to 119"):
        index.fit(tmp_path / "x.npy", checkpoint=tmp_path / "build")


def test_a_damaged_shard_is_named(local: tuple[ShardedIndex, Path], tmp_path: Path) -> None:
    shutil.copytree(local[1].parent / "saved", tmp_path / "index")
    vectors = next((tmp_path / "index").glob("shard-0001.*/vectors.*"))
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"x")
    with pytest.raises(ClusterError, match=r"cannot be opened.*does not match its checksum"):
        ShardedIndex.load(tmp_path / "index", ray="auto")


def test_usage_reports_are_off_unless_somebody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    connect("auto")
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    connect("auto")
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
