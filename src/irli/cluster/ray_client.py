"""Connect to Ray: join or start a cluster, and turn the errors of remote tasks into our own."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from irli.errors import ClusterError, InvalidParameter, MissingDependency

_NO_ADDRESS = ("auto", "local")  # Ray finds or starts such a cluster by itself
_TIMEOUT = 5.0  # seconds for a cluster to accept a connection


def connect(address: str) -> Any:
    """Return the connected module `ray`. "auto" joins a running cluster, or starts one here.

    A process that is already connected stays connected to the same cluster. Ray's usage reports are
    off unless RAY_USAGE_STATS_ENABLED is set.
    """
    if not isinstance(address, str) or not address:
        raise InvalidParameter(
            "The 'ray' parameter must be None, 'auto' or the address of a Ray cluster. "
            f"Got {address!r} instead. Write for example ray='auto' or ray='10.0.0.1:6379'."
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Without this, Ray warns if a shard uses no GPU on a machine that has one.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"An index over several machines needs {error.name}, which is not installed. "
            "Install it with: pip install 'irli[cluster]'"
        ) from error
    if address not in _NO_ADDRESS:
        _check_reachable(address)
    if ray.is_initialized():
        return ray
    try:
        ray.init(
            address=None if address == "auto" else address,
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _no_cluster_error(address, str(error).strip().splitlines()[0]) from error
    return ray


def _check_reachable(address: str) -> None:
    """Check that something listens at the address. Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InvalidParameter(
            "The 'ray' parameter must be None, 'auto', or an address with a port. "
            f"Got '{address}' instead. Write for example ray='10.0.0.1:6379'."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster_error(address, str(error)) from error


def _no_cluster_error(address: str, reason: str) -> ClusterError:
    return ClusterError(
        f"No Ray cluster answers at '{address}': {reason}. Check the address and that 'ray status' "
        "works there, or use ray='auto' for this machine."
    )


@contextmanager
def unwrap_errors() -> Iterator[None]:
    """Raise the error of a remote task as it was raised there, and lost work as `ClusterError`."""
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
        f"Work on the cluster was lost again and again: {first} Check 'ray status' and the memory "
        "of the machines. The same call resumes where it stopped."
    )
