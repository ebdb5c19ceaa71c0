"""The store of an index that changes: a log of changes, payloads, and the vectors that were added.

The arrays of an index never change. What was added and removed since they were written is in the
log: SQLite's commit is the commit, and the vectors of a change are in the tail before it. The
manifest says up to which change the arrays are. So no two files ever have to change at once:

- A change: vectors into the tail, then one transaction.
- A fold: new arrays, then the manifest that says so, then what they hold is dropped from the log.
  If that is cut off, the next writer does it.

Items are known by keys that ascend and are never used again. `docs/explanation/durability.md` says
what is promised.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from irli.base.checks import as_vectors
from irli.base.data_files import damage_error
from irli.base.files import WriterLock, sync_directory
from irli.base.folder import holding, make_store_name, reading
from irli.errors import InvalidParameter, IrliError, IrliWarning, StorageError
from irli.store import database, log
from irli.store.documents import Document, decode, encode
from irli.store.documents import remove as remove_path
from irli.store.filters import parse_path
from irli.store.log import AddedItems, Batch, Folded, Keys, checksum, last_seq, take_ids
from irli.store.tail import FileTail, MemoryTail, SyncFailed, Tail, Vectors, choose_bits

Sync: TypeAlias = Literal["full", "normal"]

_LOG_BYTES = 4 << 20  # written to SQLite's log before it is copied into the database
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MOST_BITS = 20  # of a slot within its chunk
_AT_ONCE = 64  # log rows that are dropped in one transaction


@dataclass(frozen=True)
class Stats:
    """What a store takes, and what a fold would give back.

    Attributes
    ----------
    log_rows : changes that the arrays do not have yet.
    payload_bytes, tail_bytes : the disk space, or memory, of the database and of the vectors.
    free_bytes : unused space within the database.
    sqlite : the version of SQLite.
    warning : what is wrong with it, or None.
    """

    log_rows: int
    payload_bytes: int
    tail_bytes: int
    free_bytes: int
    sqlite: str
    warning: str | None


class Store:
    """The changes, payloads and added vectors of an index, in its folder or in memory.

    Methods are safe to call from several threads. After a `fork`, a child opens a store of its own.

    Examples
    --------
    >>> store = Store.in_memory(dim=2)
    >>> batch = store.write(
    ...     vectors=[[1, 2], [3, 4]], places=[[7], [8]], ids=["a", "b"], payloads=[{"x": 1}, None]
    ... )
    >>> batch.keys, store.find_keys(["b", "c"]), store.payloads([0, 1])
    (array([0, 1]), array([ 1, -1]), [{'x': 1}, None])
    """

    def __init__(
        self,
        path: Path | None,
        connection: sqlite3.Connection,
        reader: sqlite3.Connection,
        tail: Tail,
        lock: WriterLock | None,
        *,
        applied: int,
        writable: bool,
        sync: Sync,
    ) -> None:
        self.path, self.tail, self.writable, self.sync = path, tail, writable, sync
        self.applied = applied
        self._connection, self._reader = connection, reader
        self._process = os.getpid()
        self._lock = threading.RLock()
        # A commit may wait for the disk. Who reads has another connection, where that is possible.
        self._reading = self._lock if reader is connection else threading.RLock()
        self._broken: str | None = None
        self._added = AddedItems()
        self._written = 0  # bytes since the last checkpoint
        self._fresh = True  # whether the next vectors start a file
        self._recorded: set[int] = set()
        self._next_key = self._next_slot = 0
        self._seen = -1
        self._close = weakref.finalize(
            self, _release, self._process, connection, reader, tail, lock
        )

    # --- opening ---

    @classmethod
    def in_memory(cls, dim: int, first_key: int = 0) -> Store:
        """Return a store that ends with the process."""
        connection = database.connect(None, writable=True)
        bits = choose_bits(dim)
        database.create(connection, _first_meta(dim, bits, first_key))
        tail = MemoryTail(dim, bits)
        store = cls(
            None, connection, connection, tail, None, applied=0, writable=True, sync="normal"
        )
        store._recover()
        return store

    @classmethod
    def create(cls, root: Path, dim: int, first_key: int = 0, sync: Sync = "full") -> Store:
        """Make a store in an index folder that is being changed (see `changing`).

        It counts once a manifest names it, by `entry`. Until then, `add_payloads` gives the items
        of the arrays their payloads. Their keys are below `first_key`.
        """
        _check_sync(sync)
        with ExitStack() as stack, _translating(root):
            lock = WriterLock(root)
            stack.callback(lock.release)
            path = root / f"{make_store_name()}.sqlite"
            connection = database.connect(path, writable=True, full=sync == "full")
            stack.callback(connection.close)
            bits = choose_bits(dim)
            database.create(connection, _first_meta(dim, bits, first_key))
            sync_directory(root)
            reader = database.connect(path, writable=False)
            tail = FileTail(root, path.stem, dim, bits, [])
            store = cls(path, connection, reader, tail, lock, applied=0, writable=True, sync=sync)
            store._recover()
            stack.pop_all()
        return store

    @classmethod
    def open(
        cls, root: Path, entry: dict[str, Any], *, writable: bool = False, sync: Sync = "full"
    ) -> Store:
        """Open the store that a manifest names (its `store`), to read it or as its only writer.

        A writer finishes what another left unfinished. `read_since(store.applied)` then returns the
        changes that the arrays do not have.
        """
        _check_sync(sync)
        path = root / f"{entry['name']}.sqlite"
        if not path.is_file():
            raise damage_error(root, f"{path.name} is missing")
        with ExitStack() as stack, _translating(root), reading(), database.reading(path):
            lock = WriterLock(root) if writable else None
            if lock is not None:
                stack.callback(lock.release)
            reader = database.connect(path, writable=False)
            stack.callback(reader.close)
            database.check(reader, path)
            connection = reader
            if writable:
                connection = database.connect(path, writable=True, full=sync == "full")
                stack.callback(connection.close)
            meta = database.read_meta(reader)
            dim, bits = meta["dim"], meta["bits"]
            if not 0 < dim < 1 << 24 or not 0 <= bits <= _MOST_BITS:
                raise damage_error(root, f"{path.name} misstates the dimensions of its vectors")
            tail = FileTail(root, path.stem, dim, bits, [])
            store = cls(
                path,
                connection,
                reader,
                tail,
                lock,
                applied=entry["applied"],
                writable=writable,
                sync=sync,
            )
            store._recover()
            stack.pop_all()
        return store

    def _recover(self) -> None:
        """Read where the log ends. A writer drops what is done with, or lost."""
        with database.snapshot(self._connection):
            self._read_tails()
            meta = database.read_meta(self._connection)
            last = last_seq(self._connection)
            ends = "SELECT max(first_key + count), max(slot + count) FROM ops WHERE count > 0"
            key, slot = self._connection.execute(ends).fetchone()
        if meta["folded"] > self.applied:
            raise Folded
        if last < self.applied:
            raise damage_error(self._root, f"its store ends at the change {last}, the arrays later")
        self._next_key = max(meta["next_key"], key or 0)
        self._next_slot = max(meta["next_slot"], slot or 0)
        if not self.writable:
            return
        self._drop_lost()
        batches = self._read_log(self.applied)
        for batch in batches:
            self._added.add(batch)
        self._fresh = not any(batch.count for batch in batches)
        if self.path is not None:
            self._drop_changes(self.applied)
            self._drop_tails()

    def _read_tails(self) -> None:
        rows = self._connection.execute("SELECT start FROM tails ORDER BY start").fetchall()
        self._recorded = {start for (start,) in rows}
        if isinstance(self.tail, FileTail):
            self.tail.starts = sorted(self._recorded)

    def close(self) -> None:
        """Close the store. Chunks stay readable, and all that was acknowledged is on disk then."""
        with self._lock:
            if self.writable and self._close.alive and self._process == os.getpid():
                # What cannot be copied now stays in SQLite's log.
                with suppress(StorageError), self._changing():
                    self._checkpoint("TRUNCATE")
            self._close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what the manifest says ---

    @property
    def name(self) -> str | None:
        """The name of the store in its folder."""
        return None if self.path is None else self.path.stem

    def entry(self, applied: int) -> dict[str, Any]:
        """Return what a manifest says of the store: the arrays hold all changes up to this one.

        They are on disk then: a manifest must not speak of what a power cut takes.
        """
        with self._changing():
            self._checkpoint("PASSIVE")
        return {"name": self.name, "applied": applied}

    # --- changes ---

    def write(
        self,
        removed: Any = (),
        vectors: Any = None,
        places: Any = None,
        ids: Any = (),
        payloads: Sequence[Any] | None = None,
    ) -> Batch:
        """Remove and add items, as one change. It is durable when this returns.

        Parameters
        ----------
        removed : int64 array
            Keys of items.
        vectors : float32 array (n, d)
            Of the items that are added.
        places : int32 array (n, c)
            Kept as they are.
        ids : int64 array (n,), or list of str or UUID
        payloads : list of dict or None
        """
        rows = np.empty((0, self.tail.dim), np.float32)
        if vectors is not None and len(vectors):
            rows = as_vectors(vectors, "vectors", self.tail.dim)
        count = len(rows)
        laid = np.asarray(np.empty((count, 0)) if places is None else places, np.int32)
        texts, documents = encode(payloads if payloads is not None else [None] * count)
        if len(texts) != count:
            raise InvalidParameter(
                f"The 'payloads' parameter must hold a document, or None, for each of {count} "
                f"vectors. Got {len(texts)} instead. Pass as many."
            )
        batch = Batch(
            self.tail,
            first_key=0,
            slot=0,
            removed=np.array(removed, np.int64).reshape(-1),
            count=count,
            places=laid.reshape(count, -1 if laid.size else 0),
            ids=take_ids(ids, count),
            payloads=documents,
            crc=checksum(rows),
        )
        with self._changing():
            slot = self._write_rows(rows) if count else self._next_slot
            first_key = self._next_key
            items = [(key, text) for key, text in enumerate(texts, first_key) if text is not None]
            start = self._find_unrecorded()
            with database.transaction(self._connection):
                if start is not None:
                    self._connection.execute("INSERT INTO tails VALUES (?)", (start,))
                self._connection.executemany("INSERT INTO items VALUES (?, ?)", items)
                batch = self._append(replace(batch, first_key=first_key, slot=slot))
            if start is not None:
                self._recorded.add(start)
            self._next_key, self._next_slot = first_key + count, slot + count
            self._written += sum(len(text) for _, text in items)
            self._added.add(batch)
        return batch

    def _append(self, batch: Batch) -> Batch:
        self._written += 24 * batch.count + 8 * (len(batch.removed) + len(batch.changed))
        return log.append(self._connection, batch, synced=self.sync == "full")

    def _write_rows(self, rows: Vectors) -> int:
        if self._fresh:
            self._next_slot = self.tail.start(self._next_slot)
            self._fresh = False
        self.tail.write(self._next_slot, rows)
        if self.sync == "full":
            self.tail.sync()
        return self._next_slot

    def _find_unrecorded(self) -> int | None:
        """Return the file of vectors that the database does not name yet."""
        starts = self.tail.starts if isinstance(self.tail, FileTail) else []
        return next((start for start in starts if start not in self._recorded), None)

    def set_payload(self, keys: Any, values: Document) -> Batch:
        """Give items these values at the top level of their payloads. Others stay."""
        _, (plain,) = encode([values])
        return self._edit(keys, lambda document: {**(document or {}), **plain})

    def overwrite_payload(self, keys: Any, document: Document | None) -> Batch:
        """Give items this payload instead of what they have."""
        _, (plain,) = encode([document])
        return self._edit(keys, lambda _: plain)

    def delete_payload_keys(self, keys: Any, names: Sequence[str]) -> Batch:
        """Remove these fields, named as in filters, from the payloads of items."""
        paths = [parse_path(name) for name in names]

        def edit(document: Document | None) -> Document | None:
            for path in paths:
                remove_path(document, path)
            return document

        return self._edit(keys, edit)

    def clear_payload(self, keys: Any) -> Batch:
        """Remove the payloads of items."""
        return self._edit(keys, lambda _: None)

    def _edit(self, keys: Any, edit: Callable[[Document | None], Document | None]) -> Batch:
        changed = np.unique(np.ascontiguousarray(keys, "<i8").reshape(-1))
        with self._changing():
            wanted = changed.tolist()
            found = database.read_payloads(self._connection, wanted)
            documents = [edit(document) for document in decode([found.get(k) for k in wanted])]
            texts, _ = encode(documents)
            kept = [(k, text) for k, text in zip(wanted, texts, strict=True) if text is not None]
            none = [(k,) for k, text in zip(wanted, texts, strict=True) if text is None]
            with database.transaction(self._connection):
                self._connection.executemany("REPLACE INTO items VALUES (?, ?)", kept)
                self._connection.executemany("DELETE FROM items WHERE key = ?", none)
                batch = self._append(
                    Batch(self.tail, self._next_key, self._next_slot, changed=changed, payloads=[])
                )
            self._written += sum(len(text) for _, text in kept)
            self._added.add(batch)
        return batch

    def add_payloads(self, first_key: int, payloads: Sequence[Any]) -> None:
        """Give items of the arrays their payloads, before a manifest names the store.

        No change is logged: who reads the store has not seen these items.
        """
        texts, _ = encode(payloads)
        rows = [(key, text) for key, text in enumerate(texts, first_key) if text is not None]
        with self._changing():
            with database.transaction(self._connection):
                self._connection.executemany("REPLACE INTO items VALUES (?, ?)", rows)
            self._written += sum(len(text) for _, text in rows)

    # --- reading ---

    @property
    def last_seq(self) -> int:
        """The number of the last change that is in the database."""
        with self._using() as connection:
            return last_seq(connection)

    def changed(self) -> bool:
        """Whether another connection may have changed something since the last call. It is quick.

        The first call says yes.
        """
        with self._using() as connection:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            changed = version != self._seen
            self._seen = version
        return bool(changed)

    def read_since(self, seq: int) -> list[Batch]:
        """Return the changes after this one, in order. Raise `Folded` if some are gone.

        For a reader, changes whose vectors were lost in a power cut are not there.
        """
        if self.writable:
            with self._lock:
                self._check_process()
                return self._read_log(seq)
        with self._using() as connection, database.snapshot(connection):
            self._read_tails()
            batches = self._read_log(seq)
            lost = self._find_lost(batches)
        if lost is not None:
            batches = [batch for batch in batches if batch.seq < lost]
        for batch in batches:
            self._added.add(batch)
        return batches

    def _read_log(self, seq: int) -> list[Batch]:
        return log.read(self._connection, self._root, self.tail, seq)

    def payloads(self, keys: Any) -> list[Document | None]:
        """Return the payload of each key, as it is now. None is no payload."""
        return decode(self.texts(keys))

    def texts(self, keys: Any) -> list[str | None]:
        """Return the payload of each key as JSON text: what columns are made of."""
        wanted = np.asarray(keys, np.int64).reshape(-1).tolist()
        with self._using() as connection, database.reading(self.path):
            found = database.read_payloads(connection, wanted)
        return [found.get(key) for key in wanted]

    def scroll(self, first_key: int = 0, limit: int = 1000) -> list[tuple[int, Document]]:
        """Return the first keys from `first_key` on that have a payload, with it, in order."""
        query = "SELECT key, payload FROM items WHERE key >= ? ORDER BY key LIMIT ?"
        with self._using() as connection, database.reading(self.path):
            rows = connection.execute(query, (first_key, limit)).fetchall()
        return list(zip((k for k, _ in rows), decode([text for _, text in rows]), strict=True))

    def chunk(self, number: int) -> Vectors:
        """Return a chunk of added vectors (2^bits, d), always the same memory."""
        return self.tail.chunk(number)

    @property
    def chunk_bits(self) -> int:
        """The vector of a slot is in the chunk ``slot >> bits``, at the slot's other bits."""
        return self.tail.bits

    @property
    def next_key(self) -> int:
        """The key of the item that is added next."""
        return self._next_key

    def find_keys(self, ids: Any) -> Keys:
        """Return the keys of ids (n,), or -1 for those that the log has not added, or removed."""
        with self._lock:
            return np.array([self._added.find_key(id) for id in ids], np.int64)

    def find_ids(self, keys: Any) -> list[int | str | None]:
        """Return the ids of keys (n,), or None for those that the log has not added."""
        with self._lock:
            return [self._added.find_id(int(key)) for key in keys]

    def stats(self) -> Stats:
        """Return what the store takes."""
        with self._using() as connection:
            (rows,) = connection.execute(
                "SELECT count(*) FROM ops WHERE seq > ?", (self.applied,)
            ).fetchone()
            (page,) = connection.execute("PRAGMA page_size").fetchone()
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
        size = page * pages
        if self.path is not None:
            for end in ("-wal", "-shm"):
                with suppress(FileNotFoundError):
                    size += os.stat(f"{self.path}{end}").st_size
        warning = None
        if sqlite3.sqlite_version_info < database.FIXED_SQLITE:
            fixed = ".".join(map(str, database.FIXED_SQLITE))
            warning = (
                f"SQLite {sqlite3.sqlite_version} has a rare bug that can damage a database when "
                f"several processes write to it. irli has one writer. {fixed} is without it."
            )
        return Stats(rows, size, self.tail.nbytes, page * free, sqlite3.sqlite_version, warning)

    # --- folding, copies ---

    def seal(self) -> int:
        """Return the number of the last change. Vectors of later ones go to another file.

        A fold begins with it: the new arrays hold what is there now.
        """
        with self._changing():
            self._fresh = True
            return last_seq(self._connection)

    def fold(self, applied: int) -> None:
        """Drop the changes up to this one. The manifest must say that the arrays have them."""
        with ExitStack() as stack:
            if self.path is not None:
                stack.enter_context(holding(self._root))  # nobody copies the folder meanwhile
            with self._changing():
                self.applied = applied
            self._drop_changes(applied)
            with self._changing():
                self._added.drop(applied)
                self._drop_tails()
                self._connection.executescript("PRAGMA incremental_vacuum")
                self._checkpoint("TRUNCATE")

    def _drop_changes(self, applied: int) -> None:
        """Drop changes, and the payloads of items that they removed. Others write in between."""
        query = "SELECT seq, removed FROM ops WHERE seq <= ? ORDER BY seq LIMIT ?"
        while True:
            with self._changing(), database.transaction(self._connection):
                rows = self._connection.execute(query, (applied, _AT_ONCE)).fetchall()
                if not rows:
                    return
                gone = np.concatenate([np.frombuffer(removed, "<i8") for _, removed in rows])
                folded = rows[-1][0]
                self._connection.executemany(
                    "DELETE FROM items WHERE key = ?", [(key,) for key in gone.tolist()]
                )
                self._connection.execute("DELETE FROM ops WHERE seq <= ?", (folded,))
                ends = {"next_key": self._next_key, "next_slot": self._next_slot}
                database.write_meta(self._connection, folded=folded, **ends)

    def _drop_tails(self) -> None:
        """Remove the files of vectors that no change names."""
        (slot,) = self._connection.execute("SELECT min(slot) FROM ops WHERE count > 0").fetchone()
        self._fresh |= slot is None
        if isinstance(self.tail, FileTail):
            kept = self.tail.list_needed(slot)
            if old := self._recorded.difference(kept):
                with database.transaction(self._connection):
                    self._connection.executemany(
                        "DELETE FROM tails WHERE start = ?", [(start,) for start in old]
                    )
                self._recorded &= set(kept)
        self.tail.drop(slot)

    def copy_to(self, root: Path) -> None:
        """Copy the store, as it is now, into another folder. Others may write meanwhile.

        Whoever calls this holds the index folder, so that nothing is folded.
        """
        if self.path is None:
            raise InvalidParameter("A store in memory has no files. Use write_copy instead.")
        with _translating(root):
            self._vacuum_into(root / self.path.name)
            # The copy of the database says how much of the tail it needs. Tails only grow.
            copy = database.connect(root / self.path.name, writable=False)
            try:
                ends = copy.execute("SELECT slot, slot + count FROM ops WHERE count > 0").fetchall()
                starts = [start for (start,) in copy.execute("SELECT start FROM tails").fetchall()]
            finally:
                copy.close()
            tail = FileTail(self._root, self.path.stem, self.tail.dim, self.tail.bits, starts)
            tail.copy_to(root, ends)
            sync_directory(root)

    def write_copy(self, root: Path, applied: int) -> dict[str, Any]:
        """Write a store with the payloads of this one into a folder that is being changed.

        The arrays there hold all changes up to `applied`, which must be the last. Return what their
        manifest says of the store.
        """
        name = make_store_name()
        path = root / f"{name}.sqlite"
        with _translating(root):
            self._vacuum_into(path)
            copy = database.connect(path, writable=True, full=True)
            try:
                (last,) = copy.execute("SELECT coalesce(max(seq), 0) FROM ops").fetchone()
                if last > applied:
                    raise InvalidParameter(
                        f"The 'applied' parameter must be the last change, {last}. "
                        f"Got {applied} instead. Fold first."
                    )
                gone = [
                    (key,)
                    for (removed,) in copy.execute("SELECT removed FROM ops").fetchall()
                    for key in np.frombuffer(removed, "<i8").tolist()
                ]
                with database.transaction(copy):
                    copy.executemany("DELETE FROM items WHERE key = ?", gone)
                    copy.execute("DELETE FROM ops")
                    copy.execute("DELETE FROM tails")
                    next_key = max(self._next_key, database.read_meta(copy)["next_key"])
                    database.write_meta(copy, folded=applied, next_key=next_key)
                copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                copy.close()
        return {"name": name, "applied": applied}

    def _vacuum_into(self, path: Path) -> None:
        with self._using() as connection, database.reading(self.path):
            connection.execute("VACUUM INTO ?", (str(path),))
        with open(path, "rb+") as file:
            os.fsync(file.fileno())

    # --- the rest ---

    @property
    def _root(self) -> Path:
        return Path(":memory:") if self.path is None else self.path.parent

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """Read, apart from who writes."""
        with self._reading:
            self._check_process()
            yield self._reader

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise StorageError(
                "The store was opened before this process was forked, and SQLite forbids its use "
                "in a child. Open the index in the child, or start it with 'spawn'."
            )
        if not self._close.alive:
            raise StorageError("The store is closed. Open the index again.")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Be the one who writes. What goes wrong leaves everything as it was."""
        with self._lock:
            self._check_process()
            if not self.writable:
                raise StorageError(
                    "The index is open for reading only. Open it with writable=True to change it."
                )
            if self._broken is not None:
                raise StorageError(
                    f"The index takes no more changes, as the disk failed before: {self._broken}. "
                    "What was acknowledged is safe. Check the disk, then open the index again."
                )
            before = None
            try:
                if self._written > _LOG_BYTES:
                    self._checkpoint("PASSIVE")
                before = last_seq(self._connection)
                yield
            except (sqlite3.Error, OSError) as error:
                if isinstance(error, IrliError):
                    raise
                self._raise(error, before)

    def _raise(self, error: sqlite3.Error | OSError, before: int | None) -> None:
        """Say what went wrong. If nobody can know what is on disk, nothing more is written."""
        if isinstance(error, sqlite3.Error) and database.is_damage(error):
            self._broken = str(error)
            raise database.damage_of(self.path, error) from error
        name = getattr(error, "sqlite_errorname", "") or ""
        if isinstance(error, SyncFailed) or "SYNC" in name or not self._is_as_before(before):
            self._broken = str(error)
            raise StorageError(
                f"The disk failed to keep a change of the index: {error}. Nothing was acknowledged "
                "that is not safe, and searches go on. Check the disk, then open the index again."
            ) from error
        raise _say_full(self._root, error) from error

    def _is_as_before(self, before: int | None) -> bool:
        """Whether a change that failed has left no trace in the database."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            return before is None or last_seq(self._connection) == before
        except sqlite3.Error:
            return False

    def _checkpoint(self, mode: str) -> None:
        """Copy SQLite's log into the database, after the vectors that it speaks of are on disk."""
        if self.path is None:
            return
        self.tail.sync()
        # A reader may hold up a checkpoint, but not the changes.
        self._connection.execute("PRAGMA busy_timeout = 100")
        # With FULL, a commit waits until it is on disk, with all that was committed before.
        self._connection.execute("PRAGMA synchronous = FULL")
        with database.transaction(self._connection):
            database.write_meta(self._connection, synced=last_seq(self._connection))
        self._connection.execute(f"PRAGMA synchronous = {self.sync}")
        self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        self._connection.execute(f"PRAGMA busy_timeout = {database.BUSY_SECONDS * 1000}")
        self._written = 0

    def _drop_lost(self) -> None:
        """Drop the last changes if a power cut took their vectors: only with ``sync="normal"``."""
        batches = self._read_log(self.applied)
        lost = self._find_lost(batches)
        if lost is None:
            return
        first = next(batch for batch in batches if batch.seq == lost)
        with database.transaction(self._connection):
            self._connection.execute("DELETE FROM ops WHERE seq >= ?", (lost,))
            self._connection.execute("DELETE FROM items WHERE key >= ?", (first.first_key,))
            end = max(batch.first_key + batch.count for batch in batches)
            database.write_meta(self._connection, next_key=end)
        self._next_key = end

    def _find_lost(self, batches: list[Batch]) -> int | None:
        """Return the first change that a power cut took, and warn."""
        lost = log.find_lost(self._connection, self._root, batches)
        if lost is not None:
            count = sum(batch.seq >= lost for batch in batches)
            warnings.warn(
                f"The last {count} changes of the index at {self._root} were lost in a power cut: "
                "with sync='normal' it does not wait for the disk. Those before are complete. "
                "Repeat them, and choose sync='full' if that must not happen.",
                IrliWarning,
                stacklevel=5,
            )
        return lost


