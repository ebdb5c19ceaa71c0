"""Living: an index that changes, in its folder or in memory. It has one writer and any readers."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.folder import MANIFEST, changing, publish, read_folder
from irli.base.strings import Strings
from irli.store.log import Batch, Folded
from irli.store.store import Store, Sync
from irli.vectors.changes.changes import Changes
from irli.vectors.contents import VectorContents, pack_vectors, unpack_vectors
from irli.vectors.parts.part import VectorPart

FOLLOW = 0.05  # seconds after which a reader looks for changes again, at most
_OPENED = 10  # times that an index is opened again while others fold it


class Living:
    """The store of an index and the newest version of what it holds.

    Parameters
    ----------
    part : VectorPart
        The index as its arrays are.
    store : Store
        Its changes.
    root : Path or None
        The folder of the index, if it has one.
    show : function
        Called with each version after the first, and with settings of the index that come with it.
        A search that begins then uses it.
    """

    def __init__(
        self,
        part: VectorPart,
        store: Store,
        root: Path | None,
        show: Callable[..., None],
    ) -> None:
        self.lock = threading.RLock()
        self.root, self.store, self._show = root, store, show
        self._looked, self._behind = 0.0, False
        self._manifest = 0, 0
        self._manifest = self._mark_manifest()
        self._follow_lock = threading.Lock()
        self.changes = Changes(part, store)
        self.changes.apply(store.read_since(store.applied))

    @property
    def is_reader(self) -> bool:
        """Whether another process changes the index."""
        return not self.store.writable

    @property
    def part(self) -> VectorPart:
        """The newest version."""
        return self.changes.part

    # --- changing ------------------------------------------------------------------------------

    def write(
        self,
        gone: NDArray[np.int64],
        vectors: NDArray[np.float32],
        ids: Any,
        payloads: list[Any] | None,
    ) -> None:
        """Remove rows (m,) and add items, as one change. `lock` must be held.

        What goes wrong before the store has it changes nothing.
        """
        places = self.changes.place(vectors) if len(vectors) else None
        removed = self.changes.find_keys(gone)
        self._take_over(self.store.write(removed, vectors, places, ids, payloads))

    def edit(self, how: str, rows: NDArray[np.int64], *arguments: Any) -> None:
        """Change the payloads of rows (n,) by a method of the store. `lock` must be held."""
        self._take_over(getattr(self.store, how)(self.changes.find_keys(rows), *arguments))

    def rename(self) -> None:
        """Let an index without items have strings as ids, or integers again."""
        part, applied = self.seal()
        contents = part.compact()
        names = Strings.of([]) if contents.strings is None else None
        self.replace(dataclasses.replace(contents, strings=names), applied)

    def _take_over(self, batch: Batch) -> None:
        """Show a change that the store has. After an interrupt in between, read the store again."""
        done = False
        try:
            self._show(self.changes.apply([batch]))
            done = True
        finally:
            if not done:
                self.changes = Changes(self._read_fitted(), self.store)
                self._show(self.changes.apply(self.store.read_since(self.store.applied)))

    def _read_fitted(self) -> VectorPart:
        return VectorPart(self.part.contents)

    # --- new arrays ----------------------------------------------------------------------------

    def seal(self) -> tuple[VectorPart, int]:
        """Return the newest version, and the number of the last change that it has."""
        with self.lock:
            return self.part, self.store.seal()

    def replace(self, contents: VectorContents, applied: int, **attributes: Any) -> None:
        """Let new arrays take the place of the old ones and of all changes up to `applied`.

        Changes made since stay: their items go to the buckets of the new arrays.
        """
        if self.root is not None:
            folder = pack_vectors(dataclasses.replace(contents, **attributes))
            entry = self.store.entry(applied)
            with changing(self.root):
                publish(self.root, dataclasses.replace(folder, store=entry))
            contents = unpack_vectors(read_folder(self.root, verify=False))
        part = VectorPart(contents)
        with self.lock:
            later = self.store.read_since(applied)
            before, self.store.applied = self.store.applied, applied
            try:
                changes = Changes(part, self.store)
                changes.apply(later)
            except BaseException:
                self.store.applied = before
                raise
            self.changes = changes
            self._show_anew()
            self.store.fold(applied)

    # --- following -----------------------------------------------------------------------------

    def follow(self) -> None:
        """Take over what the writer has changed, if this is a reader. It looks now and then."""
        now = time.monotonic()
        if now - self._looked < FOLLOW or not self._follow_lock.acquire(blocking=False):
            return
        try:
            self._looked = now
            mark, changed = self._mark_manifest(), self.store.changed()
            if mark != self._manifest:
                self._open_again()
                self._manifest, self._behind = mark, False
            self._behind |= changed
            if self._behind:
                self._catch_up()
                self._behind = False
        except BaseException:  # such as an error of the disk: read all of it the next time
            self.changes = Changes(self._read_fitted(), self.store)
            raise
        finally:
            self._follow_lock.release()

    def _catch_up(self) -> None:
        try:
            batches = self.store.read_since(self.changes.seq)
        except Folded:
            self._open_again()
        else:
            self._show(self.changes.apply(batches))

    def _open_again(self) -> None:
        """Open new arrays, and what has changed since. Old ones serve searches that have begun."""
        if self.root is None:
            return
        part, store = open_files(self.root, writable=False, sync="normal")
        changes = Changes(part, store)
        changes.apply(store.read_since(store.applied))
        # The old store is closed when the last search is done that reads payloads in it.
        self.store, self.changes = store, changes
        self._show_anew()

    def _show_anew(self) -> None:
        """Show new arrays, with the parameters that they were tuned to."""
        contents = self.part.contents
        tuned = {"defaults": contents.defaults, "tuned": contents.tuned}
        self._show(self.part, recipe=contents.recipe, **tuned)

    def _mark_manifest(self) -> tuple[int, int]:
        """Return what tells one manifest from the next. What is open outlives one that is lost."""
        if self.root is None:
            return 0, 0
        try:
            found = os.stat(self.root / MANIFEST)
        except OSError:
            return self._manifest
        return found.st_ino, found.st_mtime_ns

    def close(self) -> None:
        """Close the store. What was acknowledged is on disk."""
        self.store.close()


def open_files(root: Path, *, writable: bool, sync: Sync) -> tuple[VectorPart, Store]:
    """Open the arrays and the store of an index folder. Start over if it is folded meanwhile."""
    for _ in range(_OPENED):
        folder = read_folder(root, verify=False)
        if folder.store is None:
            raise LookupError(f"{root} has no store")
        part = VectorPart(unpack_vectors(folder))
        try:
            return part, Store.open(root, folder.store, writable=writable, sync=sync)
        except Folded:
            continue
    raise TimeoutError(f"The index at {root} is folded again and again. Try it later.")
