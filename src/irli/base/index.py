"""The base classes of all indexes: truth value, length, copies, pickles, loading from a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from irli.base.folder import VERSION, Folder, package_version, read_folder
from irli.base.types import StrPath
from irli.errors import IncompatibleVersion

I = TypeVar("I", bound="SavedIndex")  # noqa: E741
J = TypeVar("J", bound="Index")

_MARKS = ("format", "irli")  # of a pickle


class Index(ABC):
    """The base class of every index.

    Pickles carry all arrays. They are for another process of the same version: irli may change
    its attributes in any release, while folders stay readable.
    """

    def __bool__(self) -> bool:
        return True  # else `if index:` would be False before `fit`, when the length is 0

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items or labels."""

    def __getstate__(self) -> dict[str, Any]:
        return {"format": VERSION, "irli": package_version(), "attributes": vars(self)}

    def __setstate__(self, state: Any) -> None:
        made_by = [state.get(name) if isinstance(state, dict) else None for name in _MARKS]
        if made_by != [VERSION, package_version()]:
            raise IncompatibleVersion(
                f"A pickle of an index must be opened by the irli that made it. Got one of irli "
                f"{made_by[1]}, and this is irli {package_version()}. Keep an index with save(), "
                "and open it with irli.load."
            )
        vars(self).update(state["attributes"])

    def __copy__(self: J) -> J:
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied


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
