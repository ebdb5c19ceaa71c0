"""The start of a process and of a search: python benchmarks/start.py NAME...

    first-answer   import irli, and load an index and search it, beside `import numpy`
    call           the way from Python to the kernel and back, for a single query

They generate their data. `first-answer` measures fresh processes in turns. Its last figures are
those of a process without a home folder that can write no file.
"""

from __future__ import annotations

from bench.commands import make_parser, run
from bench.start.call import call
from bench.start.first_answer import first_answer

BENCHMARKS = {"first-answer": first_answer, "call": call}


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the command line names."""
    parser = make_parser(__doc__ or "", BENCHMARKS)
    parser.add_argument("--items", type=int, default=20_000, help="of the index")
    parser.add_argument("--runs", type=int, default=15, help="processes of each kind")
    run(parser.parse_args(arguments), BENCHMARKS)


if __name__ == "__main__":
    main()
