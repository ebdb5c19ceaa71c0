"""ShardedLabelIndex, the public class: fit, predict, save and load labels in P shards.

The labels are dealt out to P shards, so that each gets common and rare ones. Every shard learns
from all rows. They have the same routers, and blend their sources by one calibration, so their
log-odds can be compared and merged: see `irli.cluster.build`.
With one shard, only the repetitions are spread over the machines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from irli.base.arrays import array_error, check_array, check_offsets, check_range
from irli.base.checks import check_choice, check_float, check_int, check_k
from irli.base.folder import LABEL_SHARDS, check_kind, read_folder, reading
from irli.base.html import render_html
from irli.base.index import Configured
from irli.base.logs import describe_few, warn
from irli.base.parts.folders import ShardedContents, check_shards, find_shards, read_checksums
from irli.base.parts.group import PartGroup
from irli.base.recipe import Recipe, as_recipe
from irli.base.sparse import as_query_rows, count_labels
from irli.base.types import StrPath
from irli.cluster.build.build import build, check_options, count_step_threads
from irli.cluster.build.label_blend import blend_shards, read_held
from irli.cluster.build.label_job import deal_labels, make_label_job
from irli.cluster.build.workdir import WorkDir
from irli.cluster.shards.serve import check_deadline, open_parts
from irli.errors import NotFitted, NotInShards
from irli.labels.build.problem import append_titles
from irli.labels.contents import check_calibration, unpack_calibration
from irli.labels.explain import RowExplanation
from irli.labels.given import read_rows_to_fit
from irli.labels.index import Prediction
from irli.labels.parameters import PredictArguments
from irli.labels.part import LabelShard
from irli.labels.text.reads_texts import ReadsTexts
from irli.labels.text.vectorizer import Names, Vectorizer, vectorize_texts
from irli.labels.tuning.calibration import Calibration, to_probabilities
from irli.labels.tuning.objective import OBJECTIVES

# Methods of `LabelIndex` that change an index.
_OF_ONE_INDEX = (
    "refit",
    "partial_fit",
    "partial_fit_text",
    "add_labels",
    "remove_labels",
    "rename",
)


class ShardedPrediction(Prediction):
    """Scores and labels, best first, and the shards that did not answer (`missing`)."""

    missing: tuple[int, ...] = ()


class _Opened(NamedTuple):
    """What `fit` or `load` leaves behind. An index replaces it as a whole, or not at all."""

    group: PartGroup
    labels: list[NDArray[np.int64]]  # of each shard
    names: Names | None
    vectorizer: Vectorizer | None
    calibration: Calibration | None  # of all shards; without it, each has its own

    def count_wanted(self, k: int) -> list[int]:
        """Return how many labels to ask each shard for, so that the k best are among them."""
        return [min(k, len(own)) for own in self.labels]


class ShardedLabelIndex(ReadsTexts, Configured):
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
        self._opened: _Opened | None = None

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        names: Iterable[str] | None = None,
        titles: Any = None,
        **options: Any,
    ) -> ShardedLabelIndex:
        """Learn which labels the rows `X` carry.

        Parameters
        ----------
        X, Y, names, titles
            As for `LabelIndex.fit`.
        **options
            As for `ShardedIndex.fit`.
        """
        self._opened = self._learn(X, Y, names, titles, options)
        return self

    def fit_text(
        self,
        texts: Iterable[Any],
        labels: Iterable[Iterable[str]] | None = None,
        *,
        vectorizer: Vectorizer | None = None,
        titles: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ShardedLabelIndex:
        """Learn which labels the texts carry. The features are the words of the texts.

        Parameters
        ----------
        texts, labels, vectorizer, titles
            As for `LabelIndex.fit_text`.
        **options
            As for `fit`.

        Examples
        --------
        >>> pets = ["cat", "dog", "bird"]
        >>> texts = [f"the {pet} {verb}" for pet in pets for verb in ("eats", "naps", "plays")]
        >>> index = ShardedLabelIndex(shards=2)
        >>> index = index.fit_text(texts, [[pet] for pet in pets for _ in range(3)])
        >>> [[name for name, _ in found] for found in index.predict_text(["My dog!", "a bird"], 1)]
        [['dog'], ['bird']]
        """
        made = vectorize_texts(texts, labels, vectorizer, titles)
        self._opened = self._learn(
            made.rows, made.labels, made.names, made.titles, options, made.vectorizer
        )
        return self

    def _learn(
        self,
        X: Any,
        Y: Any,
        names: Iterable[str] | None,
        titles: Any,
        options: dict[str, Any],
        vectorizer: Vectorizer | None = None,
    ) -> _Opened:
        run = check_options(options)
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
            as_recipe(self._given["recipe"]),
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
        return _Opened(group, dealt, named, vectorizer, calibration)

    def _open(self, paths: list[Path], **options: Any) -> PartGroup:
        ray, replicas = self._given["ray"], self._given["replicas"]
        return open_parts(paths, LabelShard, ray=ray, replicas=replicas, **options)

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
        opened = self._fitted()
        shards = len(opened.labels)
        k = check_k(k, len(self), owner="predict")
        deadline = check_deadline(deadline, partial, owner="predict")
        if threshold is not None:
            check_float("threshold", threshold, at_least=0.0, at_most=1.0, owner="predict")
        rows, single = as_query_rows(X, self.dim)
        calls = [
            (rows, wanted, threads, parameters, opened.calibration)
            for wanted in opened.count_wanted(k)
        ]
        answers = opened.group.call("rank", calls, deadline, partial)
        answered = [shard for shard in range(shards) if shard not in answers.missing]
        odds, labels = _merge(answers.values, [opened.labels[shard] for shard in answered], k)
        scores = to_probabilities(odds)
        min_votes = parameters.get("min_votes") or 1
        if min_votes > 1 and (labels[:, : len(self)] < 0).any():
            warn(describe_few(k, "labels", "rows", min_votes))
        left_out = (labels < 0) | (scores < (threshold or 0))
        scores[left_out], labels[left_out] = 0, -1
        found = ShardedPrediction(*((scores[0], labels[0]) if single else (scores, labels)))
        found.missing = answers.missing
        return found

    def explain(self, X: Any, k: int = 5, **parameters: Unpack[PredictArguments]) -> Any:
        """Return why the k best labels of a row were predicted, over all shards.

        Parameters
        ----------
        X, k, **parameters
            As for `predict`.

        Returns
        -------
        RowExplanation, or a list of them
            As `LabelIndex.explain` returns them. The buckets of a label are those of its shard.
        """
        opened = self._fitted()
        k = check_k(k, len(self), owner="explain")
        rows, single = as_query_rows(X, self.dim)
        calls = [
            (rows, wanted, parameters, opened.calibration) for wanted in opened.count_wanted(k)
        ]
        told = opened.group.call("explain", calls).values
        explained = [
            _merge_explanations([part[row] for part in told], opened, k)
            for row in range(rows.shape[0])
        ]
        return explained[0] if single else explained

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ONE_INDEX:
            raise NotInShards(
                f"A ShardedLabelIndex has no {name}: its shards stay as they were fitted. Fit it "
                f"again with all rows, or use a LabelIndex, which has {name}, on one machine."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        return sum(map(len, self._fitted().labels))

    def __repr__(self) -> str:
        state = "not fitted" if self._opened is None else f"{len(self)} labels"
        return f"ShardedLabelIndex(recipe={self.recipe.name!r}, {self.shards} shards, {state})"

    def _repr_html_(self) -> str:
        if self._opened is None:
            return render_html("ShardedLabelIndex", self._given | {"state": "not fitted"})
        stats = self.stats()
        facts = {
            "labels": f"{len(self):,} {'with' if stats['names'] else 'without'} names",
            "rows": f"{stats['rows']:,} {'texts' if stats['text'] else 'rows'}, "
            f"{self.dim:,} features",
            "shards": f"{self.shards}, with {stats['buckets']:,} buckets in all",
            "recipe": self.recipe.name,
            "memory": f"{stats['bytes'] / 1e6:,.1f} MB",
        }
        return render_html("ShardedLabelIndex", facts)

    @property
    def recipe(self) -> Recipe:
        """The recipe of each shard."""
        return as_recipe(self._given["recipe"])

    @property
    def shards(self) -> int:
        """The number of shards."""
        return self._given["shards"] if self._opened is None else len(self._opened.labels)

    @property
    def names(self) -> Names | None:
        """The names of the labels, if `fit` was given any."""
        return None if self._opened is None else self._opened.names

    @property
    def vectorizer(self) -> Vectorizer | None:
        """Turns texts into rows of features. It is made by `fit_text`."""
        return None if self._opened is None else self._opened.vectorizer

    @property
    def rows(self) -> int:
        """The number of rows that the index has learned from."""
        rows: int = self._fitted().group.facts[0]["stats"]["rows"]
        return rows

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of these rows that carry each label (L,)."""
        opened = self._fitted()
        counts = np.empty(len(self), dtype=np.int64)
        for own, facts in zip(opened.labels, opened.group.facts, strict=True):
            counts[own] = facts["counts"]
        return counts

    @property
    def dim(self) -> int:
        """The number of features of a row."""
        dim: int = self._fitted().group.facts[0]["stats"]["dim"]
        return dim

    @property
    def history(self) -> list[dict[str, Any]]:
        """Loss, recall and loads after each re-partition, shard by shard."""
        return [] if self._opened is None else self._opened.group.history

    def stats(self) -> dict[str, Any]:
        """Return sizes and bytes of all shards together, and the settings of the first."""
        group, calibration = self._fitted().group, self._fitted().calibration
        shared = {} if calibration is None else {"calibration": calibration.state()}
        return group.sum_stats(("buckets", "entries", "ranker_weights", "bytes")) | {
            **shared,
            "kind": LABEL_SHARDS,
            "items": len(self),
            "names": self.names is not None,
            "text": self.vectorizer is not None,
            "shards": self.shards,
            "loads": [loads for facts in group.facts for loads in facts["stats"]["loads"]],
        }

    def _fitted(self) -> _Opened:
        if self._opened is None:
            raise NotFitted(
                "This ShardedLabelIndex is not fitted yet. Call fit(X, Y) or load(path)."
            )
        return self._opened

    def save(self, path: StrPath) -> None:
        """Write the index folder `path`. An index that is there already is replaced."""
        group, labels, names, vectorizer, calibration = self._fitted()
        text, words = (None, {}) if vectorizer is None else vectorizer.state()
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
        group.save(path, ShardedContents(LABEL_SHARDS, len(labels), meta, arrays | words))

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
        group = index._open(paths, sums=sums, **options)
        facts = group.facts
        opened = _Opened(group, labels, names, vectorizer, calibration)
        check_shards(facts, "items", [len(part) for part in labels])
        dim = facts[0]["stats"]["dim"] if vectorizer is None else len(vectorizer.words)
        check_shards(facts, "dim", [dim] * len(facts))
        index._opened = opened
        return index

    def close(self) -> None:
        """End the Ray actors that serve the shards. Otherwise they end with this object."""
        if self._opened is not None:
            self._opened.group.close()
            self._opened = None


