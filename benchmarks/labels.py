"""Labels: python benchmarks/labels.py NAME...

    compare   precision, time and size beside Omikuji, PECOS XR-Linear and napkinXC
    mach      MACH, and re-partitioning against the same index without it, index alone
    large     a million rows and half a million labels
    annif     library titles, through Annif: our backend beside its Omikuji and TF-IDF
    online    learning on with partial_fit and fit(start=), beside a new fit

Everything of ours is chosen on held-out training rows; test rows are only reported. In `compare`
every index is trained and queried in a fresh process, on the same number of threads. All times are
CPU time of all threads together, which hardly depends on what else a machine does. The other
libraries need environments of their own: `make peers`, and `make annif` for Annif. Those that are
not installed are skipped.
"""

from __future__ import annotations

from bench.commands import make_parser, run
from bench.labels.annif import annif
from bench.labels.compare import compare
from bench.labels.data import NAMES, TITLES
from bench.labels.large import large
from bench.labels.mach import mach
from bench.labels.online import online

BENCHMARKS = {"compare": compare, "mach": mach, "large": large, "annif": annif, "online": online}


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the command line names."""
    parser = make_parser(__doc__ or "", BENCHMARKS)
    parser.add_argument("--seeds", type=int, default=3, help="indexes of compare, mach and annif")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=(*NAMES, *TITLES), help="data sets")
    parser.add_argument("--titles", type=int, default=5000, help="of annif, to learn from")
    parser.add_argument("--test-titles", type=int, default=2000, help="of annif")
    run(parser.parse_args(arguments), BENCHMARKS)


if __name__ == "__main__":
    main()
