"""What users of other libraries look for: settings, sizes, vectors, similarities, HTML."""

from __future__ import annotations

import pickle
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import irli
from irli import Deny, NotFitted, SearchResult, VectorIndex
from irli.errors import InvalidParameter

X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
IDS = np.arange(60) * 3


def fit(metric: str = "l2", **arguments: Any) -> VectorIndex:
    return VectorIndex(metric, recipe="exact").fit(X, **{"ids": IDS, **arguments})


def test_sizes_are_properties() -> None:
    index = fit()
    assert (index.ntotal, index.dim, index.dtype) == (60, 5, np.float32)
    np.testing.assert_array_equal(index.ids, IDS)
    for name in ("ntotal", "dim", "dtype", "ids", "vectors"):
        with pytest.raises(NotFitted):
            getattr(VectorIndex(), name)


def test_vectors_come_back() -> None:
    index = fit()
    np.testing.assert_array_equal(index.vector(9), X[3])
    np.testing.assert_array_equal(index.vector(np.int32(9)), X[3])
    np.testing.assert_array_equal(index.vector([9, 0, 9]), X[[3, 0, 3]])
    assert index.vector([]).shape == (0, 5)
    index.vector(0)[:] = 7  # a copy
    np.testing.assert_array_equal(index.vector(0), X[0])
    unit = fit("cosine").vector(IDS)
    np.testing.assert_allclose(unit, X / np.linalg.norm(X, axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (1, "Got 1, which it does not have"),
        ([0, 3, -1], "Got -1, which"),
        ("a", "1-D integer array of ids. Got dtype <U1"),
        (3.0, "Got dtype float64"),
        (True, "Got dtype bool"),
        ([[0]], r"shape \(1, 1\)"),
        ({0}, "Got dtype object"),
    ],
)
def test_ids_without_vectors(ids: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        fit().vector(ids)


def test_similarities() -> None:
    products, cosines = X @ X[0], (X @ X[0]) / np.linalg.norm(X, axis=1) / np.linalg.norm(X[0])
    for metric, right in (("ip", products), ("cosine", cosines)):
        found = fit(metric, ids=None).search(X[0], 70)
        np.testing.assert_allclose(found.similarities[:60], np.sort(right)[::-1], atol=1e-5)
        assert (found.similarities[60:] == -np.inf).all()
        np.testing.assert_allclose(found.similarities[:60], right[found.ids[:60]], atol=1e-5)
    found = fit().search(X[:2], 3)
    np.testing.assert_array_equal(found.similarities, -found.distances)


@pytest.mark.parametrize(
    ("metric", "meaning"),
    [("l2", "squared distances"), ("ip", "inner products"), ("cosine", "1 - cos, smallest first")],
)
def test_a_result_says_what_its_distances_are(metric: str, meaning: str) -> None:
    index = fit(metric)
    for found in (index.search(X[0]), index.search(X[:2]), index.search(X[:1], filter=[[0]])):
        assert isinstance(found, SearchResult)
        assert found.metric == metric
        assert repr(found).startswith("SearchResult(distances=array(")
        assert f"# {metric}: {meaning}" in repr(found)
        again = pickle.loads(pickle.dumps(found))
        assert again.metric == metric
        np.testing.assert_array_equal(again.ids, found.ids)
        distances, ids = found
        assert distances is found.distances
        assert ids is found.ids
    within = index.search_range(X[:2], radius=1)
    assert repr(within).startswith("RangeResult(lims=array(")
    assert f"# {metric}: {meaning}" in repr(within)


# --- filters -----------------------------------------------------------------------------------


def test_filters_are_what_they_look_like() -> None:
    index, right = fit(), fit().search(X[:4], 5, filter=IDS[:30])
    for filter in (
        set(IDS[:30].tolist()),
        frozenset(IDS[:30].tolist()),
        range(90),
        lambda id: id < 90,
        Deny(range(90, 180)),
        [IDS[:30]] * 4,
        np.tile(np.arange(60) < 30, (4, 1)),
        np.tile(IDS[:30], (4, 1)),
    ):
        found = index.search(X[:4], 5, filter=filter)
        np.testing.assert_array_equal(found.ids, right.ids)
        np.testing.assert_array_equal(found.distances, right.distances)
        assert index.explain(X[:4], 5, filter=filter).ids.tolist() == right.ids.tolist()


def test_a_function_is_called_once_for_each_id() -> None:
    called: list[int] = []
    fit().search(X[:4], 5, filter=called.append)
    assert called == IDS.tolist()
    assert {type(id) for id in called} == {int}


def test_one_filter_for_each_query_equals_single_calls() -> None:
    index = fit()
    shared = {0, 3, 6}
    filters: list[Any] = [shared, None, Deny([3]), range(20), shared, [], [150], lambda id: id > 99]
    found = index.search(X[:8], 4, filter=filters)
    told = index.explain(X[:8], 4, filter=filters)
    assert told.probed.shape == told.seconds["scan"].shape == (8,)
    for query, filter in enumerate(filters):
        alone = index.search(X[query], 4, filter=filter)
        np.testing.assert_array_equal(found.ids[query], alone.ids)
        np.testing.assert_array_equal(found.distances[query], alone.distances)
        np.testing.assert_array_equal(told.ids[query], alone.ids)
    single = index.search(X[0], 2, filter=[{3, 6}])
    assert single.ids.shape == (2,)
    none = index.search(X[:0], 2, filter=np.ones((0, 60), dtype=bool))
    assert none.ids.shape == (0, 2)
    assert index.explain(X[:0], 2, filter=np.ones((0, 60), dtype=bool)).ids.shape == (0, 2)


@pytest.mark.parametrize("method", ["search", "explain", "search_range"])
def test_filters_must_be_as_many_as_queries(method: str) -> None:
    call = getattr(fit(), method)
    with pytest.raises(InvalidParameter, match=r"each of 3 queries\. Got 2 filters"):
        call(X[:3], 4, filter=[{0}, {3}])


# --- settings ----------------------------------------------------------------------------------


def test_settings_can_be_read_and_changed() -> None:
    index = VectorIndex("angular", recipe="exact")
    assert index.get_params() == {"metric": "angular", "recipe": "exact", "dim": None}
    assert VectorIndex(**index.get_params()).metric == index.metric == "cosine"
    assert index.set_params(metric="ip") is index
    assert index.metric == "ip"
    assert index.get_params(deep=False) == {"metric": "ip", "recipe": "exact", "dim": None}
    with pytest.raises(InvalidParameter, match=r"no parameter 'metrics'\. Did you mean"):
        index.set_params(metrics="l2")
    with pytest.raises(InvalidParameter, match="'metric' parameter of VectorIndex"):
        index.set_params(metric="l3")
    assert index.get_params()["metric"] == "ip"


def test_what_was_learned_stays_until_the_next_fit() -> None:
    index = fit("cosine")
    before = index.search(X[:3], 4)
    index.set_params(metric="l2")
    assert index.metric == "cosine"
    np.testing.assert_array_equal(index.search(X[:3], 4).distances, before.distances)
    index.fit(X)
    assert index.metric == "l2"
    np.testing.assert_allclose(index.vector(3), X[3])


def test_scikit_learn_clones_them() -> None:
    base = pytest.importorskip("sklearn.base")
    recipe = irli.recipe("default", buckets=8)
    index = VectorIndex("ip", recipe=recipe)
    copied = base.clone(index)
    assert copied is not index
    assert copied.get_params() == index.get_params()
    assert not base.clone(fit()).__sklearn_is_fitted__()


# --- HTML --------------------------------------------------------------------------------------


class _Tags(HTMLParser):
    """Collect the text, and check that every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        if tag not in ("br", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_notebooks_show_a_table() -> None:
    text = " ".join(_Tags(fit("cosine")._repr_html_()).text)
    for word in ("VectorIndex", "cosine: 1 - cos", "60 of 5 dimensions", "exact", "kB"):
        assert word in text
    bare = " ".join(_Tags(VectorIndex()._repr_html_()).text)
    assert "not fitted" in bare


def test_notebooks_show_buckets_and_recall() -> None:
    recipe = irli.recipe("default", epochs=1, epoch_size=512, buckets=8)
    index = VectorIndex(recipe=recipe).fit(np.random.default_rng(0).normal(size=(400, 6)))
    html = index._repr_html_()
    text = " ".join(_Tags(html).text)
    assert "<svg" in html
    assert "tuned recall" in text
    assert "8 buckets hold" in text
