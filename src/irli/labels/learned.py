"""Learned: a label index that is ready to predict. The front asks it, and so do shards."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import BLOCK
from irli.base.checks import check_bool
from irli.base.folder import LABELS
from irli.base.threads import thread_count
from irli.base.types import Rows
from irli.errors import InvalidParameter
from irli.labels.build.features import hash_features
from irli.labels.contents import LabelContents
from irli.labels.explain import Asked, RowExplanation, explain_rows
from irli.labels.parameters import LabelParameters, PredictArguments
from irli.labels.predictor import Predictor
from irli.labels.tuning.calibration import Calibration, to_probabilities
from irli.labels.tuning.curve import bend


class Learned(NamedTuple):
    """The contents of an index, and a predictor that uses the same arrays."""

    contents: LabelContents
    predictor: Predictor

    @classmethod
    def of(cls, contents: LabelContents) -> Learned:
        """Return contents that are ready to predict."""
        predictor = Predictor(contents.model.layout)
        model = contents.model._replace(layout=predictor.layout)
        return cls(dataclasses.replace(contents, model=model), predictor)

    def with_calibration(self, calibration: Calibration) -> Learned:
        """Return the same with its sources blended in another way. Shards share a calibration."""
        model = self.contents.model._replace(calibration=calibration)
        return self._replace(contents=dataclasses.replace(self.contents, model=model))

    def rank(
        self,
        rows: Rows,
        k: int,
        ranker: bool | None,
        threads: int | None,
        parameters: PredictArguments,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return log-odds and labels (n, k), best first. Beyond all labels these are -inf and -1.

        `LabelIndex.predict` explains the parameters.
        """
        most = min(k, len(self.contents.counts))
        chosen, calibration = self._choose_way(ranker, parameters)
        routed, ranked = self.scale(rows)
        several = rows.shape[0] > BLOCK or self.predictor.is_slow_to_route
        if threads is not None or several:  # asking the system takes a while
            threads = thread_count(threads)
        scores, labels = self.predictor.predict(
            routed, ranked, most, chosen, calibration, threads or 1
        )
        if not calibration.is_blended:
            scores = scores * np.float32(calibration.by_score) + np.float32(calibration.threshold)
        odds = bend(calibration.curve, scores.astype(np.float64)).astype(np.float32)
        if most < k:
            more = ((0, 0), (0, k - most))
            odds = np.pad(odds, more, constant_values=-np.inf)
            labels = np.pad(labels, more, constant_values=-1)
        return odds, labels

    def explain(
        self, rows: Rows, k: int, ranker: bool | None, parameters: PredictArguments
    ) -> list[RowExplanation]:
        """Return why the k best labels of each row were predicted."""
        odds, labels = self.rank(rows, k, ranker, None, parameters)
        asked = Asked(
            *self.scale(rows),
            odds,
            to_probabilities(odds),
            labels,
            *self._choose_way(ranker, parameters),
        )
        known = self.contents
        return explain_rows(self.predictor, asked, known.names, known.vectorizer, known.titled)

    def scale(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return the rows with the routers' features, and with those of the ranker."""
        scaled = self.contents.model.scaling.apply(rows)
        return hash_features(scaled, self.contents.recipe), scaled

    def _choose_way(
        self, ranker: bool | None, given: PredictArguments
    ) -> tuple[LabelParameters, Calibration]:
        """Return the parameters and the calibration of one call."""
        chosen = self.contents.model.parameters.replace(**given)
        calibration = self._choose_calibration(ranker)
        if given.get("near") and calibration.by_votes <= 0:
            raise InvalidParameter(
                "The 'near' parameter of predict must be 0 for an index, or a prediction, without "
                f"near rows. Got {chosen.near} instead. Leave it out: they did not help on "
                "held-out rows."
            )
        return chosen, calibration

    def _choose_calibration(self, ranker: bool | None) -> Calibration:
        """Return the calibration with which to predict, with or without the ranker."""
        model = self.contents.model
        if ranker is None:
            return model.calibration
        if not check_bool("ranker", ranker, owner="predict"):
            return model.alone
        if not model.calibration.is_blended:
            raise InvalidParameter(
                "The 'ranker' parameter of predict must not be True for an index without a ranker. "
                "Got True instead. Leave it out, or fit LabelIndex(ranker=True)."
            )
        return model.calibration

    def least_votes(self, given: PredictArguments) -> int:
        """Return the votes that a label needs to be found."""
        return given.get("min_votes") or self.contents.model.parameters.min_votes

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many labels each bucket holds: an array of shape (B,) for each repetition."""
        return list(np.diff(self.predictor.layout.offsets, axis=1))

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes as plain values."""
        contents, layout = self.contents, self.predictor.layout
        repetitions, buckets = layout.bias.shape
        return {
            "kind": LABELS,
            "items": len(contents.counts),
            "rows": contents.rows,
            "dim": contents.dim,
            "repetitions": repetitions,
            "buckets": buckets,
            "entries": len(layout.items),
            "ranker_weights": len(layout.weights),
            "recipe": dataclasses.asdict(contents.recipe),
            "defaults": dataclasses.asdict(contents.model.parameters),
            "calibration": contents.model.calibration.state(),
            "bytes": sum(part.nbytes for part in layout),
        }
