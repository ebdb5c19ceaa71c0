"""The command line: build, search, eval, tune and info; `irli.labelcli` has those of labels."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np
import typer
from typer import Argument, Option

import irli
from irli import clusterbuild, console, labelcli, plancli, storage
from irli.checks import as_vectors, check_choice
from irli.cluster import ShardedIndex
from irli.clusterlabels import ShardedLabelIndex
from irli.console import Index, Json, Threads
from irli.datasets import read_ground_truth, read_vectors, write_vectors
from irli.errors import IrliError
from irli.threads import thread_count
from irli.vectors import VectorIndex

_SILENT = logging.NullHandler()  # the commands say themselves what the library logs
# Which click typer uses, its own or the installed one, depends on its version.
_UsageError: type[Exception] = typer.BadParameter.mro()[1]

Key = Annotated[str | None, Option(help="Which array, if the file is HDF5.")]
K = Annotated[int, Option(min=1, help="Neighbours of each query.")]
Limit = Annotated[int | None, Option(min=1, help="Read the first so many vectors only.")]

app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.add_typer(labelcli.app, name="labels")
app.command("plan")(plancli.plan_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; a user's mistake is one line on stderr."""
    logging.getLogger("irli").addHandler(_SILENT)
    command = typer.main.get_command(app)
    try:
        return command.main(args=argv, prog_name="irli", standalone_mode=False) or 0
    except _UsageError as error:
        return _fail(error.format_message(), 2)  # type: ignore[attr-defined]
    except (IrliError, FileNotFoundError) as error:
        return _fail(error, 2)
    except OSError as error:
        return _fail(error, 1)
    except typer.Abort:
        return 130


def _fail(error: object, code: int) -> int:
    typer.echo(f"irli: error: {' '.join(str(error).split())}", err=True)
    return code


