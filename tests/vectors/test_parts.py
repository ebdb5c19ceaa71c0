"""Answers of parts, put together as if there were one index."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irli.vectors.parts.merge import merge
from irli.vectors.results import SearchResult


@pytest.mark.parametrize("metric", ["l2", "ip"])
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_merging_sorts_and_pads(metric: str, data: st.DataObject) -> None:
    sign = -1.0 if metric == "ip" else 1.0
    k, shards = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    parts, everything = [], []
    for shard in range(shards):
        count = data.draw(st.integers(0, k))
        numbers = st.sampled_from([0.0, 1.0, 2.0, np.inf])
        far = sorted(data.draw(st.lists(numbers, min_size=count, max_size=count)))
        ids = [100 * shard + place for place in range(count)]
        everything += list(zip(far, ids, strict=True))
        parts.append(
            SearchResult(
                sign * np.array([far + [np.inf] * (k - count)], dtype=np.float32),
                np.array([ids + [-1] * (k - count)]),
            )
        )
    right = sorted(everything)[:k]  # ties: the earlier item
    distances, ids = merge(parts, k, metric)
    right += [(np.inf, -1)] * (k - len(right))
    assert ids[0].tolist() == [id for _, id in right]
    assert distances[0].tolist() == [sign * far for far, _ in right]
