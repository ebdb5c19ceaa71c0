"""An index in shards, in this process: the same answers, files that survive, clear refusals."""

from __future__ import annotations

import errno
import inspect
import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import small_default, small_paper
from contract import PLANS, same
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import clusters

import irli
from irli import VectorIndex
from irli.base import folder as storage
from irli.base.vector_files import write_vectors
from irli.cluster import ShardedIndex
from irli.cluster import index as cluster
from irli.cluster.build import STEPS
from irli.cluster.merge import merge
from irli.cluster.sources import Source, mark_complete
from irli.errors import (
    ClusterError,
    DeadlineExceeded,
    DimensionMismatch,
    FormatError,
    InvalidParameter,
    MissingDependency,
    NotFitted,
)
from irli.learning import runs as repetitions
from irli.vectors.index import SearchResult

X = clusters(n_per=12, centres=10, dim=6, spread=0.5, seed=1).points
IDS = np.random.default_rng(0).permutation(1000)[: len(X)]


def quick(**changes: Any) -> irli.Recipe:
    return small_default(**{"epochs": 1, "epoch_size": 256, **changes})


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def arrays(folder: Path) -> dict[str, str]:
    """The checksums of the data of an index folder."""
    files = storage.read_manifest(folder)["files"]
    return {name: entry["sha256"] for name, entry in files.items()}


def shard_folders(path: Path) -> list[Path]:
    return sorted(path.glob("shard-*"))


# --- the same answers ------------------------------------------------------------------------


def test_one_shard_is_a_local_index(tmp_path: Path) -> None:
    local = VectorIndex("cosine", recipe=quick()).fit(X, ids=IDS, queries=X[:40] + 1, threads=1)
    one = ShardedIndex("cosine", recipe=quick()).fit(X, ids=IDS, queries=X[:40] + 1, threads=1)
    one.defaults = local.defaults  # found by the clock
    for plan in PLANS:
        same(one.search(X, k=7, **plan), local.search(X, k=7, **plan))
    local.save(tmp_path / "local")
    one.save(tmp_path / "one")
    assert arrays(shard_folders(tmp_path / "one")[0]) == arrays(tmp_path / "local")


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_answers_are_the_merge_of_local_ones(metric: str) -> None:
    recipe = quick(buckets=5, repetitions=2)
    whole = ShardedIndex(metric, recipe=recipe, shards=3).fit(X, ids=IDS, threads=1)
    parts = [
        VectorIndex(metric, recipe=recipe).fit(X[low:high], ids=IDS[low:high], threads=1)
        for low, high in zip(split_rows(len(X), 3), split_rows(len(X), 3)[1:], strict=False)
    ]
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


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_merging_sorts_and_pads(data: st.DataObject) -> None:
    k, shards = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    parts, everything = [], []
    for shard in range(shards):
        count = data.draw(st.integers(0, k))
        numbers = st.sampled_from([0.0, 1.0, 2.0, np.inf])
        distances = sorted(data.draw(st.lists(numbers, min_size=count, max_size=count)))
        ids = [100 * shard + place for place in range(count)]
        everything += list(zip(distances, ids, strict=True))
        parts.append(
            SearchResult(
                np.array([distances + [np.inf] * (k - count)], dtype=np.float32),
                np.array([ids + [-1] * (k - count)]),
            )
        )
    right = [id for _, id in sorted(everything)][:k]  # ties: the earlier item
    assert merge(parts, k, "l2").ids[0].tolist() == right + [-1] * (k - len(right))


def test_the_methods_take_what_a_local_index_takes() -> None:
    for name in ("fit", "search", "explain", "tune", "save", "loads", "stats"):
        local = inspect.signature(getattr(VectorIndex, name)).parameters
        sharded = inspect.signature(getattr(ShardedIndex, name)).parameters
        assert [p.replace(annotation=None) for p in local.values()] == [
            p.replace(annotation=None) for p in list(sharded.values())[: len(local)]
        ], name


