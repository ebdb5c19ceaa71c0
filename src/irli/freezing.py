"""From what was learned, or saved, to an index as the kernels read it, and back to arrays."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.codes import choose_pieces, code_items
from irli.config import Recipe
from irli.frozen import DOT, L2, Coded, Frozen, Lens, Rounded
from irli.lens import make_lens, no_lens
from irli.partition import Partition
from irli.rounded import LONG, not_rounded, round_items
from irli.router import ARRAYS, Router, pack, unpack

_SAMPLE = 4096  # vectors that show what queries are like
_CODING = 1 << 20  # sets the random numbers of codes apart from those of any repetition


def freeze(
    vectors: NDArray[np.float32],
    metric: str,
    recipe: Recipe,
    routers: list[Router],
    partitions: list[Partition],
) -> tuple[Frozen, Recipe]:
    """Put an index together; the recipe comes back with the pieces of its codes filled in."""
    lists = [partition.inverted() for partition in partitions]
    starts = np.cumsum([0] + [len(items) for _, items in lists[:-1]])
    offsets = np.stack([part + start for (part, _), start in zip(lists, starts, strict=True)])
    items = np.concatenate([items for _, items in lists])
    rng = np.random.default_rng([recipe.seed, _CODING])
    if recipe.pieces is None:
        recipe = dataclasses.replace(recipe, pieces=choose_pieces(vectors, rng))
    coded = code_items(vectors, metric == "l2", recipe.pieces or 0, offsets, items, rng)
    rounded = not_rounded(vectors.shape[1])
    if recipe.pieces and vectors.shape[1] >= LONG:
        rounded = round_items(vectors, metric == "l2", rng)
    tensors = pack(routers)
    frozen = _assembled(vectors, metric, tensors, routers[0], offsets, items, coded, rounded)
    return frozen, recipe


def _assembled(
    vectors: NDArray[np.float32],
    metric: str,
    tensors: dict[str, NDArray[Any]],
    router: Router,
    offsets: NDArray[np.int64],
    items: NDArray[np.int32],
    coded: Coded,
    rounded: Rounded,
) -> Frozen:
    return Frozen(
        **tensors,
        lens=_lens(vectors, tensors, coded),
        linear=router.linear,
        depths=router.depths,
        keeps=router.keeps,
        offsets=offsets,
        items=items,
        vectors=vectors,
        coded=coded,
        rounded=rounded,
        metric=L2 if metric == "l2" else DOT,
    )


def _lens(vectors: NDArray[np.float32], tensors: dict[str, NDArray[Any]], coded: Coded) -> Lens:
    """Return what routers and codes see of a query, if the routers are compact."""
    if tensors["bytes"].size == 0:
        return no_lens()
    matrices, shifts = [*tensors["project"], coded.turn], [*tensors["shift"], coded.shift]
    sample = np.asarray(vectors[:: max(1, len(vectors) // _SAMPLE)])
    return make_lens(sample, np.concatenate(matrices, axis=1), np.concatenate(shifts))


# --- folders ---------------------------------------------------------------------------------


def to_arrays(frozen: Frozen) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], Any]:
    """Return the large arrays of an index, the tensors of its routers, and what is neither."""
    arrays: dict[str, NDArray[Any]] = {
        "vectors": frozen.vectors,
        "offsets": frozen.offsets,
        "items": frozen.items,
        **{f"code_{name}": value for name, value in frozen.coded._asdict().items()},
    }
    if len(frozen.rounded.bytes):
        arrays |= {f"rounded_{name}": v for name, v in frozen.rounded._asdict().items()}
    tensors = {name: value for name, value in frozen._asdict().items() if name in ARRAYS}
    stages = np.stack([frozen.depths, frozen.keeps], axis=1).tolist()
    return arrays, tensors, {"linear": frozen.linear, "stages": stages}


def from_arrays(
    arrays: dict[str, NDArray[Any]], tensors: dict[str, NDArray[Any]], meta: Any
) -> Frozen:
    """Undo `to_arrays`; `meta` also names the metric."""
    rounded = not_rounded(arrays["vectors"].shape[1])
    if "rounded_bytes" in arrays:
        rounded = Rounded(**{name: arrays[f"rounded_{name}"] for name in Rounded._fields})
    return _assembled(
        arrays["vectors"],
        meta["metric"],
        tensors,
        unpack(tensors, meta["linear"], meta["stages"])[0],
        arrays["offsets"],
        arrays["items"],
        Coded(**{name: arrays[f"code_{name}"] for name in Coded._fields}),
        rounded,
    )
