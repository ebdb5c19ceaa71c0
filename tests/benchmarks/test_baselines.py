"""The baselines of the paper on planted data, where the right buckets are known."""

from __future__ import annotations

import doctest
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

pytest.importorskip("bench", reason="the benchmarks are not part of this distribution")
pytest.importorskip("faiss")
pytest.importorskip("kahip")
pytest.importorskip("torch")

from bench.paper import candidates
from bench.paper.baselines import graph_cut, network, partition
from bench.paper.baselines import kmeans as kmeans_file
from bench.paper.baselines.catalyzer import OnFeatures, learn_features, make_features
from bench.paper.baselines.cross_polytope import CrossPolytope
from bench.paper.baselines.graph_cut import cut_graph
from bench.paper.baselines.kmeans import assign_balanced, balanced_kmeans, kmeans
from bench.paper.baselines.levels import TwoLevels
from bench.paper.baselines.network import learn_buckets
from bench.paper.baselines.partition import (
    PROBINGS,
    Asked,
    Partition,
    Scores,
    ask,
    draw_curve,
    no_parents,
)
from bench.paper.baselines.trees import HyperplaneTree, principal_direction, random_direction

import irli

CLUSTERS, EACH, DIM = 8, 40, 12


def plant(each: int = EACH, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors in clusters far apart, in random order, and their clusters."""
    rng = np.random.default_rng(0)
    centres = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0][:CLUSTERS]
    cluster = np.random.default_rng(seed).permutation(np.repeat(np.arange(CLUSTERS), each))
    noise = np.random.default_rng(seed + 1).normal(size=(len(cluster), DIM))
    points = centres[cluster] + 0.05 * noise
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points.astype(np.float32), cluster


@pytest.fixture(scope="module")
def items() -> np.ndarray:
    return plant()[0]


@pytest.fixture(scope="module")
def asked(items: np.ndarray) -> Asked:
    return ask(items, plant(each=5, seed=7)[0])


@pytest.fixture(scope="module")
def near(items: np.ndarray) -> np.ndarray:
    return ask(items, items).near[:, 1:11]


def agree(found: np.ndarray, planted: np.ndarray) -> bool:
    """Whether two assignments divide the items in the same way."""
    pairs = set(zip(found.tolist(), planted.tolist(), strict=True))
    return len(pairs) == len(set(found.tolist())) == len(set(planted.tolist()))


@pytest.mark.parametrize("module", [candidates, graph_cut, kmeans_file, network, partition])
def test_examples(module: object) -> None:
    tried = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)  # type: ignore[arg-type]
    assert tried.attempted > 0
    assert tried.failed == 0


# --- curves --------------------------------------------------------------------------------------


class Fixed(Partition):
    """A partition with given scores."""

    def __init__(self, assignment: np.ndarray, buckets: np.ndarray, parents: np.ndarray) -> None:
        self.assignment, self.scores = assignment, Scores(buckets, parents)
        self.count, self.multiplications, self.opening = buckets.shape[1], 100.0, 7.0

    def score(self, queries: np.ndarray, temperature: float = 1.0) -> Scores:
        return self.scores


def test_curve_counts_by_hand() -> None:
    """Two queries, three buckets with 2, 3 and 15 items; the answers are the items 0 to 9."""
    assignment = np.array([0, 0, 1, 1, 1, *[2] * 15])
    scores = np.float32([[-1, -2, -3], [-3, -2, -1]])
    near = np.tile(np.arange(10), (2, 1))
    asked = Asked(np.zeros((2, 1), dtype=np.float32), near, np.ones((2, 10), dtype=bool))
    parents = np.float32([[-0.5, -2.5], [-0.5, -2.5]])
    points = draw_curve(Fixed(assignment, scores, parents), asked)
    assert [point["recall"] for point in points] == pytest.approx([0.35, 0.65, 1.0])
    assert [point["candidates"] for point in points] == [8.5, 11.5, 20.0]
    assert [point["multiplications"] for point in points] == [107, 107, 114]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), probing=st.sampled_from(PROBINGS))
def test_curve_equals_a_plain_search(seed: int, probing: str) -> None:
    rng = np.random.default_rng(seed)
    items, queries = (rng.normal(size=(n, 3)).astype(np.float32) for n in (60, 5))
    assignment, scores = rng.integers(6, size=60), rng.normal(size=(5, 6)).astype(np.float32)
    fixed = Fixed(assignment, scores, no_parents(scores).parents)
    for point in draw_curve(fixed, ask(items, queries), probing):
        matches = []
        for cut in np.unique(scores) if probing == "threshold" else range(1, 7):
            hits, read = [], []
            for query in range(5):
                order = np.argsort(-scores[query])
                chosen = (
                    order[:cut] if probing == "probes" else np.flatnonzero(scores[query] >= cut)
                )
                found = np.flatnonzero(np.isin(assignment, chosen))
                squares = ((items - queries[query]) ** 2).sum(axis=1)
                hits.append(np.isin(np.argsort(squares)[:10], found).mean())
                read.append(len(found))
            matches.append((np.mean(hits), np.mean(read)))
        here = (point["recall"], point["candidates"])
        assert any(np.allclose(here, match) for match in matches)


def test_equally_near_items_are_all_answers() -> None:
    items = np.repeat(np.eye(2, dtype=np.float32), 12, axis=0)  # two points, twelve times each
    asked = ask(items, items[:1])
    assert asked.wanted[0].sum() == 12
    halves = Fixed(np.tile([0, 1], 12), np.float32([[0, -1]]), np.empty((1, 0), np.float32))
    first = draw_curve(halves, asked)[0]
    assert first["recall"] == 0.6  # six of the twelve copies, of which ten are asked for


# --- partitions ----------------------------------------------------------------------------------


def test_kmeans_finds_planted_clusters(items: np.ndarray, asked: Asked) -> None:
    best = min((kmeans(items, CLUSTERS, seed) for seed in range(3)), key=lambda p: p.loads().max())
    assert agree(best.assignment, plant()[1])
    first = draw_curve(best, asked)[0]
    assert (first["recall"], first["candidates"]) == (1.0, EACH)
    assert first["multiplications"] == CLUSTERS * DIM


def test_balanced_kmeans_keeps_its_bound() -> None:
    rng = np.random.default_rng(0)
    items = (rng.normal(size=(300, 4)) ** 3).astype(np.float32)
    plain, balanced = kmeans(items, 16, 0), balanced_kmeans(items, 16, 0)
    assert plain.loads().max() > 19
    assert balanced.loads().max() <= 19  # ceil(300 / 16)


def test_balanced_assignment_is_near_the_best_one() -> None:
    costs = np.random.default_rng(0).random((60, 6)).astype(np.float32)
    found = costs[np.arange(60), assign_balanced(costs, 10)].sum()
    rows, slots = linear_sum_assignment(np.repeat(costs, 10, axis=1))
    best = np.repeat(costs, 10, axis=1)[rows, slots].sum()
    assert best - 1e-4 <= found <= 1.1 * best


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 1000))
def test_balanced_assignment_always_ends(rows: int, columns: int, seed: int) -> None:
    costs = np.random.default_rng(seed).integers(3, size=(rows, columns)).astype(np.float32)
    room = -(-rows // columns)
    assignment = assign_balanced(costs, room)
    assert assignment.min() >= 0
    assert np.bincount(assignment).max() <= room


def test_graph_cut_divides_no_cluster(near: np.ndarray) -> None:
    assert agree(cut_graph(near, CLUSTERS, seed=0), plant()[1])


@pytest.mark.parametrize("hidden", [(), (32, 32)])
def test_network_learns_the_buckets(
    items: np.ndarray, near: np.ndarray, asked: Asked, hidden: tuple[int, ...]
) -> None:
    _, cluster = plant()
    learned = learn_buckets(items, cluster, near, hidden, epochs=60, seed=0)
    first = draw_curve(learned, asked)[0]
    assert (first["recall"], first["candidates"]) == (1.0, EACH)
    sizes = (DIM, *hidden, CLUSTERS)
    assert first["multiplications"] == sum(a * b for a, b in pairwise(sizes))


def test_cross_polytope_buckets_are_the_largest_coordinates() -> None:
    """Items are the signed axes of the rotation, so each has a bucket of its own."""
    lsh = CrossPolytope(np.eye(DIM, dtype=np.float32), (2 * DIM,), seed=0)
    axes = np.concatenate([lsh.rotations[0].T, -lsh.rotations[0].T])
    again = CrossPolytope(axes, (2 * DIM,), seed=0)
    assert again.assignment.tolist() == list(range(2 * DIM))
    scores = again.score(axes).buckets
    assert scores.argmax(axis=1).tolist() == list(range(2 * DIM))
    assert (scores <= 0).all()


def test_cross_polytope_combines_rotations(items: np.ndarray) -> None:
    both = CrossPolytope(items, (8, 6), seed=1)
    assert both.count == 48
    scores = both.score(items).buckets
    np.testing.assert_array_equal(scores.argmax(axis=1), both.assignment)


@pytest.mark.parametrize("direct", [principal_direction, random_direction])
def test_tree_halves_its_items_and_finds_them(items: np.ndarray, direct: object) -> None:
    tree = HyperplaneTree(items, 3, direct, seed=0)  # type: ignore[arg-type]
    assert set(tree.loads()) == {len(items) // 8}
    scores = tree.score(items)
    own = scores.buckets[np.arange(len(items)), tree.assignment]
    assert own.mean() > -1e-3  # an item lies in its leaf, or on the plane of a median
    parent = (np.arange(8) + 7 - 1) // 2
    assert (scores.parents[:, parent] >= scores.buckets).all()


def test_principal_direction_is_the_long_one() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 5)) * [1, 1, 9, 1, 1]
    direction = principal_direction(points.astype(np.float32), rng)
    assert abs(direction[2]) > 0.99


def test_features_spread_out(items: np.ndarray, near: np.ndarray, asked: Asked) -> None:
    def nearest(spread: float) -> float:
        learned = learn_features(items, near, 4, 32, spread, epochs=80, seed=0)
        made = make_features(learned, items)
        np.fill_diagonal(products := made @ made.T, -1)
        return float(np.sqrt(np.maximum(2 - 2 * products.max(axis=1), 0)).mean())

    assert nearest(1.0) > 1.5 * nearest(0.0)


def test_kmeans_on_features_finds_clusters(
    items: np.ndarray, near: np.ndarray, asked: Asked
) -> None:
    learned = learn_features(items, near, 6, 32, 0.02, epochs=20, seed=0)
    on_features = OnFeatures(learned, kmeans(make_features(learned, items), CLUSTERS, seed=0))
    assert on_features.multiplications == 32 * (DIM + 32 + 6) + CLUSTERS * 6
    curve = draw_curve(on_features, asked)
    assert curve[2]["recall"] > 0.95  # of three probed buckets


# --- two levels ----------------------------------------------------------------------------------


def test_two_levels_find_what_they_hold(items: np.ndarray, asked: Asked) -> None:
    top = kmeans(items, 4, seed=0)
    both = TwoLevels(top, items, lambda part: kmeans(part, 5, seed=0))
    assert both.count == 20
    np.testing.assert_array_equal(both.assignment // 5, top.assignment)
    scores = both.score(asked.vectors, 0.1)
    assert (np.repeat(scores.parents, 5, axis=1) >= scores.buckets).all()
    np.testing.assert_allclose(np.exp(scores.buckets).sum(axis=1), 1, rtol=1e-4)
    last = draw_curve(both, asked, temperature=0.1)[-1]
    assert (last["recall"], last["candidates"]) == (1.0, len(items))
    assert last["multiplications"] == (4 + 4 * 5) * DIM


def test_two_levels_allow_empty_and_small_buckets(items: np.ndarray, asked: Asked) -> None:
    few = items[:30]
    top = kmeans(few, 3, seed=0)
    top.assignment = np.array([*[0] * 29, 2])  # bucket 1 is empty, 2 holds one item
    both = TwoLevels(top, few, lambda part: kmeans(part, 4, seed=0))
    assert both.loads().sum() == 30
    for probing in PROBINGS:
        last = draw_curve(both, ask(few, asked.vectors), probing, 0.1)[
            -1 if probing == "probes" else 0
        ]
        assert (last["recall"], last["candidates"]) == (1.0, 30)


# --- ours ----------------------------------------------------------------------------------------


def test_candidates_of_an_index_are_counted(items: np.ndarray, asked: Asked) -> None:
    """A limit on the candidates is not how many there are."""
    recipe = irli.recipe("default", buckets=8, epochs=1, epoch_size=256, mixed_queries=0, pieces=4)
    index = irli.VectorIndex("cosine", recipe=recipe).fit(items)
    sweeps = candidates.list_sweeps(candidates.DEFAULT, recipe, len(items))
    points = candidates.draw_index(index, asked, asked, sweeps)
    assert {point["recall"] for point in points} == {1.0}  # each cluster is a bucket
    assert points[0]["candidates"] < len(items) / 2
    assert points[0]["candidates"] <= points[0]["read"]
