"""Label indexes put together from repetitions, and taken apart again."""

from __future__ import annotations

import numpy as np
import pytest
from planted import random_partition, random_router
from plantedlabels import random_label_layout, random_ranker

from irli.labels.build.assemble import (
    add_ranker,
    assemble_labels,
    read_partitions,
    read_ranker,
    read_repetitions,
    read_routers,
)
from irli.learning.repetition import Repetition


@pytest.mark.parametrize("per_item", [1, 2])
def test_shares_and_priors(per_item: int) -> None:
    """Within a bucket, a label's share is that of its rows; unseen labels have a little."""
    counts = np.array([0, 3, 1, 7, 0, 2])
    partitions = [random_partition(6, 3, per_item, seed=r) for r in range(2)]
    group = [Repetition(random_router(4, 3, seed=r), partitions[r], []) for r in range(2)]
    layout = assemble_labels(group, counts)
    prior = np.zeros(6)
    for r, partition in enumerate(partitions):
        for b in range(3):
            held = np.flatnonzero((partition.assignment == b).any(axis=1))
            weight = counts[held] + 0.1
            part = slice(layout.offsets[r, b], layout.offsets[r, b + 1])
            np.testing.assert_array_equal(layout.items[part], held)
            np.testing.assert_allclose(layout.share[part], weight / weight.sum(), rtol=1e-5)
            prior[held] += np.log(weight / weight.sum()) / 2
    np.testing.assert_allclose(layout.prior, prior, rtol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("per_item", [1, 2])
def test_what_is_read_back_makes_the_same_index(shared: bool, per_item: int) -> None:
    """Rounded weights stay as they are, and so does which routers share a trunk."""
    layout = random_label_layout(40, 70, shared=shared, per_item=per_item)
    routers = read_routers(layout)
    assert (routers[0].project is routers[1].project) == shared
    counts = np.random.default_rng(0).integers(0, 9, size=40)  # as the layout was made
    again = assemble_labels(read_repetitions(layout), counts)
    for name in ("project", "out", "shift", "bias", "offsets", "items"):
        np.testing.assert_array_equal(getattr(again, name), getattr(layout, name), err_msg=name)
    for name in ("project_scale", "out_scale", "share", "prior"):
        one, other = getattr(again, name), getattr(layout, name)
        np.testing.assert_allclose(one, other, rtol=1e-5, err_msg=name)
    for r, partition in enumerate(read_partitions(layout)):
        right = random_partition(40, 70, per_item, seed=r).assignment
        np.testing.assert_array_equal(np.sort(partition.assignment), np.sort(right))


def test_a_ranker_is_read_back() -> None:
    ranker = random_ranker(50, 12)
    again = read_ranker(add_ranker(random_label_layout(), ranker))
    for one, other in zip(again, ranker, strict=True):
        assert one is other
