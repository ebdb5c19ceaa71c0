"""Helpers of all commands: read inputs, time searches, format results as text or JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, get_args, get_type_hints
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp
import typer
from numpy.typing import NDArray
from typer import Argument, Option

from irli.base.files import claim_folder, make_folder
from irli.base.folder import (
    LABEL_SHARDS,
    LABELS,
    SHARDS,
    VECTORS,
    Folder,
    claim,
    read_folder,
    read_manifest,
)
from irli.base.ids import is_item
from irli.base.item_files import Items, read_items, read_payloads
from irli.base.metrics import recall as recall_at
from irli.base.recipe import Recipe, recipe
from irli.base.vector_files import HDF5, check_file, read_ground_truth, read_vectors
from irli.cluster.index import ShardedIndex
from irli.errors import FormatError, InvalidParameter
from irli.vectors.index import VectorIndex
from irli.vectors.parameters import TUNED
from irli.vectors.results import SearchResult
from irli.vectors.tune_result import TuneResult

_SHOWN = 5  # queries whose results are printed
_REPEATS = 3  # timings, of which the shortest counts
_COMMANDS = {
    VECTORS: "irli search, irli eval or irli tune",
    SHARDS: "irli search, irli eval or irli tune",
    LABELS: "irli labels predict or irli labels eval",
    LABEL_SHARDS: "irli labels predict or irli labels eval",
}

Values = dict[str, Any]
_PARSERS: dict[Any, Callable[[str], Any]] = {
    bool: lambda text: {"true": True, "false": False}[text.lower()],
    int: int,
    float: float,
    str: str,
}
AnyVectors = VectorIndex | ShardedIndex

# Arguments and options of several commands.
Index = Annotated[Path, Argument(help="Index folder.")]
Threads = Annotated[int | None, Option(help="Number of threads. Default, or -1: one per core.")]
K = Annotated[int, Option("--k", "-k", min=1, help="Number of neighbours per query.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
Key = Annotated[
    str | None, Option(help="Array of an HDF5 file; key or column of the vectors (vector).")
]
Limit = Annotated[int | None, Option(min=1, help="Read at most this many vectors.")]
# Of files of items.
Ids = Annotated[Path | None, Option(help="Ids of the items, .npy.")]
IdKey = Annotated[str, Option(help="Key of JSON lines, or column of Parquet, with the ids.")]
FirstId = Annotated[int | None, Option(min=0, help="Or number the items from here up.")]
Payloads = Annotated[Path | None, Option(help="Payloads of the items, .jsonl: one in a line.")]


# --- reading -----------------------------------------------------------------------------------


def read_index(path: Path, kind: str) -> Folder:
    """Return the folder of an index, which must be of this kind."""
    folder = read_folder(path)
    if folder.kind != kind:
        known = _COMMANDS.get(folder.kind)
        raise InvalidParameter(
            f"{path} must hold an index of kind '{kind}' for this command. Got one of kind "
            f"'{folder.kind}' instead. {f'Use {known}' if known else 'Install a newer irli'}."
        )
    return folder


def open_vectors(path: Path) -> AnyVectors:
    """Open a vector index, sharded or not."""
    if read_manifest(path)["kind"] == SHARDS:
        return ShardedIndex.load(path)
    folder = read_index(path, VECTORS)
    return VectorIndex.from_folder(folder) if folder.store is None else VectorIndex.load(path)


def read_settings(pairs: list[str]) -> Values:
    """Return the settings in KEY=VALUE pairs, each converted to the type of its setting."""
    hints, changes = get_type_hints(Recipe), {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        # If a setting may be None, the value has its other type.
        kinds = [
            kind for kind in get_args(hints.get(key)) or [hints.get(key, str)] if kind in _PARSERS
        ]
        try:
            changes[key] = _PARSERS[kinds[0]](text)  # the recipe rejects unknown settings
        except (KeyError, ValueError):
            equals = ""
        if not equals:
            raise InvalidParameter(
                f"The --set option must be KEY=VALUE, with a value of type {kinds[0].__name__} for "
                f"'{key}'. Got '{pair}' instead. Write for example: --set boost=false"
            )
    return changes


def read_recipe(name: str, settings: list[str] | None, seed: int | None = None) -> Recipe:
    """Return a named recipe, changed by --set and --seed."""
    changes = read_settings(settings or [])
    return recipe(name, **(changes if seed is None else changes | {"seed": seed}))


def claim_output(out: Path) -> None:
    """Fail before any work if the output folder holds something other than an index."""
    if out.exists():
        claim(out)


def check_at_most_one(**options: Any) -> None:
    if all(value is not None for value in options.values()):
        names = " and ".join(f"--{name}" for name in options)
        raise InvalidParameter(f"Only one of {names} may be given. Got both. Leave out one.")


def read_queries(path: Path, key: str | None) -> NDArray[Any]:
    return read_vectors(path, "test" if key is None and path.suffix in HDF5 else key)


@contextmanager
def _translate_errors(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, EOFError, BadZipFile) as error:
        raise FormatError(
            f"{path} must be {what}. It cannot be read: {error}. Write it again."
        ) from error


def read_npy(path: Path) -> NDArray[Any]:
    """Return an array of any shape, such as ids or a mask."""
    check_file(path)
    with _translate_errors(path, "a whole .npy file of numbers"), path.open("rb") as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def read_batches(
    path: Path,
    key: str | None,
    id_key: str,
    ids: Path | None,
    first_id: int | None,
    payloads: Path | None,
    limit: int | None = None,
) -> Iterator[Items]:
    """Yield the items of a file, with the ids and payloads of other files if it has none."""
    check_at_most_one(ids=ids, **{"first-id": first_id})
    named = None if ids is None else read_npy(ids)
    documents = None if payloads is None else read_payloads(payloads)
    start = 0
    for items in read_items(path, key, id_key):
        count = len(items.vectors) if limit is None else min(len(items.vectors), limit - start)
        if count <= 0:
            break
        own = [name for name, value in (("ids", items.ids), ("payloads", items.payloads)) if value]
        given = {"ids": named is not None or first_id is not None, "payloads": documents}
        for name in own:
            if given[name]:
                raise InvalidParameter(
                    f"The {name} must come from one file. Got a file of them beside {path}, which "
                    f"has {name}. Leave out the option."
                )
        some = items._replace(
            vectors=items.vectors[:count],
            ids=None if items.ids is None else items.ids[:count],
            payloads=None if items.payloads is None else items.payloads[:count],
        )
        if named is not None:
            some = some._replace(ids=named[start : start + count].tolist())
        elif first_id is not None:
            some = some._replace(ids=list(range(first_id + start, first_id + start + count)))
        if documents is not None:
            some = some._replace(payloads=list(islice(documents, count)))
        start += count
        for option, beside in (("--ids", some.ids), ("--payloads", some.payloads)):
            if beside is not None and len(beside) != count:
                raise InvalidParameter(
                    f"The {option} file must have a line or a row for each item of {path}. Got "
                    f"{start - count + len(beside)}, and there are more items. Check both files."
                )
        yield some


def read_all(batches: Iterator[Items]) -> tuple[NDArray[Any], list[Any] | None, list[Any] | None]:
    """Return all vectors (n, d) of a file, and the ids and payloads that there are."""
    every = list(batches)
    if not every:
        raise InvalidParameter("The file of items must hold one. Got none. Check it.")
    ids = None if every[0].ids is None else [id for some in every for id in some.ids or ()]
    payloads = None
    if any(some.payloads for some in every):
        payloads = [one for some in every for one in some.payloads or [None] * len(some.vectors)]
    return np.concatenate([some.vectors for some in every]), ids, payloads


def read_json(option: str, text: str) -> Any:
    """Return the JSON value of an option."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidParameter(
            f'The {option} option must be a JSON object, such as \'{{"lang": "en"}}\'. Got {text} '
            f"instead, which cannot be read: {error}. Put it between single quotes."
        ) from None


