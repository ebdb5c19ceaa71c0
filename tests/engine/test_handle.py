"""What an engine holds: an index and the memory of one thread."""

from __future__ import annotations

import gc
import weakref

import numpy as np
from planted import assemble_layout, random_partition, random_router

from irli.base.memory import read_only
from irli.engine.handle import make_engine
from irli.engine.vector_layout import make_scratch


def test_an_index_is_released_with_its_last_engine() -> None:
    X = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    layout = assemble_layout([random_router(5, 4)], [random_partition(20, 4)], X)
    vectors = read_only(np.array(X))
    there = weakref.ref(vectors)
    scratch = make_scratch(layout)
    one, other = (make_engine(layout._replace(vectors=vectors), scratch) for _ in range(2))
    del vectors, one
    gc.collect()
    assert there() is not None
    del other
    gc.collect()
    assert there() is None
