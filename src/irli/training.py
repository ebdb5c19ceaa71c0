"""Algorithm 1: train the routers, re-partition the items, until both agree."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from irli.affinity import Affinity
from irli.config import Recipe
from irli.hashing import UniversalHash
from irli.kmeans import kmeans, nearest_centroids
from irli.metrics import load_summary
from irli.network import LOSS, Pairs, RouterNetwork
from irli.partition import Partition, bounded, capacity, least_loaded
from irli.problem import Problem
from irli.progress import Progress, track
from irli.router import Router
from irli.validation import Validation

log = logging.getLogger(__name__)

_WARM_UP = 0.05  # share of the steps over which the learning rate rises
_LAST_RATE = 0.05  # of the learning rate, reached at the end
_SAMPLE = 4096  # queries that choose the temperature, and that turn the features of a cascade

History = list[dict[str, Any]]


@dataclass(frozen=True)
class Repetition:
    """One router, the partition that it was last trained on, and how they came to be."""

    router: Router
    partition: Partition
    history: History


def learn_repetition(
    problem: Problem,
    recipe: Recipe,
    number: int,
    earlier: list[Repetition],
    *,
    device: str = "cpu",
    progress: Progress = False,
) -> Repetition:
    """Learn repetition `number`: the body of the outer loop of Algorithm 1.

    The router that is returned was trained last on the partition that is returned: re-partitions
    lie between trainings, never behind the last one.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed * 10_007 + number)
        learner = Learner(problem, recipe, number, earlier, device)
        repartitioning = True
        for epoch in track(range(1, recipe.epochs + 1), progress, f"repetition {number + 1}"):
            loss = learner.train_epoch()
            last = epoch == recipe.epochs
            if epoch % recipe.every and not last:
                continue
            moved, kept = 0.0, True
            learner.measure(epoch, loss)
            if repartitioning and not last:
                moved, kept = learner.repartition()
                repartitioning = kept and moved >= recipe.stop_moved
            learner.record(moved, kept)
        return learner.finish()


