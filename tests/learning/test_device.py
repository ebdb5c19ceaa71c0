"""Learning on a GPU that is not here: a device without memory stands in for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import small_default, small_paper
from plantedlabels import small_labels, small_paper_labels
from problems import label_task, learn_task, vector_task

from irli.learning import runs
from irli.learning.problem import Problem
from irli.learning.training import Learner

TASKS = {
    "default": vector_task(small_default()),
    "paper": vector_task(small_paper()),
    "text of the paper": vector_task(small_paper(loss="softmax-bce")),
    "labels": label_task(small_labels()),
    "paper-labels": label_task(small_paper_labels()),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_step_copies_the_batch_and_waits_for_nothing(name: str) -> None:
    """A "meta" tensor has no values: whatever asks the device for one raises an error."""
    problem, recipe = TASKS[name]
    learner = Learner(problem, recipe, [0], [], "cpu")
    learner.network.to("meta")
    learner.device = torch.device("meta")
    for rows in list(learner._draw_batches())[:2]:
        assert learner._step(rows).device.type == "meta"


@pytest.mark.parametrize("loss", ["sigmoid-bce", "softmax-bce"])
def test_the_optimiser_of_the_paper_stays_on_the_device(loss: str) -> None:
    problem, recipe = vector_task(small_paper(loss=loss))
    learner = Learner(problem, recipe, [0], [], "meta")
    [rows, *_] = learner._draw_batches()
    learner._step(rows)
    [optimizer] = learner.optimizers
    state = [value for values in optimizer.state.values() for value in values.values()]
    assert {value.device.type for value in state if value.dim()} == {"meta"}


def test_affinity_by_the_item_alone_needs_no_table_of_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("wanted_by takes 20 bytes for each pair")

    monkeypatch.setattr(Problem, "wanted_by", refuse)
    learn_task(vector_task(small_paper(affinity="item")))


def test_each_worker_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert runs.list_devices("cuda", 8) == [f"cuda:{number}" for number in range(8)]
    assert runs.list_devices("cuda", 10)[8:] == ["cuda:0", "cuda:1"]
    assert runs.list_devices("cuda:3", 2) == ["cuda:3", "cuda:3"]


def test_a_worker_learns_on_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes take what is listed for them: one that torch does not know is told of."""
    monkeypatch.setattr(runs, "list_devices", lambda device, workers: ["cpu", "nowhere"])
    task = vector_task(small_paper(repetitions=6, epochs=1))
    with pytest.raises(RuntimeError, match="nowhere"):
        learn_task(task, workers=2, checkpoint=tmp_path)


def test_mixed_precision_learns_nearly_the_same() -> None:
    task = vector_task(small_paper(repetitions=1))
    full, mixed = (
        learn_task(task._replace(recipe=dataclasses.replace(task.recipe, mixed_precision=each)))[0]
        for each in (False, True)
    )
    last = [each.history[-1]["recall"] for each in (full, mixed)]
    assert last[1] > last[0] - 0.1
    assert not np.array_equal(full.router.weights, mixed.router.weights)
    assert mixed.router.weights.dtype == np.float32
