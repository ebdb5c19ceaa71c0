"""The border of the native engine: what it takes as it is, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from planted import assemble_layout, random_partition, random_router
from searching import explain, plan, search, search_one

from irli._native import CODES, L2, LEVELS, PLAIN, SearchPlan, VectorSearcher
from irli.base.memory import read_only
from irli.engine.int8 import make_projection
from irli.engine.vector_layout import VectorLayout

DIM, N, B, R = 6, 80, 12, 2


def refuses(act: Callable[[], Any]) -> bool:
    try:
        act()
    except (TypeError, ValueError):
        return True
    return False


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@cache
def index(form: str = "plain") -> VectorLayout:
    """An index with all that its form has: codes, a prefilter, centroids, a projection."""
    routers = [random_router(DIM, B, hidden=40, seed=r) for r in range(R)]
    sample = normal(200, DIM, seed=1)
    if form != "plain":
        routers = [model.to_int8(sample) for model in routers]
    partitions = [random_partition(N, B, seed=r) for r in range(R)]
    layout = assemble_layout(
        routers, partitions, normal(N, DIM), L2, pieces=8, int8=True, centroids=True
    )
    if form == "int8":
        columns = np.concatenate([*layout.project, layout.codes.rotation], axis=1)
        shifts = np.concatenate([*layout.shift, layout.codes.shift])
        layout = layout._replace(projection=make_projection(sample, columns, shifts))
    return layout


# --- arrays of a search ----------------------------------------------------------------------


def wrong(array: NDArray[Any]) -> dict[str, Any]:
    """Return the array in clothes that must not be converted silently."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), dtype=array.dtype)
    other = {"float32": "f8", "int64": "i4", "int32": "i8", "bool": "u1"}[array.dtype.name]
    found = {
        "another type": array.astype(other),
        "float16": array.astype(np.float16),
        "complex": array.astype(np.complex64),
        "objects": array.astype(object),
        "strided": wide[..., ::2],
        "backwards": array[..., ::-1],
        "a list": array.tolist(),
        "another axis": array[None],
        "fewer axes": array[0],
        "too many columns": np.concatenate([array, array], axis=-1),
        "too few columns": array[..., :-1].copy(),
        "empty": array[..., :0].copy(),
        "a string": "array",
    }
    if array.dtype.itemsize > 1:
        found["big-endian"] = array.astype(array.dtype.newbyteorder(">"))
    if array.ndim == 2 and 1 not in array.shape:
        found["Fortran"] = np.asfortranarray(array)
    return found


def arguments() -> dict[str, Any]:
    """The arguments of `VectorSearcher.search` in their order."""
    return {
        "queries": normal(9, DIM, seed=2),
        "plan": plan(),
        "allowed": np.ones(N, dtype=bool),
        "rows": np.arange(N, dtype=np.int32),
        "removed": np.zeros(N, dtype=bool),
        "ids": np.arange(N),
        "form": PLAIN,
        "first": 0,
        "last": 9,
        "distances": np.empty((9, 5), dtype=np.float32),
        "items": np.empty((9, 5), dtype=np.int64),
        "work": np.empty((9, 8), dtype=np.int64),
    }


def filter_arguments() -> dict[str, Any]:
    return {name: arguments()[name] for name in ("allowed", "rows", "removed")}


def arguments_of_one() -> dict[str, Any]:
    return {
        "query": normal(DIM, seed=2),
        "plan": plan(),
        "ids": np.arange(N),
        "form": PLAIN,
        "distances": np.empty(5, dtype=np.float32),
        "items": np.empty(5, dtype=np.int64),
        **filter_arguments(),
    }


def arguments_of_explain() -> dict[str, Any]:
    return {"query": normal(1, DIM, seed=2), "plan": plan(), **filter_arguments()}


def arguments_of_route() -> dict[str, Any]:
    out = np.empty((9, R, B), dtype=np.float32)
    return {"queries": normal(9, DIM, seed=2), "out": out}


CALLS = {
    "search": (
        arguments,
        ("queries", "allowed", "rows", "removed", "ids", "distances", "items", "work"),
    ),
    "search_one": (arguments_of_one, ("ids", "distances", "items", "allowed", "rows", "removed")),
    "explain": (arguments_of_explain, ("query", "allowed", "rows", "removed")),
    "route": (arguments_of_route, ("queries", "out")),
}
FEWER = ("too few columns", "empty")  # may be allowed
EACH = [(call, name) for call, (_, names) in CALLS.items() for name in names]


