"""Read texts and their labels: lines, TSV, JSON lines, CSV and Parquet columns, folders.

==========  ======================================================================================
text        a text in each line, and in another file its labels
tsv         a text, a tab, and its labels, in each line: the short texts of Annif
jsonl       an object in each line: {"text": "meow", "labels": ["cat", "pet"]}
csv         columns "text" and "labels", which the first line names
parquet     columns "text" and "labels"
folder      a `.txt` for each text, and beside it its labels, one in each line of a `.tsv` or
            `.key`: the full texts of Annif
==========  ======================================================================================

Files are UTF-8, and may be compressed (`.gz`), except Parquet. All readers are streams: no more
than a few texts are in memory at a time.

Labels in a line are separated by tabs if there is one, and otherwise by spaces. So a single label
of several words ends with a tab. The angle brackets around a URI and fastText's prefix `__label__`
are removed.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from irli.base.checks import check_choice
from irli.base.files import LONGEST_LINE
from irli.base.progress import Progress, track
from irli.base.records import Record, open_parquet, read_json_lines, read_lines, shorten
from irli.base.types import StrPath
from irli.errors import FormatError, InvalidParameter

FORMATS = ("text", "tsv", "jsonl", "csv", "parquet", "folder")
_LABEL_PREFIX = "__label__"  # of fastText
_LABEL_COLUMNS = ("labels", "subjects", "subject_uris")  # the last two are Annif's
_ROWS = 1 << 10  # of Parquet, read at once


class Document(NamedTuple):
    """A text and its labels."""

    text: str
    labels: list[str]


def read_documents(
    path: StrPath,
    labels: StrPath | None = None,
    *,
    format: str | None = None,
    text_columns: str | Sequence[str] = ("text",),
    label_column: str | None = None,
    separator: str | None = None,
    progress: Progress = False,
) -> Iterator[Document]:
    r"""Yield the texts of a file or a folder, each with its labels.

    Parameters
    ----------
    path : path
    labels : path, optional
        The labels of each line of a file of texts.
    format : {"text", "tsv", "jsonl", "csv", "parquet", "folder"}, optional
        By default, the name of the file says it.
    text_columns : str, or sequence of str
        Columns of CSV or Parquet, or keys of JSON, that hold the text. Several are joined.
    label_column : str, optional
        The column or key of the labels. By default "labels", or else Annif's "subjects" or
        "subject_uris".
    separator : str, optional
        What is between the labels of a line or cell: for example ";".
    progress : bool or callable
        True shows how many texts were read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "pets.tsv")
    ...     _ = path.write_text("Meow!\t<http://pets.org/cat> <http://pets.org/pet>\nWoof\n")
    ...     for text, labels in read_documents(path):
    ...         print(text, labels)
    Meow! ['http://pets.org/cat', 'http://pets.org/pet']
    Woof []
    """
    kind = detect_format(path) if format is None else check_choice("format", format, FORMATS)
    if labels is not None and kind != "text":
        raise InvalidParameter(
            f"The 'labels' parameter must be left out for {path}, which has the format '{kind}' "
            f"and labels of its own. Got {labels}. Set format='text' if it has none."
        )
    if kind == "text":
        found = _read_pair_of_files(path, labels, separator)
    elif kind == "tsv":
        found = _read_tsv(path, separator)
    elif kind == "folder":
        found = _read_folder(path)
    else:
        records = {"jsonl": _read_json_lines, "csv": read_csv, "parquet": _read_parquet}[kind]
        # Numbers and names in JSON have a type. In a cell, labels are one string.
        split = None if kind == "jsonl" else partial(split_labels, separator=separator)
        texts = [text_columns] if isinstance(text_columns, str) else text_columns
        found = _pick_columns(records(path), texts, label_column, split)
    return track(found, progress, "reading")


def detect_format(path: StrPath) -> str:
    """Return the format of a file or folder, by its name.

    Examples
    --------
    >>> detect_format("train.tsv.gz"), detect_format("texts.txt")
    ('tsv', 'text')
    """
    if os.path.isdir(path):
        return "folder"
    ending = Path(os.fspath(path).removesuffix(".gz")).suffix[1:].lower()
    return ending if ending in FORMATS else "text"


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
    return [line for _, line in read_lines(path)]


# --- lines -------------------------------------------------------------------------------------


def _read_pair_of_files(
    path: StrPath, labels: StrPath | None, separator: str | None
) -> Iterator[Document]:
    """Yield each line of a file with the labels in the same line of another."""
    if labels is None:
        for _, line in read_lines(path):
            yield Document(line, [])
        return
    texts, lists = read_lines(path), read_lines(labels)
    for row, (text, names) in enumerate(zip_longest(texts, lists)):
        if text is None or names is None:
            more = row + 1 + sum(1 for _ in chain(texts, lists))
            sizes = (row, more) if text is None else (more, row)
            raise InvalidParameter(
                f"The file of labels must have a line for each of the {sizes[0]} rows of {path}. "
                f"Got {sizes[1]} in {labels} instead. Keep empty lines where there is no label."
            )
        yield Document(text[1], split_labels(names[1], separator))


def _read_tsv(path: StrPath, separator: str | None) -> Iterator[Document]:
    for _, line in read_lines(path):
        text, _, labels = line.partition("\t")
        yield Document(text, split_labels(labels, separator))


def split_labels(text: str, separator: str | None = None) -> list[str]:
    r"""Return the labels in a line or a cell.

    Examples
    --------
    >>> split_labels("cat dog"), split_labels("hot dog\tfood"), split_labels("__label__cat")
    (['cat', 'dog'], ['hot dog', 'food'], ['cat'])
    >>> split_labels("<http://pets.org/cat>"), split_labels("hot dog; food", ";")
    (['http://pets.org/cat'], ['hot dog', 'food'])
    """
    parts = text.split(separator or ("\t" if "\t" in text else " "))
    labels = (clean_label(part) for part in parts)
    # Equal names share memory: most labels come many times.
    return [sys.intern(label) for label in labels if label]


def clean_label(text: str) -> str:
    """Return a label without blanks around it, fastText's prefix, or the brackets of a URI."""
    label = text.strip(" ").removeprefix(_LABEL_PREFIX)
    return label[1:-1] if label.startswith("<") and label.endswith(">") else label


