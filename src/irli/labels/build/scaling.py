"""Scaling: rows as routers or ranker see them. `fit` chooses one on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.types import Rows
from irli.labels.build.features import to_arrays

SCALINGS = ("given", "unit", "tf-idf", "standard")
_ROUNDING = 1e-7  # share of its mean by which a column changes that is constant but for rounding
_LARGEST = np.finfo(np.float32).max
_FAR = 1e6  # rows that are so many times as long are not learned as they are
_UNIT = 1e-2  # lengths that differ from 1 by less are 1: files have few digits


class Scaling(NamedTuple):
    """How to scale rows.

    Attributes
    ----------
    name : {"given", "unit", "tf-idf", "standard"}
        As they are; to unit length; as counts of words, (1 + ln n) * idf, then to unit length; each
        column less its mean and by its deviation, for dense rows, then by the root of D.
    factors, means : float32 arrays of shape (D,) or (0,)
        The idf, or one over the deviation, and the mean of each column.
    """

    name: str
    factors: NDArray[np.float32] = np.empty(0, dtype=np.float32)
    means: NDArray[np.float32] = np.empty(0, dtype=np.float32)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the scaling as arrays."""
        return {**self._asdict(), "name": np.array(self.name)}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]]) -> Scaling:
        """Return the scaling with this `state`."""
        return cls(str(arrays["name"]), arrays["factors"], arrays["means"])

    def apply(self, rows: Rows) -> Rows:
        """Return scaled rows (n, D): dense ones stay dense.

        Examples
        --------
        >>> Scaling("unit").apply(np.array([[3.0, 4.0], [0.0, 0.0]], dtype="f4"))
        array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
        """
        if self.name == "given":
            return rows
        if self.name == "standard":
            dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
            scaled: NDArray[np.float32] = (dense - self.means) * self.factors
            return scaled
        starts, columns, values = to_arrays(rows)
        if self.name == "tf-idf":
            with np.errstate(divide="ignore", invalid="ignore"):
                times = np.where(values > 0, 1 + np.log(values), 0)
            values = (np.maximum(times, 0) * self.factors[columns]).astype(np.float32)
        row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        length = np.sqrt(np.bincount(row, values.astype(np.float64) ** 2, len(starts) - 1))
        values = (values / np.where(length > 0, length, 1)[row]).astype(np.float32)
        found = sp.csr_array((values, columns, starts), shape=rows.shape)
        return found.toarray() if isinstance(rows, np.ndarray) else found


GIVEN = Scaling("given")


def list_scalings(rows: Rows) -> list[Scaling]:
    """Return the scalings that make sense for rows, the most reliable one first.

    Rows of unit length stay as they are, or each column is standardised. Columns of dense rows may
    be of any scale, and far from 0; sparse rows of any length.

    Examples
    --------
    >>> counts = sp.csr_array(np.array([[1.0, 2.0], [0.0, 3.0]], dtype="f4"))
    >>> [scaling.name for scaling in list_scalings(counts)]
    ['unit', 'tf-idf', 'given']
    >>> [scaling.name for scaling in list_scalings(Scaling("unit").apply(counts))]
    ['given']
    """
    starts, columns, values = to_arrays(rows)
    row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    length = np.sqrt(np.bincount(row, values.astype(np.float64) ** 2, len(starts) - 1))
    length = length[length > 0]
    of_unit_length = not (np.abs(length - 1) > _UNIT).any()
    found = []
    if isinstance(rows, np.ndarray) and len(values) > rows.size / 2:
        found.append(_standardize(rows))
    if not of_unit_length:
        found.append(Scaling("unit"))
    if len(values) and (values > 0).all() and (values == np.rint(values)).all():
        found.append(_weigh_words(columns, rows.shape))
    if of_unit_length:
        return [GIVEN, *found]
    return [*found, GIVEN] if 1 / _FAR < length.mean() < _FAR else found


def _weigh_words(columns: NDArray[np.int32], shape: tuple[int, ...]) -> Scaling:
    """Return the scaling of counts, with the idf of scikit-learn."""
    rows, dim = shape
    in_rows = np.bincount(columns, minlength=dim)
    return Scaling("tf-idf", (1 + np.log((1 + rows) / (1 + in_rows))).astype(np.float32))


def _standardize(rows: NDArray[np.float32]) -> Scaling:
    """Return the scaling of dense columns to mean 0 and deviation 1 / sqrt(D)."""
    means = rows.mean(axis=0, dtype=np.float64)
    spread = rows.std(axis=0, dtype=np.float64)
    changes = spread > _ROUNDING * np.abs(means)
    with np.errstate(divide="ignore"):
        factors = np.where(changes, 1 / spread, 0) / rows.shape[1] ** 0.5
    return Scaling(
        "standard",
        np.minimum(factors, _LARGEST).astype(np.float32),
        means.astype(np.float32),
    )
