"""ShardGroup: open the shards of an index in this process or on Ray, call, save and close them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from irli.base.types import StrPath
from irli.cluster.build.workdir import WorkDir
from irli.cluster.shards.answers import Answers
from irli.cluster.shards.contents import ShardedContents, write_shards
from irli.cluster.shards.serve import open_shards
from irli.errors import ClusterError


class ShardGroup:
    """All shards of an index.

    Parameters
    ----------
    paths : list of Path
        The folders of the shards.
    kind : type
        `VectorShard` or `LabelShard`.
    ray : str, optional
        The Ray cluster to open them on. Without it, they are opened in this process.
    sums : list of str
        The checksums of the shards, if they have been saved.
    workdir : WorkDir, optional
        The working folder with the shards. A temporary one must live as long as this object.

    Attributes
    ----------
    facts : list of dict
        Stats, history and, for vectors, loads of each shard.
    """

    def __init__(
        self,
        paths: list[Path],
        kind: type,
        *,
        ray: str | None = None,
        replicas: int = 1,
        mmap: bool = True,
        verify: bool = False,
        sums: list[str] | None = None,
        workdir: WorkDir | None = None,
    ) -> None:
        self._serving = open_shards(paths, kind, mmap, verify, ray=ray, replicas=replicas)
        self._sums, self._workdir = sums or [], workdir
        self._count, self._on_ray = len(paths), ray is not None
        self.facts: list[dict[str, Any]] = self.ask("facts").values

    def __len__(self) -> int:
        return self._count

    def __getstate__(self) -> dict[str, Any]:
        if self._on_ray:
            raise ClusterError(
                "An index on Ray cannot be pickled or deep-copied: its shards live in the cluster. "
                "Save it, and open the folder where it is needed: ShardedIndex.load(path, ray=...)."
            )
        return vars(self)

    def ask(self, method: str, *arguments: Any) -> Answers:
        """Call a method of every shard with the same arguments."""
        return self.call(method, [arguments] * len(self))

    def call(
        self,
        method: str,
        arguments: list[tuple[Any, ...]],
        deadline: float | None = None,
        partial: bool = False,
    ) -> Answers:
        """Call a method of every shard, each with its own arguments."""
        return self._serving.call(method, arguments, deadline, partial)

    @property
    def history(self) -> list[dict[str, Any]]:
        """Loss, recall and loads after each re-partition, shard by shard."""
        return [
            entry | {"shard": shard}
            for shard, facts in enumerate(self.facts)
            for entry in facts["history"]
        ]

    def sum_stats(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the stats of the first shard, with some of them summed over all shards."""
        each: list[dict[str, Any]] = [facts["stats"] for facts in self.facts]
        return each[0] | {name: sum(stats[name] for stats in each) for name in names}

    def save(self, path: StrPath, contents: ShardedContents, **options: Any) -> None:
        """Write the index folder `path`. Each shard writes its own folder within it.

        `options` are those of `save` of the shards' indexes. With them, all shards are written.
        """

        def save_shards(folders: list[str]) -> list[str]:
            return self.call("save", [(folder, options) for folder in folders]).values

        known = [] if options else self._sums
        sums = write_shards(Path(path).resolve(), contents, save_shards, known)
        self._sums = self._sums if options else sums

    def close(self) -> None:
        """End the actors that serve the shards."""
        self._serving.close()