def test_irli_load_opens_it(tmp_path: Path) -> None:
    index = ShardedIndex(recipe=quick(), shards=2).fit(X, threads=1)
    index.save(tmp_path / "index")
    again = irli.load(tmp_path / "index")
    assert isinstance(again, ShardedIndex)
    same(again.search(X, k=3), index.search(X, k=3))
    shard = irli.load(shard_folders(tmp_path / "index")[1])
    assert isinstance(shard, VectorIndex)  # a shard is an index like any other
    assert shard.search(X[70], k=1).ids[0] == 70


def test_nearest_is_brute_force() -> None:
    index = ShardedIndex("cosine", recipe=quick(), shards=3).fit(X, threads=1)
    exact = index.nearest(X[:20], k=5)
    everything = index.search(X[:20], k=5, threshold=0.0)
    np.testing.assert_array_equal(exact.ids[:, 0], np.arange(20))
    np.testing.assert_allclose(exact.distances, everything.distances, atol=1e-5)


def test_tuning_reaches_the_recall_on_the_whole() -> None:
    index = ShardedIndex(recipe=quick(buckets=8), shards=3).fit(X, threads=1)
    for recall in (0.5, 1.0):
        tuned = index.tune(recall, k=5, queries=X + 0.01)
        found = index.search(X + 0.01, k=5).ids
        truth = index.nearest(X + 0.01, k=5).ids
        hits = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(found, truth, strict=True)])
        assert tuned.reached
        assert hits >= recall


def test_no_shard_learns_from_queries_that_tune(tmp_path: Path) -> None:
    queries = np.random.default_rng(2).normal(size=(100, 6)).astype(np.float32)
    index = ShardedIndex(recipe=quick(), shards=2).fit(
        X, queries=queries, threads=1, checkpoint=tmp_path
    )
    (learned,) = tmp_path.glob("queries.*.npy")
    rest = {row.tobytes() for row in np.load(learned)}
    held = {row.tobytes() for row in index._held}
    assert len(held) == 5
    assert len(rest) == 95
    assert rest | held == {row.tobytes() for row in queries}


def test_relevance_is_divided_among_the_shards() -> None:
    # Queries far away want an item of the second shard each; nobody wants one of the first.
    queries = X[60:] + 40
    wanted = sp.csr_array(np.eye(120, dtype=np.float32)[60:])
    index = ShardedIndex(recipe=quick(epochs=4), shards=2)
    index.fit(X, queries=queries, relevance=wanted, threads=1)
    assert len(index) == 120


def test_codes_that_the_shards_do_not_have_are_refused() -> None:
    """A shard gets the score as a default: it must not read codes that are not there."""
    X = clusters(10, 10, dim=6, seed=1).points
    index = ShardedIndex(recipe=quick(), shards=2).fit(X, threads=1)
    for ask in (index.search, index.explain):
        with pytest.raises(InvalidParameter, match="without codes"):
            ask(X[:3], k=2, score="codes")


def test_filters_reach_the_right_shard() -> None:
    index = ShardedIndex(recipe=quick(), shards=3).fit(X, ids=IDS, threads=1)
    mask = np.zeros(120, dtype=bool)
    mask[[0, 39, 40, 119]] = True
    found = index.search(X[:3], k=10, filter=mask)
    assert set(found.ids[0][:4]) == set(IDS[mask])
    same(index.search(X[:3], k=10, filter=IDS[mask]), found)
    with pytest.raises(InvalidParameter, match="shape"):
        index.search(X[:3], filter=mask[:50])


# --- files ---------------------------------------------------------------------------------------


def test_a_source_is_files_one_after_the_other(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X[:50])
    write_vectors(tmp_path / "b.fbin", X[50:51])
    write_vectors(tmp_path / "c.fvecs", X[51:])
    source = Source.of([tmp_path / "a.npy", tmp_path / "b.fbin", tmp_path / "c.fvecs"])
    assert (source.rows, source.dim) == (120, 6)
    for start, stop in ((0, 120), (10, 20), (49, 52), (50, 51), (119, 120)):
        np.testing.assert_array_equal(source.read(start, stop), X[start:stop])
    assert not source.read(3, 50).flags.owndata  # mapped


