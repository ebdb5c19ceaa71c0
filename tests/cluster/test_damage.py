"""The manifest of a sharded index must fit its shards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import FOLDERS, Array, change, change_meta, put, read

import irli
from irli import FormatError
from irli.base.folder import Folder, write_folder


def save(path: Path, name: str, folder: Folder) -> Path:
    """Save a sharded index with another manifest."""
    shutil.copytree(FOLDERS / name, path, dirs_exist_ok=True)
    write_folder(path, folder)
    return path


def drop(array: Array) -> Array:
    return array[:-1]


@pytest.mark.parametrize("name", ["shards", "label-shards"])
def test_what_is_not_damaged_opens(name: str, tmp_path: Path) -> None:
    assert len(irli.load(save(tmp_path, name, read(name)))) > 0


@pytest.mark.parametrize(
    ("name", "array", "edit", "named"),
    [
        ("shards", "tuning_queries", lambda a: a.astype(np.float64), "tuning_queries"),
        ("shards", "tuning_queries", np.ravel, "tuning_queries"),
        ("shards", "tuning_queries", put((0, 0), np.inf), "tuning_queries"),
        ("label-shards", "labels", lambda a: a.astype(np.int32), "labels"),
        ("label-shards", "labels", put(0, -1), "labels"),
        ("label-shards", "labels", put(0, 9), "labels"),
        ("label-shards", "labels", drop, "labels"),
        ("label-shards", "starts", put(0, 1), "starts"),
        ("label-shards", "starts", put(1, 10**6), "starts"),
        ("label-shards", "starts", put(1, -4), "starts"),
        ("label-shards", "starts", drop, "starts"),
    ],
)
def test_an_array_that_does_not_fit_is_named(
    name: str, array: str, edit: Callable[[Array], Array], named: str, tmp_path: Path
) -> None:
    path = save(tmp_path, name, change(read(name), array, edit))
    with pytest.raises(FormatError, match=f"The array '{named}' of the index must"):
        irli.load(path)


@pytest.mark.parametrize(
    ("name", "array", "edit", "message"),
    [
        ("shards", "tuning_queries", lambda a: a[:, :-1], "Shard 0 .* must have 'dim' 7.* Got 8"),
        ("label-shards", "starts", put(1, 4), "Shard 0 .* must have 'items'"),
    ],
)
def test_shards_fit_the_manifest(
    name: str, array: str, edit: Callable[[Array], Array], message: str, tmp_path: Path
) -> None:
    path = save(tmp_path, name, change(read(name), array, edit))
    with pytest.raises(FormatError, match=message):
        irli.load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": "ip"},
        {"metric": "far"},
        {"defaults": {"probes": -1}},
        {"defaults": {"score": "best"}},
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = save(tmp_path, "shards", change_meta(read("shards"), **changes))
    with pytest.raises(FormatError):
        irli.load(path)


def test_there_is_a_name_for_each_label(tmp_path: Path) -> None:
    folder = read("label-shards")
    end = int(folder.arrays["names_offsets"][-2])
    folder = change(folder, "names", lambda array: array[:end])
    path = save(tmp_path, "label-shards", change(folder, "names_offsets", drop))
    with pytest.raises(FormatError, match="The array 'names' of the index must name 9 labels"):
        irli.load(path)
