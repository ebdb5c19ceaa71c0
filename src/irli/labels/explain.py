"""Explain predictions of labels: what each source said, with words, near rows and buckets.

The labels and their log-odds are those of `predict`, and what the sources say comes from the same
kernels. The rest is read from the arrays of the index, for the features of a row alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.html import render_html
from irli.base.types import Rows, Sparse
from irli.engine.int8 import untile
from irli.engine.label_layout import LabelLayout
from irli.engine.linear import find_best_outputs
from irli.labels.build.assemble import read_near_rows
from irli.labels.build.features import as_sparse, to_arrays
from irli.labels.parameters import LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.text.vectorizer import Names, Vectorizer
from irli.labels.tuning.calibration import Calibration, Candidates

_SHOWN = 6  # words, near rows of a label that are printed


class WordEffect(NamedTuple):
    """A feature of the row, and what it adds to the ranker's margin of a label.

    Attributes
    ----------
    feature : int
    word : str
        The word that the feature stands for, or its number if the index was not fitted on texts.
    value, weight : float
        Of the feature in the row, as the ranker sees it, and in the classifier.
    """

    feature: int
    word: str
    value: float
    weight: float

    @property
    def effect(self) -> float:
        """The product: above 0 it speaks for the label."""
        return self.value * self.weight


class NearRow(NamedTuple):
    """A training row near to this one that carries the label.

    Attributes
    ----------
    row : int
        Its place among the rows with labels. -1 is the title of the label, if it was learned from.
    cosine : float
    """

    row: int
    cosine: float

    def __str__(self) -> str:
        return f"{'its title' if self.row < 0 else self.row} ({self.cosine:.2f})"


class BucketWay(NamedTuple):
    """The bucket of a label in one repetition, and what the router thinks of it.

    Attributes
    ----------
    repetition, bucket : int
    rank : int
        The place of the bucket among all of this repetition, from 1 up.
    probability : float
    probed : bool
        Whether the prediction looked into it.
    """

    repetition: int
    bucket: int
    rank: int
    probability: float
    probed: bool


@dataclass(frozen=True)
class LabelExplanation:
    """Why a label was predicted.

    log_odds = from_routers + from_ranker + from_near_rows + constant + from_curve

    Attributes
    ----------
    label : int
    name : str
        The title or name of the label, or its number.
    probability, log_odds : float
        As `predict` and `decision_function` return them.
    score, margin, votes : float
        What routers, ranker and near rows say. A margin of 1 or more is certain. Without a ranker,
        the margin is 0; without near rows, the votes are 0.
    from_routers, from_ranker, from_near_rows, constant, from_curve : float
        What they add to the log-odds: see `Calibration`. The curve keeps the order of labels.
    bias : float
        margin = bias + the effects of all words.
    words : list of WordEffect
        The features for which the label has a weight, the strongest first.
    near : list of NearRow
        The rows that vote for the label, the nearest first.
    buckets : list of BucketWay
        Where the label is, by repetition.
    """

    label: int
    name: str
    probability: float
    log_odds: float
    score: float
    margin: float
    votes: float
    from_routers: float
    from_ranker: float
    from_near_rows: float
    constant: float
    from_curve: float
    bias: float
    words: list[WordEffect]
    near: list[NearRow]
    buckets: list[BucketWay]

    def facts(self) -> dict[str, str]:
        """Return what is shown, by name."""
        parts = {
            "routers": self.from_routers,
            "ranker": self.from_ranker,
            "near rows": self.from_near_rows,
            "constant": self.constant,
            "curve": self.from_curve,
        }
        added = ", ".join(f"{name} {value:+.2f}" for name, value in parts.items())
        found = {"log-odds": f"{self.log_odds:+.2f}: {added}"}
        for title, sign in (("for", 1), ("against", -1)):
            chosen = [word for word in self.words if word.effect * sign > 0][:_SHOWN]
            if chosen:
                listed = ", ".join(f"{word.word} {word.effect:+.2f}" for word in chosen)
                found[title] = listed
        if self.words or self.bias:
            found["margin"] = f"{self.margin:.2f}, of which {self.bias:+.2f} is the bias"
        if self.near:
            listed = ", ".join(map(str, self.near[:_SHOWN]))
            found["near rows"] = f"{len(self.near)} carry it: {listed}"
        probed = [way for way in self.buckets if way.probed]
        listed = ", ".join(
            f"{way.bucket} (rank {way.rank}, {way.probability:.2f})" for way in probed
        )
        places = f"{len(probed)} of {len(self.buckets)} are probed"
        found["buckets"] = f"{places}: {listed}" if probed else places
        return found

    def __str__(self) -> str:
        facts = self.facts()
        wide = max(map(len, facts))
        lines = [f"{self.name} ({self.probability:.3f})"]
        lines += [f"  {name:{wide}}  {value}" for name, value in facts.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class RowExplanation:
    """Why labels were predicted for a row, the best first."""

    labels: list[LabelExplanation]

    def __str__(self) -> str:
        return "\n".join(map(str, self.labels)) or "no label was found"

    def _repr_html_(self) -> str:
        return "".join(
            render_html(f"{each.name} ({each.probability:.3f})", each.facts())
            for each in self.labels
        )


class Asked(NamedTuple):
    """A prediction to explain.

    Attributes
    ----------
    routed, ranked : arrays or CSRs
        The rows with the routers' features, and with those of the ranker.
    odds, probabilities : float32 arrays of shape (n, k)
    labels : int64 array of shape (n, k)
        What was predicted, padded with -1.
    parameters, calibration
        With which it was predicted.
    """

    routed: Rows
    ranked: Rows
    odds: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    labels: NDArray[np.int64]
    parameters: LabelParameters
    calibration: Calibration


def explain_rows(
    predictor: Predictor,
    asked: Asked,
    names: Names | None,
    vectorizer: Vectorizer | None,
    titled: Sequence[tuple[int, int]] = (),
) -> list[RowExplanation]:
    """Return an explanation for each row. `titled` says which near rows are titles."""
    layout, calibration = predictor.layout, asked.calibration
    wide = max(asked.parameters.candidates, asked.labels.shape[1])
    if not calibration.is_blended:  # all labels of the probed buckets are candidates
        wide = len(layout.prior)
    parameters = dataclasses.replace(asked.parameters, candidates=wide)
    found = predictor.list_candidates(asked.routed, asked.ranked, parameters, calibration)
    routed, ranked = as_sparse(asked.routed), as_sparse(asked.ranked)
    homes = _Homes(layout)
    explained = []
    for row in range(len(asked.labels)):
        seen = _RowView(layout, parameters, calibration, routed[[row]], ranked[[row]], titled)
        one = Candidates(*(part[row] for part in found))
        each = zip(asked.labels[row], asked.odds[row], asked.probabilities[row], strict=True)
        explained.append(
            RowExplanation(
                [
                    _explain_label(
                        int(label), float(odds), float(likely), one, seen, homes, names, vectorizer
                    )
                    for label, odds, likely in each
                    if label >= 0
                ]
            )
        )
    return explained


def _explain_label(
    label: int,
    odds: float,
    likely: float,
    found: Candidates,
    seen: _RowView,
    homes: _Homes,
    names: Names | None,
    vectorizer: Vectorizer | None,
) -> LabelExplanation:
    at = np.flatnonzero(found.labels == label)[:1]
    one = Candidates(found.labels[at], found.scores[at], found.margins[at], found.votes[at])
    score, margin, votes = float(one.scores[0]), float(one.margins[0]), float(one.votes[0])
    weighed = [
        calibration.to_log_odds(one)[0] for calibration in _isolate_sources(seen.calibration)
    ]
    by_routers, by_ranker, by_votes = map(float, weighed)
    blended = by_routers + by_ranker + by_votes + seen.calibration.threshold
    bias = float(seen.layout.constant[label]) if seen.calibration.by_margin > 0 else 0.0
    return LabelExplanation(
        label=label,
        name=str(label) if names is None else names.title(label),
        probability=likely,
        log_odds=odds,
        score=score,
        margin=margin,
        votes=votes,
        from_routers=by_routers,
        from_ranker=by_ranker,
        from_near_rows=by_votes,
        constant=seen.calibration.threshold,
        from_curve=odds - blended,
        bias=bias,
        words=seen.list_words(label, vectorizer),
        near=seen.list_near(label),
        buckets=seen.list_ways(homes.find(label)),
    )


def _isolate_sources(calibration: Calibration) -> list[Calibration]:
    """Return a calibration for each source alone: routers, ranker, near rows."""
    nothing = Calibration(0.0, 0.0, 0.0)
    return [
        nothing._replace(by_score=calibration.by_score),
        nothing._replace(by_margin=calibration.by_margin),
        nothing._replace(by_votes=calibration.by_votes),
    ]


class _Homes:
    """Finds the buckets of labels."""

    def __init__(self, layout: LabelLayout) -> None:
        self.layout = layout

    def find(self, label: int) -> list[tuple[int, int]]:
        """Return pairs of a repetition and a bucket that holds the label."""
        entries = np.flatnonzero(self.layout.items == label)
        buckets = self.layout.bias.shape[1]
        starts = self.layout.offsets[:, :-1].ravel()
        places = np.searchsorted(starts, entries, side="right") - 1
        return [divmod(int(place), buckets) for place in places]


class _RowView:
    """What an index sees of one row."""

    def __init__(
        self,
        layout: LabelLayout,
        parameters: LabelParameters,
        calibration: Calibration,
        routed: Sparse,
        ranked: Sparse,
        titled: Sequence[tuple[int, int]],
    ) -> None:
        self.layout, self.parameters, self.calibration = layout, parameters, calibration
        self.ranked, self.titled = ranked, titled
        self.likely = np.exp(route_row(layout, routed))
        self.rank = np.argsort(np.argsort(-self.likely, axis=1, kind="stable"), axis=1) + 1
        near = parameters.near if calibration.by_votes > 0 else 0
        self.near: list[NearRow] = []
        if near:
            known = read_near_rows(layout)
            products, rows = find_best_outputs(0, 1, to_arrays(ranked), known.packed, near)
            length = float(np.sqrt((ranked.data.astype(np.float64) ** 2).sum()))
            self.near = [
                NearRow(int(row), float(product) / length)
                for product, row in zip(products[0], rows[0], strict=True)
                if row >= 0 and product > 0
            ]

    def list_words(self, label: int, vectorizer: Vectorizer | None) -> list[WordEffect]:
        """Return the features of the row for which the label has a weight, strongest first."""
        if self.calibration.by_margin <= 0:
            return []
        found = []
        for feature, value in zip(self.ranked.indices, self.ranked.data, strict=True):
            first, last = self.layout.starts[feature : feature + 2]
            labels = np.cumsum(self.layout.gaps[first:last], dtype=np.int64)
            weights = self.layout.weights[first:last][labels == label]
            step = int(weights.sum(dtype=np.int64))  # bridges are 0
            if step:
                word = str(feature) if vectorizer is None else vectorizer.words[feature]
                weight = float(step * self.layout.scale[label])
                found.append(WordEffect(int(feature), word, float(value), weight))
        return sorted(found, key=lambda each: -abs(each.effect))

    def list_near(self, label: int) -> list[NearRow]:
        """Return the near rows that carry the label."""
        starts, labels = self.layout.near_label_starts, self.layout.near_labels
        return [
            each._replace(row=find_place(each.row, self.titled))
            for each in self.near
            if label in labels[starts[each.row] : starts[each.row + 1]]
        ]

    def list_ways(self, homes: list[tuple[int, int]]) -> list[BucketWay]:
        """Return what the routers think of buckets."""
        return [
            BucketWay(
                repetition,
                bucket,
                int(self.rank[repetition, bucket]),
                float(self.likely[repetition, bucket]),
                bool(self.rank[repetition, bucket] <= self.parameters.probes),
            )
            for repetition, bucket in homes
        ]


def find_place(row: int, titled: Sequence[tuple[int, int]]) -> int:
    """Return the place of a near row among those that are no titles, or -1 if it is one.

    Examples
    --------
    >>> [find_place(row, [(2, 4), (5, 6)]) for row in range(7)]
    [0, 1, -1, -1, 2, -1, 3]
    """
    if any(first <= row < last for first, last in titled):
        return -1
    return row - sum(last - first for first, last in titled if last <= row)


def route_row(layout: LabelLayout, row: Sparse) -> NDArray[np.float64]:
    """Return the log-probabilities of all buckets (R, B) for a row (1, d).

    The numbers are rounded as the kernels round them.
    """
    repetitions, buckets = layout.bias.shape
    width = layout.shift.shape[1]
    logits = np.empty((repetitions, buckets))
    step, steps = 0.0, np.zeros(width)
    for r in range(repetitions):
        if r < len(layout.shift):  # one trunk serves all repetitions
            values = row.data * layout.project_scale[r, row.indices]
            features = np.maximum(values @ layout.project[r, row.indices] + layout.shift[r], 0)
            step = float(features.max(initial=0)) / 127
            steps = np.rint(features / step) if step > 0 else np.zeros(width)
        sums = steps @ untile(layout.out[r], width, buckets).astype(np.float64)
        logits[r] = layout.bias[r] + step * layout.out_scale[r].astype(np.float64) * sums
    logits -= logits.max(axis=1, keepdims=True)
    likely: NDArray[np.float64] = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return likely
