"""Read the items of a file some at a time: vectors, and ids and payloads if the file has them.

==========  ======================================================================================
`.jsonl`    an object in each line: {"id": 7, "vector": [0.5, 1], "lang": "en"}; also `.jsonl.gz`
`.parquet`  a column of lists of numbers, and others
others      vectors, as `vector_files` reads them
==========  ======================================================================================

What is neither the vector nor the id is the payload.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date, time
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.records import Record, open_parquet, read_json_lines, shorten
from irli.base.types import StrPath
from irli.base.vector_files import check_file, read_vectors
from irli.errors import FormatError

BATCH = 4096
_VECTOR, _ID = "vector", "id"
_EXAMPLE = '{"id": 7, "vector": [0.5, 1], "lang": "en"}'


class Items(NamedTuple):
    """Some items of a file.

    Attributes
    ----------
    vectors : array of shape (n, d)
    ids : list of int or str, or None if the file has none
    payloads : list of dict or None, or None if the file has none
    where : str
        The place in the file, for errors: "items.jsonl, lines 1 to 4096,".
    """

    vectors: NDArray[Any]
    ids: list[Any] | None
    payloads: list[Any] | None
    where: str


def has_payloads(path: StrPath) -> bool:
    """Whether a file is of a format that has ids and payloads.

    Examples
    --------
    >>> has_payloads("items.jsonl.gz"), has_payloads("items.npy")
    (True, False)
    """
    return _suffix(path) in (".jsonl", ".parquet")


def count_items(path: StrPath, key: str | None = None) -> int:
    """Return how many items a file has, or 0 if that is known only when all are read."""
    check_file(path)
    if _suffix(path) == ".jsonl":
        return 0
    if _suffix(path) == ".parquet":
        with open_parquet(path) as file:
            return int(file.metadata.num_rows)
    return len(read_vectors(path, key))


def read_items(
    path: StrPath, key: str | None = None, id_key: str = _ID, batch: int = BATCH
) -> Iterator[Items]:
    r"""Yield the items of a file, `batch` at a time.

    Parameters
    ----------
    key : str, optional
        The key or column of the vectors ("vector"), or the name of the array in an HDF5 file.
    id_key : str
        The key or column of the ids.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "items.jsonl")
    ...     _ = path.write_text('{"id": "a", "vector": [0, 1], "lang": "en"}\n')
    ...     [(vectors, ids, payloads, _)] = read_items(path)
    >>> vectors, ids, payloads
    (array([[0., 1.]], dtype=float32), ['a'], [{'lang': 'en'}])
    """
    check_file(path)
    if _suffix(path) == ".jsonl":
        yield from _read_json(path, key or _VECTOR, id_key, batch)
    elif _suffix(path) == ".parquet":
        yield from _read_parquet(path, key or _VECTOR, id_key, batch)
    else:
        vectors = read_vectors(path, key)
        for start in range(0, len(vectors), batch):
            some = vectors[start : start + batch]
            yield Items(some, None, None, f"{path}, rows {start} to {start + len(some) - 1},")


def read_payloads(path: StrPath) -> Iterator[Any]:
    """Yield the document in each line of a file of JSON lines. `null` is none."""
    check_file(path)
    for value, where in read_json_lines(path, '{"lang": "en"}'):
        if value is not None:
            _check_object(value, where)
        yield value


def _suffix(path: StrPath) -> str:
    return Path(os.fspath(path).removesuffix(".gz")).suffix


# --- JSON lines --------------------------------------------------------------------------------


def _read_json(path: StrPath, key: str, id_key: str, batch: int) -> Iterator[Items]:
    records = read_json_lines(path, _EXAMPLE)
    dim: int | None = None
    named: type | None = None  # the type of the ids, NoneType if there are none
    while some := list(islice(records, batch)):
        vectors, ids, payloads = [], [], []
        for value, where in some:
            _check_object(value, where)
            if key not in value:
                raise FormatError(
                    f"{where} must have a vector '{key}'. It is {shorten(value)} instead. Write "
                    f"for example {_EXAMPLE}, or name another --key."
                )
            vectors.append(value.pop(key))
            ids.append(value.pop(id_key, None))
            payloads.append(value or None)
            named = named or type(ids[-1])
            if type(ids[-1]) is not named or named not in (int, str, type(None)):
                raise FormatError(
                    f"{where} must have an '{id_key}' as the lines before it: an integer in each "
                    f"line, or a string in each, or none. Got {shorten(ids[-1])} instead."
                )
        array = _as_vectors(vectors, some, key, dim)
        dim = array.shape[1]
        first, last = (where.rstrip(",").rpartition(" ")[2] for _, where in (some[0], some[-1]))
        place = f"{path}, lines {first} to {last},"
        yield Items(array, None if named is type(None) else ids, payloads, place)


def _check_object(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise FormatError(
            f"{where} must be a JSON object. It is {shorten(value)} instead. Write one object in "
            f"each line: {_EXAMPLE}."
        )


def _as_vectors(
    vectors: list[Any], records: list[Record], key: str, dim: int | None
) -> NDArray[np.float32]:
    """Return vectors as an array, or name the first line that has none of the right form."""
    found = _as_rows(vectors)
    if found is not None and found.shape[1] == (dim or found.shape[1]):
        return found
    for vector, (_, where) in zip(vectors, records, strict=True):
        row = _as_rows([vector])
        dim = dim or (None if row is None else row.shape[1])
        if row is None or row.shape[1] != dim:
            wanted = "numbers" if dim is None else f"{dim} numbers"
            raise FormatError(
                f"{where} must have a list of {wanted} as '{key}'. It has {shorten(vector)} "
                "instead. Correct it, or leave the line out."
            )
    raise FormatError(f"{records[0][1]} must have a vector '{key}' as the lines after it.")


def _as_rows(vectors: list[Any]) -> NDArray[np.float32] | None:
    try:
        rows = np.array(vectors)
    except ValueError:
        return None
    if rows.ndim != 2 or rows.shape[1] == 0 or rows.dtype.kind not in "fiu":
        return None
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32)
    return rows if np.isfinite(rows).all() else None


# --- Parquet -----------------------------------------------------------------------------------


def _read_parquet(path: StrPath, key: str, id_key: str, batch: int) -> Iterator[Items]:
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        if key not in names:
            raise FormatError(
                f"{path} must have a column '{key}' of vectors. It has {', '.join(names)} instead. "
                "Name another --key."
            )
        start, dim = 0, None
        for table in file.iter_batches(batch):
            place = f"{path}, rows {start} to {start + len(table) - 1},"
            vectors = _take_lists(table.column(key), path, key, start, dim)
            ids = table.column(id_key).to_pylist() if id_key in names else None
            if ids is not None and not all(isinstance(id, int | str) for id in ids):
                raise FormatError(
                    f"{place} must have integers or strings in the column '{id_key}'. Got "
                    f"{shorten(next(id for id in ids if not isinstance(id, int | str)))} instead. "
                    "Name another --id-key."
                )
            rest = table.drop_columns([name for name in (key, id_key) if name in names])
            payloads = [_drop_missing(row) for row in rest.to_pylist()] if rest.schema else None
            start, dim = start + len(table), vectors.shape[1]
            yield Items(vectors, ids, payloads, place)


def _take_lists(
    column: Any, path: StrPath, key: str, start: int, dim: int | None
) -> NDArray[np.float32]:
    """Return a column of lists of numbers as an array (n, d)."""
    kind = column.type
    if not hasattr(kind, "value_type") or str(kind.value_type) not in _NUMBERS:
        raise FormatError(
            f"{path} must have lists of numbers in the column '{key}'. They are {kind} instead. "
            "Name another --key."
        )
    lengths = [len(one) if one.is_valid else 0 for one in column]
    wanted = dim or lengths[0] or 1
    values = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    if set(lengths) == {wanted} and np.isfinite(values).all():
        rows: NDArray[np.float32] = values.reshape(len(column), wanted)
        return rows
    for row, (one, length) in enumerate(zip(column, lengths, strict=True), start):
        if length != wanted or _as_rows([one.as_py()]) is None:
            raise FormatError(
                f"{path}, row {row}, must have a list of {wanted} numbers in the column '{key}'. "
                f"It has {shorten(one.as_py())} instead. Correct it, or leave the row out."
            )
    raise FormatError(f"{path} must have {dim} numbers in each row of the column '{key}'.")


_NUMBERS = {"float", "double", "halffloat", *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32))}


def _drop_missing(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a row as a JSON object without what is missing, or None if all is."""
    return {name: _as_plain(value) for name, value in row.items() if value is not None} or None


def _as_plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date | time) else value
