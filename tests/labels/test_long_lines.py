"""A small `.gz` that unpacks to one endless line is refused, in bounded memory and time."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from irli import FormatError
from irli.base import records
from irli.labels.files import documents, xmc_text
from irli.labels.files import rows as files
from irli.labels.files.documents import read_documents, read_texts
from irli.labels.files.rows import read_matrix, read_rows

READERS: list[Callable[[Path], Any]] = [
    read_texts,
    lambda path: list(read_documents(path, format="tsv")),
    lambda path: list(read_documents(path, format="jsonl")),
]


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of some 300 kB that unpacks to 300 MB without a newline after the first line."""
    path = tmp_path_factory.mktemp("bomb") / "rows.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(b"1 9 9\n")
        for _ in range(300):
            out.write(b"0 " * (1 << 19))
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux reports it")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("reader", "where"),
    [("files.read_rows", "line 2"), ("documents.read_texts", "line 2")],
)
def test_memory_is_bounded(bomb: Path, reader: str, where: str) -> None:
    program = f"""
import resource, sys
import irli
from irli.labels.files import documents, rows as files

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = most()
try:
    {reader}(sys.argv[1])
except irli.FormatError as error:
    print((most() - before) // 1024, error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, bomb], capture_output=True, text=True, check=True
    )
    megabytes, message = run.stdout.split(" ", 1)
    assert where in message
    assert "must have at most 67108864 bytes" in message
    assert int(megabytes) < 300


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("reader", READERS)
def test_a_text_may_be_as_long_as_the_limit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reader: Callable[[Path], Any],
    compressed: bool,
) -> None:
    for module in (documents, records):
        monkeypatch.setattr(module, "LONGEST_LINE", 30)
    good = b'{"text": "123456789012345678"}'
    path = tmp_path / ("texts.gz" if compressed else "texts")
    opened = gzip.open if compressed else open
    with opened(path, "wb") as out:
        out.write(good + b"\n")  # a newline counts, too
    with pytest.raises(FormatError, match="line 1, must have at most 30 bytes"):
        reader(path)
    with opened(path, "wb") as out:
        out.write(good)
    reader(path)


def test_rows_of_any_length_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xmc_text, "_BYTES", 16)
    path = tmp_path / "matrix.txt"
    row = " ".join(f"{column}:1" for column in range(200))
    path.write_text(f"3 200\n\n{row}\n0:1\n")
    assert read_matrix(path).sum() == 201
    monkeypatch.setattr(xmc_text, "LONGEST_LINE", 100)
    with pytest.raises(FormatError, match="line 3: must have at most 100 bytes"):
        read_matrix(path)
    path.write_text(f"1 200 2\n1 {row}\n")
    with pytest.raises(FormatError, match="line 2: must have at most 100 bytes"):
        read_rows(path)


def test_pieces_are_counted_in_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xmc_text, "_BYTES", 8)
    path = tmp_path / "matrix.txt"
    path.write_text("5 4\n0:1\n\n1:2\n2:1 3:1\n4:1\n")
    with pytest.raises(FormatError, match="line 6: features must be"):
        files.read_matrix(path)
    path.write_text("5 4\n0:1\n\n1:2\n2:1 3:1\n")
    with pytest.raises(FormatError, match="It ends after 4, in line 5"):
        files.read_matrix(path)
