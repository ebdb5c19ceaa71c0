"""What is no regular file is never read: a pipe would wait for ever, a device would never end."""

from __future__ import annotations

import json
import os
import socket
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import FOLDERS, read

import irli
from irli import FormatError
from irli.base import data_files
from irli.base import folder as folder_module
from irli.base.files import open_regular
from irli.base.folder import Folder, read_folder, read_manifest, write_folder
from irli.engine.vector_layout import place_blocks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes and devices"),
    pytest.mark.timeout(60),
]


def listen(path: Path) -> None:
    """Make a socket. Its name must be short, so it is bound from its folder."""
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


SPECIAL: list[Callable[[Path], Any]] = [
    os.mkfifo,
    Path.mkdir,
    listen,
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("/dev/null"),
    lambda path: path.symlink_to(path.name),
    lambda path: path.symlink_to("nowhere"),
]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    write_folder(tmp_path / "index", Folder("vectors", {}, {"ids": np.arange(5)}, {}))
    return tmp_path / "index"


@pytest.mark.parametrize("make", SPECIAL)
def test_a_regular_file_is_opened_and_nothing_else(
    tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    make(tmp_path / "one")
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "one")


def test_a_link_to_a_regular_file_is_opened(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"content")
    (tmp_path / "link").symlink_to("one")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"content"


def test_a_file_that_becomes_a_pipe_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "one")
    monkeypatch.setattr(Path, "is_file", lambda path: True)  # so it was, a moment ago
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "one")


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("make", SPECIAL)
def test_a_data_file_must_be_a_regular_file(
    index: Path, make: Callable[[Path], Any], verify: bool
) -> None:
    path = index / read_manifest(index)["files"]["ids"]["file"]
    path.unlink()
    make(path)
    with pytest.raises(FormatError, match=f"{path.name} is missing, or is not a regular file"):
        read_folder(index, verify=verify)


@pytest.mark.parametrize("make", SPECIAL)
def test_a_manifest_must_be_a_regular_file(index: Path, make: Callable[[Path], Any]) -> None:
    (index / "manifest.json").unlink()
    make(index / "manifest.json")
    with pytest.raises(FormatError, match=r"has no manifest\.json"):
        read_folder(index)


def test_saving_over_a_pipe_replaces_it(index: Path) -> None:
    path = index / read_manifest(index)["files"]["ids"]["file"]
    path.unlink()
    os.mkfifo(path)
    write_folder(index, Folder("vectors", {}, {"ids": np.arange(5)}, {}))
    assert read_folder(index).arrays["ids"].tolist() == [0, 1, 2, 3, 4]


def test_a_manifest_has_a_largest_size(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (index / "manifest.json").stat().st_size
    monkeypatch.setattr(folder_module, "_MOST_MANIFEST", size)
    assert read_folder(index).kind == "vectors"
    monkeypatch.setattr(folder_module, "_MOST_MANIFEST", size - 1)
    with pytest.raises(FormatError, match=r"manifest\.json has more than"):
        read_folder(index)


@pytest.mark.parametrize(
    "shape", [[0, 2**62], [0, 2**70], [2**70], [0] * 9, [1] * 4000, [5, 2**61, 0]]
)
@pytest.mark.parametrize("mmap", [True, False])
def test_a_shape_that_no_array_can_have_is_refused(
    index: Path, shape: list[int], mmap: bool
) -> None:
    manifest = json.loads((index / "manifest.json").read_text())
    manifest["files"]["ids"]["shape"] = shape
    sealed = folder_module._seal(manifest)
    (index / "manifest.json").write_text(json.dumps(sealed))
    with pytest.raises(FormatError, match="does not follow format version"):
        read_folder(index, mmap=mmap)


def test_a_file_that_is_cut_while_it_is_read_leaves_no_foreign_memory(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = index / read_manifest(index)["files"]["ids"]["file"]
    check = data_files._verify

    def check_and_cut(*arguments: Any) -> None:
        check(*arguments)
        os.truncate(path, path.stat().st_size - 8)

    monkeypatch.setattr(data_files, "_verify", check_and_cut)
    with pytest.raises(FormatError, match="was cut while it was read"):
        read_folder(index, mmap=False)


def test_opening_copies_no_array(tmp_path: Path) -> None:
    """What opening takes beyond the mapped files is small, whatever their size."""
    items = 400_000
    folder = read("codes")
    repetitions, ends = folder.arrays["offsets"].shape
    starts = np.arange(repetitions)[:, None] * items
    offsets = starts + np.linspace(0, items, ends).astype(np.int64)
    code_offsets = place_blocks(offsets)
    blocks = (int(code_offsets.max()), *folder.arrays["code_blocks"].shape[1:])
    large = folder.arrays | {
        "vectors": np.zeros((items, folder.arrays["vectors"].shape[1]), np.float32),
        "ids": np.arange(items)[::-1],
        "items": np.tile(np.arange(items, dtype=np.int32), repetitions),
        "offsets": offsets,
        "code_offsets": code_offsets,
        "code_blocks": np.zeros(blocks, np.uint8),
    }
    write_folder(tmp_path, Folder(folder.kind, folder.meta, large, folder.tensors))
    irli.load(FOLDERS / "codes")  # what is imported does not count
    for verify in (True, False):
        tracemalloc.start()
        index = irli.load(tmp_path, verify=verify)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(index) == items
        assert most < 2**20
