"""LabelShard: some of the labels of a label index, and the methods that are called on it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.folder import read_manifest
from irli.base.parts.local import Part
from irli.labels.explain import RowExplanation
from irli.labels.index import LabelIndex
from irli.labels.parameters import PredictArguments
from irli.labels.tuning.calibration import Calibration


class LabelShard(Part):
    """A shard with some of the labels of a label index."""

    index: LabelIndex

    def __init__(self, path: str, mmap: bool = True, verify: bool = True) -> None:
        self._last = self.index = LabelIndex.load(path, mmap=mmap, verify=verify)

    def save(self, path: str) -> str:
        """Save the index of this part, and return the checksum of its manifest."""
        self.index.save(path)
        return str(read_manifest(path)["checksum"])

    def facts(self) -> dict[str, Any]:
        """Return the stats and history of this shard, and how many rows carry each label."""
        index = self.index
        return {"stats": index.stats(), "history": index.history, "counts": index.counts}

    def rank(
        self,
        rows: Any,
        k: int,
        threads: int | None,
        parameters: PredictArguments,
        calibration: Calibration | None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return log-odds and numbers of the k best labels, numbered as in this shard."""
        return self._blended(calibration)._rank(rows, k, None, threads, parameters)[:2]

    def explain(
        self, rows: Any, k: int, parameters: PredictArguments, calibration: Calibration | None
    ) -> list[RowExplanation]:
        """Return why the k best labels of this shard were predicted for each row."""
        explained: list[RowExplanation] = self._blended(calibration).explain(rows, k, **parameters)
        return explained

    def _blended(self, calibration: Calibration | None) -> LabelIndex:
        """Return the index with the calibration of all shards, if they have one."""
        if calibration is not None and self._last.calibration != calibration:
            self._last = self.index.with_calibration(calibration)
        return self.index if calibration is None else self._last
