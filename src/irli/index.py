"""Opening an index folder, whatever kind of index it holds."""

from __future__ import annotations

import os

from irli import clusterfolder, clusterlabels, labelfolder, vectors
from irli.cluster import ShardedIndex
from irli.clusterlabels import ShardedLabelIndex
from irli.errors import FormatError
from irli.labels import LabelIndex
from irli.storage import read_folder
from irli.vectors import VectorIndex


def load(
    path: str | os.PathLike[str], *, mmap: bool = True, verify: bool = True
) -> VectorIndex | LabelIndex | ShardedIndex | ShardedLabelIndex:
    """Open the index folder `path`.

    A sharded index is opened in this process; `irli.cluster.ShardedIndex.load` opens it on Ray.

    Parameters
    ----------
    mmap : bool
        Map the arrays instead of reading them.
    verify : bool
        Compare all checksums first. Without it, only sizes and headers are checked.
    """
    folder = read_folder(path, mmap=mmap, verify=verify)
    if folder.kind == clusterfolder.KIND:
        return ShardedIndex.load(path, mmap=mmap, verify=verify)
    if folder.kind == clusterlabels.KIND:
        return ShardedLabelIndex.load(path, mmap=mmap, verify=verify)
    if folder.kind == labelfolder.KIND:
        return LabelIndex.from_folder(folder)
    if folder.kind != vectors.KIND:
        raise FormatError(
            f"'{os.fspath(path)}' must hold an index that this version of irli knows. "
            f"Got one of kind '{folder.kind}' instead. Install a newer irli."
        )
    return VectorIndex.from_folder(folder)
