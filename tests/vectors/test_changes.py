"""An index that changes answers as a dictionary of its items would, whatever was done to it."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_default, small_paper
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

import irli
from irli import InvalidParameter, VectorIndex
from irli.vectors.parameters import SearchParameters

DIM = 6
Vector = Any


@cache
def learned(text: bool) -> Path:
    """Save an index that has learned, once for all tests."""
    folder = Path(tempfile.mkdtemp()) / "index"
    X = make(300, DIM, seed=1)
    ids = [f"i{i}" for i in range(300)] if text else None
    VectorIndex("l2", recipe=small_default()).fit(X, ids=ids).save(folder)
    return folder


def make(count: int, dim: int, seed: int) -> Any:
    """Return vectors of the same few clusters, whatever the seed."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(dim).normal(scale=3, size=(12, dim))
    noise = rng.normal(size=(count, dim))
    return (centres[rng.integers(12, size=count)] + noise).astype(np.float32)


def draw(seed: int, count: int) -> Any:
    return make(count, DIM, seed=seed)


class Machine(RuleBasedStateMachine):
    """Changes of every kind, with the same done to a dictionary."""

    known: Any = Bundle("known")
    text = False

    @initialize(
        start=st.sampled_from(["empty", "learned"]), home=st.sampled_from(["memory", "disk"])
    )
    def begin(self, start: str, home: str) -> None:
        self.root = Path(tempfile.mkdtemp()) / "index"
        self.model: dict[Any, tuple[Vector, dict[str, Any] | None]] = {}
        self.next = 1000
        self.disk = home == "disk"
        if start == "learned":
            shutil.copytree(learned(self.text), self.root)
            X = make(300, DIM, seed=1)
            self.model = {self.name(i): (X[i], None) for i in range(300)}
        if self.disk:
            new = {"metric": "l2", "dim": DIM} if start == "empty" else {}
            self.index = irli.open(self.root, sync="normal", maintain="manual", **new)
        else:
            self.index = VectorIndex("l2", dim=DIM)
            if start == "learned":
                self.index = VectorIndex.load(self.root)
            self.index.maintain = "manual"

    def name(self, number: int) -> Any:
        return f"i{number}" if self.text else number

    @rule(target=known, count=st.integers(1, 40), seed=st.integers(0, 99), paid=st.booleans())
    def add(self, count: int, seed: int, paid: bool) -> Any:
        X = draw(seed, count)
        ids = [self.name(self.next + i) for i in range(count)]
        self.next += count
        payloads = [{"n": i, "odd": bool(i % 2)} for i in range(count)] if paid else None
        self.index.add(X, ids=ids, payloads=payloads)
        for i, id in enumerate(ids):
            self.model[id] = X[i], payloads[i] if payloads else None
        return multiple(*ids[:5])

    @rule(id=known, seed=st.integers(0, 99))
    def upsert(self, id: Any, seed: int) -> None:
        [vector] = draw(seed, 1)
        self.index.upsert(vector, [id], payloads=[{"n": seed}])
        self.model[id] = vector, {"n": seed}

    @rule(ids=st.lists(known, max_size=5), more=st.lists(st.integers(0, 299), max_size=30))
    def remove(self, ids: list[Any], more: list[int]) -> None:
        named = [*ids, *map(self.name, more)]
        there = {id for id in named if id in self.model}
        assert self.index.remove(named) == len(there)
        for id in there:
            del self.model[id]

    @rule(bound=st.integers(0, 20))
    def remove_by_payload(self, bound: int) -> None:
        gone = [id for id, (_, p) in self.model.items() if p is not None and p["n"] > bound]
        assert self.index.remove(filter=irli.field("n") > bound) == len(gone)
        for id in gone:
            del self.model[id]

    @rule(id=known, value=st.integers(0, 30))
    def set_payload(self, id: Any, value: int) -> None:
        if id in self.model:
            self.index.set_payload(id, {"n": value})
            vector, payload = self.model[id]
            self.model[id] = vector, {**(payload or {}), "n": value}

    @rule()
    def compact(self) -> None:
        self.index.compact()

    @rule()
    def open_again(self) -> None:
        if self.disk:
            self.index.close()
            self.index = irli.open(self.root, sync="normal", maintain="manual")

    @rule()
    def read_elsewhere(self) -> None:
        if self.disk:
            self.check_items(irli.load(self.root))

    @rule()
    def save(self) -> None:
        other = self.root.with_name("saved")
        self.index.save(other)
        self.check_items(irli.load(other))
        shutil.rmtree(other)

    @rule()
    def take_snapshot(self) -> None:
        if self.disk:
            other = self.root.with_name("copy")
            self.index.snapshot(other)
            with irli.open(other, sync="normal", maintain="manual") as copy:
                self.check_items(copy)
            shutil.rmtree(other)

    @rule(seed=st.integers(0, 99), k=st.integers(1, 12))
    def search(self, seed: int, k: int) -> None:
        queries = draw(seed, 4)
        exact = self.index.search(queries, k, exact=True)
        near = self.index.search(queries, k)
        for query, d, ids, found in zip(queries, *exact, near.ids, strict=True):
            truth = sorted(float(((v - query) ** 2).sum()) for v, _ in self.model.values())[:k]
            count = len(truth)
            np.testing.assert_allclose(d[:count], truth, rtol=1e-4, atol=1e-4)
            assert np.isinf(d[count:]).all()
            for some in (ids[:count].tolist(), [id for id in found if id in self.model]):
                assert len(set(some)) == len(some)
                assert all(id in self.model for id in some)
            assert len([id for id in found if id not in (-1, None)]) == count
        one = self.index.search(queries[0], k, exact=True)
        np.testing.assert_allclose(one.distances, exact.distances[0], rtol=1e-5)

    @rule(seed=st.integers(0, 99), bound=st.integers(0, 20))
    def search_by_payload(self, seed: int, bound: int) -> None:
        [query] = draw(seed, 1)
        cheap = {id for id, (_, p) in self.model.items() if p is not None and p["n"] < bound}
        for filter in ({"n": {"$lt": bound}}, irli.field("n") < bound):
            for given in ({}, {"exact": True}):
                found = self.index.search(query, 5, filter=filter, **given)
                there = [id for id in found.ids if id not in (-1, None)]
                assert set(there) <= cheap
                assert len(there) == min(5, len(cheap))

    @invariant()
    def items_are_those_of_the_model(self) -> None:
        if hasattr(self, "model"):
            self.check_items(self.index)

    def check_items(self, index: VectorIndex) -> None:
        assert len(index) == len(self.model)
        assert set(index) == set(self.model)
        some = list(self.model)[:: max(1, len(self.model) // 7)]
        if some:
            vectors = np.array([self.model[id][0] for id in some])
            np.testing.assert_allclose(index.vector(some), vectors, rtol=1e-6)
            assert index.payload(some) == [self.model[id][1] for id in some]
            assert index.get(some[0]).payload == self.model[some[0]][1]
        for id in some:
            assert id in index
        assert self.name(99_999) not in index

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.index.close()
            shutil.rmtree(self.root.parent)


class TextMachine(Machine):
    """The same with ids that are strings."""

    text = True


SETTINGS = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestNumbers = Machine.TestCase
TestNumbers.settings = SETTINGS
TestTexts = TextMachine.TestCase
TestTexts.settings = SETTINGS


@pytest.fixture(params=["l2", "cosine", "ip"])
def index(request: pytest.FixtureRequest) -> VectorIndex:
    made = VectorIndex(request.param, recipe=small_default()).fit(make(400, 16, seed=3))
    made.maintain = "manual"
    return made


def test_a_changed_index_answers_as_a_packed_one(index: VectorIndex) -> None:
    more = make(300, 16, seed=4)
    for start in range(0, 300, 60):
        index.add(more[start : start + 60])
    index.remove(range(0, 400, 3))
    index.upsert(make(20, 16, seed=5), ids=range(1, 21))
    packed = VectorIndex(index.metric)._set(index._fitted().compact())
    packed.defaults = index.defaults
    queries = make(50, 16, seed=6)
    for given in ({}, {"exact": True}, {"probes": 3}, {"filter": range(100, 600)}):
        mine, theirs = index.search(queries, 7, **given), packed.search(queries, 7, **given)
        np.testing.assert_allclose(mine.distances, theirs.distances, rtol=1e-6)
        np.testing.assert_array_equal(mine.ids, theirs.ids)
    assert np.array_equal(np.concatenate(index.loads()), np.concatenate(packed.loads()))


def test_buckets_stay_balanced(index: VectorIndex) -> None:
    for seed in range(8):
        index.add(make(100, 16, seed=seed))
    for loads in index.loads():
        assert loads.max() <= 1.5 * loads.mean() + 1


def test_recipes_without_a_bound_keep_what_they_find() -> None:
    X = make(500, 16, seed=3)
    index = VectorIndex("cosine", recipe=small_paper()).fit(X[:300])
    index.maintain = "manual"
    index.add(X[300:])
    queries = X[::3] + np.float32(0.05)
    near, true = index.search(queries, 10).ids, index.search(queries, 10, exact=True).ids
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(near, true, strict=True)]) > 0.93


