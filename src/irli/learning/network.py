"""`Network`: what learning asks of a network. `NativeNetwork` trains by kernels, on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from irli import _native
from irli.base.threads import run_all
from irli.base.types import Arrays, Rows
from irli.engine.top_k import log_sum_exps, top_k
from irli.learning.problem import Problem
from irli.learning.threads import current_threads
from irli.learning.weights import Weights

LOSSES = ("softmax", "sigmoid-bce", "softmax-bce")  # the kernels use the position
_ROWS = 256  # queries for a thread at a time
_WEIGHTS = ("project", "shift", "out", "bias")
_MOMENTS = ("first", "second")

Floats = NDArray[np.float32]


class Lesson:
    """What a network learns from: queries, their relevant items, and how far queries are moved.

    Attributes
    ----------
    queries : float32 array or CSR of shape (n, d)
    indptr, indices, weights : arrays of a CSR of shape (n, N)
        The relevance of the items to each query.
    noise : float32 array of shape (n,), optional
        About how far each dense query is moved, so that the router learns regions.
    """

    def __init__(self, problem: Problem, weights: Floats, noise: Floats | None) -> None:
        self.queries = problem.queries
        self.indptr: NDArray[Any] = np.asarray(problem.indptr)
        self.indices: NDArray[Any] = np.asarray(problem.indices)
        self.weights, self.noise = weights, noise
        self.items = len(problem.items)

    @cached_property
    def native(self) -> tuple[Any, Any]:
        """Queries and pairs as kernels take them. They check them once."""
        pairs = _native.TrainingPairs(self.indptr, self.indices, self.weights, self.items)
        return _wrap(self.queries), pairs


class Network(Protocol):
    """f_r: queries (n, d) -> logits (n, H, B)."""

    heads: int
    buckets: int
    weights: Weights

    def learn(
        self,
        lesson: Lesson,
        assignments: Sequence[NDArray[np.int32]],
        rows: NDArray[np.int64],
        rates: NDArray[np.float64],
    ) -> float:
        """Take a step for each batch of `rows`, one for each of the `rates`. Return the mean loss.

        `assignments` are the buckets (N, S) of each item, for each head.
        """

    def score(self, queries: Rows, head: int) -> Floats:
        """Return the logits (n, B) of one head."""

    def rank(
        self, queries: Rows, head: int, count: int, marginal: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return the best buckets (n, count) of one head, and their log-probabilities.

        The probabilities of all buckets are added to `marginal` (B,).
        """

    def read(self) -> Weights:
        """Return the weights."""

    def state(self) -> Arrays:
        """Return all that later steps depend on."""

    def restore(self, state: Arrays) -> None:
        """Go on from a `state`."""


