"""Labels in shards: the same answers from one shard, the right ones from several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from irli.cluster.label_build import deal_labels, take_labels
from plantedlabels import labelled, small_labels

import irli
from irli import LabelIndex
from irli.cluster.label_index import ShardedLabelIndex
from irli.errors import DeadlineExceeded, FormatError, InvalidParameter, NotFitted
from irli.labels.metrics import precision
from irli.learning import runs as repetitions

X, Y = labelled(400, 24)
OWN = small_labels(buckets=6, epochs=3, trunk="own", repetitions=2)


@given(arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 5)), st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_every_label_is_in_one_shard(counts: Any, shards: int) -> None:
    parts = deal_labels(counts, shards)
    assert sorted(np.concatenate(parts)) == list(range(len(counts)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_row_is_in_every_shard() -> None:
    labels = sp.csr_array(np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]], dtype=np.float32))
    parts = [take_labels(labels, shard, 2) for shard in range(2)]
    owned = deal_labels(np.array([1, 1, 1, 0]), 2)
    for part, own in zip(parts, owned, strict=True):
        dense = part.toarray()
        np.testing.assert_array_equal(dense[:, :-1], labels.toarray()[:, own])
        # Elsewhere: the row has labels, but none of this shard; a row without labels has none.
        np.testing.assert_array_equal(
            dense[:, -1] > 0, (dense[:, :-1].sum(axis=1) == 0) & [True, True, False]
        )


@pytest.mark.parametrize("recipe", [small_labels(buckets=6, epochs=3), OWN], ids=["trunk", "own"])
def test_one_shard_is_a_local_index(recipe: Any) -> None:
    local = LabelIndex(recipe).fit(X, Y, threads=1)
    one = ShardedLabelIndex(recipe).fit(X, Y, threads=1)
    for k in (1, 5, 40):
        right, found = local.predict(X[:50], k), one.predict(X[:50], k)
        np.testing.assert_array_equal(found.labels, right.labels)
        np.testing.assert_array_equal(found.scores, right.scores)


def test_shards_find_the_planted_labels(tmp_path: Path) -> None:
    names = [f"label {number}" for number in range(Y.shape[1])]
    index = ShardedLabelIndex(small_labels(buckets=6, epochs=6), shards=3)
    index.fit(X, Y, names=names, threads=1)
    found = index.predict(X, k=1)
    assert found.missing == ()
    assert precision(found.labels, Y, 1) > 0.9
    alone = index.predict(X[[0]].toarray()[0], k=1)
    assert alone.labels.shape == (1,)
    everything = index.predict(X[:20], k=Y.shape[1] + 3)
    for row in everything.labels:
        there = row[row >= 0]
        assert len(set(there)) == len(there)
    assert (everything.scores[:, 1:] <= everything.scores[:, :-1]).all()

    index.save(tmp_path / "index")
    again = irli.load(tmp_path / "index")
    assert isinstance(again, ShardedLabelIndex)
    np.testing.assert_array_equal(again.predict(X, k=1).labels, found.labels)
    assert list(again.names) == names
    assert (len(again), again.stats()["shards"]) == (Y.shape[1], 3)
    assert repr(again) == repr(index)
    assert again.history == index.history
    again.save(tmp_path / "index")
    with pytest.raises(FormatError, match="labels in shards"):
        ShardedLabelIndex.load(next((tmp_path / "index").glob("shard-*")))


def test_a_build_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[list[int]] = []
    learn = repetitions.learn_repetitions

    def counted(problem: Any, recipe: Any, numbers: Any, *more: Any, **options: Any) -> Any:
        if len(learned) == 3:
            raise OSError("No space left on device")
        learned.append(list(numbers))
        return learn(problem, recipe, numbers, *more, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repetitions, "learn_repetitions", counted)
        with pytest.raises(OSError, match="No space"):
            ShardedLabelIndex(OWN, shards=2).fit(X, Y, threads=1, checkpoint=tmp_path)
    assert learned == [[0], [1], [0]]
    learned.clear()
    monkeypatch.setattr(repetitions, "learn_repetitions", counted)
    index = ShardedLabelIndex(OWN, shards=2).fit(X, Y, threads=1, checkpoint=tmp_path)
    assert learned == [[1]]
    ShardedLabelIndex(OWN, shards=2).fit(X, Y, threads=1, checkpoint=tmp_path)
    assert learned == [[1]]
    assert len(index) == Y.shape[1]


def test_bad_input() -> None:
    index = ShardedLabelIndex(small_labels(buckets=6, epochs=1), shards=2)
    with pytest.raises(NotFitted):
        index.predict(X)
    with pytest.raises(InvalidParameter, match="'shards'"):
        ShardedLabelIndex(shards=99).fit(X, Y)
    with pytest.raises(InvalidParameter, match="'names'"):
        index.fit(X, Y, names=["one"])
    index.fit(X, Y, threads=1)
    with pytest.raises(InvalidParameter, match="'k'"):
        index.predict(X, k=0)
    with pytest.raises(DeadlineExceeded):
        index.predict(X, deadline=0.0)
    index.close()
    with pytest.raises(NotFitted):
        index.predict(X)


def test_on_ray(on_ray: str) -> None:
    local = ShardedLabelIndex(OWN, shards=2).fit(X, Y, threads=1)
    spread = ShardedLabelIndex(OWN, shards=2, ray=on_ray).fit(X, Y)
    right, found = local.predict(X, k=3), spread.predict(X, k=3)
    np.testing.assert_array_equal(found.labels, right.labels)
    np.testing.assert_array_equal(found.scores, right.scores)
    spread.close()
