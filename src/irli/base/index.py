"""What all kinds of index share: they are true, fitted or not, and open from a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from irli.base.folder import Folder, read_folder
from irli.base.types import StrPath

I = TypeVar("I", bound="SavedIndex")  # noqa: E741


class Index(ABC):
    """Any index."""

    def __bool__(self) -> bool:
        return True  # `if index:` asks whether there is one, fitted or not

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items or labels."""


class SavedIndex(Index):
    """An index that lies whole in one folder."""

    @classmethod
    @abstractmethod
    def from_folder(cls: type[I], folder: Folder) -> I:
        """Make the index that a folder in memory holds."""

    @classmethod
    def load(cls: type[I], path: StrPath, *, mmap: bool = True, verify: bool = True) -> I:
        """Open the index folder `path`; `irli.load` opens any kind and says what the rest means."""
        return cls.from_folder(read_folder(path, mmap=mmap, verify=verify))
