"""What an index folder keeps of a label index."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.config import Recipe
from irli.errors import FormatError
from irli.fusion import Fusion
from irli.labelfit import Learned
from irli.labelkernels import FrozenLabels
from irli.labelling import LabelParameters
from irli.lens import tiles
from irli.storage import Folder
from irli.text import Names, Vectorizer

KIND = "labels"
_TENSORS = ("project", "project_scale", "shift", "out", "out_scale", "bias")
_ARRAYS = tuple(name for name in FrozenLabels._fields if name not in _TENSORS)


class Contents(NamedTuple):
    """Everything that there is to keep."""

    recipe: Recipe
    learned: Learned
    history: list[dict[str, Any]]
    rows: int
    dim: int
    counts: NDArray[np.int64]
    trained: NDArray[np.uint64]
    names: Names | None
    vectorizer: Vectorizer | None
    want_ranker: bool | None


def pack(contents: Contents) -> Folder:
    """Return the contents as arrays and plain values."""
    learned = contents.learned
    frozen = learned.frozen._asdict()
    names = {} if contents.names is None else contents.names.state()
    vectorizer = contents.vectorizer
    text, words = (None, {}) if vectorizer is None else vectorizer.state()
    meta = {
        "recipe": dataclasses.asdict(contents.recipe),
        "defaults": dataclasses.asdict(learned.parameters),
        "fusion": learned.fusion._asdict(),
        "history": contents.history,
        "rows": contents.rows,
        "dim": contents.dim,
        "text": text,
        "ranker": contents.want_ranker,
    }
    arrays = {name: frozen[name] for name in _ARRAYS} | {
        "counts": contents.counts,
        "trained": contents.trained,
    }
    tensors = {name: frozen[name] for name in _TENSORS}
    return Folder(KIND, meta, arrays | names | words, tensors)


def unpack(folder: Folder) -> Contents:
    """Return what `pack` has put into a folder, or say what is wrong with it."""
    if folder.kind != KIND:
        raise FormatError(
            f"The folder must hold an index of kind '{KIND}'. Got '{folder.kind}' instead. "
            "Open it with irli.load."
        )
    meta, arrays = folder.meta, folder.arrays
    own = {name: arrays[name] for name in _ARRAYS if name in arrays}
    try:
        return Contents(
            Recipe(**meta["recipe"]),
            Learned(
                FrozenLabels(**_laid(folder.tensors), **own),
                LabelParameters(**meta["defaults"]),
                Fusion(**meta["fusion"]),
            ),
            meta["history"],
            meta["rows"],
            meta["dim"],
            arrays["counts"],
            arrays["trained"],
            Names.from_state(arrays) if "names" in arrays else None,
            None if meta["text"] is None else Vectorizer.from_state(meta["text"], arrays),
            meta["ranker"],
        )
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"The index folder lacks or misstates something that its version needs: {error}. "
            "Build the index again, or open it with the version of irli that wrote it."
        ) from error


def _laid(tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors, with the weights of older folders laid out as the kernels read them."""
    out = tensors["out"]
    if out.ndim == 3:
        out = np.stack([tiles(weights.T) for weights in out])
    return {**tensors, "out": out}
