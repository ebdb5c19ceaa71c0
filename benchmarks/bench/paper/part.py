"""What every part of the reproduction shares: cells that resume, a table, a plot, and claims.

A part measures cells one by one. Each is written as soon as it is measured, so an interrupted run
goes on where it stopped. From its cells a part makes NAME.md and NAME.png, and the claims of the
paper that it answers. `report` collects them all into docs/paper.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.commands import Options
from bench.common import say, write_json

PLANNED = "planned"
VERDICTS = ("holds", "holds in part", "does not hold here", PLANNED)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper beside what was measured here."""

    claim: str
    paper: str
    ours: str
    verdict: str
    command: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"The verdict must be one of {VERDICTS}. Got {self.verdict!r}.")


def choose_verdict(holds: bool, in_part: bool) -> str:
    """Return the verdict on a claim by the rules of a part.

    Examples
    --------
    >>> choose_verdict(holds=False, in_part=True)
    'holds in part'
    """
    return VERDICTS[0] if holds else VERDICTS[1] if in_part else VERDICTS[2]


class Cells:
    """Measurements by name, in a JSON file.

    Examples
    --------
    >>> import tempfile
    >>> cells = Cells(Path(tempfile.mkdtemp()) / "loads.json")
    >>> cells.measure("hash", lambda: {"std": 3.0})
    measure hash ...
    {'std': 3.0}
    >>> cells.measure("hash", lambda: {"std": 4.0})  # it was measured before
    {'std': 3.0}
    """

    def __init__(self, path: Path, settings: dict[str, Any] | None = None) -> None:
        self.path, self.settings = path, json.loads(json.dumps(settings or {}))
        self.measured: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}  # processor time of each
        if path.exists():
            kept = json.loads(path.read_text())
            if kept["settings"] == self.settings:  # those of other settings mean something else
                self.measured, self.seconds = kept["cells"], kept.get("cpu_seconds", {})

    def measure(self, name: str, call: Callable[[], Any]) -> Any:
        """Return what was measured under this name, or measure it now and keep it."""
        if name not in self.measured:
            say(f"measure {name} ...")
            before = _count_seconds()
            found = json.loads(json.dumps(call(), default=float))
            self.measured[name] = found
            self.seconds[name] = round(_count_seconds() - before, 1)
            kept = {"settings": self.settings, "cells": self.measured, "cpu_seconds": self.seconds}
            write_json(self.path, kept)
        return self.measured[name]


def _count_seconds() -> float:
    """Return the processor time of this process and of those that it waited for."""
    return sum(os.times()[:4])


def open_cells(options: Options, name: str, **settings: Any) -> Cells:
    """Return the cells of a part at the scale of the run."""
    return Cells(name_result(options, name, ".json"), settings)


def write_part(options: Options, name: str, lines: list[str], claims: list[Claim]) -> None:
    """Write and print the Markdown of a part, and write its claims."""
    text = "\n".join(lines)
    say(text)
    path = name_result(options, name, ".md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    write_json(name_result(options, name, ".claims.json"), [asdict(claim) for claim in claims])


def name_result(options: Options, name: str, suffix: str) -> Path:
    """Return the path of a file of a part. Each scale has a folder of its own."""
    return Path(options.results) / "paper" / options.scale / f"{name}{suffix}"


def format_interval(values: list[float], digits: int = 3) -> str:
    """Return the mean of several seeds with the half width of its 95 % interval.

    Examples
    --------
    >>> format_interval([0.5, 0.6, 0.7])
    '0.600 ± 0.248'
    >>> format_interval([0.5])
    '0.500 (one seed)'
    """
    if len(values) < 2:
        return f"{values[0]:.{digits}f} (one seed)"
    student = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}.get(len(values), 1.96)
    half = student * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return f"{np.mean(values):.{digits}f} ± {half:.{digits}f}"


def use_log_scale(axis: Any) -> None:
    """Give the x axis of a plot a logarithmic scale with labels at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter("{x:g}")
