"""Vector search: python benchmarks/vectors.py NAME...

    compare      recall10@10 against queries per second, beside other libraries
    others       the same on data sets made from packages, which nothing was chosen on
    filters      recall and speed by filter, beside FAISS IVFFlat, exact search and hnswlib
    report       only the tables and plots of what `compare` has measured so far
    work         work at recall .90 and .95, beside FAISS IVFFlat, and what the load bound costs
    floor        what looking out for strange queries costs the others
    learning-time  seconds to learn, beside the others, torch, and a start from an earlier index
    threads      what a second thread gains
    latency      p50 and p99 of single queries on skewed data, beside FAISS IVFFlat
    concurrent   single queries from four threads at once
    scale        a million items or more, beside FAISS HNSW

`compare` builds every index in a fresh process, and measures it in others. What is finished is not
repeated; our own measurements are, once the source of irli has changed. The other libraries need an
environment of their own: `make vector-peers`. Those that are not installed are skipped.
"""

from __future__ import annotations

from bench.commands import make_parser, run
from bench.vectors.compare import ALL, compare, others, report
from bench.vectors.filters import filters
from bench.vectors.floor import floor
from bench.vectors.learning import learning_time
from bench.vectors.serving import concurrent, latency, scale
from bench.vectors.threads import threads
from bench.vectors.work import work

BENCHMARKS = {
    "compare": compare,
    "others": others,
    "filters": filters,
    "report": report,
    "work": work,
    "floor": floor,
    "learning-time": learning_time,
    "threads": threads,
    "latency": latency,
    "concurrent": concurrent,
    "scale": scale,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the command line names."""
    parser = make_parser(__doc__ or "", BENCHMARKS)
    parser.add_argument("--only", nargs="*", help="data sets, by how their names begin")
    parser.add_argument(
        "--methods", nargs="*", choices=(*ALL, "faiss-flat"), help="of compare (default: all)"
    )
    parser.add_argument("--threads", nargs="*", type=int, help="of compare (default: 1 2)")
    parser.add_argument("--quick", action="store_true", help="one build each, two repeats")
    parser.add_argument("--fresh", action="store_true", help="measure again what is finished")
    parser.add_argument("--rebuild", action="store_true", help="build again what is built")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="clock of the report; cpu where other work shares the machine (one thread only)",
    )
    parser.add_argument("--seeds", type=int, default=3, help="indexes of work")
    parser.add_argument("--items", type=int, default=1_000_000, help="of scale")
    run(parser.parse_args(arguments), BENCHMARKS)


if __name__ == "__main__":
    main()
