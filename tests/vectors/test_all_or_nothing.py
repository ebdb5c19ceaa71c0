"""A fit that fails or is interrupted, in whichever phase, leaves the index as it was."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_default
from contract import same
from planted import clusters

import irli
from irli import VectorIndex

X = clusters(6, 20, dim=8, spread=0.5, seed=1).points
OTHER = clusters(9, 10, dim=8, spread=0.5, seed=2).points + 50
RECIPE = small_default(pieces=4, buckets=8)

PHASES = [
    "irli.vectors.index.prepare_vectors",
    "irli.learning.check_device",
    "irli.vectors.build.problem.make_problem",
    "irli.learning.neighbors.exact_neighbors",
    "irli.learning.learn",
    "irli.vectors.build.assemble.assemble",
    "irli.vectors.build.problem.find_truth",
    "irli.vectors.build.assemble.quantize",
    "irli.vectors.build.assemble.add_self_hits",
    "irli.vectors.build.assemble.encode_items",
    "irli.vectors.build.assemble.find_centroids",
    "irli.vectors.build.assemble.make_layout",
    "irli.vectors.tuning.tune.tune",
    "irli.vectors.tuning.tune.make_evaluators",
    "irli.vectors.parts.part.Ids",
    "irli.vectors.parts.part.Searcher",
]


def state(index: VectorIndex, path: Path) -> tuple[Any, ...]:
    index.save(path)
    saved = irli.load(path)
    return (
        index.stats(),
        index.defaults,
        index.tuned,
        index.history,
        index.recipe,
        index.ids.tolist(),
        saved.stats(),
        repr(index),
    )


@pytest.fixture(scope="module")
def fitted() -> VectorIndex:
    return VectorIndex(recipe=RECIPE).fit(X, ids=np.arange(len(X)) + 1000, threads=1)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_second_fit_that_fails(
    phase: str,
    error: type[BaseException],
    fitted: VectorIndex,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    queries = np.concatenate([X[::3], OTHER[::9]])
    before, told = fitted.search(queries, k=7), state(fitted, tmp_path / "before")
    filtered = fitted.search(queries, k=7, filter=np.arange(1000, 1050))
    module, _, name = phase.rpartition(".")

    def fail(*_: Any, **__: Any) -> None:
        raise error("no more")

    with monkeypatch.context() as changed:
        changed.setattr(importlib.import_module(module), name, fail)
        with pytest.raises(error, match="no more"):
            fitted.fit(OTHER, threads=1)
    same(fitted.search(queries, k=7), before)
    same(fitted.search(queries, k=7, filter=np.arange(1000, 1050)), filtered)
    assert state(fitted, tmp_path / "after") == told


@pytest.mark.parametrize("phase", ["irli.vectors.build.assemble.assemble_exact", *PHASES[-2:]])
def test_a_fit_that_learns_nothing_and_fails(
    phase: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index = VectorIndex().fit(X, threads=1)
    before, told = index.search(X, k=7), state(index, tmp_path / "before")
    module, _, name = phase.rpartition(".")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no more")

    with monkeypatch.context() as changed:
        changed.setattr(importlib.import_module(module), name, fail)
        with pytest.raises(RuntimeError, match="no more"):
            index.fit(OTHER)
    same(index.search(X, k=7), before)
    assert state(index, tmp_path / "after") == told
    assert len(index.fit(OTHER)) == len(OTHER)


def test_a_first_fit_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    index = VectorIndex(recipe=RECIPE)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no more")

    with monkeypatch.context() as changed:
        changed.setattr("irli.vectors.tuning.tune.tune", fail)
        with pytest.raises(RuntimeError, match="no more"):
            index.fit(X, threads=1)
    with pytest.raises(irli.errors.NotFitted):
        index.search(X)


def test_a_tune_that_fails_keeps_the_parameters(
    fitted: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults, tuned = fitted.defaults, fitted.tuned

    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr("irli.vectors.tuning.tune.Evaluator._measure", fail)
        with pytest.raises(KeyboardInterrupt):
            fitted.tune(recall=0.5)
    assert (fitted.defaults, fitted.tuned) == (defaults, tuned)
