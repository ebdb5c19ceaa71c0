"""Filters by payload: the language, and columns against an evaluator in plain Python."""

from __future__ import annotations

import json
import math
import os
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from numbers import Real
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import irli
from irli.errors import FormatError, InvalidParameter
from irli.store import columns as columns_module
from irli.store.columns import Columns
from irli.store.filters import (
    MOST_DEPTH,
    All,
    Condition,
    Not,
    OneOf,
    as_condition,
    field,
    format_path,
    parse_path,
)

EXAMPLES = int(os.environ.get("IRLI_EXAMPLES", "80"))

# --- an evaluator in plain Python, of filters as dictionaries ---

MISSING = object()


def holds(filter: dict[str, Any], document: Any) -> bool:
    """Whether a document meets a filter, by the rules of docs/reference/filters.md."""
    for name, value in filter.items():
        if name == "$and":
            met = all(holds(part, document) for part in value)
        elif name == "$or":
            met = any(holds(part, document) for part in value)
        elif name == "$not":
            met = not holds(value, document)
        else:
            met = field_holds(value, look_up(document, parse_path(name)))
        if not met:
            return False
    return True


def look_up(value: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return value
    if isinstance(value, list):
        found = [look_up(member, path) for member in value]
        found = [each for each in found if each is not MISSING]
        return found or MISSING
    if isinstance(value, dict) and path[0] in value:
        return look_up(value[path[0]], path[1:])
    return MISSING


def members(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [each for member in value for each in members(member)]
    return [None] if value is MISSING else [value]


def field_holds(comparison: Any, value: Any) -> bool:
    if not isinstance(comparison, dict):
        return any(same(each, comparison) for each in members(value))
    ends = {key: end for key, end in comparison.items() if key[:2] in ("$l", "$g")}
    if ends and not any(within(each, ends) for each in members(value)):
        return False
    return all(leaf_holds(key, x, value) for key, x in comparison.items() if key not in ends)


def leaf_holds(key: str, x: Any, value: Any) -> bool:
    plain = members(value)
    if key == "$eq":
        return any(same(each, x) for each in plain)
    if key == "$ne":
        return not leaf_holds("$eq", x, value)
    if key == "$in":
        return any(same(each, one) for each in plain for one in x)
    if key == "$nin":
        return not leaf_holds("$in", x, value)
    if key == "$exists":
        return (value is not MISSING) == x
    if key == "$prefix":
        return any(isinstance(each, str) and each.startswith(x) for each in plain)
    if key == "$contains":
        if isinstance(value, list):
            return any(same(each, x) for each in plain)
        return isinstance(x, str) and isinstance(value, str) and x in value
    assert key == "$not"
    return not field_holds(x, value)


def same(value: Any, x: Any) -> bool:
    if isinstance(x, date):
        return isinstance(value, str) and moment(value) == as_moment(x)
    if isinstance(value, bool) or isinstance(x, bool):
        return value is x
    numbers = isinstance(value, int | float) and isinstance(x, int | float)
    return bool(value == x) if numbers else type(value) is type(x) and value == x


def within(value: Any, ends: dict[str, Any]) -> bool:
    for key, end in ends.items():
        x, low, high = end, value, end
        if isinstance(x, date) or (isinstance(x, str) and moment(x) is not None):
            high = as_moment(x) if isinstance(x, date) else moment(x)
            low = moment(value) if isinstance(value, str) else None
            if low is None:
                return False
        elif isinstance(value, bool) or not isinstance(value, str if isinstance(x, str) else Real):
            return False
        met = {"$lt": low < high, "$lte": low <= high, "$gt": low > high, "$gte": low >= high}
        if not met[key]:
            return False
    return True


def moment(text: str) -> datetime | None:
    if len(text) < 10 or text[4] != "-" or text[7] != "-" or text[10:11] not in ("", "T", " "):
        return None
    try:
        return as_moment(datetime.fromisoformat(text))
    except ValueError:
        return None


def as_moment(value: date) -> datetime:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


# --- random documents and filters ---

KEYS = st.sampled_from(["a", "b", "c", "a.b", "$or", "", "\0", "q\"'", "ž", "\\", "a[0]", "$.a"])
WORDS = ["", "a", "ab", "abc", "b", "ž", "žlutý", "\0", "a\0", "1", "true", "null", "2024-13-01"]
TIMES = ["2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00", "2024-06-30 12:00"]
TEXTS = st.sampled_from([*WORDS, *TIMES])
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, -0.0, 1e300, 5e-324, 2.0**53, 0.1]),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**60, 2**60 + 1, 2**63, 2**70 + 1, 10**25]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.lists(st.none() | st.dictionaries(KEYS, VALUES, max_size=4), max_size=12)
PATHS = st.lists(KEYS, min_size=1, max_size=2).map(lambda path: format_path(tuple(path)))
EARLY = datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
MOMENTS = st.sampled_from([date(2024, 1, 1), datetime(2024, 6, 30, 12), EARLY])


