from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from conftest import small_default, small_paper
from contract import same
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import clusters, random_partition, random_router, shifted_queries
from plantedlabels import labelled, small_labels, small_paper_labels
from torch import nn

import irli
from irli import Recipe, VectorIndex
from irli.engine.exact import exact_neighbors
from irli.errors import InvalidParameter
from irli.labels.problem import make_label_problem
from irli.learning import runs as repetitions
from irli.learning import training
from irli.learning.batches import Inputs
from irli.learning.network import LOSS, Pairs, RouterNetwork
from irli.learning.partition import Partition
from irli.learning.problem import Problem, Rows, make_problem
from irli.learning.runs import learn
from irli.learning.training import Head, Learner, Repetition, learn_repetitions
from irli.learning.validation import Validation

KEYS = {
    "repetition",
    "epoch",
    "loss",
    "recall",
    "affinity",
    "load_std",
    "load_max_over_mean",
    "moved",
    "kept",
}


def points(seed: int = 0) -> NDArray[np.float32]:
    return clusters(15, 12, dim=6, spread=0.5, seed=seed).points


def fit(X: NDArray, recipe: Recipe, **arguments: Any) -> VectorIndex:
    return VectorIndex(recipe=recipe).fit(X, threads=1, **arguments)


def arrays(index: VectorIndex) -> dict[str, NDArray[Any]]:
    layout = index._fitted().layout
    return {name: value for name, value in layout._asdict().items() if hasattr(value, "dtype")}


def assert_identical(one: VectorIndex, other: VectorIndex) -> None:
    left, right = arrays(one), arrays(other)
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].dtype == right[name].dtype, name
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)
    assert one.history == other.history


def problem(X: NDArray, recipe: Recipe, **arguments: Any) -> tuple[Problem, Recipe]:
    recipe = recipe.resolve(*X.shape)
    return make_problem(X, "l2", recipe, **arguments)[0], recipe


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- seeds -----------------------------------------------------------------------------------

RECIPES = {
    "default": small_default(),
    "boosted": small_default(repetitions=2, buckets=8),
    "paper": small_paper(repetitions=2, buckets=12),
}


@pytest.mark.parametrize("name", RECIPES)
def test_same_seed_same_index(name: str) -> None:
    X = points()
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 (states of others must not matter)
    one = fit(X, RECIPES[name])
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert_identical(one, fit(X, RECIPES[name]))


@pytest.mark.parametrize("name", ["default", "paper"])
def test_another_seed_another_index(name: str) -> None:
    X = points()
    one = arrays(fit(X, RECIPES[name]))
    other = arrays(fit(X, dataclasses.replace(RECIPES[name], seed=1)))
    assert not np.array_equal(one["items"], other["items"])
    assert not np.array_equal(one["project"], other["project"])


def test_repetitions_differ() -> None:
    index = fit(points(), small_paper(repetitions=3, buckets=12))
    layout = index._fitted().layout
    for r, other in ((0, 1), (0, 2), (1, 2)):
        assert not np.array_equal(layout.project[r], layout.project[other])
        assert not np.array_equal(layout.bias[r], layout.bias[other])


def test_learning_leaves_the_caller_s_random_state_alone() -> None:
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    right = torch.rand(3), np.random.random(3)  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    fit(points(), small_default())
    assert torch.equal(torch.rand(3), right[0])
    np.testing.assert_array_equal(np.random.random(3), right[1])  # noqa: NPY002


# --- resuming --------------------------------------------------------------------------------


class Spy:
    """Counts the repetitions that are really learned, and may fail at one."""

    def __init__(self, patch: pytest.MonkeyPatch, fail_at: int | None = None) -> None:
        self.numbers: list[int] = []
        self.fail_at = fail_at
        patch.setattr(repetitions, "learn_repetitions", self)

    def __call__(
        self, problem: Problem, recipe: Recipe, numbers: list[int], *args: Any, **kw: Any
    ) -> Any:
        if self.fail_at in numbers:
            raise KeyboardInterrupt
        self.numbers += numbers
        return learn_repetitions(problem, recipe, numbers, *args, **kw)


