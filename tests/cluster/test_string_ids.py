from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_default

import irli
from irli import Deny
from irli.base.folder import read_folder, write_folder
from irli.cluster import ShardedIndex
from irli.errors import FormatError, InvalidParameter

X = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
WORDS = [f"ž{row}" for row in range(300)]
RECIPE = small_default(epochs=1, epoch_size=256, buckets=4, pieces=0)


@pytest.fixture(scope="module")
def index() -> ShardedIndex:
    return ShardedIndex("cosine", recipe=RECIPE, shards=3).fit(X, ids=WORDS)


@pytest.fixture(scope="module")
def right() -> irli.VectorIndex:
    return irli.VectorIndex("cosine", recipe="exact").fit(X, ids=WORDS)


@pytest.fixture(scope="module", params=["fitted", "loaded"])
def either(request: pytest.FixtureRequest, index: ShardedIndex, tmp_path_factory: Any) -> Any:
    if request.param == "fitted":
        return index
    path = tmp_path_factory.mktemp("index")
    index.save(path)
    return irli.load(path)


def test_answers_are_merged_by_name(either: ShardedIndex, right: irli.VectorIndex) -> None:
    for queries, k in ((X[:5], 4), (X[7], 3), (X[:2], 305)):
        found, wanted = either.search(queries, k, exact=True), right.search(queries, k)
        assert found.ids.tolist() == wanted.ids.tolist()
        assert found.counts.tolist() == wanted.counts.tolist()
        np.testing.assert_allclose(found.similarities, wanted.similarities, atol=1e-6)
        assert "1 - cos" in repr(found)
    within = either.search_range(X[:5], 0.1, exact=True)
    assert within.ids.tolist() == right.search_range(X[:5], 0.1).ids.tolist()
    assert within.missing == ()
    assert within.metric == "cosine"
    assert either.explain(X[:5], 4, exact=True).ids.tolist() == right.search(X[:5], 4).ids.tolist()


def test_filters_take_them(either: ShardedIndex, right: irli.VectorIndex) -> None:
    filters: list[Any] = [
        WORDS[90:110],
        set(WORDS[::2]),
        Deny(WORDS[:290]),
        np.arange(300) > 250,
        Deny(np.arange(300) > 5),
        lambda id: id.endswith("7"),
        None,
    ]
    for filter in filters:
        found = either.search(X[:7], 4, filter=filter, exact=True)
        assert found.ids.tolist() == right.search(X[:7], 4, filter=filter).ids.tolist()
    each = either.search(X[:7], 4, filter=filters, exact=True)
    assert each.ids.tolist() == right.search(X[:7], 4, filter=filters).ids.tolist()
    with pytest.raises(InvalidParameter, match="must hold strings"):
        either.search(X[0], filter=[1])
    with pytest.raises(InvalidParameter, match="for each of 2 queries"):
        either.search(X[:2], filter=filters)


def test_they_are_looked_up(either: ShardedIndex) -> None:
    assert either.ids.tolist() == WORDS
    assert "ž299" in either
    assert "x" not in either
    assert 3 not in either
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(either.vector(WORDS[95:105]), unit[95:105], rtol=1e-6)
    np.testing.assert_allclose(either.vector("ž250"), unit[250], rtol=1e-6)
    with pytest.raises(InvalidParameter, match="Got 'x', which it does not have"):
        either.vector(["ž1", "x"])


@pytest.mark.parametrize(
    ("name", "edit"),
    [("id_offsets", lambda offsets: offsets[:-1]), ("id_bytes", lambda text: text | 0x80)],
)
def test_a_forged_folder_is_refused(
    index: ShardedIndex, tmp_path: Path, name: str, edit: Any
) -> None:
    index.save(tmp_path)
    folder = read_folder(tmp_path, mmap=False)
    folder.arrays[name] = edit(folder.arrays[name])
    write_folder(tmp_path, folder)
    with pytest.raises(FormatError, match=name):
        irli.load(tmp_path)


def test_strings_must_fit_the_items(index: ShardedIndex) -> None:
    again = ShardedIndex(recipe=RECIPE, shards=2)
    with pytest.raises(InvalidParameter, match="must hold 300 ids"):
        again.fit(X, ids=WORDS[:-1])
    assert "not fitted" in repr(again)


def test_settings_change_with_the_next_fit(index: ShardedIndex) -> None:
    assert index.get_params()["shards"] == 3
    changed = ShardedIndex(**index.get_params()).set_params(shards=2)
    assert changed.shards == 2
    assert ShardedIndex(shards=2).set_params(metric="ip").metric == "ip"
