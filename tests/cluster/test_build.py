"""Building shards: the phases of a shard, and builds that stop and go on."""

from __future__ import annotations

import errno
import shutil
import tracemalloc
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import small_default, small_paper
from contract import same
from folders import array_sums, read_files
from planted import clusters

import irli
from irli import VectorIndex
from irli.base.folder import write_folder
from irli.base.vector_files import write_vectors
from irli.cluster import ShardedIndex
from irli.cluster.build import build as building
from irli.cluster.build.memory import (
    count_build_bytes,
    count_mapped_bytes,
    count_private_bytes,
    count_step_base,
)
from irli.cluster.build.vector_job import VectorJob, make_vector_job, split_rows
from irli.cluster.build.workdir import clear, is_complete, mark_complete, store, store_sparse
from irli.errors import DimensionMismatch, FormatError, InvalidParameter
from irli.learning import learn, runs
from irli.learning.options import LearnOptions
from irli.vectors.build.problem import _QUERY_WEIGHT, VectorProblem

X = clusters(n_per=12, centres=10, dim=6, spread=0.5, seed=1).points


def quick(**changes: Any) -> irli.Recipe:
    return small_default(**{"epochs": 1, "epoch_size": 256, **changes})


def make_job(folder: Path, shards: int = 2, **given: Any) -> tuple[VectorJob, Any]:
    """Return a job, and the queries that no shard learns from."""
    arguments = {"ids": None, "queries": None, "relevance": None, "metric": "l2"} | given
    arguments = {"recipe": quick(repetitions=2), "device": "cpu", "threads": 1} | arguments
    return make_vector_job(folder, X, shards=shards, **arguments)


# --- the phases of a shard -------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [quick(repetitions=2), small_paper(buckets=6, repetitions=2)])
def test_a_shard_goes_through_the_phases_of_an_index(recipe: irli.Recipe, tmp_path: Path) -> None:
    job, _ = make_job(tmp_path, recipe=recipe)
    building.build(job, None, False)
    for shard in range(2):
        problem, held, _ = made = job.make_problem(shard)
        made.save(tmp_path)
        repetitions = learn(problem, job.recipe_of(shard), LearnOptions(threads=1))
        write_folder(tmp_path / f"hand {shard}", job.assemble(shard, tmp_path, repetitions))
        assert array_sums(tmp_path / f"hand {shard}") == array_sums(job.index(shard))
        start, stop = job.bounds[shard : shard + 2]
        local = VectorIndex(recipe=recipe).fit(X[start:stop], range(start, stop), threads=1)
        local.save(tmp_path / f"local {shard}")
        assert array_sums(tmp_path / f"local {shard}") == array_sums(job.index(shard))
        np.testing.assert_array_equal(held.queries, local._fitted().tuning.queries)


def test_slices_are_of_about_one_size() -> None:
    for rows, shards in ((10, 3), (7, 7), (120, 1), (1001, 16)):
        bounds = split_rows(rows, shards)
        sizes = np.diff(bounds)
        assert (bounds[0], bounds[-1], len(sizes)) == (0, rows, shards)
        assert sizes.max() - sizes.min() <= 1


def test_each_shard_learns_the_relevance_of_its_own_slice(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(100, 6)).astype(np.float32)
    weights = rng.random((100, 120)) * (rng.random((100, 120)) < 0.02)
    weights[:10] = 0  # these want nothing
    wanted = sp.csr_array(weights, dtype=np.float32)
    job, held = make_job(tmp_path, shards=3, queries=queries, relevance=wanted)
    row_of = {row.tobytes(): number for number, row in enumerate(queries)}
    kept_back = {row_of[row.tobytes()] for row in held}
    assert len(kept_back) == 5
    for shard in range(3):
        own = wanted[:, job.bounds[shard] : job.bounds[shard + 1]].tocsr()
        problem = job.make_problem(shard).problem
        learned = set()
        for place in np.flatnonzero(problem.query_items < 0):
            row = row_of[problem.queries[place].tobytes()]
            pairs = slice(problem.indptr[place], problem.indptr[place + 1])
            learned.add(row)
            right = _QUERY_WEIGHT * own[[row]].toarray()[0]
            found = np.zeros_like(right)
            found[problem.indices[pairs]] = problem.weights[pairs]
            np.testing.assert_array_equal(found, right)
        validated = set()
        for query, truth in zip(problem.held_queries, problem.held_truth, strict=True):
            row = row_of[query.tobytes()]
            weights = own[[row]].toarray()[0]
            heaviest = np.argsort(-weights, kind="stable")[: np.count_nonzero(weights)][:10]
            np.testing.assert_array_equal(truth[: len(heaviest)], heaviest)
            assert (truth[len(heaviest) :] == -1).all()
            validated.add(row)
        # Every query that wants something of the slice is used, for one or the other.
        useful = set(np.flatnonzero(np.diff(own.indptr))) - kept_back
        assert learned | validated == useful
        assert not learned & validated


