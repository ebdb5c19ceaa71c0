"""PartGroup, the parts of an index wherever they run; Parts, the base of what asks all of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from irli.base.parts.answers import Answers
from irli.base.parts.folders import ShardedContents, write_shards
from irli.base.parts.local import Serving
from irli.base.types import StrPath


class PartGroup:
    """All parts of an index.

    Parameters
    ----------
    serving : Serving
        What runs the parts.
    sums : list of str
        The checksums of their folders, if they have been saved.
    kept : object
        What must live as long as the parts do: mostly the temporary folder that holds them.

    Attributes
    ----------
    facts : list of dict
        Stats, loads and history of each part, and more.
    """

    def __init__(
        self, serving: Serving, *, sums: list[str] | None = None, kept: object = None
    ) -> None:
        self._serving, self._sums, self._kept = serving, sums or [], kept
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

    def save(self, path: StrPath, contents: ShardedContents, *options: Any) -> None:
        """Write the index folder `path`. Each part writes its own folder within it.

        `options` are those of `save` of the parts. With them, all parts are written.
        """

        def save_shards(folders: list[str]) -> list[str]:
            return self.call("save", [(folder, *options) for folder in folders]).values

        known = [] if options else self._sums
        sums = write_shards(Path(path).resolve(), contents, save_shards, known)
        self._sums = self._sums if options else sums

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
