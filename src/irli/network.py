"""The router while it learns: a small torch module, its warm start, and its losses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from irli.router import Router, plain

_TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


class Pairs(NamedTuple):
    """The (query, relevant item) pairs of a batch, as the losses need them."""

    row: Tensor  # (pairs,): the query's place in the batch
    bucket: Tensor  # (pairs, S): the item's buckets, -1 where it has fewer
    weight: Tensor  # (pairs,): sums to 1 over a query's items


class RouterNetwork(nn.Module):
    """f_r: (n, d) -> (n, B) logits, in the form described in `irli.router`.

    Queries are centred and scaled to unit length on average before they enter, so that one
    learning rate suits pixels and unit vectors alike; `freeze` folds that into the weights.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, dim: int, linear: int, hidden: int, buckets: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, linear, bias=False) if linear else None
        self.hidden = nn.Linear(dim, hidden)
        self.out = nn.Linear(linear + hidden, buckets)
        self.register_buffer("centre", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, queries: Tensor) -> Tensor:
        x = (queries - self.centre) / self.scale
        # The ReLU part sees coordinates of unit variance: else it hardly learns in our few steps.
        features = torch.relu(self.hidden(x * x.shape[1] ** 0.5))
        if self.linear is not None:
            features = torch.cat([self.linear(x), features], dim=1)
        logits: Tensor = self.out(features)
        return logits

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.out.weight.device

    @torch.no_grad()
    def standardise(self, vectors: Tensor) -> None:
        """Measure centre and scale of the inputs."""
        self.centre.copy_(vectors.mean(dim=0))
        spread = (vectors - self.centre).square().sum(dim=1).mean().sqrt()
        self.scale.copy_(spread if spread > 0 else torch.ones(()))

    @torch.no_grad()
    def warm_start(
        self, centroids: Tensor, inner_product: bool, pairs: Pairs, queries: Tensor
    ) -> None:
        """Begin as temperature x centroid scores; the part behind the ReLU begins at zero.

        The linear part keeps the directions in which the centroids differ most. The temperature is
        the one that explains `pairs` best.
        """
        if self.linear is None:
            return
        means = (centroids - self.centre) / self.scale
        width = self.linear.out_features
        _, _, directions = torch.linalg.svd(means - means.mean(dim=0), full_matrices=True)
        self.linear.weight.copy_(directions[:width])
        weight = torch.zeros_like(self.out.weight)
        weight[:, :width] = means @ directions[:width].T
        bias = torch.zeros_like(self.out.bias)
        if not inner_product:  # -|q - c|^2 / 2 = q c - |c|^2 / 2 + a constant of the query
            bias = -means.square().sum(dim=1) / 2
        losses = []
        for temperature in _TEMPERATURES:
            self.out.weight.copy_(temperature * weight)
            self.out.bias.copy_(temperature * bias)
            losses.append(softmax_loss(self(queries), pairs).item())
        best = _TEMPERATURES[int(np.argmin(losses))]
        self.out.weight.copy_(best * weight)
        self.out.bias.copy_(best * bias)

    @torch.no_grad()
    def freeze(self) -> Router:
        """Return the weights as plain arrays that take raw queries."""
        weights = [] if self.linear is None else [self.linear.weight]
        weights.append(self.hidden.weight * self.hidden.in_features**0.5)
        weight = torch.cat(weights) / self.scale
        linear = 0 if self.linear is None else self.linear.out_features
        shift = torch.cat([torch.zeros(linear, device=weight.device), self.hidden.bias])
        return plain(
            project=_array(weight.T),
            shift=_array(shift - weight @ self.centre),
            linear=linear,
            out=_array(self.out.weight.T),
            bias=_array(self.out.bias),
        )


def softmax_loss(logits: Tensor, pairs: Pairs) -> Tensor:
    """Cross-entropy on the buckets of the relevant items.

    An item with two buckets is found in either, so its probability is the sum of both. With one
    bucket each this is the cross-entropy with the histogram of the relevant items' buckets.
    """
    item = torch.logsumexp(_of_pairs(logits, pairs), dim=1)
    total = torch.logsumexp(logits, dim=1)
    return (pairs.weight * (total[pairs.row] - item)).sum() / pairs.weight.sum()


def sigmoid_bce_loss(logits: Tensor, pairs: Pairs) -> Tensor:
    """Binary cross-entropy over "the bucket holds a relevant item", sigmoid (the authors' code)."""
    return nn.functional.binary_cross_entropy_with_logits(logits, _holds(logits, pairs))


def softmax_bce_loss(logits: Tensor, pairs: Pairs) -> Tensor:
    """Binary cross-entropy over "the bucket holds a relevant item", softmax (the paper's text)."""
    probability = torch.softmax(logits, dim=1).clamp(1e-7, 1 - 1e-7)
    return nn.functional.binary_cross_entropy(probability, _holds(logits, pairs))


LOSS = {
    "softmax": softmax_loss,
    "sigmoid-bce": sigmoid_bce_loss,
    "softmax-bce": softmax_bce_loss,
}


def _of_pairs(logits: Tensor, pairs: Pairs) -> Tensor:
    """Return the logits of each pair's buckets (pairs, S), -inf where there is none."""
    place = pairs.row[:, None] * logits.shape[1] + pairs.bucket.clamp(min=0)
    values = logits.reshape(-1).gather(0, place.reshape(-1)).reshape(pairs.bucket.shape)
    return values.masked_fill(pairs.bucket < 0, -torch.inf)


def _holds(logits: Tensor, pairs: Pairs) -> Tensor:
    target = torch.zeros_like(logits)
    row = pairs.row[:, None].expand_as(pairs.bucket)
    there = pairs.bucket >= 0
    target[row[there], pairs.bucket[there]] = 1.0
    return target


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=np.float32)
