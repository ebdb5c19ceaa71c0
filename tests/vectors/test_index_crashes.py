"""A part of what `make test-crash` does with whole indexes: see `index_crashes.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))
from crashes import compile_faults


@pytest.mark.parametrize("kind", ["kill", "time", "fail"])
def test_nothing_acknowledged_is_lost(kind: str, tmp_path: Path) -> None:
    library = compile_faults(tmp_path)
    if library is None:
        pytest.skip("it takes Linux and a C compiler")
    program = [sys.executable, str(Path(__file__).parent / "index_crashes.py"), kind, "8"]
    environment = os.environ | {"LD_PRELOAD": str(library)}
    run = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "8 crashes, nothing lost" in run.stdout