@pytest.mark.parametrize(
    "recipe",
    [small_paper(repetitions=3, buckets=12), small_default(repetitions=2, scoring="full")],
    ids=["paper", "boosted"],
)
def test_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    X = points()
    whole = fit(X, recipe)
    spy = Spy(monkeypatch, fail_at=1)
    with pytest.raises(KeyboardInterrupt):
        fit(X, recipe, checkpoint=tmp_path / "c")
    assert spy.numbers == [0]
    spy = Spy(monkeypatch)
    resumed = fit(X, recipe, checkpoint=tmp_path / "c")
    assert spy.numbers == list(range(1, recipe.repetitions))
    assert_identical(resumed, whole)
    same(resumed.search(X, k=5, probes=2), whole.search(X, k=5, probes=2))

    spy = Spy(monkeypatch)
    assert_identical(fit(X, recipe, checkpoint=tmp_path / "c"), whole)
    assert spy.numbers == []


def test_checkpoint_of_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = points()
    recipe = small_paper(repetitions=2, buckets=12)
    fit(X, recipe, checkpoint=tmp_path)
    nudged = X.copy()
    nudged[7, 3] += 1e-3
    queries = X[:40] + 0.1
    other = small_paper(repetitions=2, buckets=12, learning_rate=2e-3)
    for data, changed, more in (
        (nudged, recipe, {}),
        (X, other, {}),
        (X, recipe, {"queries": queries}),
    ):
        fresh = fit(data, changed, **more)
        spy = Spy(monkeypatch)
        assert_identical(fit(data, changed, checkpoint=tmp_path, **more), fresh)
        assert spy.numbers == [0, 1]
        monkeypatch.setattr(repetitions, "learn_repetitions", learn_repetitions)
    spy = Spy(monkeypatch)
    cosine = VectorIndex("cosine", recipe=recipe).fit(X, checkpoint=tmp_path, threads=1)
    assert spy.numbers == [0, 1]
    assert cosine.metric == "cosine"


def test_a_file_that_was_being_written_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_paper(repetitions=1, buckets=12)

    def interrupted(file: Any, **arrays: Any) -> None:
        file.write(b"PK half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(points(), recipe, checkpoint=tmp_path)
    assert_identical(fit(points(), recipe, checkpoint=tmp_path), fit(points(), recipe))


def test_processes_learn_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    X = points()
    recipe = small_paper(repetitions=2, buckets=12)
    one = fit(X, recipe)
    capfd.readouterr()
    two = VectorIndex(recipe=recipe).fit(X, workers=2, threads=2)
    assert_identical(one, two)
    assert "Warning" not in capfd.readouterr().err


def test_processes_cannot_boost() -> None:
    with pytest.raises(irli.IrliError, match="'workers' parameter must be 1 with boost=True"):
        VectorIndex(recipe=small_default(repetitions=2)).fit(points(), workers=2)


# --- the loop --------------------------------------------------------------------------------


def test_history(tmp_path: Path) -> None:
    index = fit(points(), small_paper(repetitions=2, buckets=12, epochs=5, repartition_every=2))
    assert [(h["repetition"], h["epoch"]) for h in index.history] == [
        (r, epoch) for r in (0, 1) for epoch in (2, 4, 5)
    ]
    for entry in index.history:
        assert set(entry) == KEYS
        assert np.isfinite([entry[key] for key in KEYS - {"kept"}]).all()
        assert 0 <= entry["recall"] <= 1
        assert 0 <= entry["affinity"] <= 1
        assert 0 <= entry["moved"] <= 1
        assert entry["load_max_over_mean"] >= 1
    assert [h["moved"] for h in index.history if h["epoch"] == 5] == [0.0, 0.0]
    index.save(tmp_path / "index")
    assert irli.load(tmp_path / "index").history == index.history


def trace(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[Partition]]:
    """Spy on the loop: the calls in order, and the partition that each batch was made with."""
    calls: list[str] = []
    used: list[Partition] = []
    for name in ("train_epoch", "repartition", "finish"):
        real = getattr(Learner, name)

        def spy(self: Learner, *args: Any, real: Any = real, name: str = name) -> Any:
            calls.append(name)
            return real(self, *args)

        monkeypatch.setattr(Learner, name, spy)
    batch = Learner._batch

    def spy_batch(self: Learner, rows: Any) -> Any:
        used.append(self.heads[0].partition)
        return batch(self, rows)

    monkeypatch.setattr(Learner, "_batch", spy_batch)
    return calls, used


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (small_paper(repetitions=1, buckets=12, epochs=6, repartition_every=2), "TTRTTRTTF"),
        (small_paper(repetitions=1, buckets=12, epochs=5, repartition_every=2), "TTRTTRTF"),
        (small_paper(repetitions=1, buckets=12, epochs=3, repartition_every=1), "TRTRTF"),
        (small_paper(repetitions=1, buckets=12, epochs=1, repartition_every=1), "TF"),
        (small_default(epochs=3, repartition_every=1, accept="always", stop_moved=0.0), "TRTRTF"),
    ],
    ids=str,
)
def test_the_final_partition_is_the_one_that_was_trained_last(
    monkeypatch: pytest.MonkeyPatch, recipe: Recipe, expected: str
) -> None:
    task, recipe = problem(points(), recipe)
    calls, used = trace(monkeypatch)
    learned = learn_repetitions(task, recipe, [0], [])[0]
    letters = {"train_epoch": "T", "repartition": "R", "finish": "F"}
    assert "".join(letters[call] for call in calls) == expected
    assert learned.partition is used[-1]
    if "R" in expected:
        assert used[0] is not used[-1]


