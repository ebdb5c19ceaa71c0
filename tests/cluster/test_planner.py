"""The planner: right sums from known costs, costs that are found again, and clear refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Runner, refused, runner
from hypothesis import given, settings
from hypothesis import strategies as st

import irli
from irli.cluster.build.build import build
from irli.cluster.build.memory import count_build_bytes
from irli.cluster.build.vector_job import make_vector_job
from irli.cluster.planning import costs as plancosts
from irli.cluster.planning.costs import (
    Costs,
    _fit_costs,
    count_finish_work,
    count_learn_work,
    count_prepare_work,
)
from irli.cluster.planning.planner import ClusterPlan, Machines, count_shard_bytes, make_plan
from irli.engine.vector_layout import VectorLayout
from irli.errors import FormatError, InvalidParameter
from irli.learning import kmeans, neighbors, network, sizes, training
from irli.vectors.build import assemble, ground_truth, self_hits

# A nanosecond for each unit of work, so that sums can be made by hand.
COSTS = Costs(
    dim=96,
    recipe="default",
    prepare=(1e-9, 0.0, 0.0),
    learn=(0.0, 1e-9, 0.0, 0.0, 0.0),
    finish=(0.0, 0.0, 0.0),
    search=(0.0, 0.0, 0.0, 1e-9, 0.0),
    merge=(0.0, 0.0),
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
    return make_plan(COSTS, irli.recipe(buckets=1000), ONE, **(arguments | changes))  # type: ignore[arg-type]


def test_sums() -> None:
    found = planned(probes=10)
    # 8 shards of 100,000 items on one core, all of which are training queries.
    prepare = 8 * neighbors.count_compared(100_000, 100_000, 0.97) * 1e-9
    learn = 8 * 10 * 50_000 * 1000 * 1e-9
    assert found.build_seconds == pytest.approx(prepare + learn)
    assert found.scanned == 8 * 10 * 2 * 100  # 100 items a bucket, each in two
    assert found.latency == pytest.approx(found.scanned * 1e-9, rel=1e-2)
    assert found.throughput == pytest.approx(1 / (found.scanned * 1e-9))
    assert found.shard_bytes > 100_000 * 96 * 4
    assert (found.repetitions, found.buckets, found.probes) == (1, 1000, 10)
    assert found.candidates == 100  # chosen by codes
    plain = make_plan(
        COSTS, irli.recipe(buckets=1000, pieces=0), ONE, items=800_000, shards=8, probes=1
    )
    assert plain.candidates == 160  # all distinct items of a bucket


def test_the_caller_s_network_is_counted() -> None:
    far = dataclasses.replace(ONE, round_trip=0.25, bandwidth=1e6, call=0.5)
    found = make_plan(COSTS, irli.recipe(buckets=1000), far, items=800_000, shards=8, batch=100)
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
    one = make_plan(COSTS, recipe, few, items=items, shards=shards)
    other = make_plan(COSTS, recipe, many, items=items, shards=shards)
    assert other.build_seconds <= one.build_seconds * (1 + 1e-9)
    assert other.machine_bytes <= one.machine_bytes
    assert other.latency <= one.latency * (1 + 1e-9)
    assert other.throughput >= one.throughput * (1 - 1e-9)
    finer = make_plan(COSTS, recipe, few, items=items, shards=min(items, 2 * shards))
    assert finer.build_worker_bytes <= one.build_worker_bytes
    recommended = make_plan(COSTS, recipe, few, items=items)
    assert recommended.shards % count == 0 or recommended.shards == items
    assert recommended.build_worker_bytes <= 0.8 * few.memory


def test_a_machine_that_is_too_small_is_said_to_be() -> None:
    assert planned().fits
    small = dataclasses.replace(ONE, memory=0.5e9)
    assert not make_plan(COSTS, irli.recipe(), small, items=10_000_000, shards=2).fits


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-9, 1e-3), min_size=3, max_size=3), st.integers(0, 2**31))
def test_costs_are_found_again(costs: list[float], seed: int) -> None:
    work = np.random.default_rng(seed).uniform(1, 1000, size=(8, 3))
    np.testing.assert_allclose(
        _fit_costs(work.tolist(), (work @ costs).tolist()), costs, rtol=1e-4, atol=1e-9
    )


def watch(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[Any, ...]]:
    """Replace a function by itself, and return a list that its arguments will be put into."""
    calls: list[tuple[Any, ...]] = []
    function = getattr(module, name)

    def watched(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, watched)
    return calls


def test_the_work_is_what_a_build_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The planner and learning go by the same sizes: what is planned is what then happens."""
    recipe = irli.recipe(
        buckets=8, epochs=5, repartition_every=2, epoch_size=300, stop_moved=0.0, accept="always"
    )
    lessons = watch(monkeypatch, network.NativeNetwork, "learn")
    warm = watch(monkeypatch, training.Learner, "_warm_up")
    epochs = watch(monkeypatch, training.Learner, "train_epoch")
    assignments = watch(monkeypatch, training.Learner, "_assign")
    owners = watch(monkeypatch, kmeans, "find_owners")
    asked = watch(monkeypatch, neighbors, "exact_neighbors")
    held = watch(monkeypatch, ground_truth, "exact_neighbors")
    made = make_vector_job(
        tmp_path, plancosts.make_skewed(800, 6), None, None, None,
        metric="l2", recipe=recipe, shards=1, threads=1, device="cpu",
    )  # fmt: skip
    build(made[0], None, False)
    recipe = made[0].recipe

    drawn, scored, assigned, ranked, compared = count_learn_work(800, recipe)
    assert (len(epochs), len(warm)) == (recipe.epochs, 1)
    assert sum(len(rows) for _, _, _, rows, _ in lessons) == drawn
    assert scored == drawn * recipe.buckets
    assert 800 * len(assignments) == assigned
    assert ranked == assigned * recipe.buckets
    pairs = sum(len(vectors) * len(centroids) for vectors, centroids in owners)
    pairs += 800 * recipe.buckets  # all items find their first bucket
    assert compared / 2 < pairs <= compared  # k-means may split fewer clusters
    near = sum(len(queries) * len(items) for queries, items, *_ in [*asked, *held])
    planned, queries, written = count_prepare_work(800, recipe)
    strange = 192 * 800  # of strange queries: they are no more where there are many items
    assert (planned, queries, written) == (near - strange, 800, 800)
    coded = dataclasses.replace(recipe, pieces=None)
    assert count_finish_work(800, coded)[1:] == [800, 800]
    assert count_finish_work(800, dataclasses.replace(recipe, pieces=0))[1:] == [0, 800]