@app.callback(invoke_without_command=True)
def irli_command(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version.")] = False,
) -> None:
    """A learned vector index: small networks route queries to balanced buckets."""
    if version:
        typer.echo(f"irli {irli.__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def build(
    data: Annotated[Path, Argument(help="Vectors: .npy, .*vecs, .*bin or HDF5.")],
    out: Annotated[Path, Argument(help="Folder of the new index.")],
    key: Key = None,
    metric: Annotated[str | None, Option(help="l2, ip, cosine; else as the HDF5 says.")] = None,
    recipe: Annotated[str, Option(help="default or paper.")] = "default",
    settings: Annotated[list[str] | None, Option("--set", help="Setting of it: KEY=VALUE.")] = None,
    queries: Annotated[Path | None, Option(help="Sample queries to learn from.")] = None,
    queries_key: Key = None,
    relevance: Annotated[Path | None, Option(help="Item rows of each query, or CSR .npz.")] = None,
    neighbors: Annotated[Path | None, Option(help="Nearest item rows of each item.")] = None,
    ids: Annotated[Path | None, Option(help="Ids of the items, .npy.")] = None,
    seed: Annotated[int | None, Option(help="Seed of all that is random.")] = None,
    threads: Threads = None,
    workers: Annotated[int, Option(help="Processes that learn repetitions.")] = 1,
    device: Annotated[str, Option(help="Where torch learns: cpu, cuda.")] = "cpu",
    limit: Limit = None,
    shards: Annotated[int | None, Option(help="Cut the items into so many indexes.")] = None,
    ray: Annotated[str | None, Option(help="And learn on Ray: auto or an address.")] = None,
    as_json: Json = False,
    quiet: Annotated[bool, Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Learn an index over the vectors of a file, resuming a build that was interrupted."""
    if out.exists():
        storage.claim(out)
    changes = console.read_settings(settings or []) | ({} if seed is None else {"seed": seed})
    changed = irli.recipe(recipe, **changes)
    sharded = shards is not None or ray is not None
    # Shards read their own slices of a file that can be mapped.
    by_path = sharded and limit is None and key is None and data.suffix not in console.HDF5
    items = str(data) if by_path else read_vectors(data, key)[:limit]
    kind = metric or console.stored_metric(data)
    index: console.AnyVectors = VectorIndex(kind, recipe=changed)
    if sharded:
        index = ShardedIndex(kind, recipe=changed, shards=shards or 1, ray=ray)
    given: console.Values = {
        "ids": None if ids is None else console.read_npy(ids)[:limit],
        "queries": None if queries is None else read_vectors(queries, queries_key),
        "relevance": None if relevance is None else console.read_relevance(relevance),
        "neighbors": None if neighbors is None else read_ground_truth(neighbors)[0],
    }
    with console.resumable(out) as checkpoint:
        start = perf_counter()
        index.fit(
            items,
            **given,
            progress=not quiet and sys.stderr.isatty(),
            threads=threads,
            workers=workers,
            device=device,
            checkpoint=checkpoint,
        )
        seconds = perf_counter() - start
        index.save(out)
        stats, tuned = index.stats(), index.tuned
        if isinstance(index, ShardedIndex):
            index.close()
            clusterbuild.clear(checkpoint)
    uneven = max(loads["max_over_mean"] for loads in stats["loads"])
    values = {name: stats[name] for name in ("items", "dim", "metric", "buckets", "repetitions")}
    values |= {"max_over_mean": uneven, "build_seconds": seconds} | console.tuned_values(tuned)
    values |= {"shards": shards or 1} if sharded else {}
    cut = f", in {shards or 1} shards" if sharded else ""
    text = f"""\
{out}: {stats["items"]} items of {stats["dim"]} dimensions, {index.metric}{cut}
buckets   {stats["repetitions"]} x {stats["buckets"]}, the largest {uneven:.2f} x the mean
search    {console.tuned_text(tuned, 0.95, 10)}
built in  {seconds:.1f} s"""
    console.tell({"index": str(out)} | values, text, as_json)


@app.command()
def search(
    index: Index,
    queries: Annotated[Path, Argument(help="Queries: .npy, .*vecs, .*bin or HDF5.")],
    key: Key = None,
    k: K = 10,
    probes: Annotated[int | None, Option(help="Buckets to probe.")] = None,
    threshold: Annotated[float | None, Option(help="Or from which probability on.")] = None,
    min_votes: Annotated[int | None, Option(help="Probed buckets that hold an item.")] = None,
    candidates: Annotated[int | None, Option(help="Exact distances at most.")] = None,
    score: Annotated[str | None, Option(help="votes, probability, log-probability.")] = None,
    filter: Annotated[Path | None, Option(help="Allowed ids or a mask, .npy.")] = None,
    deny: Annotated[Path | None, Option(help="Ids to leave out, .npy.")] = None,
    out: Annotated[Path | None, Option(help=".npz for all answers, .ivecs for ids.")] = None,
    limit: Limit = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Find the nearest items of the queries in a file."""
    if out is not None:
        check_choice("extension of --out", out.suffix, (".npz", ".ivecs"))
    console.at_most_one(filter=filter, deny=deny)
    allowed = None if filter is None else console.read_npy(filter)
    opened = console.open_vectors(index)
    asked = console.read_queries(queries, key)[:limit]
    chosen = (probes, threshold, min_votes, candidates, score)
    parameters = dataclasses.asdict(opened.defaults.changed(*chosen))
    start = perf_counter()
    found = opened.search(
        asked,
        k,
        **parameters,
        filter=allowed if deny is None else irli.Deny(console.read_npy(deny)),
        threads=threads,
    )
    seconds = perf_counter() - start
    values = {"index": str(index), "queries": len(asked), "k": k, "seconds": seconds}
    values["parameters"] = parameters
    if out is None:
        # JSON knows no infinity, the distance of padding.
        distances = found.distances.astype(object)
        distances[found.ids < 0] = None
        values |= {"ids": found.ids.tolist(), "distances": distances.tolist()}
        console.tell(values, console.answers(found), as_json)
        return
    if out.suffix == ".npz":
        np.savez(out, distances=found.distances, ids=found.ids)
    else:
        write_vectors(out, found.ids)
    text = f"{out}: the {k} nearest items of {len(asked)} queries, found in {seconds:.3f} s"
    console.tell(values | {"out": str(out)}, text, as_json)


@app.command("eval")
def evaluate(
    index: Index,
    data: Annotated[Path | None, Argument(help="ann-benchmarks HDF5 file.")] = None,
    queries: Annotated[str, Option(help="Its queries: test, test_ood.")] = "test",
    queries_file: Annotated[Path | None, Option(help="Or queries in another file.")] = None,
    truth: Annotated[Path | None, Option(help="The nearest item rows of each.")] = None,
    k: K = 10,
    probes: Annotated[str | None, Option(help="Values to compare: 1,2,4,8.")] = None,
    threshold: Annotated[str | None, Option(help="Or these: 0.1,0.01.")] = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Measure recall, work and speed, by default with the parameters that the index has."""
    sweep = console.read_sweep(probes, threshold)
    opened = console.open_vectors(index)
    asked, rows = console.read_test(data, queries, queries_file, truth, len(opened))
    asked = as_vectors(asked[:limit], "queries", opened.stats()["dim"])
    computed = rows is None
    if rows is None:
        true_ids = console.true_ids(opened, index, asked, k)
    else:
        rows = np.asarray(rows[:limit], dtype=np.int64)
        ids = console.item_ids(opened, index)
        true_ids = np.where(rows >= 0, ids[np.maximum(rows, 0)], -1)
    results = [console.measured(opened, asked, true_ids, k, chosen) for chosen in sweep]
    values = {"index": str(index), "queries": len(asked), "k": k, "truth_computed": computed}
    values |= {"threads": thread_count(None), "results": results}
    table = [["search", f"recall{k}@{k}", "scanned", "exact", "work", "q/s 1 thread", "q/s all"]]
    for row in results:
        numbers = [f"{row[name]:.1f}" for name in ("scanned", "exact", "work")]
        speeds = [f"{row[name]:.0f}" for name in ("qps_one_thread", "qps_all_threads")]
        table.append(
            [console.spelled(row["parameters"]), f"{row['recall']:.4f}", *numbers, *speeds]
        )
    console.tell(values, console.aligned(table), as_json)


@app.command()
def tune(
    index: Index,
    recall: Annotated[float, Option(help="Share of the true neighbours to find.")] = 0.95,
    k: K = 10,
    queries: Annotated[Path | None, Option(help="Queries to tune by; else held out.")] = None,
    queries_key: Key = None,
    as_json: Json = False,
) -> None:
    """Find the fastest search that reaches a recall, and save it as the index's default.

    If none does, the one that comes nearest is saved and the exit code is 3.
    """
    opened = console.open_vectors(index)
    tuned = opened.tune(
        recall, k, None if queries is None else console.read_queries(queries, queries_key)
    )
    opened.save(index)
    values = {"index": str(index), "target": recall, "k": k} | console.tuned_values(tuned)
    console.tell(values, console.tuned_text(tuned, recall, k), as_json)
    raise typer.Exit(0 if tuned.reached else 3)


@app.command()
def info(
    index: Index,
    as_json: Json = False,
    verify: Annotated[bool, Option(help="Compare all checksums first.")] = True,
) -> None:
    """Show what an index holds and how it was learned."""
    opened = irli.load(index, verify=verify)
    stats = opened.stats()
    labels = isinstance(opened, irli.LabelIndex | ShardedLabelIndex)
    tell = labelcli.info_text if labels else console.info_text
    text = tell(stats, opened.history)
    console.tell(stats | {"history": opened.history}, text, as_json)
