"""What an index promises, on difficult data: python benchmarks/guarantees.py NAME...

    measure   learn an index of each shape, and measure recall, self-hits, strange queries, filters
    report    write the table into docs/guarantees.md

Shapes that have figures already are left out, so an interrupted run goes on.
"""

from __future__ import annotations

from bench.commands import make_parser, run
from bench.guarantees.measure import measure, report

BENCHMARKS = {"measure": measure, "report": report}


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the command line names."""
    parser = make_parser(__doc__ or "", BENCHMARKS)
    parser.add_argument("--items", type=int, default=50_000, help="of each index")
    parser.add_argument("--shapes", nargs="+", help="some of the shapes")
    parser.add_argument("--again", action="store_true", help="forget the figures of before")
    run(parser.parse_args(arguments), BENCHMARKS)


if __name__ == "__main__":
    main()
