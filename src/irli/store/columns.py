"""Typed columns: what payloads say at a path, in row order, so that filters are array operations.

A column is made when a filter first asks for its field, by one pass over the payloads, and grows
with the rows. It holds of every row the first number and the first text, and of lists the others
with their rows. So any mixture of types is one column, and a comparison reads one array.

A condition is evaluated to a mask (N,), which is kept. When rows are added, only theirs are new.
"""

from __future__ import annotations

import operator
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irli.base.arrays import check_array
from irli.base.strings import Strings
from irli.errors import FormatError
from irli.store.documents import MISSING, Document, decode, find
from irli.store.filters import (
    All,
    Bound,
    Condition,
    Contains,
    Exists,
    Not,
    OneOf,
    Path,
    Prefix,
    Range,
    Some,
    iterate_paths,
    parse_moment,
    split_number,
)

Mask: TypeAlias = NDArray[np.bool_]
Array: TypeAlias = NDArray[Any]
# The JSON texts of these rows (n,), or None where a row has no payload.
Source: TypeAlias = Callable[[NDArray[np.int64]], Sequence[str | None]]

PRESENT, NULL, TRUE, FALSE, LIST = 1, 2, 4, 8, 16  # flags of a row
_BLOCK = 4096  # payloads read at a time
_FEW = 6  # values that are compared one by one
_MOST_KEPT = 64 << 20  # bytes of masks
_NO_MOMENT = np.iinfo(np.int64).min
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Grown:
    """An array that grows at its end. What was handed out stays as it is.

    Examples
    --------
    >>> grown = Grown(np.int32)
    >>> grown.extend([1, 2])
    >>> grown.array
    array([1, 2], dtype=int32)
    """

    def __init__(self, dtype: Any, start: Array | None = None) -> None:
        self._space: Array = np.empty(0, dtype) if start is None else start
        self.size = len(self._space)

    @property
    def array(self) -> Array:
        return self._space[: self.size]

    def extend(self, values: Any) -> None:
        end = self.size + len(values)
        if end == self.size:  # it may be mapped, and nobody may write there
            return
        if end > len(self._space):
            space = np.empty(max(64, end + (end >> 1)), self._space.dtype)
            space[: self.size] = self.array
            self._space = space
        self._space[self.size : end] = values
        self.size = end

    def own(self) -> Array:
        """Return the array to write into. One that is mapped is copied first."""
        if not self._space.flags.writeable:
            self._space = self.array.copy()
        return self.array


