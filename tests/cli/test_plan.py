"""The command that plans a cluster, from costs that were measured before."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Run, Runner, refused

from irli.cluster.planning.costs import Costs

COSTS = Costs(
    dim=16,
    recipe="default",
    prepare=(1e-9,) * 3,
    learn=(1e-9,) * 5,
    finish=(1e-9,) * 3,
    search=(1e-9,) * 5,
    merge=(1e-9, 1e-9),
    probes=8.0,
    candidates=100.0,
    distinct=0.8,
)


@pytest.fixture
def plan(run: Runner, tmp_path: Path) -> Runner:
    """Run `irli plan` for a million items."""
    COSTS.save(tmp_path / "costs.json")

    def call(*options: object) -> Run:
        given = ["--items", "1e6", "--dim", 16, "--costs", tmp_path / "costs.json"]
        return run("plan", *given, *options)

    return call


def test_a_plan_for_people_and_for_programs(plan: Runner) -> None:
    text = plan("--machines", 4).out
    assert text.startswith("items       1000000 of 16 dimensions\n")
    assert "queries/s" in text
    told = plan("--machines", 4, "--json").json
    assert (told["items"], told["dim"]) == (1_000_000, 16)
    assert f"P = {told['shards']}," in text


@pytest.mark.parametrize("option", ["-k", "--k"])
def test_more_neighbours_take_more_of_the_network(plan: Runner, option: str) -> None:
    narrow = ["--bandwidth", 0.001, "--shards", 4, "--json"]
    few, many = (plan(*narrow, option, k).json["batch_latency"] for k in (1, 1000))
    assert many > few


def test_settings_change_the_plan(plan: Runner) -> None:
    shards = ["--shards", 2, "--json"]
    assert plan(*shards, "--set", "buckets=512").json["buckets"] == 512
    with_codes, without = plan(*shards), plan(*shards, "--set", "pieces=0")
    assert without.json["shard_bytes"] < with_codes.json["shard_bytes"]


def test_refusals(plan: Runner) -> None:
    refused(plan("--recipe", "papers"), "'paper'")
    refused(plan("-k", 0), "-k")
    refused(plan("--shards", 0), "shards")
    refused(plan("--set", "bucket=3"), "Did you mean 'buckets'?")
