"""`TorchNetwork`: a network that torch trains, on GPUs or as the reference of the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from irli.base.types import Arrays, Rows
from irli.learning.network import Lesson, Rates
from irli.learning.threads import threads_for_step
from irli.learning.weights import Weights

_WEIGHTS = ("project", "shift", "out", "bias")

Floats = NDArray[np.float32]


class Bag(NamedTuple):
    """A batch of sparse rows for an embedding bag. It is never made dense."""

    features: Tensor  # (non-zeros,): column numbers
    values: Tensor  # (non-zeros,)
    offsets: Tensor  # (n,): where each row starts


Batch: TypeAlias = "Tensor | Bag"


class Pairs(NamedTuple):
    """The (query, relevant item) pairs of a batch, as the losses need them."""

    row: Tensor  # (pairs,): the row of the query in the logits
    bucket: Tensor  # (pairs, S): the item's buckets, -1 where it has fewer
    weight: Tensor  # (pairs,): sums to 1 over the items of a query


class TorchNetwork(nn.Module):
    """A network on a device of torch: see `irli.learning.network.Network`."""

    centre: Tensor

    def __init__(
        self,
        weights: Weights,
        sparse: bool,
        loss: str,
        rates: Rates,
        device: str,
        seed: int,
        mixed_precision: bool = False,
    ) -> None:
        super().__init__()
        self.weights, self.sparse, self.loss = weights, sparse, loss
        self.heads, self.buckets, width = weights.out.shape
        self.device, self.mixed_precision = torch.device(device), mixed_precision
        self.random = torch.Generator().manual_seed(seed)
        tensors = {name: torch.from_numpy(getattr(weights, name)) for name in _WEIGHTS}
        # `out` has a row for each bucket of each head.
        tensors["out"] = tensors["out"].reshape(self.heads * self.buckets, width)
        tensors["bias"] = tensors["bias"].reshape(-1)
        linear = weights.linear
        self.linear = nn.Parameter(tensors["project"][:, :linear].T.clone())
        hidden = tensors["project"][:, linear:].clone()
        self.hidden = nn.Parameter(hidden / weights.gain)  # so that one rate suits all
        self.shift = nn.Parameter(tensors["shift"][linear:].clone())
        self.out = nn.Parameter(tensors["out"].clone())
        self.bias = nn.Parameter(tensors["bias"].clone())
        self.register_buffer("centre", torch.from_numpy(weights.centre.copy()))
        self.to(self.device)
        groups = [([self.shift, self.out, self.bias], 1.0)]
        if linear:
            groups.append(([self.linear], rates.linear))
        if not sparse:
            groups[0][0].append(self.hidden)
        self.optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Adam(parameters), rate) for parameters, rate in groups
        ]
        if sparse:
            self.optimizers.append((torch.optim.SparseAdam([self.hidden]), rates.sparse))

    # --- training ------------------------------------------------------------------------------

    def learn(
        self,
        lesson: Lesson,
        assignments: Sequence[NDArray[np.int32]],
        rows: NDArray[np.int64],
        rates: NDArray[np.float64],
    ) -> float:
        """Take a step for each batch. See `Network`."""
        size = -(-len(rows) // len(rates))
        with threads_for_step(size * self.out.numel()):
            losses = [
                self.step(lesson, assignments, rows[number * size : (number + 1) * size], rate)
                for number, rate in enumerate(rates)
            ]
        return float(torch.stack(losses).double().mean())

    def step(
        self,
        lesson: Lesson,
        assignments: Sequence[NDArray[np.int32]],
        rows: NDArray[np.int64],
        rate: float,
    ) -> Tensor:
        """Learn from a batch. Return the loss, which stays on the device.

        Nothing but the batch is copied to the device, and nothing is waited for.
        """
        pairs = Pairs(*(part.to(self.device) for part in make_pairs(lesson, assignments, rows)))
        queries = self._copy(lesson.queries[rows])
        if lesson.noise is not None and isinstance(queries, Tensor):
            length = torch.from_numpy(lesson.noise[rows]).to(self.device)[:, None]
            normal = torch.randn(queries.shape, generator=self.random).to(self.device)
            queries = queries + length / queries.shape[1] ** 0.5 * normal
        mixed = self.mixed_precision
        with torch.autocast(self.device.type, torch.bfloat16) if mixed else nullcontext():
            logits = self(queries)
        loss = LOSS[self.loss](logits.float().flatten(0, 1), pairs)
        for optimizer, faster in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = faster * rate
        torch.autograd.backward(loss)
        for optimizer, _ in self.optimizers:
            optimizer.step()
        return loss.detach()

    def forward(self, queries: Batch) -> Tensor:
        """Return the logits (n, H, B)."""
        logits = nn.functional.linear(self._compute_features(queries), self.out, self.bias)
        return self._soften(queries, logits.reshape(-1, self.heads, self.buckets))

    def _compute_features(self, queries: Batch) -> Tensor:
        weights = self.weights
        if isinstance(queries, Bag):
            values = queries.values / weights.scale
            total = nn.functional.embedding_bag(
                queries.features,
                self.hidden,
                queries.offsets,
                mode="sum",
                sparse=True,
                per_sample_weights=values,
            )
            return torch.relu(total + self.shift)
        x = (queries - self.centre) / weights.scale
        features = torch.relu((x * weights.gain) @ self.hidden + self.shift)
        return torch.cat([x @ self.linear.T, features], dim=1) if weights.linear else features

    def _soften(self, queries: Batch, logits: Tensor) -> Tensor:
        """Return the logits (n, H, B), smaller for queries that are far from all centroids."""
        weights = self.weights
        if weights.near == 0 or isinstance(queries, Bag):
            return logits
        length = ((queries - self.centre) / weights.scale).square().sum(dim=1)[:, None, None]
        distance = length - weights.slope * logits.amax(dim=-1, keepdim=True)
        return logits / (1 + weights.near * distance.clamp(min=0, max=weights.most))

    def _copy(self, rows: Rows) -> Batch:
        """Return rows on the device."""
        if isinstance(rows, np.ndarray):
            return torch.from_numpy(np.asarray(rows, dtype=np.float32)).to(self.device)
        parts = rows.indices.astype(np.int64), rows.data, rows.indptr[:-1].astype(np.int64)
        return Bag(*(torch.from_numpy(part).to(self.device) for part in parts))

    # --- scoring -------------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, queries: Rows, head: int) -> Floats:
        """Return the logits (n, B) of one head."""
        scores: Floats = self(self._copy(queries))[:, head].contiguous().cpu().numpy()
        return scores

    @torch.no_grad()
    def rank(
        self, queries: Rows, head: int, count: int, marginal: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return the best buckets. See `Network`."""
        logits = self(self._copy(queries))[:, head]
        total = torch.logsumexp(logits, dim=1, keepdim=True)
        values, places = torch.topk(logits, count, dim=1)
        if marginal is not None:
            marginal += (logits - total).exp_().sum(dim=0).cpu().numpy()
        return places.cpu().numpy(), (values - total).cpu().numpy()

    @torch.no_grad()
    def read(self) -> Weights:
        """Return the weights."""
        weights, linear = self.weights, self.weights.linear
        weights.project[:, :linear] = self.linear.T.cpu().numpy()
        weights.project[:, linear:] = (self.hidden * weights.gain).cpu().numpy()
        weights.shift[linear:] = self.shift.cpu().numpy()
        weights.out[:] = self.out.cpu().numpy().reshape(weights.out.shape)
        weights.bias[:] = self.bias.cpu().numpy().reshape(weights.bias.shape)
        return weights

    # --- the state between two epochs ----------------------------------------------------------

    def state(self) -> Arrays:
        """Return all that later steps depend on."""
        arrays = {f"network.{name}": w.cpu().numpy() for name, w in self.state_dict().items()}
        for number, (optimizer, _) in enumerate(self.optimizers):
            for parameter, values in optimizer.state_dict()["state"].items():
                for name, value in values.items():
                    array = torch.as_tensor(value).cpu().numpy()
                    arrays[f"optimizer.{number}.{parameter}.{name}"] = array
        arrays["random"] = self.random.get_state().numpy()
        return arrays

    def restore(self, state: Arrays) -> None:
        """Go on from a `state`."""
        self.random.set_state(torch.from_numpy(state["random"]))
        weights = _cut(state, "network.")
        self.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        for number, (optimizer, _) in enumerate(self.optimizers):
            kept: dict[int, dict[str, Tensor | int]] = {}
            for key, value in _cut(state, f"optimizer.{number}.").items():
                parameter, name = key.split(".")
                # SparseAdam counts its steps with a number, Adam with a tensor of floats.
                found = int(value) if value.dtype.kind == "i" else torch.from_numpy(value)
                kept.setdefault(int(parameter), {})[name] = found
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": kept, "param_groups": groups})


