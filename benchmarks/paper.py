"""The paper, part by part: python benchmarks/paper.py NAME...

    candidates  recall against candidates on GloVe, beside every baseline of the paper
    sift        the same on SIFT and other local features, by Euclidean distance
    loads       Table 3 and Theorem 2: loads of the buckets by K, and the largest as L grows
    epochs      figure 4 and Table 4: recall by epoch and R, candidates found by t repetitions
    affinity    Theorem 1: the affinity of relevant items before and after each re-partition
    labels      Tables 1 and 2: precision and milliseconds of labels, beside other methods
    distributed figures 5 and 6: recall against time of shards beside FAISS IVF-PQ, and planned
    ablations   one setting of the recipe changed at a time: recall at equal candidates
    glove       `candidates` for 100,000 vectors with the paper's R, h and bucket size, and by R
                and h: a night
    report      docs/paper.md: the tables, plots and claims of all parts that have results

`all` runs them one after the other, but not glove. What is measured is not measured again.

The data set is glove-6b-50-angular.hdf5. With --scale full it is glove-100-angular.hdf5, the one of
the paper. Labels are delicious and debian-deps, or wiki-500k and amazon-670k; the other libraries
need `make peers`. The vectors of `distributed` are generated, or deep-100m.
"""

from __future__ import annotations

from bench.commands import make_parser, run
from bench.common import count_cores
from bench.paper.ablations import ablations
from bench.paper.affinity import affinity
from bench.paper.candidates import candidates
from bench.paper.distributed import distributed
from bench.paper.epochs import epochs
from bench.paper.glove import glove
from bench.paper.labels import labels
from bench.paper.loads import loads
from bench.paper.report import report
from bench.paper.sift import sift

BENCHMARKS = {
    "candidates": candidates,
    "sift": sift,
    "loads": loads,
    "epochs": epochs,
    "affinity": affinity,
    "labels": labels,
    "distributed": distributed,
    "ablations": ablations,
    "glove": glove,
    "report": report,
}
LONG = ("glove",)  # they take more than an hour


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the command line names."""
    parser = make_parser(__doc__ or "", [*BENCHMARKS, "all"])
    parser.add_argument("--seeds", type=int, default=3, help="repeats of each measurement")
    parser.add_argument(
        "--scale",
        choices=("small", "full"),
        default="small",
        help="small: about an hour on 2 cores; full: the paper's own files and sizes, with a GPU",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=count_cores(),
        help="of candidates, sift and glove: processes that learn repetitions",
    )
    parser.add_argument(
        "--ray",
        default="auto",
        metavar="ADDRESS",
        help="of distributed with --scale full: the Ray cluster of its shards",
    )
    parser.add_argument(
        "--without",
        nargs="+",
        default=(),
        choices=("the paper's recipe", "default", "MACH"),
        metavar="METHOD",
        help="of labels: not to be measured now; what was measured before is shown",
    )
    options = parser.parse_args(arguments)
    if "all" in options.name:
        options.name = [name for name in BENCHMARKS if name not in LONG]
    run(options, BENCHMARKS)


if __name__ == "__main__":
    main()
