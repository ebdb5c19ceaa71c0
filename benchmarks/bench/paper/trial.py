"""Small trials of the paper's method: a sample of GloVe, learning round by round, and votes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bench.commands import Options, choose_device, make_recipe
from bench.paper.files import read_points
from bench.vectors.curves import K
from irli.base.recipe import Recipe
from irli.engine.exact import exact_neighbors
from irli.learning.problem import Problem
from irli.learning.training import Learner

EVERY = 5  # epochs between two re-partitions
QUERIES = 1000  # reported; none of them is an item
_TIES = 10  # more neighbours than K that are compared, to find those as near as the last
_EQUAL = 1e-6  # cosines that differ by less count as equal
# Settings of the recipe that are part of the size of a part.
_SIZED = ("buckets", "hidden", "neighbors", "choices", "epochs", "learning_rate")
_BLOCK = 64  # queries whose votes are counted at a time


@dataclass(frozen=True)
class Sample:
    """Items and queries of length 1, none of which is an item."""

    items: np.ndarray  # (N, d)
    queries: np.ndarray  # (n, d)

    @cached_property
    def truth(self) -> np.ndarray:
        """The items at least as near as the tenth nearest, for each query: (n, 20), or -1."""
        near = exact_neighbors(self.queries, self.items, K + _TIES, "cosine")
        cosine = np.einsum("nkd,nd->nk", self.items[near], self.queries)
        return np.where(cosine >= cosine[:, [K - 1]] - _EQUAL, near, -1)


def draw_sample(options: Options, count: int) -> Sample:
    """Draw items and queries of GloVe; at the full scale, take all of GloVe-100."""
    points = read_points(options, "glove")
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(points.items))[:count]
    asked = rng.permutation(len(points.queries))[:QUERIES]
    return Sample(points.items[rows], points.queries[asked])


# --- learning ------------------------------------------------------------------------------------


def size_recipe(options: Options, size: dict[str, Any], **changes: Any) -> Recipe:
    """Return the paper's recipe at the size of a part, with one repetition."""
    sized = {key: size[key] for key in _SIZED if key in size}
    settings = {"repetitions": 1, "repartition_every": EVERY, **sized, **changes}
    return dataclasses.replace(make_recipe(options, "paper"), **settings)


def list_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the settings that learning depends on: these parts search in a way of their own."""
    settings = dataclasses.asdict(recipe)
    del settings["search"]
    return settings


def describe(size: dict[str, Any], seeds: int) -> str:
    """Say what is learned.

    Examples
    --------
    >>> size = {"items": 6000, "buckets": 96, "hidden": 64, "neighbors": 25, "learning_rate": 0.01}
    >>> describe(size, seeds=3)
    '3 seeds, 6,000 GloVe vectors, B = 96, hidden width 64, 25 neighbours, Adam at a rate of 0.01'
    """
    return (
        f"{'One seed' if seeds == 1 else f'{seeds} seeds'}, "
        f"{size['items']:,} GloVe vectors, B = {size['buckets']:,}, hidden width {size['hidden']}, "
        f"{size['neighbors']} neighbours, Adam at a rate of {size['learning_rate']}"
    )


def begin(problem: Problem, recipe: Recipe, number: int = 0) -> Learner:
    """Return repetition `number` before its first epoch."""
    return Learner(problem, recipe, numbers=[number], earlier=[], device=choose_device())


def train_rounds(learner: Learner) -> Iterator[int]:
    """Train, and stop at each epoch after which the paper re-partitions; the caller does that."""
    recipe = learner.recipe
    for epoch in range(1, recipe.epochs + 1):
        loss = learner.train_epoch(epoch)
        if epoch % recipe.repartition_every == 0:
            learner.measure(epoch, loss)
            yield epoch


# --- searching -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probed:
    """The best buckets that one repetition names for each query, and the bucket of each item."""

    buckets: np.ndarray  # (n, m), best first
    weights: np.ndarray  # (n, m): what each adds to the score of its items
    assignment: np.ndarray  # (N,)


def find_best_buckets(logits: np.ndarray, probes: int) -> np.ndarray:
    """Return the best buckets (n, probes) by their scores (n, B), best first.

    Examples
    --------
    >>> find_best_buckets(np.array([[0.1, 0.7, 0.2]]), 2).tolist()
    [[1, 2]]
    """
    return np.argsort(-logits, axis=1, kind="stable")[:, :probes]


def add_up(repetitions: list[Probed], buckets: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the scores (rows, N) of the items for some queries at a time.

    With weights of 1, the score of an item is its votes: the repetitions in which it was found.
    """
    count, items = len(repetitions[0].buckets), len(repetitions[0].assignment)
    for start in range(0, count, _BLOCK):
        rows = slice(start, min(count, start + _BLOCK))
        scores = np.zeros((rows.stop - start, items), dtype=np.float32)
        for each in repetitions:
            weights = np.zeros((len(scores), buckets), dtype=np.float32)
            np.put_along_axis(weights, each.buckets[rows], each.weights[rows], axis=1)
            scores += weights[:, each.assignment]
        yield rows, scores


def recall_by_candidates(
    sample: Sample, repetitions: list[Probed], buckets: int, candidates: Sequence[int]
) -> list[float]:
    """Return recall10@10 if each query compares so many items exactly: those of highest score.

    Chance decides between items of equal score; this is the mean over all draws. An item that is
    in no probed bucket is never compared.
    """
    hits = np.zeros(len(candidates))
    room = np.array(candidates)[:, None]
    for rows, scores in add_up(repetitions, buckets):
        ranked = np.sort(scores, axis=1)
        for truth, score, order in zip(sample.truth[rows], scores, ranked, strict=True):
            own = score[truth[truth >= 0]]
            own = own[own > 0]
            above = len(order) - np.searchsorted(order, own, side="right")
            equal = len(order) - np.searchsorted(order, own, side="left") - above
            hits += np.minimum(np.clip((room - above) / equal, 0, 1).sum(axis=1), K)
    return [float(hit) / (K * len(sample.queries)) for hit in hits]
