"""`Router`: a trained router f_r as plain arrays, its int8 form, and its scores.

Every router has the same form:

    features = [ P q | relu(H q + h) ]        log-probabilities = log softmax(features W + w)

The paper's network has no linear part P. The warm-started router has one. Its P and W start as
centroid scores. Its ReLU part starts at zero and learns a correction. It also *softens* the logits
z = features W + w of a query that is far from all centroids, and so less sure:

    z / (1 + min(most, max(0, s |q - centre|^2 - t max z)))

Where z are centroid scores, the maximum is the squared distance to the nearest centroid. It counts
only up to that of the farthest training queries.

With thousands of buckets, W takes nearly all of the time. An *int8* router keeps W in 8 bits: a
quarter of the memory to read, and one instruction for 64 products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import PANEL, ZERO
from irli.engine.int8 import balance, tile, untile
from irli.errors import FormatError


class Router(NamedTuple):
    """The weights of one router. See `make_router` and `to_int8`."""

    project: NDArray[np.float32]  # (d, G): from queries to features before the ReLU
    shift: NDArray[np.float32]  # (G,)
    linear: int  # the first `linear` features skip the ReLU
    weights: NDArray[np.float32]  # (G, B): W, or (0, B) of an int8 router
    bytes: NDArray[np.int8]  # (B / 64, G / 4, 64, 4): W of an int8 router in steps, or empty
    step: NDArray[np.float32]  # (B,): the value of one step
    zero: NDArray[np.int32]  # (B,): the sums for features of bytes 64, which stand for zero
    bias: NDArray[np.float32]  # (B,)
    centre: NDArray[np.float32]  # (d,): of all items
    soften: NDArray[np.float32]  # (3,): s, t and most, or zeros if logits are not softened

    @property
    def buckets(self) -> int:
        """B."""
        return len(self.bias)

    def log_probabilities(self, queries: Any) -> NDArray[np.float32]:
        """Return the log-probabilities (n, B) for queries (n, d), dense or CSR."""
        features = self._compute_features(queries)
        if self.bytes.size:
            logits = _round_features(features) @ self._dequantize() + self.bias
        else:
            logits = features @ self.weights + self.bias
        logits = self._soften(queries, logits)
        logits -= logits.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return logits.astype(np.float32)

    def _compute_features(self, queries: Any) -> NDArray[np.float32]:
        features: NDArray[np.float32] = queries @ self.project + self.shift
        np.maximum(features[:, self.linear :], 0, out=features[:, self.linear :])
        return features

    def _soften(self, queries: Any, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits (n, B), smaller for queries that are far from all buckets."""
        by_length, by_logit, most = self.soften
        if by_length == 0:
            return logits
        length = np.square(queries - self.centre).sum(axis=1, keepdims=True)
        far = by_length * length - by_logit * logits.max(axis=1, keepdims=True)
        softened: NDArray[np.float32] = logits / (1 + np.clip(far, 0, most))
        return softened

    def to_int8(self, sample: NDArray[np.float32]) -> Router:
        """Return the router with 8-bit weights.

        Parameters
        ----------
        sample : float32 array of shape (n, d)
            Typical queries. They decide how features and weights are scaled before rounding.
        """
        scale = balance(self._compute_features(sample), self.weights)
        weight = self.weights * scale[:, None]
        step = (np.maximum(np.abs(weight).max(axis=0), 1e-30) / 127).astype(np.float32)
        rounded = np.rint(weight / step).astype(np.int8)
        return self._replace(
            # A positive factor can be moved through the ReLU.
            project=np.ascontiguousarray(self.project / scale),
            shift=self.shift / scale,
            weights=np.empty((0, self.buckets), dtype=np.float32),
            bytes=tile(rounded),
            step=step,
            zero=ZERO * rounded.sum(axis=0, dtype=np.int32),
        )

    def to_float(self) -> Router:
        """Return the router with 32-bit weights, up to the rounding of those of 8 bits."""
        if not self.bytes.size:
            return self
        plain = make_router(self.project, self.shift, self.linear, self._dequantize(), self.bias)
        return plain._replace(centre=self.centre, soften=self.soften)

    def _dequantize(self) -> NDArray[np.float32]:
        """Return W (G, B) of an int8 router as floats."""
        rounded = untile(self.bytes, len(self.shift), self.buckets)
        weights: NDArray[np.float32] = rounded * self.step
        return weights


def make_router(
    project: NDArray[np.float32],
    shift: NDArray[np.float32],
    linear: int,
    out: NDArray[np.float32],
    bias: NDArray[np.float32],
    centre: NDArray[np.float32] | None = None,
    soften: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> Router:
    """Return a router that scores every bucket with all features.

    Examples
    --------
    >>> router = make_router(np.eye(2, dtype="f4"), np.zeros(2, "f4"), 2,
    ...                np.eye(2, 3, dtype="f4"), np.zeros(3, "f4"))
    >>> router.log_probabilities(np.array([[9.0, 0.0]], "f4")).argmax(axis=1)
    array([0])
    """
    buckets = out.shape[1]
    return Router(
        project=project,
        shift=shift,
        linear=linear,
        weights=out,
        bytes=np.empty((0, 0, PANEL, 4), dtype=np.int8),
        step=np.ones(buckets, dtype=np.float32),
        zero=np.empty(0, dtype=np.int32),
        bias=bias,
        centre=np.zeros(project.shape[0], np.float32) if centre is None else centre,
        soften=np.array(soften, dtype=np.float32),
    )


def _round_features(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round features as an int8 router does: to 63 steps of each query's largest feature."""
    step = np.abs(features).max(axis=1, keepdims=True) / 63
    step[step == 0] = 1
    rounded: NDArray[np.float32] = np.rint(features / step) * step
    return rounded


ARRAYS = tuple(name for name in Router._fields if name != "linear")


def pack(routers: Sequence[Router]) -> dict[str, NDArray[Any]]:
    """Stack R routers of one shape into tensors with a leading axis of length R."""
    return {name: np.stack([getattr(router, name) for router in routers]) for name in ARRAYS}


def unpack(tensors: dict[str, NDArray[Any]], linear: int) -> list[Router]:
    """Undo `pack`. `linear` is the same for all repetitions.

    Examples
    --------
    >>> router = make_router(np.ones((2, 3), "f4"), np.zeros(3, "f4"), 1,
    ...                np.ones((3, 4), "f4"), np.zeros(4, "f4"))
    >>> [again] = unpack(pack([router]), 1)
    >>> again.weights.shape
    (3, 4)
    """
    check_names(tensors)
    return [
        Router(linear=linear, **{name: tensors[name][r] for name in ARRAYS})
        for r in range(len(tensors["bias"]))
    ]


def check_names(tensors: dict[str, Any]) -> None:
    """Raise unless all tensors of routers are there."""
    missing = [name for name in ARRAYS if name not in tensors]
    if missing:
        raise FormatError(
            f"The routers of an index must have the tensors {', '.join(ARRAYS)}. "
            f"Got some missing instead: {', '.join(missing)}. Build and save the index again."
        )
