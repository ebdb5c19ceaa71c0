"""Copy an index folder while it is being changed."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from irli.base.files import make_folder, sync_directory, write_atomically
from irli.base.folder import MANIFEST, holding, list_files, read_manifest
from irli.base.types import StrPath
from irli.errors import InvalidParameter
from irli.store.store import Store


def take_snapshot(path: StrPath, target: StrPath) -> None:
    """Copy the index folder at `path`, with all that is acknowledged, to a new folder.

    Files that never change are linked where the file system can. Others may change the index
    meanwhile, but a fold waits. To restore, use the copy.
    """
    root, copy = Path(path), Path(target)
    make_folder(copy, "'path' parameter of snapshot")
    if any(copy.iterdir()):
        raise InvalidParameter(
            f"The 'path' parameter of snapshot must be a new or an empty folder. {copy} holds "
            "files already. Choose another path."
        )
    with holding(root):
        manifest = read_manifest(root)
        for name in list_files(root):
            _link(root / name, copy / name)
        if "store" in manifest:
            with Store.open(root, manifest["store"]) as store:
                store.copy_to(copy)
        sync_directory(copy)
        # Only now is it an index.
        with write_atomically(copy, MANIFEST) as file:
            file.write((root / MANIFEST).read_bytes())
        sync_directory(copy)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        # Another file system, or one without links.
        shutil.copyfile(source, target)
        with open(target, "rb+") as file:
            os.fsync(file.fileno())
