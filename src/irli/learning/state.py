"""The state of a learner between two epochs, as plain arrays. From it, learning can go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from irli.base.types import Arrays
from irli.learning.partition import Partition

if TYPE_CHECKING:
    from irli.learning.training import Learner


def pack_state(learner: Learner, epoch: int) -> Arrays:
    """Return all that the epochs after `epoch` depend on, besides problem and recipe."""
    weights = learner.network.state_dict()
    arrays = {f"network.{name}": weights[name].cpu().numpy() for name in weights}
    for number, optimizer in enumerate(learner.optimizers):
        for parameter, values in optimizer.state_dict()["state"].items():
            for name, value in values.items():
                arrays[f"optimizer.{number}.{parameter}.{name}"] = (
                    torch.as_tensor(value).cpu().numpy()
                )
    for head in learner.heads:
        arrays[f"assignment.{head.place}"] = head.partition.assignment
    arrays["torch"] = torch.get_rng_state().numpy()
    said = {
        "epoch": epoch,
        "rates": [optimizer.param_groups[0]["lr"] for optimizer in learner.optimizers],
        "steps": [schedule.last_epoch for schedule in learner.schedules],
        "rng": learner.rng.bit_generator.state,
        "heads": [{"moving": head.moving, "history": head.history} for head in learner.heads],
    }
    arrays["json"] = np.frombuffer(json.dumps(said).encode(), dtype=np.uint8)
    return arrays


def read_heads(arrays: Arrays, buckets: int) -> list[dict[str, Any]]:
    """Return the partition of each head, whether it moves, and its history."""
    return [
        {**said, "partition": Partition(buckets, arrays[f"assignment.{place}"])}
        for place, said in enumerate(_read_json(arrays)["heads"])
    ]


def unpack_state(learner: Learner, arrays: Arrays) -> int:
    """Set weights, optimizers and random generators as they were. Return the finished epoch."""
    said = _read_json(arrays)
    weights = {name: torch.from_numpy(value) for name, value in _cut(arrays, "network.").items()}
    learner.network.load_state_dict(weights)
    learner.network.softens = bool(weights["near"] > 0)
    for number, optimizer in enumerate(learner.optimizers):
        state: dict[int, dict[str, torch.Tensor | int]] = {}
        for key, value in _cut(arrays, f"optimizer.{number}.").items():
            parameter, name = key.split(".")
            # SparseAdam counts its steps with a number, Adam with a tensor of floats.
            kept = int(value) if value.dtype.kind == "i" else torch.from_numpy(value)
            state.setdefault(int(parameter), {})[name] = kept
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        optimizer.param_groups[0]["lr"] = said["rates"][number]
    for schedule, steps in zip(learner.schedules, said["steps"], strict=True):
        schedule.last_epoch = steps
    learner.rng.bit_generator.state = said["rng"]
    torch.set_rng_state(torch.from_numpy(arrays["torch"]))
    return int(said["epoch"])


def _read_json(arrays: Arrays) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(arrays["json"].tobytes())
    return said


def _cut(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names start with a prefix, without it."""
    return {n.removeprefix(prefix): value for n, value in arrays.items() if n.startswith(prefix)}