@pytest.mark.parametrize(("pieces", "dim"), [(0, 6), (8, 6), (32, 160)])
def test_the_bytes_of_a_shard_are_those_of_its_arrays(pieces: int, dim: int) -> None:
    recipe = irli.recipe(buckets=16, epochs=1, epoch_size=256, pieces=pieces)
    vectors = plancosts.make_skewed(4000, dim)
    index = irli.VectorIndex(recipe=recipe).fit(vectors, threads=1)
    costs = dataclasses.replace(COSTS, dim=dim)
    told = count_shard_bytes(costs, index.recipe, 4000)
    assert told == pytest.approx(index.stats()["bytes"], rel=0.15)


def test_the_memory_of_a_build_follows_what_learning_keeps() -> None:
    recipe = irli.recipe(buckets=1000).resolve(400_000, 96)
    place = np.dtype(sizes.bucket_dtype(1000)).itemsize + 4
    kept = sizes.count_kept_buckets(400_000, recipe)
    twice = dataclasses.replace(recipe, buckets=1 << 17)
    wider = count_build_bytes(400_000, 96, twice) - count_build_bytes(400_000, 96, recipe)
    features = sizes.count_linear(96, recipe) + recipe.hidden
    weights = (16 * features + 24 * recipe.batch_size) * (twice.buckets - recipe.buckets)
    assert place == 6
    assert wider == weights + 2 * 400_000 * kept  # numbers of buckets of 4 bytes, not of 2