def test_added_items_find_themselves(index: VectorIndex) -> None:
    ids = index.add(make(200, 16, seed=9))
    if index.metric != "ip":
        found = index.search(index.vector(ids), 1)
        assert (found.ids[:, 0] == ids).mean() > 0.97


def test_what_was_removed_in_a_filter_stays_away(index: VectorIndex) -> None:
    mask = np.zeros(400, dtype=bool)
    mask[:50] = True
    index.remove(range(10))
    found = index.search(index.vector(20), 60, filter=mask[10:]).ids
    assert set(found.tolist()) - {-1} == set(range(10, 50))
    assert 5 not in index.search(index.vector(20), 400, filter=[5, 20]).ids


def test_a_prepared_filter_ends_with_a_change(index: VectorIndex) -> None:
    some = index.allow([1, 2])
    index.add(make(2, 16, seed=1))
    with pytest.raises(InvalidParameter, match="prepared"):
        index.search(index.vector(1), filter=some)


def test_searches_go_on_while_an_index_changes() -> None:
    index = VectorIndex("l2", recipe=small_default()).fit(make(400, 8, seed=3))
    index.maintain = "manual"
    query, faults, done = make(2, 8, seed=3)[0], [], threading.Event()

    def look() -> None:
        while not done.is_set():
            found = index.search(query, 20)
            ids = found.ids[found.ids >= 0].tolist()
            # Pairs are added and removed together, and replaced by each other.
            pairs = [id for id in ids if id >= 10_000]
            if len(set(ids)) != len(ids) or len(pairs) % 2:
                faults.append(ids)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    near = np.stack([query, query])
    for step in range(150):
        ids = [10_000 + 2 * step, 10_001 + 2 * step]
        index.add(near, ids=ids)
        index.upsert(near, ids=ids)
        if step % 3:
            index.remove(ids)
        if step % 50 == 20:
            index.compact()
        if step % 20 == 0:  # no more pairs than are found
            index.remove(range(10_000, 20_000))
    done.set()
    for thread in threads:
        thread.join()
    assert not faults


