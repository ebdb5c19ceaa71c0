"""open_parts: open the parts of an index in this process or on Ray.

To add a backend, write a class with the methods of `Serving`, and use it here.
"""

from __future__ import annotations

from pathlib import Path

from irli.base.checks import check_bool, check_float
from irli.base.parts.group import PartGroup
from irli.base.parts.local import LocalParts, Open, Serving
from irli.cluster.shards.ray_shards import RayShards


def open_parts(
    paths: list[Path],
    open_part: Open,
    *,
    ray: str | None,
    replicas: int,
    mmap: bool = True,
    verify: bool = False,
    kept: object = None,
) -> PartGroup:
    """Open the parts at these paths, in this process or, given an address, on Ray.

    `kept` is as for `PartGroup`.
    """
    serving: Serving
    if ray is None:
        serving = LocalParts(paths, open_part, mmap, verify)
    else:
        serving = RayShards(ray, paths, open_part, mmap, verify, replicas)
    return PartGroup(serving, kept=kept)


def check_deadline(deadline: float | None, partial: bool, *, owner: str) -> float | None:
    """Check the arguments about late shards, and return the deadline."""
    check_bool("partial", partial, owner=owner)
    if deadline is None:
        return None
    return check_float("deadline", deadline, at_least=0.0, owner=owner)
