"""The router network in torch: its layers, its warm start from centroids, and its losses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from irli.base.types import Rows
from irli.engine.router import Router, make_router
from irli.learning.batches import Bag, Batch

_SPARSE_SPREAD = 0.1  # initial spread of the feature vectors, so that logits start small
_BLOCK = 65_536  # rows added up at a time
_REACHES = (torch.inf, *(4.0**-power for power in range(12)))  # that are tried, squared
# Up to 2^24: where items are dense in some places, buckets are tiny beside the whole of the data.
_SHARPEST = 24  # the highest power of two that is tried as a factor of the centroid scores


class Pairs(NamedTuple):
    """The (query, relevant item) pairs of a batch, as the losses need them."""

    row: Tensor  # (pairs,): the row of the query in the logits
    bucket: Tensor  # (pairs, S): the item's buckets, -1 where it has fewer
    weight: Tensor  # (pairs,): sums to 1 over the items of a query


class Bagged(nn.Module):
    """A linear layer for sparse rows: a weighted sum of the vectors of a row's features.

    Only the vectors of the features in a batch get a gradient. So the cost of a step does not
    depend on the number of features.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(dim, width, mode="sum", sparse=True)
        nn.init.normal_(self.table.weight, std=_SPARSE_SPREAD)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, rows: Bag) -> Tensor:
        total: Tensor = self.table(rows.features, rows.offsets, rows.values)
        return total + self.bias


