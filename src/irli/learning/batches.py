"""Batches of queries as torch tensors: dense rows, sparse rows as embedding bags, and noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from irli.base.memory import release_pages
from irli.base.types import Rows


class Bag(NamedTuple):
    """A batch of sparse rows for an embedding bag. It is never made dense."""

    features: Tensor  # (non-zeros,): column numbers
    values: Tensor  # (non-zeros,)
    offsets: Tensor  # (n,): where each row starts

    def to(self, device: torch.device) -> Bag:
        """Move to a device."""
        return Bag(*(part.to(device) for part in self))


Batch: TypeAlias = "Tensor | Bag"


class Inputs:
    """Dense or sparse rows, from which batches are taken.

    Dense rows may come in two arrays, of which `more` follows `rows`.

    Examples
    --------
    >>> rows = Inputs(sp.csr_array(np.array([[0.0, 2.0], [3.0, 0.0]], dtype="f4")))
    >>> rows.take(np.array([1])).features
    tensor([0])
    >>> len(rows), rows.sparse
    (2, True)
    """

    def __init__(self, rows: Rows, more: NDArray[np.float32] | None = None) -> None:
        self.sparse = sp.issparse(rows)
        self.rows: Any = rows
        self.more = more  # not concatenated, because `rows` may be a mapped file

    def __len__(self) -> int:
        return int(self.rows.shape[0]) + (0 if self.more is None else len(self.more))

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return some rows as a batch."""
        if not self.sparse:
            return torch.from_numpy(self._take_dense(rows))
        part = self.rows[rows]
        return Bag(
            torch.from_numpy(part.indices.astype(np.int64)),
            torch.from_numpy(part.data.astype(np.float32)),
            torch.from_numpy(part.indptr[:-1].astype(np.int64)),
        )

    def _take_dense(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        if self.more is None:
            return np.asarray(self.rows[rows])
        here = rows < len(self.rows)
        dense = np.empty((len(rows), self.rows.shape[1]), dtype=np.float32)
        dense[here] = self.rows[rows[here]]
        dense[~here] = self.more[rows[~here] - len(self.rows)]
        return dense

    def blocks(self, size: int) -> Iterator[tuple[slice, Batch]]:
        """Yield all rows in blocks."""
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            yield part, self.take(np.arange(part.start, part.stop))
            release_pages(self.rows)


def with_noise(batch: Batch, lengths: NDArray[np.float32]) -> Batch:
    """Move each dense query by about its length (n,), so that the router learns regions."""
    if isinstance(batch, Bag) or not lengths.any():
        return batch
    deviation = torch.from_numpy(lengths)[:, None] / batch.shape[1] ** 0.5
    blurred: Tensor = batch + deviation * torch.randn_like(batch)
    return blurred
