"""The state of a learner between two epochs, as plain arrays. From it, learning can go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from irli.base.types import Arrays
from irli.learning.devices import CPU
from irli.learning.partition import Partition

if TYPE_CHECKING:
    from irli.learning.training import Learner

_NETWORK = "network."


def pack_state(learner: Learner, epoch: int) -> Arrays:
    """Return all that the epochs after `epoch` depend on, besides problem and recipe."""
    arrays = {f"{_NETWORK}{name}": value for name, value in learner.network.state().items()}
    for head in learner.heads:
        arrays[f"assignment.{head.place}"] = head.partition.assignment
    weights = learner.network.weights
    said = {
        "epoch": epoch,
        "soften": [weights.near, weights.most, weights.slope],
        "rng": learner.rng.bit_generator.state,
        "heads": [{"moving": head.moving, "history": head.history} for head in learner.heads],
    }
    arrays["json"] = np.frombuffer(json.dumps(said).encode(), dtype=np.uint8)
    return arrays


def can_go_on(arrays: Arrays, device: str) -> bool:
    """Whether a network on `device` can go on from a state: kernels and torch keep other arrays."""
    return (f"{_NETWORK}count" in arrays) == (device == CPU)


def read_heads(arrays: Arrays, buckets: int) -> list[dict[str, Any]]:
    """Return the partition of each head, whether it moves, and its history."""
    return [
        {**said, "partition": Partition(buckets, arrays[f"assignment.{place}"])}
        for place, said in enumerate(_read_json(arrays)["heads"])
    ]


def read_soften(arrays: Arrays) -> tuple[float, float, float]:
    """Return how far queries are less sure: see `Weights`."""
    near, most, slope = _read_json(arrays)["soften"]
    return near, most, slope


def unpack_state(learner: Learner, arrays: Arrays) -> int:
    """Set weights and random generators as they were. Return the finished epoch."""
    said = _read_json(arrays)
    network = {
        name.removeprefix(_NETWORK): value
        for name, value in arrays.items()
        if name.startswith(_NETWORK)
    }
    learner.network.restore(network)
    learner.rng.bit_generator.state = said["rng"]
    return int(said["epoch"])


def _read_json(arrays: Arrays) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(arrays["json"].tobytes())
    return said
