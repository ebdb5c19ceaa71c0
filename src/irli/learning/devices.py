"""The devices that learning can use: the CPU by our kernels, or those of torch."""

from __future__ import annotations

from irli.errors import InvalidParameter, MissingDependency

CPU = "cpu"  # on which kernels learn
_TORCH = "torch"  # torch on the CPU: the reference of the kernels


def name_device(device: str) -> str:
    """Return the name that torch has for a device."""
    return CPU if device == _TORCH else device


def check_device(device: str, mixed_precision: bool = False) -> None:
    """Raise if torch is needed and not installed, or cannot use `device`."""
    if device == CPU:
        if mixed_precision:
            raise InvalidParameter(
                "The 'mixed_precision' parameter of the recipe must be False on the cpu, where "
                "kernels learn in float32. Got True instead. Leave it out, or pass device='cuda'."
            )
        return
    from irli.learning.threads import let_threads_sleep

    let_threads_sleep()
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"Learning on the device '{device}' needs {error.name}, which is not installed. "
            "Install it with: pip install 'irli[torch]'"
        ) from error
    try:
        torch.empty(0, device=name_device(device))
    except (RuntimeError, AssertionError) as error:
        raise InvalidParameter(
            "The 'device' parameter of fit must be 'cpu', 'torch', or one that torch can use here. "
            f"Got '{device}' instead: {str(error).splitlines()[0].rstrip('.')}. "
            "Leave it out for the cpu."
        ) from error
