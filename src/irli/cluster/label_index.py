"""ShardedLabelIndex, the public class: fit, predict, save and load labels in P shards.

The labels are dealt out to P shards, so that each gets common and rare ones. Every shard learns
from all rows. Each shard has one extra label, "other", for rows that carry none of its own labels.
All shards rank by log-odds calibrated on held-out rows, so the scores of shards can be compared and
merged. With one shard, only the repetitions are spread over the machines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from irli.base.arrays import array_error, check_array, check_offsets, check_range
from irli.base.checks import check_int
from irli.base.folder import LABEL_SHARDS, check_kind, read_folder, reading
from irli.base.index import Index
from irli.base.recipe import Recipe, as_recipe
from irli.base.sparse import as_labels, as_rows
from irli.base.types import StrPath
from irli.cluster.build import build, check_options, count_step_threads
from irli.cluster.contents import ShardedContents, check_shards, find_shards, read_checksums
from irli.cluster.group import ShardGroup
from irli.cluster.label_job import deal_labels, make_label_job
from irli.cluster.serve import check_deadline
from irli.cluster.shard import LabelShard
from irli.cluster.workdir import WorkDir
from irli.errors import NotFitted
from irli.labels.index import Prediction, count_labels
from irli.labels.parameters import PredictArguments
from irli.labels.text import Names


class ShardedPrediction(Prediction):
    """Scores and labels, best first, and the shards that did not answer (`missing`)."""

    missing: tuple[int, ...] = ()


class ShardedLabelIndex(Index):
    """A label index in P shards, with the methods of `LabelIndex` for learning and predicting.

    Parameters
    ----------
    recipe : str or Recipe
        The recipe of each shard.
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
        self.recipe = as_recipe(recipe)
        self.shards = check_int("shards", shards, at_least=1, owner="ShardedLabelIndex")
        self.replicas = check_int("replicas", replicas, at_least=1, owner="ShardedLabelIndex")
        self.ray = ray
        self.names: Names | None = None
        self._group: ShardGroup | None = None
        self._labels: list[NDArray[np.int64]] = []  # of each shard

    def fit(
        self, X: Any, Y: Any, *, names: Iterable[str] | None = None, **options: Any
    ) -> ShardedLabelIndex:
        """Learn which labels the rows `X` carry.

        Parameters
        ----------
        X, Y, names
            As for `LabelIndex.fit`.
        **options
            As for `ShardedIndex.fit`.
        """
        run = check_options(options)
        rows = as_rows(X)
        labels = as_labels(Y, rows.shape[0])
        count = labels.shape[1]
        check_int("shards", self.shards, at_most=count, owner=f"{count} labels")
        named = None if names is None else Names.of(list(names))
        if named is not None:
            check_int("names", len(named), at_least=count, at_most=count, owner="fit")
        workdir = WorkDir(run.checkpoint)
        threads = count_step_threads(run, self.ray)
        job = make_label_job(
            workdir.path, rows, labels, self.recipe, self.shards, threads, run.device
        )
        build(job, self.ray, run.progress)
        self._labels, self.names = deal_labels(count_labels(labels), self.shards), named
        self._open([job.index(shard) for shard in range(self.shards)], workdir=workdir)
        return self

    def _open(self, paths: list[Path], **options: Any) -> None:
        self._group = ShardGroup(paths, LabelShard, ray=self.ray, replicas=self.replicas, **options)

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        threads: int | None = None,
        deadline: float | None = None,
        partial: bool = False,
        **parameters: Unpack[PredictArguments],
    ) -> ShardedPrediction:
        """Return the k best labels of each row over all shards.

        Parameters
        ----------
        X, k, threads, **parameters
            As for `LabelIndex.predict`, in each shard.
        deadline, partial
            As for `ShardedIndex.search`.
        """
        group = self._fitted()
        k = check_int("k", k, at_least=1, owner="predict")
        deadline = check_deadline(deadline, partial, owner="predict")
        single = isinstance(X, np.ndarray) and X.ndim == 1
        rows = as_rows(X, group.facts[0]["stats"]["dim"])
        more = 1 if self.shards > 1 else 0  # for the label "other"
        call = (rows, k + more, {**parameters, "threads": threads})
        answers = group.call("predict", [call] * self.shards, deadline, partial)
        answered = [shard for shard in range(self.shards) if shard not in answers.missing]
        scores, labels = self._merge(answers.values, answered, k)
        found = ShardedPrediction(*((scores[0], labels[0]) if single else (scores, labels)))
        found.missing = answers.missing
        return found

    def _merge(
        self, parts: list[Prediction], shards: list[int], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the k best labels of all parts, with their numbers in the whole index."""
        scores = np.concatenate([part.scores for part in parts], axis=1)
        numbers = [
            np.append(self._labels[shard], [-1, -1])[part.labels]  # "other", and padding
            for part, shard in zip(parts, shards, strict=True)
        ]
        labels = np.concatenate(numbers, axis=1)
        scores = np.where(labels >= 0, scores, -np.inf).astype(np.float32)
        best = np.lexsort((-scores, labels < 0), axis=1)[:, :k]
        return np.take_along_axis(scores, best, axis=1), np.take_along_axis(labels, best, axis=1)

    def __len__(self) -> int:
        self._fitted()
        return sum(map(len, self._labels))

    def __repr__(self) -> str:
        state = "not fitted" if self._group is None else f"{len(self)} labels"
        return f"ShardedLabelIndex(recipe={self.recipe.name!r}, {self.shards} shards, {state})"

    @property
    def history(self) -> list[dict[str, Any]]:
        """Loss, recall and loads after each re-partition, shard by shard."""
        return [] if self._group is None else self._group.history

    def stats(self) -> dict[str, Any]:
        """Return sizes and bytes of all shards together, and the settings of the first."""
        group = self._fitted()
        return group.sum_stats(("buckets", "entries", "ranker_weights", "bytes")) | {
            "kind": LABEL_SHARDS,
            "items": len(self),
            "names": self.names is not None,
            "shards": self.shards,
            "loads": [loads for facts in group.facts for loads in facts["stats"]["loads"]],
        }

    def _fitted(self) -> ShardGroup:
        if self._group is None:
            raise NotFitted(
                "This ShardedLabelIndex is not fitted yet. Call fit(X, Y) or load(path)."
            )
        return self._group

    def save(self, path: StrPath) -> None:
        """Write the index folder `path`. An index that is there already is replaced."""
        meta = {"recipe": dataclasses.asdict(self.recipe)}
        arrays: dict[str, NDArray[Any]] = {
            "labels": np.concatenate(self._labels),
            "starts": np.cumsum([0, *map(len, self._labels)]),
        }
        if self.names is not None:
            arrays |= self.names.state()
        self._fitted().save(path, ShardedContents(LABEL_SHARDS, self.shards, meta, arrays))

    @classmethod
    def load(cls, path: StrPath, *, ray: str | None = None, **options: Any) -> ShardedLabelIndex:
        """Open the index folder `path`, on Ray or in this process.

        Parameters
        ----------
        **options
            replicas, mmap, verify: as for `ShardedIndex.load`.
        """
        replicas = options.pop("replicas", 1)
        root = Path(path).resolve()
        folder = read_folder(root, mmap=False, verify=options.get("verify", True))
        check_kind(folder, LABEL_SHARDS)
        with reading():
            paths, sums = find_shards(root, folder), read_checksums(folder)
            recipe = Recipe(**folder.meta["recipe"])
            labels = _split_labels(folder.arrays["labels"], folder.arrays["starts"], len(paths))
            names = Names.from_state(folder.arrays) if "names" in folder.arrays else None
            count = sum(map(len, labels))
            if names is not None and len(names) != count:
                raise array_error("names", f"name {count} labels", str(len(names)))
            index = cls(recipe, shards=len(paths), ray=ray, replicas=replicas)
        index._labels, index.names = labels, names
        index._open(paths, sums=sums, **options)
        facts = index._fitted().facts
        more = 1 if len(facts) > 1 else 0  # for the label "other"
        check_shards(facts, "items", [len(part) + more for part in labels])
        check_shards(facts, "dim", [facts[0]["stats"]["dim"]] * len(facts))
        return index

    def close(self) -> None:
        """End the Ray actors that serve the shards. Otherwise they end with this object."""
        if self._group is not None:
            self._group.close()
            self._group = None


def _split_labels(
    labels: NDArray[np.int64], starts: NDArray[np.int64], shards: int
) -> list[NDArray[np.int64]]:
    """Return the labels of each shard, checked."""
    check_array("labels", labels, np.int64, None)
    check_range("labels", labels, 0, len(labels) - 1)
    check_array("starts", starts, np.int64, shards + 1)
    check_offsets("starts", starts, len(labels))
    return np.split(labels, starts[1:-1])