def test_a_filter_of_an_empty_index_finds_nothing() -> None:
    index = VectorIndex("l2", dim=DIM)
    assert index.search(np.zeros(DIM), 3, filter={"n": 1}).ids.tolist() == [-1, -1, -1]


def test_packing_evens_out_buckets(index: VectorIndex) -> None:
    """Where most items of some clusters go, those of others fill their buckets as before."""
    X = index.vector(range(400))
    near = np.argsort(X @ X[0])
    index.remove(near[:250])
    before = max(loads.max() / loads.mean() for loads in index.loads())
    index.compact()
    after = max(loads.max() / loads.mean() for loads in index.loads())
    assert after <= max(before, 1.5)
    for loads in index.loads():
        assert loads.max() <= 1.5 * loads.mean() + 1
    left = index.vector(near[250:])
    assert len(index) == 150
    if index.metric != "ip":
        found = index.search(left, 1)
        assert (found.ids[:, 0] == near[250:]).mean() > 0.95


def test_routers_stay_while_items_only_take_turns() -> None:
    """Items of the same kind in place of others: nothing to learn, and rows are given back."""
    index = VectorIndex("l2", recipe=small_default()).fit(make(1500, 8, seed=2))
    for turn in range(10):
        index.add(make(300, 8, seed=3 + turn))
        index.remove(range(300 * turn, 300 * turn + 300))
        assert index._maintenance is not None
        index._maintenance.wait()
    health = index.health()
    assert health.refreshes == 0
    assert health.removed_rows <= 0.1
    assert health.balance <= 1.6


