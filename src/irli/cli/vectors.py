"""The commands for vectors: `irli build`, `search`, `eval` and `tune`; and `info` for any index."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, cast

import numpy as np
import typer
from typer import Argument, Option

import irli
from irli._native import simd
from irli.base.checks import as_vectors, check_choice
from irli.base.files import claim_file, open_output
from irli.base.ids import is_item
from irli.base.item_files import has_payloads
from irli.base.recipe import AUTO
from irli.base.sparse import as_relevance, find_heaviest
from irli.base.threads import thread_count
from irli.base.vector_files import (
    HDF5,
    TEXT,
    read_ground_truth,
    read_hdf5_metric,
    read_vectors,
    write_vectors,
)
from irli.cli import console
from irli.cli import labels as label_commands
from irli.cli.console import IdKey, Ids, Index, Json, K, Key, Limit, Payloads, Threads
from irli.cluster.build.workdir import clear
from irli.cluster.index import ShardedIndex
from irli.cluster.label_index import ShardedLabelIndex
from irli.errors import InvalidParameter
from irli.vectors.index import VectorIndex
from irli.vectors.parameters import SearchArguments

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def build(
    data: Annotated[
        Path,
        Argument(help="Vectors: .npy, .*vecs, .*bin, HDF5, GloVe .txt, .jsonl or .parquet."),
    ],
    out: Annotated[Path, Argument(help="Folder for the index.")],
    key: Key = None,
    metric: Annotated[
        str | None, Option(help="l2, ip or cosine. Default: that of the HDF5 file.")
    ] = None,
    recipe: Annotated[str, Option(help="Recipe: auto, default, exact or paper.")] = "auto",
    settings: Annotated[
        list[str] | None, Option("--set", help="Recipe setting: KEY=VALUE.")
    ] = None,
    queries: Annotated[Path | None, Option(help="Sample queries to learn from.")] = None,
    queries_key: Key = None,
    relevance: Annotated[
        Path | None, Option(help="Relevant item rows per query, or CSR .npz.")
    ] = None,
    neighbors: Annotated[Path | None, Option(help="Nearest item rows per item.")] = None,
    ids: Ids = None,
    id_key: IdKey = "id",
    payloads: Payloads = None,
    start: Annotated[
        Path | None, Option(help="Index of similar items, whose routers learn on.")
    ] = None,
    seed: Annotated[int | None, Option(help="Random seed.")] = None,
    threads: Threads = None,
    workers: Annotated[int, Option(help="Processes that learn in parallel.")] = 1,
    device: Annotated[str, Option(help="Device of learning: cpu or cuda.")] = "cpu",
    limit: Limit = None,
    shards: Annotated[
        int | None, Option(min=1, help="Number of shards to cut the items into.")
    ] = None,
    ray: Annotated[str | None, Option(help="Ray cluster to build on: auto or an address.")] = None,
    as_json: Json = False,
    quiet: Annotated[bool, Option("--quiet", help="Show no progress bars.")] = False,
) -> None:
    """Build an index of the vectors in a file. An interrupted build is resumed."""
    console.claim_output(out)
    changed = console.read_recipe(recipe, settings, seed)
    sharded = shards is not None or ray is not None
    given: console.Values = {"ids": None if ids is None else console.read_npy(ids)[:limit]}
    if has_payloads(data) or payloads is not None:
        read = console.read_batches(data, key, id_key, ids, None, payloads, limit)
        items, given["ids"], given["payloads"] = console.read_all(read)
        if sharded and given["payloads"] is not None:
            raise irli.InvalidParameter(
                "The payloads must be left out with --shards or --ray: shards have none. Got "
                f"{payloads or data}. Build an index without shards."
            )
    else:
        items = _name_or_read(data, key, sharded and limit is None)
        items = items if limit is None else items[:limit]
    kind = metric or read_hdf5_metric(data)
    index: console.AnyVectors = VectorIndex(kind, recipe=changed)
    if sharded:
        if recipe == AUTO:  # shards always learn
            changed = console.read_recipe("default", settings, seed)
        index = ShardedIndex(kind, recipe=changed, shards=shards or 1, ray=ray)
    if sharded and start is not None:
        raise InvalidParameter(
            "The --start option must be left out with --shards or --ray: items may come into other "
            f"shards. Got {start}."
        )
    if sharded and neighbors is not None:
        raise InvalidParameter(
            "The --neighbors option must be left out with --shards or --ray: shards learn from "
            f"neighbours among their own items. Got {neighbors}."
        )
    given |= {
        "queries": None if queries is None else _name_or_read(queries, queries_key, sharded),
        "relevance": None if relevance is None else console.read_relevance(relevance),
    }
    if sharded:
        given.pop("payloads", None)
    if neighbors is not None:
        given["neighbors"] = read_ground_truth(neighbors)[0]
    if start is not None:
        given["start"] = console.open_vectors(start)
    with console.keep_checkpoint(out) as checkpoint:
        began = perf_counter()
        index.fit(
            items,
            **given,
            progress=not quiet and sys.stderr.isatty(),
            threads=threads,
            workers=workers,
            device=device,
            checkpoint=checkpoint,
        )
        seconds = perf_counter() - began
        index.save(out)
        stats, tuned = index.stats(), index.tuned or index.tune()
        if isinstance(index, ShardedIndex):
            index.close()
            clear(checkpoint)
    uneven = max(loads["max_over_mean"] for loads in stats["loads"])
    values = {name: stats[name] for name in ("items", "dim", "metric", "buckets", "repetitions")}
    values |= {"max_over_mean": uneven, "build_seconds": seconds} | console.to_values(tuned)
    values |= {"shards": shards or 1} if sharded else {}
    cut = f", in {shards or 1} shards" if sharded else ""
    text = f"""\
{out}: {stats["items"]} items of {stats["dim"]} dimensions, {index.metric}{cut}
buckets   {stats["repetitions"]} x {stats["buckets"]}, the largest {uneven:.2f} x the mean
search    {console.format_tuned(tuned, 0.95, 10)}
built in  {seconds:.1f} s"""
    console.print_result({"index": str(out)} | values, text, as_json)


def _name_or_read(path: Path, key: str | None, by_path: bool) -> Any:
    """Return the name of a file that each step can map by itself, or its vectors."""
    if by_path and key is None and path.suffix not in (*HDF5, TEXT):
        return str(path)
    return read_vectors(path, key)


@app.command()
def search(
    index: Index,
    queries: Annotated[Path, Argument(help="Queries: .npy, .*vecs, .*bin, HDF5 or GloVe .txt.")],
    key: Key = None,
    k: K = 10,
    probes: Annotated[int | None, Option(help="Buckets to probe per repetition.")] = None,
    threshold: Annotated[
        float | None, Option(help="Or probe all buckets of this probability or more.")
    ] = None,
    min_votes: Annotated[int | None, Option(help="Probed buckets that must hold an item.")] = None,
    candidates: Annotated[int | None, Option(help="Items to compute exact distances for.")] = None,
    score: Annotated[
        str | None,
        Option(help="How candidates are chosen: codes, votes, probability or log-probability."),
    ] = None,
    exact: Annotated[bool, Option("--exact", help="Compare all items, without routing.")] = False,
    filter: Annotated[
        str | None, Option(help="Allowed ids or a mask, .npy; or JSON on payloads.")
    ] = None,
    deny: Annotated[Path | None, Option(help="Ids to exclude, .npy.")] = None,
    out: Annotated[
        Path | None, Option(help="File for all results: .npz, or .ivecs for ids only.")
    ] = None,
    payload: Annotated[bool, Option("--payload", help="Show the payloads, too.")] = False,
    limit: Limit = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Find the nearest items of each query in a file."""
    if out is not None:
        check_choice("extension of --out", out.suffix, (".npz", ".ivecs"))
        claim_file(out, "--out option")
    console.check_at_most_one(filter=filter, deny=deny)
    allowed: Any = None
    if filter is not None and filter.lstrip().startswith("{"):
        allowed = console.read_json("--filter", filter)
    elif filter is not None:
        allowed = console.read_npy(Path(filter))
    opened = console.open_vectors(index)
    if payload and (out is not None or isinstance(opened, ShardedIndex)):
        raise InvalidParameter(
            "The --payload option must be left out with --out, and for shards, which have none. "
            f"Got it for {index}. Use --json to get all payloads."
        )
    vectors = console.read_queries(queries, key)[:limit]
    options = {
        "probes": probes,
        "threshold": threshold,
        "min_votes": min_votes,
        "candidates": candidates,
        "score": score,
        "exact": exact or None,
    }
    given = cast(
        "SearchArguments", {name: value for name, value in options.items() if value is not None}
    )
    start = perf_counter()
    found = opened.search(
        vectors,
        k,
        **given,
        **({"with_payload": True} if payload else {}),
        filter=allowed if deny is None else irli.Deny(console.read_npy(deny)),
        threads=threads,
    )
    seconds = perf_counter() - start
    values = {"index": str(index), "queries": len(vectors), "k": k, "seconds": seconds}
    values["parameters"] = opened.defaults.replace(**given).to_json()
    if out is None:
        # Padding has an infinite distance, which JSON cannot express.
        distances = found.distances.astype(object)
        distances[~is_item(found.ids)] = None
        values |= {"ids": found.ids.tolist(), "distances": distances.tolist()}
        values |= {"payloads": found.payloads} if payload else {}
        text = console.format_payloads(found) if payload else console.format_results(found)
        console.print_result(values, text, as_json)
        return
    if out.suffix == ".npz":
        with open_output(out, "--out option") as file:
            np.savez(file, distances=found.distances, ids=console.to_plain(found.ids))
    elif found.ids.dtype == object:
        raise InvalidParameter(
            f"The extension of --out must be .npz if ids are strings. Got {out} instead. "
            "A .ivecs file holds only integers."
        )
    else:
        write_vectors(out, found.ids)
    text = f"{out}: the {k} nearest items of {len(vectors)} queries, found in {seconds:.3f} s"
    console.print_result(values | {"out": str(out)}, text, as_json)