def harmful(monkeypatch: pytest.MonkeyPatch) -> list[Partition]:
    """Make every re-partition a shuffle of the items; return what the learners started from."""
    real = Learner._new_partition
    started: list[Partition] = []

    def shuffled(self: Learner, head: Head, rank: Any, first: Any = None) -> Partition:
        if first is not None and not started:  # the second bucket at the start
            started.append(real(self, head, rank, first))
            return started[-1]
        rows = np.random.default_rng(0).permutation(len(head.partition.assignment))
        return Partition(head.partition.buckets, head.partition.assignment[rows])

    monkeypatch.setattr(Learner, "_new_partition", shuffled)
    return started


def test_a_harmful_repartition_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    first = harmful(monkeypatch)
    task, recipe = problem(points(), small_default(epochs=3, repartition_every=1, stop_moved=0.0))
    learned = learn_repetitions(task, recipe, [0], [])[0]
    assert learned.partition is first[0]
    assert learned.history[0]["moved"] > 0.5
    assert learned.history[0]["kept"] is False
    assert all(h["recall"] > 0.9 for h in learned.history)


def test_a_harmful_repartition_is_kept_if_so_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first = harmful(monkeypatch)
    recipe = small_default(epochs=3, repartition_every=1, accept="always", stop_moved=0.0)
    task, recipe = problem(points(), recipe)
    learned = learn_repetitions(task, recipe, [0], [])[0]
    assert learned.partition is not first[0]
    assert [h["kept"] for h in learned.history] == [True] * 3


def test_repartitioning_stops_when_little_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, _ = trace(monkeypatch)
    recipe = small_default(epochs=4, repartition_every=1, accept="always", stop_moved=1.0)
    task, recipe = problem(points(), recipe)
    history = learn_repetitions(task, recipe, [0], [])[0].history
    assert calls.count("repartition") == 1
    assert [h["moved"] for h in history[1:]] == [0.0] * 3


def test_the_paper_s_recipe_learns() -> None:
    X = clusters(40, 20, dim=8, spread=0.3, seed=4).points
    recipe = small_paper(repetitions=2, buckets=32, epochs=10, repartition_every=2, choices=3)
    history = fit(X, recipe).history
    for r in range(2):
        rounds = [h for h in history if h["repetition"] == r]
        assert rounds[-1]["recall"] > rounds[0]["recall"] + 0.2
        assert rounds[-1]["affinity"] > 1.5 * rounds[0]["affinity"]
        assert rounds[-1]["loss"] < rounds[0]["loss"]


def test_planted_clusters_share_their_bucket() -> None:
    """One bucket for each cluster: the nearest neighbours of a point are in the first probed."""
    made = clusters(30, 16, dim=8, spread=0.1, seed=5)
    index = fit(made.points, small_default(buckets=16, buckets_per_item=1, slack=1.5))
    told = index.explain(made.points, k=5, probes=1)
    found = told.ids
    assert (made.owner[found] == made.owner[:, None]).mean() > 0.95
    assert told.scanned.mean() < 2 * 30