def ranges(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lower, upper = st.sampled_from(["$gt", "$gte"]), st.sampled_from(["$lt", "$lte"])
    one = st.dictionaries(lower | upper, values, min_size=1, max_size=1)
    return one | st.builds(lambda a, b, x, y: {a: x, b: y}, lower, upper, values, values)


DATES, PLAIN = st.sampled_from(TIMES), st.sampled_from(WORDS)
COMPARISONS = st.recursive(
    st.one_of(
        SCALARS,
        MOMENTS,
        ranges(NUMBERS),
        ranges(PLAIN),
        ranges(DATES | MOMENTS),
        st.fixed_dictionaries({"$eq": SCALARS | MOMENTS}),
        st.fixed_dictionaries({"$ne": SCALARS}),
        st.fixed_dictionaries({"$in": st.lists(SCALARS | MOMENTS, max_size=12)}),
        st.fixed_dictionaries({"$nin": st.lists(SCALARS, max_size=3), "$exists": st.booleans()}),
        st.fixed_dictionaries({"$prefix": TEXTS}),
        st.fixed_dictionaries({"$contains": SCALARS}),
    ),
    lambda inner: st.fixed_dictionaries({"$not": inner}),
    max_leaves=2,
)
FILTERS = st.recursive(
    st.dictionaries(PATHS, COMPARISONS, max_size=2),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"$and": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"$or": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"$not": inner}),
    ),
    max_leaves=4,
)


def make_source(documents: list[Any]) -> Callable[[Any], list[str | None]]:
    def source(rows: Any) -> list[str | None]:
        return [
            None if documents[row] is None else json.dumps(documents[row], ensure_ascii=False)
            for row in rows.tolist()
        ]

    return source


def expected(filter: dict[str, Any], documents: list[Any]) -> list[bool]:
    return [holds(filter, {} if document is None else document) for document in documents]


@settings(max_examples=EXAMPLES)
@given(filter=FILTERS, documents=DOCUMENTS)
def test_columns_answer_as_plain_python(filter: dict[str, Any], documents: list[Any]) -> None:
    columns = Columns(make_source(documents))
    condition = as_condition(filter)
    assert columns.evaluate(condition, len(documents)).tolist() == expected(filter, documents)
    assert as_condition(filter) == condition
    assert hash(as_condition(filter)) == hash(condition)
    assert pickle.loads(pickle.dumps(condition)) == condition


