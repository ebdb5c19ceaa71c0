"""All repetitions: seeds, resuming, processes, and going on from a start."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import small_default, small_paper
from plantedlabels import small_labels, small_paper_labels
from problems import assert_same_repetitions, label_task, learn_task, points, vector_task

from irli import Recipe
from irli.errors import InvalidParameter, IrliError
from irli.learning import runs
from irli.learning.checkpoint import Checkpoint
from irli.learning.options import LearnOptions
from irli.learning.problem import Problem
from irli.learning.training import Learner, learn_repetitions

BOOSTED = small_default(repetitions=2, buckets=8, epochs=1, scoring="full")
PAPER = small_paper(repetitions=3, buckets=8, epochs=2, repartition_every=1)


@pytest.fixture(autouse=True)
def each_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "SECONDS", 0.0)


# --- seeds -----------------------------------------------------------------------------------


def seed_everything(seed: int) -> None:
    """The states of others, which must not matter."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002


@pytest.mark.parametrize(
    "recipe", [small_default(), BOOSTED, PAPER], ids=["default", "boosted", "paper"]
)
def test_the_same_seed_learns_the_same(recipe: Recipe) -> None:
    task = vector_task(recipe)
    seed_everything(1)
    one = learn_task(task)
    seed_everything(2)
    assert_same_repetitions(one, learn_task(task))


@pytest.mark.parametrize("recipe", [small_default(), PAPER], ids=["default", "paper"])
def test_another_seed_learns_something_else(recipe: Recipe) -> None:
    one, other = (
        learn_task(vector_task(dataclasses.replace(recipe, repetitions=1, seed=seed)))[0]
        for seed in (0, 1)
    )
    assert not np.array_equal(one.partition.assignment, other.partition.assignment)
    assert not np.array_equal(one.router.project, other.router.project)


def test_learning_leaves_the_caller_s_random_state_alone() -> None:
    seed_everything(5)
    right = torch.rand(3), np.random.random(3)  # noqa: NPY002
    seed_everything(5)
    learn_task(vector_task(small_default(epochs=1)))
    assert torch.equal(torch.rand(3), right[0])
    np.testing.assert_array_equal(np.random.random(3), right[1])  # noqa: NPY002


# --- resuming --------------------------------------------------------------------------------


class Spy:
    """Counts the repetitions that are really learned, and may fail at one."""

    def __init__(self, patch: pytest.MonkeyPatch, fail_at: int | None = None) -> None:
        self.numbers: list[int] = []
        self.fail_at = fail_at
        patch.setattr(runs, "learn_repetitions", self)

    def __call__(
        self, problem: Problem, recipe: Recipe, numbers: list[int], *args: Any, **kw: Any
    ) -> Any:
        if self.fail_at in numbers:
            raise KeyboardInterrupt
        self.numbers += numbers
        return learn_repetitions(problem, recipe, numbers, *args, **kw)


def test_more_repetitions_go_on_from_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = dataclasses.replace(PAPER, repetitions=2)
    learn_task(vector_task(few), checkpoint=tmp_path)
    spy = Spy(monkeypatch)
    found = learn_task(vector_task(PAPER), checkpoint=tmp_path)
    assert spy.numbers == [2]
    assert_same_repetitions(found, learn_task(vector_task(PAPER)))


@pytest.mark.parametrize("recipe", [PAPER, BOOSTED], ids=["paper", "boosted"])
def test_learning_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    task = vector_task(recipe)
    whole = learn_task(task)
    spy = Spy(monkeypatch, fail_at=1)
    with pytest.raises(KeyboardInterrupt):
        learn_task(task, checkpoint=tmp_path / "c")
    assert spy.numbers == [0]
    spy = Spy(monkeypatch)
    assert_same_repetitions(learn_task(task, checkpoint=tmp_path / "c"), whole)
    assert spy.numbers == list(range(1, recipe.repetitions))
    spy = Spy(monkeypatch)
    assert_same_repetitions(learn_task(task, checkpoint=tmp_path / "c"), whole)
    assert spy.numbers == []


