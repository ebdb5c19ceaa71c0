"""ShardedLabelIndex, the public class: fit, predict, save and load labels in P shards.

The labels are dealt out to P shards, so that each gets common and rare ones. Every shard learns
from all rows. They have the same routers, and blend their sources by one calibration, so their
log-odds can be compared and merged: see `irli.cluster.build`.
With one shard, only the repetitions are spread over the machines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from irli.base.arrays import array_error, check_array, check_offsets, check_range
from irli.base.checks import check_choice, check_int
from irli.base.folder import (
    LABEL_SHARDS,
    Folder,
    check_kind,
    read_folder,
    reading,
    retry_if_replaced,
)
from irli.base.parts.group import PartGroup, check_shards
from irli.base.recipe import Recipe, as_recipe
from irli.base.sparse import count_labels
from irli.base.types import StrPath
from irli.cluster.build.build import build, check_options, count_step_threads
from irli.cluster.build.label_blend import blend_shards, read_held
from irli.cluster.build.label_job import deal_labels, make_label_job
from irli.cluster.build.workdir import WorkDir
from irli.cluster.shards.serve import check_deadline, open_parts
from irli.errors import InvalidParameter, NotInShards
from irli.labels.build.problem import append_titles
from irli.labels.contents import check_calibration, unpack_calibration
from irli.labels.front import LabelFront, Prediction
from irli.labels.given import read_rows_to_fit
from irli.labels.parameters import PredictArguments
from irli.labels.parts.part import LabelPart
from irli.labels.parts.several import LabelParts
from irli.labels.text.vectorizer import Names, Vectorizer
from irli.labels.tuning.calibration import Calibration
from irli.labels.tuning.objective import OBJECTIVES
from irli.learning.options import LearnArguments

# Methods of `LabelIndex` that change an index.
_OF_ONE_INDEX = (
    "partial_fit",
    "partial_fit_text",
    "add_labels",
    "remove_labels",
    "rename",
)


class ShardedPrediction(Prediction):
    """Scores and labels, best first, and the shards that did not answer (`missing`)."""

    missing: tuple[int, ...] = ()


class ShardedLabelIndex(LabelFront[LabelParts]):
    """A label index in P shards, with the methods of `LabelIndex` for learning and predicting.

    Parameters
    ----------
    recipe : str or Recipe
        The recipe of each shard.
    shards, ray, replicas
        As for `ShardedIndex`. With `shards=1` the repetitions are spread over the machines.
    objective : {"precision", "balanced", "propensity"}
        As for `LabelIndex`.

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
        objective: str = "balanced",
    ) -> None:
        as_recipe(recipe).check_kind(labels=True)
        check_choice("objective", objective, OBJECTIVES, owner="ShardedLabelIndex")
        check_int("shards", shards, at_least=1, owner="ShardedLabelIndex")
        check_int("replicas", replicas, at_least=1, owner="ShardedLabelIndex")
        self._given: dict[str, Any] = {
            "recipe": recipe,
            "shards": shards,
            "ray": ray,
            "replicas": replicas,
            "objective": objective,
        }

    def _learn(
        self,
        X: Any,
        Y: Any,
        names: Iterable[str] | None,
        titles: Any,
        start: ShardedLabelIndex | None,
        options: LearnArguments,
        vectorizer: Vectorizer | None = None,
    ) -> LabelParts:
        if start is not None:
            raise InvalidParameter(
                "The 'start' parameter of fit must be left out for an index in shards, which is "
                f"learned anew. Got {type(start).__name__}. Leave it out, or use LabelIndex."
            )
        run = check_options({**options})
        recipe = as_recipe(self._given["recipe"])
        shards, ray = self._given["shards"], self._given["ray"]
        rows, labels, named = read_rows_to_fit(X, Y, names)
        given = rows.shape[0]
        if titles is not None:
            rows, labels = append_titles(rows, labels, titles)
        carried = int(np.count_nonzero(count_labels(labels)))
        owner = f"an index of {carried} labels with rows"
        check_int("shards", shards, at_least=1, at_most=max(carried, 1), owner=owner)
        workdir = WorkDir(run.checkpoint)
        objective = self._given["objective"]
        job = make_label_job(
            workdir.path,
            rows,
            labels,
            recipe,
            shards,
            count_step_threads(run, ray),
            run.device,
            objective,
            titles=rows.shape[0] - given,
        )
        build(job, ray, run.progress)
        dealt = deal_labels(count_labels(labels), shards)
        group = self._open([job.index(shard) for shard in range(shards)], kept=workdir)
        calibration = None
        if shards > 1:
            held = [read_held(job.held(shard)) for shard in range(shards)]
            calibration = blend_shards(held, dealt, labels, objective)
        return LabelParts(group, dealt, recipe, named, vectorizer, calibration)

    def _open(self, paths: list[Path], **options: Any) -> PartGroup:
        ray, replicas = self._given["ray"], self._given["replicas"]
        return open_parts(paths, LabelPart, ray=ray, replicas=replicas, **options)

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        threshold: float | None = None,
        threads: int | None = None,
        deadline: float | None = None,
        partial: bool = False,
        **parameters: Unpack[PredictArguments],
    ) -> ShardedPrediction:
        """Return the k best labels of each row over all shards.

        Parameters
        ----------
        X, k, threshold, threads, **parameters
            As for `LabelIndex.predict`, in each shard.
        deadline, partial
            As for `ShardedIndex.search`.
        """
        deadline = check_deadline(deadline, partial, owner="predict")
        parts = self._fitted().within(deadline, partial)
        found = ShardedPrediction(*self._predict(parts, X, k, threshold, None, threads, parameters))
        found.missing = parts.missing
        return found

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ONE_INDEX:
            raise NotInShards(
                f"A ShardedLabelIndex has no {name}: its shards stay as they were fitted. Fit it "
                f"again with all rows, or use a LabelIndex, which has {name}, on one machine."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _describe(self) -> str:
        return f", {self.shards} shards"

    def _list_facts(self) -> dict[str, object]:
        return {"shards": self.shards}

    @property
    def shards(self) -> int:
        """The number of shards."""
        return self._given["shards"] if self._learned is None else len(self._learned.labels)

    def stats(self) -> dict[str, Any]:
        """Return sizes and bytes of all shards together, and the settings of the first."""
        return super().stats() | {"kind": LABEL_SHARDS, "shards": self.shards}

    def save(self, path: StrPath) -> None:
        """Write the index folder `path`. An index that is there already is replaced."""
        parts, names = self._fitted(), self.names
        labels, calibration = parts.labels, parts.calibration
        text, words = (None, {}) if self.vectorizer is None else self.vectorizer.state()
        meta = {
            "recipe": dataclasses.asdict(self.recipe),
            "objective": self._given["objective"],
            "calibration": None if calibration is None else calibration.state(),
            "text": text,
        }
        arrays: dict[str, NDArray[Any]] = {
            "labels": np.concatenate(labels),
            "starts": np.cumsum([0, *map(len, labels)]),
        }
        if names is not None:
            arrays |= names.state()
        parts.group.save(path, Folder(LABEL_SHARDS, meta, arrays | words, {}))

    @classmethod
    def load(cls, path: StrPath, *, ray: str | None = None, **options: Any) -> ShardedLabelIndex:
        """Open the index folder `path`, on Ray or in this process.

        Parameters
        ----------
        **options
            replicas, mmap, verify: as for `ShardedIndex.load`.
        """
        root = Path(path).resolve()
        return retry_if_replaced(root, lambda: cls._load(root, ray=ray, **options))

    @classmethod
    def _load(
        cls, root: Path, *, ray: str | None, replicas: int = 1, **options: Any
    ) -> ShardedLabelIndex:
        folder = read_folder(root, mmap=False, verify=options.get("verify", True))
        check_kind(folder, LABEL_SHARDS)
        with reading():
            paths = [root / part for part in folder.parts]
            recipe = Recipe(**folder.meta["recipe"])
            labels = _split_labels(folder.arrays["labels"], folder.arrays["starts"], len(paths))
            names = Names.from_state(folder.arrays) if "names" in folder.arrays else None
            text = folder.meta["text"]
            vectorizer = None if text is None else Vectorizer.from_state(text, folder.arrays)
            calibration = _read_calibration(folder.meta["calibration"])
            count = sum(map(len, labels))
            if names is not None and len(names) != count:
                raise array_error("names", f"name {count} labels", str(len(names)))
            index = cls(
                recipe,
                shards=len(paths),
                ray=ray,
                replicas=replicas,
                objective=folder.meta["objective"],
            )
        group = index._open(paths, **options)
        facts = group.facts
        check_shards(facts, "items", [len(part) for part in labels])
        dim = facts[0]["stats"]["dim"] if vectorizer is None else len(vectorizer.words)
        check_shards(facts, "dim", [dim] * len(facts))
        index._learned = LabelParts(group, labels, recipe, names, vectorizer, calibration)
        return index

    def close(self) -> None:
        """End the Ray actors that serve the shards. Otherwise they end with this object."""
        if self._learned is not None:
            self._learned.group.close()
            self._learned = None


def _read_calibration(values: Any) -> Calibration | None:
    """Return the calibration of all shards, or None if each has its own."""
    if values is None:
        return None
    calibration = unpack_calibration(values)
    check_calibration(calibration)
    return calibration


def _split_labels(
    labels: NDArray[np.int64], starts: NDArray[np.int64], shards: int
) -> list[NDArray[np.int64]]:
    """Return the labels of each shard, checked."""
    check_array("labels", labels, np.int64, None)
    check_range("labels", labels, 0, len(labels) - 1)
    check_array("starts", starts, np.int64, shards + 1)
    check_offsets("starts", starts, len(labels))
    return np.split(labels, starts[1:-1])
