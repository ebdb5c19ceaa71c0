from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import clusters, exact_distances, nearness

from irli import _native
from irli.engine import exact as neighbors
from irli.engine.exact import exact_neighbors

pytestmark = pytest.mark.usefixtures("simd")


def normalised(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def check(queries, base, k, metric, rows, found) -> None:  # type: ignore[no-untyped-def]
    """`found` are k nearest, whichever of equals, without the query's own row."""
    exact = nearness(exact_distances(queries, base, metric), metric)
    if rows is not None:
        exact[rows >= 0, rows[rows >= 0]] = np.inf
        assert not ((found == rows[:, None]) & (rows[:, None] >= 0)).any()
    allowed = np.isfinite(exact).sum(axis=1)
    right = np.sort(exact, axis=1)[:, :k]
    for i in range(len(queries)):
        count = min(k, allowed[i])
        mine = found[i, :count]
        assert (mine >= 0).all()
        assert len(set(mine)) == count
        assert (found[i, count:] == -1).all()
        np.testing.assert_allclose(exact[i, mine], right[i, :count], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("k", [1, 5, 60, 70])
@pytest.mark.parametrize("leave_out", [False, True])
def test_brute_force(metric: str, k: int, leave_out: bool) -> None:
    base = clusters(6, 10, dim=5, spread=0.5, seed=2).points
    base[3:6] = base[9]
    if metric == "cosine":
        base = normalised(base)
    queries = base[::2].copy()
    rows = np.arange(0, 60, 2) if leave_out else None
    if rows is not None:
        rows[::5] = -1
    found = exact_neighbors(queries, base, k, metric, rows=rows)
    assert found.shape == (30, k)
    assert found.dtype == np.int64
    check(queries, base, k, metric, rows, found)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 20),
    st.integers(0, 12),
    st.integers(1, 6),
    st.integers(1, 25),
    st.sampled_from(["l2", "ip"]),
    st.integers(0, 2**32 - 1),
)
def test_any_small_problem(n: int, m: int, dim: int, k: int, metric: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Small integers: many ties, and float32 is exact.
    base = rng.integers(-2, 3, size=(n, dim)).astype(np.float32)
    queries = rng.integers(-2, 3, size=(m, dim)).astype(np.float32)
    rows = rng.integers(-1, n, size=m)
    found = exact_neighbors(queries, base, k, metric, rows=rows)
    check(queries, base, k, metric, rows, found)
    # Of equals, the smaller row comes first.
    exact = nearness(exact_distances(queries, base, metric), metric)
    for i in range(m):
        mine = found[i][found[i] >= 0]
        keys = list(zip(exact[i, mine], mine, strict=True))
        assert keys == sorted(keys)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(-9, 9, size=(50, 4)).astype(np.float32)
    whole = exact_neighbors(base, base, 7, rows=np.arange(50))
    monkeypatch.setattr(neighbors, "_QUERIES", 3)
    monkeypatch.setattr(neighbors, "_ITEMS", 32)
    seen: list[tuple[int, int]] = []
    parts = exact_neighbors(
        base,
        base,
        7,
        rows=np.arange(50),
        threads=1,
        progress=lambda done, total, _: seen.append((done, total)),
    )
    np.testing.assert_array_equal(parts, whole)
    assert seen[-1] == (17, 17)


def test_alone() -> None:
    one = np.ones((1, 3), dtype=np.float32)
    assert exact_neighbors(one, one, 2, rows=np.array([0])).tolist() == [[-1, -1]]
    assert exact_neighbors(one, one, 2).tolist() == [[0, -1]]


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_find_the_same(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "_QUERIES", 7)
    base = clusters(6, 10, dim=5, spread=0.5, seed=2).points
    rows = np.arange(60)
    one = exact_neighbors(base, base, 4, rows=rows)
    np.testing.assert_array_equal(exact_neighbors(base, base, 4, rows=rows, threads=threads), one)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 63, 64, 65, 2047, 2048, 2049, 4097])
@pytest.mark.parametrize("k", [1, 3, 100])
def test_sizes_around_those_of_tiles_and_vectors(n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    base, queries = (rng.integers(-9, 9, size=(m, 2)).astype(np.float32) for m in (n, 3))
    rows = np.array([-1, 0, n - 1])
    check(queries, base, k, "l2", rows, exact_neighbors(queries, base, k, rows=rows, threads=1))


def true_rows(queries: np.ndarray, base: np.ndarray, k: int) -> np.ndarray:
    """The k nearest rows in float64, the smaller row first of equals."""
    gaps = queries[:, None].astype(np.float64) - base[None]
    return np.argsort(np.square(gaps).sum(axis=2), axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e4, -1e4, 1e6])
