"""Every kind of index has a class, and `load` of a class opens only its own kind."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_default
from damage import FOLDERS
from plantedlabels import labelled, small_labels

import irli
from irli import LabelIndex, VectorIndex
from irli.base import folder as folder_module
from irli.base.folder import Folder, read_folder, write_folder
from irli.cluster import ShardedIndex, ShardedLabelIndex
from irli.errors import FormatError

CLASSES: dict[str, Any] = {
    "vectors": VectorIndex,
    "labels": LabelIndex,
    "shards": ShardedIndex,
    "label-shards": ShardedLabelIndex,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small index of each kind."""
    root = tmp_path_factory.mktemp("kinds")
    vectors = np.random.default_rng(0).normal(size=(60, 4))
    rows, labels = labelled(60, 12)
    default, few = small_default(epochs=1), small_labels(buckets=3, epochs=1)
    made = {
        "vectors": VectorIndex(recipe=default).fit(vectors, threads=1),
        "labels": LabelIndex(few).fit(rows, labels, threads=1),
        "shards": ShardedIndex(recipe=default, shards=2).fit(vectors, threads=1),
        "label-shards": ShardedLabelIndex(few, shards=2).fit(rows, labels, threads=1),
    }
    for kind, index in made.items():
        index.save(root / kind)
        assert index.stats()["kind"] == kind
    return root


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("owner", CLASSES)
def test_load_opens_its_own_kind_and_refuses_others(saved: Path, kind: str, owner: str) -> None:
    if kind == owner:
        assert type(CLASSES[owner].load(saved / kind)) is CLASSES[kind]
        assert type(irli.load(saved / kind)) is CLASSES[kind]
        return
    with pytest.raises(FormatError, match=f"of kind '{owner}'. Got '{kind}' instead"):
        CLASSES[owner].load(saved / kind)


@pytest.mark.parametrize("kind", CLASSES)
def test_each_file_is_read_once(saved: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    verified: list[str] = []
    open_file, file_digest = folder_module.open_regular, hashlib.file_digest

    def note_open(path: Path) -> Any:
        opened.append(path.relative_to(saved / kind))
        return open_file(path)

    def note_digest(file: Any, digest: Any) -> Any:
        verified.append(file.name)
        return file_digest(file, digest)

    monkeypatch.setattr(folder_module, "open_regular", note_open)
    monkeypatch.setattr(hashlib, "file_digest", note_digest)
    irli.load(saved / kind)
    data = {path.relative_to(saved / kind) for path in (saved / kind).rglob("*.[0-9a-f]*.[!j]*")}
    assert {path for path in opened if path.suffix != ".json"} == data
    assert len(set(verified)) == len(data) > 3


@pytest.mark.parametrize("kind", ["shards", "label-shards"])
def test_what_the_manifest_of_shards_lacks_is_said(saved: Path, tmp_path: Path, kind: str) -> None:
    folder = read_folder(saved / kind, mmap=False)
    for part in ("meta", "arrays"):
        for name in getattr(folder, part):
            # Not every index has them. Early folders have no calibration and no text.
            if name in ("names", "tuned", "objective", "calibration", "text"):
                continue
            kept = {key: value for key, value in getattr(folder, part).items() if key != name}
            lacking = tmp_path / f"{part}-{name}"
            write_folder(lacking, dataclasses.replace(folder, **{part: kept}))
            for shard in saved.glob(f"{kind}/shard-*"):
                (lacking / shard.name).symlink_to(shard)
            with pytest.raises(FormatError, match=f"lacks or misstates .*'{name}'"):
                irli.load(lacking)


@pytest.mark.parametrize("kind", ["shards", "label-shards"])
def test_a_save_during_a_load_is_no_damage(
    saved: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes the parts whose names the reader has just read."""
    shutil.copytree(saved / kind, tmp_path / "index")
    other = irli.load(FOLDERS / kind)
    module = sys.modules[CLASSES[kind].__module__]
    saves = iter([lambda: other.save(tmp_path / "index")])

    def read_and_save(path: Path, **options: bool) -> Folder:
        folder = read_folder(path, **options)
        next(saves, lambda: None)()
        return folder

    monkeypatch.setattr(module, "read_folder", read_and_save)
    assert len(CLASSES[kind].load(tmp_path / "index")) == len(other)
