"""An index and the memory of one thread, handed to compiled code as one pointer.

Handing over their 59 arrays one by one takes 10 µs, a quarter of a whole search.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.experimental import structref
from numpy.typing import NDArray

from irli.compiled import kernel, read_only
from irli.frozen import Frozen, Scratch, make_scratch


@structref.register
class _EngineType(types.StructRef):
    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class Engine(structref.StructRefProxy):
    """A structure whose fields only kernels can read."""

    frozen: Frozen
    scratch: Scratch


structref.define_constructor(Engine, _EngineType, ["frozen", "scratch"])
structref.define_boxing(_EngineType, Engine)


@kernel
def _make(frozen: Frozen, scratch: Scratch) -> Engine:
    return Engine(frozen, scratch)  # type: ignore[no-untyped-call]


class Seat(NamedTuple):
    """What one thread needs to search."""

    engine: Engine
    scratch: Scratch  # the engine's
    row: NDArray[np.float32]  # (d,): a place for a single query
    query: NDArray[np.float32]  # (1, d): the same, as kernels take it


def make_seat(frozen: Frozen) -> Seat:
    """Allocate the memory of one thread."""
    scratch = make_scratch(frozen)
    row = np.zeros(frozen.vectors.shape[1], dtype=np.float32)
    return Seat(_make(frozen, scratch), scratch, row, read_only(row[None]))