@pytest.mark.parametrize("dim", [3, 48])
def test_data_far_from_the_origin(offset: float, dim: int) -> None:
    """Where |x|^2 has no digits left for a distance."""
    rng = np.random.default_rng(0)
    base = (rng.normal(size=(1500, dim)) + offset).astype(np.float32)
    queries = (rng.normal(size=(40, dim)) + offset).astype(np.float32)
    found = exact_neighbors(queries, base, 10, threads=1)
    exact = np.square(queries[:, None].astype(np.float64) - base).sum(axis=2)
    got = np.take_along_axis(exact, found, axis=1)
    right = np.sort(exact, axis=1)[:, :10]
    np.testing.assert_allclose(got, right, rtol=1e-4)
    assert (found == true_rows(queries, base, 10)).mean() > 0.99 or offset == 1e6  # ties


@pytest.mark.parametrize("gap", [1e2, 1e3, 1e4])
def test_tight_clusters_that_lie_far_apart(gap: float) -> None:
    """The neighbours are those of the same cluster, whose distances the mean does not shorten."""
    rng = np.random.default_rng(1)
    owner = np.repeat(np.arange(20), 40)
    centres = rng.normal(size=(20, 16)) * gap
    base = (centres[owner] + rng.normal(size=(800, 16))).astype(np.float32)
    found = exact_neighbors(base, base, 10, rows=np.arange(800), threads=1)
    assert (owner[found] == owner[:, None]).all()
    exact = np.square(base[:, None].astype(np.float64) - base).sum(axis=2)
    np.fill_diagonal(exact, np.inf)
    got = np.take_along_axis(exact, found, axis=1)
    np.testing.assert_allclose(got, np.sort(exact, axis=1)[:, :10], rtol=0.01)


def test_queries_far_from_a_tight_base() -> None:
    """Their distances are large, and their differences small."""
    rng = np.random.default_rng(2)
    base = rng.normal(size=(500, 8)).astype(np.float32)
    queries = (rng.normal(size=(20, 8)) * 1000).astype(np.float32)
    found = exact_neighbors(queries, base, 5, threads=1)
    exact = np.square(queries[:, None].astype(np.float64) - base).sum(axis=2)
    got = np.take_along_axis(exact, found, axis=1)
    np.testing.assert_allclose(got, np.sort(exact, axis=1)[:, :5], rtol=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_equal_rows_are_no_reason_to_fail(offset: float) -> None:
    base = np.full((50, 4), 0.1 + offset, dtype=np.float32)
    assert exact_neighbors(base[:3], base, 4).tolist() == [[0, 1, 2, 3]] * 3
    rows = np.array([0, 1, 2])
    assert exact_neighbors(base[:3], base, 2, rows=rows).tolist() == [[1, 2], [0, 2], [0, 1]]


def test_an_empty_base_and_rows_of_another_type() -> None:
    queries = np.ones((2, 3), dtype=np.float32)
    assert (
        exact_neighbors(queries, np.empty((0, 3), dtype=np.float32), 2).tolist() == [[-1] * 2] * 2
    )
    rows = np.array([0, 9, 1], dtype=np.int32)[::2]
    assert exact_neighbors(queries, queries, 1, rows=rows).tolist() == [[1], [0]]


def test_scores_that_are_no_numbers_are_left_out() -> None:
    scores = np.array([[np.nan, 2.0, -np.inf, np.inf, np.nan, 3.0]], dtype=np.float32)
    values, ids = np.full((1, 5), -np.inf, dtype=np.float32), np.full((1, 5), -1)
    _native.merge_best(scores, 100, np.array([105]), values, ids)
    assert ids.tolist() == [[103, 101, -1, -1, -1]]
    assert values.tolist() == [[np.inf, 2.0, -np.inf, -np.inf, -np.inf]]


def test_wrong_arrays_are_refused() -> None:
    scores, values = np.ones((2, 9), dtype=np.float32), np.ones((2, 3), dtype=np.float32)
    skip, ids = np.array([-1, -1]), np.full((2, 3), -1)
    for wrong in (
        (scores, 0, skip[:1], values, ids),
        (scores, 0, skip, values[:1], ids),
        (scores, 0, skip, values, ids[:, :2].copy()),
        (scores, 0, skip, values[:, :0].copy(), ids[:, :0].copy()),
    ):
        with pytest.raises(ValueError, match="must have"):
            _native.merge_best(*wrong)


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("count", [1, 5, 70, 96, 101])
def test_most_items_are_searched_in_pairs(
    count: int, threads: int, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same neighbours as for each of them alone, and the smaller row of equal ones."""
    base = np.random.default_rng(count).integers(-3, 4, size=(count, 5)).astype(np.float32)
    rows = np.arange(count)[:: 4 if count == 70 else 1]
    rows = np.delete(np.arange(count), rows[1:2])
    plain = exact_neighbors(base[rows], base, 7, metric, rows=rows)
    for name, value in {"_LONG": 1, "_QUERIES": 8, "_ITEMS": 24}.items():
        monkeypatch.setattr(neighbors, name, value)
    monkeypatch.setattr(neighbors._Tiles, "search", None)  # not used
    monkeypatch.setattr(neighbors, "is_precise", lambda *_: True)
    paired = exact_neighbors(base[rows], base, 7, metric, rows=rows, threads=threads)
    np.testing.assert_array_equal(paired, plain)