EPOCHS = {
    "paper": vector_task(small_paper(repetitions=2, buckets=8, epochs=5, repartition_every=2)),
    "default": vector_task(small_default(repetitions=2, buckets=8, epochs=5, repartition_every=2)),
    "labels": label_task(small_labels(epochs=5, repartition_every=2)),
    "dense labels": label_task(small_labels(epochs=5, repartition_every=2), dense=True),
    "paper's labels": label_task(small_paper_labels(epochs=5, repartition_every=2)),
    "an output each": label_task(small_labels(buckets=None, epochs=5, start="one-per-item")),
}


def test_an_epoch_of_a_moment_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "SECONDS", 1e9)
    monkeypatch.setattr(Checkpoint, "save_epoch", None)  # not to be called
    learn_task(vector_task(PAPER), checkpoint=tmp_path)


@pytest.mark.parametrize("name", EPOCHS)
def test_learning_resumes_after_any_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is interrupted in each epoch in turn. Each time it goes on where it was."""
    task = EPOCHS[name]
    whole = learn_task(task)
    real, trained = Learner.train_epoch, 0

    def interrupted(self: Learner, epoch: int) -> float:
        nonlocal trained
        if trained:
            raise KeyboardInterrupt
        trained += 1
        return real(self, epoch)

    monkeypatch.setattr(Learner, "train_epoch", interrupted)
    groups = 1 if task.recipe.trunk == "shared" else task.recipe.repetitions
    for _ in range(task.recipe.epochs * groups - 1):
        trained = 0
        with pytest.raises(KeyboardInterrupt):
            learn_task(task, checkpoint=tmp_path)
        assert len(list(tmp_path.glob("epoch-*.npz"))) <= 1
    trained = 0
    assert_same_repetitions(learn_task(task, checkpoint=tmp_path), whole)
    assert trained == 1
    assert len(list(tmp_path.iterdir())) == groups


def test_a_damaged_epoch_is_learned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = EPOCHS["default"]
    whole = learn_task(task)
    real, trained = Learner.train_epoch, 0

    def interrupted(self: Learner, epoch: int) -> float:
        nonlocal trained
        trained += 1
        if trained == 3:
            raise KeyboardInterrupt
        return real(self, epoch)

    monkeypatch.setattr(Learner, "train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learn_task(task, checkpoint=tmp_path)
    [file] = tmp_path.glob("epoch-*.npz")
    bytes_ = bytearray(file.read_bytes())
    bytes_[len(bytes_) // 2] ^= 255
    file.write_bytes(bytes_)
    assert_same_repetitions(learn_task(task, checkpoint=tmp_path), whole)


@pytest.mark.parametrize("dense", [False, True])
def test_a_shared_group_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dense: bool
) -> None:
    task = label_task(small_labels(repetitions=3, epochs=1), dense=dense)
    whole = learn_task(task)
    spy = Spy(monkeypatch, fail_at=2)
    with pytest.raises(KeyboardInterrupt):
        learn_task(task, checkpoint=tmp_path)
    assert spy.numbers == []  # they are learned together or not at all
    spy = Spy(monkeypatch)
    assert_same_repetitions(learn_task(task, checkpoint=tmp_path), whole)
    assert spy.numbers == [0, 1, 2]
    spy = Spy(monkeypatch)
    resumed = learn_task(task, checkpoint=tmp_path)
    assert spy.numbers == []
    assert_same_repetitions(resumed, whole)
    assert all(r.router.project is resumed[0].router.project for r in resumed)


def test_the_checkpoint_of_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = points()
    recipe = dataclasses.replace(PAPER, repetitions=2)
    learn_task(vector_task(recipe, X), checkpoint=tmp_path)
    nudged = X.copy()
    nudged[7, 3] += 1e-3
    for task in (
        vector_task(recipe, nudged),
        vector_task(dataclasses.replace(recipe, learning_rate=2e-3), X),
        vector_task(recipe, X, queries=X[:40] + 0.1),
        vector_task(recipe, X)._replace(problem=_as_cosine(vector_task(recipe, X).problem)),
    ):
        fresh = learn_task(task)
        spy = Spy(monkeypatch)
        assert_same_repetitions(learn_task(task, checkpoint=tmp_path), fresh)
        assert spy.numbers == [0, 1]
        monkeypatch.setattr(runs, "learn_repetitions", learn_repetitions)


def _as_cosine(problem: Problem) -> Problem:
    return dataclasses.replace(problem, metric="cosine")


def test_a_damaged_checkpoint_is_learned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = vector_task(dataclasses.replace(PAPER, repetitions=2))
    whole = learn_task(task, checkpoint=tmp_path)
    file = sorted(tmp_path.iterdir())[1]
    file.write_bytes(file.read_bytes()[:500])
    spy = Spy(monkeypatch)
    assert_same_repetitions(learn_task(task, checkpoint=tmp_path), whole)
    assert spy.numbers == [1]
    spy = Spy(monkeypatch)
    learn_task(task, checkpoint=tmp_path)
    assert spy.numbers == []  # written anew


def test_a_file_that_was_being_written_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = vector_task(dataclasses.replace(PAPER, repetitions=1))

    def interrupted(file: Any, **arrays: Any) -> None:
        file.write(b"PK half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learn_task(task, checkpoint=tmp_path)
    assert_same_repetitions(learn_task(task, checkpoint=tmp_path), learn_task(task))


# --- processes -------------------------------------------------------------------------------


def test_processes_learn_what_is_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two repetitions is there already: a single process starts, which takes its time."""
    task = vector_task(dataclasses.replace(PAPER, repetitions=2))
    one = learn_task(task, checkpoint=tmp_path)
    sorted(tmp_path.iterdir())[1].unlink()
    capfd.readouterr()
    spy = Spy(monkeypatch)
    assert_same_repetitions(learn_task(task, workers=2, threads=2, checkpoint=tmp_path), one)
    assert spy.numbers == []  # not here
    assert len(list(tmp_path.iterdir())) == 2
    assert "Warning" not in capfd.readouterr().err