@settings(max_examples=EXAMPLES)
@given(
    filters=st.lists(FILTERS, min_size=1, max_size=3),
    documents=DOCUMENTS,
    more=DOCUMENTS,
    data=st.data(),
)
def test_columns_grow_and_change(
    filters: list[dict[str, Any]], documents: list[Any], more: list[Any], data: Any
) -> None:
    """Grown in two ways, changed, taken apart and saved: always as if built at once."""
    documents = list(documents)
    columns = Columns(make_source(documents))
    conditions = [as_condition(filter) for filter in filters]

    def check(columns: Columns, documents: list[Any]) -> None:
        for filter, condition in zip(filters, conditions, strict=True):
            mask = columns.evaluate(condition, len(documents))
            assert mask.tolist() == expected(filter, documents)
            assert not mask.flags.writeable

    check(columns, documents)
    old = [columns.evaluate(condition, len(documents)) for condition in conditions]
    before = [mask.tolist() for mask in old]
    count = len(documents)
    documents += more
    if data.draw(st.booleans()):
        columns.extend(count, more)
    check(columns, documents)
    for condition, mask in zip(conditions, before, strict=True):
        assert columns.evaluate(condition, count).tolist() == mask
    if documents:
        rows = data.draw(st.sets(st.integers(0, len(documents) - 1)))
        for row in rows:
            documents[row] = data.draw(DOCUMENTS.map(lambda many: many[0] if many else None))
        columns.update(np.array(sorted(rows), np.int64))
        check(columns, documents)
    assert [mask.tolist() for mask in old] == before
    arrays, described = columns.save()
    described = json.loads(json.dumps(described))
    for array in arrays.values():
        array.flags.writeable = False
    loaded = Columns.load(arrays, described, columns.source)
    check(loaded, documents)
    kept = data.draw(st.lists(st.integers(0, len(documents) - 1), unique=True)) if documents else []
    some = [documents[row] for row in kept]
    taken = loaded.take(np.array(kept, np.int64), make_source(some))
    check(taken, some)
    rows = np.arange(len(documents))
    documents[:] = documents[::-1]
    loaded.update(rows)
    check(loaded, documents)


def test_python_and_dictionaries_say_the_same() -> None:
    price, lang = field("price"), irli.field("lang")
    pairs = [
        (price < 10, {"price": {"$lt": 10}}),
        (price <= 10, {"price": {"$lte": 10}}),
        (price > 10, {"price": {"$gt": 10}}),
        (price >= 10, {"price": {"$gte": 10}}),
        (price.between(1, 2), {"price": {"$gte": 1, "$lte": 2}}),
        (lang == "en", {"lang": "en"}),
        (lang == "en", {"lang": {"$eq": "en"}}),
        (lang != "en", {"lang": {"$ne": "en"}}),
        (lang.is_in(["en", "de"]), {"lang": {"$in": ["en", "de"]}}),
        (~lang.is_in(["en", "de"]), {"lang": {"$nin": ["en", "de"]}}),
        (lang.exists(), {"lang": {"$exists": True}}),
        (~lang.exists(), {"lang": {"$exists": False}}),
        (lang.startswith("e"), {"lang": {"$prefix": "e"}}),
        (lang.contains("e"), {"lang": {"$contains": "e"}}),
        (~(price < 10), {"price": {"$not": {"$lt": 10}}}),
        (~(price < 10), {"$not": {"price": {"$lt": 10}}}),
        ((price < 10) & (lang == "en"), {"price": {"$lt": 10}, "lang": "en"}),
        ((price < 10) | (lang == "en"), {"$or": [{"price": {"$lt": 10}}, {"lang": "en"}]}),
        (All(()), {}),
    ]
    for condition, filter in pairs:
        assert as_condition(filter) == condition
        assert as_condition(condition) is condition
        assert ~~condition == condition


def test_what_is_joined_is_flat() -> None:
    a, b, c = (field(name) == 1 for name in "abc")
    assert (a & b) & c == a & (b & c) == All((a, b, c))
    assert isinstance(~a, Not)
    assert ~~a is a
    many: Condition = a
    for number in range(500):
        many |= field("n") == number
    assert many.depth == 2


