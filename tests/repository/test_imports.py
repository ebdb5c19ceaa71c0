"""A process that only searches must stay small: heavy packages are imported when used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from plantedlabels import labelled, small_labels

from irli import LabelIndex

HEAVY = {"torch", "ray", "faiss", "fastapi", "matplotlib", "sklearn"}


@pytest.mark.parametrize(
    "module",
    [
        "irli",
        "irli.vectors.index",
        "irli.labels.index",
        "irli.engine.search",
        "irli.engine.predict",
        "irli.base.folder",
        "irli.base.vector_files",
        "irli.cli",
    ],
)
def test_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert module in run.stdout.split()
    assert not HEAVY & set(run.stdout.split())


def test_predicting_labels_loads_nothing_heavy(tmp_path: Path) -> None:
    """Not even growing does: only learning needs torch."""
    X, Y = labelled(60, 8)
    index = LabelIndex(small_labels(buckets=4, epochs=1), ranker=True).fit(X, Y, threads=1)
    index.save(tmp_path / "index")
    code = f"""
import sys, numpy, irli
index = irli.load({str(tmp_path / "index")!r})
rows = numpy.ones((3, {X.shape[1]}))
print(index.predict(rows, k=2).labels.shape)
print(len(index.add_labels(rows, numpy.ones((3, 1)))))
print(*sys.modules, sep="\\n")
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("(3, 2)\n9\n")
    assert not HEAVY & set(run.stdout.split())