@pytest.mark.parametrize(("call", "name"), EACH)
def test_arrays_are_never_converted(call: str, name: str) -> None:
    ask, good = getattr(VectorSearcher(index()), call), CALLS[call][0]()
    ask(**good)
    taken = [
        clothes
        for clothes, array in wrong(good[name]).items()
        if not (name == "rows" and clothes in FEWER)
        if not refuses(lambda array=array: ask(**{**good, name: array}))
    ]
    assert taken == []
    ask(**good)


@pytest.mark.parametrize(("call", "name"), EACH)
def test_only_what_may_be_missing_may_be_none(call: str, name: str) -> None:
    ask, good = getattr(VectorSearcher(index()), call), CALLS[call][0]()
    if name in ("rows", "removed", "work") or (name == "ids" and call != "search_one"):
        ask(**{**good, name: None})
    else:
        with pytest.raises((TypeError, ValueError)):
            ask(**{**good, name: None})


def test_a_filter_is_a_mask_unless_all_are_compared() -> None:
    searcher = VectorSearcher(index())
    for ask, good in ways_to_filter(searcher):
        ask(**{**good, "allowed": None, "rows": None})
        ask(**{**good, "rows": None})
        with pytest.raises(ValueError, match="must have a mask"):
            ask(**{**good, "allowed": None})
        exact = {**good, "plan": plan(k=good["plan"].k, exact=True)}
        ask(**{**exact, "allowed": None})
        with pytest.raises(ValueError, match="or rows if all items are compared"):
            ask(**{**exact, "rows": None})


def ways_to_filter(searcher: VectorSearcher) -> list[tuple[Callable[..., Any], dict[str, Any]]]:
    return [
        (searcher.search, arguments()),
        (searcher.search_one, arguments_of_one()),
        (searcher.explain, arguments_of_explain()),
    ]


@pytest.mark.parametrize("rows", [[-1], [N], [0, N], [2**31 - 1], [-(2**31)], [0] * (N + 1)])
def test_rows_of_a_filter_that_no_item_has_are_refused(rows: list[int]) -> None:
    searcher = VectorSearcher(index())
    given = np.array(rows, dtype=np.int32)
    for ask, good in ways_to_filter(searcher):
        exact = {**good, "plan": plan(k=good["plan"].k, exact=True), "rows": given}
        with pytest.raises(ValueError, match="rows of a filter must be rows of the index"):
            ask(**exact)


def test_rows_of_a_filter_that_no_item_has_are_left_out_of_a_wide_search() -> None:
    """They are not read before a search has widened so far that all allowed items are compared."""
    searcher = VectorSearcher(index())
    rows = np.array([-1, 3, N, 7, 2**31 - 1], dtype=np.int32)
    allowed = np.zeros(N, dtype=bool)
    allowed[[3, 7]] = True
    wide = plan(k=5, thresholds=[0.0] * LEVELS, centroids=[0.0] * LEVELS, exact_from=0.0)
    for ask, good in ways_to_filter(searcher):
        answer = ask(**{**good, "plan": wide, "rows": rows, "allowed": allowed})
        found = answer["items"] if isinstance(answer, dict) else good["items"]
        assert set(np.unique(found).tolist()) == {-1, 3, 7}


@pytest.mark.parametrize("name", ["distances", "items", "work"])
def test_answers_are_not_written_into_read_only_arrays(name: str) -> None:
    searcher = VectorSearcher(index())
    for ask, good in ((searcher.search, arguments()), (searcher.search_one, arguments_of_one())):
        if name not in good:
            continue
        good[name] = read_only(np.full_like(good[name], 7))
        with pytest.raises((TypeError, ValueError)):
            ask(**good)
        assert (good[name] == 7).all()


def test_a_single_query_that_must_be_converted_is_not_searched() -> None:
    """The caller is told, converts it, and searches it as a batch."""
    searcher, good = VectorSearcher(index()), arguments_of_one()
    assert searcher.search_one(**good)
    good["items"][:] = good["distances"][:] = 7
    for clothes, array in {**wrong(good["query"]), "bytes": b"query"}.items():
        assert searcher.search_one(**{**good, "query": array}) is False, clothes
    assert (good["items"] == 7).all()
    assert (good["distances"] == 7).all()
    assert searcher.search_one(**good)


def test_answers_need_a_row_for_each_query() -> None:
    searcher = VectorSearcher(index())
    for name in ("distances", "items", "work"):
        good = arguments()
        for rows in (8, 10):
            width = good[name].shape[1]
            shape = rows, width
            with pytest.raises(ValueError, match=rf"'{name}' must have the shape \(9, {width}\)"):
                searcher.search(**{**good, name: np.empty(shape, dtype=good[name].dtype)})