def read_relevance(path: Path) -> Any:
    if path.suffix != ".npz":
        return read_ground_truth(path)[0]
    check_file(path)
    with _translate_errors(path, "a file written by scipy.sparse.save_npz"):
        return sp.load_npz(path)


def read_test(
    data: Path | None, queries: str, queries_file: Path | None, truth: Path | None, items: int
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return queries and the rows of their true neighbours, or None if these are unknown."""
    rows: NDArray[Any] | None = None
    if data is not None and queries_file is None and truth is None:
        vectors = read_vectors(data, queries)
        with suppress(FormatError):
            rows = read_vectors(data, "neighbors" + queries.removeprefix("test"))
        # An index of a part of the file has other true neighbours.
        return vectors, rows if rows is not None and rows.max(initial=0) < items else None
    if data is not None or queries_file is None:
        raise InvalidParameter(
            "The queries must come either from an HDF5 file, or from --queries-file with or "
            "without --truth. Got neither or both. Write: irli eval INDEX DATA.hdf5"
        )
    vectors = read_vectors(queries_file)
    if truth is not None:
        rows = read_ground_truth(truth)[0]
        if len(rows) != len(vectors) or rows.max(initial=0) >= items:
            raise InvalidParameter(
                f"The --truth option must name, for each of {len(vectors)} queries, rows among "
                f"{items} items. Got rows up to {rows.max(initial=0)} for {len(rows)} queries "
                "instead. Leave it out to compute the true neighbours."
            )
    return vectors, rows


def read_sweep(probes: str | None, threshold: str | None) -> list[Values]:
    """Return the search parameters to compare. Without options, these are the defaults alone."""
    check_at_most_one(probes=probes, threshold=threshold)
    try:
        if probes is not None:
            return [{"probes": int(value)} for value in probes.split(",")]
        if threshold is not None:
            return [{"threshold": float(value)} for value in threshold.split(",")]
    except ValueError:
        raise InvalidParameter(
            "The values to compare must be numbers, separated by commas. "
            f"Got '{probes or threshold}' instead. Write for example: --probes 1,2,4"
        ) from None
    return [{}]


# --- running -----------------------------------------------------------------------------------


@contextmanager
def keep_checkpoint(out: Path) -> Iterator[Path]:
    """Yield a checkpoint folder beside `out`, which is removed when the index is saved."""
    folder = Path(f"{out.resolve()}.partial")
    make_folder(folder, "path of the index")
    in_use = (
        f"The index {out} must not be built by another command at the same time, and one is "
        f"running. It keeps its files in {folder}. Wait until it ends, or name another index."
    )
    try:
        with claim_folder(folder, ".irli-command.lock", in_use):
            yield folder
            for file in (*folder.glob("repetition-*.npz"), *folder.glob("*.tmp")):
                file.unlink()
    except KeyboardInterrupt:
        typer.echo("irli: interrupted; the same command resumes the build", err=True)
        raise typer.Exit(130) from None
    finally:
        with suppress(OSError):  # it holds files to resume from
            folder.rmdir()


def measure_search(
    index: AnyVectors,
    queries: NDArray[np.float32],
    true_ids: NDArray[np.int64],
    k: int,
    chosen: Values,
) -> Values:
    explanation = index.explain(queries, k, **chosen)
    scanned = float(explanation.scanned.mean())
    return {
        "parameters": index.defaults.replace(**chosen).to_json(),
        "recall": recall_at(index.search(queries, k, **chosen).ids, true_ids, k),
        "scanned": scanned,
        "exact": float(explanation.candidates.mean()),
        "work": scanned + explanation.router_multiplications / queries.shape[1],
        "qps_one_thread": _time_search(index, queries, k, chosen, 1),
        "qps_all_threads": _time_search(index, queries, k, chosen, None),
    }


def _time_search(
    index: AnyVectors, queries: Any, k: int, chosen: Values, threads: int | None
) -> float:
    times = []
    for _ in range(_REPEATS):
        start = perf_counter()
        index.search(queries, k, **chosen, threads=threads)
        times.append(perf_counter() - start)
    return len(queries) / min(times)


# --- printing ----------------------------------------------------------------------------------


def print_result(values: Values, text: str, as_json: bool) -> None:
    typer.echo(json.dumps(values, allow_nan=False) if as_json else text)


def to_values(tuned: TuneResult) -> Values:
    return tuned.to_json()


def format_tuned(tuned: TuneResult, target: float, k: int) -> str:
    found = (
        f"{format_parameters(tuned.parameters.to_json())}: recall {tuned.recall:.4f} at k={k}, "
        f"{tuned.scanned:.0f} entries a query"
    )
    return found if tuned.reached else f"{found} (recall {target:g} is out of reach)"


def format_parameters(parameters: Values) -> str:
    """Return search parameters as text, without those that have no effect."""
    unused = {"min_votes": 1, "near": 0, "exact": False, "rank": "distance"}
    if not parameters["candidates"]:
        unused["score"] = parameters["score"]
    return " ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in parameters.items()
        if value is not None and name not in TUNED and unused.get(name) != value
    )


def to_plain(ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids as an array that a file can hold without pickle: no string where there is none."""
    return ids if ids.dtype != object else np.where(is_item(ids), ids, "").astype(str)


def format_results(found: SearchResult) -> str:
    return format_pairs(
        "query",
        [
            list(zip(ids[:count], distances[:count], strict=True))
            for distances, ids, count in zip(*found, found.counts, strict=True)
        ],
    )


def format_payloads(found: SearchResult) -> str:
    """Return a line for each item that was found, with its payload."""
    lines = []
    queries = zip(*found, found.payloads or (), found.counts, strict=True)
    for query, (distances, ids, payloads, count) in enumerate(islice(queries, _SHOWN)):
        lines.append(f"query {query}:{'' if count else ' nothing'}")
        for distance, id, payload in islice(zip(distances, ids, payloads, strict=True), count):
            told = "" if payload is None else f" {json.dumps(payload, ensure_ascii=False)}"
            lines.append(f"  {id} ({distance:.4g}){told}")
    if len(found.ids) > _SHOWN:
        lines.append(f"... and {len(found.ids) - _SHOWN} more; --json prints all of them")
    return "\n".join(lines)


def format_pairs(what: str, found: Sequence[Sequence[tuple[object, float]]]) -> str:
    """Return a line for each of the first rows: what was found, with distances or scores."""
    lines = []
    for row, pairs in enumerate(found):
        each = [f"{thing} ({number:.4g})" for thing, number in pairs]
        lines.append(f"{what} {row}: {', '.join(each) or 'nothing'}")
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"... and {len(lines) - _SHOWN} more; --out FILE keeps all of them"]
    return "\n".join(lines)


