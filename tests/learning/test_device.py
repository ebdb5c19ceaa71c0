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
from problems import assert_same_repetitions, label_task, learn_task, vector_task

from irli.errors import InvalidParameter
from irli.learning import check_device, runs
from irli.learning.checkpoint import Checkpoint
from irli.learning.network import NativeNetwork
from irli.learning.problem import Problem
from irli.learning.torch_network import TorchNetwork
from irli.learning.training import Learner

TASKS = {
    "default": vector_task(small_default()),
    "paper": vector_task(small_paper()),
    "text of the paper": vector_task(small_paper(loss="softmax-bce")),
    "labels": label_task(small_labels()),
    "paper-labels": label_task(small_paper_labels()),
}


@pytest.fixture(autouse=True)
def each_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "SECONDS", 0.0)


def begin(name: str, device: str) -> tuple[Learner, Any]:
    """Return a learner whose network was begun on the CPU, and is on the device."""
    learner = Learner(*TASKS[name], [0], [], "torch")
    network: Any = learner.network
    network.to(device)
    network.device = torch.device(device)
    return learner, network


@pytest.mark.parametrize("name", TASKS)
def test_a_step_copies_the_batch_and_waits_for_nothing(name: str) -> None:
    """A "meta" tensor has no values: whatever asks the device for one raises an error."""
    learner, network = begin(name, "meta")
    assignments = [head.partition.assignment for head in learner.heads]
    rows = learner._draw_rows()
    for part in (rows[:40], rows[40:80]):
        assert network.step(learner.lesson, assignments, part, 1e-3).device.type == "meta"


@pytest.mark.parametrize("loss", ["sigmoid-bce", "softmax-bce"])
def test_the_optimiser_of_the_paper_stays_on_the_device(loss: str) -> None:
    problem, recipe = vector_task(small_paper(loss=loss))
    learner = Learner(problem, recipe, [0], [], "meta")
    network: Any = learner.network
    assignments = [head.partition.assignment for head in learner.heads]
    network.step(learner.lesson, assignments, learner._draw_rows()[:40], 1e-3)
    [(optimizer, _)] = network.optimizers
    state = [value for values in optimizer.state.values() for value in values.values()]
    assert {value.device.type for value in state if value.dim()} == {"meta"}


def test_a_cpu_learns_by_kernels_and_other_devices_by_torch() -> None:
    for device, kind in (("cpu", NativeNetwork), ("torch", TorchNetwork), ("meta", TorchNetwork)):
        assert type(Learner(*TASKS["paper"], [0], [], device).network) is kind


def test_a_device_is_checked() -> None:
    for device in ("cpu", "torch", "meta"):
        check_device(device)
    with pytest.raises(InvalidParameter, match=r"'device' parameter of fit.*Got 'nowhere'"):
        check_device("nowhere")
    with pytest.raises(InvalidParameter, match=r"'mixed_precision'.*must be False on the cpu"):
        check_device("cpu", mixed_precision=True)


def test_the_device_of_a_checkpoint_may_be_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epochs of kernels are of no use to torch, nor the other way round: it begins anew."""
    task = vector_task(small_paper(repetitions=1, epochs=3, repartition_every=1))
    for first, second in (("cpu", "torch"), ("torch", "cpu")):
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "save", refuse)
            with pytest.raises(KeyboardInterrupt):
                learn_task(task, checkpoint=tmp_path / first, device=first)
        assert list((tmp_path / first).glob("epoch-*.npz"))
        found = learn_task(task, checkpoint=tmp_path / first, device=second)
        assert_same_repetitions(found, learn_task(task, device=second))


def refuse(*_: Any) -> None:
    raise KeyboardInterrupt


def test_affinity_by_the_item_alone_needs_no_table_of_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def needed(*_: Any) -> None:
        raise AssertionError("wanted_by takes 20 bytes for each pair")

    monkeypatch.setattr(Problem, "wanted_by", needed)
    learn_task(vector_task(small_paper(affinity="item")))


def test_each_worker_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert runs.list_devices("cuda", 8) == [f"cuda:{number}" for number in range(8)]
    assert runs.list_devices("cuda", 10)[8:] == ["cuda:0", "cuda:1"]
    assert runs.list_devices("cuda:3", 2) == ["cuda:3", "cuda:3"]


def test_a_worker_learns_on_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes take what is listed for them: one that torch does not know is told of."""
    monkeypatch.setattr(runs, "list_devices", lambda device, workers: ["nowhere"] * workers)
    task = vector_task(small_paper(repetitions=2, epochs=1))
    with pytest.raises(RuntimeError, match="nowhere"):
        learn_task(task, workers=2, checkpoint=tmp_path)


def test_mixed_precision_learns_nearly_the_same() -> None:
    task = vector_task(small_paper(repetitions=1))
    full, mixed = (
        learn_task(
            task._replace(recipe=dataclasses.replace(task.recipe, mixed_precision=each)),
            device="torch",
        )[0]
        for each in (False, True)
    )
    last = [each.history[-1]["recall"] for each in (full, mixed)]
    assert last[1] > last[0] - 0.1
    assert not np.array_equal(full.router.weights, mixed.router.weights)
    assert mixed.router.weights.dtype == np.float32