def make_pairs(
    lesson: Lesson, assignments: Sequence[NDArray[np.int32]], rows: NDArray[np.int64]
) -> Pairs:
    """Return the relevant items of some queries with the current buckets of these."""
    starts, stops = lesson.indptr[rows], lesson.indptr[rows + 1]
    lengths = stops - starts
    row = np.repeat(np.arange(len(rows)), lengths)
    within = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    pair = np.repeat(starts, lengths) + within
    weight = lesson.weights[pair]
    total = np.bincount(row, weights=weight, minlength=len(rows)).astype(np.float32)
    weight = weight / np.maximum(total[row], 1e-12)
    item, heads = lesson.indices[pair], len(assignments)  # a query has logits for each head
    return Pairs(
        torch.from_numpy(np.concatenate([row * heads + head for head in range(heads)])),
        torch.from_numpy(np.concatenate([each[item].astype(np.int64) for each in assignments])),
        torch.from_numpy(np.tile(weight, heads)),
    )


def softmax_loss(logits: Tensor, pairs: Pairs) -> Tensor:
    """Cross-entropy on the buckets of the relevant items.

    An item with two buckets is found in either of them, so its probability is the sum of both. With
    one bucket for each item, this is the cross-entropy with the histogram of the relevant buckets.
    """
    item = torch.logsumexp(_gather_pair_logits(logits, pairs), dim=1)
    total = torch.logsumexp(logits, dim=1)
    return (pairs.weight * (total[pairs.row] - item)).sum() / pairs.weight.sum()


