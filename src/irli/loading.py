"""`irli.load`: open an index folder of any kind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from irli.base.folder import LABEL_SHARDS, LABELS, SHARDS, VECTORS, read_manifest
from irli.base.types import StrPath
from irli.errors import FormatError

if TYPE_CHECKING:
    from irli.cluster.index import ShardedIndex
    from irli.cluster.label_index import ShardedLabelIndex
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
        Compare the checksum of every file, which reads them all. All other checks are always made:
        sizes and headers, and that no number in an array leads outside of another one.
    """
    kind = read_manifest(path)["kind"]
    # Only what this kind of index needs is imported.
    if kind == SHARDS:
        from irli.cluster.index import ShardedIndex

        return ShardedIndex.load(path, mmap=mmap, verify=verify)
    if kind == LABEL_SHARDS:
        from irli.cluster.label_index import ShardedLabelIndex

        return ShardedLabelIndex.load(path, mmap=mmap, verify=verify)
    if kind == LABELS:
        from irli.labels.index import LabelIndex

        return LabelIndex.load(path, mmap=mmap, verify=verify)
    if kind == VECTORS:
        from irli.vectors.index import VectorIndex

        return VectorIndex.load(path, mmap=mmap, verify=verify)
    raise FormatError(
        f"'{os.fspath(path)}' must hold an index that this version of irli knows. "
        f"Got one of kind '{kind}' instead. Install a newer irli."
    )