# --- losses ----------------------------------------------------------------------------------


def random_pairs(seed: int, per_item: int) -> tuple[torch.Tensor, Pairs, NDArray]:
    """Logits (7, 9) and pairs of every query; and the holds-a-relevant-item matrix."""
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(7, 9)) * 3)
    lengths = rng.integers(1, 6, size=7)
    row = np.repeat(np.arange(7), lengths)
    bucket = np.argsort(rng.random((len(row), 9)), axis=1)[:, :per_item]
    if per_item > 1:
        bucket[rng.random(len(row)) < 0.3, 1] = -1
    weight = rng.random(len(row)) + 0.1
    weight /= np.bincount(row, weights=weight)[row]
    holds = np.zeros((7, 9))
    for r, buckets in zip(row, bucket, strict=True):
        holds[r, buckets[buckets >= 0]] = 1
    pairs = Pairs(torch.from_numpy(row), torch.from_numpy(bucket), torch.from_numpy(weight))
    return logits, pairs, holds


@pytest.mark.parametrize("seed", range(5))
def test_softmax_is_the_cross_entropy_with_the_histogram(seed: int) -> None:
    logits, pairs, _ = random_pairs(seed, per_item=1)
    histogram = torch.zeros(7, 9, dtype=torch.float64)
    for row, bucket, weight in zip(pairs.row, pairs.bucket[:, 0], pairs.weight, strict=True):
        histogram[row, bucket] += weight
    right = nn.functional.cross_entropy(logits, histogram)
    torch.testing.assert_close(LOSS["softmax"](logits, pairs), right)


@pytest.mark.parametrize("seed", range(5))
def test_softmax_with_two_buckets_counts_either(seed: int) -> None:
    logits, pairs, _ = random_pairs(seed, per_item=2)
    p = torch.softmax(logits, dim=1)
    total = 0.0
    for row, buckets, weight in zip(pairs.row, pairs.bucket, pairs.weight, strict=True):
        total -= float(weight) * float(torch.log(sum(p[row, b] for b in buckets if b >= 0)))
    assert float(LOSS["softmax"](logits, pairs)) == pytest.approx(total / 7, rel=1e-6)


@pytest.mark.parametrize("per_item", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_binary_cross_entropies(seed: int, per_item: int) -> None:
    logits, pairs, holds = random_pairs(seed, per_item)
    z = logits.numpy()
    for name, p in (
        ("sigmoid-bce", 1 / (1 + np.exp(-z))),
        ("softmax-bce", np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)),
    ):
        right = -(holds * np.log(p) + (1 - holds) * np.log(1 - p)).mean()
        assert float(LOSS[name](logits, pairs)) == pytest.approx(right, rel=1e-4)


@pytest.mark.parametrize("loss", LOSS)
def test_losses_stay_finite_for_extreme_logits(loss: str) -> None:
    logits, pairs, _ = random_pairs(0, per_item=2)
    extreme = (logits * 1e4).float().requires_grad_()
    value = LOSS[loss](extreme, pairs._replace(weight=pairs.weight.float()))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(extreme.grad).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", LOSS)
def test_every_loss_learns(loss: str) -> None:
    X = clusters(20, 10, dim=6, spread=0.2, seed=6).points
    changes = {"learning_rate": 5e-3} if loss == "softmax-bce" else {}
    history = fit(X, small_paper(repetitions=1, buckets=16, loss=loss, epochs=8, **changes)).history
    assert history[-1]["loss"] < history[0]["loss"]


# --- relevance -------------------------------------------------------------------------------


