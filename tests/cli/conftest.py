"""What all commands are run with."""

from __future__ import annotations

import pytest
from commands import Runner, runner


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runner:
    return runner(capsys)
