"""ShardActor: what serves a shard on Ray. It opens the shard's folder, and tries until it can."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from time import sleep
from typing import Any

from irli.base.folder import read_manifest
from irli.base.logs import get_logger
from irli.base.parts.local import Open
from irli.errors import FormatError, ShardUnavailable

log = get_logger(__name__)

_SHORTEST, _LONGEST = 0.1, 3.0  # seconds between two attempts to open the folder


class ShardActor:
    """A shard in a process of its own.

    The folder is opened in the background. While it cannot be, every call raises
    `ShardUnavailable`, so that the caller can ask another replica at once.

    Parameters
    ----------
    open_part : function
        Opens the folder of a shard.
    path : str
        The folder of the shard.
    checksum : str
        That of the folder's manifest. If the actor restarts, the folder may hold another index.
    """

    def __init__(self, open_part: Open, path: str, checksum: str, mmap: bool, verify: bool) -> None:
        self._shard: Any = None
        self._error: Exception = ShardUnavailable(f"{path} is being opened")
        self._tried = threading.Event()
        arguments = (open_part, path, checksum, mmap, verify)
        threading.Thread(target=self._keep_opening, args=arguments, daemon=True).start()

    def _keep_opening(
        self, open_part: Open, path: str, checksum: str, mmap: bool, verify: bool
    ) -> None:
        pause = _SHORTEST
        while self._shard is None:
            try:
                _check_manifest(path, checksum)
                self._shard = open_part(path, mmap, verify)
            except Exception as error:  # a file system that is away has many ways to fail
                self._error = error
                log.warning(
                    "%s cannot be opened, the next attempt in %.1f s: %s", path, pause, error
                )
            self._tried.set()
            if self._shard is None:
                sleep(pause)
                pause = min(2 * pause, _LONGEST)

    def find_fault(self) -> str:
        """Return why the shard cannot be called, or nothing if it can."""
        return "" if self._shard is not None else str(self._error) or repr(self._error)

    def wait(self) -> None:
        """Wait for the first attempt to open the folder. Raise its error if it failed."""
        self._tried.wait()
        if self._shard is None:
            raise self._error

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the shard."""
        if fault := self.find_fault():
            raise ShardUnavailable(fault)
        return getattr(self._shard, method)(*arguments)

    def call_packed(self, *request: bytes) -> bytes:
        """Call a method as `pack` has packed it. Return the packed result."""
        method, arguments = pickle.loads(b"".join(request))
        return pickle.dumps(self.call(method, *arguments), protocol=5)


def _check_manifest(path: str, checksum: str) -> None:
    """Raise if the folder holds another index than the one that was opened first.

    The manifest of an index that changes does not stay the same.
    """
    manifest = read_manifest(Path(path))
    if manifest["checksum"] != checksum and "store" not in manifest:
        raise FormatError(
            f"{path} must hold the shard that was opened first, and it has been replaced. Load the "
            "index again."
        )
