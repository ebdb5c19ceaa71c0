"""`irli.load`: open an index folder of any kind."""

from __future__ import annotations

import importlib
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


_HOME = {
    VECTORS: ("irli.vectors.index", "VectorIndex"),
    LABELS: ("irli.labels.index", "LabelIndex"),
    SHARDS: ("irli.cluster.index", "ShardedIndex"),
    LABEL_SHARDS: ("irli.cluster.label_index", "ShardedLabelIndex"),
}


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
    if kind not in _HOME:
        raise FormatError(
            f"'{os.fspath(path)}' must hold an index that this version of irli knows. "
            f"Got one of kind '{kind}' instead. Install a newer irli."
        )
    module, name = _HOME[kind]  # only what this kind of index needs is imported
    index: VectorIndex | LabelIndex | ShardedIndex | ShardedLabelIndex
    index = getattr(importlib.import_module(module), name).load(path, mmap=mmap, verify=verify)
    return index
