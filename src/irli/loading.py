"""`irli.load` and `irli.open`: open an index folder of any kind, to search or to change it."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from irli.base.folder import (
    LABEL_SHARDS,
    LABELS,
    MANIFEST,
    OPEN_SHARDS,
    SHARDS,
    VECTORS,
    read_manifest,
)
from irli.base.types import StrPath
from irli.errors import FormatError

if TYPE_CHECKING:
    from irli.base.recipe import Recipe
    from irli.cluster.index import ShardedIndex
    from irli.cluster.label_index import ShardedLabelIndex
    from irli.cluster.opened import OpenShards
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
) -> VectorIndex | LabelIndex | ShardedIndex | ShardedLabelIndex | OpenShards:
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
    if kind == OPEN_SHARDS:
        from irli.cluster.opened import open_shards

        return open_shards(path, writable=False, maintain="manual")
    if kind not in _HOME:
        raise FormatError(
            f"'{os.fspath(path)}' must hold an index that this version of irli knows. "
            f"Got one of kind '{kind}' instead. Install a newer irli."
        )
    module, name = _HOME[kind]  # only what this kind of index needs is imported
    index: VectorIndex | LabelIndex | ShardedIndex | ShardedLabelIndex
    index = getattr(importlib.import_module(module), name).load(path, mmap=mmap, verify=verify)
    return index


def open(
    path: StrPath,
    *,
    metric: str | None = None,
    dim: int | None = None,
    recipe: str | Recipe | None = None,
    writable: bool = True,
    sync: Literal["full", "normal"] = "full",
    maintain: Literal["auto", "manual"] = "auto",
    record: float = 0.0,
) -> Any:
    """Open the folder of an index to change it: to add, replace and remove items.

    A change is on disk when its call returns. One process changes an index at a time. Others may
    open it with ``writable=False`` or `irli.load`, and follow the changes. A label index keeps what
    `partial_fit` and its other changes do; all but `writable` is for vectors.

    Parameters
    ----------
    path : path
        An index folder, or a new one: then `metric` and `dim` are needed.
    metric, dim, recipe : as for `VectorIndex`
        The recipe is used when routers learn.
    sync : {"full", "normal"}
        Whether a change waits for the disk. With "normal", the last changes may be lost if the
        power fails. Nothing is lost if the process ends, however it does.
    maintain : {"auto", "manual"}
        Whether routers learn anew in the background when that is due. Else call `refresh`.
    record : float
        The share of the queries of searches that are recorded, for routers to learn from.

    Examples
    --------
    >>> import tempfile
    >>> import irli
    >>> folder = tempfile.mkdtemp()
    >>> with irli.open(folder, metric="l2", dim=2) as index:
    ...     ids = index.add([[0.0, 1.0], [5.0, 5.0]], payloads=[{"lang": "en"}, {"lang": "fi"}])
    >>> irli.load(folder).search([5.0, 4.0], k=1).ids
    array([1])
    """
    kind = read_manifest(path)["kind"] if (Path(path) / MANIFEST).exists() else None
    if kind == OPEN_SHARDS:
        from irli.cluster.opened import open_shards

        return open_shards(path, writable=writable, sync=sync, maintain=maintain)
    if kind == LABELS:
        from irli.labels.index import LabelIndex

        return LabelIndex.open(path, writable=writable)
    from irli.vectors.index import VectorIndex

    return VectorIndex.open(
        path,
        metric=metric,
        dim=dim,
        recipe=recipe,
        writable=writable,
        sync=sync,
        maintain=maintain,
        record=record,
    )
