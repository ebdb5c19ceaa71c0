"""Indexes that change: python benchmarks/living.py NAME...

    runbook   recall, work and cost step by step, beside fresh fits and peers (--act make or run)
    speed     inserts and removals in batches and one by one, beside hnswlib
    drift     queries unlike the items: taught nothing, after 4,000 recorded ones, taught by them
    filters   compile and search under filters by payload, beside databases in the same process
    free      an index that never changes: speed, memory and folder beside another checkout (--old)

Times are CPU seconds of one thread.
"""

from __future__ import annotations

from pathlib import Path

from bench.commands import make_parser, run
from bench.living.drift import drift
from bench.living.filters import filters
from bench.living.free import free
from bench.living.runbook import runbook
from bench.living.runbooks import KINDS, ROWS
from bench.living.speed import speed

BENCHMARKS = {
    "runbook": runbook,
    "speed": speed,
    "drift": drift,
    "filters": filters,
    "free": free,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the command line names."""
    parser = make_parser(__doc__ or "", BENCHMARKS)
    parser.add_argument("--act", choices=["make", "run"], default="run", help="of runbooks")
    parser.add_argument("--only", nargs="+", choices=list(ROWS), help="some of the data sets")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, help="some of the runbooks")
    parser.add_argument("--methods", nargs="+", help="some of the methods")
    parser.add_argument("--rows", type=_read_rows, default={}, help="as glove=80000,wordnet=36000")
    parser.add_argument("--fresh", action="store_true", help="run again what was run")
    parser.add_argument("--old", type=Path, help="a checkout to compare with, with its .venv")
    run(parser.parse_args(arguments), BENCHMARKS)


def _read_rows(text: str) -> dict[str, int]:
    return {name: int(rows) for name, rows in (part.split("=") for part in text.split(","))}


if __name__ == "__main__":
    main()
