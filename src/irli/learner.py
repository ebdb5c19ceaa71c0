"""Learning needs torch, searching does not: the way to the one from the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from irli.errors import InvalidParameter, MissingDependency


def learner(device: str) -> Callable[..., list[Any]]:
    """Return `repetitions.learn`, if torch is there and can use `device`."""
    try:
        import torch

        from irli.repetitions import learn
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"Learning an index needs {error.name}, which is not installed. "
            "Install it with: pip install 'irli[train]'"
        ) from error
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidParameter(
            "The 'device' parameter of fit must be one that torch can use here. "
            f"Got '{device}' instead: {str(error).splitlines()[0]} Leave it out for the cpu."
        ) from error
    return learn