def test_refusals_name_the_array_and_both_shapes() -> None:
    searcher, good = VectorSearcher(index()), arguments()
    for name, array, right, got in (
        ("queries", normal(9, DIM + 1), r"\(any, 6\)", r"\(9, 7\)"),
        ("allowed", np.ones(N + 1, dtype=bool), r"\(80,\)", r"\(81,\)"),
        ("ids", np.arange(3), r"\(80,\)", r"\(3,\)"),
        ("items", np.empty((9, 4), dtype=np.int64), r"\(9, 5\)", r"\(9, 4\)"),
    ):
        with pytest.raises(ValueError, match=f"'{name}' must have the shape {right}. Got {got}"):
            searcher.search(**{**good, name: array})


@pytest.mark.parametrize(("first", "last"), [(-1, 9), (0, 10), (-5, -1), (0, 2**62)])
def test_rows_outside_of_a_batch_are_refused(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="rows are out of range"):
        VectorSearcher(index()).search(**{**arguments(), "first": first, "last": last})


@pytest.mark.parametrize("name", ["form", "first", "last"])
@pytest.mark.parametrize("value", ["1", 1.5, None, 2**64, [1]])
def test_numbers_are_whole_numbers(name: str, value: Any) -> None:
    with pytest.raises(TypeError):
        VectorSearcher(index()).search(**{**arguments(), name: value})


def test_read_only_and_mapped_arrays_are_taken(tmp_path: Path) -> None:
    """Queries, filters and ids, whatever memory they are in."""
    searcher, good = VectorSearcher(index()), arguments()
    searcher.search(**good)
    right = good["items"].copy()
    for name in ("queries", "allowed", "rows", "removed", "ids"):
        np.save(tmp_path / f"{name}.npy", good[name])
        for array in (
            read_only(good[name]),
            np.load(tmp_path / f"{name}.npy", mmap_mode="r"),
            np.load(tmp_path / f"{name}.npy", mmap_mode="c"),
        ):
            good["items"][:] = -7
            searcher.search(**{**good, name: array})
            np.testing.assert_array_equal(good["items"], right)


def test_arrays_that_begin_anywhere_in_memory() -> None:
    """Queries and answers need not be aligned to cache lines, only to their numbers."""
    searcher = VectorSearcher(index())
    good = arguments()
    searcher.search(**good)
    for offset in range(1, 5):
        moved = {}
        for name in ("queries", "distances", "items"):
            array = good[name]
            room = np.empty(array.size + offset, dtype=array.dtype)[offset:].reshape(array.shape)
            room[:] = array
            moved[name] = room
        moved["items"][:] = -7
        searcher.search(**{**good, **moved})
        np.testing.assert_array_equal(moved["items"], good["items"])
        np.testing.assert_array_equal(moved["distances"], good["distances"])


# --- plans -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"k": 0},
        {"k": -1},
        {"probes": -1},
        {"min_votes": -1},
        {"candidates": -1},
        {"score": -1},
        {"score": 4},
        {"score": CODES, "candidates": 0},
        {"score": CODES, "candidates": 16_385},
        {"centroids": [-1.0]},
        {"centroids": [math.nan]},
        {"centroids": [1e9]},
        {"start": math.nan},
        {"wide": -1},
        {"picked": -1},
        {"picked": 16_385},
        {"picked": 5, "min_votes": 2},
        {"picked": 5, "by_score": True},
        {"score": CODES, "candidates": 5, "by_score": True},
        {"exact": True, "by_score": True},
        {"exact": True, "min_votes": 2},
    ],
    ids=str,
)
def test_plans_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    given = plan(**changes)
    with pytest.raises(ValueError, match="SearchPlan are out of range"):
        explain(index(), normal(DIM), given)


@pytest.mark.parametrize("thresholds", [[], [-1.0] * 25])
def test_plans_have_1_to_24_levels(thresholds: list[float]) -> None:
    with pytest.raises(ValueError, match="1 to 24 levels"):
        plan(thresholds=thresholds)
    with pytest.raises(ValueError, match="centroids for each threshold"):
        plan(thresholds=[-1.0, -2.0], centroids=[0.0])


@pytest.mark.parametrize(
    "name", ["k", "probes", "min_votes", "candidates", "score", "wide", "picked"]
)
@pytest.mark.parametrize("value", ["1", 1.5, None, 2**64])
def test_plans_hold_whole_numbers(name: str, value: Any) -> None:
    with pytest.raises(TypeError):
        plan(**{name: value})