@pytest.mark.parametrize("dense", [False, True])
def test_a_process_learns_from_files(tmp_path: Path, dense: bool) -> None:
    """What a worker does, without one."""
    problem, recipe = label_task(small_paper_labels(epochs=1), dense=dense)
    problem.save(tmp_path)
    checkpoint = Checkpoint(tmp_path, "mark")
    runs._learn_saved(tmp_path, recipe, [1], checkpoint, 1)
    there = checkpoint.load([1])
    assert there is not None
    assert_same_repetitions(there, learn_repetitions(problem, recipe, [1], []))


def test_a_group_that_boosts_finds_the_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, recipe = vector_task(BOOSTED)
    whole = learn_task((problem, recipe))
    checkpoint = Checkpoint(tmp_path, "mark")
    options = LearnOptions(threads=1)
    for numbers in ([0], [1]):
        runs.learn_group(problem, recipe, numbers, checkpoint, options)
    assert_same_repetitions(checkpoint.load_all(recipe), whole)
    spy = Spy(monkeypatch)
    runs.learn_group(problem, recipe, [1], checkpoint, options)
    assert spy.numbers == []


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [(BOOSTED, "boost=True"), (small_labels(), "trunk='shared'")],
    ids=["boosted", "shared"],
)
def test_processes_learn_nothing_from_each_other(recipe: Recipe, reason: str) -> None:
    shared = recipe.trunk == "shared"
    task = label_task(recipe) if shared else vector_task(recipe)
    with pytest.raises(InvalidParameter, match=f"'workers' parameter must be 1 with {reason}"):
        learn_task(task, workers=2)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(IrliError, match="'device' parameter of fit"):
        learn_task(vector_task(small_default()), device="no such device")


# --- going on --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recipe", [small_labels(epochs=4), small_paper_labels()], ids=["shared", "own"]
)
def test_learning_goes_on_from_a_start(recipe: Recipe) -> None:
    """At no learning rate, the routers that come out are those that went in."""
    problem, recipe = label_task(recipe)
    learned = learn_task((problem, recipe))
    still = dataclasses.replace(recipe, epochs=1, learning_rate=1e-9)
    again = learn_task((problem, still), start=learned)
    for one, other in zip(learned, again, strict=True):
        np.testing.assert_allclose(other.router.project, one.router.project, atol=1e-5)
        np.testing.assert_allclose(other.router.weights, one.router.weights, atol=1e-5)
        np.testing.assert_array_equal(other.partition.assignment, one.partition.assignment)
        assert other.history[0]["loss"] < one.history[0]["loss"]