def test_explicit_relevance_is_learned() -> None:
    """Queries that want what is not near them: only a learned router can know where it is."""
    made = shifted_queries(25, 12, dim=8, n_queries=700, wanted=5, seed=3)
    seen, fresh = slice(0, 600), range(600, 660)
    recipe = small_default(epochs=6, epoch_size=4096, buckets=24, mixed_queries=0)

    def share_in_first_buckets(index: VectorIndex) -> float:
        """A filter on the wanted cluster widens the search if it is not in the probed buckets."""
        hits = []
        for row in fresh:
            wanted = np.flatnonzero(made.items.owner == made.wants[row])
            told = index.explain(made.queries[row], k=1, probes=2, filter=wanted)
            hits.append(told.probed[0] == 2)
        return float(np.mean(hits))

    without = fit(made.items.points, recipe)
    learned = fit(
        made.items.points,
        recipe,
        queries=made.queries[seen],
        relevance=made.relevance[seen],
    )
    assert share_in_first_buckets(learned) > 0.9
    assert share_in_first_buckets(without) < 0.5


def test_relevance_as_sparse_or_as_rows_is_the_same() -> None:
    made = shifted_queries(10, 8, dim=6, n_queries=60, wanted=3, seed=1)
    rows = made.relevance.indices.reshape(60, 3)
    one, other = (
        fit(made.items.points, small_default(), queries=made.queries, relevance=relevance)
        for relevance in (made.relevance, np.pad(rows, ((0, 0), (0, 2)), constant_values=-1))
    )
    assert_identical(one, other)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_queries_may_want_nothing(share: float) -> None:
    made = shifted_queries(10, 8, dim=6, n_queries=40, wanted=3, seed=1)
    keep = sp.diags_array((np.random.default_rng(0).random(40) >= share).astype(np.float32))
    relevance = sp.csr_array(keep @ made.relevance)
    index = fit(made.items.points, small_default(), queries=made.queries, relevance=relevance)
    assert (index.search(made.queries, k=3).ids >= 0).all()


def test_a_relevance_of_nothing_is_refused() -> None:
    X = points()
    nothing = sp.csr_array((5, len(X)), dtype=np.float32)
    with pytest.raises(InvalidParameter, match=r"'relevance' .* at least one query"):
        fit(X, small_default(), queries=X[:5], relevance=nothing)


def test_given_neighbors_are_used() -> None:
    X = points()
    near = exact_neighbors(X, X, 20, rows=np.arange(len(X)))
    assert_identical(fit(X, small_default()), fit(X, small_default(), neighbors=near))
    itself = np.hstack([np.arange(len(X))[:, None], near])  # each item first among its own
    index = fit(X, small_default(), neighbors=itself)
    assert (index.search(X, k=1, threshold=0.0).ids[:, 0] == np.arange(len(X))).all()


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_queries_are_mixed_with_the_base(share: float) -> None:
    X = points()
    queries = X[:60] + 5.0
    task, _ = problem(X, small_default(query_share=share, mixed_queries=0), queries=queries)
    strangers = task.rows < 0
    assert task.sampling.sum() == pytest.approx(1)
    assert task.sampling[strangers].sum() == pytest.approx(share)
    assert (task.queries[~strangers] == X[task.rows[~strangers]]).all()
    asked = {row.tobytes() for row in task.queries[strangers]}
    held = {row.tobytes() for row in task.held_queries}
    assert not asked & held  # what is held out is not trained on


def test_wanted_by_is_the_relevance_turned_round() -> None:
    X = points()
    task, _ = problem(X, small_default(mixed_queries=0), queries=X[:50] + 5.0)
    dense = np.zeros((len(X), len(X) + int((task.rows < 0).sum())), dtype=np.float32)
    stranger = len(X)
    for query, row in enumerate(task.rows):
        column = row if row >= 0 else stranger
        stranger += row < 0
        for pair in range(task.indptr[query], task.indptr[query + 1]):
            dense[task.indices[pair], column] += task.weights[pair]
    np.testing.assert_allclose(task.wanted_by(task.weights).toarray(), dense, rtol=1e-6)


# --- boosting --------------------------------------------------------------------------------


