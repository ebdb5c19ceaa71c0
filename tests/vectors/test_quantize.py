"""The form in which routers serve: 8 bits, unless that costs too much."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import irli
from irli.engine.vector_layout import VectorLayout
from irli.vectors.searcher import Searcher


def make_places(dense: float) -> NDArray[np.float32]:
    """Return points around 60 places, each `dense` times as wide as the whole."""
    rng = np.random.default_rng(0)
    places = np.repeat(rng.normal(size=(60, 1, 20)), 50, axis=1)
    return (places + dense * rng.normal(size=(60, 50, 20))).reshape(-1, 20).astype(np.float32)


def learn(points: NDArray[np.float32], **changes: object) -> irli.VectorIndex:
    recipe = irli.recipe("default", buckets=256, epochs=2, **changes)
    return irli.VectorIndex(recipe=recipe).fit(points)


def get_layout(index: irli.VectorIndex) -> VectorLayout:
    searcher = index._fitted().searcher
    assert searcher is not None
    return searcher.layout


def weights_have_8_bits(index: irli.VectorIndex) -> bool:
    return get_layout(index).bytes.size > 0


@pytest.mark.parametrize("scoring", ["full", "int8"])
def test_routers_have_the_form_of_the_recipe(scoring: str) -> None:
    """The same network, scored in other ways."""
    points = make_places(dense=1.0)
    layouts = [get_layout(learn(points, scoring=each)) for each in (scoring, "full")]
    assert (layouts[0].bytes.size > 0) == (scoring == "int8")
    got, right = (Searcher(layout).route(points)[:, 0] for layout in layouts)
    assert np.abs(got - right).mean() <= 0.1 * right.std()
    chosen = np.take_along_axis(right, got.argmax(axis=1)[:, None], axis=1)[:, 0]
    assert (chosen > right.max(axis=1) - 0.5).mean() > 0.95


def test_routers_have_8_bits_where_that_is_enough() -> None:
    assert weights_have_8_bits(learn(make_places(dense=1.0)))
    assert not weights_have_8_bits(learn(make_places(dense=1.0), scoring="full"))


def test_routers_have_floats_where_places_are_too_dense_for_8_bits() -> None:
    """Within a place, buckets differ by a thousandth of the distance between two places."""
    points = make_places(dense=1e-3)
    index = learn(points)
    assert not weights_have_8_bits(index)
    assert index.tuned is not None
    assert index.tuned.reached
    assert index.tuned.scanned < 1000
    assert (index.search(points, k=1).ids[:, 0] == np.arange(len(points))).mean() > 0.999
