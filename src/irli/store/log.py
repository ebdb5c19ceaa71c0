"""The log of a store: a row of its database for each change, and the items that rows have added."""

from __future__ import annotations

import json
import sqlite3
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import as_ids
from irli.base.data_files import damage_error
from irli.base.ids import are_strings, encode_ids
from irli.errors import FormatError
from irli.store import database
from irli.store.documents import Document
from irli.store.tail import Tail, Vectors, as_bytes, read_rows

Keys: TypeAlias = NDArray[np.int64]
Ids: TypeAlias = NDArray[np.int64] | list[str]


def _no_keys() -> Keys:
    return np.empty(0, np.int64)


class Folded(Exception):
    """Rows that were asked for are in the arrays by now: open the manifest again."""


@dataclass(frozen=True, eq=False)
class Batch:
    """One change, as a whole: items that were removed, added, or got another payload.

    Attributes
    ----------
    seq : the number of the change. They ascend.
    removed : int64 array, the keys of removed items.
    changed : int64 array, the keys of items whose payload has changed.
    first_key, count : the items that were added have these keys, one after the other.
    slot : where the first of their vectors is in the tail. The others follow.
    places : int32 array (count, c), as they were given.
    ids : int64 array (count,) or list of str.
    payloads : the documents of added items, or None if the change was read from the log.
    crc : the checksum of the vectors.
    """

    tail: Tail = field(repr=False)
    first_key: int
    slot: int
    seq: int = 0
    removed: Keys = field(default_factory=_no_keys)
    changed: Keys = field(default_factory=_no_keys)
    count: int = 0
    places: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), np.int32))
    ids: Ids = field(default_factory=_no_keys)
    payloads: list[Document | None] | None = None
    crc: int = field(default=0, repr=False)

    @property
    def keys(self) -> Keys:
        """The keys of the items that were added (count,)."""
        return np.arange(self.first_key, self.first_key + self.count)

    @property
    def vectors(self) -> Vectors:
        """The vectors of the items that were added (count, d)."""
        return read_rows(self.tail, self.slot, self.count)


def append(connection: sqlite3.Connection, batch: Batch, *, synced: bool) -> Batch:
    """Add a row for a change, within a transaction. Return the change with its number.

    `synced` says whether its vectors are on disk.
    """
    cursor = connection.execute(
        "INSERT INTO ops (first_key, count, slot, crc, synced, removed, changed, places, ids) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            batch.first_key,
            batch.count,
            batch.slot,
            batch.crc,
            int(synced),
            batch.removed.astype("<i8").tobytes(),
            batch.changed.astype("<i8").tobytes(),
            batch.places.astype("<i4").tobytes(),
            json.dumps(batch.ids) if isinstance(batch.ids, list) else batch.ids.tobytes(),
        ),
    )
    if cursor.lastrowid is None:
        raise sqlite3.DatabaseError("no row was inserted")
    return replace(batch, seq=cursor.lastrowid)


def read(connection: sqlite3.Connection, root: Path, tail: Tail, seq: int) -> list[Batch]:
    """Return the changes after this one, in order. Raise `Folded` if some are gone."""
    if seq < database.read_meta(connection)["folded"]:
        raise Folded
    query = (
        "SELECT seq, first_key, count, slot, crc, removed, changed, places, ids FROM ops "
        "WHERE seq > ? ORDER BY seq"
    )
    rows = connection.execute(query, (seq,)).fetchall()
    try:
        return [_make_batch(tail, *row) for row in rows]
    except (ValueError, TypeError) as error:
        raise damage_error(root, f"its log is not what was written ({error})") from error


