"""Phase 3, assemble_labels: join routers, partitions and ranker; read them back from a layout."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.engine.int8 import round_rows, tile, unround_rows, untile
from irli.engine.label_layout import LabelLayout
from irli.engine.router import Router, make_router
from irli.labels.ranking.near_rows import NO_ROWS, NearRows
from irli.labels.ranking.ranker import Ranker
from irli.learning.partition import Partition
from irli.learning.repetition import Repetition

log = get_logger(__name__)

_UNSEEN = 0.1  # rows added to the count of each label, so that no prior is zero


def assemble_labels(repetitions: list[Repetition], counts: NDArray[np.int64]) -> LabelLayout:
    """Return the layout of an index without a ranker.

    Parameters
    ----------
    counts : int array of shape (L,)
        The number of rows of each label. Within a bucket, common labels are more probable.
    """
    routers = [repetition.router for repetition in repetitions]
    partitions = [repetition.partition for repetition in repetitions]
    weight = counts + _UNSEEN
    offsets, items, shares = [], [], []
    prior = np.zeros(len(counts))
    begin = 0
    for partition in partitions:
        starts, labels = partition.invert()
        bucket = np.repeat(np.arange(partition.buckets), np.diff(starts))
        total = np.bincount(bucket, weights=weight[labels], minlength=partition.buckets)
        share = weight[labels] / total[bucket]
        np.add.at(prior, labels, np.log(share) / len(partitions))
        offsets.append(starts + begin)
        items.append(labels)
        shares.append(share)
        begin += len(labels)
    shared = all(router.project is routers[0].project for router in routers)
    trunks = routers[:1] if shared else routers
    project, project_scale = round_rows(np.stack([router.project for router in trunks]))
    out, out_scale = round_rows(np.stack([router.weights.T for router in routers]))
    out = np.stack([tile(weights.T) for weights in out])
    log.info("assembled: %d entries of %d labels", begin, len(counts))
    return LabelLayout(
        project=project,
        project_scale=project_scale,
        shift=np.stack([router.shift for router in trunks]),
        out=out,
        out_scale=out_scale,
        bias=np.stack([router.bias for router in routers]),
        offsets=np.stack(offsets),
        items=np.concatenate(items),
        share=np.concatenate(shares).astype(np.float32),
        prior=prior.astype(np.float32),
        starts=np.zeros(1, dtype=np.int64),
        gaps=np.empty(0, dtype=np.uint16),
        weights=np.empty(0, dtype=np.int8),
        scale=np.empty(0, dtype=np.float32),
        constant=np.empty(0, dtype=np.float32),
        **_name_near_rows(NO_ROWS),
    )


def add_ranker(layout: LabelLayout, ranker: Ranker) -> LabelLayout:
    """Return the layout with a ranker added."""
    return layout._replace(
        starts=ranker.starts,
        gaps=ranker.gaps,
        weights=ranker.weights,
        scale=ranker.scale,
        constant=ranker.bias,
    )


def add_near_rows(layout: LabelLayout, known: NearRows) -> LabelLayout:
    """Return the layout with rows that vote for their labels."""
    return layout._replace(**_name_near_rows(known))


def _name_near_rows(known: NearRows) -> dict[str, NDArray[Any]]:
    """Return the arrays by their names in a layout."""
    return {f"near_{name}": array for name, array in known._asdict().items()}


# --- from a layout back to its parts ---------------------------------------------------------


def read_repetitions(layout: LabelLayout) -> list[Repetition]:
    """Return the routers and partitions of a layout, so that learning can continue."""
    pairs = zip(read_routers(layout), read_partitions(layout), strict=True)
    return [Repetition(router, partition, []) for router, partition in pairs]


def read_routers(layout: LabelLayout) -> list[Router]:
    """Return the routers of a layout. Routers with a shared trunk share its arrays."""
    project = unround_rows(layout.project, layout.project_scale)
    shape = layout.shift.shape[1], layout.bias.shape[1]
    out = np.stack([untile(weights, *shape).T for weights in layout.out])
    heads = unround_rows(out, layout.out_scale)
    # `assemble_labels` recognises a shared trunk by identity: make each pair of arrays once.
    trunks = list(zip(project, layout.shift, strict=True))
    return [
        make_router(*trunks[min(r, len(trunks) - 1)], 0, out.T, layout.bias[r])
        for r, out in enumerate(heads)
    ]


def read_partitions(layout: LabelLayout) -> list[Partition]:
    """Return the partitions of a layout."""
    found = []
    for offsets in layout.offsets:
        labels = layout.items[offsets[0] : offsets[-1]]
        bucket = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
        order = np.argsort(labels, kind="stable")
        label = labels[order]
        column = np.arange(len(label)) - np.searchsorted(label, label)
        assignment = np.full((len(layout.prior), int(column.max()) + 1), -1, dtype=np.int32)
        assignment[label, column] = bucket[order]
        found.append(Partition(len(offsets) - 1, assignment))
    return found


def read_near_rows(layout: LabelLayout) -> NearRows:
    """Return the known rows of a layout, of which there may be none."""
    return NearRows(*(getattr(layout, f"near_{name}") for name in NearRows._fields))


def read_ranker(layout: LabelLayout) -> Ranker:
    """Return the ranker of a layout that has one."""
    return Ranker(layout.starts, layout.gaps, layout.weights, layout.scale, layout.constant)
