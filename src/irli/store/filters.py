"""The language of filters: what the payload of an item must be, as a tree that never changes.

A filter is a dictionary, as MongoDB writes it, or made of `irli.field`. Both become the same
`Condition`. A leaf speaks of the values of one field. `docs/reference/filters.md` has the rules:

- A field has no value, one, or several: lists are opened, and any of their members may match.
- A leaf is true or false, never unknown. A missing field counts as null, so what negates a
  comparison (``$ne``, ``$nin``, ``$not``) is true of items that lack the field.
- A bool is no number, and no text is a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from datetime import UTC, date, datetime
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import numpy as np

from irli.base.ids import Where
from irli.errors import InvalidParameter

Path: TypeAlias = tuple[str, ...]  # the keys that lead to a field
Number: TypeAlias = int | float
T = TypeVar("T")

MOST_DEPTH = 32  # conditions within conditions
MOST_CONDITIONS = 1024
MOST_VALUES = 1 << 16  # of one $in
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?", re.ASCII | re.DOTALL)
_ORDERS = ("$lt", "$lte", "$gt", "$gte")


class Condition(Where):
    """What the payload of an item must be. Conditions are combined by ``&``, ``|`` and ``~``.

    Examples
    --------
    >>> cheap = field("price") < 10
    >>> cheap & (field("lang") == "en") == as_condition({"price": {"$lt": 10}, "lang": "en"})
    True
    """

    depth = 1
    size = 1

    def __and__(self, other: Condition) -> Condition:
        return All.of((self, _as_operand(other)))

    def __or__(self, other: Condition) -> Condition:
        return Some.of((self, _as_operand(other)))

    def __invert__(self) -> Condition:
        return self.part if isinstance(self, Not) else Not(self)

    def __bool__(self) -> bool:
        raise InvalidParameter(
            "The 'filter' parameter must join conditions with &, | and ~, each in parentheses. "
            "Got 'and', 'or', 'not' or a chain such as 1 < field < 2 instead. Write "
            "(field('a') > 1) & (field('a') < 2), or field('a').between(1, 2)."
        )


@dataclass(frozen=True)
class _Compound(Condition):
    parts: tuple[Condition, ...]
    depth: int = attribute(init=False, compare=False, repr=False)
    size: int = attribute(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + max((part.depth for part in self.parts), default=0))
        object.__setattr__(self, "size", 1 + sum(part.size for part in self.parts))
        _check_limits(self)

    @classmethod
    def of(cls, parts: Iterable[Condition]) -> Condition:
        """Join conditions. Those that are joined in the same way already are taken apart."""
        flat: list[Condition] = []
        for part in parts:
            flat += part.parts if isinstance(part, cls) else [part]
        return flat[0] if len(flat) == 1 else cls(tuple(flat))


@dataclass(frozen=True)
class All(_Compound):
    """All parts hold. Without parts it is true."""


@dataclass(frozen=True)
class Some(_Compound):
    """At least one part holds."""


@dataclass(frozen=True)
class Not(Condition):
    """The part does not hold."""

    part: Condition
    depth: int = attribute(init=False, compare=False, repr=False)
    size: int = attribute(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + self.part.depth)
        object.__setattr__(self, "size", 1 + self.part.size)
        _check_limits(self)


@dataclass(frozen=True)
class OneOf(Condition):
    """A value of the field is one of these. With `null`, a field that is missing is, too.

    They are apart by type, as True == 1 in Python, but not in JSON.
    """

    path: Path
    numbers: tuple[Number, ...] = ()
    texts: tuple[str, ...] = ()
    bools: tuple[bool, ...] = ()
    null: bool = False


@dataclass(frozen=True)
class Bound:
    """One end of a range: a number, a text, or a moment with its zone."""

    value: Number | str | datetime
    inclusive: bool


@dataclass(frozen=True)
class Range(Condition):
    """One value of the field lies between both ends, which are of the same kind."""

    path: Path
    lower: Bound | None = None
    upper: Bound | None = None


@dataclass(frozen=True)
class Exists(Condition):
    """The field is there, even if it is null or an empty list."""

    path: Path


@dataclass(frozen=True)
class Prefix(Condition):
    """A text of the field starts with this."""

    path: Path
    text: str


@dataclass(frozen=True)
class Contains(Condition):
    """The field is a text with this in it, or a list with this member."""

    path: Path
    member: OneOf


class Field:
    """A field of the payload. Compare it to get a `Condition`.

    Examples
    --------
    >>> (field("price") >= 3).lower
    Bound(value=3, inclusive=True)
    """

    __hash__ = None  # type: ignore[assignment]  # == makes a condition

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"field({format_path(self.path)!r})"

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        """A value of the field equals this."""
        return _one_of(self.path, [value])

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        """No value of the field equals this. True of items without the field, unless it is None."""
        return ~_one_of(self.path, [value])

    def __lt__(self, value: Any) -> Condition:
        return _make_range(self.path, {"$lt": value})

    def __le__(self, value: Any) -> Condition:
        return _make_range(self.path, {"$lte": value})

    def __gt__(self, value: Any) -> Condition:
        return _make_range(self.path, {"$gt": value})

    def __ge__(self, value: Any) -> Condition:
        return _make_range(self.path, {"$gte": value})

    def between(self, low: Any, high: Any) -> Condition:
        """One value of the field lies from `low` to `high`, both included."""
        return _make_range(self.path, {"$gte": low, "$lte": high})

    def is_in(self, values: Iterable[Any]) -> Condition:
        """A value of the field equals one of these."""
        return _one_of(self.path, _as_values("is_in", values))

    def exists(self) -> Condition:
        """The field is there, even if it is null or an empty list."""
        return Exists(self.path)

    def startswith(self, text: str) -> Condition:
        """A text of the field starts with this."""
        return Prefix(self.path, _as_text("startswith", text))

    def contains(self, value: Any) -> Condition:
        """The field is a text with this in it, or a list with this member."""
        return _contains(self.path, value)


def field(*names: str) -> Field:
    r"""Name a field of the payload, to compare it: ``field("price") < 10``.

    Parameters
    ----------
    *names : str
        One name, where dots lead to nested fields: ``field("author.name")``. A backslash takes away
        the meaning of what follows it: ``field(r"v1\.0")`` is the key ``v1.0``. Several names are
        keys as they are: ``field("author", "first.name")``.

    Examples
    --------
    >>> field("author.name").path, field("author", "first.name").path
    (('author', 'name'), ('author', 'first.name'))
    >>> (field("price") < 10) & field("tags").contains("new") & ~field("lang").is_in(["en", "de"])
    All(parts=(Range(path=('price',), lower=None, upper=Bound(value=10, inclusive=False)), ...
    """
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidParameter(
            "The 'names' parameter must be the name of a field, or the keys that lead to it. "
            f"Got {names!r} instead. Write field('author.name') or field('author', 'name')."
        )
    return Field(parse_path(names[0]) if len(names) == 1 else tuple(names))


def parse_path(name: str) -> Path:
    r"""Return the keys of a field's name.

    Examples
    --------
    >>> parse_path("a.b"), parse_path(r"a\.b"), parse_path("")
    (('a', 'b'), ('a.b',), ('',))
    """
    if "\\" not in name:
        return tuple(name.split("."))
    keys, key, rest = [], "", iter(name)
    for sign in rest:
        if sign == ".":
            keys.append(key)
            key = ""
        else:
            key += next(rest, "\\") if sign == "\\" else sign
    return (*keys, key)


def format_path(path: Path) -> str:
    r"""Return the name of a field, which `parse_path` reads.

    Examples
    --------
    >>> format_path(("author", "first.name"))
    'author.first\\.name'
    """
    return ".".join(re.sub(r"([\\.]|^\$)", r"\\\1", key) for key in path)


def as_condition(filter: Any) -> Condition:
    """Return the condition that a filter by payload states: a dictionary, or made of `field`.

    Examples
    --------
    >>> as_condition({"price": {"$gt": 1, "$lte": 9.5}, "author.name": {"$exists": True}})
    All(parts=(Range(path=('price',), ...), Exists(path=('author', 'name'))))
    >>> as_condition({"price": {"$below": 10}})
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'filter' parameter must use operators that exist. Got '$below'
    for the field 'price' instead. There are $eq, $ne, $in, $nin, $lt, $lte, $gt, $gte, $exists,
    $prefix, $contains and $not.
    """
    if isinstance(filter, Condition):
        return filter
    if not isinstance(filter, Mapping):
        raise InvalidParameter(
            "The 'filter' parameter must, to ask for payloads, be a dictionary such as "
            f"{{'price': {{'$lt': 10}}}} or made of irli.field. Got {_show(filter)} instead. "
            "Write field('price') < 10."
        )
    return _parse(filter, 1)


def iterate_paths(condition: Condition) -> Iterator[Path]:
    """Yield the fields that a condition speaks of, each once.

    Examples
    --------
    >>> list(iterate_paths(as_condition({"$or": [{"a": 1}, {"b.c": 2}, {"a": 3}]})))
    [('a',), ('b', 'c')]
    """
    seen: set[Path] = set()
    waiting = [condition]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, _Compound):
            waiting += one.parts
        elif isinstance(one, Not):
            waiting.append(one.part)
        elif (path := one.path) not in seen:  # type: ignore[attr-defined]  # a leaf
            seen.add(path)
            yield path


def split_number(value: Number) -> tuple[float, float]:
    """Return the nearest float, and what an integer is more than it.

    Compared one after the other, they order integers exactly up to 2^106, and floats among them.
    What no float64 can hold is infinite.

    Examples
    --------
    >>> split_number(2**60 + 1), split_number(0.5)
    ((1.152921504606847e+18, 1.0), (0.5, 0.0))
    """
    try:
        near = float(value)
    except OverflowError:
        return math.copysign(math.inf, value), 0.0
    return near, 0.0 if isinstance(value, float) else float(value - int(near))


def parse_moment(text: str) -> datetime | None:
    """Return the moment that a text names as ISO 8601 does, or None. Without a zone it is UTC.

    Examples
    --------
    >>> parse_moment("2024-05-01T12:00:00+02:00")
    datetime.datetime(2024, 5, 1, 10, 0, tzinfo=datetime.timezone.utc)
    >>> parse_moment("soon") is None
    True
    """
    if not _DATE.fullmatch(text):
        return None
    try:
        return _as_moment(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _as_moment(value: date) -> datetime:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _parse(filter: Mapping[Any, Any], depth: int) -> Condition:
    _check_depth(depth)
    parts: list[Condition] = []
    for name, value in filter.items():
        if not isinstance(name, str):
            raise InvalidParameter(
                "The 'filter' parameter must have names of fields or operators as keys. "
                f"Got {_show(name)} instead. Ids are passed as a list or a set."
            )
        if name in ("$and", "$or"):
            join = All if name == "$and" else Some
            parts.append(join.of(_parse_several(name, value, depth)))
        elif name == "$not":
            parts.append(~_parse(_as_mapping(name, value), depth + 1))
        elif name.startswith("$"):
            raise InvalidParameter(
                f"The 'filter' parameter must name a field, or use $and, $or or $not. Got {name!r} "
                f"instead. If it is the name of a field, write {format_path((name,))!r}."
            )
        else:
            parts.append(_parse_field(parse_path(name), value, depth))
    return All.of(parts)


def _parse_several(name: str, value: Any, depth: int) -> list[Condition]:
    if not isinstance(value, list | tuple) or not value:
        raise InvalidParameter(
            f"The 'filter' parameter must give {name} a list of at least one filter. "
            f"Got {_show(value)} instead. Write {{'{name}': [{{'a': 1}}, {{'b': 2}}]}}."
        )
    return [
        part if isinstance(part, Condition) else _parse(_as_mapping(name, part), depth + 1)
        for part in value
    ]


def _as_mapping(name: str, value: Any) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    raise InvalidParameter(
        f"The 'filter' parameter must give {name} filters, which are dictionaries. "
        f"Got {_show(value)} instead. Write {{'a': 1}} for 'the field a is 1'."
    )


def _parse_field(path: Path, value: Any, depth: int) -> Condition:
    _check_depth(depth)
    if not isinstance(value, Mapping):
        return _one_of(path, [value])
    name = format_path(path)
    if not value or not all(isinstance(key, str) and key.startswith("$") for key in value):
        raise InvalidParameter(
            f"The 'filter' parameter must compare the field {name!r} with a value or by operators. "
            f"Got {_show(value)} instead. For a field within it write {name + '.key'!r}."
        )
    parts: list[Condition] = []
    if ends := {key: value[key] for key in _ORDERS if key in value}:
        parts.append(_make_range(path, ends))
    for key, given in value.items():
        if key in _LEAVES:
            parts.append(_LEAVES[key](path, given))
        elif key == "$not":
            inner = given if isinstance(given, Mapping) else {"$eq": given}
            parts.append(~_parse_field(path, inner, depth + 1))
        elif key not in _ORDERS:
            raise InvalidParameter(
                f"The 'filter' parameter must use operators that exist. Got {key!r} for the field "
                f"{name!r} instead. There are $eq, $ne, $in, $nin, $lt, $lte, $gt, $gte, $exists, "
                "$prefix, $contains and $not."
            )
    return All.of(parts)


def _exists(path: Path, value: Any) -> Condition:
    if not isinstance(value, bool | np.bool_):
        raise _value_error(path, "$exists", "True or False", value)
    return Exists(path) if value else Not(Exists(path))


def _contains(path: Path, value: Any) -> Condition:
    found = _one_of(path, [value])
    if not isinstance(found, OneOf):
        raise _value_error(path, "$contains", "a text, a number, a bool or None", value)
    return Contains(path, found)


_LEAVES: dict[str, Callable[[Path, Any], Condition]] = {
    "$eq": lambda path, value: _one_of(path, [value]),
    "$ne": lambda path, value: ~_one_of(path, [value]),
    "$in": lambda path, values: _one_of(path, _as_values("$in", values)),
    "$nin": lambda path, values: ~_one_of(path, _as_values("$nin", values)),
    "$exists": _exists,
    "$prefix": lambda path, text: Prefix(path, _as_text("$prefix", text)),
    "$contains": _contains,
}


def _one_of(path: Path, values: list[Any]) -> Condition:
    numbers: list[Number] = []
    texts: list[str] = []
    bools: list[bool] = []
    moments: list[Condition] = []
    null = False
    for value in values:
        plain = _as_scalar(value)
        if plain is None:
            null = True
        elif isinstance(plain, bool):
            bools.append(plain)
        elif isinstance(plain, str):
            texts.append(plain)
        elif isinstance(plain, int | float):
            numbers.append(_check_number(path, plain))
        elif isinstance(plain, date):
            at = Bound(_as_moment(plain), True)
            moments.append(Range(path, at, at))
        else:
            raise _value_error(path, "$eq or $in", "texts, numbers, bools, dates or None", value)
    found = OneOf(path, _unique(numbers), _unique(texts), _unique(bools), null)
    if not moments:
        return found
    plain_ones = [found] if len(values) > len(moments) else []
    return Some.of([*plain_ones, *moments])


def _unique(values: list[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))


def _make_range(path: Path, ends: Mapping[str, Any]) -> Condition:
    bounds = {name: _as_bound(path, name, value) for name, value in ends.items()}
    kinds = {_kind(bound.value) for bound in bounds.values()}
    if len(kinds) > 1:
        raise InvalidParameter(
            f"The 'filter' parameter must compare the field {format_path(path)!r} with numbers, "
            f"with texts or with dates. Got {' and '.join(sorted(kinds))} in one range instead. "
            "Give both ends the same type."
        )
    for pair in (("$gt", "$gte"), ("$lt", "$lte")):
        if all(name in bounds for name in pair):
            raise InvalidParameter(
                f"The 'filter' parameter must give a range one end of each kind. Got {pair[0]} and "
                f"{pair[1]} for the field {format_path(path)!r} instead. Leave one out."
            )
    lower = bounds.get("$gt", bounds.get("$gte"))
    return Range(path, lower, bounds.get("$lt", bounds.get("$lte")))


def _as_bound(path: Path, name: str, value: Any) -> Bound:
    plain = _as_scalar(value)
    inclusive = name.endswith("e")
    if isinstance(plain, str):
        return Bound(parse_moment(plain) or plain, inclusive)
    if isinstance(plain, date):
        return Bound(_as_moment(plain), inclusive)
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise _value_error(path, name, "a number, a text or a date", value)
    return Bound(_check_number(path, plain), inclusive)


def _kind(value: Number | str | datetime) -> str:
    if isinstance(value, str):
        return "texts"
    return "dates" if isinstance(value, datetime) else "numbers"


def _as_scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, UUID) else value


def _check_number(path: Path, value: Number) -> Number:
    try:
        if math.isfinite(value):
            return value
    except OverflowError:
        pass
    raise _value_error(path, "a comparison", "finite numbers that a float64 can hold", value)


def _as_values(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidParameter(
            f"The 'filter' parameter must give {name} a list of values. "
            f"Got {_show(values)} instead. Put a single value into a list."
        )
    found = list(values)
    if len(found) > MOST_VALUES:
        raise InvalidParameter(
            f"The 'filter' parameter must give {name} at most {MOST_VALUES} values. "
            f"Got {len(found)} instead. Filter by ids, or give these items a field of their own."
        )
    return found


def _as_text(name: str, text: Any) -> str:
    if isinstance(text, str):
        return text
    raise InvalidParameter(
        f"The 'filter' parameter must give {name} a text. Got {_show(text)} instead. "
        "Compare numbers with $lt, $lte, $gt and $gte."
    )


def _as_operand(other: Any) -> Condition:
    if isinstance(other, Condition):
        return other
    raise InvalidParameter(
        "The 'filter' parameter must join conditions with & and |. "
        f"Got {_show(other)} on one side instead. Put each comparison into parentheses."
    )


def _check_limits(condition: Condition) -> None:
    _check_depth(condition.depth)
    if condition.size > MOST_CONDITIONS:
        raise InvalidParameter(
            f"The 'filter' parameter must have at most {MOST_CONDITIONS} conditions. "
            f"Got {condition.size} instead. Join equalities of one field by $in."
        )


def _check_depth(depth: int) -> None:
    if depth > MOST_DEPTH:
        raise InvalidParameter(
            f"The 'filter' parameter must have at most {MOST_DEPTH} conditions within each other. "
            "Got more instead. Write $and and $or as flat lists."
        )


def _value_error(path: Path, operator: str, must: str, value: Any) -> InvalidParameter:
    hint = "Compare the fields of an object by path, as in 'author.name'."
    if isinstance(value, list | tuple | set | frozenset):
        hint = "For 'one of these' use $in; a list in the payload matches if a member does."
    elif isinstance(value, int | float | np.number):
        hint = "JSON has no NaN and no infinity; leave out the end of a range that has none."
    return InvalidParameter(
        f"The 'filter' parameter must give {operator} {must}. Got {_show(value)} for the field "
        f"{format_path(path)!r} instead. {hint}"
    )


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