def test_types_are_apart() -> None:
    assert as_condition({"a": True}) != as_condition({"a": 1})
    documents: list[Any] = [{"a": True}, {"a": 1}, {"a": 1.0}, {"a": "1"}, {"a": None}, {}]
    columns = Columns(make_source(documents))

    def find(filter: Any) -> list[int]:
        return np.flatnonzero(columns.evaluate(as_condition(filter), len(documents))).tolist()

    assert find({"a": True}) == [0]
    assert find({"a": 1}) == [1, 2]
    assert find({"a": "1"}) == [3]
    assert find({"a": None}) == [4, 5]
    assert find({"a": {"$ne": 1}}) == [0, 3, 4, 5]
    assert find({"a": {"$exists": True}}) == [0, 1, 2, 3, 4]
    assert find({"a": {"$exists": True, "$eq": None}}) == [4]
    assert find({"a": {"$gte": -math.pi}}) == [1, 2]


def test_one_member_lies_in_a_range() -> None:
    columns = Columns(make_source([{"a": [1, 10]}, {"a": [6]}]))
    assert columns.evaluate(field("a").between(5, 7), 2).tolist() == [False, True]
    apart = (field("a") >= 5) & (field("a") <= 7)
    assert columns.evaluate(apart, 2).tolist() == [True, True]


def test_names_of_fields() -> None:
    assert parse_path(r"a\.b.c\\.\$d") == ("a.b", "c\\", "$d")
    assert parse_path("a\\") == ("a\\",)
    for path in [("a", "b"), ("a.b",), ("",), ("", ""), ("$or",), ("\\",), ("a$",), ("\\.", "$x")]:
        assert parse_path(format_path(path)) == path
    assert field("a.b").path == field("a", "b").path == ("a", "b")
    assert repr(field("a", "b.c")) == "field('a.b\\\\.c')"
    columns = Columns(make_source([{"$or": 1}]))
    assert columns.evaluate(as_condition({r"\$or": 1}), 1).all()
    uuid = UUID(int=5)
    assert as_condition({"a": uuid}) == as_condition({"a": str(uuid)})
    assert as_condition({"a": np.float32(0.5), "b": np.str_("x")}) == as_condition(
        {"a": 0.5, "b": "x"}
    )


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ([1, 2], "irli.field"),
        ({1: 2}, "Ids are passed"),
        ({"$nor": []}, r"'\\\\\$nor'"),
        ({"$or": []}, "at least one"),
        ({"$or": {"a": 1}}, "a list"),
        ({"$and": [1]}, "dictionaries"),
        ({"$not": 3}, "dictionaries"),
        ({"a": {"$like": "x"}}, "'\\$like' for the field 'a'"),
        ({"a": {"b": 1}}, "'a.key'"),
        ({"a": {}}, "by operators"),
        ({"a": {"$lt": 1, "b": 2}}, "by operators"),
        ({"a": [1, 2]}, "use \\$in"),
        ({"a": {"$in": "abc"}}, "a list of values"),
        ({"a": {"$in": 3}}, "a list of values"),
        ({"a": {"$in": [{"b": 1}]}}, "by path"),
        ({"a": float("nan")}, "no NaN"),
        ({"a": {"$lt": float("inf")}}, "no NaN"),
        ({"a": 10**400}, "float64"),
        ({"a": {"$lt": True}}, "a number, a text or a date"),
        ({"a": {"$lt": None}}, "a number, a text or a date"),
        ({"a": {"$gt": 1, "$lt": "b"}}, "numbers and texts in one range"),
        ({"a": {"$gt": "2024-01-01", "$lt": "b"}}, "dates and texts in one range"),
        ({"a": {"$gt": 1, "$gte": 2}}, "Leave one out"),
        ({"a": {"$exists": 1}}, "True or False"),
        ({"a": {"$prefix": 1}}, "a text"),
        ({"a": {"$contains": date(2024, 1, 1)}}, "a text, a number"),
        ({"a": {"$in": list(range(70000))}}, "at most 65536"),
        ({"$or": [{"a": 1}] * 2000}, "at most 1024"),
    ],
)
def test_mistakes_are_explained(filter: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message) as raised:
        as_condition(filter)
    assert str(raised.value).startswith("The 'filter' parameter must")
    assert len(str(raised.value)) < 500


