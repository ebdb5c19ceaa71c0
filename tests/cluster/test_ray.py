"""Shards on Ray: the same bytes and answers, also when workers and actors are killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from conftest import small_default
from contract import same
from folders import list_parts, read_files
from planted import clusters

from irli import Deny
from irli.base.folder import read_manifest
from irli.cluster import ShardedIndex
from irli.cluster.shards import ray_shards
from irli.cluster.shards.ray_client import connect
from irli.cluster.shards.ray_shards import RayShards
from irli.errors import (
    ClusterError,
    DeadlineExceeded,
    DimensionMismatch,
    InvalidParameter,
    ShardUnavailable,
)

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


def serving(index: ShardedIndex) -> RayShards:
    found = index._fitted().group._serving
    assert isinstance(found, RayShards)
    return found


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
    processes = served._fitted().group.ask("process").values
    os.kill(processes[1], signal.SIGKILL)
    partial = served.search(X, k=4, probes=2, partial=True)
    if partial.missing:  # or it has come back already
        assert partial.missing == (1,)
        assert (partial.ids < 60).all()
    again = served.search(X, k=4, probes=2, deadline=120)
    assert again.missing == ()
    same(again, right)
    assert served._fitted().group.ask("process").values[1] != processes[1]


def test_no_call_outlives_its_deadline(served: ShardedIndex) -> None:
    stopped = psutil.Process(served._fitted().group.ask("process").values[0])
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


def test_a_stopped_actor_is_not_waited_for(
    local: tuple[ShardedIndex, Path], served: ShardedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_shards, "_PATIENCE", 0.5)
    stopped = psutil.Process(served._fitted().group.ask("process").values[0])
    stopped.suspend()
    try:
        with pytest.raises(ShardUnavailable, match=r"0 of 2 .* does not answer"):
            served.search(X)
        for _ in range(20):  # it is known to be down: each call would wait for minutes
            assert served.search(X, deadline=300, partial=True).missing == (0,)
        with pytest.raises(ShardUnavailable):
            served.search(X, deadline=0.1)
    finally:
        stopped.resume()
    same(served.search(X, k=4, probes=2, deadline=120), local[0].search(X, k=4, probes=2))


def test_replicas_take_over(
    local: tuple[ShardedIndex, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    right = local[0].search(X, k=4, probes=2)
    index = ShardedIndex.load(local[1].parent / "saved", ray="auto", replicas=2)
    one, other = serving(index).replicas[0]
    processes = ray.get([each.actor.call.remote("process") for each in (one, other)])
    assert len(set(processes)) == 2
    stopped = psutil.Process(processes[0])
    stopped.suspend()
    for _ in range(6):  # whoever's turn it is
        same(index.search(X, k=4, probes=2, deadline=60), right)
    stopped.kill()
    for _ in range(6):
        same(index.search(X, k=4, probes=2, partial=True, deadline=60), right)
    # Ray does not restart actors that were killed in this way. They are replaced.
    monkeypatch.setattr(ray_shards, "_REVIVAL", 0.0)
    ray.kill(one.actor)
    ray.kill(other.actor)
    same(index.search(X, k=4, probes=2, deadline=120), right)
    index.close()


def test_a_shard_comes_back_with_its_folder(
    local: tuple[ShardedIndex, Path], tmp_path: Path
) -> None:
    shutil.copytree(local[1].parent / "saved", tmp_path / "index")
    index = ShardedIndex.load(tmp_path / "index", ray="auto")
    first, second = list_parts(tmp_path / "index")
    second.rename(tmp_path / "away")
    os.kill(index._fitted().group.ask("process").values[1], signal.SIGKILL)
    with pytest.raises(ShardUnavailable, match=r"1 of 2 .*Shard 1: .*is missing"):
        search_until_open(index, 60)
    found = index.search(X, k=4, probes=2, deadline=120, partial=True)
    assert found.missing == (1,)
    shutil.copy(first, second)
    with pytest.raises(ShardUnavailable, match="does not hold the part of its name"):
        index.search(X, deadline=5)  # another shard in its place is not served
    (tmp_path / "away").rename(second)
    same(index.search(X, k=4, probes=2, deadline=120), local[0].search(X, k=4, probes=2))
    index.close()


def search_until_open(index: ShardedIndex, seconds: float) -> None:
    """Search until the actor of a killed process has started again, and its error is known."""
    end = time.monotonic() + seconds
    while True:
        try:
            index.search(X, deadline=1)
        except ShardUnavailable as error:
            if "is missing" in str(error) or time.monotonic() > end:
                raise


def test_a_large_request_is_stored_once(
    local: tuple[ShardedIndex, Path], served: ShardedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = serving(served)
    small = calls._pack("search", [(X, 4), (X, 4)])
    assert small[0] == small[1]
    assert all(isinstance(part, bytes) for part in small[0][1])
    monkeypatch.setattr(ray_shards, "_PACKED", 100)
    large = calls._pack("search", [(X, 4), (X, 4)])
    assert large[0][1][1] is large[1][1][1]  # the reference
    same(served.search(X, k=4, probes=2), local[0].search(X, k=4, probes=2))
    monkeypatch.undo()
    monkeypatch.setattr(ray_shards, "_PIECE", 100)
    same(served.search(X, k=4, probes=2), local[0].search(X, k=4, probes=2))


def test_functions_of_the_user_filter_on_ray(served: ShardedIndex) -> None:
    """Plain pickle refuses a lambda, and cannot find a function of the main program again."""
    most = len(served) // 2
    found = served.search(X[:4], k=3, exact=True, filter=lambda id: id < most)
    same(found, served.search(X[:4], k=3, exact=True, filter=range(most)))
    found = served.search(X[:2], k=3, exact=True, filter=[Deny(lambda id: id < most), None])
    assert found.ids[0].min() >= most


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
    part = read_manifest(list_parts(tmp_path / "index")[1])
    vectors = tmp_path / "index" / part["files"]["vectors"]["file"]
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


def test_a_missing_token_is_named(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    address = ray.get_runtime_context().gcs_address
    program = f"from irli.cluster.shards.ray_client import connect; connect({address!r})"
    without = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    for mode in ({}, {"RAY_AUTH_MODE": "token"}):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=without | mode | {"HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "ClusterError" in done.stderr
        assert "wants a token" in done.stderr
