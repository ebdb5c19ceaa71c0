"""Algorithm 1 for one group of repetitions: the loop, what it learns, and what it is spared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from conftest import small_default, small_paper
from numpy.typing import NDArray
from planted import clusters, random_partition, random_router
from plantedlabels import small_labels, small_paper_labels
from problems import (
    Task,
    assert_same_repetitions,
    label_task,
    learn_task,
    points,
    vector_task,
)

import irli
from irli import Recipe
from irli.learning import training
from irli.learning.affinity import SummedAffinity
from irli.learning.network import LOSSES, NativeNetwork
from irli.learning.partition import Partition
from irli.learning.repetition import Repetition
from irli.learning.training import Head, Learner, learn_repetitions

KEYS = {
    "repetition",
    "epoch",
    "loss",
    "recall",
    "affinity",
    "affinity_after",
    "load_std",
    "load_max_over_mean",
    "moved",
    "kept",
}


def learn_one(task: Task) -> Repetition:
    [learned] = learn_repetitions(*task, [0], [])
    return learned


def paper(**changes: Any) -> Recipe:
    return small_paper(**{"repetitions": 1, "buckets": 8, **changes})


# --- the loop --------------------------------------------------------------------------------


def test_history() -> None:
    recipe = paper(repetitions=2, epochs=5, repartition_every=2)
    history = [entry for learned in learn_task(vector_task(recipe)) for entry in learned.history]
    assert [(h["repetition"], h["epoch"]) for h in history] == [
        (r, epoch) for r in (0, 1) for epoch in (2, 4, 5)
    ]
    for entry in history:
        assert set(entry) == KEYS
        assert np.isfinite([entry[key] for key in KEYS - {"kept"}]).all()
        assert 0 <= entry["recall"] <= 1
        assert 0 <= entry["affinity"] <= 1
        assert 0 <= entry["moved"] <= 1
        assert entry["load_max_over_mean"] >= 1
    for last in (h for h in history if h["epoch"] == 5):
        assert last["moved"] == 0
        assert last["affinity_after"] == last["affinity"]


@pytest.mark.parametrize("loss", LOSSES)
def test_history_has_the_affinity_before_and_after_a_repartition(
    monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """The mean f(x) of the buckets of relevant items, as Theorem 1 has it."""
    right: list[tuple[float, float]] = []
    real = Learner.repartition

    def watched(self: Learner, head: Head) -> tuple[float, bool]:
        queries: Any = self.problem.held_queries
        truth = self.problem.held_truth
        logits = self.network.score(queries, 0).astype(np.float64)
        f = 1 / (1 + np.exp(-logits)) if loss == "sigmoid-bce" else np.exp(logits)
        if loss != "sigmoid-bce":
            f /= f.sum(axis=1, keepdims=True)

        def mean() -> float:
            rows, places = np.nonzero(truth >= 0)
            buckets = head.partition.assignment[truth[rows, places], 0]
            return float(f[rows, buckets].mean())

        before = mean()
        answer = real(self, head)
        right.append((before, mean()))
        return answer

    monkeypatch.setattr(Learner, "repartition", watched)
    history = learn_one(vector_task(paper(loss=loss))).history
    measured = [(h["affinity"], h["affinity_after"]) for h in history[:-1]]
    np.testing.assert_allclose(measured, right, rtol=1e-4)
    assert all(before != after for before, after in measured)


def trace(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[Partition]]:
    """Spy on the loop: the calls in order, and the partition that each epoch was trained on."""
    calls: list[str] = []
    used: list[Partition] = []
    for name in ("train_epoch", "repartition", "export"):
        real = getattr(Learner, name)

        def spy(self: Learner, *args: Any, real: Any = real, name: str = name) -> Any:
            calls.append(name)
            if name == "train_epoch":
                used.append(self.heads[0].partition)
            return real(self, *args)

        monkeypatch.setattr(Learner, name, spy)
    return calls, used


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (paper(epochs=6, repartition_every=2), "TTRTTRTTE"),
        (paper(epochs=5, repartition_every=2), "TTRTTRTE"),
        (paper(epochs=3, repartition_every=1), "TRTRTE"),
        (paper(epochs=1, repartition_every=1), "TE"),
        (small_default(epochs=3, accept="always", buckets=24, stop_moved=0.0), "TRTRTE"),
    ],
    ids=["6 by 2", "5 by 2", "3 by 1", "1 by 1", "default"],
)
def test_the_final_partition_is_the_one_that_was_trained_last(
    monkeypatch: pytest.MonkeyPatch, recipe: Recipe, expected: str
) -> None:
    task = vector_task(recipe)
    calls, used = trace(monkeypatch)
    learned = learn_one(task)
    letters = {"train_epoch": "T", "repartition": "R", "export": "E"}
    assert "".join(letters[call] for call in calls) == expected
    assert learned.partition is used[-1]
    if "R" in expected:
        assert used[0] is not used[-1]


def harmful(monkeypatch: pytest.MonkeyPatch) -> list[Partition]:
    """Make every re-partition a shuffle of the items; return what the learners started from."""
    real = Learner._assign
    started: list[Partition] = []

    def shuffled(self: Learner, head: Head, rank: Any, first: Any = None) -> Partition:
        if first is not None and not started:  # the second bucket at the start
            started.append(real(self, head, rank, first))
            return started[-1]
        rows = np.random.default_rng(0).permutation(len(head.partition.assignment))
        return Partition(head.partition.buckets, head.partition.assignment[rows])

    monkeypatch.setattr(Learner, "_assign", shuffled)
    return started


def test_a_harmful_repartition_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    first = harmful(monkeypatch)
    learned = learn_one(
        vector_task(small_default(epochs=3, repartition_every=1, stop_moved=0.0, buckets=10))
    )
    assert learned.partition is first[0]
    assert learned.history[0]["moved"] > 0.5
    assert learned.history[0]["kept"] is False
    assert all(h["recall"] > 0.9 for h in learned.history)


def test_a_harmful_repartition_is_kept_if_so_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first = harmful(monkeypatch)
    recipe = small_default(epochs=3, repartition_every=1, accept="always", stop_moved=0.0)
    learned = learn_one(vector_task(recipe))
    assert learned.partition is not first[0]
    assert [h["kept"] for h in learned.history] == [True] * 3


def test_repartitioning_stops_when_little_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, _ = trace(monkeypatch)
    recipe = small_default(epochs=4, repartition_every=1, accept="always", stop_moved=1.0)
    history = learn_one(vector_task(recipe)).history
    assert calls.count("repartition") == 1
    assert [h["moved"] for h in history[1:]] == [0.0] * 3


@pytest.mark.parametrize("choices", [1, 2])
def test_training_goes_on_until_nothing_moves(choices: int) -> None:
    """Clusters as large as buckets: each finds one, and then all items stay where they are."""
    X = clusters(20, 8, dim=8, spread=0.05, seed=4).points
    recipe = paper(epochs=400, until_converged=True, repartition_every=5, choices=choices)
    learned = learn_one(vector_task(recipe, X))
    *rounds, stopped, last = learned.history
    assert last["epoch"] < 400
    assert [stopped["moved"], last["moved"]] == [0, 0]
    assert all(h["moved"] > 0 for h in rounds)
    assert last["epoch"] == stopped["epoch"] + 5  # trained on the last partition


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_training_ends_once_few_items_move(share: float) -> None:
    recipe = paper(epochs=200, until_converged=True, repartition_every=2, stop_moved=share)
    history = learn_one(vector_task(recipe)).history
    moved = [h["moved"] for h in history[:-1]]
    assert all(m >= share for m in moved[:-1])
    if share:
        assert moved[-1] < share
        assert history[-1]["epoch"] < 200


def test_heads_end_together() -> None:
    task = label_task(
        small_labels(
            repetitions=3, epochs=60, until_converged=True, accept="always", stop_moved=0.1
        )
    )
    group = learn_task(task)
    assert len({repetition.history[-1]["epoch"] for repetition in group}) == 1
    assert group[0].history[-1]["epoch"] < 60
    assert all(repetition.history[-2]["moved"] < 0.1 for repetition in group)


@pytest.mark.parametrize("buckets", [8, 29])
@pytest.mark.parametrize("per_item", [1, 2])
def test_no_bucket_holds_more_than_its_bound(buckets: int, per_item: int) -> None:
    task = label_task(
        small_labels(buckets=buckets, epochs=3, buckets_per_item=per_item, accept="always")
    )
    for repetition in learn_task(task):
        loads = repetition.partition.loads()
        assert loads.max() <= np.ceil(task.recipe.slack * 30 * per_item / buckets)
        assert (repetition.partition.assignment[:, 0] >= 0).all()


def test_alone_every_label_keeps_its_bucket() -> None:
    [only] = learn_task(label_task(irli.recipe("labels", epochs=2, hidden=8)))
    np.testing.assert_array_equal(only.partition.assignment[:, 0], np.arange(30))
    assert [entry["moved"] for entry in only.history] == [0.0] * len(only.history)


# --- learning --------------------------------------------------------------------------------


def test_the_paper_s_recipe_learns() -> None:
    X = clusters(25, 16, dim=8, spread=0.3, seed=4).points
    recipe = paper(buckets=24, epochs=10, repartition_every=2, choices=3, batch_size=32)
    rounds = learn_one(vector_task(recipe, X)).history
    assert rounds[-1]["recall"] > rounds[0]["recall"] + 0.2
    assert rounds[-1]["affinity"] > 1.05 * rounds[0]["affinity"]
    assert rounds[-1]["loss"] < rounds[0]["loss"]


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_learns(loss: str) -> None:
    changes = {"learning_rate": 5e-3} if loss == "softmax-bce" else {}
    history = learn_one(vector_task(paper(loss=loss, **changes))).history
    assert history[-1]["loss"] < history[0]["loss"]


def test_the_first_bucket_holds_the_cluster_of_a_query() -> None:
    made = clusters(20, 12, dim=8, spread=0.1, seed=5)
    recipe = small_default(buckets=12, buckets_per_item=1, slack=1.5, epochs=6, batch_size=32)
    learned = learn_one(vector_task(recipe, made.points))
    best = learned.router.log_probabilities(made.points).argmax(axis=1)
    held = learned.partition.assignment[:, 0]
    there = (held == best[:, None]) & (made.owner == made.owner[:, None])
    assert (there.sum(axis=1) >= 8).mean() > 0.95


@pytest.mark.parametrize("total", [1, 2, 3, 19, 20, 21, 40, 60, 1000])
def test_any_number_of_steps_has_a_schedule(total: int) -> None:
    """The learning rate rises, falls and ends low, in as many steps as there are."""
    rates = training.schedule_rates(Recipe(learning_rate=1.0, epochs=1), total)
    assert len(rates) == total
    assert 0 < min(rates) <= max(rates) <= 1
    assert rates[0] == pytest.approx(training._FIRST_RATE)
    top = int(rates.argmax())
    assert (np.diff(rates[: top + 1]) > 0).all()
    assert (np.diff(rates[top:]) < 0).all()
    assert total < 20 or rates[-1] < 0.05
    assert total < 20 or rates[top] > 0.9
    assert total < 20 or top < 0.1 * total


def test_a_constant_schedule_is_constant() -> None:
    recipe = Recipe(learning_rate=0.3, epochs=4, schedule="constant")
    np.testing.assert_array_equal(training.schedule_rates(recipe, 5), np.full(20, 0.3))


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_the_paper_s_recipe_is_plain_adam_on_plain_inputs(device: str) -> None:
    """Against Adam by its definition, on the gradients of torch."""
    problem, recipe = vector_task(paper(loss="softmax"), points() + 5)
    learner = Learner(problem, recipe, [0], [], device)
    weights = learner.network.weights
    assert np.abs(weights.centre).max() == 0
    assert weights.scale == weights.gain == 1
    assert weights.linear == 0
    np.testing.assert_array_equal(learner.rates, np.full(len(learner.rates), 1e-3))
    w1, b1, w2, b2 = (
        torch.from_numpy(array.copy()).requires_grad_()
        for array in (weights.project, weights.shift, weights.out[0], weights.bias[0])
    )
    adam = torch.optim.Adam([w1, b1, w2, b2], lr=1e-3)
    rows = learner._draw_rows()[:64]
    for part in (rows[:32], rows[32:]):
        loss = torch.zeros(())
        for query in part:
            low, high = problem.indptr[query], problem.indptr[query + 1]
            buckets = learner.heads[0].partition.assignment[problem.indices[low:high], 0]
            share = torch.from_numpy(learner.weights[low:high] / learner.weights[low:high].sum())
            x = torch.from_numpy(problem.queries[[query]])
            logits = torch.relu(x @ w1 + b1) @ w2.T + b2
            log = torch.log_softmax(logits, dim=1)[0]
            loss = loss - (share * log[torch.from_numpy(buckets).long()]).sum() / len(part)
        adam.zero_grad()
        torch.autograd.backward(loss)
        adam.step()
    assignments = [learner.heads[0].partition.assignment]
    learner.network.learn(learner.lesson, assignments, rows, learner.rates[:2])
    found = learner.network.read()
    for array, right in zip(
        (found.project, found.shift, found.out[0], found.bias[0]), (w1, b1, w2, b2), strict=True
    ):
        gap = np.abs(array - right.detach().numpy())
        assert np.quantile(gap, 0.9) < 2e-5  # where a gradient is next to 0, its sign may differ
        assert gap.max() < 4.1e-3


def read_rates(learner: Learner, name: str) -> NDArray[np.float32]:
    """Return how fast the columns of a layer learn, relative to the rate of a step."""
    assert isinstance(learner.network, NativeNetwork)
    rates = np.empty(learner.network.weights.project.shape[1], dtype=np.float32)
    learner.network.trainer.read(name, rates)
    return rates


def test_rare_features_learn_no_faster_at_a_constant_rate() -> None:
    learner = Learner(*label_task(small_paper_labels()), [0], [], "cpu")
    assert set(read_rates(learner, "project_rates")) == {1.0}
    faster = Learner(*label_task(small_labels()), [0, 1], [], "cpu")
    assert set(read_rates(faster, "project_rates")) == {
        np.float32(training._raise_sparse_rate(faster.problem.queries))
    }


def test_sharp_linear_columns_learn_more_slowly() -> None:
    """At most by what a step of theirs changes the logits more. Their shift does not learn."""
    learner = Learner(*vector_task(small_default(buckets=10)), [0], [], "cpu")
    weights = learner.network.weights
    rates, shifts = read_rates(learner, "project_rates"), read_rates(learner, "shift_rates")
    right = min(1.0, training._SHARP / weights.sharpness)
    assert weights.linear > 0
    assert weights.sharpness > 1
    np.testing.assert_allclose(rates[: weights.linear], right)
    np.testing.assert_allclose(rates[weights.linear :], weights.gain)
    assert set(shifts[: weights.linear]) == {0.0}
    assert set(shifts[weights.linear :]) == {1.0}


@pytest.mark.parametrize("name", ["schedule", "standardize"])
def test_each_of_them_is_a_setting_of_its_own(name: str) -> None:
    problem, recipe = vector_task(paper(**{name: getattr(Recipe(), name)}))
    learner = Learner(problem, recipe, [0], [], "cpu")
    assert (len(set(learner.rates)) > 1) == (name == "schedule")
    assert (learner.network.weights.gain != 1) == (name == "standardize")


@pytest.mark.parametrize("epochs", [1, 18, 19, 20])
def test_learning_takes_any_number_of_steps(epochs: int) -> None:
    task = vector_task(small_default(epochs=epochs, repartition_every=100, batch_size=4096))
    learned = learn_one(task)
    assert len(learned.history) == 1
    assert np.isfinite(learned.history[0]["loss"])


def test_learning_on_takes_any_number_of_steps() -> None:
    task = label_task(small_labels(epochs=19, repartition_every=100, batch_size=4096))
    learned = learn_task(task)
    again = learn_task(task, start=learned)
    assert again[0].history[-1]["loss"] < learned[0].history[-1]["loss"]


@pytest.mark.parametrize("name", ["paper", "paper-labels"])
def test_the_paper_s_recipes_sum_over_all_buckets(name: str) -> None:
    task = vector_task(paper(affinity="sum")) if name == "paper" else None
    problem, recipe = task or label_task(small_paper_labels())
    learner = Learner(problem, recipe, [0], [], "cpu")
    learner.repartition(learner.heads[0])
    assert type(learner._score_affinity(learner.heads[0])) is SummedAffinity


# --- boosting --------------------------------------------------------------------------------


@pytest.mark.parametrize(("affinity", "least"), [("both", 0.005), ("item", 1 / 10)])
def test_boosting_weights_what_was_missed(affinity: str, least: float) -> None:
    problem, recipe = vector_task(small_default(affinity=affinity, buckets=10))
    router = random_router(6, 10)
    partition = random_partition(len(problem.items), 10, per_item=2)
    partition.assignment[::3, 1] = -1
    got = training._miss_chances(problem, Repetition(router, partition, []), recipe)
    assert got.shape == problem.indices.shape
    p = np.exp(router.log_probabilities(problem.queries))
    for pair in range(0, len(got), 17):
        query = np.searchsorted(problem.indptr, pair, side="right") - 1
        buckets = partition.assignment[problem.indices[pair]]
        found = p[query, buckets[buckets >= 0]].sum()
        assert got[pair] == pytest.approx(least / (found + least), rel=1e-4)
    assert ((got > 0) & (got <= 1)).all()


def test_boosted_repetitions_depend_on_the_earlier_ones() -> None:
    task = vector_task(small_default(repetitions=2, buckets=10, epochs=1))
    first = learn_one(task)
    boosted = learn_repetitions(*task, [1], [first])[0]
    alone = learn_repetitions(*task, [1], [])[0]
    assert not np.array_equal(boosted.router.project, alone.router.project)


# --- heads on a shared trunk -----------------------------------------------------------------


@pytest.mark.parametrize("dense", [False, True])
def test_one_head_is_a_network_of_its_own(dense: bool) -> None:
    task = label_task(small_labels(repetitions=1, epochs=3), dense=dense)
    own = label_task(small_labels(repetitions=1, epochs=3, trunk="own"), dense=dense)
    assert_same_repetitions(learn_task(task), learn_task(own))


@pytest.mark.parametrize("dense", [False, True])
def test_heads_share_a_trunk_and_nothing_else(dense: bool) -> None:
    group = learn_task(label_task(small_labels(repetitions=3), dense=dense))
    first = group[0].router
    for r, repetition in enumerate(group):
        assert repetition.router.project is first.project
        assert repetition.router.shift is first.shift
        assert {entry["repetition"] for entry in repetition.history} == {r}
    for one, other in ((0, 1), (0, 2), (1, 2)):
        left, right = group[one], group[other]
        assert not np.array_equal(left.router.weights, right.router.weights)
        assert not np.array_equal(left.partition.assignment, right.partition.assignment)


def test_networks_of_their_own_share_nothing() -> None:
    one, other = learn_task(label_task(small_paper_labels(epochs=1)))
    assert not np.array_equal(one.router.project, other.router.project)
    assert not np.array_equal(one.partition.assignment, other.partition.assignment)


@pytest.mark.parametrize(("share", "rate"), [(1.0, 1.0), (0.1, 1.0), (0.01, 100 / 27), (0, 25.0)])
def test_rare_features_learn_faster(share: float, rate: float) -> None:
    """A feature that one in 27 rows has learns at the usual rate, rarer ones up to 25 times it."""
    rows = np.zeros((100, 200), dtype=np.float32)
    rows.reshape(-1)[: round(share * rows.size)] = 1
    assert training._raise_sparse_rate(sp.csr_array(rows)) == pytest.approx(rate)


# --- what comes out --------------------------------------------------------------------------
