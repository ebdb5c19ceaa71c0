"""Growing: rankers side by side."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from plantedlabels import random_ranker, random_rows

from irli.labels.grow import join_rankers


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), old=st.integers(1, 9), new=st.integers(1, 9))
def test_joined_rankers_are_those_side_by_side(seed: int, old: int, new: int) -> None:
    one, other = random_ranker(old, 7, seed=seed), random_ranker(new, 7, seed=seed + 1)
    X = random_rows(5, 7, seed=seed)
    both = join_rankers(one, other)
    right = np.hstack([one.margins(X), other.margins(X)])
    np.testing.assert_allclose(both.margins(X), right, rtol=1e-5, atol=1e-5)
    assert both.starts.dtype == np.int64
    assert both.gaps.dtype == np.uint16
    assert both.weights.dtype == np.int8
    assert both.scale.dtype == both.bias.dtype == np.float32
