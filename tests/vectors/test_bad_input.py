"""Everything that users do wrong, or do oddly, has a defined answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import METRICS, small_default, small_paper
from contract import same
from numpy.typing import NDArray
from planted import clusters, exact_distances

import irli
from irli import Deny, VectorIndex
from irli.errors import (
    DimensionMismatch,
    FormatError,
    InvalidParameter,
    IrliError,
    NotFitted,
)

DIM = 6


def base() -> NDArray[np.float32]:
    return clusters(10, 10, dim=DIM, spread=0.5, seed=0).points


@pytest.fixture(scope="module")
def index() -> VectorIndex:
    return VectorIndex(recipe=small_default()).fit(base(), threads=1)


def fit(X: Any, *, recipe: Any = None, metric: str = "l2", **arguments: Any) -> VectorIndex:
    arguments.setdefault("threads", 1)
    return VectorIndex(metric, recipe=recipe or small_default()).fit(X, **arguments)


def refuses(name: str, error: type[Exception] = InvalidParameter) -> Any:
    """The error of its class, an IrliError too, whose message names the parameter."""
    assert issubclass(error, IrliError)
    return pytest.raises(error, match=f"'{name}' parameter")


def spoiled(value: float) -> NDArray[np.float32]:
    X = base()
    X[13, 2] = value
    return X


# --- fit: vectors ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_not_finite(value: float, dtype: str, index: VectorIndex) -> None:
    bad = spoiled(value).astype(dtype)
    with pytest.raises(InvalidParameter, match=r"The 'X' parameter .* in row 13 "):
        fit(bad)
    with pytest.raises(InvalidParameter, match=r"The 'queries' parameter .* in row 13 "):
        fit(base(), queries=bad)
    with pytest.raises(InvalidParameter, match=r"The 'queries' parameter .* in row 13 "):
        index.search(bad)
    with pytest.raises(InvalidParameter, match=r"The 'queries' parameter .* in row 0 "):
        index.search(bad[13])
    with refuses("queries"):
        index.explain(bad)


def test_beyond_float32(index: VectorIndex) -> None:
    bad = base().astype(np.float64)
    bad[4, 0] = 1e300
    with pytest.raises(InvalidParameter, match=r"The 'X' parameter .* in row 4 "):
        fit(bad)
    with pytest.raises(InvalidParameter, match=r"The 'queries' parameter .* in row 4 "):
        index.search(bad)


@pytest.mark.parametrize(
    "X",
    [
        [],
        np.empty((0, DIM)),
        np.empty((5, 0)),
        np.ones(DIM),
        np.ones((2, 3, 4)),
        5.0,
        None,
        "abc",
        [["a", "b"]],
        [[1.0, 2.0], [3.0]],
        np.ones((3, 2), dtype=complex),
        np.array([[{}]]),
        sp.csr_array(np.eye(4)),
    ],
    ids=lambda X: f"{type(X).__name__}-{getattr(X, 'shape', X)}",
)
def test_what_is_no_array_of_vectors(X: Any) -> None:
    with refuses("X"):
        fit(X)


def test_wrong_dimension(index: VectorIndex) -> None:
    for bad in (np.ones((3, DIM + 1)), np.ones((3, DIM - 1)), np.ones((0, DIM + 1))):
        for search in (index.search, index.explain):
            with pytest.raises(DimensionMismatch, match=rf"{DIM} dim.* Got {bad.shape[1]} "):
                search(bad)
    for bad in (np.ones(DIM + 1), [1.0], []):
        with pytest.raises(DimensionMismatch, match="'queries' parameter"):
            index.search(bad)
    with refuses("queries", DimensionMismatch):
        fit(base(), queries=np.ones((5, DIM + 1)))
    for act in (
        lambda: index.tune(queries=np.ones((5, 2))),
        lambda: index.search(np.ones((5, 2)), exact=True),
    ):
        with refuses("queries", DimensionMismatch):
            act()


@pytest.mark.parametrize(
    "queries",
    [None, "abc", 3.0, np.ones((2, 3, DIM)), np.ones((1, DIM), dtype=complex), [["x"] * DIM]],
    ids=repr,
)
def test_what_is_no_query(index: VectorIndex, queries: Any) -> None:
    with refuses("queries"):
        index.search(queries)
    with refuses("queries"):
        index.explain(queries)


def test_no_queries_have_no_answers(index: VectorIndex) -> None:
    found = index.search(np.empty((0, DIM)), k=3)
    assert found.ids.shape == found.distances.shape == (0, 3)
    told = index.explain(np.empty((0, DIM)), k=3)
    assert told.ids.shape == (0, 3)


# --- fit: ids --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (np.arange(100) // 2, "an id twice. Got 0 in rows 0 and 1"),
        (np.arange(100) - 1, "negative ids.* Got -1 in row 0"),
        (np.arange(99), r"shape \(100,\).* Got shape \(99,\)"),
        (np.arange(100)[:, None], r"shape \(100,\)"),
        (np.arange(100) / 2, "integers.* Got dtype float64"),
        ([f"doc {i}" for i in range(99)] + [7], "Got 7 in row 99"),
        (np.arange(100, dtype=np.uint64) + np.uint64(2**63), "fit into int64"),
        (7, r"shape \(100,\)"),
    ],
    ids=[
        "twice",
        "negative",
        "too few",
        "2-D",
        "floats",
        "a number among strings",
        "too large",
        "scalar",
    ],
)
def test_bad_ids(ids: Any, says: str) -> None:
    with pytest.raises(InvalidParameter, match=f"(?s)'ids' parameter.*{says}"):
        fit(base(), ids=ids)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u8", "i8"])
def test_ids_of_any_integer_type(dtype: str) -> None:
    found = fit(base(), ids=np.arange(100)[::-1].astype(dtype)).search(base(), k=1, threshold=0.0)
    assert found.ids.dtype == np.int64
    assert found.ids[:, 0].tolist() == list(range(99, -1, -1))


def test_largest_ids() -> None:
    ids = np.iinfo(np.int64).max - np.arange(100)
    index = fit(base(), ids=ids)
    assert index.search(base(), k=1, threshold=0.0).ids[:, 0].tolist() == ids.tolist()
    assert int(ids[0]) in index
    assert index.search(base()[0], k=1, filter=[int(ids[5])]).ids.tolist() == [ids[5]]


# --- fit: queries, relevance, neighbours, the rest -------------------------------------------


@pytest.mark.parametrize(
    "relevance",
    [
        np.full((5, 2), 100),  # no such row
        np.full((5, 2), -2),
        np.zeros((4, 2), dtype=int),  # too few rows
        np.zeros(5, dtype=int),
        np.ones((5, 2)),  # dense weights
        sp.csr_array(np.ones((5, 99))),
        sp.csr_array(np.ones((100, 5))),
        sp.csr_array(-np.eye(5, 100)),
        sp.csr_array(np.nan * np.eye(5, 100)),
        "all",
    ],
    ids=lambda y: f"{type(y).__name__}{getattr(y, 'shape', '')}",
)
def test_bad_relevance(relevance: Any) -> None:
    with refuses("relevance"):
        fit(base(), queries=base()[:5], relevance=relevance)


def test_relevance_without_queries() -> None:
    with pytest.raises(InvalidParameter, match=r"'relevance' parameter .* with 'queries'"):
        fit(base(), relevance=np.zeros((5, 1), dtype=int))


@pytest.mark.parametrize("queries", [np.empty((0, DIM)), np.ones(DIM), "abc"], ids=repr)
def test_bad_queries_of_fit(queries: Any) -> None:
    with refuses("queries"):
        fit(base(), queries=queries)


@pytest.mark.parametrize(
    "neighbors",
    [
        np.full((100, 2), 100),
        np.full((100, 2), -2),
        np.zeros((99, 2), dtype=int),
        np.zeros(100, dtype=int),
        np.full((100, 2), 0.5),
        np.full((100, 2), np.nan),
        [["a"]] * 100,
        "all",
    ],
    ids=lambda y: f"{type(y).__name__}{getattr(y, 'shape', '')}-{getattr(y, 'dtype', '')}",
)
def test_bad_neighbors(neighbors: Any) -> None:
    with refuses("neighbors"):
        fit(base(), neighbors=neighbors)


def test_neighbors_that_name_nobody() -> None:
    index = fit(base(), neighbors=np.full((100, 3), -1))
    assert (index.search(base(), k=1, threshold=0.0).ids[:, 0] == np.arange(100)).all()
    with pytest.raises(InvalidParameter, match=r"'neighbors' .* shape"):
        fit(base(), neighbors=np.empty((100, 0), dtype=int))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"workers": 0}, "workers"),
        ({"workers": 1.5}, "workers"),
        ({"threads": 0}, "threads"),
        ({"threads": -2}, "threads"),
        ({"threads": "all"}, "threads"),
        ({"device": "abacus"}, "device"),
    ],
    ids=str,
)
def test_bad_arguments_of_fit(arguments: dict[str, Any], name: str) -> None:
    with refuses(name):
        fit(base(), **arguments)


# --- recipes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["L2", "manhattan", "", 3, None])
def test_unknown_metric(metric: Any) -> None:
    with refuses("metric"):
        VectorIndex(metric)


@pytest.mark.parametrize("recipe", ["defaults", "", 7, None])
def test_unknown_recipe(recipe: Any) -> None:
    with refuses("recipe"):
        VectorIndex(recipe=recipe)


def test_unknown_recipe_keys() -> None:
    with pytest.raises(InvalidParameter, match=r"no setting 'bucket'. Did you mean 'buckets'"):
        irli.recipe("default", bucket=5)
    with pytest.raises(InvalidParameter, match=r"no setting 'zzz'. It has: .*epochs"):
        irli.recipe("paper", zzz=1)
    with pytest.raises(InvalidParameter, match="no setting 'name'"):
        irli.recipe("paper", name="mine")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repetitions", 0),
        ("repetitions", 1.5),
        ("buckets", 0),
        ("buckets", "many"),
        ("start", "random"),
        ("router", "tree"),
        ("hidden", 0),
        ("boost", 1),
        ("loss", "hinge"),
        ("neighbors", 0),
        ("training_points", 0),
        ("query_share", 1.1),
        ("mixed_queries", -1),
        ("noise", -0.1),
        ("noise", float("nan")),
        ("affinity", "none"),
        ("repartition", "random"),
        ("choices", 0),
        ("slack", 0.9),
        ("slack", float("inf")),
        ("buckets_per_item", 0),
        ("buckets_per_item", 3),
        ("boost", "yes"),
        ("epochs", 0),
        ("repartition_every", 0),
        ("epoch_size", -1),
        ("stop_moved", -0.5),
        ("accept", "never"),
        ("batch_size", 0),
        ("learning_rate", -1e-3),
        ("seed", -1),
        ("seed", 2**31),
    ],
)
def test_bad_recipe_values(name: str, value: Any) -> None:
    with refuses(name):
        irli.recipe("default", **{name: value})


def test_recipes_that_contradict_themselves() -> None:
    with refuses("router"):
        irli.recipe("default", start="hash")
    with refuses("buckets_per_item"):
        irli.recipe("default", repartition="least-loaded")


def test_more_buckets_than_items() -> None:
    with pytest.raises(InvalidParameter, match=r"'buckets' parameter .* 100 items.* Got 101"):
        fit(base(), recipe=small_default(buckets=101))
    with refuses("buckets"):
        fit(base(), recipe="paper")  # 5000 buckets
    index = fit(base(), recipe=small_default(buckets=100))
    assert index.stats()["buckets"] == 100


def test_more_choices_than_buckets() -> None:
    with pytest.raises(InvalidParameter, match=r"'choices' parameter .* Got 11"):
        fit(base(), recipe=small_default(buckets=10, choices=11))
    with refuses("choices"):
        fit(base(), recipe=small_paper(buckets=8, choices=9))
    assert fit(base(), recipe=small_default(buckets=10, choices=10)).stats()["buckets"] == 10


# --- search ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"k": 0}, "k"),
        ({"k": -1}, "k"),
        ({"k": 1.0}, "k"),
        ({"k": True}, "k"),
        ({"k": None}, "k"),
        ({"probes": 0}, "probes"),
        ({"probes": -3}, "probes"),
        ({"probes": 1.5}, "probes"),
        ({"threshold": -0.1}, "threshold"),
        ({"threshold": 1.1}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"threshold": "low"}, "threshold"),
        ({"min_votes": 0}, "min_votes"),
        ({"min_votes": 1.5}, "min_votes"),
        ({"candidates": 0}, "candidates"),
        ({"candidates": -1}, "candidates"),
        ({"score": "best"}, "score"),
        ({"score": 1}, "score"),
        ({"threads": 0}, "threads"),
        ({"threads": -2}, "threads"),
        ({"threads": 1.5}, "threads"),
        ({"filter": 3}, "filter"),
        ({"filter": "abc"}, "filter"),
        ({"filter": [0.5, 1.5]}, "filter"),
        ({"filter": {0.5}}, "filter"),
        ({"filter": [[1, 2]]}, "filter"),
        ({"filter": ["a"]}, "filter"),
        ({"filter": np.ones(99, dtype=bool)}, "filter"),
        ({"filter": np.ones((100, 1), dtype=bool)}, "filter"),
        ({"filter": [[1, 2], [3]]}, "filter"),
        ({"filter": Deny(3)}, "filter"),
        ({"filter": Deny("abc")}, "filter"),
        ({"filter": Deny([0.5])}, "filter"),
        ({"filter": Deny(np.ones(99, dtype=bool))}, "filter"),
    ],
    ids=str,
)
def test_bad_arguments_of_search(index: VectorIndex, arguments: dict[str, Any], name: str) -> None:
    searches = [index.search] if "threads" in arguments else [index.search, index.explain]
    for search in searches:
        with refuses(name):
            search(base()[:3], **arguments)


@pytest.mark.parametrize(
    ("given", "meant"), [("probe", "probes"), ("candidate", "candidates"), ("nprobe", "probes")]
)
def test_unknown_arguments_of_search(index: VectorIndex, given: str, meant: str) -> None:
    for search in (index.search, index.explain):
        with pytest.raises(TypeError, match=rf"argument '{given}'\. Did you mean '{meant}'\?"):
            search(base()[:3], **{given: 3})


@pytest.mark.parametrize("threads", [0, -2, 1.5])
def test_bad_threads_for_a_single_query(index: VectorIndex, threads: Any) -> None:
    with refuses("threads"):
        index.search(base()[0], threads=threads)


def test_unknown_arguments_of_fit() -> None:
    with pytest.raises(TypeError, match=r"fit\(\) .* 'thread'\. Did you mean 'threads'\?"):
        fit(base(), thread=2)
    with pytest.raises(TypeError, match=r"argument 'zzz'\. It has: progress, threads, workers"):
        fit(base(), zzz=2)


def test_probes_and_threshold_exclude_each_other(index: VectorIndex) -> None:
    for search in (index.search, index.explain):
        with pytest.raises(InvalidParameter, match="one of the 'probes' and 'threshold'"):
            search(base()[:3], probes=2, threshold=0.1)


def test_numpy_numbers_are_numbers(index: VectorIndex) -> None:
    plain = index.search(base(), k=3, probes=2, min_votes=1, candidates=9)
    same(
        plain,
        index.search(
            base(),
            k=np.int16(3),
            probes=np.int8(2),
            min_votes=np.int8(1),
            candidates=np.uint16(9),
        ),
    )
    same(
        index.search(base(), k=3, threshold=0.5),
        index.search(base(), k=3, threshold=np.float32(0.5)),
    )


def test_numbers_beyond_all_bounds_are_just_large(index: VectorIndex) -> None:
    whole = index.search(base(), k=3, probes=100, candidates=100)
    same(index.search(base(), k=3, probes=2**62, candidates=2**62), whole)
    same(index.search(base(), k=3, probes=10**30, candidates=10**30), whole)
    assert (index.search(base(), k=3, min_votes=10**30).ids == -1).all()


def test_before_fit(tmp_path: Path) -> None:
    index = VectorIndex("cosine")
    assert "not fitted" in repr(index)
    for act in (
        lambda: index.search(base()),
        lambda: index.explain(base()),
        lambda: index.tune(),
        lambda: index.search(base(), exact=True),
        lambda: index.ids,
        lambda: index.allow([1]),
        lambda: index.vectors,
        lambda: index.stats(),
        lambda: index.loads(),
        lambda: index.save(tmp_path / "x"),
        lambda: len(index),
        lambda: 7 in index,
    ):
        with pytest.raises(NotFitted, match=r"Call fit\(X\) or irli.load"):
            act()
    assert not (tmp_path / "x").exists()


# --- the same numbers in other clothes -------------------------------------------------------


def clothes(X: NDArray[np.float32]) -> dict[str, Any]:
    """Small integers are exact in every type."""
    wide = np.zeros((len(X), 3 * DIM), dtype=np.float32)
    wide[:, ::3] = X
    mapped = X.copy()
    mapped.setflags(write=False)
    return {
        "float16": X.astype(np.float16),
        "float64": X.astype(np.float64),
        "int8": X.astype(np.int8),
        "int64": X.astype(np.int64),
        "big-endian": X.astype(">f4"),
        "list": X.tolist(),
        "tuple of rows": tuple(X),
        "Fortran": np.asfortranarray(X),
        "strided": wide[:, ::3],
        "backwards": X[::-1].copy()[::-1],
        "read-only": mapped,
    }


@pytest.fixture(scope="module")
def whole_numbers() -> tuple[NDArray[np.float32], VectorIndex]:
    X = np.random.default_rng(0).integers(-9, 10, size=(100, DIM)).astype(np.float32)
    return X, fit(X)


@pytest.mark.parametrize("kind", clothes(np.zeros((1, DIM), dtype=np.float32)))
def test_other_types_and_layouts(
    kind: str, whole_numbers: tuple[NDArray[np.float32], VectorIndex]
) -> None:
    X, plain = whole_numbers
    right = plain.search(X, k=5, probes=2)
    same(plain.search(clothes(X)[kind], k=5, probes=2), right)
    same(fit(clothes(X)[kind]).search(X, k=5, probes=2), right)
    single = plain.search(clothes(X)[kind][3], k=5, probes=2)
    assert single.ids.tolist() == right.ids[3].tolist()


def test_mapped_vectors(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", base())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    same(fit(mapped).search(base(), k=3, probes=2), fit(base()).search(base(), k=3, probes=2))


# --- odd data --------------------------------------------------------------------------------


def check_whole(index: VectorIndex, X: NDArray, k: int = 3) -> None:
    """An exhaustive search is right, and a plain one gives an answer."""
    queries = X[:20]
    assert (index.search(queries, k=1).ids >= 0).all()
    found = index.search(queries, k=k, threshold=0.0, candidates=len(X))
    exact = exact_distances(queries, X, index.metric)
    right = np.sort(-exact if index.metric == "ip" else exact, axis=1)[:, :k]
    right = -right if index.metric == "ip" else right
    width = right.shape[1]
    np.testing.assert_allclose(found.distances[:, :width], right, rtol=1e-4, atol=1e-5)
    assert (found.ids[:, :width] >= 0).all()
    assert (found.ids[:, width:] == -1).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("recipe", ["default", "paper"])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 17, 20, 21])
def test_few_items(metric: str, recipe: str, count: int, tmp_path: Path) -> None:
    X = np.random.default_rng(count).normal(size=(count, DIM)).astype(np.float32)
    chosen = small_default() if recipe == "default" else small_paper(buckets=min(4, count))
    if recipe == "paper":
        chosen = small_paper(buckets=min(4, count), choices=min(4, count), repetitions=2)
    index = fit(X, metric=metric, recipe=chosen)
    check_whole(index, X, k=min(3, count))
    check_whole(index, X, k=30)
    index.save(tmp_path / "tiny")
    same(irli.load(tmp_path / "tiny").search(X, k=3), index.search(X, k=3))


@pytest.mark.parametrize("count", [1, 2, 5, 40])
@pytest.mark.parametrize("queries", [1, 2, 5, 30])
def test_few_queries(count: int, queries: int) -> None:
    X = np.random.default_rng(0).normal(size=(count, DIM)).astype(np.float32)
    Q = np.random.default_rng(1).normal(size=(queries, DIM)).astype(np.float32)
    check_whole(fit(X, queries=Q), X, k=1)
    wanted = np.random.default_rng(2).integers(count, size=(queries, 1))
    relevance = sp.csr_array(np.eye(count)[wanted[:, 0]])  # numbers alone might be a matrix
    check_whole(fit(X, queries=Q, relevance=relevance), X, k=1)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("count", [2, 10, 100])
def test_all_items_alike(metric: str, count: int) -> None:
    X = np.tile(np.arange(1, DIM + 1, dtype=np.float32), (count, 1))
    index = fit(X, metric=metric)
    check_whole(index, X)
    found = index.search(X[0], k=count)
    assert sorted(found.ids) == list(range(count))
    limit = np.ceil(
        index.recipe.slack * count * index.recipe.buckets_per_item / index.recipe.buckets
    )
    assert index.loads()[0].max() <= limit


@pytest.mark.parametrize("metric", METRICS)
def test_two_points_many_times(metric: str) -> None:
    X = np.repeat([[1.0, 0, 0], [0, 2.0, 1]], 50, axis=0).astype(np.float32)
    index = fit(X, metric=metric)
    check_whole(index, X)


@pytest.mark.parametrize("metric", METRICS)
def test_zero_vectors(metric: str) -> None:
    X = base()
    X[[0, 7, 50]] = 0
    index = fit(X, metric=metric)
    check_whole(index, X)
    found = index.search(np.zeros(DIM), k=4, threshold=0.0)
    if metric == "cosine":  # as far as a right angle from everything
        np.testing.assert_allclose(found.distances, 1)
    check_whole(fit(np.zeros((30, DIM)), metric=metric), np.zeros((30, DIM)))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("recipe", ["default", "paper"])
def test_one_dimension(metric: str, recipe: str) -> None:
    X = np.random.default_rng(0).normal(size=(100, 1)).astype(np.float32)
    chosen = small_default() if recipe == "default" else small_paper(buckets=10)
    check_whole(fit(X, metric=metric, recipe=chosen), X)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1e6, 1e15, 1e25])
def test_very_small_and_very_large_numbers(metric: str, scale: float) -> None:
    X = (base().astype(np.float64) * scale).astype(np.float32)
    if metric != "cosine" and not 1e-15 < scale < 1e18:
        with pytest.raises(InvalidParameter, match=r"'X' parameter must hold .* a length of at"):
            fit(X, metric=metric)
        return
    index = fit(X, metric=metric)
    found = index.search(X, k=1, threshold=0.0)
    assert (found.ids >= 0).all()
    if metric == "cosine" or (metric == "l2" and scale > 1e-15):
        exact = exact_distances(X[:20], X, metric) / (scale**2 if metric == "l2" else 1)
        rows = found.ids[:20, 0]
        assert exact[np.arange(20), rows].max() < 1e-3
    if metric == "cosine":
        assert found.distances.max() < 1e-3


@pytest.mark.parametrize("metric", METRICS)
def test_enormous_queries_are_answered_by_their_angle_or_refused(metric: str) -> None:
    """Alone and in a batch."""
    X = base()
    index = fit(X, metric=metric)
    for query in (np.full(DIM, 1e38), np.full(DIM, -3e38), np.eye(DIM)[0] * 3e38):
        if metric != "cosine":
            short = query.astype(np.float32)
            for given in (query, query[None], short, short[None], query.tolist()):
                for ask in (index.search, index.explain):
                    with pytest.raises(InvalidParameter, match="'queries' parameter must hold"):
                        ask(given, k=3)
            continue
        for plan in ({}, {"probes": 1}, {"probes": 2, "candidates": 5}, {"threshold": 0.1}):
            ids = index.search(query, k=3, **plan).ids
            assert ids.shape == (3,)
            assert ((ids >= -1) & (ids < len(X))).all()
        small = index.search(query / 1e38, k=3, threshold=0.0)
        large = index.search(query, k=3, threshold=0.0)
        np.testing.assert_allclose(large.distances, small.distances, atol=1e-4)


# --- files -----------------------------------------------------------------------------------


def test_a_path_that_is_no_index(tmp_path: Path, index: VectorIndex) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    file = tmp_path / "file.npy"
    np.save(file, base())
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "manifest.json").write_text(json.dumps({"name": "a web app"}))
    for path in (tmp_path / "missing", empty, file, foreign):
        with pytest.raises((FormatError, FileNotFoundError)) as caught:
            irli.load(path)
        assert isinstance(caught.value, IrliError)
        assert str(path) in str(caught.value)


def test_saving_over_something_else(tmp_path: Path, index: VectorIndex) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    with pytest.raises(IrliError):
        index.save(precious)
    assert (precious / "thesis.txt").read_text() == "years of work"


def test_a_bad_fit_changes_nothing_on_disk(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter):
        fit(base(), workers=0, checkpoint=tmp_path / "c")
    with pytest.raises(InvalidParameter):
        fit(spoiled(np.nan), checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()