def format_info(stats: Values, history: list[Values]) -> str:
    worst = max(stats["loads"], key=lambda loads: loads["max_over_mean"])
    shards = f", in {stats['shards']} shards" if "shards" in stats else ""
    text = f"""\
items     {stats["items"]} of {stats["dim"]} dimensions, {stats["metric"]}{shards}
buckets   {stats["repetitions"]} x {stats["buckets"]}, {stats["entries"]} entries
loads     {format_loads(worst)}
routing   {stats["router_multiplications"]} multiplications a query
memory    {stats["bytes"] / 1e6:.1f} MB, {stats["bytes_vectors"] / 1e6:.1f} MB of them vectors
simd      {stats["simd"]} instructions of this processor
search    {format_parameters(stats["defaults"])}
{format_recipe(stats["recipe"])}
"""
    if changes := stats.get("changes"):
        text += (
            f"changes   {changes['added']} items added and {changes['removed']} removed since "
            f"{changes['learned']} were learned; refreshed {changes['refreshes']} times\n"
        )
    return text + "\n" + format_history(history)


def format_loads(loads: Values) -> str:
    return (
        f"mean {loads['mean']:.1f}, std {loads['std']:.1f}, the largest "
        f"{loads['max_over_mean']:.2f} x the mean, {loads['empty']} empty"
    )


