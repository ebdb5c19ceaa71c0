"""The back-ends of the native engine: the same answers from each, and how one is chosen."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from planted import as_kernels_see, assemble_layout, random_partition, random_router
from searching import Answer, Stages, explain, plan, search

import irli
from irli import _native
from irli._native import (
    CODES,
    COSINE,
    DOT,
    IP,
    L2,
    LOG_PROBABILITY,
    PLAIN,
    PROBABILITY,
    VOTES,
    SearchPlan,
    VectorSearcher,
)
from irli.engine.int8 import make_projection
from irli.engine.vector_layout import VectorLayout

N, B, R = 700, 70, 2
NAMES = _native.available_simd()
FUSED = [name for name in NAMES if name != "plain"]  # with fused multiply-add
ROUTERS = ["plain", "int8", "projection"]
PLANS: dict[str, dict[str, Any]] = {
    "all": {},
    "votes": {"probes": 5, "candidates": 60, "score": VOTES},
    "probability": {"probes": 5, "candidates": 60, "score": PROBABILITY},
    "log-probability": {"threshold": math.log(0.02), "candidates": 60, "score": LOG_PROBABILITY},
    "codes": {"probes": 8, "candidates": 60, "score": CODES},
}


@pytest.fixture(autouse=True)
def _back_to_the_first() -> Iterator[None]:
    before = _native.simd()
    yield
    _native.use_simd(before)


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@cache
def index(dim: int, form: str, metric: int = L2) -> VectorLayout:
    """An index with codes and a prefilter."""
    sample = normal(300, dim, seed=9)
    models = [random_router(dim, B, linear=9, hidden=30, seed=r) for r in range(R)]
    if form != "plain":
        models = [model.to_int8(sample) for model in models]
    partitions = [random_partition(N, B, 2, seed=r) for r in range(R)]
    layout = assemble_layout(models, partitions, normal(N, dim), metric, pieces=16, int8=True)
    if form == "projection":
        columns = np.concatenate([*layout.project, layout.codes.rotation], axis=1)
        shifts = np.concatenate([*layout.shift, layout.codes.shift])
        layout = layout._replace(projection=make_projection(sample, columns, shifts))
    return as_kernels_see(layout)


def searcher(name: str, layout: VectorLayout) -> VectorSearcher:
    _native.use_simd(name)
    return VectorSearcher(layout)


def stages(name: str, layout: VectorLayout, q: NDArray, p: SearchPlan) -> list[Stages]:
    with_name = searcher(name, layout)
    return [explain(layout, row, p, searcher=with_name) for row in q]


# --- the same answers ------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [3, 20, 130])
@pytest.mark.parametrize("form", ROUTERS)
@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("metric", [L2, DOT])
def test_back_ends_give_the_same_bits(dim: int, form: str, kind: str, metric: int) -> None:
    """In every stage. Plain C++ has no fused multiply-add, so its floats differ a little."""
    layout, p = index(dim, form, metric), plan(k=10, **PLANS[kind])
    q = normal(9, dim, seed=1)
    best = stages(NAMES[-1], layout, q, p)
    for name in FUSED[:-1]:
        for one, other in zip(stages(name, layout, q, p), best, strict=True):
            for field, value in one._asdict().items():
                np.testing.assert_array_equal(value, getattr(other, field), err_msg=field)
    # Rounding to bytes may go the other way where a feature lies between two steps.
    loose = form in ("int8", "projection")
    for one, other in zip(stages("plain", layout, q, p), best, strict=True):
        np.testing.assert_allclose(one.logits, other.logits, rtol=1e-5, atol=0.1 if loose else 1e-4)
        if set(one.candidates) == set(other.candidates):
            np.testing.assert_array_equal(one.items, other.items)
            np.testing.assert_array_equal(one.votes, other.votes)
            np.testing.assert_allclose(one.distances, other.distances, rtol=1e-6, atol=1e-6)
        else:
            assert loose or kind == "codes"
            assert len(set(one.candidates) ^ set(other.candidates)) <= 4


@pytest.mark.parametrize("form", [PLAIN, COSINE, IP])
def test_batches_are_the_same(form: int) -> None:
    layout = index(20, "plain", L2 if form == PLAIN else DOT)
    q, p = normal(50, 20, seed=2), plan(k=10, probes=4)
    found = {name: search(searcher(name, layout), q, p, form=form) for name in NAMES}
    best = found[NAMES[-1]]
    for name in FUSED:
        np.testing.assert_array_equal(found[name].items, best.items)
        np.testing.assert_array_equal(found[name].distances, best.distances)
    np.testing.assert_array_equal(found["plain"].items, best.items)
    np.testing.assert_allclose(found["plain"].distances, best.distances, rtol=1e-6, atol=1e-6)


def test_whole_numbers_are_the_same_everywhere() -> None:
    """Nothing is rounded there, so that all bits agree, and ties are broken alike."""
    X = np.random.default_rng(0).integers(-3, 4, size=(N, 6)).astype(np.float32)
    layout = assemble_layout([random_router(6, B)], [random_partition(N, B)], X)
    q = np.random.default_rng(1).integers(-3, 4, size=(30, 6)).astype(np.float32)
    found = {name: search(searcher(name, layout), q, plan(k=50)) for name in NAMES}
    exact = np.square(q[:, None].astype(np.float64) - X).sum(axis=2)
    order = np.lexsort((np.broadcast_to(np.arange(N), exact.shape), exact), axis=1)[:, :50]
    right = Answer(np.take_along_axis(exact, order, axis=1), order, True)
    for name in NAMES:
        np.testing.assert_array_equal(found[name].items, right.items)
        np.testing.assert_array_equal(found[name].distances, right.distances)


# --- which one -------------------------------------------------------------------------------


def test_plain_code_runs_everywhere_and_the_best_comes_last() -> None:
    assert NAMES[0] == "plain"
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) <= {"plain", "avx2", "avx512", "neon", "neondot"}


def test_searchers_keep_the_back_end_that_they_were_made_with() -> None:
    layout, q, p = index(20, "plain"), normal(20, 20, seed=3), plan(k=10)
    made = {name: searcher(name, layout) for name in NAMES}
    before = {name: search(made[name], q, p).distances for name in NAMES}
    for name in reversed(NAMES):
        _native.use_simd(name)
        assert _native.simd() == name
        for other in NAMES:
            np.testing.assert_array_equal(search(made[other], q, p).distances, before[other])


@pytest.mark.parametrize("name", ["nonsense", "", "AVX2", "plain "])
def test_unknown_names_are_refused(name: str) -> None:
    before = _native.simd()
    with pytest.raises(ValueError, match=f"must be one of {', '.join(NAMES)}.* Got '{name}'"):
        _native.use_simd(name)
    assert _native.simd() == before


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key != "IRLI_SIMD"}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=kept | environment,
        timeout=120,
    )


def test_the_best_one_is_used_if_nothing_is_said() -> None:
    for environment in ({}, {"IRLI_SIMD": ""}):
        told = run("from irli import _native; print(_native.simd())", **environment)
        assert told.stdout.split() == [NAMES[-1]], told.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_chooses(name: str) -> None:
    code = "import irli, sys; from irli import _native; print(_native.simd()); irli.show_versions()"
    told = run(code, IRLI_SIMD=name)
    assert told.stdout.split()[0] == name, told.stderr
    assert f"simd {name}" in " ".join(told.stdout.split())


def test_a_wrong_environment_fails_when_irli_is_first_used() -> None:
    told = run("from irli import VectorIndex", IRLI_SIMD="nonsense")
    assert told.returncode == 1
    assert told.stdout == ""
    for words in (
        f"IRLI_SIMD must be one of {', '.join(NAMES)} on this processor",
        "Got 'nonsense' instead",
        "Unset it to use the best one",
    ):
        assert words in told.stderr


def test_versions_name_the_back_end(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        _native.use_simd(name)
        irli.show_versions()
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[1] for line in lines if line.startswith("simd ")] == [name]
