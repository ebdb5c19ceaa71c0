"""LabelParts: parts with some of the labels each that answer as one, wherever they run."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.parts.answers import Answers
from irli.base.parts.group import PartGroup, Parts
from irli.base.recipe import Recipe
from irli.base.types import Rows
from irli.labels.explain import RowExplanation
from irli.labels.front import Answer
from irli.labels.parameters import PredictArguments
from irli.labels.text.vectorizer import Names, Vectorizer
from irli.labels.tuning.calibration import Calibration
from irli.learning.repetition import History


class SharedContents(NamedTuple):
    """What all parts together know of their labels: as in `LabelContents`."""

    recipe: Recipe
    history: History
    rows: int
    dim: int
    counts: NDArray[np.int64]
    names: Names | None
    vectorizer: Vectorizer | None


class LabelParts(Parts):
    """Parts that learned from the same rows, and have some of the labels each.

    Parameters
    ----------
    group : PartGroup
        Each of them a `LabelPart`.
    labels : list of int64 arrays
        The labels of each part.
    calibration : Calibration, optional
        Of all parts. Without it, each has its own.
    """

    def __init__(
        self,
        group: PartGroup,
        labels: list[NDArray[np.int64]],
        recipe: Recipe,
        names: Names | None,
        vectorizer: Vectorizer | None,
        calibration: Calibration | None,
    ) -> None:
        super().__init__(group)
        self.labels, self.calibration = labels, calibration
        stats = group.facts[0]["stats"]
        counts = np.empty(sum(map(len, labels)), dtype=np.int64)
        for own, facts in zip(labels, group.facts, strict=True):
            counts[own] = facts["counts"]
        self.contents = SharedContents(
            recipe, group.history, stats["rows"], stats["dim"], counts, names, vectorizer
        )

    def least_votes(self, parameters: PredictArguments) -> int:
        """Return the votes that a label needs to be found."""
        return parameters.get("min_votes") or 1

    def rank(
        self,
        rows: Rows,
        k: int,
        ranker: bool | None,
        threads: int | None,
        parameters: PredictArguments,
    ) -> Answer:
        """Return log-odds and labels (n, k), best first. Parts always rank with all sources."""
        answers = self._ask("rank", rows, k, threads, parameters)
        answered = [own for part, own in enumerate(self.labels) if part not in answers.missing]
        return merge_labels(answers.values, answered, k)

    def explain(
        self, rows: Rows, k: int, ranker: bool | None, parameters: PredictArguments
    ) -> list[RowExplanation]:
        """Return why the k best labels of each row were predicted."""
        told = self._ask("explain", rows, k, parameters).values
        return [self._merge_explanations(parts, k) for parts in zip(*told, strict=True)]

    def _ask(self, method: str, rows: Rows, k: int, *arguments: Any) -> Answers:
        """Ask every part for so many labels that the k best are among them."""
        wanted = [(rows, min(k, len(own)), *arguments, self.calibration) for own in self.labels]
        return self._call(method, wanted)

    def _merge_explanations(self, parts: tuple[RowExplanation, ...], k: int) -> RowExplanation:
        """Return the explanations of the k best labels of a row, with numbers, names and words."""
        names, vectorizer = self.contents.names, self.contents.vectorizer
        found = []
        for part, known in zip(parts, self.labels, strict=True):
            for each in part.labels:
                label = int(known[each.label])
                name = str(label) if names is None else names.title(label)
                words = each.words
                if vectorizer is not None:
                    words = [one._replace(word=vectorizer.words[one.feature]) for one in words]
                found.append(dataclasses.replace(each, label=label, name=name, words=words))
        return RowExplanation(sorted(found, key=lambda each: (-each.log_odds, each.label))[:k])

    def stats(self) -> dict[str, Any]:
        """Return sizes and bytes of all parts together, and the settings of the first."""
        stats = self.group.sum_stats(("items", "buckets", "entries", "ranker_weights", "bytes"))
        if self.calibration is None:
            return stats
        return stats | {"calibration": self.calibration.state()}


def merge_labels(parts: list[Answer], labels_of: list[NDArray[np.int64]], k: int) -> Answer:
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
