"""PartGroup, the parts of an index wherever they run; Parts, the base of what asks all of them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from irli.base.folder import Folder, changing, publish
from irli.base.parts.answers import Answers
from irli.base.parts.local import Serving
from irli.base.types import StrPath
from irli.errors import FormatError


class PartGroup:
    """All parts of an index.

    Parameters
    ----------
    serving : Serving
        What runs the parts.
    kept : object
        What must live as long as the parts do: mostly the temporary folder that holds them.

    Attributes
    ----------
    facts : list of dict
        Stats, loads and history of each part, and more.
    """

    def __init__(self, serving: Serving, *, kept: object = None) -> None:
        self._serving, self._kept = serving, kept
        self.facts: list[dict[str, Any]] = self.ask("facts").values

    def __len__(self) -> int:
        return len(self._serving)

    def ask(self, method: str, *arguments: Any) -> Answers:
        """Call a method of every part with the same arguments."""
        return self.call(method, [arguments] * len(self))

    def call(
        self,
        method: str,
        arguments: list[tuple[Any, ...]],
        deadline: float | None = None,
        partial: bool = False,
    ) -> Answers:
        """Call a method of every part, each with its own arguments."""
        return self._serving.call(method, arguments, deadline, partial)

    @property
    def history(self) -> list[dict[str, Any]]:
        """Loss, recall and loads after each re-partition, part by part."""
        return [
            entry | {"shard": shard}
            for shard, facts in enumerate(self.facts)
            for entry in facts["history"]
        ]

    def sum_stats(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the stats of the first part, with some of them summed over all parts."""
        each: list[dict[str, Any]] = [facts["stats"] for facts in self.facts]
        return each[0] | {name: sum(stats[name] for stats in each) for name in names}

    def save(self, path: StrPath, folder: Folder, *options: Any) -> None:
        """Write the index folder `path`: the parts, and `folder` as that of the whole index.

        `options` are those of `pack` of the parts.
        """
        root = Path(path).resolve()
        with changing(root):
            parts = self.ask("save", str(root), *options).values
            publish(root, dataclasses.replace(folder, parts=parts))

    def close(self) -> None:
        """End what runs the parts."""
        self._serving.close()


class Parts:
    """Parts that are asked together.

    Attributes
    ----------
    missing : tuple of int
        The parts that did not answer the last call of `within`.
    """

    def __init__(self, group: PartGroup) -> None:
        self.group = group
        self.missing: tuple[int, ...] = ()
        self._deadline: float | None = None
        self._partial = False

    def within(self, deadline: float | None, partial: bool) -> Self:
        """Return the same parts for one call, which may do without those that are down or late."""
        asked = copy.copy(self)
        asked._deadline, asked._partial = deadline, partial
        return asked

    def _call(self, method: str, arguments: list[tuple[Any, ...]]) -> Answers:
        answers = self.group.call(method, arguments, self._deadline, self._partial)
        self.missing = answers.missing
        return answers

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many items each bucket holds: an array of shape (P B,) for each repetition."""
        each = [facts["loads"] for facts in self.group.facts]
        return [np.concatenate(parts) for parts in zip(*each, strict=True)]


def check_shards(facts: list[dict[str, Any]], name: str, wanted: Sequence[Any]) -> None:
    """Raise unless each shard has the size or setting `name` that the manifest wants."""
    for shard, (fact, value) in enumerate(zip(facts, wanted, strict=True)):
        if fact["stats"][name] != value:
            raise FormatError(
                f"Shard {shard} of the index must have '{name}' {value!r}, as the manifest says. "
                f"Got {fact['stats'][name]!r} instead. Restore the folder from a copy, or build "
                "the index again."
            )
