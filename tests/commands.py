"""Running commands as a user would, and what a refusal must look like."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from irli.cli.app import main


class Run(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """What was printed, which must be one JSON object without NaN and infinity."""
        assert self.code in (0, 3), self.err
        value = json.loads(self.out, parse_constant=pytest.fail)
        assert isinstance(value, dict)
        return value


Runner = Callable[..., Run]


def runner(capsys: pytest.CaptureFixture[str]) -> Runner:
    def call(*arguments: object) -> Run:
        code = main([str(argument) for argument in arguments])
        return Run(code, *capsys.readouterr())

    return call


def refused(run: Run, *words: str, code: int = 2) -> None:
    assert (run.code, run.out) == (code, ""), run
    assert run.err.startswith("irli: error: ")
    assert run.err.count("\n") == 1
    assert "Traceback" not in run.err
    for word in words:
        assert word in run.err
