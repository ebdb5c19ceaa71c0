"""Algorithm 1 for one group of repetitions: train, re-partition, measure, and repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.metrics import load_summary
from irli.base.progress import Progress, ticking
from irli.base.recipe import Recipe
from irli.base.types import Arrays, Sparse
from irli.learning.affinity import Affinity, SummedAffinity, choose_probe_cut
from irli.learning.batches import Inputs
from irli.learning.devices import CPU, name_device
from irli.learning.initial import limit_load, make_first_partition, make_weights, place_new
from irli.learning.network import Lesson, NativeNetwork, Network, Rates, log_scores
from irli.learning.partition import Partition, assign_bounded, assign_least_loaded
from irli.learning.problem import Problem
from irli.learning.repetition import History, Repetition
from irli.learning.sizes import count_drawn
from irli.learning.state import pack_state, read_heads, read_soften, unpack_state
from irli.learning.validation import Validation
from irli.learning.weights import Weights, read_routers

log = get_logger(__name__)

_WARM_UP = 0.05  # share of the steps in which the learning rate rises
_FIRST_RATE, _LAST_RATE = 0.04, 0.002  # the learning rates at both ends, relative to the largest
_SPARSE_RATE = 25.0  # the most by which the learning rate of rare features is raised
_USUAL_FEATURE = 27  # the rate is not raised for features that at least one in 27 rows has
_LONGEST_GAP = 2 / 3  # of the length of a query
_SHARP = 64.0  # factor of the centroid scores from which on the projection learns more slowly
_ORDER = 0x0D  # random stream of the order in which items choose a bucket
_SAMPLE = 1024  # queries that choose the temperature
_WEIGHTS = 0x7E  # random stream of the first weights


def learn_repetitions(
    problem: Problem,
    recipe: Recipe,
    numbers: Sequence[int],
    earlier: list[Repetition],
    *,
    start: list[Repetition] | None = None,
    device: str = "cpu",
    progress: Progress = False,
    saved: Arrays | None = None,
    save: Callable[[Callable[[], Arrays]], None] | None = None,
) -> list[Repetition]:
    """Learn the repetitions `numbers`: the body of the outer loop of Algorithm 1.

    A single repetition has its own network. Several are heads on a shared trunk. The last epoch is
    not followed by a re-partition, so each router was trained last on the partition that is
    returned with it.

    With `start`, learning continues from these repetitions instead of starting from scratch. With
    `saved`, it goes on after the epoch whose state this is. `save` is called with what returns
    the state after each epoch but the last.
    """
    what = f"repetition {numbers[0] + 1}" if len(numbers) == 1 else f"{len(numbers)} repetitions"
    with ticking(recipe.epochs + 1, progress, what) as tick:
        learner = Learner(problem, recipe, numbers, earlier, device, start, saved)
        tick()
        last = False
        for epoch in range(1, recipe.epochs + 1):
            if not last and epoch > learner.epoch:
                last = _run_epoch(learner, epoch)
                if save is not None and not last:
                    save(partial(pack_state, learner, epoch))
            tick()
        return learner.export()


def _run_epoch(learner: Learner, epoch: int) -> bool:
    """Train for an epoch, and end the round if it is one. Return whether it was the last."""
    recipe, loss = learner.recipe, learner.train_epoch(epoch)
    last = epoch == recipe.epochs
    if last or epoch % recipe.repartition_every == 0:
        last = last or learner.has_converged()
        learner.end_round(epoch, loss, last)
    return last


@dataclass
class Head:
    """One repetition while it is learned."""

    number: int  # the number of the repetition
    place: int  # the number of the head in the network
    partition: Partition
    moving: bool  # whether there are more re-partitions
    log_probabilities: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    log_scores: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    round: dict[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=list)

    def record(self, affinity_after: float, moved: float, kept: bool) -> None:
        """Add the finished round to the history."""
        ended = {"affinity_after": affinity_after, "moved": moved, "kept": kept}
        self.history.append(self.round | ended)
        log.info(
            "repetition %d, epoch %d: loss %.4f, recall %.4f, moved %.4f%s",
            self.number + 1,
            self.round["epoch"],
            self.round["loss"],
            self.round["recall"],
            moved,
            "" if kept else " (rejected)",
        )


class Learner:
    """The network of one or more repetitions, and their partitions, while they are learned."""

    def __init__(
        self,
        problem: Problem,
        recipe: Recipe,
        numbers: Sequence[int],
        earlier: list[Repetition],
        device: str,
        start: list[Repetition] | None = None,
        saved: Arrays | None = None,
    ) -> None:
        self.problem = problem
        self.recipe = recipe
        self.queries = Inputs(problem.queries)
        self.weights = np.asarray(problem.weights)
        for repetition in earlier if recipe.boost else []:
            self.weights = self.weights * _miss_chances(problem, repetition, recipe)
        self.points, self.wanted_by = self._list_scored()
        noise = recipe.noise * measure_gaps(problem) if recipe.noise else None
        self.lesson = Lesson(problem, self.weights, noise)
        self.validation = Validation(problem.held_truth)
        self.rng = np.random.default_rng([recipe.seed, numbers[0]])
        self.heads: list[Head] = []
        if saved is not None:
            known = read_heads(saved, recipe.buckets)
            self.heads = [
                Head(number, place, **head)
                for place, (number, head) in enumerate(zip(numbers, known, strict=True))
            ]
        elif start is not None:
            moving = recipe.start != "one-per-item"
            self.heads = [
                Head(number, place, repetition.partition, moving)
                for place, (number, repetition) in enumerate(zip(numbers, start, strict=True))
            ]
        weights = self._go_on(start) if start else self._begin(numbers)
        if saved is not None:
            weights.near, weights.most, weights.slope = read_soften(saved)
        self.network = open_network(weights, problem, recipe, device, numbers[0])
        self.rates = schedule_rates(recipe, self._count_steps())
        self.epoch = 0 if saved is None else unpack_state(self, saved)  # the last finished one
        for head in self.heads if saved is None else []:
            if start is not None and problem.items_are_queries:
                rank = self._score_affinity(head).beside
                head.partition = place_new(head.partition, rank, recipe)
            elif start is None and recipe.buckets_per_item > 1:
                first = head.partition.assignment[:, 0]
                head.partition = self._assign(head, self._score_affinity(head), first)

    def _go_on(self, start: list[Repetition]) -> Weights:
        """Return the weights of earlier routers."""
        queries, routers = self.problem.queries, [one.router for one in start]
        scaled = self.recipe.standardize and isinstance(queries, np.ndarray)
        return read_routers(routers, np.asarray(queries) if scaled else None)

    def _begin(self, numbers: Sequence[int]) -> Weights:
        """Return the first weights, those of centroids if there are any, and make partitions."""
        recipe, problem = self.recipe, self.problem
        drawn = np.random.default_rng([recipe.seed, numbers[0], _WEIGHTS])
        weights = make_weights(problem, recipe, len(numbers), drawn)
        if self.heads:  # they go on
            return weights
        for place, number in enumerate(numbers):
            rng = self.rng if place == 0 else np.random.default_rng([recipe.seed, number])
            partition, centroids = make_first_partition(problem.items, recipe, number, rng)
            self.heads.append(Head(number, place, partition, recipe.start != "one-per-item"))
            if recipe.router == "warm" and centroids is not None:
                self._warm_up(weights, centroids, partition, rng)
        return weights

    def _warm_up(
        self,
        weights: Weights,
        centroids: NDArray[np.float32],
        partition: Partition,
        rng: np.random.Generator,
    ) -> None:
        """Start the weights from the centroids."""
        problem = self.problem
        rows = np.sort(rng.choice(len(self.queries), size=_SAMPLE, p=problem.sampling))
        lengths = problem.indptr[rows + 1] - problem.indptr[rows]
        row = np.repeat(np.arange(len(rows)), lengths)
        within = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        pair = np.repeat(problem.indptr[rows], lengths) + within
        weight = self.weights[pair]
        total = np.bincount(row, weights=weight, minlength=len(rows))
        wanted = (
            row,
            partition.assignment[problem.indices[pair]],
            (weight / np.maximum(total[row], 1e-12)).astype(np.float32),
        )
        # Sample queries may be far from all centroids, and learn to be sure all the same.
        soften = bool((problem.query_items >= 0).all())
        queries: Any = self.queries.take(rows)
        weights.start_from_centroids(centroids, problem.metric == "ip", queries, wanted, soften)

    # --- training ------------------------------------------------------------------------------

    def _count_steps(self) -> int:
        """Return the steps of an epoch."""
        return -(-count_drawn(len(self.queries), self.recipe) // self.recipe.batch_size)

    def train_epoch(self, epoch: int) -> float:
        """Train the routers for one epoch. Return the mean loss."""
        steps = self._count_steps()
        rates = self.rates[(epoch - 1) * steps : epoch * steps]
        assignments = [head.partition.assignment for head in self.heads]
        return self.network.learn(self.lesson, assignments, self._draw_rows(), rates)

    def _draw_rows(self) -> NDArray[np.int64]:
        """Return the query rows of an epoch, in order."""
        if self.recipe.epoch_size == 0:
            return self.rng.permutation(len(self.queries))
        size = count_drawn(len(self.queries), self.recipe)
        return self.rng.choice(len(self.queries), size=size, p=self.problem.sampling)

    # --- re-partitioning -----------------------------------------------------------------------

    def has_converged(self) -> bool:
        """Whether training may end: it went on after the last re-partition of every head."""
        return self.recipe.until_converged and not any(head.moving for head in self.heads)

    def end_round(self, epoch: int, loss: float, last: bool) -> None:
        """Measure all heads, and re-partition those that still move unless it is the last round."""
        self.measure(epoch, loss)
        for head in self.heads:
            moved, kept = 0.0, True
            if head.moving and not last:
                moved, kept = self.repartition(head)
                head.moving = kept and moved > 0 and moved >= self.recipe.stop_moved
            after = self.validation.affinity(head.log_scores, head.partition)
            head.record(affinity_after=after, moved=moved, kept=kept)

    def repartition(self, head: Head) -> tuple[float, bool]:
        """Move the items to the buckets of highest affinity.

        If validation rejects this, only the second buckets are moved, and validation decides again.
        Return the share of moved items, and whether the new partition was kept.
        """
        rank = self._score_affinity(head)
        new = self._assign(head, rank)
        kept = self._is_accepted(head, new)
        if not kept and self.recipe.buckets_per_item > 1:
            first = np.ascontiguousarray(head.partition.assignment[:, 0])
            new = self._assign(head, rank, first)
            kept = self._is_accepted(head, new)
        moved = new.moved_share(head.partition)
        if kept:
            head.partition = new
        return moved, kept

    def _is_accepted(self, head: Head, new: Partition) -> bool:
        if self.recipe.accept == "always":
            return True
        return self.validation.not_worse(head.log_probabilities, new, head.partition)

    def _list_scored(self) -> tuple[Inputs, Sparse]:
        """Return the points that the router scores for affinities, and which items want which."""
        problem, count = self.problem, len(self.problem.items)
        if self.recipe.affinity == "item":  # queries do not count, however many there are
            none: Any = sp.csr_array((count, count), dtype=np.float32)
            return Inputs(problem.items), none
        return Inputs(*problem.scored_points()), problem.wanted_by(self.weights)

    def _score_affinity(self, head: Head) -> Affinity:
        recipe, both = self.recipe, self.problem.items_are_queries
        scored = self.network, head.place, self.points, self.wanted_by
        if recipe.affinity == "sum":
            return SummedAffinity(*scored, recipe.loss, both)
        return Affinity(*scored, recipe, both)

    def _assign(
        self, head: Head, rank: Affinity, first: NDArray[np.int32] | None = None
    ) -> Partition:
        """Assign all items again, or only their second buckets if `first` is given."""
        recipe, count = self.recipe, len(self.problem.items)
        buckets, most = head.partition.buckets, limit_load(count, recipe)
        if recipe.repartition == "least-loaded":
            # The same order each time: an item moves because of what was learned, not by chance.
            rng = np.random.default_rng([recipe.seed, head.number, _ORDER])
            chosen = assign_least_loaded(rank, count, buckets, recipe.choices, rng)
            return Partition(buckets, chosen[:, None])
        loads = np.zeros(buckets, dtype=np.int64)
        if first is None:
            first = assign_bounded(rank, count, most, recipe.choices, loads)
        else:
            loads += np.bincount(first, minlength=buckets)
        columns = [first]
        if recipe.buckets_per_item > 1:
            second = rank.complementing(first)
            columns.append(assign_bounded(second, count, most, recipe.choices, loads, taken=first))
        return Partition(buckets, np.stack(columns, axis=1))

    # --- measuring -----------------------------------------------------------------------------

    def measure(self, epoch: int, loss: float) -> None:
        """Measure the routers and the partitions that they were trained on by held-out queries."""
        held: Any = self.problem.held_queries
        for head in self.heads:
            logits = self.network.score(held, head.place)
            head.log_probabilities = log_scores(logits, "softmax")
            head.log_scores = log_scores(logits, self.recipe.loss)
            summary = load_summary(head.partition.loads())
            measured = head.log_probabilities, head.partition
            head.round = {
                "repetition": head.number,
                "epoch": epoch,
                "loss": loss,
                "recall": self.validation.recall_at_probes(*measured),
                "affinity": self.validation.affinity(head.log_scores, head.partition),
                "load_std": summary["std"],
                "load_max_over_mean": summary["max_over_mean"],
            }

    def export(self) -> list[Repetition]:
        """Return the routers as arrays, with their partitions."""
        pairs = zip(self.heads, self.network.read().to_routers(), strict=True)
        return [Repetition(router, head.partition, head.history) for head, router in pairs]


def measure_gaps(problem: Problem) -> NDArray[np.float32]:
    """Return the distance (n,) from each training query to its first relevant item, the nearest.

    Relevant items may be anywhere, so two thirds of the length of the query are the most. That is
    the gap for inner products, too, which do not depend on distances.
    """
    queries, items = np.asarray(problem.queries), problem.items
    gaps = np.zeros(len(queries), dtype=np.float32)
    step = 8192
    for start in range(0, len(queries), step):
        block = queries[start : start + step]
        gap = _LONGEST_GAP * np.linalg.norm(block, axis=1)
        if problem.metric != "ip":
            nearest = items[problem.indices[problem.indptr[start : start + len(block)]]]
            gap = np.minimum(gap, np.linalg.norm(block - nearest, axis=1))
        gaps[start : start + step] = gap
    return gaps


def open_network(
    weights: Weights, problem: Problem, recipe: Recipe, device: str, number: int
) -> Network:
    """Return a network of kernels, or one of torch on other devices than the CPU."""
    sparse = not isinstance(problem.queries, np.ndarray)
    # A step of the linear columns changes sharp logits a lot.
    rates = Rates(min(1.0, _SHARP / weights.sharpness))
    if sparse and recipe.schedule != "constant":
        rates.sparse = _raise_sparse_rate(problem.queries)
    seed = recipe.seed * 10_007 + number
    if device == CPU:
        return NativeNetwork(weights, sparse, recipe.loss, rates, seed)
    from irli.learning.torch_network import TorchNetwork

    mixed = recipe.mixed_precision
    return TorchNetwork(weights, sparse, recipe.loss, rates, name_device(device), seed, mixed)


def schedule_rates(recipe: Recipe, steps: int) -> NDArray[np.float64]:
    """Return the learning rate of each step, for so many steps an epoch.

    With a "one-cycle" schedule it rises along a cosine, and then falls along another.

    Examples
    --------
    >>> rates = schedule_rates(Recipe(learning_rate=1.0, epochs=10), steps=10)
    >>> rates[[0, 4, 52, 99]].round(3).tolist()
    [0.04, 1.0, 0.501, 0.002]
    """
    total = recipe.epochs * steps
    if recipe.schedule == "constant":
        return np.full(total, recipe.learning_rate)
    peak = max(1.0, _WARM_UP * (total + 1) - 1)
    step = np.arange(total)
    rising = np.minimum(step / peak, 1)
    falling = np.clip((step - peak) / max(total - peak, 1), 0, 1)
    up = _FIRST_RATE + (1 - _FIRST_RATE) * (1 - np.cos(np.pi * rising)) / 2
    down = _LAST_RATE + (1 - _LAST_RATE) * (1 + np.cos(np.pi * falling)) / 2
    return np.asarray(recipe.learning_rate * np.where(step < peak, up, down))


def _raise_sparse_rate(queries: Any) -> float:
    """Return the factor on the learning rate of sparse features: the rarer, the larger."""
    rarity = queries.shape[0] * queries.shape[1] / max(1, queries.nnz)
    return float(np.clip(rarity / _USUAL_FEATURE, 1.0, _SPARSE_RATE))


def _miss_chances(problem: Problem, repetition: Repetition, recipe: Recipe) -> NDArray[np.float32]:
    """Return, for each (query, item) pair, the chance that `repetition` misses the item."""
    cut = choose_probe_cut(recipe) or 1.0 / repetition.router.buckets
    missed = np.empty(len(problem.indices), dtype=np.float32)
    assignment = repetition.partition.assignment
    pair_queries = problem.pair_queries
    step = 2048
    for start in range(0, len(problem.query_items), step):
        block = np.asarray(problem.queries[start : start + step])
        probability = np.exp(repetition.router.log_probabilities(block))
        first, last = problem.indptr[start], problem.indptr[start + len(block)]
        row = pair_queries[first:last] - start
        buckets = assignment[problem.indices[first:last]]
        found = np.where(buckets >= 0, probability[row[:, None], buckets], 0.0).sum(axis=1)
        missed[first:last] = cut / (found + cut)
    return missed