def test_depth_is_limited() -> None:
    deep: dict[str, Any] = {"a": 1}
    for _ in range(100_000):
        deep = {"$not": deep}
    with pytest.raises(InvalidParameter, match=f"at most {MOST_DEPTH} conditions"):
        as_condition(deep)
    inner: dict[str, Any] = {"$eq": 1}
    for _ in range(100_000):
        inner = {"$not": inner}
    with pytest.raises(InvalidParameter, match="within each other"):
        as_condition({"a": inner})


def test_depth_is_limited_in_python() -> None:
    condition: Condition = field("a") == 1
    for _ in range((MOST_DEPTH - 1) // 2):
        condition = ~((field("b") == 1) & condition)
    with pytest.raises(InvalidParameter, match="within each other"):
        ~((field("b") == 1) & condition)


def test_conditions_are_joined_by_signs() -> None:
    with pytest.raises(InvalidParameter, match=r"&, \| and ~"):
        bool((field("a") > 1) and (field("b") > 1))
    with pytest.raises(InvalidParameter, match="between"):
        1 < field("a") < 3  # noqa: B015
    with pytest.raises(InvalidParameter, match="parentheses"):
        (field("a") == 1) & 3  # type: ignore[operator]
    with pytest.raises(InvalidParameter, match="names"):
        field(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        hash(field("a"))


def test_a_column_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "_BLOCK", 16)
    documents: list[Any] = [{"a": n} for n in range(100)]
    read: list[int] = []
    source = make_source(documents)

    def counting(rows: Any) -> list[str | None]:
        read.extend(rows.tolist())
        return source(rows)

    columns = Columns(counting)
    for limit in (10, 20, 30):
        assert columns.evaluate(field("a") < limit, 100).sum() == limit
    assert read == list(range(100))
    documents += [{"a": 0}] * 5
    assert columns.evaluate(field("a") < 10, 105).sum() == 15
    assert read == list(range(105))
    columns.extend(105, [{"a": 0}])
    documents.append({"a": 0})
    assert columns.evaluate(field("a") < 10, 106).sum() == 16
    assert read == list(range(105))


def test_masks_are_kept_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "_MOST_KEPT", 1000)
    columns = Columns(make_source([{"a": n} for n in range(100)]))
    for n in range(50):
        assert columns.evaluate(field("a") < n, 100).sum() == n
    assert len(columns._masks) == 10


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays["column_0_codes"].__setitem__(0, 9),
        lambda arrays: arrays["column_0_more_codes_rows"].__setitem__(0, 9),
        lambda arrays: arrays["column_0_more_codes_rows"].__setitem__(0, -1),
        lambda arrays: arrays["column_0_more_codes_values"].__setitem__(0, 9),
        lambda arrays: arrays.update(column_0_flags=np.zeros(1, np.uint8)),
        lambda arrays: arrays.update(column_0_numbers=np.zeros(2, np.float32)),
        lambda arrays: arrays.update(column_0_more_numbers_values=np.zeros(9)),
        lambda arrays: arrays.update(column_0_texts_bytes=np.full(2, 255, np.uint8)),
    ],
)
def test_damaged_columns_are_refused(change: Callable[[Any], Any]) -> None:
    columns = Columns(make_source([{"a": ["x", "y", 1, 2]}, {"a": "x"}]))
    columns.evaluate(field("a") == "x", 2)
    arrays, described = columns.save()
    change(arrays)
    with pytest.raises(FormatError):
        Columns.load(arrays, described, columns.source)


def test_one_of_holds_what_hashes_alike() -> None:
    leaf = as_condition({"a": {"$in": [1, True, 1.0, "1", None, False, 0]}})
    assert leaf == OneOf(("a",), (1, 0), ("1",), (True, False), True)
