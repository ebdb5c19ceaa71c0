"""Write and check the folder of an index in parts: a manifest, and an index folder per part.

The names of shard folders contain a part of their checksum, like those of data files. The manifest
that lists them is replaced last. So a reader finds the old index or the new one, never a mix.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from irli.base.files import lock_file
from irli.base.folder import (
    LOCK,
    MANIFEST,
    Folder,
    claim,
    read_folder,
    read_manifest,
    write_folder,
)
from irli.errors import FormatError

_SHARD = re.compile(r"shard-\d{4,}\.[0-9a-f]{8}|\.irli-shard-\d{4,}-[0-9a-f]{32}")
_LOCK = ".irli-shards.lock"


class ShardedContents(NamedTuple):
    """The contents of the manifest, except the names of the shards."""

    kind: str
    shards: int
    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write_shards(
    path: Path, contents: ShardedContents, save: Callable[[list[str]], list[str]], sums: list[str]
) -> list[str]:
    """Save a sharded index at `path`, and return the checksums of its shards.

    Parameters
    ----------
    save : function
        Saves each shard to a folder of the list, and returns the checksums of their manifests.
    sums : list of str
        These checksums, if the shards were saved before. If all are intact at `path`, none is
        written.
    """
    claim(path)
    (path / LOCK).touch()  # marks the folder as ours, even if the save is interrupted
    with lock_file(path / _LOCK):
        try:
            if not sums or not all(map(_is_intact, _name_folders(path, sums), sums)):
                sums = _save_shards(path, save, contents.shards)
            listed = [
                {"folder": place.name, "checksum": checksum}
                for place, checksum in zip(_name_folders(path, sums), sums, strict=True)
            ]
            meta = contents.meta | {"shards": listed}
            write_folder(path, Folder(contents.kind, meta, contents.arrays, {}))
        finally:
            _sweep(path)
    return sums


def _save_shards(path: Path, save: Callable[[list[str]], list[str]], shards: int) -> list[str]:
    """Save all shards beside the existing ones, and rename them by their checksums."""
    new = [path / f".irli-shard-{shard:04d}-{uuid.uuid4().hex}" for shard in range(shards)]
    sums = save([str(folder) for folder in new])
    for folder, place, checksum in zip(new, _name_folders(path, sums), sums, strict=True):
        if not _is_intact(place, checksum):
            shutil.rmtree(place, ignore_errors=True)
            folder.rename(place)
    return sums


def _name_folders(path: Path, sums: list[str]) -> list[Path]:
    return [path / f"shard-{shard:04d}.{checksum[:8]}" for shard, checksum in enumerate(sums)]


def _is_intact(folder: Path, checksum: str) -> bool:
    """Whether a shard folder exists, is intact and has this checksum."""
    try:
        if read_manifest(folder)["checksum"] != checksum:
            return False
        read_folder(folder)
    except FormatError:
        return False
    return True


def find_shards(path: Path, folder: Folder) -> list[Path]:
    """Return the folders of the shards, checked against the manifest."""
    paths = []
    for shard, entry in enumerate(folder.meta["shards"]):
        shard_folder = path / entry["folder"]
        if not _SHARD.fullmatch(entry["folder"]):
            raise FormatError(f"The index at {path} names '{entry['folder']}', which is no shard.")
        try:
            checksum = read_manifest(shard_folder)["checksum"]
        except FormatError as error:
            raise FormatError(f"Shard {shard} of the index at {path} is missing: {error}") from None
        if checksum != entry["checksum"]:
            raise FormatError(
                f"Shard {shard} of the index at {path} must have the checksum in its manifest. "
                f"{shard_folder} holds another index instead. Restore it from a copy, or build it "
                "again."
            )
        paths.append(shard_folder)
    return paths


def check_shards(facts: list[dict[str, Any]], name: str, wanted: Sequence[Any]) -> None:
    """Raise unless each shard has the size or setting `name` that the manifest wants."""
    for shard, (fact, value) in enumerate(zip(facts, wanted, strict=True)):
        if fact["stats"][name] != value:
            raise FormatError(
                f"Shard {shard} of the index must have '{name}' {value!r}, as the manifest says. "
                f"Got {fact['stats'][name]!r} instead. Restore the folder from a copy, or build "
                "the index again."
            )


def read_checksums(folder: Folder) -> list[str]:
    """Return the checksums of the shards that the manifest means."""
    return [str(entry["checksum"]) for entry in folder.meta["shards"]]


def _sweep(path: Path) -> None:
    """Remove shard folders that the manifest does not name, such as those of a failed save."""
    named: set[str] = set()
    if (path / MANIFEST).exists():
        manifest = read_manifest(path)
        named = {entry["folder"] for entry in manifest["meta"].get("shards", [])}
    for folder in path.iterdir():
        if _SHARD.fullmatch(folder.name) and folder.name not in named:
            shutil.rmtree(folder, ignore_errors=True)
