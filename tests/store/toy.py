"""The least index that stands on a store: all it does is keep items, exactly.

It shows how an engine uses a store, and what tests compare with a dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irli.base.folder import Folder, changing, publish, read_folder
from irli.base.strings import Strings
from irli.store.columns import Columns
from irli.store.filters import as_condition
from irli.store.snapshots import take_snapshot
from irli.store.store import Batch, Folded, Store

DIM = 3
Item = tuple[tuple[float, ...], Any]  # the vector, and the payload


class Toy:
    """Items by key in arrays, and what the log says beyond them."""

    def __init__(self, store: Store, root: Path | None, folder: Folder | None) -> None:
        self.store, self.root = store, root
        self.keys: list[int] = []
        self.ids: dict[int, Any] = {}
        self.vectors: dict[int, tuple[float, ...]] = {}
        if folder is not None:
            self.keys = folder.arrays["keys"].tolist()
            self.ids = dict(zip(self.keys, _read_ids(folder), strict=True))
            rows = map(tuple, folder.arrays["vectors"].tolist())
            self.vectors = dict(zip(self.keys, rows, strict=True))
        self.seq = store.applied
        self.columns = Columns(self._texts)
        self._rows = list(self.keys)  # of the columns: removed items stay, as in a snapshot
        self.follow()

    @classmethod
    def create(cls, root: Path, *, sync: str = "full", texts: bool = False) -> Toy:
        with changing(root):
            store = Store.create(root, DIM, sync=sync)
            publish(root, _make_folder({}, {}, texts, store.entry(0)))
        return cls(store, root, read_folder(root))

    @classmethod
    def in_memory(cls) -> Toy:
        return cls(Store.in_memory(DIM), None, None)

    @classmethod
    def open(cls, root: Path, *, writable: bool = True, sync: str = "full") -> Toy:
        for _ in range(20):
            folder = read_folder(root)
            assert folder.store is not None
            try:
                store = Store.open(root, folder.store, writable=writable, sync=sync)
                try:
                    return cls(store, root, folder)
                except BaseException:
                    store.close()
                    raise
            except Folded:
                continue
        raise AssertionError("the manifest stays behind its store")

    def follow(self) -> None:
        for batch in self.store.read_since(self.seq):
            self._apply(batch)

    def _apply(self, batch: Batch) -> None:
        for key in batch.removed.tolist():
            del self.vectors[key], self.ids[key]
        ids = batch.ids if isinstance(batch.ids, list) else batch.ids.tolist()
        keys = batch.keys.tolist()
        rows = map(tuple, np.asarray(batch.vectors).tolist())
        self.vectors.update(zip(keys, rows, strict=True))
        self.ids.update(zip(keys, ids, strict=True))
        assert batch.places.shape == (batch.count, 2) or not batch.count
        assert (batch.places == np.array(keys).reshape(-1, 1) * 2).all() or not batch.count
        if batch.payloads is not None:
            self.columns.extend(len(self._rows), batch.payloads)
        self._rows += keys
        if len(batch.changed):
            self.columns.update(np.flatnonzero(np.isin(self._rows, batch.changed)))
        self.seq = batch.seq

    def _texts(self, rows: Any) -> Sequence[str | None]:
        return self.store.texts([self._rows[row] for row in rows.tolist()])

    def key_of(self, id: Any) -> int:
        """Return the key of an item, which must be found where it is."""
        (key,) = [key for key, each in self.ids.items() if each == id]
        (found,) = self.store.find_keys([id]).tolist()
        assert found in (key, -1)
        assert self.store.find_ids([key]) == [id if found == key else None]
        return key

    def change(self, add: dict[Any, Item], remove: Sequence[Any] = ()) -> None:
        """Remove items, and add others or new versions of these."""
        gone = [self.key_of(id) for id in remove]
        first = self.store.next_key
        batch = self.store.write(
            removed=gone,
            vectors=np.array([vector for vector, _ in add.values()], np.float32).reshape(-1, DIM),
            places=np.array([[2 * k] * 2 for k in range(first, first + len(add))]).reshape(-1, 2),
            ids=list(add),
            payloads=[payload for _, payload in add.values()],
        )
        self._apply(batch)

    def set_payload(self, ids: Sequence[Any], values: Any) -> None:
        self._apply(self.store.set_payload([self.key_of(id) for id in ids], values))

    def overwrite_payload(self, ids: Sequence[Any], document: Any) -> None:
        self._apply(self.store.overwrite_payload([self.key_of(id) for id in ids], document))

    def state(self) -> dict[Any, Item]:
        keys = list(self.vectors)
        payloads = self.store.payloads(keys)
        return {
            self.ids[key]: (self.vectors[key], payload)
            for key, payload in zip(keys, payloads, strict=True)
        }

    def find(self, condition: Any) -> set[Any]:
        """Return the ids of the items that meet a condition."""
        mask = self.columns.evaluate(as_condition(condition), len(self._rows))
        return {
            self.ids[self._rows[row]]
            for row in np.flatnonzero(mask).tolist()
            if self._rows[row] in self.ids
        }

    def compact(self) -> None:
        applied = self.store.seal()
        if self.root is not None:
            texts = any(isinstance(id, str) for id in self.ids.values())
            entry = self.store.entry(applied)
            with changing(self.root):
                publish(self.root, _make_folder(self.ids, self.vectors, texts, entry))
        self.columns = self.columns.take(
            np.flatnonzero(np.isin(self._rows, list(self.vectors))), self._texts
        )
        self._rows = [key for key in self._rows if key in self.vectors]
        self.store.fold(applied)

    def snapshot(self, target: Path) -> None:
        assert self.root is not None
        take_snapshot(self.root, target)

    def close(self) -> None:
        self.store.close()


def _make_folder(ids: dict[int, Any], vectors: dict[int, Any], texts: bool, entry: Any) -> Folder:
    keys = sorted(vectors)
    named = [ids[key] for key in keys]
    arrays: dict[str, Any] = {
        "keys": np.array(keys, np.int64),
        "vectors": np.array([vectors[key] for key in keys], np.float32).reshape(-1, DIM),
    }
    if texts:
        strings = Strings.of(named)
        arrays |= {"ids_bytes": strings.bytes, "ids_offsets": strings.offsets}
    else:
        arrays["ids"] = np.array(named, np.int64)
    return Folder("vectors", {"dim": DIM}, arrays, {}, store=entry)


def _read_ids(folder: Folder) -> list[Any]:
    if "ids" in folder.arrays:
        return list(folder.arrays["ids"].tolist())
    return list(Strings(folder.arrays["ids_bytes"], folder.arrays["ids_offsets"]))