class RouterNetwork(nn.Module):
    """f_r: queries (n, d) -> logits (n, H, B), in the form described in `irli.engine.router`.

    H heads on one trunk are the routers of H repetitions that learn together. In the paper, each
    repetition has its own network with one head.

    After `standardize`, queries are scaled to unit length on average, and dense queries are also
    centred. So one learning rate suits pixels as well as unit vectors. `to_routers` folds this into
    the weights.

    After `warm_start`, a query that is far from all centroids has smaller logits: it is less sure.
    One temperature for all would be too low where items are dense, or too high elsewhere.
    """

    centre: Tensor
    scale: Tensor
    near: Tensor
    most: Tensor
    slope: Tensor

    def __init__(
        self,
        dim: int,
        linear: int,
        hidden: int,
        buckets: int,
        heads: int = 1,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, linear, bias=False) if linear else None
        self.hidden = Bagged(dim, hidden) if sparse else nn.Linear(dim, hidden)
        self.out = nn.Linear(linear + hidden, heads * buckets)
        self.heads, self.buckets = heads, buckets
        self.gain = 1.0  # of the inputs of the ReLU part
        self.softens = False  # whether `near` is not 0, known without asking the device
        self.register_buffer("centre", torch.zeros(dim if not sparse else 0))
        self.register_buffer("scale", torch.ones(()))
        # The squared distance to the nearest centroid counts by `near`, up to `most`. `slope` turns
        # a logit into a distance. All are 0 if all queries have the same temperature.
        self.register_buffer("near", torch.zeros(()))
        self.register_buffer("most", torch.zeros(()))
        self.register_buffer("slope", torch.zeros(()))

    def forward(self, queries: Batch) -> Tensor:
        logits: Tensor = self.out(self._compute_features(queries))
        return self._soften(queries, logits.reshape(-1, self.heads, self.buckets))

    def score(self, queries: Batch, head: int) -> Tensor:
        """Return the logits of one head (n, B)."""
        part = slice(head * self.buckets, (head + 1) * self.buckets)
        features = self._compute_features(queries)
        logits = nn.functional.linear(features, self.out.weight[part], self.out.bias[part])
        return self._soften(queries, logits)

    def _soften(self, queries: Batch, logits: Tensor) -> Tensor:
        """Return the logits (n, ..., B), smaller for queries that are far from all centroids."""
        if not self.softens or isinstance(queries, Bag):
            return logits
        length = ((queries - self.centre) / self.scale).square().sum(dim=1)
        length = length.reshape(-1, *[1] * (logits.dim() - 1))
        distance = length - self.slope * logits.amax(dim=-1, keepdim=True)
        return logits / (1 + self.near * distance.clamp(min=0).minimum(self.most))

    def _compute_features(self, queries: Batch) -> Tensor:
        if isinstance(queries, Bag):
            return torch.relu(self.hidden(queries._replace(values=queries.values / self.scale)))
        x = (queries - self.centre) / self.scale
        features = torch.relu(self.hidden(x * self.gain))
        if self.linear is not None:
            features = torch.cat([self.linear(x), features], dim=1)
        return features

    @property
    def sharpness(self) -> float:
        """The factor of the centroid scores that the router started with. 1 without a warm start.

        A step of the projection changes the logits by as much.
        """
        return 2 / float(self.slope) if self.slope > 0 else 1.0

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.out.weight.device

    @torch.no_grad()
    def standardize(self, rows: Rows) -> None:
        """Set the centre and the scale of the inputs from `rows`."""
        if not isinstance(rows, np.ndarray):
            length = float(np.sqrt((rows.data.astype(np.float64) ** 2).sum() / rows.shape[0]))
            self.scale.fill_(length or 1.0)
            return
        blocks = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
        centre = sum(block.sum(axis=0, dtype=np.float64) for block in blocks) / len(rows)
        self.centre.copy_(torch.from_numpy(centre))
        square = sum(float(np.square(block - centre).sum()) for block in blocks)
        self.scale.fill_((square / len(rows)) ** 0.5 or 1.0)
        # The ReLU part needs coordinates of unit variance, or it learns too slowly.
        self.gain = rows.shape[1] ** 0.5

    @torch.no_grad()
    def warm_start(
        self,
        centroids: Tensor,
        inner_product: bool,
        pairs: Pairs,
        queries: Batch,
        soften: bool = True,
    ) -> None:
        """Start with centroid scores, and a ReLU part at zero.

        The linear part keeps the directions in which the centroids differ most. How sharp the
        scores are, and how much less so far from the centroids unless not to `soften` them, is what
        has the lowest loss on `pairs`. Only for a network with one head.
        """
        if self.linear is None or isinstance(queries, Bag):
            return
        means = (centroids - self.centre) / self.scale
        width = self.linear.out_features
        differences = (means - means.mean(dim=0)).double()
        directions = (
            torch.linalg.eigh(differences.T @ differences).eigenvectors.T.flip(0).to(means.dtype)
        )
        self.linear.weight.copy_(directions[:width])
        self.out.weight.zero_()
        self.out.weight[:, :width] = means @ directions[:width].T
        self.out.bias.zero_()
        if not inner_product:  # -|q - c|^2 / 2 = q c - |c|^2 / 2 + a constant of the query
            self.out.bias.copy_(-means.square().sum(dim=1) / 2)
        reaches = _REACHES if soften and not inner_product else _REACHES[:1]
        factor, near, most = self._choose_temperature(reaches, pairs, queries)
        self.out.weight.mul_(factor)
        self.out.bias.mul_(factor)
        self.near.fill_(near)
        self.softens = near > 0
        self.most.fill_(most)
        self.slope.fill_(2 / factor)

    def _choose_temperature(
        self, reaches: tuple[float, ...], pairs: Pairs, queries: Tensor
    ) -> tuple[float, float, float]:
        """Return the factor of the centroid scores and `near` of the lowest loss, and `most`."""
        scores = self(queries)[:, 0]
        nearest = (queries - self.centre).div(self.scale).square().sum(dim=1, keepdim=True)
        nearest = (nearest - 2 * scores.amax(dim=1, keepdim=True)).clamp(min=0)
        most = float(nearest.max())
        best = torch.inf, 1.0, 0.0
        for reach in reaches:
            softer = scores / (1 + nearest / reach)
            least = torch.inf
            for power in range(_SHARPEST + 1):
                loss = softmax_loss(2.0**power * softer, pairs).item()
                if loss > least:  # no higher factor is better
                    break
                least = loss
                best = min(best, (loss, 2.0**power, 1 / reach))
        return best[1], best[2], most

    @torch.no_grad()
    def load_routers(self, routers: list[Router]) -> None:
        """Start with the weights that `to_routers` returned. For a network without linear part."""
        project = torch.from_numpy(np.array(routers[0].project))
        shift = torch.from_numpy(np.array(routers[0].shift))
        self.centre.zero_()
        self.scale.fill_(1)
        if isinstance(self.hidden, Bagged):
            self.hidden.table.weight.copy_(project)
        else:
            self.hidden.weight.copy_(project.T / self.gain)
        self.hidden.bias.copy_(shift)
        self.out.weight.copy_(torch.from_numpy(np.concatenate([r.weights.T for r in routers])))
        self.out.bias.copy_(torch.from_numpy(np.concatenate([r.bias for r in routers])))

    @torch.no_grad()
    def to_routers(self) -> list[Router]:
        """Return the heads as plain arrays for raw queries. The arrays of the trunk are shared."""
        if isinstance(self.hidden, Bagged):
            linear = 0
            project, shift = self.hidden.table.weight / self.scale, self.hidden.bias.detach()
        else:
            weights = [] if self.linear is None else [self.linear.weight]
            weights.append(self.hidden.weight * self.gain)
            weight = torch.cat(weights) / self.scale
            linear = 0 if self.linear is None else self.linear.out_features
            zeros = torch.zeros(linear, device=weight.device)
            project = weight.T
            shift = torch.cat([zeros, self.hidden.bias]) - weight @ self.centre
        trunk, offset = _to_array(project), _to_array(shift)
        out = self.out.weight.reshape(self.heads, self.buckets, -1)
        bias = self.out.bias.reshape(self.heads, self.buckets)
        near, slope = float(self.near), float(self.slope)
        soften = near / float(self.scale) ** 2, near * slope, near * float(self.most)
        centre = _to_array(self.centre) if near else None
        return [
            make_router(
                trunk, offset, linear, _to_array(out[h].T), _to_array(bias[h]), centre, soften
            )
            for h in range(self.heads)
        ]


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


def log_scores(logits: Tensor, loss: str) -> Tensor:
    """Return log f(x) (n, B), of the f that the loss trains: a sigmoid or a softmax of the logits.

    Examples
    --------
    >>> log_scores(torch.zeros(1, 4), "sigmoid-bce").exp()
    tensor([[0.5000, 0.5000, 0.5000, 0.5000]])
    """
    if loss == "sigmoid-bce":
        return nn.functional.logsigmoid(logits)
    return torch.log_softmax(logits, dim=1)


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


def _to_array(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=np.float32)
