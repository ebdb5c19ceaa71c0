"""The command line: build, search, eval, tune and info."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, get_type_hints
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp
import typer
from numpy.typing import NDArray
from typer import Argument, Option

import irli
from irli import storage
from irli.checks import as_vectors, check_choice
from irli.config import Recipe
from irli.datasets import read_ann_benchmark, read_ground_truth, read_vectors, write_vectors
from irli.errors import FormatError, InvalidParameter, IrliError
from irli.metrics import recall as recall_at
from irli.neighbors import exact_neighbors
from irli.threads import thread_count
from irli.tuning import Tuned
from irli.vectors import SearchResult, VectorIndex

_HDF5 = (".hdf5", ".h5")
_SHOWN = 5  # queries whose answers are printed
_REPEATS = 3  # of a timing
_SILENT = logging.NullHandler()  # the commands say themselves what the library logs
# Which click typer uses, its own or the installed one, depends on its version.
_UsageError: type[Exception] = typer.BadParameter.mro()[1]

Values = dict[str, Any]
Index = Annotated[Path, Argument(help="Folder of an index.")]
Key = Annotated[str | None, Option(help="Which array, if the file is HDF5.")]
K = Annotated[int, Option(min=1, help="Neighbours of each query.")]
Limit = Annotated[int | None, Option(min=1, help="Read the first so many vectors only.")]
Threads = Annotated[int | None, Option(help="Threads; by default one for each core.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


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
    as_json: Json = False,
    quiet: Annotated[bool, Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Learn an index over the vectors of a file, resuming a build that was interrupted."""
    if out.exists():
        storage._claim(out)
    changes = _settings(settings or []) | ({} if seed is None else {"seed": seed})
    changed = irli.recipe(recipe, **changes)
    _check_device(device)
    vectors, metric = _base(data, key, metric)
    index = VectorIndex(metric, recipe=changed)
    given: Values = {
        "ids": None if ids is None else _read_npy(ids)[:limit],
        "queries": None if queries is None else read_vectors(queries, queries_key),
        "relevance": None if relevance is None else _read_relevance(relevance),
        "neighbors": None if neighbors is None else read_ground_truth(neighbors)[0],
    }
    with _resumable(out) as checkpoint:
        start = perf_counter()
        index.fit(
            vectors[:limit],
            **given,
            progress=not quiet and sys.stderr.isatty(),
            threads=threads,
            workers=workers,
            device=device,
            checkpoint=checkpoint,
        )
        seconds = perf_counter() - start
        tuned = index.tune()  # again: `fit` does not tell the recall that it reached
        index.save(out)
    stats = index.stats()
    uneven = max(loads["max_over_mean"] for loads in stats["loads"])
    values = {name: stats[name] for name in ("items", "dim", "metric", "buckets", "repetitions")}
    values |= {"max_over_mean": uneven, "build_seconds": seconds} | _tuned_values(tuned)
    text = f"""\
{out}: {len(index)} items of {stats["dim"]} dimensions, {index.metric}
buckets   {stats["repetitions"]} x {stats["buckets"]}, the largest {uneven:.2f} x the mean
search    {_tuned_text(tuned, 0.95, 10)}
built in  {seconds:.1f} s"""
    _print({"index": str(out)} | values, text, as_json)


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
    _at_most_one(filter=filter, deny=deny)
    allowed = None if filter is None else _read_npy(filter)
    opened = irli.load(index)
    asked = _read_queries(queries, key)[:limit]
    chosen = (probes, threshold, min_votes, candidates, score)
    parameters = dataclasses.asdict(opened.defaults.changed(*chosen))
    start = perf_counter()
    found = opened.search(
        asked,
        k,
        **parameters,
        filter=allowed if deny is None else irli.Deny(_read_npy(deny)),
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
        _print(values, _answers(found), as_json)
        return
    if out.suffix == ".npz":
        np.savez(out, distances=found.distances, ids=found.ids)
    else:
        write_vectors(out, found.ids)
    text = f"{out}: the {k} nearest items of {len(asked)} queries, found in {seconds:.3f} s"
    _print(values | {"out": str(out)}, text, as_json)


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
    sweep = _sweep(probes, threshold)
    folder = storage.read_folder(index)
    opened = VectorIndex.from_folder(folder)
    vectors = folder.arrays["vectors"]
    asked, rows = _read_test(data, queries, queries_file, truth, len(vectors))
    asked = as_vectors(asked[:limit], "queries", vectors.shape[1])
    computed = rows is None
    if rows is None:
        rows = exact_neighbors(asked, vectors, k, opened.metric, progress=sys.stderr.isatty())
    rows = np.asarray(rows[:limit], dtype=np.int64)
    true_ids = np.where(rows >= 0, folder.arrays["ids"][np.maximum(rows, 0)], -1)
    results = [_measured(opened, asked, true_ids, k, chosen) for chosen in sweep]
    values = {"index": str(index), "queries": len(asked), "k": k, "truth_computed": computed}
    values |= {"threads": thread_count(None), "results": results}
    table = [["search", f"recall{k}@{k}", "scanned", "exact", "work", "q/s 1 thread", "q/s all"]]
    for row in results:
        numbers = [f"{row[name]:.1f}" for name in ("scanned", "exact", "work")]
        speeds = [f"{row[name]:.0f}" for name in ("qps_one_thread", "qps_all_threads")]
        table.append([_spelled(row["parameters"]), f"{row['recall']:.4f}", *numbers, *speeds])
    _print(values, _aligned(table), as_json)


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
    opened = irli.load(index)
    tuned = opened.tune(recall, k, None if queries is None else _read_queries(queries, queries_key))
    opened.save(index)
    values = {"index": str(index), "target": recall, "k": k} | _tuned_values(tuned)
    _print(values, _tuned_text(tuned, recall, k), as_json)
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
    _print(stats | {"history": opened.history}, _info_text(stats, opened.history), as_json)


# --- reading -----------------------------------------------------------------------------------


def _settings(pairs: list[str]) -> Values:
    """Return changes of a recipe, each of the type that its setting has."""
    types, changes = get_type_hints(Recipe), {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        kind = types.get(key, str)  # the recipe itself refuses what it does not know
        try:
            changes[key] = {"true": True, "false": False}[text] if kind is bool else kind(text)
        except (KeyError, ValueError):
            equals = ""
        if not equals:
            raise InvalidParameter(
                f"The --set option must be KEY=VALUE, with a value of type {kind.__name__} for "
                f"'{key}'. Got '{pair}' instead. Write for example: --set boost=false"
            )
    return changes


def _check_device(device: str) -> None:
    """Refuse a device that torch does not have before time is spent on anything."""
    if device == "cpu":
        return
    with suppress(ModuleNotFoundError):  # `fit` says how to install it
        import torch

        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise InvalidParameter(
                "The --device option must be one that torch can use here. "
                f"Got '{device}' instead: {str(error).splitlines()[0]} Leave it out for the cpu."
            ) from error


def _at_most_one(**options: Any) -> None:
    if all(value is not None for value in options.values()):
        names = " and ".join(f"--{name}" for name in options)
        raise InvalidParameter(f"Only one of {names} may be given. Got both. Leave out one.")


def _base(path: Path, key: str | None, metric: str | None) -> tuple[NDArray[Any], str]:
    """Return the vectors to index and their metric, which an HDF5 file may name."""
    if metric is not None or path.suffix not in _HDF5:
        return read_vectors(path, key), metric or "l2"
    try:
        data = read_ann_benchmark(path)
    except FormatError as error:
        raise FormatError(f"{error} Or name the metric with --metric.") from error
    return data.train if key is None else read_vectors(path, key), data.metric


def _read_queries(path: Path, key: str | None) -> NDArray[Any]:
    return read_vectors(path, "test" if key is None and path.suffix in _HDF5 else key)


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, EOFError, BadZipFile) as error:
        raise FormatError(
            f"{path} must be {what}. It cannot be read: {error}. Write it anew."
        ) from error


def _read_npy(path: Path) -> NDArray[Any]:
    """Return an array of any shape: ids or a mask."""
    with _reading(path, "a whole .npy file of numbers"), path.open("rb") as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _read_relevance(path: Path) -> Any:
    if path.suffix != ".npz":
        return read_ground_truth(path)[0]
    with _reading(path, "a file of scipy.sparse.save_npz"):
        return sp.load_npz(path)


def _read_test(
    data: Path | None, queries: str, queries_file: Path | None, truth: Path | None, items: int
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return queries and the rows of their true neighbours, None where these are unknown."""
    rows: NDArray[Any] | None = None
    if data is not None and queries_file is None and truth is None:
        asked = read_vectors(data, queries)
        with suppress(FormatError):
            rows = read_vectors(data, "neighbors" + queries.removeprefix("test"))
        # An index over a part of the file has other neighbours.
        return asked, rows if rows is not None and rows.max(initial=0) < items else None
    if data is not None or queries_file is None:
        raise InvalidParameter(
            "The queries must come either from an HDF5 file, or from --queries-file with or "
            "without --truth. Got neither or both. Write: irli eval INDEX DATA.hdf5"
        )
    asked = read_vectors(queries_file)
    if truth is not None:
        rows = read_ground_truth(truth)[0]
        if len(rows) != len(asked) or rows.max(initial=0) >= items:
            raise InvalidParameter(
                f"The --truth option must name, for each of {len(asked)} queries, rows among "
                f"{items} items. Got rows up to {rows.max(initial=0)} for {len(rows)} queries "
                "instead. Leave it out to compute the true neighbours."
            )
    return asked, rows


def _sweep(probes: str | None, threshold: str | None) -> list[Values]:
    """Return the parameters to compare: those named, or one empty choice for the defaults."""
    _at_most_one(probes=probes, threshold=threshold)
    try:
        if probes is not None:
            return [{"probes": int(value)} for value in probes.split(",")]
        if threshold is not None:
            return [{"threshold": float(value)} for value in threshold.split(",")]
    except ValueError:
        raise InvalidParameter(
            "The values to compare must be numbers with commas between them. "
            f"Got '{probes or threshold}' instead. Write for example: --probes 1,2,4"
        ) from None
    return [{}]


# --- working -----------------------------------------------------------------------------------


@contextmanager
def _resumable(out: Path) -> Iterator[Path]:
    """Keep finished repetitions beside `out` until the index is there."""
    folder = Path(f"{out.resolve()}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
        for file in (*folder.glob("repetition-*.npz"), *folder.glob("*.tmp")):
            file.unlink()
    except KeyboardInterrupt:
        typer.echo("irli: interrupted; the same command resumes the build", err=True)
        raise typer.Exit(130) from None
    finally:
        with suppress(OSError):  # there is something to resume with
            folder.rmdir()


def _measured(
    index: VectorIndex,
    queries: NDArray[np.float32],
    true_ids: NDArray[np.int64],
    k: int,
    chosen: Values,
) -> Values:
    told = index.explain(queries, k, **chosen)
    scanned = float(told.scanned.mean())
    return {
        "parameters": dataclasses.asdict(index.defaults.changed(**chosen)),
        "recall": recall_at(index.search(queries, k, **chosen).ids, true_ids, k),
        "scanned": scanned,
        "exact": float(told.candidates.mean()),
        "work": scanned + told.router_multiplications / queries.shape[1],
        "qps_one_thread": _speed(index, queries, k, chosen, 1),
        "qps_all_threads": _speed(index, queries, k, chosen, None),
    }


def _speed(index: VectorIndex, queries: Any, k: int, chosen: Values, threads: int | None) -> float:
    times = []
    for _ in range(_REPEATS):
        start = perf_counter()
        index.search(queries, k, **chosen, threads=threads)
        times.append(perf_counter() - start)
    return len(queries) / min(times)


# --- telling -----------------------------------------------------------------------------------


def _print(values: Values, text: str, as_json: bool) -> None:
    typer.echo(json.dumps(values, allow_nan=False) if as_json else text)


def _tuned_values(tuned: Tuned) -> Values:
    return tuned._asdict() | {"parameters": dataclasses.asdict(tuned.parameters)}


def _tuned_text(tuned: Tuned, target: float, k: int) -> str:
    spelled = _spelled(dataclasses.asdict(tuned.parameters))
    found = f"{spelled}: recall {tuned.recall:.4f} at k={k}, {1e6 * tuned.seconds:.0f} µs a query"
    return found if tuned.reached else f"{found} (recall {target:g} is out of reach)"


def _spelled(parameters: Values) -> str:
    """Return search parameters as one would type them, without those that change nothing."""
    idle = {"min_votes": 1} | ({} if parameters["candidates"] else {"score": parameters["score"]})
    return " ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in parameters.items()
        if value is not None and idle.get(name) != value
    )


def _answers(found: SearchResult) -> str:
    lines = []
    for query, (ids, distances) in enumerate(zip(found.ids, found.distances, strict=True)):
        pairs = [f"{i} ({d:.4g})" for i, d in zip(ids, distances, strict=True) if i >= 0]
        lines.append(f"query {query}: {', '.join(pairs) or 'nothing'}")
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"... and {len(lines) - _SHOWN} more; --out FILE keeps all of them"]
    return "\n".join(lines)


def _info_text(stats: Values, history: list[Values]) -> str:
    worst = max(stats["loads"], key=lambda loads: loads["max_over_mean"])
    settings = " ".join(f"{key}={value}" for key, value in stats["recipe"].items())
    wrap = textwrap.TextWrapper(width=88, subsequent_indent=" " * 10, break_on_hyphens=False)
    text = f"""\
items     {stats["items"]} of {stats["dim"]} dimensions, {stats["metric"]}
buckets   {stats["repetitions"]} x {stats["buckets"]}, {stats["entries"]} entries
loads     mean {worst["mean"]:.1f}, std {worst["std"]:.1f}, the largest \
{worst["max_over_mean"]:.2f} x the mean, {worst["empty"]} empty
routing   {stats["router_multiplications"]} multiplications a query
memory    {stats["bytes"] / 1e6:.1f} MB, {stats["bytes_vectors"] / 1e6:.1f} MB of them vectors
search    {_spelled(stats["defaults"])}
{wrap.fill(f"recipe    {settings}")}
"""
    table = [["repetition", "epoch", "loss", "moved", "recall", "affinity", "load std", "max/mean"]]
    for entry in history:
        names = ("loss", "moved", "recall", "affinity", "load_std", "load_max_over_mean")
        numbers = [f"{entry[name]:.4f}" for name in names]
        table.append([str(entry["repetition"] + 1), str(entry["epoch"]), *numbers])
    return text + "\n" + _aligned(table)


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
