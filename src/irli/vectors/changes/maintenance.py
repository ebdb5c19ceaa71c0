"""Maintenance: keep a living index good. It learns anew, or packs its arrays, when that is due.

All of it goes on beside searches and changes, and its result is shown in one step. What has changed
meanwhile goes to the buckets of the new arrays.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import get_logger, warn
from irli.base.recipe import AUTO, Recipe, as_recipe
from irli.vectors.changes.health import (
    SAMPLE,
    Found,
    Health,
    give_advice,
    is_drifted,
    is_outgrown,
    is_sparse,
    is_uneven,
    is_worse,
    measure,
    measure_items,
)
from irli.vectors.changes.living import Living
from irli.vectors.changes.recorded import Recorded
from irli.vectors.changes.refit import refit
from irli.vectors.parameters import SearchParameters
from irli.vectors.parts.part import VectorPart

if TYPE_CHECKING:
    from irli.vectors.changes.changeable import Changeable

log = get_logger(__name__)

_EVERY, _LEAST = 0.1, 1000  # a measurement after so many changes: a share of the items, or more
_UNEVEN = 0.02  # buckets are evened out after so many changes, as a share of the rows
_WARM = 0.2  # with more changes than this share of the items learned, learning begins anew
_AFTER = 0.1  # changes, of the items, after which learning that was not taken is tried again
_SHARE = 0.5  # of the time that learning in the background may take
_AGAIN = 60.0  # seconds after a failure


class Maintenance:
    """What keeps an index good.

    Parameters
    ----------
    index : Changeable
        Whose defaults are set with new arrays.
    living : Living
    given : Recipe
        How to learn.
    threads : int
        That learning may use.
    """

    def __init__(self, index: Changeable, living: Living, given: Recipe, threads: int) -> None:
        self._index, self._living, self._given = index, living, given
        self.threads = threads
        self.recorded = Recorded(living.part.dim)
        self._working = threading.Lock()
        self._thread: threading.Thread | None = None
        self._measured = 0  # changes at the last measurement
        self._refused = -math.inf  # changes when what was learned was not taken
        self._then: Found | None = None  # how items were found on the day of learning
        self._drifted = False
        self._next = 0.0  # when learning may start again
        self._again = 0.0  # when anything may, after a failure
        self.failure: str | None = None

    # --- when ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Start what is due in the background, after a change."""
        if self.is_busy or time.monotonic() < self._again:
            return
        if self._may_learn() or self._may_measure() or self._is_to_pack():
            self.start(self._work)

    def _may_learn(self) -> bool:
        """Whether learning is due, and neither too soon nor just tried."""
        if time.monotonic() < self._next or self.find_due() is None:
            return False
        return self._count_changes() - self._refused > _AFTER * len(self._living.part)

    def _may_measure(self) -> bool:
        items = self._living.part.contents.learned.items
        return self._count_changes() - self._measured >= max(_LEAST, int(_EVERY * items))

    def start(self, work: Callable[[], object]) -> None:
        """Do something in the background, unless something goes on there."""
        if self.is_busy:
            return
        self._thread = threading.Thread(
            target=self._guard, args=(work,), name="irli maintenance", daemon=True
        )
        self._thread.start()

    def _guard(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # searches go on, and health() says it
            self.failure = str(error)
            warn(f"The maintenance of an index has failed: {error}")
            self._again = time.monotonic() + _AGAIN

    @property
    def is_busy(self) -> bool:
        """Whether something goes on in the background."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Wait until what goes on in the background has ended."""
        if self._thread is not None:
            self._thread.join()

    def find_due(self) -> str | None:
        """Return why the routers are to learn anew, or None."""
        part = self._living.part
        if len(part) == 0:
            return None
        if part.contents.recipe.name == "exact":
            if self._given.name not in (AUTO, "exact"):
                enough = len(part) >= _LEAST
            else:
                enough = as_recipe(self._given.name).resolve(len(part), part.dim).name != "exact"
            return "there are enough items to learn from" if enough else None
        if is_outgrown(part.contents.learned.items, len(part)):
            return "the routers have learned from far fewer items, or from far more"
        return "items are found less well, or at more work" if self._drifted else None

    def _count_changes(self) -> int:
        """Return how many items were added or removed since the routers have learned."""
        before, changes = self._living.part.contents.learned, self._living.changes
        return before.added + changes.added + before.removed + changes.removed

    def _is_to_pack(self) -> bool:
        changes = self._living.changes
        if is_sparse(changes.rows, changes.gone):
            return True
        few = changes.added + changes.removed < _UNEVEN * changes.rows
        part = self._living.part
        bounded = part.contents.recipe.repartition == "bounded"
        return not few and bounded and is_uneven(np.array(part.loads()))

    def _work(self) -> None:
        if self._may_measure() and self.find_due() is None:
            if self._living.changes.gone:  # removed items take work, too
                self.compact()
            self._measured = self._count_changes()
            self.measure_drift()
        if self._may_learn():
            self.refresh()
        elif self._is_to_pack():
            self.compact()

    # --- what ----------------------------------------------------------------------------------

    def measure_drift(self) -> None:
        """Measure how items are found, and compare it with the day of learning."""
        part = self._living.part
        if part.contents.recipe.name == "exact":
            return
        now = measure_items(part, self._index.defaults, 0, part.searcher.items, self._measured)
        if now is not None:
            self._then = self._then or now
            growth = len(part) / max(1, part.contents.learned.items)
            self._drifted = is_drifted(self._then, now, growth)

    def compact(self) -> None:
        """Pack the arrays anew, without removed items, in even buckets. The routers stay."""
        with self._working:
            part, applied = self._living.seal()
            index = self._index
            packed = part.compact(even=True).tuned_as(index.defaults, index.tuned)
            self._living.replace(packed, applied)

    def refresh(self) -> bool:
        """Learn anew from the items that are there. Return whether the result was taken."""
        with self._working:
            began = time.monotonic()
            part, applied = self._living.seal()
            packed = part.compact()
            if len(packed.ids) == 0:
                return False
            learned, exact = packed.learned, packed.recipe.name == "exact"
            few = learned.added + learned.removed <= _WARM * max(1, learned.items)
            wanted = as_recipe(self._given).resolve(len(packed.ids), part.dim).buckets
            few &= wanted == packed.recipe.buckets  # others cannot go on
            queries, relevant = self.recorded.take(part, packed)
            held = packed.tuning
            if queries is None and (held.rows < 0).any() and not held.by_relevance:
                queries = held.queries[held.rows < 0]  # sample queries that fit was given
            with tempfile.TemporaryDirectory(prefix="irli-") as folder:
                made = refit(
                    Path(folder),
                    packed,
                    self._given,
                    queries,
                    relevant,
                    warm=few and not exact and relevant is None,
                    threads=self.threads,
                )
            made = dataclasses.replace(
                made,
                ids=packed.ids,
                strings=packed.strings,
                keys=packed.keys,
                columns=packed.columns,
                since=learned.anew(len(packed.ids)),
            )
            took = time.monotonic() - began
            self._next = time.monotonic() + took * (1 / _SHARE - 1)
            if not exact and not self._is_better(part, VectorPart(made), made.defaults, queries):
                log.info("refresh: the routers of before stay")
                self._refused, self._drifted = self._count_changes(), False
                return False
            self._living.replace(made, applied)
            self._measured, self._refused = 0, -math.inf
            self._drifted, self.failure = False, None
            return True

    def _is_better(
        self,
        part: VectorPart,
        made: VectorPart,
        parameters: SearchParameters,
        queries: NDArray[np.float32] | None,
    ) -> bool:
        """Whether new arrays find as much as the old ones, at no more work.

        If queries taught them, others of these decide. The work of items is not theirs.
        """
        defaults = self._index.defaults
        old = measure_items(part, defaults, 0, part.searcher.items, 0)
        new = measured = measure_items(made, parameters, 0, made.searcher.items, 0)
        asked = made.tuning.queries[made.tuning.rows < 0][:SAMPLE]
        if queries is not None and len(asked):
            old, new = measure(part, defaults, asked), measure(made, parameters, asked)
        log.info("refresh: %s before, %s after", old, new)
        if old is not None and new is not None and is_worse(old, new):
            return False
        self._then = measured
        return True

    # --- health --------------------------------------------------------------------------------

    def health(self) -> Health:
        """Measure the index."""
        living, part = self._living, self._living.part
        self.measure_drift()
        bound, items, defaults = (
            part.contents.learned.rows,
            part.searcher.items,
            self._index.defaults,
        )
        learned = part.contents.recipe.name != "exact"
        queries, _ = self.recorded.take(part, None)
        recorded = None
        if queries is not None:
            recorded = measure(part, defaults, queries[-SAMPLE:])
        before, changes = part.contents.learned, living.changes
        rows, gone = living.changes.rows, living.changes.gone
        stats, loads = living.store.stats(), part.loads()
        due = self.find_due()
        size = part.stats()["bytes"]
        mean = max(float(np.mean(loads)), 1e-9)
        return Health(
            items=len(part),
            learned=part.contents.learned.items,
            added=before.added + changes.added,
            removed=before.removed + changes.removed,
            removed_rows=gone / max(1, rows),
            balance=float(np.max(loads)) / mean,
            refreshes=part.contents.learned.refreshes,
            old=measure_items(part, defaults, 0, bound, 0) if learned else None,
            recent=measure_items(part, defaults, bound, items, 0) if learned else None,
            recorded=recorded,
            work_then=None if self._index.tuned is None else self._index.tuned.work,
            bytes=size + stats.payload_bytes,
            bytes_to_reclaim=int(size * gone / max(1, rows)) + stats.free_bytes,
            learning=self.is_busy,
            advice=give_advice(due, self._is_to_pack()),
            warnings=[text for text in (self.failure, stats.warning) if text],
        )
