"""A process that only searches must stay small: heavy packages are imported when used."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "ray", "faiss", "fastapi", "matplotlib"}


@pytest.mark.parametrize(
    "module", ["irli", "irli.vectors", "irli.kernels", "irli.storage", "irli.datasets", "irli.cli"]
)
def test_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert module in run.stdout.split()
    assert not HEAVY & set(run.stdout.split())
