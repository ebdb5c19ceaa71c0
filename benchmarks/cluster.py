"""An index in shards: python benchmarks/cluster.py NAME...

    large      build out of core on Ray and search with m = 1 to 20 probes, beside FAISS IVF-PQ
    overhead   what Ray costs a query and a batch of 256, against the same shards in one process
    failures   kill workers, actors and a machine during a build and under load
    replicas   kill and stop one of two replicas under load, and take a shard's folder away
    plan       the planner's figures against measurements that it was not fitted on
    deep       the same for the paper's recipe for Deep-1B, with 1 million vectors in 4 shards
    deep10m    10 million in 8 shards x 4 repetitions, killed once: an hour of one core
    labels     labels in shards against one machine, on debian-deps

The machines are Ray's test cluster: processes on this machine. Vectors are generated, clustered and
skewed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.cluster.failures import failures
from bench.cluster.labels import labels
from bench.cluster.large import large
from bench.cluster.machines import close_cluster
from bench.cluster.overhead import overhead
from bench.cluster.plan import deep, deep10m, plan
from bench.cluster.replicas import replicas
from bench.commands import make_parser, run

BENCHMARKS = {
    "large": large,
    "overhead": overhead,
    "failures": failures,
    "replicas": replicas,
    "plan": plan,
    "deep": deep,
    "deep10m": deep10m,
    "labels": labels,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the command line names."""
    parser = make_parser(__doc__ or "", BENCHMARKS)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--buckets", type=int, help="of each shard; by default by its size")
    parser.add_argument("--points", type=int, help="to train on; by default by its size")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=2, help="machines of the test cluster")
    parser.add_argument("--cpus", type=int, default=1, help="of each machine")
    parser.add_argument("--repeats", type=int, default=50, help="of overhead")
    parser.add_argument("--quick", action="store_true", help="plan, deep: a fifth of the items")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load under failures")
    parser.add_argument("--kills", type=int, default=20, help="of replicas")
    parser.add_argument("--away", type=float, default=60.0, help="seconds; of a folder of replicas")
    parser.add_argument("--seeds", type=int, default=3, help="indexes of labels")
    parser.add_argument("--folder", type=Path, help="for generated vectors and builds")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) if options.smoke else Path(tempfile.gettempdir()) / "irli-cluster"
        options.folder = options.folder or kept
        options.folder.mkdir(parents=True, exist_ok=True)
        try:
            run(options, BENCHMARKS)
        finally:
            close_cluster()


if __name__ == "__main__":
    main()
