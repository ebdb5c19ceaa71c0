"""Changes: from the log of a store to versions of an index.

Each change makes a new version of the index, which is then shown. A version is immutable, and a
search uses one version from beginning to end. So searches go on while the index changes, and none
sees half a change, an item twice, or one that was removed.

An item has a permanent key in the store, and a row in the arrays. Rows of added items follow the
slots of their vectors in the store's tail, so that kernels find them there. A slot that was skipped
is a row that is removed from the start.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli.base.growing import Growing
from irli.base.grown_ids import AddedRows, GrownIds, GrownTextIds
from irli.base.ids import TextIds
from irli.store.log import Batch
from irli.store.store import Store
from irli.vectors.changes.compact import Changed
from irli.vectors.changes.growth import Growth
from irli.vectors.changes.payloads import Payloads
from irli.vectors.parts.part import VectorPart


class Changes:
    """What was added to an index and removed from it since its arrays were made.

    Parameters
    ----------
    part : VectorPart
        The index as its arrays are.
    store : Store

    Attributes
    ----------
    part : VectorPart
        The newest version.
    seq : int
        The last change that it has.
    added, removed : int
        How many items were added and removed.
    gone : int
        The rows that hold no item.
    """

    def __init__(self, part: VectorPart, store: Store) -> None:
        contents = part.contents
        buckets = part.searcher.layout.bias.shape[1]
        copies = contents.recipe.buckets_per_item if buckets > 1 else 1
        self._fitted, self._store = part, store
        self._base = part.searcher.items
        bounded = contents.recipe.repartition == "bounded"
        self._growth = Growth(part.searcher, contents.codebook, copies, bounded)
        self._chunks: list[NDArray[np.float32]] = []
        self._first_chunk: int | None = None  # of those in the tail that are ours
        self._values = Growing((), np.int64)
        self._values.append(part.ids.values)
        self._added = AddedRows(self._base)
        self._removed: NDArray[np.bool_] | None = None
        self._keys = Growing((), np.int64)  # of each row; a skipped one repeats the key before
        self._keys.append(np.arange(self._base) if contents.keys is None else contents.keys)
        self._payloads = Payloads(store, self._keys, contents.columns)
        part.documents = self._payloads
        self.part, self.seq = part, store.applied
        self.added = self.removed = self.gone = 0

    @property
    def rows(self) -> int:
        """The rows of the newest version, also those of removed items."""
        return self._base + len(self._growth)

    def place(self, vectors: NDArray[np.float32]) -> NDArray[np.int32]:
        """Choose the buckets of vectors (n, d), as the store keeps them: (n, 1 + R c).

        The first column says for which arrays they were chosen. Others choose anew.
        """
        chosen = self._growth.place(vectors).reshape(len(vectors), -1)
        return np.insert(chosen, 0, self._mark, axis=1)

    def find_keys(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the keys of rows."""
        keys: NDArray[np.int64] = self._keys.array[rows]
        return keys

    def apply(self, batches: list[Batch]) -> VectorPart:
        """Take over changes, in order, and return the new version."""
        for batch in batches:
            self._apply(batch)
        if batches:
            self._show()
        return self.part

    @property
    def _mark(self) -> int:
        return self._store.applied & 0x7FFFFFFF

    def _apply(self, batch: Batch) -> None:
        gone = self._find_rows(batch.removed)
        if batch.count:
            self._skip_to(batch.slot)
        count = self.rows + batch.count
        if len(gone) or (self._removed is not None and count > len(self._removed)):
            removed = np.zeros(count, dtype=bool)
            if self._removed is not None:
                removed[: len(self._removed)] = self._removed
            removed[gone] = True
            self._removed = removed
            self._growth.remove(gone)
            self.removed += len(gone)
            self.gone += len(gone)
        if batch.count:
            self._add(batch)
            self.added += batch.count
        if len(batch.changed):
            self._payloads.change(self._find_rows(batch.changed))
        self.seq = batch.seq

    def _add(self, batch: Batch) -> None:
        vectors, places = batch.vectors, batch.places
        shape = (batch.count, *self._growth.places.shape[1:])
        if places.shape[1] == 1 + shape[1] * shape[2] and (places[:, 0] == self._mark).all():
            chosen = places[:, 1:].reshape(shape)
        else:  # these were chosen for arrays of before
            chosen = self._growth.place(vectors)
        start = self.rows
        self._growth.append(vectors, chosen, self._removed)
        self._map_chunks(batch.slot + batch.count)
        ids = batch.ids if isinstance(batch.ids, list) else batch.ids.tolist()
        self._added.append(ids)
        text = self._fitted.names is not None
        self._values.append(np.arange(start, self.rows) if text else np.asarray(batch.ids))
        self._keys.append(batch.keys)
        self._payloads.add(start, batch)

    def _skip_to(self, slot: int) -> None:
        """Count slots that hold no item as rows that are removed."""
        bits = self._store.chunk_bits
        if self._first_chunk is None:
            self._first_chunk = slot >> bits
        skipped = (slot - (self._first_chunk << bits)) - len(self._growth)
        if skipped <= 0:
            return
        start = self.rows
        self.gone += skipped
        removed = np.ones(start + skipped, dtype=bool)
        removed[:start] = False if self._removed is None else self._removed
        self._removed = removed
        self._growth.skip(skipped)
        self._added.skip(skipped)
        self._values.append(np.full(skipped, -1))
        before = self._keys.array[-1] if start else -1
        self._keys.append(np.full(skipped, before))

    def _map_chunks(self, slot: int) -> None:
        """Have the chunks with all slots below this one."""
        bits, first = self._store.chunk_bits, self._first_chunk or 0
        for number in range(first + len(self._chunks), ((slot - 1) >> bits) + 1):
            self._chunks.append(self._store.chunk(number))

    def _find_rows(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of keys that are there."""
        if len(keys) == 0:
            return np.empty(0, dtype=np.int64)
        known = self._keys.array  # ascending; the first of equal keys is that of the item
        if len(known) == 0:
            return np.empty(0, dtype=np.int64)
        rows = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        found: NDArray[np.int64] = rows[known[rows] == keys]
        return found

    def _show(self) -> None:
        """Make the newest version."""
        fitted, growth = self._fitted, self._growth
        added = growth.show(self._chunks)
        names, values = fitted.names, self._values.array
        ids: GrownIds | GrownTextIds
        if isinstance(names, TextIds):
            ids = GrownTextIds(names, self._added, len(values), self._removed)
        else:
            ids = GrownIds(fitted.ids, self._added, values, self._removed)
        changed = Changed(
            searcher=fitted.searcher.change(added, self._removed),
            ids=ids,
            loads=growth.loads.copy(),
            places=growth.places,
            codes=growth.codes,
            keys=self._keys.array,
            added=self.added,
            gone=self.removed,
        )
        self.part = VectorPart(fitted.contents, changed)
        self.part.documents = self._payloads