class Learner:
    """The state of one repetition while it is being learned."""

    def __init__(
        self, problem: Problem, recipe: Recipe, number: int, earlier: list[Repetition], device: str
    ) -> None:
        self.problem = problem
        self.recipe = recipe
        self.number = number
        self.device = torch.device(device)
        self.rng = np.random.default_rng([recipe.seed, number])
        self.items = _tensor(problem.items)
        self.queries = _tensor(problem.queries)
        self.weights = np.asarray(problem.weights)
        for repetition in earlier if recipe.boost else []:
            self.weights = self.weights * _misses(problem, repetition, recipe)
        self.wanted_by = problem.wanted_by(self.weights)
        self.validation = Validation(problem.held_queries, problem.held_truth)
        self.history: History = []
        self._start()
        steps = recipe.epochs * -(-self._epoch_size() // recipe.batch_size)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=recipe.learning_rate)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimiser,
            recipe.learning_rate,
            total_steps=steps + 1,
            pct_start=_WARM_UP,
            cycle_momentum=False,
            final_div_factor=1 / _LAST_RATE,
        )

    # --- the start -----------------------------------------------------------------------------

    def _start(self) -> None:
        """Make the first partition and the network (section 3.1, or k-means buckets)."""
        recipe, (count, dim) = self.recipe, self.items.shape
        self.network = RouterNetwork(dim, recipe.linear, recipe.hidden, recipe.buckets)
        self.network.standardise(self.items)
        if recipe.start == "hash":
            hashed = UniversalHash(recipe.buckets, seed=recipe.seed * 10_007 + self.number)
            self.partition = Partition(recipe.buckets, hashed(np.arange(count))[:, None])
            self.network.to(self.device)
            return
        generator = torch.Generator().manual_seed(int(self.rng.integers(2**31)))
        centroids = kmeans(self.items, recipe.buckets, generator)
        self.partition = self._first_partition(centroids)
        if recipe.router == "warm":
            rows = self.rng.choice(len(self.queries), size=_SAMPLE, p=self.problem.sampling)
            inner_product = self.problem.metric == "ip"
            pairs, queries = self._batch(np.sort(rows))
            self.network.warm_start(centroids, inner_product, pairs, queries)
        self.network.to(self.device)
        if recipe.buckets_per_item > 1:
            first = self.partition.assignment[:, 0]
            self.partition = self._new_partition(self._affinity(), first)

    def _first_partition(self, centroids: Tensor) -> Partition:
        """Assign every item to the nearest centroid that has room."""

        def rank(
            items: NDArray[np.int64], count: int
        ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
            best = np.empty((len(items), count), dtype=np.int32)
            decided = np.empty(len(items), dtype=np.float32)
            for start in range(0, len(items), 4096):
                block = items[start : start + 4096]
                buckets, values = nearest_centroids(self.items[block], centroids, count)
                best[start : start + 4096] = buckets
                decided[start : start + 4096] = values[:, 0] - values[:, min(1, count - 1)]
            return best, decided

        loads = np.zeros(len(centroids), dtype=np.int64)
        chosen = bounded(rank, len(self.items), self._limit(), self.recipe.choices, loads)
        return Partition(len(centroids), chosen[:, None])

    # --- training ------------------------------------------------------------------------------

    def train_epoch(self) -> float:
        """Learn the bucket scores f_r for one epoch; return the mean loss."""
        self.network.train()
        losses = []
        for rows in self._batches():
            pairs, queries = self._batch(rows)
            if self.recipe.noise:
                queries = _with_noise(queries, self.recipe.noise)
            loss = LOSS[self.recipe.loss](self.network(queries.to(self.device)), pairs)
            self.optimiser.zero_grad()
            torch.autograd.backward(loss)
            self.optimiser.step()
            self.schedule.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    def _epoch_size(self) -> int:
        return min(self.recipe.epoch_size or len(self.queries), len(self.queries))

    def _batches(self) -> Iterator[NDArray[np.int64]]:
        size, every = self._epoch_size(), self.recipe.batch_size
        if self.recipe.epoch_size == 0:
            rows = self.rng.permutation(len(self.queries))
        else:
            rows = self.rng.choice(len(self.queries), size=size, p=self.problem.sampling)
        for start in range(0, size, every):
            yield rows[start : start + every]

    def _batch(self, rows: NDArray[np.int64]) -> tuple[Pairs, Tensor]:
        """Collect the queries and their pairs with the buckets that hold the items now."""
        starts, stops = self.problem.indptr[rows], self.problem.indptr[rows + 1]
        lengths = stops - starts
        row = np.repeat(np.arange(len(rows)), lengths)
        within = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        pair = np.repeat(starts, lengths) + within
        weight = self.weights[pair]
        total = np.bincount(row, weights=weight, minlength=len(rows)).astype(np.float32)
        bucket = self.partition.assignment[self.problem.indices[pair]].astype(np.int64)
        pairs = Pairs(
            row=torch.from_numpy(row).to(self.device),
            bucket=torch.from_numpy(bucket).to(self.device),
            weight=torch.from_numpy(weight / np.maximum(total[row], 1e-12)).to(self.device),
        )
        return pairs, self.queries[torch.from_numpy(rows)]

    # --- re-partitioning -----------------------------------------------------------------------

    def repartition(self) -> tuple[float, bool]:
        """Move the items to the buckets that they have most affinity to; return (moved, kept).

        What validation turns down may be a good first bucket lost: then only the second ones move.
        """
        rank = self._affinity()
        new = self._new_partition(rank)
        kept = self._helps(new)
        if not kept and self.recipe.buckets_per_item > 1:
            new = self._new_partition(rank, first=self.partition.assignment[:, 0])
            kept = self._helps(new)
        moved = new.moved_from(self.partition)
        if kept:
            self.partition = new
        return moved, kept

    def _helps(self, new: Partition) -> bool:
        if self.recipe.keep == "always":
            return True
        return self.validation.not_worse(self.log_probabilities, new, self.partition)

    def _affinity(self) -> Affinity:
        strangers = self.queries[torch.from_numpy(self.problem.rows < 0)]
        return Affinity(self.network, self.items, strangers, self.wanted_by, self.recipe)

    def _new_partition(self, rank: Affinity, first: NDArray[np.int32] | None = None) -> Partition:
        """Assign all items anew, or only their second buckets where the `first` are given."""
        recipe, count = self.recipe, len(self.items)
        buckets = self.partition.buckets
        if recipe.repartition == "least-loaded":
            chosen = least_loaded(rank, count, buckets, recipe.choices, self.rng)
            return Partition(buckets, chosen[:, None])
        loads = np.zeros(buckets, dtype=np.int64)
        if first is None:
            first = bounded(rank, count, self._limit(), recipe.choices, loads)
        else:
            loads += np.bincount(first, minlength=buckets)
        columns = [first]
        if recipe.buckets_per_item > 1:
            second = rank.complementing(first)
            columns.append(
                bounded(second, count, self._limit(), recipe.choices, loads, taken=first)
            )
        return Partition(buckets, np.stack(columns, axis=1))

    def _limit(self) -> int:
        entries = len(self.items) * self.recipe.buckets_per_item
        return capacity(entries, self.recipe.buckets, self.recipe.slack)

    # --- measuring -----------------------------------------------------------------------------

    def measure(self, epoch: int, loss: float) -> None:
        """Look at the router together with the partition that it was just trained on."""
        self.network.eval()
        held = _tensor(self.problem.held_queries).to(self.device)
        with torch.no_grad():
            logits = self.network(held)
        self.log_probabilities = torch.log_softmax(logits, dim=1).cpu().numpy()
        summary = load_summary(self.partition.loads())
        self.round = {
            "repetition": self.number,
            "epoch": epoch,
            "loss": loss,
            "recall": self.validation.recall_at_probes(self.log_probabilities, self.partition),
            "affinity": self.validation.affinity(self.log_probabilities, self.partition),
            "load_std": summary["std"],
            "load_max_over_mean": summary["max_over_mean"],
        }

    def record(self, moved: float, kept: bool) -> None:
        """Close the round in the history."""
        self.history.append({**self.round, "moved": moved, "kept": kept})
        log.debug("%s", self.history[-1])

    def finish(self) -> Repetition:
        """Freeze the router."""
        router = self.network.freeze()
        if self.recipe.cascade:
            rows = self.rng.choice(len(self.queries), size=_SAMPLE, p=self.problem.sampling)
            router = router.cascaded(self.queries[torch.from_numpy(rows)].numpy())
        return Repetition(router, self.partition, self.history)


def _tensor(array: NDArray[np.float32]) -> Tensor:
    """Share memory with torch, which wants to be able to write: a mapped array is copied."""
    return torch.from_numpy(array if array.flags.writeable else np.array(array))


def _with_noise(queries: Tensor, noise: float) -> Tensor:
    """Blur the queries, so that the router learns regions and not points."""
    length = queries.norm(dim=1, keepdim=True) / queries.shape[1] ** 0.5
    blurred: Tensor = queries + noise * length * torch.randn_like(queries)
    return blurred


def _misses(problem: Problem, repetition: Repetition, recipe: Recipe) -> NDArray[np.float32]:
    """Return, for each (query, item) pair, the chance that `repetition` misses the item."""
    cut = recipe.cut or 1.0 / repetition.router.buckets
    missed = np.empty(len(problem.indices), dtype=np.float32)
    assignment = repetition.partition.assignment
    asking = problem.pair_queries
    step = 2048
    for start in range(0, len(problem.queries), step):
        block = np.asarray(problem.queries[start : start + step])
        probability = np.exp(repetition.router.log_probabilities(block))
        first, last = problem.indptr[start], problem.indptr[start + len(block)]
        row = asking[first:last] - start
        buckets = assignment[problem.indices[first:last]]
        found = np.where(buckets >= 0, probability[row[:, None], buckets], 0.0).sum(axis=1)
        missed[first:last] = cut / (found + cut)
    return missed
