"""The SQLite database of a store: its schema, its settings, and what its errors mean.

Exactly one connection writes and checkpoints. All others are read-only. Older versions of SQLite
can damage a database of which two connections checkpoint: https://sqlite.org/wal.html#walresetbug
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from irli.base.data_files import damage_error
from irli.errors import FormatError, IncompatibleVersion

VERSION = 1
FIXED_SQLITE = (3, 51, 3)  # the first version without the bug above
_APPLICATION = 0x69726C69  # "irli"
BUSY_SECONDS = 30

# ops: the log, a row for each change. Blobs are little-endian: keys int64, places int32.
#   ids is a blob of int64, or a JSON list of strings.
#   synced: whether the vectors were on disk before the row was.
# items: the payloads, by key. tails: the files of vectors, by their first chunk.
SCHEMA = {
    "meta": "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "tails": "CREATE TABLE tails (start INTEGER PRIMARY KEY)",
    "items": "CREATE TABLE items (key INTEGER PRIMARY KEY, payload TEXT NOT NULL)",
    "ops": (
        "CREATE TABLE ops (seq INTEGER PRIMARY KEY AUTOINCREMENT, first_key INTEGER NOT NULL, "
        "count INTEGER NOT NULL, slot INTEGER NOT NULL, crc INTEGER NOT NULL, "
        "synced INTEGER NOT NULL, removed BLOB NOT NULL, changed BLOB NOT NULL, "
        "places BLOB NOT NULL, ids NOT NULL)"
    ),
}


def connect(path: Path | None, *, writable: bool, full: bool = False) -> sqlite3.Connection:
    """Open a database. None is one in memory. `full` waits for the disk at each commit."""
    if path is None:
        connection = _open(":memory:")
    elif writable:
        connection = _open(f"{path.resolve().as_uri()}?mode=rwc")
    else:
        connection = _open_to_read(path)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA mmap_size = 0")  # a file that was cut would end the process
    connection.execute("PRAGMA temp_store = MEMORY")
    if writable:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA secure_delete = ON")
        if path is not None:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                connection.close()
                raise OSError(f"SQLite cannot keep a write-ahead log at {path}: is it a network?")
            connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # the store does it, see there
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("PRAGMA checkpoint_fullfsync = ON")
    return connection


def _open(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri, BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True
    )


def _open_to_read(path: Path) -> sqlite3.Connection:
    uri = path.resolve().as_uri()
    connection = _open(f"{uri}?mode=ro")
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        # A folder that nobody can write to has no room for the memory that WAL shares. Without a
        # log, the file is all there is.
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
        connection = _open(f"{uri}?immutable=1")
    return connection


def create(connection: sqlite3.Connection, meta: dict[str, int]) -> None:
    """Make the tables, and note these values."""
    with transaction(connection):
        for statement in SCHEMA.values():
            connection.execute(statement)
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise unless the database has our tables and nothing else, such as a stranger's trigger."""
    root = path.parent
    with reading(path):
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        found = dict(
            connection.execute(
                "SELECT name, sql FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*'"
            ).fetchall()
        )
    if application == _APPLICATION and version > VERSION:
        raise IncompatibleVersion(
            f"{path} has version {version}, but this irli reads stores up to version {VERSION}. "
            "Upgrade irli to open it."
        )
    if application != _APPLICATION or version != VERSION or found != SCHEMA:
        raise damage_error(root, f"{path.name} does not have the tables of a store")


@contextmanager
def reading(path: Path | None) -> Iterator[None]:
    """Raise a FormatError if a database is damaged or is none."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise damage_of(path, error) from error
        raise


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the database is at fault, and neither the disk nor another process."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def damage_of(path: Path | None, error: sqlite3.Error) -> FormatError:
    """Return the error to raise for a damaged database."""
    if path is None:
        return FormatError(f"The store in memory is damaged: {error}.")
    return damage_error(path.parent, f"{path.name} is not as SQLite wrote it ({error})")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do all of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read several things as they were at one time. Keep it short: it holds up the log."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def read_meta(connection: sqlite3.Connection) -> dict[str, int]:
    """Return all values of `meta`."""
    return dict(connection.execute("SELECT name, value FROM meta").fetchall())


def write_meta(connection: sqlite3.Connection, **values: int) -> None:
    """Replace values of `meta`, within a transaction."""
    connection.executemany("REPLACE INTO meta VALUES (?, ?)", values.items())


def read_payloads(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, str]:
    """Return the payloads of those keys that have one."""
    if not keys:
        return {}
    low, high = min(keys), max(keys)
    if high - low < 4 * len(keys):
        query, values = "SELECT key, payload FROM items WHERE key BETWEEN ? AND ?", [(low, high)]
    else:
        blocks = [keys[start : start + 500] for start in range(0, len(keys), 500)]
        marks = ",".join("?" * len(blocks[0]))
        query = f"SELECT key, payload FROM items WHERE key IN ({marks})"
        padded: list[Any] = [tuple(block) for block in blocks]
        padded[-1] += (None,) * (len(blocks[0]) - len(blocks[-1]))
        values = padded
    found: dict[int, str] = {}
    for bound in values:
        found.update(connection.execute(query, bound).fetchall())
    return found