def test_a_shard_that_no_query_wants_learns_from_its_items(tmp_path: Path) -> None:
    # Queries far away want an item of the second shard each.
    given = {"queries": X[60:] + 40, "relevance": sp.csr_array(np.eye(120, dtype="f4")[60:])}
    job, _ = make_job(tmp_path, **given)
    first, second = (job.make_problem(shard).problem for shard in range(2))
    assert (first.query_items >= 0).all()
    assert (second.query_items < 0).any()
    index = ShardedIndex(recipe=quick(), shards=2).fit(X, threads=1, **given)
    everything = index.search(X, k=1, threshold=0.0)
    np.testing.assert_array_equal(everything.ids[:, 0], np.arange(120))


def test_no_shard_learns_from_queries_that_tune(tmp_path: Path) -> None:
    queries = np.random.default_rng(2).normal(size=(100, 6)).astype(np.float32)
    job, held = make_job(tmp_path, queries=queries, recipe=quick(mixed_queries=0))
    left_out = {row.tobytes() for row in held}
    assert len(left_out) == 5
    for shard in range(2):
        problem, own, _ = job.make_problem(shard)
        used = np.concatenate([problem.queries, own.queries])
        rest = {row.tobytes() for row in used} & {row.tobytes() for row in queries}
        assert len(rest) == 95
        assert not rest & left_out


def test_queries_in_a_file_are_read_by_the_steps(tmp_path: Path) -> None:
    """The job says where they are, and both ways learn the same."""
    queries = np.random.default_rng(2).normal(size=(60, 6)).astype(np.float32)
    write_vectors(tmp_path / "learn.fbin", queries)
    recipe = quick(query_share=1.0, mixed_queries=0)
    made = []
    for name, given in (("a", queries), ("b", str(tmp_path / "learn.fbin"))):
        (tmp_path / name).mkdir()
        job, _ = make_job(tmp_path / name, queries=given, recipe=recipe, metric="cosine")
        (tmp_path / name / "problem").mkdir()
        problem, *_ = job.make_problem(1, tmp_path / name / "problem")
        made.append(problem)
    assert not list((tmp_path / "b").glob("queries*"))
    for array in ("queries", "indices", "weights"):
        np.testing.assert_array_equal(getattr(made[0], array), getattr(made[1], array))
    np.save(tmp_path / "wide.npy", np.zeros((5, 7), np.float32))
    with pytest.raises(DimensionMismatch, match="'queries'"):
        make_job(tmp_path / "a", queries=str(tmp_path / "wide.npy"))


def test_what_is_large_is_filled_in_files(tmp_path: Path) -> None:
    """The memory of `prepare` does not hold the pairs of queries and their neighbours."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "items.npy", rng.normal(size=(500, 6)).astype(np.float32))
    np.save(tmp_path / "learn.npy", rng.normal(size=(60_000, 6)).astype(np.float32))
    (tmp_path / "problem").mkdir()
    paths = str(tmp_path / "items.npy"), None, str(tmp_path / "learn.npy"), None
    recipe = small_paper(buckets=8, neighbors=100, query_share=1.0)
    settings: dict[str, Any] = {"metric": "l2", "shards": 1, "threads": 1, "device": "cpu"}
    job, _ = make_vector_job(tmp_path, *paths, recipe=recipe, **settings)
    tracemalloc.start()
    made = job.make_problem(0, tmp_path / "problem")
    made.save(tmp_path / "problem")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    sizes = 500, 6, job.recipe, 60_000
    assert len(made.problem.indices) == 59_500 * 100
    assert peak < count_private_bytes(*sizes) + (16 << 20)  # the tiles of a search
    assert peak < 0.6 * count_mapped_bytes(*sizes)
    again = VectorProblem.load(tmp_path / "problem").problem
    np.testing.assert_array_equal(again.indices, made.problem.indices)
    assert not (tmp_path / "problem" / "given.npy").exists()


def test_a_step_asks_for_what_is_planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And neighbours, which take the longest, get all cores of a machine, and its GPU."""
    job, _ = make_job(tmp_path, shards=2, device="cuda")
    asked: dict[str, Any] = {}

    class Ray:
        def nodes(self) -> list[Any]:
            cpus = [
                {"Alive": True, "Resources": {"CPU": count, "memory": 1e12}} for count in (8, 4)
            ]
            return [*cpus, {"Alive": False, "Resources": {"CPU": 1}}]

        def put(self, value: Any) -> Any:
            return value

        def remote(self, step: Any) -> Ray:
            return self

        def options(self, *, name: str, **needed: Any) -> Any:
            asked[name] = needed
            return Namespace(remote=lambda step, job, *_: asked[name].update(threads=job.threads))

    building._submit(job, [[[0]], [[0]]], Ray())
    sizes = 60, 6, job.recipe
    assert asked["learn"]["memory"] == count_step_base("cuda") + int(count_build_bytes(*sizes))
    assert (asked["prepare"]["num_cpus"], asked["prepare"]["threads"]) == (4, 4)
    assert (asked["learn"]["num_cpus"], asked["learn"]["threads"]) == (1, 1)
    assert asked["prepare"]["num_gpus"] == asked["learn"]["num_gpus"] == 1
    assert "num_gpus" not in asked["finish"]


