"""`irli.load`: open an index folder of any kind."""

from __future__ import annotations

import os

from irli.base.folder import LABEL_SHARDS, LABELS, SHARDS, VECTORS, read_folder
from irli.base.types import StrPath
from irli.cluster.index import ShardedIndex
from irli.cluster.label_index import ShardedLabelIndex
from irli.errors import FormatError
from irli.labels.index import LabelIndex
from irli.vectors.index import VectorIndex


def load(
    path: StrPath, *, mmap: bool = True, verify: bool = True
) -> VectorIndex | LabelIndex | ShardedIndex | ShardedLabelIndex:
    """Open the index folder `path`.

    A sharded index is opened in this process; `irli.cluster.ShardedIndex.load` opens it on Ray.

    Parameters
    ----------
    mmap : bool
        Map the array files instead of reading them into memory.
    verify : bool
        Compare the checksum of every file. If False, only sizes and headers are checked.
    """
    folder = read_folder(path, mmap=mmap, verify=verify)
    if folder.kind == SHARDS:
        return ShardedIndex.load(path, mmap=mmap, verify=verify)
    if folder.kind == LABEL_SHARDS:
        return ShardedLabelIndex.load(path, mmap=mmap, verify=verify)
    if folder.kind == LABELS:
        return LabelIndex.from_folder(folder)
    if folder.kind == VECTORS:
        return VectorIndex.from_folder(folder)
    raise FormatError(
        f"'{os.fspath(path)}' must hold an index that this version of irli knows. "
        f"Got one of kind '{folder.kind}' instead. Install a newer irli."
    )