@app.command("eval")
def evaluate(
    index: Index,
    data: Annotated[Path | None, Argument(help="HDF5 file of ann-benchmarks.")] = None,
    queries: Annotated[str, Option(help="Its queries: test or test_ood.")] = "test",
    queries_file: Annotated[Path | None, Option(help="Or a file of queries.")] = None,
    truth: Annotated[
        Path | None, Option(help="Their true nearest item rows. Default: computed.")
    ] = None,
    relevance: Annotated[
        Path | None, Option(help="Or their relevant items: .npz of SciPy, or item rows.")
    ] = None,
    k: K = 10,
    probes: Annotated[str | None, Option(help="Values to compare, such as 1,2,4,8.")] = None,
    threshold: Annotated[
        str | None, Option(help="Or thresholds to compare, such as 0.1,0.01.")
    ] = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Measure the recall, work and speed of an index, by default with its default parameters."""
    sweep = console.read_sweep(probes, threshold)
    console.check_at_most_one(truth=truth, relevance=relevance)
    opened = console.open_vectors(index)
    vectors, rows = console.read_test(data, queries, queries_file, truth, len(opened))
    vectors = as_vectors(vectors[:limit], "queries", opened.stats()["dim"])
    if relevance is not None:
        given = as_relevance(console.read_relevance(relevance), len(vectors), len(opened))
        rows = find_heaviest(given, k)
    computed = rows is None
    if rows is None:
        true_ids = opened.search(vectors, k, exact=True).ids
    else:
        rows = np.asarray(rows[:limit], dtype=np.int64)
        true_ids = opened.ids[np.maximum(rows, 0)]
        true_ids[rows < 0] = None if true_ids.dtype == object else -1
    results = [console.measure_search(opened, vectors, true_ids, k, chosen) for chosen in sweep]
    values = {"index": str(index), "queries": len(vectors), "k": k, "truth_computed": computed}
    values |= {"threads": thread_count(None), "results": results}
    table = [["search", f"recall{k}@{k}", "scanned", "exact", "work", "q/s 1 thread", "q/s all"]]
    for row in results:
        numbers = [f"{row[name]:.1f}" for name in ("scanned", "exact", "work")]
        speeds = [f"{row[name]:.0f}" for name in ("qps_one_thread", "qps_all_threads")]
        table.append(
            [
                console.format_parameters(row["parameters"]),
                f"{row['recall']:.4f}",
                *numbers,
                *speeds,
            ]
        )
    console.print_result(values, console.align_columns(table), as_json)


@app.command()
def tune(
    index: Index,
    recall: Annotated[float, Option(help="Recall to reach.")] = 0.95,
    k: K = 10,
    queries: Annotated[
        Path | None, Option(help="Queries to tune with. Default: held-out ones.")
    ] = None,
    queries_key: Key = None,
    as_json: Json = False,
) -> None:
    """Find the fastest search that reaches a recall, and save it as the default of the index.

    If none reaches it, the search with the best recall is saved, and the exit code is 3.
    """
    opened = console.open_vectors(index)
    tuned = opened.tune(
        recall, k, None if queries is None else console.read_queries(queries, queries_key)
    )
    opened.save(index)
    values = {"index": str(index), "target": recall, "k": k} | console.to_values(tuned)
    console.print_result(values, console.format_tuned(tuned, recall, k), as_json)
    raise typer.Exit(0 if tuned.reached else 3)


@app.command()
def info(
    index: Index,
    as_json: Json = False,
    verify: Annotated[bool, Option(help="Verify all checksums first.")] = True,
) -> None:
    """Show the contents and the training history of an index."""
    opened = irli.load(index, verify=verify)
    stats = opened.stats() | {"simd": simd()}
    labels = isinstance(opened, irli.LabelIndex | ShardedLabelIndex)
    write = label_commands.format_info if labels else console.format_info
    text = write(stats, opened.history)
    console.print_result(stats | {"history": opened.history}, text, as_json)
