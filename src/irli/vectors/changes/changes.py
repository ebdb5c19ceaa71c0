"""Changes: the one writer of an index. Each change makes a new version of it, which is then shown.

A version is immutable, and a search uses one version from beginning to end. So searches go on while
the index changes, and none sees half a change, an item twice, or one that was removed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.grown_ids import AddedRows, GrownIds, GrownTextIds
from irli.base.growing import Chunks, Growing
from irli.base.ids import TextIds
from irli.vectors.changes.compact import Changed
from irli.vectors.changes.growth import Growth
from irli.vectors.parts.part import VectorPart


class Changes:
    """What was added to an index and removed from it since the fit.

    Parameters
    ----------
    part : VectorPart
        The index as it was fitted.

    Attributes
    ----------
    part : VectorPart
        The newest version.
    """

    def __init__(self, part: VectorPart) -> None:
        contents = part.contents
        self._fitted = part
        copies = contents.recipe.buckets_per_item if part.searcher.layout.bias.shape[1] > 1 else 1
        self._growth = Growth(part.searcher, contents.codebook, copies)
        self._vectors = Chunks((part.dim,), np.float32)
        self._numbers = Growing((), np.int64)
        self._numbers.append(part.ids.values)
        self._added = AddedRows(part.searcher.items)
        self._removed: NDArray[np.bool_] | None = None
        self.part = part

    def place(self, vectors: NDArray[np.float32]) -> NDArray[np.int32]:
        """Choose the buckets (n, R, c) of vectors (n, d). Nothing changes yet."""
        return self._growth.place(vectors)

    def apply(
        self,
        gone: NDArray[np.int64],
        vectors: NDArray[np.float32],
        places: NDArray[np.int32],
        ids: list[Any],
    ) -> VectorPart:
        """Remove items by their rows (m,), add others in the same step, and return the new version."""
        fitted = self._fitted.searcher.items
        before = fitted + len(self._growth)
        count = before + len(ids)
        removed = self._removed
        if len(gone) or (removed is not None and len(ids)):
            removed = np.zeros(count, dtype=bool)
            if self._removed is not None:
                removed[:before] = self._removed
            removed[gone] = True
        if len(gone):
            self._growth.remove(gone)
        if len(ids):
            self._vectors.append(vectors)
            self._growth.append(vectors, places, np.zeros(0, bool) if removed is None else removed)
            self._added.append(ids)
            text = self._fitted.names is not None
            self._numbers.append(np.arange(before, count) if text else np.array(ids, np.int64))
        self._removed = removed
        self.part = self._show()
        return self.part

    def _show(self) -> VectorPart:
        """Return the newest version."""
        fitted, growth = self._fitted, self._growth
        added = growth.show(self._vectors.chunks)
        names, values = fitted.names, self._numbers.array
        changed = Changed(
            searcher=fitted.searcher.change(added, self._removed),
            ids=GrownIds(fitted.ids, self._added, values, self._removed)
            if names is None
            else GrownTextIds(names, self._added, len(values), self._removed),
            loads=growth.loads.copy(),
            places=growth.places,
            codes=growth.codes,
        )
        return VectorPart(fitted.contents, changed)
