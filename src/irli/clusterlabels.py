"""ShardedLabelIndex: labels over many machines.

The labels are dealt out to P shards, common and rare ones evenly. Every shard learns from all rows;
those that carry none of its labels carry one more, "elsewhere", so that a shard knows when a row is
not its own. All shards rank with log-odds that are fitted on held-out rows: scores mean the same
everywhere, and the best of all shards are the best. With one shard, the repetitions alone are
spread over the machines.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli import clusterfolder, storage
from irli.checks import check_bool, check_float, check_int
from irli.clusterfiles import Room, kept, kept_sparse
from irli.clusterfolder import Contents
from irli.clusterlabelbuild import STEPS, LabelJob, dealt
from irli.clusterrun import build
from irli.clusterserve import Here, OnRay, Serving
from irli.config import Recipe
from irli.config import recipe as named_recipe
from irli.errors import FormatError, NotFitted
from irli.labelchecks import as_labels, as_rows
from irli.labels import LabelIndex, Prediction
from irli.progress import Progress
from irli.text import Names
from irli.threads import thread_count

KIND = "label-shards"


class ShardedPrediction(Prediction):
    """Scores and labels, best first, and the shards that have no part in them."""

    missing: tuple[int, ...] = ()


class LabelShard:
    """Some of the labels, opened from an index folder of their own."""

    def __init__(self, path: str, mmap: bool = True, verify: bool = True) -> None:
        folder = storage.read_folder(path, mmap=mmap, verify=verify)
        self.index = LabelIndex.from_folder(folder)

    def facts(self) -> dict[str, Any]:
        """Return what the whole is told about this part."""
        return {"stats": self.index.stats(), "history": self.index.history}

    def process(self) -> int:
        """Return the number of the process that the shard lives in."""
        return os.getpid()

    def predict(self, rows: Any, k: int, options: dict[str, Any]) -> Prediction:
        """Return the k best labels of this shard, by their numbers in it."""
        return self.index.predict(rows, k, **options)

    def save(self, path: str) -> str:
        """Save the index of this shard, and return the checksum of its manifest."""
        self.index.save(path)
        return str(storage.read_manifest(path)["checksum"])


class ShardedLabelIndex:
    """A label index in P shards, with the methods of `LabelIndex` for learning and predicting.

    Parameters
    ----------
    recipe : str or Recipe
        That of every shard.
    shards, ray, replicas
        As for `ShardedIndex`. With `shards=1` the repetitions are spread over the machines.

    Examples
    --------
    >>> own = np.arange(600) % 20  # the label of each row
    >>> X = np.eye(20)[own] + 0.1 * np.random.default_rng(0).random((600, 20))
    >>> index = ShardedLabelIndex(shards=2).fit(X, np.eye(20)[own])
    >>> index.predict(X[:5], k=1).labels.ravel()
    array([0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        recipe: str | Recipe = "labels",
        *,
        shards: int = 1,
        ray: str | None = None,
        replicas: int = 1,
    ) -> None:
        self.recipe = recipe if isinstance(recipe, Recipe) else named_recipe(recipe)
        self.shards = check_int("shards", shards, at_least=1, owner="ShardedLabelIndex")
        self.replicas = check_int("replicas", replicas, at_least=1, owner="ShardedLabelIndex")
        self.ray = ray
        self.names: Names | None = None
        self._serving: Serving | None = None
        self._room: Room | None = None
        self._facts: list[dict[str, Any]] = []
        self._sums: list[str] = []
        self._labels: list[NDArray[np.int64]] = []  # of each shard

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        names: Iterable[str] | None = None,
        progress: Progress = False,
        threads: int | None = None,
        device: str = "cpu",
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> ShardedLabelIndex:
        """Learn which labels the rows `X` carry.

        Parameters
        ----------
        X, Y, names, device
            As for `LabelIndex.fit`.
        progress, threads, checkpoint
            As for `ShardedIndex.fit`.
        """
        rows: Any = as_rows(X)
        labels = as_labels(Y, rows.shape[0])
        count = labels.shape[1]
        check_int("shards", self.shards, at_most=count, owner=f"{count} labels")
        named = None if names is None else Names.of(list(names))
        if named is not None:
            check_int("names", len(named), at_least=count, at_most=count, owner="fit")
        room = Room(checkpoint)
        sparse = sp.issparse(rows)
        own = -(-count // self.shards) + (self.shards > 1)
        job = LabelJob(
            rows=kept_sparse(room.path, "rows", rows) if sparse else kept(room.path, "rows", rows),
            labels=kept_sparse(room.path, "labels", labels),
            shards=self.shards,
            folder=str(room.path),
            asked=self.recipe,
            recipe=self.recipe.resolved_for_labels(own),
            slice_bytes=8 * int(rows.nnz if sparse else rows.size) + 8 * int(labels.nnz),
            threads=1 if self.ray and threads is None else thread_count(threads),
            device=device,
        )
        build(job, STEPS, self.ray, progress)
        counts = np.bincount(labels.indices, minlength=count)
        self._labels, self.names, self._room, self._sums = (
            dealt(counts, self.shards),
            named,
            room,
            [],
        )
        self._serve([job.index(shard) for shard in range(self.shards)], mmap=True, verify=False)
        return self

    def _serve(self, paths: list[Path], mmap: bool, verify: bool) -> None:
        self._serving = (
            Here(paths, mmap, verify, LabelShard)
            if self.ray is None
            else OnRay(self.ray, paths, self.replicas, mmap, verify, LabelShard)
        )
        self._facts = self._fitted().call("facts", [()] * self.shards, None, False).values

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        probes: int | None = None,
        candidates: int | None = None,
        score: str | None = None,
        threads: int | None = None,
        deadline: float | None = None,
        partial: bool = False,
    ) -> ShardedPrediction:
        """Return the k best labels of each row over all shards.

        Parameters
        ----------
        X, k, probes, candidates, score, threads
            As for `LabelIndex.predict`, in each shard.
        deadline, partial
            As for `ShardedIndex.search`.
        """
        serving = self._fitted()
        k = check_int("k", k, at_least=1, owner="predict")
        check_bool("partial", partial, owner="predict")
        if deadline is not None:
            deadline = check_float("deadline", deadline, at_least=0.0, owner="predict")
        single = isinstance(X, np.ndarray) and X.ndim == 1
        rows = as_rows(X, self._facts[0]["stats"]["dim"])
        options = {"probes": probes, "candidates": candidates, "score": score, "threads": threads}
        more = 1 if self.shards > 1 else 0  # for the label "elsewhere"
        arguments = [(rows, k + more, options)] * self.shards
        answers = serving.call("predict", arguments, deadline, partial)
        there = [shard for shard in range(self.shards) if shard not in answers.missing]
        scores, labels = self._merged(answers.values, there, k)
        found = ShardedPrediction(*((scores[0], labels[0]) if single else (scores, labels)))
        found.missing = answers.missing
        return found

    def _merged(
        self, parts: list[Prediction], shards: list[int], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the k best of all parts, by their numbers in the whole."""
        scores = np.concatenate([part.scores for part in parts], axis=1)
        named = []
        for part, shard in zip(parts, shards, strict=True):
            own = np.append(self._labels[shard], [-1, -1])  # "elsewhere", and padding
            named.append(own[part.labels])
        labels = np.concatenate(named, axis=1)
        scores = np.where(labels >= 0, scores, -np.inf).astype(np.float32)
        best = np.lexsort((-scores, labels < 0), axis=1)[:, :k]
        return np.take_along_axis(scores, best, axis=1), np.take_along_axis(labels, best, axis=1)

    def __len__(self) -> int:
        self._fitted()
        return sum(map(len, self._labels))

    def __repr__(self) -> str:
        what = "not fitted" if self._serving is None else f"{len(self)} labels"
        return f"ShardedLabelIndex(recipe={self.recipe.name!r}, {self.shards} shards, {what})"

    @property
    def history(self) -> list[dict[str, Any]]:
        """How learning went, shard by shard."""
        return [
            entry | {"shard": shard}
            for shard, facts in enumerate(self._facts)
            for entry in facts["history"]
        ]

    def stats(self) -> dict[str, Any]:
        """Return sizes and bytes of all shards together, and the settings of the first."""
        self._fitted()
        each: list[dict[str, Any]] = [facts["stats"] for facts in self._facts]
        summed = ("buckets", "entries", "ranker_weights", "bytes")
        return (
            each[0]
            | {name: sum(stats[name] for stats in each) for name in summed}
            | {
                "kind": KIND,
                "items": len(self),
                "names": self.names is not None,
                "shards": self.shards,
                "loads": [loads for stats in each for loads in stats["loads"]],
            }
        )

    def _fitted(self) -> Serving:
        if self._serving is None:
            raise NotFitted(
                "This ShardedLabelIndex is not fitted yet. Call fit(X, Y) or load(path)."
            )
        return self._serving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the folder `path`, replacing an index that is there already."""
        serving = self._fitted()

        def save_shards(folders: list[str]) -> list[str]:
            return serving.call("save", [(folder,) for folder in folders], None, False).values

        meta = {"recipe": dataclasses.asdict(self.recipe)}
        arrays: dict[str, NDArray[Any]] = {
            "labels": np.concatenate(self._labels),
            "starts": np.cumsum([0, *map(len, self._labels)]),
        }
        if self.names is not None:
            arrays |= self.names.state()
        contents = Contents(KIND, self.shards, meta, arrays)
        root = Path(path).resolve()
        self._sums = clusterfolder.write(root, contents, save_shards, self._sums)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        ray: str | None = None,
        replicas: int = 1,
        mmap: bool = True,
        verify: bool = True,
    ) -> ShardedLabelIndex:
        """Open the folder `path`, on Ray or in this process."""
        root = Path(path).resolve()
        folder = storage.read_folder(root, mmap=False, verify=verify)
        if folder.kind != KIND:
            raise FormatError(
                f"{path} must hold labels in shards. Got an index of kind '{folder.kind}' instead. "
                "Open it with irli.load."
            )
        paths = clusterfolder.shard_paths(root, folder)
        index = cls(Recipe(**folder.meta["recipe"]), shards=len(paths), ray=ray, replicas=replicas)
        index._sums = [entry["checksum"] for entry in folder.meta["shards"]]
        index._labels = np.split(folder.arrays["labels"], folder.arrays["starts"][1:-1])
        index.names = Names.from_state(folder.arrays) if "names" in folder.arrays else None
        index._serve(paths, mmap, verify)
        return index

    def close(self) -> None:
        """End the actors that serve the shards; without it they end with this object."""
        if self._serving is not None:
            self._serving.close()
            self._serving = None