class Dictionary:
    """The distinct texts of a column, numbered as they come."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts = list(texts)
        self.places = {text: code for code, text in enumerate(self.texts)}
        self._sorted: list[str] = []
        self._order = np.empty(0, np.int64)  # the codes of the sorted texts
        self._moments = Grown(np.int64)

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, text: str) -> int:
        code = self.places.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code

    def moments(self) -> NDArray[np.int64]:
        """Return the moment of each text in microseconds, or `_NO_MOMENT`."""
        known = self._moments.size
        if known < len(self.texts):
            self._moments.extend([_count_moment(text) for text in self.texts[known:]])
        return self._moments.array

    def between(self, low: str | None, high: str | None, closed: tuple[bool, bool]) -> Array:
        """Return the codes of the texts in a range, in code point order."""
        self._sort()
        start = stop = 0
        if low is not None:
            start = (bisect_left if closed[0] else bisect_right)(self._sorted, low)
        stop = len(self._sorted)
        if high is not None:
            stop = (bisect_right if closed[1] else bisect_left)(self._sorted, high)
        return self._order[start : max(start, stop)]

    def starting(self, prefix: str) -> Array:
        """Return the codes of the texts that start with a prefix."""
        self._sort()
        start = bisect_left(self._sorted, prefix)
        stop = bisect_left(self._sorted, True, start, key=lambda text: not text.startswith(prefix))
        return self._order[start:stop]

    def _sort(self) -> None:
        if len(self._sorted) < len(self.texts):
            # Mostly sorted already: Python's sort takes that into account.
            known = len(self._order)
            codes = [*self._order.tolist(), *range(known, len(self.texts))]
            codes.sort(key=self.texts.__getitem__)
            self._order = np.array(codes, dtype=np.int64)
            self._sorted = [self.texts[code] for code in codes]


def _count_moment(text: str) -> int:
    moment = parse_moment(text)
    return _NO_MOMENT if moment is None else _microseconds(moment)


def _microseconds(moment: datetime) -> int:
    passed = moment - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


class _More:
    """The values of rows beyond the first of each, in the order of the rows."""

    def __init__(self, *dtypes: Any) -> None:
        self.rows = Grown(np.int64)
        self.values = [Grown(dtype) for dtype in dtypes]

    def extend(self, rows: list[int], *values: Any) -> None:
        self.rows.extend(rows)
        for grown, new in zip(self.values, values, strict=True):
            grown.extend(new)

    def slice(self, start: int, stop: int) -> tuple[NDArray[np.int64], list[Array]]:
        first, last = np.searchsorted(self.rows.array, (start, stop))
        return self.rows.array[first:last], [each.array[first:last] for each in self.values]

    def replace(self, rows: NDArray[np.int64], other: _More) -> None:
        """Put the values of another in place of those of some rows. Its rows count within them."""
        keep = ~np.isin(self.rows.array, rows)
        merged = np.concatenate([self.rows.array[keep], rows[other.rows.array]])
        order = np.argsort(merged, kind="stable")
        self.rows = Grown(np.int64, merged[order])
        self.values = [
            Grown(None, np.concatenate([mine.array[keep], new.array])[order])
            for mine, new in zip(self.values, other.values, strict=True)
        ]

    def take(self, places: NDArray[np.int64], count: int) -> _More:
        """Return the values of rows that are kept: `places` says where each row goes, or -1."""
        rows = places[self.rows.array]
        keep = np.flatnonzero(rows >= 0)
        keep = keep[np.argsort(rows[keep], kind="stable")]
        taken = _More()
        taken.rows = Grown(np.int64, rows[keep])
        taken.values = [Grown(None, each.array[keep]) for each in self.values]
        return taken


class Column:
    """What the payloads say at one path.

    Attributes
    ----------
    flags : of each row: whether the field is there, and has null, true, false, or is a list.
    numbers : the first number of each row, or NaN; `rests` is what integers are more than that.
    codes : the first text of each row, as its number in `texts`, or -1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.flags = Grown(np.uint8)
        self.numbers = Grown(np.float64)
        self.rests = Grown(np.float64)
        self.codes = Grown(np.int32)
        self.texts = Dictionary()
        self.more_numbers = _More(np.float64, np.float64)
        self.more_codes = _More(np.int32)

    def __len__(self) -> int:
        return self.flags.size

    def extend(self, documents: Sequence[Document | None]) -> None:
        """Add the rows of these payloads."""
        start = len(self)
        count = len(documents)
        flags = bytearray(count)
        numbers: list[float] = [np.nan] * count
        rests: dict[int, float] = {}
        codes = [-1] * count
        more_numbers: tuple[list[int], list[float], list[float]] = ([], [], [])
        more_codes: tuple[list[int], list[int]] = ([], [])
        key = self.path[0] if len(self.path) == 1 else None
        add = self.texts.add
        for row, document in enumerate(documents):
            if document is None:
                continue
            value = document.get(key, MISSING) if key is not None else find(document, self.path)
            if value is MISSING:
                continue
            kind = type(value)
            if kind is str:
                flags[row] = PRESENT
                codes[row] = add(value)
            elif kind is float:
                flags[row] = PRESENT
                numbers[row] = value
            elif kind is int:
                flags[row] = PRESENT
                numbers[row], rest = split_number(value)
                if rest:
                    rests[row] = rest
            elif isinstance(value, list):
                flag = PRESENT | LIST
                numbered = coded = False
                for member in _flatten(value):
                    kind = type(member)
                    if kind is str:
                        code = add(member)
                        if coded:
                            more_codes[0].append(start + row)
                            more_codes[1].append(code)
                        else:
                            codes[row], coded = code, True
                    elif kind is int or kind is float:
                        near, rest = split_number(member)
                        if numbered:
                            more_numbers[0].append(start + row)
                            more_numbers[1].append(near)
                            more_numbers[2].append(rest)
                        else:
                            numbers[row], numbered = near, True
                            if rest:
                                rests[row] = rest
                    else:
                        flag |= _flag(member)
                flags[row] = flag
            else:
                flags[row] = PRESENT | _flag(value)
        self.flags.extend(np.frombuffer(flags, np.uint8))
        self.numbers.extend(numbers)
        self.codes.extend(codes)
        self._extend_rests(rests, count)
        self.more_numbers.extend(*more_numbers)
        self.more_codes.extend(*more_codes)

    def _extend_rests(self, rests: dict[int, float], count: int) -> None:
        """Most columns have no integer beyond 2^53, and so no rests."""
        if rests or self.rests.size:
            self.rests.extend(np.zeros(len(self) - count - self.rests.size))
            new = np.zeros(count)
            new[list(rests)] = list(rests.values())
            self.rests.extend(new)

    def replace(self, rows: NDArray[np.int64], documents: Sequence[Document | None]) -> None:
        """Put other payloads in place of those of some rows, which are distinct."""
        new = Column(self.path)
        new.texts = self.texts
        new.extend(documents)
        for name in ("flags", "numbers", "codes"):
            getattr(self, name).own()[rows] = getattr(new, name).array
        if self.rests.size or new.rests.size:
            self.rests.extend(np.zeros(len(self) - self.rests.size))
            self.rests.own()[rows] = new.rests.array if new.rests.size else 0.0
        if self.more_numbers.rows.size or new.more_numbers.rows.size:
            self.more_numbers.replace(rows, new.more_numbers)
        if self.more_codes.rows.size or new.more_codes.rows.size:
            self.more_codes.replace(rows, new.more_codes)

    def take(self, rows: NDArray[np.int64]) -> Column:
        """Return a column of these rows, in this order."""
        places = np.full(len(self), -1, np.int64)
        places[rows] = np.arange(len(rows))
        taken = Column(self.path)
        for name in ("flags", "numbers", "codes"):
            setattr(taken, name, Grown(None, getattr(self, name).array[rows]))
        if self.rests.size:
            taken.rests = Grown(None, self.rests.array[rows])
        taken.texts = Dictionary(self.texts.texts)
        taken.more_numbers = self.more_numbers.take(places, len(rows))
        taken.more_codes = self.more_codes.take(places, len(rows))
        return taken

    def match_one_of(self, leaf: OneOf, start: int, stop: int) -> Mask:
        flags = self.flags.array[start:stop]
        mask: Mask = np.zeros(stop - start, bool)
        if leaf.numbers:
            pairs = [split_number(number) for number in leaf.numbers]
            self._match_numbers(mask, start, stop, lambda near, rest: _equal(near, rest, pairs))
        if leaf.texts:
            codes = [self.texts.places.get(text, -1) for text in leaf.texts]
            self._match_codes(mask, start, stop, np.array([c for c in codes if c >= 0], np.int64))
        for value, flag in ((True, TRUE), (False, FALSE)):
            if value in leaf.bools:
                mask |= (flags & flag) != 0
        if leaf.null:
            mask |= (flags & (PRESENT | NULL)) != PRESENT
        return mask

    def match_range(self, leaf: Range, start: int, stop: int) -> Mask:
        mask: Mask = np.zeros(stop - start, bool)
        ends = [end for end in (leaf.lower, leaf.upper) if end is not None]
        if not ends:
            return mask
        if isinstance(ends[0].value, str):
            low, high = (_text_of(end) for end in (leaf.lower, leaf.upper))
            closed = tuple(end is not None and end.inclusive for end in (leaf.lower, leaf.upper))
            codes = self.texts.between(low, high, (closed[0], closed[1]))
            self._match_codes(mask, start, stop, codes)
        elif isinstance(ends[0].value, datetime):
            moments = self.texts.moments()
            matched = moments != _NO_MOMENT
            for end, compare in _ends(leaf):
                matched &= compare(moments, _microseconds(end.value))  # type: ignore[arg-type]
            self._match_codes(mask, start, stop, np.flatnonzero(matched))
        else:
            self._match_numbers(mask, start, stop, lambda near, rest: _within(near, rest, leaf))
        return mask

    def match_prefix(self, leaf: Prefix, start: int, stop: int) -> Mask:
        mask: Mask = np.zeros(stop - start, bool)
        self._match_codes(mask, start, stop, self.texts.starting(leaf.text))
        return mask

    def match_contains(self, leaf: Contains, start: int, stop: int) -> Mask:
        flags = self.flags.array[start:stop]
        mask = self.match_one_of(leaf.member, start, stop)
        mask &= (flags & LIST) != 0
        for text in leaf.member.texts:
            codes = np.array([c for c, each in enumerate(self.texts.texts) if text in each], int)
            within: Mask = np.zeros(stop - start, bool)
            _gather(within, self.codes.array[start:stop], codes, len(self.texts))
            mask |= within & ((flags & LIST) == 0)
        return mask

    def match_exists(self, start: int, stop: int) -> Mask:
        mask: Mask = (self.flags.array[start:stop] & PRESENT) != 0
        return mask

    def _match_numbers(
        self, mask: Mask, start: int, stop: int, compare: Callable[[Array, Array | None], Mask]
    ) -> None:
        rests = self.rests.array[start:stop] if self.rests.size else None
        mask |= compare(self.numbers.array[start:stop], rests)
        rows, (numbers, more_rests) = self.more_numbers.slice(start, stop)
        if len(rows):
            mask[rows[compare(numbers, more_rests)] - start] = True

    def _match_codes(self, mask: Mask, start: int, stop: int, codes: Array) -> None:
        _gather(mask, self.codes.array[start:stop], codes, len(self.texts))
        rows, (more,) = self.more_codes.slice(start, stop)
        if len(rows):
            found: Mask = np.zeros(len(rows), bool)
            _gather(found, more, codes, len(self.texts))
            mask[rows[found] - start] = True


