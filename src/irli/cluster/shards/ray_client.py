"""Connect to Ray: join or start a cluster, and turn the errors of remote tasks into our own."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from irli.errors import ClusterError, InvalidParameter, MissingDependency

_NO_ADDRESS = ("auto", "local")  # Ray finds or starts such a cluster by itself
_ADDRESS = re.compile(r"\S+:\d+$")  # at the end of Ray's messages
_TIMEOUT = 5.0  # seconds for a cluster to accept a connection


def connect(address: str) -> Any:
    """Return the connected module `ray`. "auto" joins a running cluster, or starts one here.

    A process that is already connected stays connected to the same cluster. A cluster that is
    started here asks for a token unless RAY_AUTH_MODE says otherwise, and shows its dashboard on
    this machine only. Ray's usage reports are off unless RAY_USAGE_STATS_ENABLED is set.
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
    if address not in _NO_ADDRESS:
        _check_token(ray, address)
    try:
        if address != "local":
            _init(ray, "auto" if address == "auto" else address)
    except ConnectionError as error:
        if address != "auto":
            raise _no_cluster_error(address, error) from error
        if found := _ADDRESS.search(str(error)):  # a cluster is running here
            _check_token(ray, found[0])
            raise _no_cluster_error(address, error) from error
    except (ValueError, RuntimeError, TimeoutError) as error:
        raise _no_cluster_error(address, error) from error
    except ray.exceptions.AuthenticationError as error:
        raise _token_error(address) from error
    if not ray.is_initialized():
        _start(ray)
    return ray


def _init(ray: Any, address: str) -> None:
    ray.init(
        address=address,
        dashboard_host="127.0.0.1",
        log_to_driver=False,
        logging_level=logging.WARNING,
    )


def _start(ray: Any) -> None:
    """Start a cluster on this machine. Only who has the token in ~/.ray/auth_token can use it."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    ray._raylet.Config.initialize("")  # Ray reads the environment again
    try:
        _init(ray, "local")
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise ClusterError(
            f"Ray cannot be started on this machine: {_first_line(error)}. Run 'ray start --head' "
            "to see why, or leave out the 'ray' parameter."
        ) from error


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
        raise _no_cluster_error(address, error) from error


def _check_token(ray: Any, address: str) -> None:
    """Check that the cluster accepts our token. Ray would try for 20 s and not say what failed."""
    if "://" in address:
        return
    try:
        if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
            # This raises an error, where the client aborts the process.
            ray._raylet.AuthenticationTokenLoader.instance().has_token()
        ray._raylet.GcsClient(address=address)
    except ray.exceptions.AuthenticationError as error:
        raise _token_error(address) from error
    except (ray.exceptions.RayError, RuntimeError, ValueError):
        return  # joining says what is wrong


def _token_error(address: str) -> ClusterError:
    mode = os.environ.get("RAY_AUTH_MODE", "not set")
    return ClusterError(
        f"The Ray cluster at '{address}' wants a token, and this process has no token or another "
        f"one. RAY_AUTH_MODE is {mode}. Set RAY_AUTH_MODE=token, and copy the token that 'ray "
        "get-auth-token' prints on the cluster's first machine to ~/.ray/auth_token here. Both "
        "must be set before this process imports Ray."
    )


def _no_cluster_error(address: str, error: Exception) -> ClusterError:
    return ClusterError(
        f"No Ray cluster answers at '{address}': {_first_line(error)}. Check the address and that "
        "'ray status' works there, or use ray='auto' for this machine."
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


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