def _merge(
    parts: list[tuple[NDArray[np.float32], NDArray[np.int64]]],
    labels_of: list[NDArray[np.int64]],
    k: int,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the k best labels of all parts, with their numbers in the whole index.

    Parts are log-odds and labels: probabilities near 1 would be equal where log-odds are not. Of
    equal labels the first are better.
    """
    numbers = [
        np.append(known, -1)[found]  # -1: padding
        for (_, found), known in zip(parts, labels_of, strict=True)
    ]
    labels = np.concatenate(numbers, axis=1)
    odds = np.where(labels >= 0, np.concatenate([odds for odds, _ in parts], axis=1), -np.inf)
    best = np.lexsort((labels, -odds), axis=1)[:, :k]
    missing, odds = ((0, 0), (0, k - best.shape[1])), odds.astype(np.float32)
    return (
        np.pad(np.take_along_axis(odds, best, axis=1), missing, constant_values=-np.inf),
        np.pad(np.take_along_axis(labels, best, axis=1), missing, constant_values=-1),
    )


def _merge_explanations(parts: list[RowExplanation], opened: _Opened, k: int) -> RowExplanation:
    """Return the explanations of the k best labels of a row, with numbers, names and words."""
    names, vectorizer = opened.names, opened.vectorizer
    found = []
    for part, known in zip(parts, opened.labels, strict=True):
        for each in part.labels:
            label = int(known[each.label])
            name = str(label) if names is None else names.title(label)
            words = each.words
            if vectorizer is not None:
                words = [one._replace(word=vectorizer.words[one.feature]) for one in words]
            found.append(dataclasses.replace(each, label=label, name=name, words=words))
    return RowExplanation(sorted(found, key=lambda each: (-each.log_odds, each.label))[:k])


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
