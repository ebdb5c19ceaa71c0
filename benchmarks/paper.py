"""The paper's own recipe on GloVe, scaled down: python benchmarks/paper.py NAME...

rounds   recall and affinity grow with the re-partitions (Theorem 1)
loads    Table 3: loads of the buckets, re-partitioned with different K
votes    votes and aggregated scores of R = 8 repetitions: exact distances at recall .90
"""

from __future__ import annotations

from bench.commands import make_parser, run
from bench.paper.rounds import loads, rounds
from bench.paper.votes import votes

BENCHMARKS = {"rounds": rounds, "loads": loads, "votes": votes}


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the command line names."""
    parser = make_parser(__doc__ or "", BENCHMARKS)
    parser.add_argument("--seeds", type=int, default=3, help="indexes of votes")
    run(parser.parse_args(arguments), BENCHMARKS)


if __name__ == "__main__":
    main()
