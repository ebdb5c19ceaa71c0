"""Read lines, JSON lines and tables of Parquet, each record with the place where it was read."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from irli.base.files import LONGEST_LINE
from irli.base.types import StrPath
from irli.errors import FormatError, InvalidParameter, MissingDependency

Record = tuple[Any, str]  # named values, and where they were read


def read_lines(path: StrPath) -> Iterator[tuple[int, str]]:
    """Yield each line of a UTF-8 file, plain or `.gz`, with its number, from 1 up.

    Only "\\n" and "\\r\\n" end a line.
    """
    compressed = os.fspath(path).endswith(".gz")
    try:
        with gzip.open(path, "rb") if compressed else open(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE:
                    raise FormatError(
                        f"{path}, line {number}, must have at most {LONGEST_LINE} bytes. It has "
                        "more. Write one text in each line."
                    )
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, _decode_line(line, path, number)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(
            f"{path} must be a whole gzip file. It cannot be read: {error}. "
            "Download it again, or drop '.gz' from its name if it is plain text."
        ) from error
    except OSError as error:
        raise _unreadable_error(path, error) from error


def _decode_line(line: bytes, path: StrPath, number: int) -> str:
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{path}, line {number}, must be UTF-8. It has the byte 0x{line[error.start]:02x} at "
            f"{error.start} instead: {error.reason}. Convert the file, for example with iconv."
        ) from error


def read_json_lines(path: StrPath, example: str) -> Iterator[Record]:
    """Yield the value of each line that is not empty."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number},"
        try:
            yield json.loads(line), where
        except (ValueError, RecursionError) as error:
            raise FormatError(
                f"{where} must be a JSON object. It cannot be read: {error}. "
                f"Write one object in each line: {example}."
            ) from error


@contextmanager
def open_parquet(path: StrPath) -> Iterator[Any]:
    """Open a file of Parquet with pyarrow."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"Reading Parquet needs {error.name}, which is not installed. "
            "Install it with: pip install 'irli[parquet]'."
        ) from error
    try:
        with open(path, "rb") as source, ParquetFile(source) as file:
            yield file
    except OSError as error:
        raise _unreadable_error(path, error) from error
    except ArrowException as error:
        raise FormatError(
            f"{path} must be a Parquet file. It cannot be read: {error}. "
            "Write it again, or set the format."
        ) from error


def _unreadable_error(path: StrPath, error: OSError) -> InvalidParameter:
    return InvalidParameter(
        f"The 'path' parameter must be a file that can be read. Got '{path}' instead: "
        f"{error.strerror or error}. Check the spelling and the working directory."
    )


def shorten(value: Any) -> str:
    """Return a value as JSON of at most 60 characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
