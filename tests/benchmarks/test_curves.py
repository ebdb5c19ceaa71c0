"""The parts of the benchmark that decide which figures are shown."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("bench", reason="the benchmarks are not part of this distribution")

from bench.vectors import curves, methods
from bench.vectors.builds import PEERS, builds
from bench.vectors.curves import TARGETS, at, front, near, recall_at, worth_timing
from bench.vectors.jobs import Job
from bench.vectors.report import leads

points_of = st.lists(
    st.tuples(st.floats(0, 1), st.floats(1, 1e5)).map(lambda p: {"recall": p[0], "qps": p[1]}),
    min_size=1,
    max_size=30,
)


@pytest.mark.parametrize("module", [curves, methods])
def test_examples(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def curve(*points: tuple[float, float]) -> list[dict[str, float]]:
    return [{"recall": recall, "qps": qps} for recall, qps in points]


@given(points_of)
def test_front_keeps_what_nothing_beats(points):
    kept = front(points, "qps")
    for point in points:
        beaten = any(
            other["recall"] >= point["recall"]
            and other["qps"] >= point["qps"]
            and (other["recall"], other["qps"]) != (point["recall"], point["qps"])
            for other in points
        )
        there = any(k["recall"] == point["recall"] and k["qps"] == point["qps"] for k in kept)
        assert there != beaten
    assert [k["recall"] for k in kept] == sorted(k["recall"] for k in kept)
    assert [k["qps"] for k in kept] == sorted((k["qps"] for k in kept), reverse=True)


@given(points_of, st.floats(0, 1))
def test_speed_at_a_recall_lies_between_its_neighbours(points, target):
    value = at(points, target, "qps")
    reaching = [p["qps"] for p in points if p["recall"] >= target]
    if not reaching:
        assert np.isnan(value)
        return
    # No slower than the fastest that was measured there, no faster than anything measured.
    assert value >= max(reaching) * (1 - 1e-9)
    assert value <= max(p["qps"] for p in points) * (1 + 1e-9)


def test_speed_is_interpolated_on_its_logarithm():
    assert at(curve((0.9, 10_000), (1.0, 100)), 0.95, "qps") == pytest.approx(1000)


def test_a_beaten_point_does_not_bend_the_curve():
    points = curve((0.9, 1000), (0.93, 10), (0.96, 1000))
    assert at(points, 0.93, "qps") == pytest.approx(1000)


def test_first_point_that_reaches_a_recall():
    points = curve((0.90, 5000), (0.96, 3000), (0.99, 1000))
    assert near(points, 0.95, "qps") == {"recall": 0.96, "qps": 3000}
    assert near(points, 0.995, "qps") is None


@given(points_of, st.integers(1, 12))
def test_what_is_timed_surrounds_the_targets(points, most):
    chosen = worth_timing(points, "qps", most)
    assert len(chosen) <= max(most, 2 * len(TARGETS))
    # A rough pass must not change what the curve says at the targets.
    for target in TARGETS:
        np.testing.assert_allclose(at(chosen, target, "qps"), at(points, target, "qps"))


def test_recall_counts_no_padding():
    found = np.array([[1, 2, -1], [4, 5, 6]])
    truth = np.array([[2, 1, 3], [4, 8, 9]])
    assert recall_at(found, truth) == pytest.approx(0.5)


def job(tmp_path, **changes):
    given = {"data": "d", "method": "scann", "build": {"leaves": 4}, "stage": "timed"}
    return Job(**{**given, **changes}, folder=str(tmp_path))


@pytest.mark.parametrize(
    "change", [{"repeats": 2}, {"settings": 3}, {"version": "other"}, {"build": {"leaves": 8}}]
)
def test_finished_work_is_taken_only_if_it_is_the_same(tmp_path, change):
    done = job(tmp_path)
    assert done.outcome() is None
    done.keep({"points": [1]})
    assert job(tmp_path).outcome()["points"] == [1]
    assert job(tmp_path, **change).outcome() is None


def test_half_written_work_is_done_again(tmp_path):
    done = job(tmp_path)
    done.keep({"points": [1]})
    done.file.write_text(done.file.read_text()[:-20])
    assert done.outcome() is None


def test_an_index_outlives_the_source_that_built_it(tmp_path):
    built = job(tmp_path, stage="build", version="old")
    built.keep({"build_seconds": 1})
    assert job(tmp_path, stage="build", version="new", threads=2).outcome() is not None
    assert job(tmp_path, stage="build", build={"leaves": 8}).outcome() is None
    assert job(tmp_path).outcome() is None


def test_builds_near_the_best_lead(tmp_path):
    rough = {"stage": "rough", "queries": "t"}
    for leaves, speed in ((4, 1000), (8, 850), (16, 500)):
        points = [{"recall": 0.8, "qps": 2 * speed}, {"recall": 0.97, "qps": speed}]
        job(tmp_path, build={"leaves": leaves}, **rough).keep({"points": points})
    # Slow, but the only one that gets to 0.99.
    far = [{"recall": 0.8, "qps": 20}, {"recall": 0.995, "qps": 10}]
    job(tmp_path, build={"leaves": 32}, **rough).keep({"points": far})
    leading = [n for n in (4, 8, 16, 32) if leads(job(tmp_path, build={"leaves": n}, **rough), 0.8)]
    assert leading == [4, 8, 32]


@pytest.mark.parametrize("method", PEERS)
@pytest.mark.parametrize(("dim", "metric"), [(50, "ip"), (384, "ip"), (784, "l2")])
def test_builds_of_a_peer_differ_in_their_names(tmp_path, method, dim, metric):
    names = [
        job(tmp_path, method=method, build=build).name
        for build in builds(method, 100_000, dim, metric, learn=True)
    ]
    assert len(set(names)) == len(names) >= 2
