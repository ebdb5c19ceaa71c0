"""Shards whose items change answer as one index with the same items would."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

import irli
from irli import InvalidParameter
from irli.cluster import OpenShards, open_shards
from irli.cluster.opened import find_shards, name_shard
from irli.errors import StorageError

DIM = 8
X = np.random.default_rng(0).normal(size=(300, DIM)).astype(np.float32)
Q = np.random.default_rng(1).normal(size=(7, DIM)).astype(np.float32)


@pytest.fixture(params=["l2", "cosine", "ip"])
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    given: dict[str, Any] = {"metric": request.param, "dim": DIM, "shards": 3}
    with open_shards(tmp_path / "index", sync="normal", maintain="manual", **given) as index:
        index.add(X, payloads=[{"n": i, "even": i % 2 == 0} for i in range(len(X))])
        yield index


def one_of(shards: OpenShards) -> irli.VectorIndex:
    one = irli.VectorIndex(shards.metric, dim=DIM)
    one.maintain = "manual"
    one.add(X, payloads=[{"n": i, "even": i % 2 == 0} for i in range(len(X))])
    return one


def check(shards: OpenShards, one: irli.VectorIndex, **given: Any) -> None:
    for k in (1, 10, 400):
        mine, theirs = shards.search(Q, k, **given), one.search(Q, k, **given)
        np.testing.assert_allclose(mine.distances, theirs.distances, rtol=1e-5, atol=1e-6)
        assert [set(row) for row in mine.ids.tolist()] == [set(row) for row in theirs.ids.tolist()]


def test_they_answer_as_one_index(shards: OpenShards) -> None:
    one = one_of(shards)
    for index in (shards, one):
        assert index.remove([3, 5, 999]) == 2
        index.upsert(X[:2] + 1, ids=[7, 1000])
        assert index.remove(filter={"n": {"$gte": 290}}) == 10
        index.set_payload([8, 9], {"even": "no"})
    check(shards, one)
    check(shards, one, filter={"even": True})
    check(shards, one, filter=irli.field("n") < 50)
    check(shards, one, filter=range(20, 90))
    check(shards, one, filter=lambda id: id % 3 == 0)
    assert set(shards) == set(one)
    assert len(shards) == len(one) == 289
    ids = [1000, 7, 250]
    np.testing.assert_allclose(shards.vector(ids), one.vector(ids), rtol=1e-6)
    assert shards.payload(ids) == one.payload(ids)
    assert shards.get(8).payload == {"n": 8, "even": "no"}
    assert 7 in shards
    assert 3 not in shards
    radius = float(one.search(Q[0], 20).distances[-1])
    mine, theirs = shards.search_range(Q, radius), one.search_range(Q, radius)
    np.testing.assert_allclose(mine.distances, theirs.distances, rtol=1e-5, atol=1e-6)


def test_changes_are_kept(shards: OpenShards) -> None:
    shards.remove(range(100))
    shards.compact(1)
    shards.snapshot(shards.root.with_name("copy"))
    copy = irli.load(shards.root.with_name("copy"))
    assert isinstance(copy, OpenShards)
    assert len(copy) == 200
    copy.close()
    shards.close()
    shards.close()
    with pytest.raises(StorageError, match="closed"):
        shards.search(Q)
    with irli.open(shards.root, maintain="manual") as again:
        assert set(again) == set(range(100, 300))
        assert again.add(X[:1]).tolist() == [300]


def test_a_shard_is_an_index_of_its_own(shards: OpenShards) -> None:
    shards.close()
    for shard in range(3):
        alone = irli.load(shards.root / name_shard(shard))
        assert (find_shards(alone.ids, 3) == shard).all()
        assert len(alone) > 60


def test_ids_may_be_text(tmp_path: Path) -> None:
    names = [str(UUID(int=i)) for i in range(50)]
    given: dict[str, Any] = {"metric": "l2", "dim": DIM, "shards": 4, "maintain": "manual"}
    with open_shards(tmp_path / "index", **given) as index:
        index.add(X[:50], ids=[UUID(int=i) for i in range(50)])
        found = index.search(X[:50], k=2)
        assert found.ids[:, 0].tolist() == names
        assert index.search(X[0], k=60).ids.tolist().count(None) == 10
        assert index.remove(names[:10]) == 10
        assert set(index) == set(names[10:])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: i.add(X[:1], ids=[5]), "upsert"),
        (lambda i: i.add(X[:2], payloads=[None]), "payloads"),
        (lambda i: i.remove(), "remove"),
        (lambda i: i.search(Q, filter=np.ones(300, bool)), "boolean"),
        (lambda i: i.compact(3), "shard"),
        (lambda i: open_shards(i.root, shards=5), "shards"),
        (lambda i: open_shards(i.root.with_name("none")), "metric"),
    ],
)
def test_wrong_calls_say_what_to_do(shards: OpenShards, call: Any, message: str) -> None:
    if shards.metric == "l2":
        with pytest.raises(InvalidParameter, match=message):
            call(shards)


def test_actors_take_changes(tmp_path: Path, on_ray: str) -> None:
    given: dict[str, Any] = {"metric": "l2", "dim": DIM, "shards": 2, "maintain": "manual"}
    with open_shards(tmp_path / "index", ray="auto", **given) as index:
        index.add(X[:100], payloads=[{"n": i} for i in range(100)])
        assert index.remove(filter={"n": {"$lt": 10}}) == 10
        index.compact()
        found = index.search(X[10:20], k=1, filter=irli.field("n") < 15).ids[:, 0]
        assert found[:5].tolist() == [10, 11, 12, 13, 14]
        with pytest.raises(InvalidParameter, match="Got 50, which it has"):
            index.add(X[:1], ids=[50])
    with open_shards(tmp_path / "index", maintain="manual") as again:
        assert set(again) == set(range(10, 100))