def _release(
    process: int,
    connection: sqlite3.Connection,
    reader: sqlite3.Connection,
    tail: Tail,
    lock: WriterLock | None,
) -> None:
    if process != os.getpid():
        _ABANDONED.extend((connection, reader))  # a child must not close what its parent uses
        return
    tail.close()
    if reader is not connection:
        reader.close()
    # SQLite copies its log into the database when the last connection is closed.
    connection.close()
    if lock is not None:
        lock.release()


_ABANDONED: list[sqlite3.Connection] = []


def _first_meta(dim: int, bits: int, first_key: int) -> dict[str, int]:
    start = {"folded": 0, "synced": 0, "next_key": first_key, "next_slot": 0}
    return {"dim": dim, "bits": bits} | start


def _check_sync(sync: str) -> None:
    if sync not in ("full", "normal"):
        raise InvalidParameter(
            f"The 'sync' parameter must be 'full' or 'normal'. Got {sync!r} instead. With 'full', "
            "a change survives a power cut."
        )


@contextmanager
def _translating(root: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, IrliError):
            raise
        raise _say_full(root, error) from error


def _say_full(root: Path, error: sqlite3.Error | OSError) -> StorageError:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_BUSY"):
        return StorageError(
            f"Another program holds the database of the index at {root}: {error}. Close it there."
        )
    full = name == "SQLITE_FULL" or getattr(error, "errno", None) in _FULL
    what = "The disk is full" if full else f"The disk refused to write ({error})"
    return StorageError(
        f"{what}, so the change of the index at {root} was not made. Searches go on, and nothing "
        "is lost. Make room, then repeat the change."
    )
