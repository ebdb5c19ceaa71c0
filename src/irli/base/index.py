"""The base classes of all indexes: truth value, settings, copies, pickles, loading a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self, TypeVar

from irli.base.checks import suggest
from irli.base.folder import VERSION, Folder, package_version, read_folder
from irli.base.types import StrPath
from irli.errors import IncompatibleVersion, InvalidParameter, NotFitted

I = TypeVar("I", bound="SavedIndex")  # noqa: E741

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

    def __copy__(self) -> Self:
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied


class Estimator:
    """Something whose arguments can be read and changed in scikit-learn's way.

    So `sklearn.base.clone` makes one with the same arguments that has learned nothing, and it can
    be a step of a pipeline. The constructor of a subclass keeps its arguments in `_given`, exactly
    as they were given.
    """

    _given: dict[str, Any]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor. `deep` is there for scikit-learn."""
        return dict(self._given)

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor for the next `fit`. What was learned stays.

        Examples
        --------
        >>> import irli
        >>> irli.LabelIndex().set_params(ranker=False).get_params()
        {'recipe': 'labels', 'ranker': False, 'objective': 'balanced'}
        """
        for name in params:
            if name not in self._given:
                words = list(self._given)
                advice = suggest(name, words, otherwise=f"It has: {', '.join(words)}.")
                raise InvalidParameter(f"{type(self).__name__} has no parameter '{name}'. {advice}")
        changed = type(self)(**self._given | params)  # the constructor checks them
        if self.__sklearn_is_fitted__():
            self._given = changed._given
        else:
            vars(self).update(vars(changed))
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags  # only scikit-learn calls this

        target = TargetTags(required=False, multi_output=True)
        return Tags(estimator_type=None, target_tags=target, input_tags=InputTags(sparse=True))

    def __sklearn_is_fitted__(self) -> bool:
        raise NotImplementedError


class Configured(Estimator, Index):
    """An index whose arguments can be read and changed in scikit-learn's way."""

    def __sklearn_is_fitted__(self) -> bool:
        try:
            return len(self) >= 0
        except NotFitted:
            return False


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
