"""blend_shards: weigh the sources once for all shards, on rows that all of them have held out.

Each shard weighs its sources by its own labels. Log-odds that were fitted apart differ by chance,
and the best label of a row is the one whose shard errs upwards. So the candidates of all shards are
put together, and one calibration is fitted for all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.types import Sparse
from irli.labels.tuning.calibration import Calibration, Candidates, fit_calibration
from irli.labels.tuning.objective import Objective
from irli.labels.tuning.tune import Held

_KEPT = 50  # candidates of a row in each shard


def blend_shards(
    parts: list[Held], labels_of: list[NDArray[np.int64]], labels: Sparse, objective: str
) -> Calibration | None:
    """Return the calibration for all shards, or None if they have held out different rows.

    Parameters
    ----------
    parts : list of Held
        Of each shard, with labels as they are numbered there.
    labels_of : list of int arrays
        The labels of each shard.
    labels : CSR of shape (n, L)
        Of all rows and all shards.
    """
    rows = parts[0].rows
    if not all(np.array_equal(part.rows, rows) for part in parts):
        return None
    found = _join([part.found for part in parts], labels_of)
    truth = labels[rows]
    return fit_calibration(found, truth, Objective.of(objective, labels)).fit_curve(found, truth)


def _join(parts: list[Candidates], labels_of: list[NDArray[np.int64]]) -> Candidates:
    """Return the candidates of all shards side by side, numbered as in the whole index."""
    numbered = [
        part._replace(labels=np.append(known, -1)[part.labels])
        for part, known in zip(parts, labels_of, strict=True)
    ]
    joined = Candidates(*(np.concatenate(each, axis=1) for each in zip(*numbered, strict=True)))
    # Votes count only if near rows vote in all shards: else labels of the others would be behind.
    if all(part.votes.any() for part in parts):
        return joined
    return joined._replace(votes=np.zeros_like(joined.votes))


def write_held(path: Path, held: Held, calibration: Calibration) -> None:
    """Write held-out rows to a file, with the best of their candidates by a shard's calibration."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = min(_KEPT, held.found.labels.shape[1])
    best = np.argpartition(-calibration.blend(held.found), kept - 1, axis=1)[:, :kept]
    found: dict[str, Any] = {
        name: np.take_along_axis(values, best, axis=1)
        for name, values in held.found._asdict().items()
    }
    with path.open("wb") as file:
        np.savez(file, rows=held.rows, **found)


def read_held(path: Path) -> Held:
    """Read what `write_held` wrote."""
    with np.load(path) as arrays:
        return Held(arrays["rows"], Candidates(*(arrays[name] for name in Candidates._fields)))