@pytest.mark.parametrize("probe_cut", [0.0, 0.05])
def test_boosting_weights_what_was_missed(cut: float) -> None:
    X = points()
    task, recipe = problem(X, small_default(probe_cut=cut, buckets=10))
    router = random_router(6, 10)
    partition = random_partition(len(X), 10, per_item=2)
    partition.assignment[::3, 1] = -1
    got = training._misses(task, Repetition(router, partition, []), recipe)
    assert got.shape == task.indices.shape
    p = np.exp(router.log_probabilities(task.queries))
    least = cut or 1 / 10
    for pair in range(0, len(got), 17):
        query = np.searchsorted(task.indptr, pair, side="right") - 1
        buckets = partition.assignment[task.indices[pair]]
        found = p[query, buckets[buckets >= 0]].sum()
        assert got[pair] == pytest.approx(least / (found + least), rel=1e-4)
    assert ((got > 0) & (got <= 1)).all()


def test_boosted_repetitions_depend_on_the_earlier_ones() -> None:
    task, recipe = problem(points(), small_default(repetitions=2, buckets=10))
    first = learn_repetitions(task, recipe, [0], [])[0]
    boosted = learn_repetitions(task, recipe, [1], [first])[0]
    alone = learn_repetitions(task, recipe, [1], [])[0]
    assert not np.array_equal(boosted.router.project, alone.router.project)


# --- validation ------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    queries=st.integers(1, 15),
    wanted=st.integers(1, 10),
    buckets=st.integers(1, 12),
    padding=st.floats(0, 0.8),
)
def test_a_partition_is_not_worse_than_itself(
    seed: int, queries: int, wanted: int, buckets: int, padding: float
) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 40, size=(queries, wanted))
    truth[rng.random(truth.shape) < padding] = -1
    truth[0, 0] = 0
    logits = rng.normal(size=(queries, buckets)) * 3
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    partition = random_partition(40, buckets, seed=seed)
    held = Validation(truth)
    assert held.not_worse(logs.astype(np.float32), partition, partition)


def test_validation_measures() -> None:
    p = np.full((2, 20), 0.01)
    p[0, 3], p[1, 4] = 0.5, 0.6
    p[:, 10:19] = 0.001
    logs = np.log(p).astype(np.float32)
    partition = Partition(20, np.array([[3, 10], [4, -1], [19, -1], [15, 16]], dtype=np.int32))
    held = Validation(np.array([[0, 1, -1], [1, 3, 0]]))
    # Query 0 has bucket 3, query 1 bucket 4 of probability .5 and .6, the rest .01 or .001.
    right = np.mean([0.5, 0.01, 0.6, 0.001, 0.01])
    assert held.affinity(logs, partition) == pytest.approx(right, rel=1e-4)
    assert held.recall_at_probes(logs, partition) == pytest.approx(4 / 5)


# --- heads on a shared trunk, rows without vectors of items -------------------------------------


def label_problem(
    recipe: Recipe, *, dense: bool = False, labels: int = 30
) -> tuple[Problem, Recipe]:
    X, Y = labelled(240, labels)
    recipe = recipe.resolve_for_labels(labels)
    return make_label_problem(X.toarray() if dense else X, Y, recipe)[0], recipe


def assert_same_repetitions(one: list[Repetition], other: list[Repetition]) -> None:
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        for name, value in left.router._asdict().items():
            np.testing.assert_array_equal(value, getattr(right.router, name), err_msg=name)
        np.testing.assert_array_equal(left.partition.assignment, right.partition.assignment)
        assert left.history == right.history


@pytest.mark.parametrize("dense", [False, True])
def test_one_head_is_a_network_of_its_own(dense: bool) -> None:
    shared = small_labels(repetitions=1, epochs=3)
    task, recipe = label_problem(shared, dense=dense)
    one = learn(task, recipe)
    other = learn(task, dataclasses.replace(recipe, trunk="own"))
    assert_same_repetitions(one, other)


@pytest.mark.parametrize("dense", [False, True])
def test_heads_share_a_trunk_and_nothing_else(dense: bool) -> None:
    task, recipe = label_problem(small_labels(repetitions=3), dense=dense)
    group = learn(task, recipe)
    first = group[0].router
    for r, repetition in enumerate(group):
        assert repetition.router.project is first.project
        assert repetition.router.shift is first.shift
        assert {entry["repetition"] for entry in repetition.history} == {r}
    for one, other in ((0, 1), (0, 2), (1, 2)):
        left, right = group[one], group[other]
        assert not np.array_equal(left.router.coarse, right.router.coarse)
        assert not np.array_equal(left.partition.assignment, right.partition.assignment)