def test_routers_learn_anew_with_other_buckets_when_items_have_doubled() -> None:
    recipe = dataclasses.replace(small_default(), buckets=None)
    index = VectorIndex("l2", recipe=recipe).fit(make(1100, 8, seed=2))
    buckets = index.recipe.buckets
    index.add(make(2000, 8, seed=3))
    assert index._maintenance is not None
    index._maintenance.wait()
    assert index.health().refreshes == 1
    assert index.recipe.buckets > buckets


def test_an_index_learns_by_itself_when_it_has_grown() -> None:
    index = VectorIndex("l2", dim=8, recipe=small_default())
    X = make(1500, 8, seed=2)
    index.add(X)
    assert index._maintenance is not None
    index._maintenance.wait()
    assert index.recipe.name != "exact"
    assert index.health().learned == 1500
    found = index.search(X[:200], 1)
    assert (found.ids[:, 0] == np.arange(200)).mean() > 0.97
    more = make(900, 8, seed=5) + 20  # where the routers have learned nothing
    index.add(more)
    index.maintain = "manual"
    index._maintenance.wait()
    assert index.refresh()
    assert index.health().refreshes == 1
    assert len(index) == 2400


def test_recorded_queries_teach() -> None:
    X = make(1200, 8, seed=2)
    index = VectorIndex("l2", recipe=small_default()).fit(X)
    index.maintain = "manual"
    queries = make(400, 8, seed=7) + 2
    index.record(queries)
    assert index.health().recorded is not None
    before = index.health().recorded
    index.refresh()
    after = index.health().recorded
    assert before is not None
    assert after is not None
    assert after.recall >= before.recall - 0.05


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: i.add([[1.0] * 16], ids=[3]), "upsert"),
        (lambda i: i.add([[1.0] * 16], ids=["a"]), "integers"),
        (lambda i: i.add([[1.0] * 16] * 2, ids=[900, 900]), "ids"),
        (lambda i: i.add([[1.0] * 16], payloads=[]), "payloads"),
        (lambda i: i.add([[1.0] * 16], payloads=[{"a": float("nan")}]), "JSON"),
        (lambda i: i.upsert([[1.0] * 16], ids=None), "add"),
        (lambda i: i.remove(), "remove"),
        (lambda i: i.remove([1], filter=[2]), "remove"),
        (lambda i: i.set_payload(12345, {}), "ids"),
        (lambda i: i.snapshot("x"), "save"),
        (lambda i: i.record([[1.0] * 16], relevant=[]), "relevant"),
    ],
)
def test_wrong_changes_say_what_to_do(index: VectorIndex, call: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        call(index)
    assert len(index) == 400


def test_copies_and_pickles_are_indexes_of_their_own(index: VectorIndex) -> None:
    import copy

    index.add(make(5, 16, seed=8))
    index.remove([0])
    for other in (copy.copy(index), copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
        other.maintain = "manual"
        other.remove([1])
        other.add(make(3, 16, seed=9))
        assert 1 in index
        assert 1 not in other
        assert 0 not in other
        assert len(other) == 400 + 5 - 2 + 3
    assert len(index) == 404
    index.add(make(2, 16, seed=8), payloads=[{"a": 1}, None])
    with pytest.raises(InvalidParameter, match="payloads"):
        pickle.dumps(index)


def test_an_index_without_items_is_a_new_one(index: VectorIndex, tmp_path: Path) -> None:
    """It has no codes, so its searches must not ask for any."""
    index.defaults = SearchParameters(threshold=0.01, candidates=80, score="codes")
    index.remove(range(400))
    queries = make(3, 16, seed=1)
    index.save(tmp_path / "empty")
    copied = pickle.loads(pickle.dumps(index))
    index.compact()
    for empty in (index, copied, irli.load(tmp_path / "empty")):
        assert isinstance(empty, VectorIndex)
        assert len(empty) == 0
        assert (empty.search(queries, 3).ids == -1).all()
        assert (empty.search(queries, 3, filter={"a": 1}).ids == -1).all()
    index.add(queries)
    assert index.search(index.vector([0, 1, 2]), 1, exact=True).ids.shape == (3, 1)


def test_a_folder_that_nobody_has_changed_is_read(tmp_path: Path) -> None:
    VectorIndex().fit(make(20, DIM, seed=1)).save(tmp_path / "index")
    reader = irli.open(tmp_path / "index", writable=False)
    assert len(reader) == 20


def test_readers_take_over_the_parameters_of_new_routers(tmp_path: Path) -> None:
    with irli.open(
        tmp_path / "index", metric="l2", dim=8, recipe=small_default(), maintain="manual"
    ) as writer:
        reader = irli.load(tmp_path / "index")
        writer.add(make(600, 8, seed=1))
        writer.refresh()
        reader._living._looked = 0.0
        assert len(reader) == 600
        assert reader.defaults == writer.defaults
        assert reader.recipe == writer.recipe
        assert reader.tuned == writer.tuned


def test_threads_of_a_reader_search_payloads_across_compactions(tmp_path: Path) -> None:
    faults: list[BaseException] = []
    with irli.open(tmp_path / "index", metric="l2", dim=8, maintain="manual") as writer:
        ids = writer.add(make(40, 8, seed=1), payloads=[{"n": i} for i in range(40)])
        reader, done = irli.load(tmp_path / "index"), threading.Event()

        def look() -> None:
            try:
                while not done.is_set():
                    found = reader.search(np.zeros(8), 40, filter={"n": {"$gte": 0}})
                    reader.payload(found.ids[: found.counts].tolist()[:3])
                    reader._living._looked = 0.0
            except BaseException as error:
                faults.append(error)

        readers = [threading.Thread(target=look) for _ in range(3)]
        for thread in readers:
            thread.start()
        for step in range(30):
            writer.set_payload(ids, {"n": step})
            writer.compact()
        done.set()
        for thread in readers:
            thread.join()
    assert not faults


def test_a_reader_goes_on_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from irli.vectors.changes.growth import Growth

    with irli.open(tmp_path / "index", metric="l2", dim=8, maintain="manual") as writer:
        writer.add(make(10, 8, seed=1))
        reader = irli.load(tmp_path / "index")
        writer.add(make(5, 8, seed=2))
        with monkeypatch.context() as patch:
            patch.setattr(Growth, "show", lambda *_: 1 / 0)
            reader._living._looked = 0.0
            with pytest.raises(ZeroDivisionError):
                len(reader)
        reader._living._looked = 0.0
        assert list(reader) == list(writer) == list(range(15))


def test_folders_of_format_2_stay_readable(tmp_path: Path) -> None:
    saved = Path(__file__).parents[1] / "data" / "format-2" / "changed"
    shutil.copytree(saved, tmp_path / "index")
    for writable in (False, True):
        with irli.open(tmp_path / "index", writable=writable, maintain="manual") as index:
            assert sorted(index) == [*range(10, 200), 300, 301]
            assert sorted(index.search(index.vector(50), 9, filter={"n": 7}).ids[:5]) == [
                *[10, 11, 12],
                *[300, 301],
            ]
            assert index.payload([50, 51]) == [{"n": -1, "odd": False}, {"n": 51, "odd": True}]
            assert index.search(index.vector(300), 1).ids.tolist() == [300]
