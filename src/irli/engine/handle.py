"""`Engine`: an index layout and a thread's scratch memory, passed to kernels as one pointer.

Passing their arrays one by one, about sixty of them, would take a quarter of a search.
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
    """A structure of two named tuples of arrays. Only kernels can read its fields.

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
    """Make an engine of an index layout and the scratch memory of one thread."""
    return Engine(layout, scratch)  # type: ignore[no-untyped-call]