def _flatten(values: list[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flatten(value)
        else:
            yield value


def _flag(value: Any) -> int:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return TRUE if value else FALSE
    return 0  # an object


def _text_of(end: Bound | None) -> str | None:
    return None if end is None else str(end.value)


def _gather(mask: Mask, codes: Array, matched: Array, count: int) -> None:
    """Set the mask where a code is one of the matched ones, of so many."""
    if len(matched) == 0:
        return
    if len(matched) <= _FEW:
        for code in matched.tolist():
            mask |= codes == np.int32(code)
        return
    table = np.zeros(count + 1, bool)  # its last one is that of code -1
    table[matched] = True
    mask |= table.take(codes, mode="wrap")


def _ends(leaf: Range) -> list[tuple[Bound, Callable[[Any, Any], Mask]]]:
    ends: list[tuple[Bound, Callable[[Any, Any], Mask]]] = []
    if leaf.lower is not None:
        ends.append((leaf.lower, operator.ge if leaf.lower.inclusive else operator.gt))
    if leaf.upper is not None:
        ends.append((leaf.upper, operator.le if leaf.upper.inclusive else operator.lt))
    return ends


def _within(near: Array, rest: Array | None, leaf: Range) -> Mask:
    mask: Mask | None = None
    for end, compare in _ends(leaf):
        high, low = split_number(end.value)  # type: ignore[arg-type]  # a range of numbers
        if rest is None and low == 0:
            found = compare(near, high)
        else:
            strict = operator.gt if compare in (operator.gt, operator.ge) else operator.lt
            found = strict(near, high)
            found |= (near == high) & compare(0.0 if rest is None else rest, low)
        mask = found if mask is None else mask & found
    return np.zeros(len(near), bool) if mask is None else mask


def _equal(near: Array, rest: Array | None, pairs: list[tuple[float, float]]) -> Mask:
    if len(pairs) <= _FEW:
        mask: Mask = np.zeros(len(near), bool)
        for high, low in pairs:
            found = near == high
            if rest is not None:
                found &= rest == low
            elif low != 0:
                continue
            mask |= found
        return mask
    if rest is None:
        found = np.isin(near, [high for high, low in pairs if low == 0])
    else:
        found = np.isin(near + 1j * rest, [complex(high, low) for high, low in pairs])
    return np.asarray(found, bool)


class Columns:
    """The columns of an index, by path.

    Columns are made, and grow, from `source`, which reads the payloads of rows. A change of
    payloads is visible to every later evaluation. Threads may share it.

    Examples
    --------
    >>> from irli.store.filters import field
    >>> texts = ['{"price": 3}', None, '{"price": 30}']
    >>> columns = Columns(lambda rows: [texts[row] for row in rows])
    >>> columns.evaluate(field("price") < 10, rows=3)
    array([ True, False, False])
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._columns: dict[Path, Column] = {}
        self._masks: OrderedDict[Condition, Grown] = OrderedDict()
        self._lock = threading.RLock()
        self._making = threading.Lock()
        self._touched: list[NDArray[np.int64]] | None = None  # rows changed while one is made

    @property
    def paths(self) -> list[Path]:
        """The fields that have a column."""
        return list(self._columns)

    def evaluate(self, condition: Condition, rows: int) -> Mask:
        """Return which of the first so many rows meet a condition (rows,). Nobody may change it."""
        for path in iterate_paths(condition):
            if path not in self._columns:
                self.make(path, rows)
        with self._lock:
            kept = self._masks.setdefault(condition, Grown(np.bool_))
            self._masks.move_to_end(condition)
            if (known := kept.size) < rows:
                for path in iterate_paths(condition):
                    self._catch_up(self._columns[path], rows)
                kept.extend(_evaluate(condition, self._columns, known, rows))
                self._forget()
            mask = kept.array[:rows]
        mask.flags.writeable = False
        return mask

    def make(self, path: Path, rows: int) -> None:
        """Make the column of a field for so many rows, unless it is there."""
        with self._making:
            if path in self._columns:
                return
            with self._lock:
                self._touched = []
            column = Column(path)
            try:
                self._catch_up(column, rows)
                with self._lock:
                    for changed in self._touched:
                        self._replace([column], changed)
                    self._columns[path] = column
            finally:
                self._touched = None

    def extend(self, start: int, documents: Sequence[Document | None]) -> None:
        """Add the payloads of rows from `start` on to the columns that end there.

        Others will read them from the source.
        """
        with self._lock:
            for column in self._columns.values():
                if len(column) == start:
                    column.extend(documents)

    def update(self, rows: NDArray[np.int64]) -> None:
        """Read the payloads of these rows anew: they have changed."""
        rows = np.unique(rows)
        with self._lock:
            self._replace(list(self._columns.values()), rows)
            if self._touched is not None:
                self._touched.append(rows)
            self._masks.clear()

    def take(self, rows: NDArray[np.int64], source: Source) -> Columns:
        """Return the columns of these rows, in this order. Rows that no column has are left out."""
        taken = Columns(source)
        with self._lock:
            for path, column in self._columns.items():
                self._catch_up(column, int(rows.max(initial=-1)) + 1)
                taken._columns[path] = column.take(rows)
        return taken

    def save(self) -> tuple[dict[str, Array], list[dict[str, Any]]]:
        """Return the columns as arrays for files, and what describes them as plain JSON."""
        arrays: dict[str, Array] = {}
        described = []
        with self._lock:
            for place, column in enumerate(self._columns.values()):
                parts = _disassemble(column)
                arrays |= {f"column_{place}_{name}": array for name, array in parts.items()}
                described.append({"path": list(column.path), "arrays": sorted(parts)})
        return arrays, described

    @classmethod
    def load(
        cls, arrays: dict[str, Array], described: list[dict[str, Any]], source: Source
    ) -> Columns:
        """Return the columns that `save` described."""
        columns = cls(source)
        for place, entry in enumerate(described):
            path = tuple(map(str, entry["path"]))
            parts = {name: arrays[f"column_{place}_{name}"] for name in entry["arrays"]}
            columns._columns[path] = _assemble(path, parts)
        return columns

    def _catch_up(self, column: Column, rows: int) -> None:
        for start in range(len(column), rows, _BLOCK):
            block = np.arange(start, min(start + _BLOCK, rows))
            column.extend(decode(self.source(block)))

    def _replace(self, columns: list[Column], rows: NDArray[np.int64]) -> None:
        for start in range(0, len(rows) if columns else 0, _BLOCK):
            block = rows[start : start + _BLOCK]
            documents = decode(self.source(block))
            for column in columns:
                inside = int(np.searchsorted(block, len(column)))
                column.replace(block[:inside], documents[:inside])

    def _forget(self) -> None:
        """Drop the masks that were not used for longest, beyond what may be kept."""
        while len(self._masks) > 1 and sum(mask.size for mask in self._masks.values()) > _MOST_KEPT:
            self._masks.popitem(last=False)


def _evaluate(condition: Condition, columns: dict[Path, Column], start: int, stop: int) -> Mask:
    """Return the mask (stop - start,) of a condition, in an array of its own."""
    match condition:
        case All(parts):
            mask = np.ones(stop - start, bool)
            for part in parts:
                mask &= _evaluate(part, columns, start, stop)
            return mask
        case Some(parts):
            mask = np.zeros(stop - start, bool)
            for part in parts:
                mask |= _evaluate(part, columns, start, stop)
            return mask
        case Not(part):
            mask = _evaluate(part, columns, start, stop)
            return np.logical_not(mask, out=mask)
        case OneOf():
            return columns[condition.path].match_one_of(condition, start, stop)
        case Range():
            return columns[condition.path].match_range(condition, start, stop)
        case Prefix():
            return columns[condition.path].match_prefix(condition, start, stop)
        case Contains():
            return columns[condition.path].match_contains(condition, start, stop)
        case Exists():
            return columns[condition.path].match_exists(start, stop)
    raise TypeError(f"There is no way to evaluate {condition!r}.")


_MORE = {"more_numbers": ("values", "rests"), "more_codes": ("values",)}


def _disassemble(column: Column) -> dict[str, Array]:
    texts = Strings.of(column.texts.texts)
    parts = {
        "flags": column.flags.array,
        "numbers": column.numbers.array,
        "codes": column.codes.array,
        "texts_bytes": texts.bytes,
        "texts_offsets": texts.offsets,
    }
    if column.rests.size:
        parts["rests"] = column.rests.array
    for name, values in _MORE.items():
        more: _More = getattr(column, name)
        if more.rows.size:
            parts[f"{name}_rows"] = more.rows.array
            for value, grown in zip(values, more.values, strict=True):
                parts[f"{name}_{value}"] = grown.array
    return {name: array.copy() for name, array in parts.items()}


def _assemble(path: Path, parts: dict[str, Array]) -> Column:
    column = Column(path)
    count = len(parts["flags"])
    for name, dtype in (("flags", np.uint8), ("numbers", np.float64), ("codes", np.int32)):
        check_array(name, parts[name], dtype, count)
        setattr(column, name, Grown(None, parts[name]))
    texts = Strings.read(
        "texts", parts["texts_bytes"], parts["texts_offsets"], len(parts["texts_offsets"]) - 1
    )
    column.texts = Dictionary(texts)
    if "rests" in parts:
        check_array("rests", parts["rests"], np.float64, count)
        column.rests = Grown(None, parts["rests"])
    codes = [parts["codes"]]
    for name, values in _MORE.items():
        if f"{name}_rows" in parts:
            more: _More = getattr(column, name)
            rows = parts[f"{name}_rows"]
            check_array(f"{name}_rows", rows, np.int64, None)
            if len(rows) and not (rows[0] >= 0 and rows[-1] < count and (np.diff(rows) >= 0).all()):
                raise _damage(path, f"{name}_rows are not rows in their order")
            for value, grown in zip(values, more.values, strict=True):
                array = parts[f"{name}_{value}"]
                check_array(f"{name}_{value}", array, grown.array.dtype.type, len(rows))
            more.rows = Grown(None, rows)
            more.values = [Grown(None, parts[f"{name}_{value}"]) for value in values]
            codes += [parts[f"{name}_values"]] if name == "more_codes" else []
    for each in codes:
        if len(each) and (each.min() < -1 or each.max() >= len(column.texts)):
            raise _damage(path, "a code is of no text")
    return column


def _damage(path: Path, what: str) -> FormatError:
    return FormatError(
        f"The column of the field {path!r} is damaged: {what}. Restore the folder from a snapshot."
    )
