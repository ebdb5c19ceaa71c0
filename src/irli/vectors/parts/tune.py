"""tune_parts: find search parameters for all parts whose merged results reach a recall."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.parts.group import PartGroup
from irli.engine.metric import prepare_vectors
from irli.vectors.build.held_out import HeldOut, hold_out, require_queries
from irli.vectors.build.problem import HELD_MOST
from irli.vectors.tune_result import TuneResult
from irli.vectors.tuning.tune import tune


def tune_parts(
    group: PartGroup,
    recall: float,
    k: int,
    queries: NDArray[np.float32] | None,
    held: NDArray[np.float32],
) -> TuneResult:
    """Find parameters for all parts whose merged results reach `recall` at k.

    Parameters
    ----------
    queries : array of shape (n, d), optional
        Queries to tune with. By default the held-out items of all parts, and `held`.
    held : array of shape (v, d)
        Sample queries that no part has learned from.
    """

    def ask(method: str, *arguments: Any) -> list[Any]:
        return group.ask("measure", method, *arguments).values

    stats = group.facts[0]["stats"]
    metric, by_votes = stats["metric"], stats["recipe"]["search"] == "votes"
    if queries is None:
        tuning = _join_held_out(group, held)
    else:
        tuning = hold_out(prepare_vectors(queries, metric))
    require_queries(tuning.queries)
    return tune(ask, tuning, metric, recall, k, by_votes=by_votes)


def _join_held_out(group: PartGroup, queries: NDArray[np.float32]) -> HeldOut:
    """Return held-out items of all parts, and sample queries (n, d).

    A single part holds out sample queries by itself.
    """
    parts: list[HeldOut] = group.ask("held_out").values
    if len(parts) == 1:
        return parts[0]
    most = -(-HELD_MOST // len(parts))
    items = [part.queries[part.rows >= 0] for part in parts]
    some = np.concatenate([each[:: max(1, len(each) // most)] for each in items])
    rows = np.concatenate([np.zeros(len(some), np.int64), np.full(len(queries), -1)])
    return hold_out(np.concatenate([some, queries]), rows)
