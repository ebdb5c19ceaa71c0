"""The folder of a sharded index: a manifest, and an ordinary index folder for each shard.

Shard folders carry a piece of their checksum in their name, as data files do, and the manifest that
names them is replaced last: a reader finds the old index or the new one, never a mix.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from irli import storage
from irli.errors import FormatError

KIND = "shards"
_SHARD = re.compile(r"shard-\d{4,}\.[0-9a-f]{8}|\.irli-shard-\d{4,}-[0-9a-f]{32}")
_LOCK = ".irli-shards.lock"


class Contents(NamedTuple):
    """What the manifest keeps, besides the names of the shards."""

    kind: str
    shards: int
    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write(
    path: Path, contents: Contents, save: Callable[[list[str]], list[str]], sums: list[str]
) -> list[str]:
    """Save a sharded index at `path`, and return the checksums of its shards.

    Parameters
    ----------
    save : function
        Saves every shard to a folder of a list, and returns the checksums of their manifests.
    sums : list of str
        These checksums, if they are known from before. Shards that are there are not written.
    """
    storage.claim(path)
    with _one_writer(path):
        try:
            if not sums or not all(map(_same, _places(path, sums), sums)):
                sums = _saved(path, save, contents.shards)
            listed = [
                {"folder": place.name, "checksum": checksum}
                for place, checksum in zip(_places(path, sums), sums, strict=True)
            ]
            meta = contents.meta | {"shards": listed}
            storage.write_folder(path, storage.Folder(contents.kind, meta, contents.arrays, {}))
        finally:
            _sweep(path)
    return sums


def _saved(path: Path, save: Callable[[list[str]], list[str]], shards: int) -> list[str]:
    """Save all shards beside those that are there, and give them their names."""
    new = [path / f".irli-shard-{shard:04d}-{uuid.uuid4().hex}" for shard in range(shards)]
    sums = save([str(folder) for folder in new])
    for folder, place, checksum in zip(new, _places(path, sums), sums, strict=True):
        if not _same(place, checksum):
            shutil.rmtree(place, ignore_errors=True)
            folder.rename(place)
    return sums


def _places(path: Path, sums: list[str]) -> list[Path]:
    return [path / f"shard-{shard:04d}.{checksum[:8]}" for shard, checksum in enumerate(sums)]


def _same(folder: Path, checksum: str) -> bool:
    """Whether a shard folder is there and intact."""
    try:
        if storage.read_manifest(folder)["checksum"] != checksum:
            return False
        storage.read_folder(folder)
    except FormatError:
        return False
    return True


def shard_paths(path: Path, folder: storage.Folder) -> list[Path]:
    """Return the folders of the shards, which must be those that the manifest means."""
    paths = []
    for shard, entry in enumerate(folder.meta["shards"]):
        own = path / entry["folder"]
        if not _SHARD.fullmatch(entry["folder"]):
            raise FormatError(f"The index at {path} names '{entry['folder']}', which is no shard.")
        try:
            checksum = storage.read_manifest(own)["checksum"]
        except FormatError as error:
            raise FormatError(f"Shard {shard} of the index at {path} is missing: {error}") from None
        if checksum != entry["checksum"]:
            raise FormatError(
                f"Shard {shard} of the index at {path} must be the one that its manifest means. "
                f"{own} holds another index instead. Restore it from a copy or build it again."
            )
        paths.append(own)
    return paths


@contextmanager
def _one_writer(path: Path) -> Iterator[None]:
    (path / ".irli.lock").touch()  # says that it is ours, also if we do not come to an end
    with open(path / _LOCK, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sweep(path: Path) -> None:
    """Remove shard folders that the current manifest does not name, also after a failed save."""
    named: set[str] = set()
    if (path / "manifest.json").exists():
        manifest = storage.read_manifest(path)
        named = {entry["folder"] for entry in manifest["meta"].get("shards", [])}
    for folder in path.iterdir():
        if _SHARD.fullmatch(folder.name) and folder.name not in named:
            shutil.rmtree(folder, ignore_errors=True)