def test_measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plancosts, "_BUILDS", ((400, 400, 8, 2, 2), (800, 200, 16, 2, 1)))
    monkeypatch.setattr(plancosts, "_SEARCHED", (0, 1))
    monkeypatch.setattr(plancosts, "_ENLARGED", 2)
    monkeypatch.setattr(plancosts, "_BATCH", 16)
    costs = plancosts.measure_costs(6, irli.recipe(epoch_size=256))
    assert costs.dim == 6
    assert sum(costs.learn) > 0
    assert sum(costs.search) > 0
    assert 1 <= costs.probes <= 16
    assert 0.4 < costs.distinct <= 1
    costs.save(tmp_path / "costs.json")
    assert Costs.load(tmp_path / "costs.json") == costs


def test_recipes_that_count_votes_probe_as_the_paper_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """One repetition, as it is measured, says nothing about the votes of several."""
    monkeypatch.setattr(plancosts, "_BUILDS", ((400, 100, 32, 2, 2), (800, 200, 64, 2, 1)))
    monkeypatch.setattr(plancosts, "_SEARCHED", (0, 1))
    monkeypatch.setattr(plancosts, "_ENLARGED", 2)
    monkeypatch.setattr(plancosts, "_BATCH", 16)
    recipe = irli.recipe("paper-deep", hidden=4, neighbors=5)
    assert plancosts.measure_costs(6, recipe).probes == 20


def test_items_in_one_more_bucket_are_enlarged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_one(layout: VectorLayout, *_: Any) -> tuple[Any, Any]:
        """Put item 0 into a bucket where it is not."""
        homes = self_hits.find_homes(layout.offsets, layout.items)
        other = np.setdiff1d(np.arange(layout.bias.shape[1], dtype=np.int32), homes[0])[:1]
        return self_hits._add_entries(layout, np.array([0]), other)

    monkeypatch.setattr(assemble, "add_self_hits", add_one)
    rows = plancosts.make_skewed(400, 6)
    recipe = irli.recipe(buckets=8, epochs=2, epoch_size=256, buckets_per_item=2, pieces=0)
    index = irli.VectorIndex(recipe=recipe).fit(rows, threads=1)
    assert sum(part.sum() for part in index.loads()) == 801
    monkeypatch.undo()
    large = plancosts._enlarge(index)
    copies = plancosts._ENLARGED
    assert large.stats()["items"] == copies * 400
    assert sum(part.sum() for part in large.loads()) >= copies * 800


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
        make_plan(COSTS, irli.recipe("paper"), ONE, items=1000)


def test_a_recipe_with_a_learning_set_is_measured_with_one(tmp_path: Path) -> None:
    few = {"buckets": 8, "hidden": 4, "neighbors": 5, "choices": 4, "training_points": 100}
    recipe = irli.recipe("paper-deep", **few)
    job = plancosts._make_job(tmp_path, plancosts.make_skewed(400, 6), recipe)
    made = job.make_problem(0)
    assert 0 < len(made.problem.queries) <= 100
    assert count_prepare_work(400, job.recipe) == [100 * 400, 100, 400]
    assert made.problem.sampling.sum() == pytest.approx(1)


def test_preparing_takes_all_cores_of_a_machine() -> None:
    eight = dataclasses.replace(ONE, cores=8)
    one, other = (
        make_plan(COSTS, irli.recipe(buckets=1000), machines, items=800_000, shards=8)
        for machines in (ONE, eight)
    )
    assert other.prepare_seconds == pytest.approx(one.prepare_seconds / 8)
    for found in (one, other):
        steps = found.prepare_seconds, found.learn_seconds, found.finish_seconds
        assert found.build_seconds == pytest.approx(sum(steps))


def test_a_learning_set_and_its_neighbours_take_disk() -> None:
    recipe = irli.recipe("paper-deep", buckets=1000, training_points=50_000)
    costs = dataclasses.replace(COSTS, recipe="paper-deep")
    few = make_plan(costs, recipe, ONE, items=800_000, shards=8)
    twice = dataclasses.replace(recipe, training_points=100_000)
    many = make_plan(costs, twice, ONE, items=800_000, shards=8)
    assert many.disk_bytes - few.disk_bytes == 8 * 50_000 * (4 * 96 + 8 * 100)