class NativeNetwork:
    """A network that kernels train. The number of threads changes no bit."""

    def __init__(self, weights: Weights, sparse: bool, loss: str, rates: Rates, seed: int) -> None:
        self.weights, self.sparse, self.seed = weights, sparse, seed
        self.loss = LOSSES.index(loss)
        self.heads, self.buckets, width = weights.out.shape
        dim, linear = len(weights.project), weights.linear
        self.trainer = _native.Trainer(dim, linear, width, self.heads, self.buckets, sparse)
        for name in (*_WEIGHTS, "centre"):
            self.trainer.write(name, np.ascontiguousarray(getattr(weights, name)).reshape(-1))
        for name, columns in rates.list_columns(weights).items():
            self.trainer.write(name, columns)
        self.trainer.set_scale(1 / weights.scale)
        self.trainer.soften(weights.near, weights.most, weights.slope)
        self.steps = self.drawn = 0

    def learn(
        self,
        lesson: Lesson,
        assignments: Sequence[NDArray[np.int32]],
        rows: NDArray[np.int64],
        rates: NDArray[np.float64],
    ) -> float:
        """Take a step for each batch. See `Network`."""
        queries, pairs = lesson.native
        batch, losses, done, step = -(-len(rows) // len(rates)), np.empty(len(rates)), 0, 0
        while done < len(rows):  # kernels return now and then, so that an interrupt is seen
            done += self.trainer.train(
                queries,
                pairs,
                [np.ascontiguousarray(each) for each in assignments],
                lesson.noise,
                self.seed,
                self.loss,
                rows[done:],
                self.drawn + done,
                batch,
                rates[step:],
                self.steps + step,
                current_threads(),
                losses[step:],
            )
            step = -(-done // batch)
        self.steps += len(rates)
        self.drawn += len(rows)
        return float(losses.mean())

    def score(self, queries: Rows, head: int) -> Floats:
        """Return the logits (n, B) of one head."""
        wrapped, count = _wrap(queries), queries.shape[0]
        logits = np.empty((count, self.buckets), dtype=np.float32)
        rows = np.arange(count)
        parts = [slice(start, start + _ROWS) for start in range(0, count, _ROWS)]
        score = self.trainer.score
        run_all(
            [partial(score, wrapped, head, rows[part], logits[part]) for part in parts],
            current_threads(),
        )
        return logits

    def rank(
        self, queries: Rows, head: int, count: int, marginal: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return the best buckets. See `Network`."""
        logits, threads = self.score(queries, head), current_threads()
        total = log_sum_exps(logits, threads)
        values, places = top_k(logits, count, threads)
        if marginal is not None:
            marginal += np.exp(logits - total).sum(axis=0)
        return places, values - total

    def read(self) -> Weights:
        """Return the weights."""
        for name in _WEIGHTS:
            self._read(name, getattr(self.weights, name))
        return self.weights

    def state(self) -> Arrays:
        """Return all that later steps depend on."""
        weights = self.read()
        arrays = {name: getattr(weights, name).copy() for name in _WEIGHTS}
        for name in list(arrays):
            for moment in _MOMENTS:
                arrays[f"{name}.{moment}"] = np.empty_like(arrays[name])
                self._read(f"{name}.{moment}", arrays[f"{name}.{moment}"])
        arrays["count"] = np.array([self.steps, self.drawn])
        return arrays

    def restore(self, state: Arrays) -> None:
        """Go on from a `state`."""
        state = dict(state)
        self.steps, self.drawn = (int(number) for number in state.pop("count"))
        for name, values in state.items():
            self.trainer.write(name, np.ascontiguousarray(values).reshape(-1))

    def _read(self, name: str, out: Floats) -> None:
        values = np.empty(out.size, dtype=np.float32)
        self.trainer.read(name, values)
        out[...] = values.reshape(out.shape)  # which need not be contiguous


class Rates:
    """How fast the parts of a network learn, relative to the learning rate of a step."""

    def __init__(self, linear: float = 1.0, sparse: float = 1.0) -> None:
        self.linear = linear  # of the columns that skip the ReLU
        self.sparse = sparse  # of the weights of sparse features

    def list_columns(self, weights: Weights) -> dict[str, Floats]:
        """Return the rates of the columns of `project` and `shift`, by the kernels' names."""
        width, linear = weights.project.shape[1], weights.linear
        project = np.full(width, self.sparse * weights.gain, dtype=np.float32)
        project[:linear] = self.linear
        shift = np.ones(width, dtype=np.float32)
        shift[:linear] = 0
        return {"project_rates": project, "shift_rates": shift}


def log_scores(logits: Floats, loss: str) -> Floats:
    """Return log f(x) (n, B), of the f that the loss trains: a sigmoid or a softmax of the logits.

    Examples
    --------
    >>> np.exp(log_scores(np.zeros((1, 4), dtype=np.float32), "sigmoid-bce"))
    array([[0.5, 0.5, 0.5, 0.5]], dtype=float32)
    """
    if loss == "sigmoid-bce":
        return np.asarray(-np.logaddexp(0, -logits), dtype=np.float32)
    return logits - log_sum_exps(logits, current_threads())


def _wrap(queries: Rows) -> Any:
    """Return queries as kernels take them."""
    if isinstance(queries, np.ndarray):
        dense = np.ascontiguousarray(queries, dtype=np.float32)
        return _native.TrainingQueries(dense, None, None, None, queries.shape[1])
    return _native.TrainingQueries(
        None,
        queries.indptr.astype(np.int64),
        queries.indices.astype(np.int32),
        queries.data.astype(np.float32),
        queries.shape[1],
    )
