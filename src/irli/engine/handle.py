"""An index and the memory of one thread, handed to compiled code as one pointer.

Handing over their arrays one by one, some sixty of them, takes a quarter of a whole search.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.experimental import structref

from irli.engine.jit import kernel


@structref.register
class _EngineType(types.StructRef):
    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class Engine(structref.StructRefProxy):
    """A structure whose fields only kernels can read, named tuples of arrays.

    Attributes
    ----------
    layout : VectorLayout or LabelLayout
    scratch : Scratch or LabelScratch
    """

    layout: Any
    scratch: Any


structref.define_constructor(Engine, _EngineType, ["layout", "scratch"])
structref.define_boxing(_EngineType, Engine)


@kernel
def make_engine(layout: Any, scratch: Any) -> Engine:
    """Put an index and the memory of one thread together."""
    return Engine(layout, scratch)  # type: ignore[no-untyped-call]
