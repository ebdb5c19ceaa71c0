"""The shapes of data are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from bench.guarantees.shapes import SHAPES, make_shape, make_strange_queries


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_is_finite_and_fixed_by_its_seed(name: str) -> None:
    base, queries, metric = make_shape(name, 300, queries=20)
    assert base.dtype == queries.dtype == np.float32
    assert len(base) == 300
    assert queries.shape == (20, base.shape[1])
    assert np.isfinite(base).all()
    assert metric in ("l2", "cosine", "ip")
    assert (np.linalg.norm(base, axis=1) > 0).all() or metric != "cosine"
    again, other = make_shape(name, 300, queries=20), make_shape(name, 300, seed=1)
    assert np.array_equal(base, again.base)
    assert np.array_equal(queries, again.queries)
    assert not np.array_equal(base, other.base)


@pytest.mark.parametrize("kind", ["between", "noise", "far"])
def test_strange_queries_lie_where_they_should(kind: str) -> None:
    shape = make_shape("clusters 48", 1000)
    strange = make_strange_queries(shape, kind, count=30)
    assert strange.shape == (30, 48)

    def nearest(queries: np.ndarray) -> np.ndarray:
        gaps = queries[:, None] - shape.base[None]
        return np.sqrt((gaps**2).sum(axis=2)).min(axis=1)

    assert nearest(strange).mean() > 2 * nearest(shape.queries[:30]).mean()


def test_copies_are_exact() -> None:
    base = make_shape("copies", 1000).base
    assert len(np.unique(base, axis=0)) <= 50
