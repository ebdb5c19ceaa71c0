"""Damage to index folders in memory, where no checksum notices it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.base.folder import Folder, read_folder
from irli.labels.ranking.near_rows import NearRows

FOLDERS = Path(__file__).parent / "data" / "format-1"
DTYPES = ("f4", "f8", "i1", "u1", "i4", "i8", "u8", "bool")

Array = NDArray[Any]


def read(name: str) -> Folder:
    """Return a folder of the test data in memory, or one made from it: see the branches."""
    if name == "floats":
        return _give_floats(read("codes"))
    if name == "int8-l2":
        folder = change_meta(read("int8"), metric="l2")
        items = len(folder.arrays["vectors"])
        return change(folder, "int8_lengths", lambda array: np.zeros(items, array.dtype))
    if name == "near":
        return _add_near_rows(read("features"))
    return read_folder(FOLDERS / name, mmap=False)


def _add_near_rows(folder: Folder) -> Folder:
    """Return a label index of the present format: with near rows, and with scaled rows."""
    dim, labels = folder.meta["dim"], len(folder.arrays["prior"])
    rng = np.random.default_rng(0)
    rows = sp.csr_array((rng.random((20, dim)) < 0.3).astype(np.float32))
    carried = sp.csr_array((rng.random((20, labels)) < 0.2).astype(np.float32))
    known = NearRows.pack(rows, carried)
    arrays = {f"near_{name}": array for name, array in known._asdict().items()}
    ones = np.ones(dim, dtype=np.float32)
    arrays |= {"factors": ones, "means": 0 * ones}
    meta = folder.meta | {
        "calibration": folder.meta["calibration"] | {"by_votes": 0.3, "own": True},
        "alone": {"by_margin": 0.0, "by_score": 1.5, "threshold": -1.0, "curve": []},
        "defaults": folder.meta["defaults"] | {"near": 7},
        "scaling": "standard",
        "cost": 0.5,
        "prune": 0.02,
        "objective": "propensity",
    }
    return Folder(folder.kind, meta, folder.arrays | arrays, folder.tensors)


def _give_floats(folder: Folder) -> Folder:
    """Return an index whose routers have floats instead of 8-bit weights."""
    repetitions, buckets = folder.tensors["bias"].shape
    width = folder.tensors["shift"].shape[1]
    weights = np.random.default_rng(0).normal(size=(repetitions, width, buckets))
    folder = change(folder, "weights", lambda array: weights.astype(array.dtype))
    folder = change(folder, "bytes", lambda array: array[:, :0, :0])
    return change(folder, "zero", lambda array: array[:, :0])


def change(folder: Folder, name: str, edit: Callable[[Array], Array]) -> Folder:
    """Return the folder with one of its arrays or tensors edited."""
    arrays, tensors = dict(folder.arrays), dict(folder.tensors)
    part = arrays if name in arrays else tensors
    part[name] = edit(part[name].copy())
    return dataclasses.replace(folder, arrays=arrays, tensors=tensors)


def change_meta(folder: Folder, **changes: Any) -> Folder:
    """Return the folder with some of its plain values replaced."""
    return dataclasses.replace(folder, meta=folder.meta | changes)


def put(place: Any, value: Any) -> Callable[[Array], Array]:
    """Return an edit that sets an entry."""

    def edit(array: Array) -> Array:
        array[place] = value
        return array

    return edit


class Edit(NamedTuple):
    """A random edit of entries, of the shape or of the dtype of an array."""

    kind: str
    seed: int

    def __call__(self, array: Array) -> Array:
        return EDITS[self.kind](array, np.random.default_rng(self.seed))


def edits() -> st.SearchStrategy[Edit]:
    """Draw an edit."""
    return st.builds(Edit, st.sampled_from(sorted(EDITS)), st.integers(0, 2**32 - 1))


def _set_entries(array: Array, rng: np.random.Generator) -> Array:
    if array.size == 0 or array.dtype == bool:
        return array
    places = rng.integers(array.size, size=rng.integers(1, 6))
    values: Array
    if array.dtype.kind == "f":
        values = rng.choice([np.nan, np.inf, -np.inf, 3e38, -1e30, 0.0, 1e-45], len(places))
    else:
        info = np.iinfo(array.dtype)
        values = rng.choice([info.min, -1, 0, 1, 7, 500, 70_000, info.max], len(places))
    array.reshape(-1)[places] = values.astype(array.dtype)
    return array


def _set_near(array: Array, rng: np.random.Generator) -> Array:
    """Entries that are wrong by a little."""
    if array.size and array.dtype.kind in "iu":
        place = rng.integers(array.size)
        array.reshape(-1)[place] += array.dtype.type(rng.choice([-1, 1, 2]))
    return array


def _cut(array: Array, rng: np.random.Generator) -> Array:
    axis = int(rng.integers(array.ndim))
    return np.ascontiguousarray(np.delete(array, np.s_[-1:], axis=axis))


def _lengthen(array: Array, rng: np.random.Generator) -> Array:
    axis = int(rng.integers(array.ndim))
    wanted = [(0, int(number == axis)) for number in range(array.ndim)]
    return np.pad(array, wanted)


def _reshape(array: Array, rng: np.random.Generator) -> Array:
    shapes = [(-1,), (1, *array.shape), (*array.shape, 1), array.shape[::-1]]
    return array.reshape(shapes[rng.integers(len(shapes))]) if array.size else array[..., None]


def _convert(array: Array, rng: np.random.Generator) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(rng.choice(DTYPES))


EDITS = {
    "entries": _set_entries,
    "near": _set_near,
    "cut": _cut,
    "lengthen": _lengthen,
    "reshape": _reshape,
    "convert": _convert,
    "empty": lambda array, rng: array[:0],
}
