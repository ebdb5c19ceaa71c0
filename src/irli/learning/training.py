"""Algorithm 1 for one group of repetitions: train, re-partition, measure, and repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from irli.base.logs import get_logger
from irli.base.metrics import load_summary
from irli.base.progress import Progress, track
from irli.base.recipe import Recipe
from irli.base.types import Arrays, Sparse
from irli.learning.affinity import Affinity, SummedAffinity, choose_probe_cut
from irli.learning.batches import Batch, Inputs, with_noise
from irli.learning.initial import limit_load, make_first_partition, make_network
from irli.learning.network import LOSS, Bagged, Pairs, log_scores
from irli.learning.partition import Partition, assign_bounded, assign_least_loaded
from irli.learning.problem import Problem
from irli.learning.repetition import History, Repetition
from irli.learning.sizes import count_drawn
from irli.learning.state import pack_state, read_heads, unpack_state
from irli.learning.threads import threads_for_step
from irli.learning.validation import Validation

log = get_logger(__name__)

_WARM_UP = 0.05  # share of the steps in which the learning rate rises
_LAST_RATE = 0.05  # the final learning rate, relative to the largest
_SPARSE_RATE = 25.0  # the most by which the learning rate of rare features is raised
_USUAL_FEATURE = 27  # the rate is not raised for features that at least one in 27 rows has
_LONGEST_GAP = 2 / 3  # of the length of a query
_SHARP = 64.0  # factor of the centroid scores from which on the projection learns more slowly
_ORDER = 0x0D  # random stream of the order in which items choose a bucket
_SAMPLE = 1024  # queries that choose the temperature


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
    save: Callable[[Arrays], None] | None = None,
) -> list[Repetition]:
    """Learn the repetitions `numbers`: the body of the outer loop of Algorithm 1.

    A single repetition has its own network. Several are heads on a shared trunk. The last epoch is
    not followed by a re-partition, so each router was trained last on the partition that is
    returned with it.

    With `start`, learning continues from these repetitions instead of starting from scratch. With
    `saved`, it goes on after the epoch whose state this is. `save` is called with the state after
    each epoch but the last.
    """
    what = f"repetition {numbers[0] + 1}" if len(numbers) == 1 else f"{len(numbers)} repetitions"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed * 10_007 + numbers[0])
        learner = Learner(problem, recipe, numbers, earlier, device, start, saved)
        last = False
        for epoch in track(range(1, recipe.epochs + 1), progress, what):
            if last or epoch <= learner.epoch:
                continue
            loss = learner.train_epoch()
            last = epoch == recipe.epochs
            if last or epoch % recipe.repartition_every == 0:
                last = last or learner.has_converged()
                learner.end_round(epoch, loss, last)
            if save is not None and not last:
                save(pack_state(learner, epoch))
        return learner.export()


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
        self.device = torch.device(device)
        self.queries = Inputs(problem.queries)
        self.weights = np.asarray(problem.weights)
        for repetition in earlier if recipe.boost else []:
            self.weights = self.weights * _miss_chances(problem, repetition, recipe)
        self.points, self.wanted_by = self._list_scored()
        self.noise = (
            recipe.noise * measure_gaps(problem)
            if recipe.noise
            else np.zeros(len(self.queries), dtype=np.float32)
        )
        self.validation = Validation(problem.held_truth)
        self.network = make_network(problem, recipe, len(numbers))
        self.rng = np.random.default_rng([recipe.seed, numbers[0]])
        self.heads: list[Head] = []
        if saved is not None:
            self._restore(numbers, saved)
        elif start is not None:
            self._resume(numbers, start)
        else:
            for place, number in enumerate(numbers):
                self._begin(place, number)
        self._make_optimizers()
        self.epoch = 0 if saved is None else unpack_state(self, saved)  # the last finished one

    def _restore(self, numbers: Sequence[int], saved: Arrays) -> None:
        """Go on with the repetitions of a checkpoint."""
        self.network.to(self.device)
        heads = read_heads(saved, self.network.buckets)
        for place, (number, head) in enumerate(zip(numbers, heads, strict=True)):
            self.heads.append(Head(number, place, **head))

    def _resume(self, numbers: Sequence[int], start: list[Repetition]) -> None:
        """Start from routers and partitions that were learned before."""
        self.network.load_routers([repetition.router for repetition in start])
        self.network.to(self.device)
        for place, (number, repetition) in enumerate(zip(numbers, start, strict=True)):
            moving = self.recipe.start != "one-per-item"
            self.heads.append(Head(number, place, repetition.partition, moving))

    def _begin(self, place: int, number: int) -> None:
        """Add a repetition with its first partition, and start its router from the centroids."""
        recipe = self.recipe
        rng = self.rng if place == 0 else np.random.default_rng([recipe.seed, number])
        partition, centroids = make_first_partition(self.problem.items, recipe, number, rng)
        head = Head(number, place, partition, moving=recipe.start != "one-per-item")
        self.heads.append(head)
        if recipe.router == "warm" and centroids is not None:
            rows = rng.choice(len(self.queries), size=_SAMPLE, p=self.problem.sampling)
            pairs, queries = self._make_batch(np.sort(rows))
            pairs = Pairs(*(part.cpu() for part in pairs))
            # Sample queries may be far from all centroids, and learn to be sure all the same.
            soften = bool((self.problem.query_items >= 0).all())
            product = self.problem.metric == "ip"
            self.network.warm_start(centroids, product, pairs, queries, soften)
        self.network.to(self.device)
        if recipe.buckets_per_item > 1:
            first = partition.assignment[:, 0]
            head.partition = self._assign(head, self._score_affinity(head), first)

    # --- training ------------------------------------------------------------------------------

    def _make_optimizers(self) -> None:
        """Make the optimizers and their schedules. Sparse features have their own optimizer."""
        recipe, layer = self.recipe, self.network.hidden
        plain = recipe.schedule == "constant"
        sparse = [layer.table.weight] if isinstance(layer, Bagged) else []
        linear = [] if self.network.linear is None else [self.network.linear.weight]
        dense = [p for p in self.network.parameters() if all(p is not q for q in sparse + linear)]
        rate = recipe.learning_rate
        self.optimizers: list[torch.optim.Optimizer] = [torch.optim.Adam(dense, lr=rate)]
        if linear:
            slower = min(1.0, _SHARP / self.network.sharpness)
            self.optimizers.append(torch.optim.Adam(linear, lr=slower * rate))
        if sparse:
            faster = 1.0 if plain else _raise_sparse_rate(self.problem.queries)
            self.optimizers.append(torch.optim.SparseAdam(sparse, lr=faster * rate))
        steps = recipe.epochs * -(-count_drawn(len(self.queries), self.recipe) // recipe.batch_size)
        self.schedules = [
            torch.optim.lr_scheduler.OneCycleLR(
                optimizer,
                optimizer.param_groups[0]["lr"],
                total_steps=steps + 1,
                pct_start=_choose_warm_up_share(steps + 1),
                cycle_momentum=False,
                final_div_factor=1 / _LAST_RATE,
            )
            for optimizer in ([] if plain else self.optimizers)
        ]

    def train_epoch(self) -> float:
        """Train the routers for one epoch. Return the mean loss."""
        self.network.train()
        step = self.recipe.batch_size * self.network.out.weight.numel()
        with threads_for_step(step):
            losses = [self._step(rows) for rows in self._draw_batches()]
        return float(torch.stack(losses).double().mean())

    def _step(self, rows: NDArray[np.int64]) -> Tensor:
        """Train the routers on a batch. Return the loss, which stays on the device.

        Nothing but the batch is copied to the device, and nothing is waited for.
        """
        pairs, queries = self._make_batch(rows)
        queries = with_noise(queries, self.noise[rows]).to(self.device)
        mixed = self.recipe.mixed_precision
        with torch.autocast(self.device.type, torch.bfloat16) if mixed else nullcontext():
            logits = self.network(queries)
        loss = LOSS[self.recipe.loss](logits.float().flatten(0, 1), pairs)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        torch.autograd.backward(loss)
        for optimizer in self.optimizers:
            optimizer.step()
        for schedule in self.schedules:
            schedule.step()
        return loss.detach()

    def _draw_batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield the query rows of each batch of an epoch."""
        size, step = count_drawn(len(self.queries), self.recipe), self.recipe.batch_size
        if self.recipe.epoch_size == 0:
            rows = self.rng.permutation(len(self.queries))
        else:
            rows = self.rng.choice(len(self.queries), size=size, p=self.problem.sampling)
        for start in range(0, size, step):
            yield rows[start : start + step]

    def _make_batch(self, rows: NDArray[np.int64]) -> tuple[Pairs, Batch]:
        """Return the queries, and their relevant items with the current buckets of these."""
        starts, stops = self.problem.indptr[rows], self.problem.indptr[rows + 1]
        lengths = stops - starts
        row = np.repeat(np.arange(len(rows)), lengths)
        within = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        pair = np.repeat(starts, lengths) + within
        weight = self.weights[pair]
        total = np.bincount(row, weights=weight, minlength=len(rows)).astype(np.float32)
        weight = weight / np.maximum(total[row], 1e-12)
        item = self.problem.indices[pair]
        count = self.network.heads  # each query has a row of logits for each head
        buckets = [head.partition.assignment[item].astype(np.int64) for head in self.heads]
        pairs = Pairs(
            row=torch.from_numpy(np.concatenate([row * count + h.place for h in self.heads])),
            bucket=torch.from_numpy(np.concatenate(buckets)),
            weight=torch.from_numpy(np.tile(weight, len(self.heads))),
        )
        return Pairs(*(part.to(self.device) for part in pairs)), self.queries.take(rows)

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
        self.network.eval()
        held = Inputs(self.problem.held_queries)
        batch = held.take(np.arange(len(held))).to(self.device)
        for head in self.heads:
            with torch.no_grad():
                logits = self.network.score(batch, head.place)
            head.log_probabilities = torch.log_softmax(logits, dim=1).cpu().numpy()
            head.log_scores = log_scores(logits, self.recipe.loss).cpu().numpy()
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
        pairs = zip(self.heads, self.network.to_routers(), strict=True)
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


def _choose_warm_up_share(steps: int) -> float:
    """Return the share of the steps in which the learning rate rises.

    torch divides by the number of these steps minus one, which must not be zero.
    """
    return _WARM_UP if _WARM_UP * steps != 1 else 1.5 * _WARM_UP


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
