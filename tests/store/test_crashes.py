"""A part of what `make test-crash` does: see `crashes.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from crashes import compile_faults


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = compile_faults(tmp_path_factory.mktemp("faults"))
    if library is None:
        pytest.skip("it takes Linux and a C compiler")
    return library


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("kill", ["--step", "9"]),
        ("random", ["40"]),
        ("fail", ["--step", "50"]),
        ("power", ["--step", "40"]),
        ("power", ["--seed", "104", "--step", "30"]),  # what a killed one wrote, another closes
    ],
)
def test_nothing_acknowledged_is_lost(library: Path, kind: str, arguments: list[str]) -> None:
    program = [sys.executable, str(Path(__file__).parent / "crashes.py"), kind, *arguments]
    run = subprocess.run(
        program,
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "nothing lost" in run.stdout