@pytest.mark.parametrize("name", ["x.npy", "x.fbin"])
def test_a_source_in_an_object_store(tmp_path: Path, name: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    write_vectors(tmp_path / name, X)
    fsspec.filesystem("memory").pipe(f"/{name}", (tmp_path / name).read_bytes())
    source = Source.of([f"memory://{name}", f"file://{tmp_path}/{name}"])
    assert source.rows == 240
    np.testing.assert_array_equal(source.read(100, 140), np.concatenate([X[100:], X[:20]]))


def test_files_and_arrays_give_the_same_index(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X[:70])
    np.save(tmp_path / "b.npy", X[70:].astype(np.float64))
    files = ShardedIndex(recipe=quick(), shards=2).fit(
        [tmp_path / "a.npy", tmp_path / "b.npy"], threads=1
    )
    array = ShardedIndex(recipe=quick(), shards=2).fit(X, threads=1)
    same(files.search(X, k=4, probes=2), array.search(X, k=4, probes=2))


def test_a_folder_is_finished_only_when_all_of_it_is_intact(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("one")
    assert not is_complete(tmp_path, "key")
    mark_complete(tmp_path, "key")
    assert is_complete(tmp_path, "key")
    assert not is_complete(tmp_path, "another key")
    (tmp_path / "data").write_text("two")
    assert is_complete(tmp_path, "key", verify=False)
    assert not is_complete(tmp_path, "key")


class Counted:
    """Learning that counts its calls, and fails at some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int = -1) -> None:
        self.calls: list[list[int]] = []
        learn = repetitions.learn_repetitions

        def counted(problem: Any, recipe: Any, numbers: Any, *more: Any, **options: Any) -> Any:
            self.calls.append(list(numbers))
            if len(self.calls) == fail_at:
                raise OSError(errno.ENOSPC, "No space left on device")
            return learn(problem, recipe, numbers, *more, **options)

        monkeypatch.setattr(repetitions, "learn_repetitions", counted)


def built(folder: Path, **changes: Any) -> ShardedIndex:
    index = ShardedIndex(recipe=quick(repetitions=2, **changes), shards=2)
    return index.fit(X, threads=1, checkpoint=folder)


def test_a_build_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = built(tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        first = Counted(patch, fail_at=4)
        with pytest.raises(OSError, match="No space left"):
            built(tmp_path / "broken")
    assert first.calls == [[0], [1], [0], [1]]
    second = Counted(monkeypatch)
    resumed = built(tmp_path / "broken")
    assert second.calls == [[1]]  # the others are never learned again
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")
    same(resumed.search(X, k=5, probes=2), whole.search(X, k=5, probes=2))
    built(tmp_path / "broken")
    assert second.calls == [[1]]


@pytest.mark.parametrize("boost", [True, False])
def test_a_damaged_result_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boost: bool
) -> None:
    built(tmp_path / "whole", boost=boost)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "STEPS", STEPS._replace(finish=lambda job, shard: None))
        with pytest.raises(FormatError):
            built(tmp_path / "part", boost=boost)
    damaged = tmp_path / "part" / "shard-0001" / "repetition-0000.npz"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    counted = Counted(monkeypatch)
    built(tmp_path / "part", boost=boost)
    assert counted.calls == [[0]]
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    vectors = next((tmp_path / "part" / "shard-0000" / "finished" / "index").glob("vectors.*"))
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"x")
    built(tmp_path / "part", boost=boost)
    assert counted.calls == [[0], [0], [1]]
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_another_recipe_or_data_is_another_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path)
    counted = Counted(monkeypatch)
    built(tmp_path, seed=3)
    assert len(counted.calls) == 4
    ShardedIndex(recipe=quick(repetitions=2, seed=3), shards=2).fit(
        X + 1, threads=1, checkpoint=tmp_path
    )
    assert len(counted.calls) == 8


def test_saving_over_an_index_leaves_only_the_new_one(tmp_path: Path) -> None:
    one = ShardedIndex(recipe=quick(), shards=3).fit(X, threads=1)
    two = ShardedIndex(recipe=quick(), shards=2).fit(X + 1, threads=1)
    one.save(tmp_path / "index")
    opened = irli.load(tmp_path / "index")
    two.save(tmp_path / "index")
    assert len(shard_folders(tmp_path / "index")) == 2
    same(opened.search(X, k=3), one.search(X, k=3))  # its files are still mapped
    same(irli.load(tmp_path / "index").search(X, k=3), two.search(X, k=3))
    irli.load(tmp_path / "index").save(tmp_path / "index")  # over itself
    same(irli.load(tmp_path / "index").search(X, k=3), two.search(X, k=3))
    assert not list((tmp_path / "index").glob(".irli-shard-*"))


def test_a_failed_save_leaves_the_old_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ShardedIndex(recipe=quick(), shards=2).fit(X, threads=1)
    two = ShardedIndex(recipe=quick(), shards=2).fit(X + 1, threads=1)
    one.save(tmp_path / "index")
    before = contents(tmp_path / "index")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        two.save(tmp_path / "index")
    with pytest.raises(OSError, match="No space left"):
        two.save(tmp_path / "new")
    assert contents(tmp_path / "index") == before
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
    with pytest.raises(InvalidParameter, match="'neighbors'"):
        ShardedIndex(shards=2).fit(X, neighbors=np.zeros((120, 1), dtype=int))
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


def test_bad_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :5])
    index = ShardedIndex(shards=2)
    with pytest.raises(DimensionMismatch, match=r"6 dimensions.*b\.npy"):
        index.fit([tmp_path / "a.npy", tmp_path / "b.npy"])
    with pytest.raises(InvalidParameter, match="nothing at"):
        index.fit([tmp_path / "a.npy", tmp_path / "c.npy"])
    with pytest.raises(InvalidParameter, match="exist"):
        index.fit("memory://nothing.npy")
    with pytest.raises(InvalidParameter, match="at least one file"):
        Source.of([])
    source = Source.of(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", X[:50])
    with pytest.raises(FormatError, match="when the build began"):
        source.read(0, 60)


def test_a_row_that_is_not_finite_is_named(tmp_path: Path) -> None:
    broken = X.copy()
    broken[100, 2] = np.nan
    np.save(tmp_path / "x.npy", broken)
    with pytest.raises(InvalidParameter, match=r"rows from 60 to 119.*row 40"):
        ShardedIndex(recipe=quick(), shards=2).fit(
            tmp_path / "x.npy", threads=1, checkpoint=tmp_path / "build"
        )
    assert not (tmp_path / "build" / "shard-0001" / "problem" / "finished.json").exists()


def test_a_shard_that_is_missing_or_another(tmp_path: Path) -> None:
    index = ShardedIndex(recipe=quick(), shards=2).fit(X, threads=1)
    index.save(tmp_path / "index")
    first, second = shard_folders(tmp_path / "index")
    shutil.copytree(first, tmp_path / "kept")
    shutil.rmtree(first)
    with pytest.raises(FormatError, match=r"Shard 0 .* is missing"):
        irli.load(tmp_path / "index")
    shutil.copytree(second, first)
    with pytest.raises(FormatError, match=r"Shard 0 .* another index"):
        irli.load(tmp_path / "index")
    with pytest.raises(FormatError, match="index in shards"):
        ShardedIndex.load(tmp_path / "kept")


def test_names_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    ShardedIndex(recipe=quick(), shards=2).fit(X, threads=1).save(tmp_path / "index")
    path = tmp_path / "index" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["meta"]["shards"][0]["folder"] = "../elsewhere"
    path.write_text(json.dumps(storage._seal(manifest)))
    with pytest.raises(FormatError, match="elsewhere"):
        irli.load(tmp_path / "index")


def test_deadlines_in_this_process() -> None:
    index = ShardedIndex(recipe=quick(), shards=2).fit(X, threads=1)
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
