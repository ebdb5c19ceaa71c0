"""Exact neighbours by torch, on a GPU: as `irli.engine.exact` finds them on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from irli.base.memory import release_pages
from irli.base.progress import Progress, track
from irli.learning.devices import name_device

_QUERIES, _ITEMS = 4096, 65_536  # of a tile


@torch.no_grad()
def torch_neighbors(
    queries: NDArray[np.float32],
    base: NDArray[np.float32],
    k: int,
    metric: str,
    *,
    rows: NDArray[np.int64],
    out: NDArray[Any],
    threads: int | None = None,
    progress: Progress = False,
    device: str,
) -> NDArray[Any]:
    """Find neighbours as `exact_neighbors` does, in float32. The base must fit the device.

    The largest q x - |x|^2 / 2 is the smallest |q - x|^2. For l2 the mean of the base is the
    origin, so that squares are small.
    """
    device = name_device(device)
    items = torch.empty(base.shape, dtype=torch.float32, device=device)
    for start in range(0, len(base), _ITEMS):
        part = np.array(base[start : start + _ITEMS])
        items[start : start + len(part)] = torch.from_numpy(part).to(device)
        release_pages(base)
    centre = items.mean(dim=0) if metric == "l2" else torch.zeros_like(items[0])
    items -= centre
    offset = items.square().sum(dim=1) / 2 if metric == "l2" else torch.zeros_like(items[:, 0])
    for start in track(range(0, len(queries), _QUERIES), progress, "exact neighbours"):
        stop = min(start + _QUERIES, len(queries))
        block = torch.from_numpy(np.array(queries[start:stop])).to(device) - centre
        own = torch.from_numpy(np.array(rows[start:stop])).to(device)[:, None]
        best = torch.full((stop - start, k), -torch.inf, device=device)
        found = torch.full((stop - start, k), -1, dtype=torch.int64, device=device)
        for low in range(0, len(items), _ITEMS):
            tile = items[low : low + _ITEMS]
            scores = block @ tile.T - offset[low : low + _ITEMS]
            number = torch.arange(low, low + len(tile), device=device)
            scores.masked_fill_(number == own, -torch.inf)
            values, places = scores.topk(min(k, len(tile)), dim=1)
            best, order = torch.cat([best, values], dim=1).topk(k, dim=1)
            found = torch.cat([found, low + places], dim=1).gather(1, order)
        out[start:stop] = found.masked_fill(best == -torch.inf, -1).cpu().numpy()
    return out