# --- the working folder --------------------------------------------------------------------------


def test_a_folder_is_complete_only_when_all_of_it_is_intact(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("one")
    assert not is_complete(tmp_path, "key")
    mark_complete(tmp_path, "key")
    assert is_complete(tmp_path, "key")
    assert not is_complete(tmp_path, "another key")
    (tmp_path / "data").write_text("two")
    assert is_complete(tmp_path, "key", verify=False)
    assert not is_complete(tmp_path, "key")


def test_stored_arrays_are_named_by_what_they_hold(tmp_path: Path) -> None:
    one = store(tmp_path, "items", X)
    assert store(tmp_path, "items", X.copy()) == one
    assert store(tmp_path, "items", X[:, ::-1]) != one
    assert store(tmp_path, "items", X.reshape(60, 12)) != one
    np.testing.assert_array_equal(np.load(one), X)
    sparse = sp.csr_array(np.eye(3, dtype="f4"))
    other = store_sparse(tmp_path, "rows", sparse)
    assert store_sparse(tmp_path, "rows", 2 * sparse) != other
    assert (sp.load_npz(other) != sparse).nnz == 0


def test_clearing_leaves_what_others_have_put_there(tmp_path: Path) -> None:
    built(tmp_path)
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "notes.npy").write_text("not ours")
    clear(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.npy", "thesis.txt"]


# --- builds that stop ----------------------------------------------------------------------------


class Counted:
    """Learning that counts its calls, and fails at some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int = -1) -> None:
        self.calls: list[list[int]] = []
        learn_repetitions = runs.learn_repetitions

        def counted(problem: Any, recipe: Any, numbers: Any, *more: Any, **options: Any) -> Any:
            self.calls.append(list(numbers))
            if len(self.calls) == fail_at:
                raise OSError(errno.ENOSPC, "No space left on device")
            return learn_repetitions(problem, recipe, numbers, *more, **options)

        monkeypatch.setattr(runs, "learn_repetitions", counted)


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
    assert read_files(tmp_path / "broken") == read_files(tmp_path / "whole")
    same(resumed.search(X, k=5, probes=2), whole.search(X, k=5, probes=2))
    built(tmp_path / "broken")
    assert second.calls == [[1]]


@pytest.mark.parametrize("boost", [True, False])
def test_a_damaged_result_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boost: bool
) -> None:
    built(tmp_path / "whole", boost=boost)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "finish", lambda job, shard: None)
        with pytest.raises(FormatError):
            built(tmp_path / "part", boost=boost)
    damaged = tmp_path / "part" / "shard-0001" / "repetition-0000.npz"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    counted = Counted(monkeypatch)
    built(tmp_path / "part", boost=boost)
    assert counted.calls == [[0]]
    assert read_files(tmp_path / "part") == read_files(tmp_path / "whole")
    vectors = next((tmp_path / "part" / "shard-0000" / "finished" / "index").glob("vectors.*"))
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"x")
    built(tmp_path / "part", boost=boost)
    assert counted.calls == [[0], [0], [1]]
    assert read_files(tmp_path / "part") == read_files(tmp_path / "whole")


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


def test_two_builds_cannot_use_one_folder(tmp_path: Path) -> None:
    refused: list[str] = []

    def build_again(done: int, total: int, what: str) -> None:
        with pytest.raises(InvalidParameter, match="Another build is running") as error:
            built(tmp_path, seed=1)
        refused.append(str(error.value))

    recipe = quick(repetitions=2)
    index = ShardedIndex(recipe=recipe, shards=2)
    index.fit(X, threads=1, checkpoint=tmp_path, progress=build_again)
    assert refused
    same(index.search(X, k=5, probes=2), built(tmp_path / "other").search(X, k=5, probes=2))


def test_a_build_without_room_is_refused_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    needed = 2 * X.nbytes + X.nbytes // 2

    def leave(free: int) -> None:
        usage = shutil.disk_usage(tmp_path)._replace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    leave(needed - 1)
    with pytest.raises(InvalidParameter, match=r"'checkpoint'.*has 0\.0 MB left.*TMPDIR"):
        built(tmp_path)
    assert not list(tmp_path.iterdir())
    np.save(tmp_path / "x.npy", X)  # files are not copied
    leave(needed - X.nbytes)
    ShardedIndex(recipe=quick(), shards=2).fit(tmp_path / "x.npy", threads=1)
    leave(needed)
    with caplog.at_level("INFO", logger="irli"):
        built(tmp_path / "build")
    assert f"0.0 MB more in {tmp_path / 'build'}" in caplog.text
    leave(0)
    built(tmp_path / "build")  # all is there