def test_networks_of_their_own_share_nothing() -> None:
    task, recipe = label_problem(small_paper_labels())
    one, other = learn(task, recipe)
    assert not np.array_equal(one.router.project, other.router.project)


@pytest.mark.parametrize("sparse", [False, True])
def test_heads_are_scored_one_by_one_frozen_and_thawed_alike(sparse: bool) -> None:
    torch.manual_seed(0)
    network = RouterNetwork(9, 0, 6, 5, heads=3, sparse=sparse)
    rng = np.random.default_rng(0)
    rows: Rows = rng.normal(size=(20, 9)).astype(np.float32)
    if sparse:
        rows = sp.csr_array(rows * (rng.random(rows.shape) < 0.4))
    network.standardise(rows)
    batch = Inputs(rows).take(np.arange(20))
    with torch.no_grad():
        logits = network(batch)
        assert logits.shape == (20, 3, 5)
        for head in range(3):
            torch.testing.assert_close(network.score(batch, head), logits[:, head])
        right = torch.log_softmax(logits, dim=2).numpy()
        routers = network.freeze()
        again = RouterNetwork(9, 0, 6, 5, heads=3, sparse=sparse)
        again.thaw(routers)
        torch.testing.assert_close(again(batch), logits, rtol=1e-4, atol=1e-4)
    for head, router in enumerate(routers):
        np.testing.assert_allclose(
            router.log_probabilities(rows), right[:, head], rtol=1e-4, atol=1e-4
        )


def test_rows_of_two_arrays_follow_each_other() -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.normal(size=(n, 3)).astype(np.float32) for n in (7, 4))
    first.flags.writeable = False  # as a mapped file
    both = np.concatenate([first, second])
    inputs = Inputs(first, second)
    assert len(inputs) == 11
    picked = np.array([9, 0, 6, 7, 7, 10, 3])
    np.testing.assert_array_equal(np.asarray(inputs.take(picked)), both[picked])
    blocks = [(part, np.asarray(block)) for part, block in inputs.blocks(4)]
    assert [part for part, _ in blocks] == [slice(0, 4), slice(4, 8), slice(8, 11)]
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), both)


def test_large_indexes_learn_from_fewer_points_and_move_items_less_often() -> None:
    few, many = (irli.recipe().resolve(items, 8) for items in (100_000, 10_000_000))
    assert (few.training_points, few.every) == (200_000, 2)
    assert (many.training_points, many.every) == (50_000, 5)
    asked = irli.recipe(training_points=7, repartition_every=3).resolve(10_000_000, 8)
    assert (asked.training_points, asked.every) == (7, 3)
    assert (
        irli.recipe("labels", repartition_every=0).resolve_for_labels(5000).repartition_every == 1
    )


def test_sparse_batches_are_the_dense_ones() -> None:
    """The bag of features is the matrix product, empty rows and blocks included."""
    torch.manual_seed(0)
    rows = sp.random_array((30, 9), density=0.3, rng=np.random.default_rng(0), format="csr")
    rows = sp.csr_array(rows.astype(np.float32))
    rows.data[rows.indptr[4] : rows.indptr[5]] = 0
    rows.eliminate_zeros()
    layer = RouterNetwork(9, 0, 6, 5, sparse=True).hidden
    inputs = Inputs(rows)
    picked = np.array([7, 4, 4, 29])
    with torch.no_grad():
        found = layer(inputs.take(picked)).numpy()
    table, bias = layer.table.weight.detach().numpy(), layer.bias.detach().numpy()
    np.testing.assert_allclose(found, rows.toarray()[picked] @ table + bias, rtol=1e-4, atol=1e-5)
    assert [part for part, _ in inputs.blocks(20)] == [slice(0, 20), slice(20, 30)]


