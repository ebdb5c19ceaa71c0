"""`Weights`: the weights of a network while it learns, its first ones, and routers made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irli.base.types import Rows
from irli.engine.router import Router, make_router
from irli.engine.top_k import log_sum_exps

_SPARSE_SPREAD = 0.1  # initial spread of the feature vectors, so that logits start small
_BLOCK = 65_536  # rows added up at a time
_REACHES = (np.inf, *(4.0**-power for power in range(12)))  # that are tried, squared
# Up to 2^24: where items are dense in some places, buckets are tiny beside the whole of the data.
_SHARPEST = 24  # the highest power of two that is tried as a factor of the centroid scores

Floats = NDArray[np.float32]


@dataclass
class Weights:
    """The weights of H heads on one trunk: the routers of H repetitions that learn together.

    Queries (n, d) less `centre`, divided by `scale`, become features and logits in the form that
    `irli.engine.router` describes. In the paper, each repetition has its own network with one head.

    Attributes
    ----------
    linear : int
        The first `linear` columns of the features skip the ReLU.
    project, shift : float32 arrays of shape (d, G) and (G,)
    out, bias : float32 arrays of shape (H, B, G) and (H, B)
    centre : float32 array of shape (d,)
        Zeros for sparse queries, which are not centred.
    scale : float
    gain : float
        How much faster the columns with a ReLU learn. They need queries of unit variance.
    near, most, slope : float
        The squared distance to the nearest centroid makes logits smaller: it counts by `near`, up
        to `most`. `slope` turns a logit into a distance. All are 0 if all queries are as sure.
    """

    linear: int
    project: Floats
    shift: Floats
    out: Floats
    bias: Floats
    centre: Floats
    scale: float = 1.0
    gain: float = 1.0
    near: float = 0.0
    most: float = 0.0
    slope: float = 0.0

    @property
    def sharpness(self) -> float:
        """The factor of the centroid scores that learning started with. 1 without a warm start.

        A step of the linear columns changes the logits by as much.
        """
        return 2 / self.slope if self.slope > 0 else 1.0

    def standardize(self, rows: Rows) -> None:
        """Set centre and scale from `rows`: queries have unit length on average, dense ones mean 0.

        So one learning rate suits pixels as well as unit vectors.
        """
        if not isinstance(rows, np.ndarray):
            length = float(np.sqrt((rows.data.astype(np.float64) ** 2).sum() / rows.shape[0]))
            self.scale = length or 1.0
            return
        centre = sum(block.sum(axis=0, dtype=np.float64) for block in _cut(rows)) / len(rows)
        self.centre = np.asarray(centre, dtype=np.float32)
        square = sum(float(np.square(block - centre).sum()) for block in _cut(rows))
        self.scale = (square / len(rows)) ** 0.5 or 1.0
        self.project[:, self.linear :] *= rows.shape[1] ** 0.5 / self.gain
        self.gain = rows.shape[1] ** 0.5

    def rescale(self, rows: Floats) -> None:
        """Scale queries and features as those of a new network. It changes no logit."""
        if not self.near:  # else distances are those from the old centre
            centre = sum(block.sum(axis=0, dtype=np.float64) for block in _cut(rows)) / len(rows)
            self.centre += np.asarray(centre, dtype=np.float32)
            self.shift += np.asarray(centre @ self.project, dtype=np.float32)
        square = sum(float(np.square(block - self.centre).sum()) for block in _cut(rows))
        self.scale = (square / len(rows)) ** 0.5 or 1.0
        self.gain = rows.shape[1] ** 0.5
        lengths = np.linalg.norm(self.project, axis=0) * self.scale
        usual = np.full(len(lengths), self.gain / 3**0.5)  # of numbers from [-1, 1]
        usual[: self.linear] = 1.0
        factor = np.divide(usual, lengths, out=np.ones_like(usual), where=lengths > 0)
        self.project *= (self.scale * factor).astype(np.float32)
        self.shift *= factor.astype(np.float32)
        self.out /= factor.astype(np.float32)
        self.near *= self.scale**2
        self.most /= self.scale**2
        self.slope /= self.scale**2
        if self.linear and not self.slope:  # centroids are about as long as queries
            sharpness = np.linalg.norm(self.out[..., : self.linear], axis=2).mean()
            self.slope = 2 / max(1.0, float(sharpness))

    def start_from_centroids(
        self,
        centroids: Floats,
        inner_product: bool,
        queries: Floats,
        wanted: tuple[NDArray[np.int64], NDArray[np.int32], Floats],
        soften: bool = True,
    ) -> None:
        """Start with centroid scores, and a ReLU part at zero.

        The linear columns keep the directions in which the centroids differ most. How sharp the
        scores are, and how much less so far from the centroids unless not to `soften` them, is what
        has the lowest loss on some queries. Only for one head.

        Parameters
        ----------
        wanted : tuple of arrays of shape (pairs,), (pairs, S) and (pairs,)
            The row of each (query, relevant item) pair, the item's buckets, and its weight.
        """
        means = (centroids - self.centre) / np.float32(self.scale)
        differences = (means - means.mean(axis=0)).astype(np.float64)
        directions = np.linalg.eigh(differences.T @ differences)[1].T[::-1][: self.linear]
        directions = directions.astype(np.float32)
        self.project[:, : self.linear] = directions.T
        self.out[:] = 0
        self.out[0, :, : self.linear] = means @ directions.T
        self.bias[:] = 0
        if not inner_product:  # -|q - c|^2 / 2 = q c - |c|^2 / 2 + a constant of the query
            self.bias[0] = -np.square(means).sum(axis=1) / 2
        x = (queries - self.centre) / np.float32(self.scale)
        scores = x @ directions.T @ self.out[0, :, : self.linear].T + self.bias[0]
        nearest = np.square(x).sum(axis=1, keepdims=True) - 2 * scores.max(axis=1, keepdims=True)
        nearest = np.maximum(nearest, 0)
        reaches = _REACHES if soften and not inner_product else _REACHES[:1]
        factor, self.near = _choose_temperature(scores, nearest, wanted, reaches)
        self.most = float(nearest.max())
        self.slope = 2 / factor
        self.out *= np.float32(factor)
        self.bias *= np.float32(factor)

    def to_routers(self) -> list[Router]:
        """Return the heads as routers for raw queries. They share the arrays of the trunk."""
        project = np.ascontiguousarray(self.project / np.float32(self.scale))
        shift = self.shift - self.centre @ project
        soften = self.near / self.scale**2, self.near * self.slope, self.near * self.most
        centre = self.centre if self.near else None
        return [
            make_router(
                project, shift, self.linear, np.ascontiguousarray(out.T), bias, centre, soften
            )
            for out, bias in zip(self.out, self.bias, strict=True)
        ]


def draw_weights(
    shape: tuple[int, int, int],
    buckets: int,
    heads: int,
    sparse: bool,
    rng: np.random.Generator,
) -> Weights:
    """Return random weights of `shape` (d, linear, hidden), as layers of torch start.

    Examples
    --------
    >>> weights = draw_weights((5, 2, 3), 4, 1, False, np.random.default_rng(0))
    >>> weights.project.shape, weights.out.shape
    ((5, 5), (1, 4, 5))
    """
    dim, linear, hidden = shape
    width = linear + hidden
    project, shift = np.zeros((dim, width), dtype=np.float32), np.zeros(width, dtype=np.float32)
    if sparse:
        project[:] = rng.normal(scale=_SPARSE_SPREAD, size=project.shape)
    else:
        project[:] = _draw(project.shape, dim, rng)
        shift[linear:] = _draw((hidden,), dim, rng)
    return Weights(
        linear,
        project,
        shift,
        _draw((heads, buckets, width), width, rng),
        _draw((heads, buckets), width, rng),
        np.zeros(dim, dtype=np.float32),
    )


def read_routers(routers: list[Router], rows: Floats | None = None) -> Weights:
    """Return the weights of routers that share a trunk, to learn on from.

    Rounding to 8 bits has scaled their features. With dense `rows`, typical queries, features and
    queries get the scale that `standardize` and a warm start give them, which changes no logit.

    Examples
    --------
    >>> weights = draw_weights((5, 0, 3), 4, 2, True, np.random.default_rng(0))
    >>> again = read_routers(weights.to_routers())
    >>> np.array_equal(again.out, weights.out)
    True
    """
    first = routers[0].to_float()
    centre = np.array(first.centre)
    weights = Weights(
        first.linear,
        np.array(first.project),
        first.shift + centre @ first.project,
        np.stack([router.to_float().weights.T for router in routers]),
        np.stack([router.bias for router in routers]),
        centre,
    )
    weights.near, by_logit, most = (float(number) for number in first.soften)
    if weights.near:
        weights.most, weights.slope = most / weights.near, by_logit / weights.near
    if rows is not None:
        weights.rescale(rows)
    return weights


def _cut(rows: Floats) -> Iterator[Floats]:
    for start in range(0, len(rows), _BLOCK):
        yield rows[start : start + _BLOCK]


def _draw(shape: tuple[int, ...], inputs: int, rng: np.random.Generator) -> Floats:
    most = inputs**-0.5
    return rng.uniform(-most, most, size=shape).astype(np.float32)


def _choose_temperature(
    scores: Floats,
    nearest: Floats,
    wanted: tuple[NDArray[np.int64], NDArray[np.int32], Floats],
    reaches: tuple[float, ...],
) -> tuple[float, float]:
    """Return the factor of the centroid scores (n, B) and `near` of the lowest loss."""
    rows, buckets, weights = wanted
    best = np.inf, 1.0, 0.0
    for reach in reaches:
        softer = scores / (1 + nearest / np.float32(reach))
        found = softer[rows[:, None], np.maximum(buckets, 0)]
        found[buckets < 0] = -np.inf
        top = softer.max(axis=1, keepdims=True)
        least = np.inf
        for power in range(_SHARPEST + 1):
            factor = np.float32(2.0**power)
            total = log_sum_exps(factor * (softer - top), threads=1)[:, 0]
            ahead = factor * (found - top[rows])
            item = np.log(np.maximum(np.exp(ahead).sum(axis=1), np.float32(1e-38)))
            item = np.maximum(item, ahead.max(axis=1))
            loss = float((weights * (total[rows] - item)).sum() / weights.sum())
            if loss > least:  # no higher factor is better
                break
            least = loss
            best = min(best, (loss, 2.0**power, 1 / reach))
    return best[1], best[2]
