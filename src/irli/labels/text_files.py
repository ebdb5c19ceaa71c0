"""Read files of texts and of their label names: one per line, or as JSON lines."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from typing import Any

from irli.base.files import LONGEST_LINE
from irli.base.types import StrPath
from irli.errors import FormatError, InvalidParameter

_LABEL_PREFIX = "__label__"  # of fastText


def read_texts(path: StrPath) -> list[str]:
    r"""Return the lines of a UTF-8 file, plain or `.gz`. Each line is a text, even an empty one.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "texts.txt")
    ...     _ = path.write_bytes(b"a first text\n\na third one\n")
    ...     read_texts(path)
    ['a first text', '', 'a third one']
    """
    return [line for _, line in _read_lines(path)]


def read_label_lists(path: StrPath) -> list[list[str]]:
    r"""Return the labels in each line of a UTF-8 file, plain or `.gz`. An empty line has none.

    If a line has a tab, tabs separate its labels, otherwise spaces. So a line with a single label
    of several words must end with a tab. fastText's prefix `__label__` is removed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "labels.txt")
    ...     _ = path.write_bytes(b"cat dog\nhot dog\tfood\n\n__label__cat\n")
    ...     read_label_lists(path)
    [['cat', 'dog'], ['hot dog', 'food'], [], ['cat']]
    """
    lists = []
    for _, line in _read_lines(path):
        parts = line.split("\t" if "\t" in line else " ")
        labels = (part.strip(" ").removeprefix(_LABEL_PREFIX) for part in parts)
        lists.append([label for label in labels if label])
    return lists


def read_jsonl(path: StrPath) -> tuple[list[str], list[list[str]]]:
    r"""Return the texts and their labels from a file with a JSON object in each line.

    An object has a "text" and may have "labels": {"text": "meow", "labels": ["cat", "pet"]}. Other
    keys and empty lines are ignored. The file may be compressed (`.gz`).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "pets.jsonl")
    ...     _ = path.write_bytes(b'{"text": "meow", "labels": ["cat"]}\n{"text": "?"}\n')
    ...     read_jsonl(path)
    (['meow', '?'], [['cat'], []])
    """
    texts, lists = [], []
    for number, line in _read_lines(path):
        if not line.strip():
            continue
        text, labels = _parse_entry(line, f"{path}, line {number},")
        texts.append(text)
        lists.append(labels)
    return texts, lists


def _parse_entry(line: str, where: str) -> tuple[str, list[str]]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{where} must be a JSON object. It cannot be read: {error}. "
            'Write one object in each line: {"text": "...", "labels": ["...", "..."]}.'
        ) from error
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        raise FormatError(
            f"{where} must be a JSON object with a string 'text'. It is {_shorten(entry)} instead. "
            'Write one object in each line: {"text": "...", "labels": ["...", "..."]}.'
        )
    labels = entry.get("labels", [])
    if not isinstance(labels, list) or not all(isinstance(x, str) and x for x in labels):
        raise FormatError(
            f"{where} must have a list of strings, none of them empty, as 'labels'. "
            f"It has {_shorten(labels)} instead. Put numbers between quotes, or leave 'labels' out."
        )
    return entry["text"], labels


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _read_lines(path: StrPath) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, from 1 up. Only "\\n" and "\\r\\n" end a line."""
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
        raise InvalidParameter(
            f"The 'path' parameter must be a file that can be read. Got '{path}' instead: "
            f"{error.strerror}. Check the spelling and the working directory."
        ) from error


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