@pytest.mark.parametrize("dense", [False, True])
def test_a_shared_group_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dense: bool
) -> None:
    task, recipe = label_problem(small_labels(repetitions=3), dense=dense)
    whole = learn(task, recipe)
    spy = Spy(monkeypatch, fail_at=2)
    with pytest.raises(KeyboardInterrupt):
        learn(task, recipe, checkpoint=tmp_path)
    assert spy.numbers == []  # they are learned together or not at all
    spy = Spy(monkeypatch)
    assert_same_repetitions(learn(task, recipe, checkpoint=tmp_path), whole)
    assert spy.numbers == [0, 1, 2]
    spy = Spy(monkeypatch)
    resumed = learn(task, recipe, checkpoint=tmp_path)
    assert spy.numbers == []
    assert_same_repetitions(resumed, whole)
    assert all(r.router.project is resumed[0].router.project for r in resumed)
    other, _ = label_problem(recipe, dense=not dense)
    learn(other, recipe, checkpoint=tmp_path)
    assert spy.numbers == [0, 1, 2]  # not what the folder holds


def test_workers_cannot_share_a_trunk() -> None:
    task, recipe = label_problem(small_labels())
    with pytest.raises(InvalidParameter, match=r"'workers' parameter must be 1 with trunk='shar"):
        learn(task, recipe, workers=2)


@pytest.mark.parametrize("dense", [False, True])
def test_a_problem_survives_its_files(tmp_path: Path, dense: bool) -> None:
    task, recipe = label_problem(small_paper_labels(), dense=dense)
    task.save(tmp_path)
    again = Problem.load(tmp_path)
    assert again.fingerprint(recipe) == task.fingerprint(recipe)
    assert again.own is False
    for field in dataclasses.fields(Problem):
        one, other = getattr(task, field.name), getattr(again, field.name)
        if sp.issparse(one):
            assert one.shape == other.shape
            assert (one != other).nnz == 0
        else:
            np.testing.assert_array_equal(one, other, err_msg=field.name)
    # What another process would do with it.
    repetitions.learn_group(str(tmp_path), recipe, [1], str(tmp_path), "mark", 1, "cpu")
    [there] = repetitions._load(tmp_path, [1], "mark") or []
    assert_same_repetitions([there], learn_repetitions(task, recipe, [1], []))


def test_the_fingerprint_sees_every_part_of_sparse_queries() -> None:
    task, recipe = label_problem(small_labels())
    seen = {task.fingerprint(recipe)}
    for part in ("queries", "held_queries"):
        changed = getattr(task, part).copy()
        changed.data[3] += 1e-3
        seen.add(dataclasses.replace(task, **{part: changed}).fingerprint(recipe))
    moved = task.queries.copy()
    moved.indices[0] += 1
    seen.add(dataclasses.replace(task, queries=moved).fingerprint(recipe))
    assert len(seen) == 4


def test_learning_goes_on_from_a_start() -> None:
    """At no learning rate, the routers that come out are those that went in."""
    task, recipe = label_problem(small_labels(epochs=4))
    learned = learn(task, recipe)
    still = dataclasses.replace(recipe, epochs=1, learning_rate=1e-9)
    start = [r.router for r in learned], [r.partition for r in learned]
    again = learn(task, still, start=start)
    for one, other in zip(learned, again, strict=True):
        np.testing.assert_allclose(other.router.project, one.router.project, atol=1e-5)
        np.testing.assert_allclose(other.router.coarse, one.router.coarse, atol=1e-5)
        np.testing.assert_array_equal(other.partition.assignment, one.partition.assignment)
        assert other.history[0]["loss"] < one.history[0]["loss"]


@pytest.mark.parametrize("buckets", [8, 29])
@pytest.mark.parametrize("per_item", [1, 2])
def test_the_bound_holds_for_labels(buckets: int, per_item: int) -> None:
    settings = small_labels(buckets=buckets, epochs=4, buckets_per_item=per_item, accept="always")
    task, recipe = label_problem(settings)
    for repetition in learn(task, recipe):
        loads = repetition.partition.loads()
        assert loads.max() <= np.ceil(recipe.slack * 30 * per_item / buckets)
        assert (repetition.partition.assignment[:, 0] >= 0).all()


def test_alone_every_label_keeps_its_bucket() -> None:
    task, recipe = label_problem(irli.recipe("labels", epochs=2, hidden=8))
    [only] = learn(task, recipe)
    np.testing.assert_array_equal(only.partition.assignment[:, 0], np.arange(30))
    assert [entry["moved"] for entry in only.history] == [0.0] * len(only.history)
