"""Changeable: the methods of an index whose items change, of any size and at any time."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import as_vectors
from irli.base.ids import Ids, make_ids
from irli.base.recipe import as_recipe
from irli.base.types import StrPath
from irli.engine.metric import prepare_vectors
from irli.errors import InvalidParameter
from irli.vectors.front import RECALL, K, VectorFront, check_scale
from irli.vectors.parts.part import VectorPart
from irli.vectors.tune_result import TuneResult

if TYPE_CHECKING:  # an index that never changes has no store
    from irli.vectors.changes.health import Health
    from irli.vectors.changes.living import Living
    from irli.vectors.changes.maintenance import Maintenance

Document = Mapping[str, Any]
Maintain = Literal["auto", "manual"]


class Item(NamedTuple):
    """An item of an index: what `get` returns."""

    id: Any
    vector: NDArray[np.float32]
    payload: dict[str, Any] | None


class Changeable(VectorFront[VectorPart]):
    """Items are added, replaced and removed, with payloads that filters can ask for.

    A change is seen by the next search. One thread changes an index at a time, and others wait;
    searches wait for nobody. If the index was opened with `irli.open`, a change is on disk when its
    call returns.
    """

    maintain: Maintain = "auto"
    maintain_threads: int = 1
    record_share: float = 0.0
    _living: Living | None = None
    _maintenance: Maintenance | None = None

    # --- changing ------------------------------------------------------------------------------

    def add(
        self, X: Any, ids: Any = None, payloads: Sequence[Document | None] | None = None
    ) -> Any:
        """Add items, and return their ids.

        Parameters
        ----------
        X : array_like of shape (n, d), or (d,) for a single item
        ids : array_like of shape (n,), optional
            Integers, or strings if those of the index are strings; UUIDs count as strings. By
            default, the integers after the largest one. An id that is there already is an error:
            see `upsert`.
        payloads : list of dict or None, optional
            A document for each item, as JSON has them.

        Examples
        --------
        >>> import irli
        >>> index = irli.VectorIndex("l2", dim=2)
        >>> index.add([[0.0, 1.0], [5.0, 5.0]], payloads=[{"lang": "en"}, {"lang": "fi"}])
        array([0, 1])
        >>> index.search([0.0, 0.0], k=1, filter={"lang": "fi"}).ids
        array([1])
        """
        return self._add(X, ids, payloads, replace=False)

    def upsert(self, X: Any, ids: Any, payloads: Sequence[Document | None] | None = None) -> Any:
        """Add items, in place of those that have the same ids. A search sees the old or the new.

        Parameters are those of `add`. A replaced item loses its payload.

        Examples
        --------
        >>> import irli
        >>> index = irli.VectorIndex().fit([[0.0], [1.0]], ids=[7, 8])
        >>> index.upsert([[9.0], [5.0]], ids=[8, 9])
        array([8, 9])
        >>> index.vector([7, 8, 9]).ravel()
        array([0., 9., 5.], dtype=float32)
        """
        if ids is None:
            raise InvalidParameter(
                "The 'ids' parameter of upsert must be given, to know which items to replace. "
                "Got none. Use add for new items."
            )
        return self._add(X, ids, payloads, replace=True)

    def remove(self, ids: Any = None, *, filter: Any = None) -> int:
        """Remove items by their ids, or all that a filter allows. Return how many there were.

        Ids that the index does not have are left out.

        Examples
        --------
        >>> import irli
        >>> index = irli.VectorIndex().fit([[0.0], [1.0], [2.0]])
        >>> index.remove([1, 99]), len(index), 1 in index
        (1, 2, False)
        """
        if (ids is None) == (filter is None):
            raise InvalidParameter(
                "The 'ids' parameter of remove, or 'filter', must be given, and not both. Got "
                f"{'none' if ids is None else 'both'} of them. Name the items in one way."
            )
        living = self._live()
        with living.lock:
            part = living.part
            if filter is not None:
                rows = part.allow(filter).rows.astype(np.int64)
                removed = part.searcher.removed
                rows = rows if removed is None else rows[~removed[rows]]
            else:
                rows = np.unique(_find(part.ids, as_list(ids)))
                rows = rows[rows >= 0]
            if len(rows):
                living.write(rows, _no_vectors(part), _no_ids(part), None)
        if self.maintain == "auto":
            self.look_after()
        return len(rows)

    def set_payload(self, ids: Any, values: Document) -> None:
        """Give items these values at the top level of their payloads. Others stay."""
        self._edit("set_payload", ids, values)

    def overwrite_payload(self, ids: Any, payload: Document | None) -> None:
        """Give items this payload in place of what they have."""
        self._edit("overwrite_payload", ids, payload)

    def delete_payload(self, ids: Any, fields: Sequence[str]) -> None:
        """Remove fields from the payloads of items."""
        self._edit("delete_payload_keys", ids, fields)

    def _edit(self, how: str, ids: Any, *arguments: Any) -> None:
        living = self._live()
        with living.lock:
            living.edit(how, np.atleast_1d(living.part.ids.locate(as_list(ids))), *arguments)

    # --- reading -------------------------------------------------------------------------------

    def get(self, id: Any) -> Item:
        """Return an item with its vector and its payload.

        Examples
        --------
        >>> import irli
        >>> index = irli.VectorIndex("l2", dim=1)
        >>> _ = index.add([[3.0]], ids=["a"], payloads=[{"n": 1}])
        >>> index.get("a")
        Item(id='a', vector=array([3.], dtype=float32), payload={'n': 1})
        """
        part = self._fitted()
        row = np.atleast_1d(part.ids.locate(as_id(id)))
        return Item(as_id(id), part.take(row)[0], part.payloads(row)[0])

    def payload(self, ids: Any) -> Any:
        """Return the payload of an id, or a list with those of several ids. None is none."""
        part = self._fitted()
        rows = part.ids.locate(as_list(ids) if np.ndim(ids) else as_id(ids))
        found = part.payloads(np.atleast_1d(rows))
        return found if rows.ndim else found[0]

    def __iter__(self) -> Iterator[Any]:
        ids = self._fitted().ids.all()
        return iter(ids.tolist())

    # --- staying good --------------------------------------------------------------------------

    def record(self, queries: Any, relevant: Any = None) -> None:
        """Record queries that users have asked, for the routers to learn from at the next refresh.

        A random sample of them is kept.

        Parameters
        ----------
        queries : array_like of shape (n, d), or (d,) for a single one
        relevant : list of lists of ids, optional
            What users have chosen for each query. The routers then learn what is relevant.
        """
        array = np.asarray(queries)
        checked = as_vectors(array[None] if array.ndim == 1 else array, "queries", self.dim)
        prepared = prepare_vectors(check_scale(checked, "queries", self.metric), self.metric)
        if relevant is not None and len(relevant) != len(prepared):
            raise InvalidParameter(
                f"The 'relevant' parameter of record must hold a list of ids for each of "
                f"{len(prepared)} queries. Got {len(relevant)} instead. Pass as many."
            )
        listed = None if relevant is None else [list(ids) for ids in relevant]
        self._maintained().recorded.add(prepared, listed)

    def refresh(self, *, wait: bool = True) -> bool:
        """Let the routers learn anew from the items and the recorded queries, in another process.

        Searches and changes go on. The result is taken if held-out items and queries find as much
        as before, at no more work. Return whether it was; with ``wait=False``, return at once.
        """
        maintenance = self._maintained()
        if wait:
            maintenance.wait()
            return maintenance.refresh()
        maintenance.start(maintenance.refresh)
        return False

    def compact(self) -> None:
        """Pack the arrays anew, and give back what removed items take. The routers stay."""
        self._maintained().compact()

    def look_after(self) -> None:
        """Start in the background what is due. With ``maintain="auto"``, every change does so."""
        self._maintained().look()

    def wait(self) -> None:
        """Wait until nothing goes on in the background."""
        if self._maintenance is not None:
            self._maintenance.wait()

    def health(self) -> Health:
        """Measure how well the index finds its items, and say what to do.

        Examples
        --------
        >>> import irli
        >>> index = irli.VectorIndex("l2", dim=2)
        >>> _ = index.add([[0.0, 1.0], [1.0, 0.0]])
        >>> index.health().advice
        []
        """
        return self._maintained().health()

    def _record_some(self, queries: Any) -> None:
        """Record a share of the queries of a search."""
        array = np.asarray(queries)
        rows = array[None] if array.ndim == 1 else array
        chosen = np.random.default_rng().random(len(rows)) < self.record_share
        if chosen.any():
            self.record(rows[chosen])

    def _maintained(self) -> Maintenance:
        living = self._live()
        if self._maintenance is None:
            from irli.vectors.changes.maintenance import Maintenance

            recipe = as_recipe(self._given["recipe"])
            self._maintenance = Maintenance(self, living, recipe, self.maintain_threads)
        return self._maintenance

    def tune(self, recall: float = RECALL, k: int = K, queries: Any = None) -> TuneResult:
        tuned = super().tune(recall, k, queries)
        living = self._living
        if living is not None and living.root is not None and not living.is_reader:
            self.compact()  # the folder has the parameters, too
        return tuned

    # --- files ---------------------------------------------------------------------------------

    def snapshot(self, path: StrPath) -> None:
        """Copy the index folder, as it is now, to `path`, while it may be changed.

        The copy is an index folder of its own. To go back to it, copy it back.
        """
        living = self._live()
        if living.root is None:
            raise InvalidParameter(
                "The index of snapshot must have a folder. Got one in memory. Use save(path)."
            )
        from irli.store.snapshots import take_snapshot

        take_snapshot(living.root, path)

    def close(self) -> None:
        """Wait for what goes on in the background, and close the folder. Searches still answer."""
        self.wait()
        if self._living is not None:
            self._living.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fitted(self) -> VectorPart:
        living = self._living
        if living is not None and living.is_reader:
            living.follow()
        return super()._fitted()

    def _forget_changes(self) -> None:
        """Let `fit` begin anew. An index with a folder keeps it, and what is in there."""
        if self._living is not None and self._living.root is not None:
            raise InvalidParameter(
                "The index of fit must have no folder open for changes. Got one that has. "
                "Add items to it and call refresh(), or fit a new VectorIndex and save it."
            )
        vars(self).update(_living=None, _maintenance=None)

    def __getstate__(self) -> dict[str, Any]:
        if self._living is None:
            return super().__getstate__()
        part = self._fitted()
        if part.documents is not None and part.documents.store.scroll(limit=1):
            raise InvalidParameter(
                "An index must have no payloads to be pickled. Got one that has. Keep it with "
                "save(path), and open it with irli.load."
            )
        packed = copy.copy(self)
        contents = dataclasses.replace(part.compact(), keys=None)
        contents = contents.tuned_as(self.defaults, self.tuned)
        packed._take_over(VectorPart(contents), defaults=contents.defaults, tuned=contents.tuned)
        return packed.__getstate__()

    def __copy__(self) -> Self:
        copied = super().__copy__()
        vars(copied).update(_living=None, _maintenance=None)
        return copied

    # --- how -----------------------------------------------------------------------------------

    def _live(self) -> Living:
        """Return what changes the index. It is made when it is first needed."""
        part = self._fitted()
        if self._living is None:
            from irli.store.store import Store
            from irli.vectors.changes.living import Living

            contents = part.compact()
            store = Store.in_memory(part.dim, first_key=len(contents.ids))
            if part.changed is not None:  # this index is a copy of one that changes
                store.add_payloads(0, part.payloads(part.searcher.left.astype(np.int64)))
                contents = dataclasses.replace(contents, keys=None)
            self._living = Living(VectorPart(contents), store, None, self._show)
            self._show(self._living.part)
        return self._living

    def _with_payloads(self, part: VectorPart, payloads: Any) -> Living | None:
        """Return what changes an index that was fitted with payloads."""
        if payloads is None:
            return None
        from irli.store.store import Store
        from irli.vectors.changes.living import Living

        store = Store.in_memory(part.dim, first_key=len(part))
        store.add_payloads(0, payloads)
        return Living(part, store, None, self._show)

    def _show(self, part: VectorPart, **settings: Any) -> None:
        """Answer with a new version of the items."""
        self._take_over(part, **settings)

    def _add(
        self, X: Any, ids: Any, payloads: Sequence[Document | None] | None, *, replace: bool
    ) -> Any:
        owner = "upsert" if replace else "add"
        array = np.asarray(X) if not hasattr(X, "ndim") else X
        vectors = as_vectors(array[None] if array.ndim == 1 else array, "X", self.dim)
        vectors = prepare_vectors(check_scale(vectors, "X", self.metric), self.metric)
        check_payloads(payloads, len(vectors), owner)
        living = self._live()
        with living.lock:
            named = self._name(living, ids, len(vectors), owner)
            given = named.all().tolist()
            rows = _find(living.part.ids, given)
            if not replace and (rows >= 0).any():
                known = given[int(np.argmax(rows >= 0))]
                raise InvalidParameter(
                    f"The 'ids' parameter of add must hold ids that the index does not have. Got "
                    f"{known!r}, which it has. Use upsert to replace items."
                )
            kept = named.values if named.strings is None else given
            listed = None if payloads is None else list(payloads)
            living.write(rows[rows >= 0], vectors, kept, listed)
        if self.maintain == "auto":
            self.look_after()
        return named.all()

    def _name(self, living: Living, ids: Any, count: int, owner: str) -> Ids:
        """Return the ids of items that are added. The first ids decide what ids an index has."""
        part = living.part
        if ids is not None:
            ids = as_list(ids)
            named = make_ids(ids, count)
        elif part.names is not None:
            raise InvalidParameter(
                f"The 'ids' parameter of {owner} must be given for an index whose ids are strings. "
                "Got none. Pass a string for each item."
            )
        else:
            named = Ids(np.arange(count) + int(part.ids.values.max(initial=-1)) + 1)
        if (named.strings is not None) != (part.names is not None):
            if len(part.ids.values):
                kind = "strings" if part.names is not None else "integers"
                raise InvalidParameter(
                    f"The 'ids' parameter of {owner} must hold {kind}, as the ids of this index "
                    f"are. Got {named.all().tolist()[0]!r} instead. Convert them."
                )
            living.rename()
        return named


def check_payloads(payloads: Any, count: int, owner: str) -> None:
    """Raise unless there is a document, or None, for each item."""
    if payloads is not None and len(payloads) != count:
        raise InvalidParameter(
            f"The 'payloads' parameter of {owner} must hold a document, or None, for each of "
            f"{count} items. Got {len(payloads)} instead. Pass as many."
        )


def as_id(id: Any) -> Any:
    """Return an id, with a UUID as a string."""
    return id if isinstance(id, str | int | np.integer) else str(id) if _is_uuid(id) else id


def as_list(ids: Any) -> Any:
    """Return ids as a list or an array, with UUIDs as strings. A single one becomes a list."""
    if isinstance(ids, str) or np.ndim(ids) == 0:
        return [as_id(ids)] if not isinstance(ids, set | frozenset | range) else list(ids)
    if isinstance(ids, list | tuple) and any(_is_uuid(id) for id in ids):
        return [as_id(id) for id in ids]
    return ids


def _is_uuid(id: Any) -> bool:
    return type(id).__name__ == "UUID" and type(id).__module__ == "uuid"


def _find(ids: Ids, wanted: Any) -> NDArray[np.int64]:
    """Return the rows of ids, or -1. An index without items has none."""
    if len(ids.values) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    return ids.find(wanted)


def _no_vectors(part: VectorPart) -> NDArray[np.float32]:
    return np.empty((0, part.dim), dtype=np.float32)


def _no_ids(part: VectorPart) -> Any:
    return [] if part.names is not None else np.empty(0, dtype=np.int64)
