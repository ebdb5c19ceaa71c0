"""What the planner counts is what learning does."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import small_default, small_paper
from plantedlabels import small_labels
from problems import label_task, learn_task, points, vector_task

from irli import Recipe
from irli.learning import sizes
from irli.learning.affinity import Affinity
from irli.learning.batches import Inputs
from irli.learning.initial import make_weights
from irli.learning.network import NativeNetwork, Rates
from irli.learning.problem import Problem
from irli.learning.sizes import bucket_dtype, count_drawn, count_kept_buckets, count_repartitions
from irli.learning.training import Learner


def begin(problem: Problem, recipe: Recipe, heads: int) -> NativeNetwork:
    """Return an untrained network."""
    weights = make_weights(problem, recipe, heads, np.random.default_rng(0))
    sparse = not isinstance(problem.queries, np.ndarray)
    return NativeNetwork(weights, sparse, recipe.loss, Rates(), 0)


@pytest.mark.parametrize("epoch_size", [0, 10, 60, 100, 5000])
@pytest.mark.parametrize("small", [10, 32_768])
def test_an_epoch_draws_as_many_queries_as_counted(
    epoch_size: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of few, half of many, and no more than the recipe says."""
    monkeypatch.setattr(sizes, "_SMALL", small)
    problem, recipe = vector_task(small_default(epoch_size=epoch_size, batch_size=17))
    learner = Learner(problem, recipe, [0], [], "cpu")
    rows = learner._draw_rows()
    queries = len(problem.query_items)
    drawn = count_drawn(queries, recipe)
    assert len(rows) == drawn
    assert drawn <= (epoch_size or queries)
    if epoch_size > queries:
        assert drawn == (queries if small > queries else queries // 2)
    assert learner._count_steps() == -(-drawn // 17)
    assert len(learner.rates) == recipe.epochs * learner._count_steps()
    if epoch_size == 0:  # each one once
        np.testing.assert_array_equal(np.sort(rows), np.arange(queries))


@pytest.mark.parametrize("epochs", [1, 2, 3, 5])
@pytest.mark.parametrize("every", [1, 2, 7])
def test_items_are_repartitioned_as_often_as_counted(
    epochs: int, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[bool] = []
    real = Learner.repartition
    monkeypatch.setattr(
        Learner, "repartition", lambda self, head: (done.append(True), real(self, head))[1]
    )
    recipe = small_paper(repetitions=1, buckets=8, epochs=epochs, repartition_every=every)
    [learned] = learn_task(vector_task(recipe))
    assert len(done) == count_repartitions(recipe)
    assert len(learned.history) == count_repartitions(recipe) + 1  # and one for the end


@pytest.mark.parametrize("buckets", [4, 100])
@pytest.mark.parametrize("kept", [8, 64])
def test_affinities_keep_as_many_buckets_as_counted(
    buckets: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "_KEPT", kept)
    problem, recipe = vector_task(small_default(buckets=buckets, choices=4), points())
    network = begin(problem, recipe, 1)
    scored = Inputs(*problem.scored_points())
    best = Affinity(network, 0, scored, problem.wanted_by(problem.weights), recipe).best
    counted = min(count_kept_buckets(len(scored), recipe), buckets)
    assert best.buckets.shape == best.chances.shape == (len(scored), counted)
    assert best.buckets.dtype == bucket_dtype(buckets)
    assert best.factors.shape == (buckets,)
    assert best.buckets.max() < buckets


def test_labels_keep_as_many_buckets_as_counted() -> None:
    problem, recipe = label_task(small_labels(buckets=20))
    network = begin(problem, recipe, 2)
    scored = Inputs(*problem.scored_points())
    wanted = problem.wanted_by(problem.weights)
    best = Affinity(network, 1, scored, wanted, recipe, items_are_queries=False).best
    assert best.buckets.shape == (len(scored), min(20, count_kept_buckets(len(scored), recipe)))


@pytest.mark.parametrize("buckets", [1, 255, 65_535, 65_536, 65_537, 10**6])
def test_bucket_numbers_fit_their_type(buckets: int) -> None:
    dtype = np.dtype(bucket_dtype(buckets))
    assert np.iinfo(dtype).max >= buckets - 1
    assert dtype.itemsize == (2 if buckets <= 2**16 else 4)


@pytest.mark.parametrize("choices", [1, 32, 100])
def test_fewer_buckets_are_kept_of_more_points(choices: int) -> None:
    recipe = Recipe(choices=choices)
    counts = [count_kept_buckets(scored, recipe) for scored in (0, 10**5, 10**6, 10**8)]
    assert counts == sorted(counts, reverse=True)
    assert min(counts) >= choices
    for scored, count in zip((10**5, 10**6), counts[1:3], strict=True):
        assert count <= choices or 6 * count * scored <= 160 << 20 or count == 32
