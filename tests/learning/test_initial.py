"""Where learning begins: the first partitions, and networks of the right shape."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from conftest import small_default, small_paper
from planted import clusters
from plantedlabels import small_labels
from problems import label_task, learn_task, points, vector_task

import irli
from irli.engine.hashing import UniversalHash, mix_numbers
from irli.learning.initial import limit_load, make_first_partition, make_weights
from irli.learning.partition import Partition


def first_partition(recipe: irli.Recipe, number: int, items: int = 2000) -> Partition:
    X = np.zeros((items, 3), dtype=np.float32)
    rng = np.random.default_rng([recipe.seed, number])
    return make_first_partition(X, recipe, number, rng)[0]


def agreement(one: Partition, other: Partition) -> float:
    return float((one.assignment == other.assignment).mean())


# --- a hash ----------------------------------------------------------------------------------


def test_repetitions_begin_with_different_hash_functions() -> None:
    """Two items that one repetition puts together are apart in the others."""
    recipe = small_paper(repetitions=4, buckets=20)
    partitions = [first_partition(recipe, number) for number in range(4)]
    partitions.append(first_partition(small_paper(buckets=20, seed=1), 0))  # of another seed
    for one, other in combinations(partitions, 2):
        assert agreement(one, other) < 0.15  # by chance 1 / 20
        assert len(set(zip(*(p.assignment[:, 0].tolist() for p in (one, other)), strict=True))) > 60


def test_a_hash_partition_is_that_of_its_number() -> None:
    """Each item once, in about equal buckets, by nothing but seed and number."""
    recipe = small_paper(buckets=20, seed=3)
    partition = first_partition(recipe, 2)
    right = UniversalHash(20, seed=3 * 10_007 + 2)(mix_numbers(np.arange(2000)))
    np.testing.assert_array_equal(partition.assignment, right[:, None])
    assert partition.buckets == 20
    assert partition.loads().max() < 1.5 * 100


def test_learned_repetitions_keep_their_own_hash_functions() -> None:
    """With one epoch there is no re-partition: what is learned is what it began with."""
    task = vector_task(small_paper(repetitions=3, buckets=20, epochs=1))
    group = learn_task(task)
    for one, other in combinations(group, 2):
        assert agreement(one.partition, other.partition) < 0.25
        assert not np.array_equal(one.router.project, other.router.project)
        assert not np.array_equal(one.router.weights, other.router.weights)


# --- k-means, and one bucket for each --------------------------------------------------------


def test_a_kmeans_partition_is_near_and_bounded() -> None:
    made = clusters(40, 12, dim=6, spread=0.1, seed=1)
    recipe = small_default(buckets=12, slack=1.3, buckets_per_item=1).resolve(480, 6)
    rng = np.random.default_rng(0)
    partition, centroids = make_first_partition(made.points, recipe, 0, rng)
    assert centroids is not None
    assert centroids.shape == (12, 6)
    assert (partition.assignment >= 0).all()
    assert partition.loads().max() <= limit_load(480, recipe) == 52
    together = [len(set(made.owner[partition.assignment[:, 0] == b])) for b in range(12)]
    assert np.mean(together) < 2.5  # most buckets hold one cluster
    other, _ = make_first_partition(made.points, recipe, 1, rng)
    assert not np.array_equal(other.assignment, partition.assignment)


def test_one_bucket_for_each_item() -> None:
    recipe = irli.recipe("labels", start="one-per-item")
    partition, centroids = make_first_partition(points(), recipe, 0, np.random.default_rng(0))
    np.testing.assert_array_equal(partition.assignment[:, 0], np.arange(120))
    assert partition.buckets == 120
    assert centroids is None


# --- networks --------------------------------------------------------------------------------


@pytest.mark.parametrize("dense", [False, True])
def test_networks_fit_the_problem(dense: bool) -> None:
    problem, recipe = label_task(small_labels(repetitions=3), dense=dense)
    weights = make_weights(problem, recipe, 3, np.random.default_rng(0))
    routers = weights.to_routers()
    assert len(routers) == 3
    assert routers[0].project.shape == (problem.queries.shape[1], recipe.hidden)
    assert routers[0].buckets == recipe.buckets


def test_vectors_are_standardized_by_the_items() -> None:
    X = points()
    problem, recipe = vector_task(small_default(), X, queries=X[:40] + 50.0)
    weights = make_weights(problem, recipe, 1, np.random.default_rng(0))
    np.testing.assert_allclose(weights.centre, X.mean(axis=0), rtol=1e-4, atol=1e-4)