def sigmoid_bce_loss(logits: Tensor, pairs: Pairs) -> Tensor:
    """Binary cross-entropy over "the bucket holds a relevant item", sigmoid (the authors' code)."""
    return nn.functional.binary_cross_entropy_with_logits(logits, _make_targets(logits, pairs))


def softmax_bce_loss(logits: Tensor, pairs: Pairs) -> Tensor:
    """Binary cross-entropy over "the bucket holds a relevant item", softmax (the paper's text)."""
    log_probability = torch.log_softmax(logits, dim=1)  # no bucket is so unlikely that none learns
    log_other = torch.log1p(-log_probability.exp().clamp(max=1 - 1e-7))
    return -torch.lerp(log_other, log_probability, _make_targets(logits, pairs)).mean()


LOSS = {
    "softmax": softmax_loss,
    "sigmoid-bce": sigmoid_bce_loss,
    "softmax-bce": softmax_bce_loss,
}


def _gather_pair_logits(logits: Tensor, pairs: Pairs) -> Tensor:
    """Return the logits of the buckets of each pair (pairs, S), -inf for padding."""
    values = logits.reshape(-1).gather(0, _find_places(logits, pairs))
    return values.reshape(pairs.bucket.shape).masked_fill(pairs.bucket < 0, -torch.inf)


def _find_places(logits: Tensor, pairs: Pairs) -> Tensor:
    """Return the places of the buckets of each pair among all logits (pairs * S,)."""
    return (pairs.row[:, None] * logits.shape[1] + pairs.bucket.clamp(min=0)).reshape(-1)


def _make_targets(logits: Tensor, pairs: Pairs) -> Tensor:
    """Return 1 where a bucket holds a relevant item, in the shape of the logits."""
    there = (pairs.bucket >= 0).to(logits.dtype).reshape(-1)
    target = torch.zeros_like(logits).reshape(-1)
    target.scatter_reduce_(0, _find_places(logits, pairs), there, "amax")
    return target.reshape(logits.shape)


def _cut(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names start with a prefix, without it."""
    return {n.removeprefix(prefix): value for n, value in arrays.items() if n.startswith(prefix)}
