"""Open index folders to change them, copy them, and write what was in memory."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irli.base.checks import check_choice
from irli.base.distance import resolve_metric
from irli.base.folder import (
    MANIFEST,
    VECTORS,
    Folder,
    changing,
    claim,
    publish,
    read_folder,
    read_manifest,
)
from irli.base.recipe import AUTO
from irli.base.types import StrPath
from irli.errors import InvalidParameter
from irli.store.store import Store, Sync
from irli.vectors.changes.living import Living, open_files
from irli.vectors.contents import pack_vectors, unpack_vectors
from irli.vectors.parts.part import VectorPart

if TYPE_CHECKING:
    from irli.vectors.changes.changeable import Maintain
    from irli.vectors.index import VectorIndex

_EMPTY = 256  # bytes that the file of an array without rows may have

# Settings of a recipe that are chosen again.
_BY_DATA: dict[str, Any] = dict.fromkeys(("buckets", "choices", "pieces", "repartition_every"))


def open_index(
    index: VectorIndex,
    path: StrPath,
    *,
    metric: str | None,
    dim: int | None,
    writable: bool,
    sync: Sync,
    maintain: Maintain,
) -> VectorIndex:
    """Let an index answer from a folder, and follow its changes or make them."""
    check_choice("maintain", maintain, ("auto", "manual"), owner="open")
    root = Path(path)
    if not (root / MANIFEST).exists():
        if dim is None or metric is None or not writable:
            raise InvalidParameter(
                f"The 'path' parameter of open must be an index folder. Got {os.fspath(path)!r}, "
                "which is none. To make one, pass metric and dim, too."
            )
        _create(root, metric, dim, sync)
    else:
        _check(root, metric, dim)
        if read_manifest(root).get("store") is None:
            folder = read_folder(root)
            if not writable:  # nobody has changed it yet
                return index._set(unpack_vectors(folder))
            _add_store(root, folder, sync)
    part, store = open_files(root, writable=writable, sync=sync)
    contents = part.contents
    index.maintain = maintain
    given: dict[str, object] = {"metric": contents.metric}
    if contents.recipe.name != "exact" and index._given["recipe"] == AUTO:
        # Learning anew, what depends on the data is chosen again.
        given["recipe"] = dataclasses.replace(contents.recipe, **_BY_DATA)
    living = Living(part, store, root, index._show)
    return index._take_over(
        living.part,
        _given=index._given | given,
        _living=living,
        recipe=contents.recipe,
        defaults=contents.defaults,
        tuned=contents.tuned,
    )


def _create(root: Path, metric: str, dim: int, sync: Sync) -> None:
    """Make the folder of an index without items."""
    from irli.vectors.index import VectorIndex

    resolved = resolve_metric(metric, owner="open")
    empty = VectorIndex(resolved, dim=dim)._fitted()
    claim(root)
    # What was cut off here has no items. Items without a manifest are those of somebody.
    arrays = (path.stat().st_size > _EMPTY for path in root.glob("vectors.*.npy"))
    if any(arrays) or any(root.glob("*.tail.*")):
        raise InvalidParameter(
            f"The 'path' parameter of open must be an index folder, or a new one. {root} holds "
            f"items and no {MANIFEST}. Restore the folder from a copy, or empty it."
        )
    _add_store(root, pack_vectors(empty.contents), sync)


def _check(root: Path, metric: str | None, dim: int | None) -> None:
    manifest = read_manifest(root)
    if manifest["kind"] != VECTORS:
        raise InvalidParameter(
            f"The 'path' parameter of open must be the folder of a VectorIndex. Got one of kind "
            f"{manifest['kind']!r}. Open it with irli.load."
        )
    has = manifest["meta"]["metric"]
    if metric is not None and resolve_metric(metric, owner="open") != has:
        raise InvalidParameter(
            f"The 'metric' parameter of open must be {has!r}, as in the folder. Got {metric!r} "
            "instead. Leave it out."
        )
    columns = manifest["files"]["vectors"]["shape"][1]
    if dim is not None and dim != columns:
        raise InvalidParameter(
            f"The 'dim' parameter of open must be {columns}, as in the folder. Got {dim!r} "
            "instead. Leave it out."
        )


def _add_store(root: Path, folder: Folder, sync: Sync) -> None:
    """Publish an index folder with a store of changes."""
    keys = folder.arrays.get("keys")
    items, dim = folder.arrays["vectors"].shape
    first = items if keys is None or not len(keys) else int(keys[-1]) + 1
    with changing(root):
        store = Store.create(root, dim, first_key=first, sync=sync)
        try:
            publish(root, dataclasses.replace(folder, store=store.entry(0)))
        finally:
            store.close()


def write_with_payloads(root: Path, folder: Folder, part: VectorPart) -> None:
    """Write a packed index and the payloads of its items."""
    documents = part.documents
    if documents is None:
        raise LookupError("the index has no payloads")
    store = documents.store
    claim(root)
    with changing(root):
        entry = store.write_copy(root, store.last_seq)
        publish(root, dataclasses.replace(folder, store=entry))
