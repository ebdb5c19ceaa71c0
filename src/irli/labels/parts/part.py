"""LabelPart: a shard with some of the labels of a label index, and what is called on it."""

from __future__ import annotations

from typing import Any

from irli.base.folder import Folder, read_folder, reading
from irli.base.parts.local import Part
from irli.labels.contents import pack_labels, unpack_labels
from irli.labels.explain import RowExplanation
from irli.labels.front import Answer
from irli.labels.learned import Learned
from irli.labels.parameters import PredictArguments
from irli.labels.tuning.calibration import Calibration


class LabelPart(Part):
    """Some of the labels of an index."""

    def __init__(self, path: str, mmap: bool = True, verify: bool = True) -> None:
        contents = unpack_labels(read_folder(path, mmap=mmap, verify=verify))
        with reading():  # the native engine checks that no array points outside of another
            self._last = self._learned = Learned.of(contents)

    def pack(self) -> Folder:
        """Return this part as a folder in memory."""
        return pack_labels(self._learned.contents)

    def facts(self) -> dict[str, Any]:
        """Return stats, loads, history, and how many rows carry each label."""
        learned, contents = self._learned, self._learned.contents
        return {
            "stats": learned.stats(),
            "loads": learned.loads(),
            "history": contents.history,
            "counts": contents.counts,
        }

    def rank(
        self,
        rows: Any,
        k: int,
        threads: int | None,
        parameters: PredictArguments,
        calibration: Calibration | None,
    ) -> Answer:
        """Return log-odds and numbers of the k best labels, numbered as in this part."""
        return self._blended(calibration).rank(rows, k, None, threads, parameters)

    def explain(
        self, rows: Any, k: int, parameters: PredictArguments, calibration: Calibration | None
    ) -> list[RowExplanation]:
        """Return why the k best labels of this part were predicted for each row."""
        return self._blended(calibration).explain(rows, k, None, parameters)

    def _blended(self, calibration: Calibration | None) -> Learned:
        """Return what was learned, with the calibration of all parts if they have one."""
        if calibration is None:
            return self._learned
        if self._last.contents.model.calibration != calibration:
            self._last = self._learned.with_calibration(calibration)
        return self._last