def _make_batch(
    tail: Tail,
    seq: int,
    first_key: int,
    count: int,
    slot: int,
    crc: int,
    removed: bytes,
    changed: bytes,
    places: bytes,
    ids: bytes | str,
) -> Batch:
    named: Ids = json.loads(ids) if isinstance(ids, str) else np.frombuffer(ids, "<i8")
    if len(named) != count or first_key < 0 or slot < 0:
        raise ValueError(f"the change {seq} does not have {count} items")
    return Batch(
        tail,
        first_key,
        slot,
        seq,
        np.frombuffer(removed, "<i8"),
        np.frombuffer(changed, "<i8"),
        count,
        np.frombuffer(places, "<i4").reshape((count, -1) if count else (0, 0)),
        named,
        None,
        crc,
    )


def last_seq(connection: sqlite3.Connection) -> int:
    """Return the number of the last change."""
    (seq,) = connection.execute(
        "SELECT coalesce(max(seq), (SELECT value FROM meta WHERE name = 'folded')) FROM ops"
    ).fetchone()
    return int(seq)


def checksum(rows: Vectors) -> int:
    """Return the checksum of vectors (n, d)."""
    return zlib.crc32(as_bytes(rows))


def find_lost(connection: sqlite3.Connection, root: Path, batches: list[Batch]) -> int | None:
    """Return the first change whose vectors are not what was written, or None.

    It was lost in a power cut, unless they were on disk once: then that is damage, and raised.
    """
    for batch in batches:
        if batch.count and not _is_intact(batch):
            synced = database.read_meta(connection)["synced"]
            (last,) = connection.execute(
                "SELECT coalesce(max(seq), 0) FROM ops WHERE synced AND count > 0"
            ).fetchone()
            if batch.seq <= max(synced, last):
                what = f"the vectors of its change {batch.seq} are not what was written"
                raise damage_error(root, what)
            return batch.seq
    return None


def _is_intact(batch: Batch) -> bool:
    try:
        return checksum(batch.vectors) == batch.crc
    except FormatError:  # the file is missing or too short
        return False


class AddedItems:
    """The items that the log has added: their keys by id, and their ids by key."""

    def __init__(self) -> None:
        self._keys: dict[int | str, int] = {}
        self._batches: list[tuple[int, int, Ids]] = []  # seq, first key, ids
        self._last = 0

    def add(self, batch: Batch) -> None:
        """Take note of a change, unless it was noted before."""
        if batch.seq <= self._last:
            return
        self._last = batch.seq
        for key in batch.removed.tolist():
            id = self.find_id(key)
            if id is not None and self._keys.get(id) == key:
                del self._keys[id]
        if batch.count:
            ids = batch.ids if isinstance(batch.ids, list) else batch.ids.tolist()
            self._keys.update(zip(ids, batch.keys.tolist(), strict=True))
            self._batches.append((batch.seq, batch.first_key, batch.ids))

    def find_key(self, id: Any) -> int:
        """Return the key of an id, or -1."""
        return self._keys.get(_as_id(id), -1)

    def find_id(self, key: int) -> int | str | None:
        """Return the id that a key was added with, or None."""
        place = bisect_right(self._batches, key, key=lambda batch: batch[1]) - 1
        if place < 0:
            return None
        _, first, ids = self._batches[place]
        if key - first >= len(ids):
            return None
        id = ids[key - first]
        return id if isinstance(id, str) else int(id)

    def drop(self, applied: int) -> None:
        """Forget what was added up to a change."""
        self._batches = [batch for batch in self._batches if batch[0] > applied]
        first = self._batches[0][1] if self._batches else None
        self._keys = {
            id: key for id, key in self._keys.items() if first is not None and key >= first
        }


def take_ids(ids: Any, count: int) -> Ids:
    """Return the ids of so many items, in an array or a list of their own."""
    if count == 0 and len(ids) == 0:
        return _no_keys()
    if not are_strings(given := [_as_id(id) for id in ids]):
        return as_ids(ids, count).copy()
    return list(encode_ids(given, count).strings)


def _as_id(id: Any) -> Any:
    return str(id) if isinstance(id, UUID) else id
