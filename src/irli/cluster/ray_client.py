"""The way to Ray: joining or starting a cluster, and errors as if the work were done here."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from irli.errors import ClusterError, InvalidParameter, MissingDependency

_BY_ITSELF = ("auto", "local")  # addresses that Ray finds, or makes
_KNOCK = 5.0  # seconds for a cluster to answer


def connect(address: str) -> Any:
    """Return the module `ray`, connected: "auto" joins a running cluster or starts one here.

    A process that is connected to a cluster already stays with it. Ray's usage reports stay off
    unless RAY_USAGE_STATS_ENABLED says otherwise.
    """
    if not isinstance(address, str) or not address:
        raise InvalidParameter(
            "The 'ray' parameter must be None, 'auto' or the address of a Ray cluster. "
            f"Got {address!r} instead. Write for example ray='auto' or ray='10.0.0.1:6379'."
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A shard may run without a GPU on a machine that has one; Ray warns about it otherwise.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"An index over several machines needs {error.name}, which is not installed. "
            "Install it with: pip install 'irli[cluster]'"
        ) from error
    if address not in _BY_ITSELF:
        _check_answers(address)
    if ray.is_initialized():
        return ray
    try:
        ray.init(
            address=None if address == "auto" else address,
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _refuse(address, str(error).strip().splitlines()[0]) from error
    return ray


def _check_answers(address: str) -> None:
    """Knock at the address: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InvalidParameter(
            "The 'ray' parameter must be None, 'auto', or an address with a port. "
            f"Got '{address}' instead. Write for example ray='10.0.0.1:6379'."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK).close()
    except (OSError, OverflowError) as error:
        raise _refuse(address, str(error)) from error


def _refuse(address: str, why: str) -> ClusterError:
    return ClusterError(
        f"No Ray cluster answers at '{address}': {why}. Check the address and that 'ray status' "
        "works there, or use ray='auto' for this machine."
    )


@contextmanager
def unwrap_errors() -> Iterator[None]:
    """Raise what failed on another machine as it was raised there; say plainly what was lost."""
    from ray import exceptions

    try:
        yield
    except exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, exceptions.RayError):
            raise _to_cluster_error(cause) from None
        raise cause from None
    except exceptions.RayError as error:
        raise _to_cluster_error(error) from error


def _to_cluster_error(error: Exception) -> ClusterError:
    text = str(error).strip()
    if getattr(error, "actor_init_failed", False):
        return ClusterError(f"A shard cannot be opened on the cluster: {text.splitlines()[-1]}")
    first = " ".join(text.split())[:300]
    return ClusterError(
        f"Work on the cluster was lost again and again: {first} Look at 'ray status' and at the "
        "memory of the machines. The same call resumes where it stopped."
    )
