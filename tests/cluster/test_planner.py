"""The planner: right sums from known costs, costs that are found again, and clear refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from commands import Runner, refused, runner
from hypothesis import given, settings
from hypothesis import strategies as st

import irli
from irli.cluster import costs as plancosts
from irli.cluster.costs import Costs, _fitted
from irli.cluster.planner import ClusterPlan, Machines, plan
from irli.errors import ClusterError, FormatError, InvalidParameter

# A nanosecond for each unit of work, so that sums can be made by hand.
COSTS = Costs(
    dim=96,
    recipe="default",
    prepare=(1e-9, 0.0),
    learn=(0.0, 1e-9, 0.0, 0.0, 0.0),
    finish=(0.0, 0.0, 0.0),
    search=(0.0, 0.0, 0.0, 1e-9, 0.0),
    merge=(0.0, 0.0),
    base_bytes=400 << 20,
    probes=8.0,
    candidates=100.0,
    distinct=0.8,
)
ONE = Machines(count=1, cores=1, memory=64e9, round_trip=0.0, bandwidth=1e12, call=0.0)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runner:
    return runner(capsys)


def planned(**changes: object) -> ClusterPlan:
    arguments: dict[str, object] = {"items": 800_000, "shards": 8}
    return plan(COSTS, irli.recipe(buckets=1000), ONE, **(arguments | changes))  # type: ignore[arg-type]


def test_sums() -> None:
    found = planned(probes=10)
    # 8 shards of 100,000 items on one core, all of which are training queries.
    prepare = 8 * 100_000**2 * 1e-9
    learn = 8 * 10 * 50_000 * 1000 * 1e-9
    assert found.build_seconds == pytest.approx(prepare + learn)
    assert found.scanned == 8 * 10 * 2 * 100  # 100 items a bucket, each in two
    assert found.latency == pytest.approx(found.scanned * 1e-9, rel=1e-2)
    assert found.throughput == pytest.approx(1 / (found.scanned * 1e-9))
    assert found.shard_bytes > 100_000 * 96 * 4
    assert (found.repetitions, found.buckets, found.probes) == (1, 1000, 10)
    assert found.candidates == 100  # chosen by codes
    plain = plan(COSTS, irli.recipe(buckets=1000, pieces=0), ONE, items=800_000, shards=8, probes=1)
    assert plain.candidates == 160  # all distinct items of a bucket


def test_the_caller_s_network_is_counted() -> None:
    far = dataclasses.replace(ONE, round_trip=0.25, bandwidth=1e6, call=0.5)
    found = plan(COSTS, irli.recipe(buckets=1000), far, items=800_000, shards=8, batch=100)
    sent = 8 * 100 * (96 * 4 + 10 * 12) / 1e6
    assert found.batch_latency == pytest.approx(0.25 + 0.5 + sent + 100 * found.scanned * 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    items=st.integers(1_000, 10**9),
    count=st.integers(1, 64),
    cores=st.integers(1, 64),
    shards=st.integers(1, 64),
    repetitions=st.integers(1, 4),
    boost=st.booleans(),
)
def test_more_never_hurts(
    items: int, count: int, cores: int, shards: int, repetitions: int, boost: bool
) -> None:
    recipe = irli.recipe(repetitions=repetitions, boost=boost)
    few = Machines(count=count, cores=cores, memory=16e9)
    many = dataclasses.replace(few, count=2 * count)
    one = plan(COSTS, recipe, few, items=items, shards=shards)
    other = plan(COSTS, recipe, many, items=items, shards=shards)
    assert other.build_seconds <= one.build_seconds * (1 + 1e-9)
    assert other.machine_bytes <= one.machine_bytes
    assert other.latency <= one.latency * (1 + 1e-9)
    assert other.throughput >= one.throughput * (1 - 1e-9)
    finer = plan(COSTS, recipe, few, items=items, shards=min(items, 2 * shards))
    assert finer.build_worker_bytes <= one.build_worker_bytes
    recommended = plan(COSTS, recipe, few, items=items)
    assert recommended.shards % count == 0 or recommended.shards == items
    assert recommended.build_worker_bytes <= 0.8 * few.memory


def test_a_machine_that_is_too_small_is_said_to_be() -> None:
    assert planned().fits
    small = dataclasses.replace(ONE, memory=0.5e9)
    assert not plan(COSTS, irli.recipe(), small, items=10_000_000, shards=2).fits


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-9, 1e-3), min_size=3, max_size=3), st.integers(0, 2**31))
def test_costs_are_found_again(costs: list[float], seed: int) -> None:
    work = np.random.default_rng(seed).uniform(1, 1000, size=(8, 3))
    np.testing.assert_allclose(
        _fitted(work.tolist(), (work @ costs).tolist()), costs, rtol=1e-4, atol=1e-9
    )


def test_measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plancosts, "_BUILDS", ((400, 8, 2, 2), (800, 16, 2, 1)))
    monkeypatch.setattr(plancosts, "_SEARCHED", (0, 1))
    monkeypatch.setattr(plancosts, "_ENLARGED", 2)
    monkeypatch.setattr(plancosts, "_BATCH", 16)
    monkeypatch.setattr(plancosts, "_WATCHED", ((400, 8),))
    costs = plancosts.measured(6, irli.recipe(epoch_size=256))
    assert costs.dim == 6
    assert sum(costs.learn) > 0
    assert sum(costs.search) > 0
    assert costs.base_bytes > 50 << 20
    assert 1 <= costs.probes <= 16
    assert 0.4 < costs.distinct <= 1
    costs.save(tmp_path / "costs.json")
    assert Costs.load(tmp_path / "costs.json") == costs


def test_a_worker_that_fails_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plancosts, "_WATCHED", ((0, 8),))  # no items: the build fails
    with pytest.raises(ClusterError, match="memory of a worker cannot be measured"):
        plancosts._base_bytes(6, irli.recipe())


def test_the_command(run: Runner, tmp_path: Path) -> None:
    COSTS.save(tmp_path / "costs.json")
    common = ("plan", "--dim", 96, "--costs", tmp_path / "costs.json")
    told = run(*common, "--items", "100e6", "--shards", 8, "--machines", 8, "--json").json
    assert (told["items"], told["shards"]) == (100_000_000, 8)
    text = run(*common, "--items", "1e9", "--machines", 64).out
    assert "P = 64" in text
    assert "queries/s" in text
    refused(run(*common, "--items", "1.5"), "--items", "whole")
    refused(run(*common, "--items", "0"), "items")
    refused(run(*common, "--items", "10", "--shards", "11"), "'shards'")
    refused(run("plan", "--items", 10, "--dim", 3, "--costs", tmp_path / "costs.json"), "96")
    refused(run(*common, "--items", "1e6", "--recipe", "paper"), "'paper'", "'default'")
    refused(run(*common, "--items", "1e6", "--cores", "0"), "cores")


def test_bad_costs(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    for text in ("", "{}", "[]", '{"dim": 3}'):
        path.write_text(text)
        with pytest.raises(FormatError, match="Remove it"):
            Costs.load(path)
    dataclasses.replace(COSTS, search=COSTS.search[1:]).save(path)
    with pytest.raises(FormatError, match="another version"):
        Costs.load(path)
    with pytest.raises(InvalidParameter, match="recipe 'paper'"):
        plan(COSTS, irli.recipe("paper"), ONE, items=1000)