# --- records: JSON lines, CSV, Parquet ----------------------------------------------------------


def _read_json_lines(path: StrPath) -> Iterator[Record]:
    return read_json_lines(path, '{"text": "...", "labels": ["...", "..."]}')


def read_csv(path: StrPath) -> Iterator[Record]:
    """Yield the cells of each row by the names in the first line. Semicolons may separate them."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))  # the default is 128 kB
    lines = (line + "\n" for _, line in read_lines(path))
    first = next(lines, "")
    delimiter = ";" if ";" in first and "," not in first else ","
    rows = csv.DictReader(chain([first], lines), delimiter=delimiter, restval="")
    try:
        for row in rows:
            row.pop(None, None)  # cells beyond the last column
            yield row, f"{path}, line {rows.line_num},"
    except csv.Error as error:
        raise FormatError(
            f"{path}, line {rows.line_num}, must be CSV. It cannot be read: {error}. "
            "Put cells with quotes or line breaks between quotes."
        ) from error


def _read_parquet(path: StrPath) -> Iterator[Record]:
    with open_parquet(path) as file:
        row = 0
        for batch in file.iter_batches(_ROWS):
            for values in batch.to_pylist():
                row += 1
                given = {name: "" if x is None else x for name, x in values.items()}
                yield given, f"{path}, row {row},"


def _pick_columns(
    records: Iterable[Record],
    text_columns: Sequence[str],
    label_column: str | None,
    split: Callable[[str], list[str]] | None,
) -> Iterator[Document]:
    """Yield the text and the labels of each record. `split` separates labels in a string."""
    names = _LABEL_COLUMNS if label_column is None else (label_column,)
    for values, where in records:
        known = values if isinstance(values, dict) else {}
        for column in text_columns:
            if not isinstance(known.get(column), str):
                raise FormatError(
                    f"{where} must have a string '{column}'. It is {shorten(values)} instead. "
                    'Write for example {"text": "...", "labels": ["...", "..."]}, or say which '
                    "columns hold the text."
                )
        if label_column is not None and label_column not in known:
            raise FormatError(
                f"{where} must have labels in '{label_column}'. It is {shorten(values)} instead. "
                "Name another column, or none."
            )
        name = next((name for name in names if name in known), None)
        given = [] if name is None else known[name]
        if split is not None and isinstance(given, str):
            given = split(given)
        yield Document(
            " ".join(known[column] for column in text_columns), _as_labels(given, name, where)
        )


def _as_labels(given: Any, name: str | None, where: str) -> list[str]:
    labels: list[Any] = given if isinstance(given, list) else [None]
    # Annif writes objects with a "uri", a "label" or both.
    labels = [x.get("uri", x.get("label")) if isinstance(x, dict) else x for x in labels]
    if not all(isinstance(label, str) and label for label in labels):
        raise FormatError(
            f"{where} must have a list of strings, none of them empty, as '{name}'. It has "
            f"{shorten(given)} instead. Put numbers between quotes, or leave '{name}' out."
        )
    return [sys.intern(label) for label in labels]


# --- folders -----------------------------------------------------------------------------------


def _read_folder(path: StrPath) -> Iterator[Document]:
    """Yield each `.txt` of a folder, by name, with the labels in the `.tsv` or `.key` beside it."""
    files = sorted(Path(path).glob("*.txt"))
    if not files:
        raise InvalidParameter(
            f"The 'path' parameter must be a file, or a folder with a .txt for each text. "
            f"Got '{path}', which has none, instead. Check the spelling."
        )
    for file in files:
        beside = (file.with_suffix(ending) for ending in (".tsv", ".key"))
        labels = next((other for other in beside if other.exists()), None)
        lines = [] if labels is None else [_read_subject(line) for _, line in read_lines(labels)]
        text = "\n".join(line for _, line in read_lines(file))
        yield Document(text, [sys.intern(label) for label in lines if label])


def _read_subject(line: str) -> str:
    """Return the label in a line of a `.tsv` (a URI, a tab and its name) or of a `.key`."""
    cells = (clean_label(cell) for cell in line.split("\t"))
    return next(filter(None, cells), "")
