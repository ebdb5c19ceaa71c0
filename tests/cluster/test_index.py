"""An index in shards, in this process: the same answers, files that survive, clear refusals."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import json
import logging
import shutil
import socket
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_default, small_paper
from contract import PLANS, same
from folders import array_sums, list_parts, read_files
from planted import clusters

import irli
from irli import VectorIndex
from irli.base import data_files
from irli.base import folder as storage
from irli.cluster import ShardedIndex
from irli.cluster.build.vector_job import split_rows
from irli.errors import (
    ClusterError,
    DeadlineExceeded,
    DimensionMismatch,
    FormatError,
    InvalidParameter,
    IrliWarning,
    MissingDependency,
    NotFitted,
)

X = clusters(n_per=12, centres=10, dim=6, spread=0.5, seed=1).points
IDS = np.random.default_rng(0).permutation(1000)[: len(X)]


def quick(**changes: Any) -> irli.Recipe:
    return small_default(**{"epochs": 1, "epoch_size": 256, **changes})


@pytest.fixture(scope="module")
def index() -> ShardedIndex:
    """Two shards; nobody may change them."""
    return ShardedIndex(recipe=quick(), shards=2).fit(X, threads=1)


# --- the same answers ------------------------------------------------------------------------


def test_one_shard_is_a_local_index(tmp_path: Path) -> None:
    local = VectorIndex("cosine", recipe=quick()).fit(X, ids=IDS, queries=X[:40] + 1, threads=1)
    one = ShardedIndex("cosine", recipe=quick()).fit(X, ids=IDS, queries=X[:40] + 1, threads=1)
    one.defaults = local.defaults  # found by the clock
    for plan in PLANS:
        same(one.search(X, k=7, **plan), local.search(X, k=7, **plan))
    local.save(tmp_path / "local")
    one.save(tmp_path / "one")
    assert array_sums(list_parts(tmp_path / "one")[0]) == array_sums(tmp_path / "local")


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_answers_are_the_merge_of_local_ones(metric: str) -> None:
    recipe = quick(buckets=5, repetitions=2)
    whole = ShardedIndex(metric, recipe=recipe, shards=3).fit(X, ids=IDS, threads=1)
    parts = [
        VectorIndex(metric, recipe=recipe).fit(X[low:high], ids=IDS[low:high], threads=1)
        for low, high in pairwise(split_rows(len(X), 3))
    ]
    for part in parts:  # inner products are routed at one length, which each index finds by itself
        part.defaults = dataclasses.replace(part.defaults, length=whole.defaults.length)
    for plan in PLANS[1:]:
        found = [part.search(X[:30], k=9, **plan) for part in parts]
        every = [
            sorted(
                (sign * float(d), shard, place, int(i))
                for shard, part in enumerate(found)
                for place, (d, i) in enumerate(zip(part.distances[q], part.ids[q], strict=True))
                if i >= 0
            )[:9]
            for q in range(30)
            for sign in [-1 if metric == "ip" else 1]
        ]
        answer = whole.search(X[:30], k=9, **plan)
        for q, right in enumerate(every):
            assert answer.ids[q][: len(right)].tolist() == [entry[3] for entry in right]


def test_the_methods_take_what_a_local_index_takes() -> None:
    late = {"deadline", "partial"}
    more = {"search": late, "search_range": late, "load": {"ray", "replicas"}}
    # Of a whole whose neighbours are known, shards know little. They have no payloads yet.
    fewer = {"fit": {"neighbors", "payloads", "start"}}
    fewer |= {key: {"with_payload"} for key in ("search", "search_range")}
    names = ("fit", "search", "search_range", "vector", "explain", "tune", "save", "load")
    names += ("loads", "stats")
    for name in names:
        local, sharded = (
            {
                parameter.name: parameter.replace(annotation=None)
                for parameter in inspect.signature(getattr(owner, name)).parameters.values()
            }
            for owner in (VectorIndex, ShardedIndex)
        )
        assert sharded.keys() - local.keys() == more.get(name, set()), name
        assert local.keys() - sharded.keys() == fewer.get(name, set()), name
        assert all(sharded[key] == local[key] for key in local.keys() & sharded.keys()), name


def test_irli_load_opens_it(index: ShardedIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "index")
    again = irli.load(tmp_path / "index")
    assert isinstance(again, ShardedIndex)
    same(again.search(X, k=3), index.search(X, k=3))
    shard = irli.load(list_parts(tmp_path / "index")[1])
    assert isinstance(shard, VectorIndex)  # a shard is an index like any other
    assert shard.search(X[70], k=1).ids[0] == 70


def test_tuning_reaches_the_recall_on_the_whole() -> None:
    index = ShardedIndex(recipe=quick(buckets=8), shards=3).fit(X, threads=1)
    for recall in (0.5, 1.0):
        tuned = index.tune(recall, k=5, queries=X + 0.01)
        found = index.search(X + 0.01, k=5).ids
        truth = index.search(X + 0.01, k=5, exact=True).ids
        hits = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(found, truth, strict=True)])
        assert tuned.reached
        assert hits >= recall


def test_codes_that_the_shards_do_not_have_are_refused(index: ShardedIndex) -> None:
    """A shard gets the score as a default: it must not read codes that are not there."""
    for ask in (index.search, index.explain):
        with pytest.raises(InvalidParameter, match="without codes"):
            ask(X[:3], k=2, score="codes")
        with pytest.raises(TypeError, match=r"'probe'\. Did you mean 'probes'"):
            ask(X[:3], k=2, probe=3)


def test_stats_are_those_of_all_shards(tmp_path: Path) -> None:
    index = ShardedIndex(recipe=quick(pieces=8), shards=2).fit(X, threads=1)
    index.save(tmp_path / "index")
    each = [irli.load(folder).stats() for folder in list_parts(tmp_path / "index")]
    stats = index.stats()
    for name in ("items", "buckets", "entries", "bytes", "bytes_vectors", "bytes_codes"):
        assert stats[name] == sum(part[name] for part in each) > 0, name
    assert stats["router_multiplications"] == sum(part["router_multiplications"] for part in each)
    assert (stats["kind"], stats["shards"], stats["dim"]) == ("shards", 2, 6)


def test_minus_one_is_a_thread_for_each_core() -> None:
    index = ShardedIndex(recipe=quick(), shards=2).fit(X, threads=-1)
    right = index.search(X, k=5, threads=1)
    same(index.search(X, k=5, threads=-1), right)
    np.testing.assert_array_equal(index.explain(X, k=5).ids, right.ids)
    with pytest.raises(InvalidParameter, match="'threads' parameter"):
        index.search(X, threads=0)


def test_fit_logs_its_phases(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="irli"):
        ShardedIndex(recipe=quick(), shards=2).fit(X, threads=1)
    said = [record.getMessage().split(":")[0] for record in caplog.records]
    phases = ["problem", "repetition 1, epoch 1", "routers", "self-hits", "assembled"]
    kept = [name for name in said if name not in ("tuned", "tune")]  # and warnings of tuning
    assert kept == ["space", *phases, *phases]
    assert "tuned" in said


def test_filters_reach_the_right_shard() -> None:
    index = ShardedIndex(recipe=quick(), shards=3).fit(X, ids=IDS, threads=1)
    mask = np.zeros(120, dtype=bool)
    mask[[0, 39, 40, 119]] = True
    found = index.search(X[:3], k=10, filter=mask)
    assert set(found.ids[0][:4]) == set(IDS[mask])
    same(index.search(X[:3], k=10, filter=IDS[mask]), found)
    prepared = index.allow(IDS[mask])
    for filter in (prepared, set(IDS[mask].tolist()), dict.fromkeys(IDS[mask].tolist()).keys()):
        same(index.search(X[:3], k=10, filter=filter), found)
    same(index.search(X[:3], k=10, filter=[prepared, mask, mask.tolist()]), found)
    everything = index.search(X[:3], k=10, exact=True)
    same(index.search(X[:3], k=10, exact=True, filter=index.allow(None)), everything)


def test_few_answers_are_said_once_for_all_shards(index: ShardedIndex) -> None:
    with pytest.warns(IrliWarning, match="Fewer than 3 items .* queries: min_votes=9") as said:
        assert (index.search(X[:2], k=3, probes=1, min_votes=9).ids < 0).all()
    assert [warning.filename for warning in said] == [__file__]


def test_more_shards_than_items() -> None:
    with pytest.raises(InvalidParameter, match=r"'shards' .* index of 3 items .* \[1, 3\]. Got 4"):
        ShardedIndex(recipe=quick(), shards=4).fit(X[:3])


@pytest.mark.parametrize("wrong", [50, 60])  # 60 is the size of a shard
def test_filters_for_another_number_of_items(index: ShardedIndex, wrong: int) -> None:
    mask = np.ones(wrong, dtype=bool)
    for filter in (mask, mask.tolist(), irli.Deny(mask), [mask, None, None]):
        with pytest.raises(InvalidParameter, match=rf"shape \(120,\), .* Got shape \({wrong},\)"):
            index.search(X[:3], filter=filter)
    other = VectorIndex().fit(X[:wrong]).allow([1])
    with pytest.raises(InvalidParameter, match=f"of 120 items. Got one for {wrong} items of"):
        index.search(X[:3], filter=other)


# --- files ---------------------------------------------------------------------------------------


def test_files_and_arrays_give_the_same_index(index: ShardedIndex, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X[:70])
    np.save(tmp_path / "b.npy", X[70:].astype(np.float64))
    files = ShardedIndex(recipe=quick(), shards=2).fit(
        [tmp_path / "a.npy", tmp_path / "b.npy"], threads=1
    )
    same(files.search(X, k=4, probes=2), index.search(X, k=4, probes=2))


def test_saving_over_an_index_leaves_only_the_new_one(index: ShardedIndex, tmp_path: Path) -> None:
    one = ShardedIndex(recipe=quick(), shards=3).fit(X + 1, threads=1)
    two = index
    one.save(tmp_path / "index")
    opened = irli.load(tmp_path / "index")
    two.save(tmp_path / "index")
    assert len(list_parts(tmp_path / "index")) == 2
    same(opened.search(X, k=3), one.search(X, k=3))  # its files are still mapped
    same(irli.load(tmp_path / "index").search(X, k=3), two.search(X, k=3))
    irli.load(tmp_path / "index").save(tmp_path / "index")  # over itself
    same(irli.load(tmp_path / "index").search(X, k=3), two.search(X, k=3))


def test_a_failed_save_leaves_the_old_index(
    index: ShardedIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ShardedIndex(recipe=quick(), shards=3).fit(X + 1, threads=1)
    two = index
    one.save(tmp_path / "index")
    before = read_files(tmp_path / "index")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data_files, "write_atomically", full)
    with pytest.raises(OSError, match="No space left"):
        two.save(tmp_path / "index")
    with pytest.raises(OSError, match="No space left"):
        two.save(tmp_path / "new")
    assert read_files(tmp_path / "index") == before
    with pytest.raises(FormatError):
        irli.load(tmp_path / "new")


# --- bad input -----------------------------------------------------------------------------------


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"irli\[cluster\]"):
        ShardedIndex(recipe=quick(), shards=2, ray="auto").fit(X, threads=1)


@pytest.mark.parametrize("address", ["", 5])
def test_addresses_that_are_none(address: Any) -> None:
    with pytest.raises(InvalidParameter, match="'ray' parameter"):
        ShardedIndex(recipe=quick(), shards=2, ray=address).fit(X, threads=1)


def test_an_address_that_does_not_answer() -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"  # free again at the end of the block
    with pytest.raises(ClusterError, match=f"No Ray cluster answers at '{address}'"):
        ShardedIndex(recipe=quick(), shards=2, ray=address).fit(X, threads=1)
    with pytest.raises(InvalidParameter, match="with a port"):
        ShardedIndex(recipe=quick(), shards=2, ray="somewhere").fit(X, threads=1)


def test_bad_parameters() -> None:
    with pytest.raises(InvalidParameter, match="120 items"):
        ShardedIndex(recipe=quick(), shards=121).fit(X)
    with pytest.raises(TypeError, match="argument 'neighbors'"):
        ShardedIndex(shards=2).fit(X, neighbors=np.zeros((120, 1), dtype=int))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'thread'\. Did you mean 'threads'"):
        ShardedIndex(shards=2).fit(X, thread=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidParameter, match="'workers'"):
        ShardedIndex(shards=2).fit(X, workers=2)
    with pytest.raises(InvalidParameter, match="'relevance'"):
        ShardedIndex(shards=2).fit(X, relevance=np.zeros((1, 1), dtype=int))
    with pytest.raises(DimensionMismatch, match="'queries'"):
        ShardedIndex(shards=2).fit(X, queries=X[:, :2])
    with pytest.raises(InvalidParameter, match="'shards'"):
        ShardedIndex(shards=0)
    with pytest.raises(InvalidParameter, match="'replicas'"):
        ShardedIndex(replicas=0)
    with pytest.raises(NotFitted):
        ShardedIndex(shards=2).search(X)
    with pytest.raises(InvalidParameter, match="buckets"):
        ShardedIndex(recipe=quick(buckets=50), shards=3).fit(X)


def test_a_row_that_is_not_finite_is_named(tmp_path: Path) -> None:
    broken = X.copy()
    broken[100, 2] = np.nan
    np.save(tmp_path / "x.npy", broken)
    with pytest.raises(InvalidParameter, match=r"rows from 60 to 119.*row 40"):
        ShardedIndex(recipe=quick(), shards=2).fit(
            tmp_path / "x.npy", threads=1, checkpoint=tmp_path / "build"
        )
    assert not (tmp_path / "build" / "shard-0001" / "problem" / "finished.json").exists()


def test_a_shard_that_is_missing_or_another(index: ShardedIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "index")
    first, second = list_parts(tmp_path / "index")
    first.unlink()
    with pytest.raises(FormatError, match=rf"{first.name} is missing"):
        irli.load(tmp_path / "index")
    shutil.copy(second, first)
    with pytest.raises(FormatError, match=rf"{first.name} does not hold the part of its name"):
        irli.load(tmp_path / "index")


def test_names_cannot_lead_out_of_the_folder(index: ShardedIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "index")
    path = tmp_path / "index" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["parts"][0] = f"../{manifest['parts'][0]}"
    path.write_text(json.dumps(storage._seal(manifest)))
    with pytest.raises(FormatError, match="does not follow format version"):
        irli.load(tmp_path / "index")


def test_deadlines_in_this_process(index: ShardedIndex) -> None:
    with pytest.raises(DeadlineExceeded, match="within 0 s"):
        index.search(X, deadline=0.0)
    with pytest.raises(DeadlineExceeded, match="No shard has answered"):
        index.search(X, deadline=0.0, partial=True)
    assert index.search(X, deadline=60.0, partial=True).missing == ()
    for wrong in (-1.0, "soon"):
        with pytest.raises(InvalidParameter, match="'deadline'"):
            index.search(X, deadline=wrong)
    with pytest.raises(InvalidParameter, match="'partial'"):
        index.search(X, partial=1)


def test_the_paper_s_recipe_in_shards() -> None:
    index = ShardedIndex(recipe=small_paper(buckets=6), shards=2).fit(X, threads=1)
    assert {(entry["shard"], entry["repetition"]) for entry in index.history} == {
        (shard, repetition) for shard in range(2) for repetition in range(4)
    }


def test_tuning_looks_whether_the_items_of_all_shards_find_themselves() -> None:
    """One shard is easy to search. What is enough there is not enough in the other."""
    rng = np.random.default_rng(0)
    places = np.repeat(rng.normal(size=(40, 12)), 25, axis=0) + 0.01 * rng.normal(size=(1000, 12))
    X = np.concatenate([places, rng.normal(size=(1000, 12))]).astype(np.float32)
    recipe = irli.recipe("default", buckets=20, epochs=1, self_hits=False, buckets_per_item=1)
    index = ShardedIndex(recipe=recipe, shards=2).fit(X, threads=1)
    tuned = index.tune(recall=0.0)
    hits = (index.search(X, k=1).ids[:, 0] == np.arange(len(X))).mean()
    assert tuned.self_hits == pytest.approx(hits, abs=1e-3)
    assert tuned.reached == (hits >= 0.999)