def test_plans_are_told_as_they_were_made() -> None:
    given = {
        "k": 3,
        "probes": 2,
        "thresholds": [-1.5, -2.5],
        "centroids": [0.0, 4.0],
        "min_votes": 4,
        "candidates": 9,
        "score": 1,
        "exact": True,
        "far": 2.5,
        "wide": 7,
    }
    made, bare = plan(**given), SearchPlan()
    assert {name: getattr(made, name) for name in given} == given
    assert (bare.k, bare.thresholds, bare.centroids) == (1, [-math.inf], [0.0])
    assert (bare.exact, bare.far, bare.wide) == (False, math.inf, 0)


def test_codes_need_codes() -> None:
    """An index without them has nothing that could be scanned."""
    bare = assemble_layout([random_router(DIM, B)], [random_partition(N, B)], normal(N, DIM))
    searcher, p = VectorSearcher(bare), plan(score=CODES, candidates=5)
    for ask in (
        lambda: search(searcher, normal(3, DIM), p),
        lambda: search_one(searcher, normal(DIM), p, np.arange(N)),
        lambda: explain(bare, normal(DIM), p, searcher=searcher),
    ):
        with pytest.raises(ValueError, match="scores by codes, and the index has none"):
            ask()


def test_any_threshold_ends() -> None:
    searcher = VectorSearcher(index())
    for threshold in (math.inf, -math.inf, math.nan, 0.0, 1e300, -1e300):
        found = search(searcher, normal(3, DIM), plan(threshold=threshold))
        assert (found.items >= 0).all()


# --- layouts ---------------------------------------------------------------------------------


def fields(form: str) -> list[str]:
    """The arrays that an index of this form reads: those that are not empty."""
    layout = index(form)
    names = []
    for name, value in layout._asdict().items():
        if isinstance(value, np.ndarray):
            names += [name] if value.size else []
        elif isinstance(value, tuple):
            names += [f"{name}.{part}" for part, array in value._asdict().items() if array.size]
    return [name for name in names if name != "int8.centre"]  # kernels need no centre


def replaced(layout: VectorLayout, name: str, change: Any) -> VectorLayout:
    outer, _, inner = name.partition(".")
    part = getattr(layout, outer)
    part = part._replace(**{inner: change(getattr(part, inner))}) if inner else change(part)
    return layout._replace(**{outer: part})


CHANGES: dict[str, Any] = {
    "another type": lambda a: a.astype(np.float64),
    "another axis": lambda a: a[None],
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "longer": lambda a: np.concatenate([a, a], axis=-1),
    "longer at the front": lambda a: np.concatenate([a, a]),
}
TAKEN = [  # entries and blocks may be more than the buckets hold
    ("items", "longer"),
    ("items", "longer at the front"),
    ("codes.blocks", "longer at the front"),
]


@pytest.mark.parametrize("form", ["plain", "int8"])
@pytest.mark.parametrize("change", CHANGES)
def test_layouts_with_a_wrong_array_are_refused(form: str, change: str) -> None:
    layout = index(form)
    VectorSearcher(layout)
    for name in fields(form):
        changed = replaced(layout, name, CHANGES[change])
        taken = (name, change) in TAKEN
        assert refuses(lambda changed=changed: VectorSearcher(changed)) is not taken, name


def test_mapped_layouts_are_searched(tmp_path: Path) -> None:
    layout = index()
    mapped = {}
    for name, value in layout._asdict().items():
        if isinstance(value, np.ndarray) and value.size:
            np.save(tmp_path / f"{name}.npy", value)
            mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    q = normal(20, DIM, seed=5)
    right = search(VectorSearcher(layout), q, plan())
    found = search(VectorSearcher(layout._replace(**mapped)), q, plan())
    np.testing.assert_array_equal(found.items, right.items)
    np.testing.assert_array_equal(found.distances, right.distances)


@pytest.mark.parametrize("what", [None, 3, "layout", {}, (1, 2)])
def test_what_is_no_layout_is_refused(what: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        VectorSearcher(what)


def test_a_projection_needs_a_column_for_each_feature_and_coordinate() -> None:
    layout = index("int8")
    sample = normal(50, DIM)
    columns = np.concatenate([*layout.project], axis=1)  # none for the codes
    short = make_projection(sample, columns, np.concatenate([*layout.shift]))
    with pytest.raises(ValueError, match="column for each feature and code"):
        VectorSearcher(layout._replace(projection=short))
