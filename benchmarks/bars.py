"""The bars that irli is held to, one command each: python benchmarks/bars.py NAME

Each trains and tunes without the queries that it reports on, runs FAISS beside it where there is
a comparison, prints a table and writes results/NAME.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import paper
import quality
import serving
from common import METRIC, ROOT

BARS = {
    "compare": lambda a: quality.compare(a.data, a.seeds, a.only or list(METRIC)),
    "votes": lambda a: quality.votes(a.data, a.seeds),
    "paper": lambda a: paper.learns(a.data),
    "build": lambda a: serving.build(a.data),
    "first-answer": lambda a: serving.first_answer(a.data),
    "threads": lambda a: serving.two_threads(a.data),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bar", choices=[*BARS, "all"], nargs="?", default="all")
    parser.add_argument("--data", type=Path, default=ROOT.parent.parent / "shared" / "data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="data sets of compare")
    arguments = parser.parse_args()
    for name, run in BARS.items():
        if arguments.bar in (name, "all"):
            print(f"\n## {name}\n", flush=True)
            run(arguments)


if __name__ == "__main__":
    main()
