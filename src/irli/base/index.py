"""The base classes of all indexes: truth value, length, and loading from a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from irli.base.folder import Folder, read_folder
from irli.base.types import StrPath

I = TypeVar("I", bound="SavedIndex")  # noqa: E741


class Index(ABC):
    """The base class of every index."""

    def __bool__(self) -> bool:
        return True  # else `if index:` would be False before `fit`, when the length is 0

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items or labels."""


class SavedIndex(Index):
    """The base class of an index that one folder holds completely."""

    @classmethod
    @abstractmethod
    def from_folder(cls: type[I], folder: Folder) -> I:
        """Make an index from the contents of its folder."""

    @classmethod
    def load(cls: type[I], path: StrPath, *, mmap: bool = True, verify: bool = True) -> I:
        """Open the index folder `path`. `irli.load` opens any kind and explains the parameters."""
        return cls.from_folder(read_folder(path, mmap=mmap, verify=verify))
