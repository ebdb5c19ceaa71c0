"""Labels of ours beside those of another method, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plantedlabels import labelled

from irli.labels.metrics import evaluate

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not part of this distribution", allow_module_level=True)


def test_the_means_over_rows_are_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from bench.labels.compare import _compare_pairs

    known, truth = labelled(200, 30).Y, labelled(50, 30, seed=1).Y
    rng = np.random.default_rng(0)

    def guess(method: str) -> dict[str, Any]:
        odds = rng.random((50, 30)) + (rng.random((50, 1)) < 0.5) * truth.toarray()
        found = np.argsort(-odds, axis=1)[:, :5]
        found[::7, 4] = -1  # fewer than five were found
        return {"method": method, "predictions": found}

    ours, others = [guess("irli"), guess("irli")], [guess("one"), guess("two")]
    for metric, method, theirs, mine, difference, _ in _compare_pairs(ours, others, known, truth):
        scores = [
            100 * evaluate(run["predictions"], truth, known)[metric] for run in (*ours, *others)
        ]
        assert float(mine) == pytest.approx(np.mean(scores[:2]), abs=0.006)
        assert float(theirs) == pytest.approx(max(scores[2:]), abs=0.006)
        assert method == others[int(np.argmax(scores[2:]))]["method"]
        above, error = map(float, difference.split(" ± "))
        assert above == pytest.approx(np.mean(scores[:2]) - max(scores[2:]), abs=0.012)
        assert error > 0