def format_recipe(recipe: Values) -> str:
    settings = " ".join(f"{key}={value}" for key, value in recipe.items() if value is not None)
    wrap = textwrap.TextWrapper(width=88, subsequent_indent=" " * 10, break_on_hyphens=False)
    return wrap.fill(f"recipe    {settings}")


def format_history(history: list[Values]) -> str:
    """Return a table of the rounds of learning, then one of what was tried, if anything was."""
    tried = [entry for entry in history if "choice" in entry]
    rounds = _format_rounds([entry for entry in history if "choice" not in entry])
    return f"{rounds}\n\n{_format_tried(tried)}" if tried else rounds


def _format_tried(tried: list[Values]) -> str:
    names = [name for name in ("shard", "choice", "tried") if name in tried[0]]
    table = [[*names, "quality"]]
    table += [[*(str(one[name]) for name in names), f"{one['quality']:.4f}"] for one in tried]
    return align_columns(table)


def _format_rounds(history: list[Values]) -> str:
    names = ("loss", "recall", "affinity", "load_std", "load_max_over_mean", "moved")
    table = [["repetition", "epoch", "loss", "recall", "affinity", "load std", "max/mean", "moved"]]
    sharded = bool(history) and "shard" in history[0]
    if sharded:
        table[0].insert(0, "shard")
    for entry in history:
        numbers = [f"{entry[name]:.4f}" for name in names]
        if not entry["kept"]:
            numbers[-1] = "taken back"
        shard = [str(entry["shard"])] if sharded else []
        table.append([*shard, str(entry["repetition"] + 1), str(entry["epoch"]), *numbers])
    return align_columns(table)


def align_columns(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
