"""The commands that change an index: `irli add`, `remove`, `compact`, `refresh`; and `health`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from typer import Argument, Option

import irli
from irli.base.folder import MANIFEST
from irli.base.item_files import Items, count_items, has_payloads
from irli.base.progress import ticking
from irli.base.records import read_lines
from irli.cli import console
from irli.cli.console import FirstId, IdKey, Ids, Index, Json, Key, Limit, Payloads, Threads
from irli.errors import InvalidParameter
from irli.vectors.changes.health import Health
from irli.vectors.index import VectorIndex

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Quiet = Annotated[bool, Option("--quiet", help="Show no progress bars.")]


# --- add ---------------------------------------------------------------------------------------


@app.command()
def add(
    index: Annotated[Path, Argument(help="Index folder. A new one needs --metric.")],
    data: Annotated[Path, Argument(help="Items: .jsonl, .parquet, or vectors as for build.")],
    metric: Annotated[str | None, Option(help="Of a new index: l2, ip or cosine.")] = None,
    key: Key = None,
    id_key: IdKey = "id",
    ids: Ids = None,
    first_id: FirstId = None,
    payloads: Payloads = None,
    upsert: Annotated[bool, Option("--upsert", help="Replace items with the same ids.")] = False,
    resume: Annotated[bool, Option("--resume", help="Leave out ids that are there.")] = False,
    refresh: Annotated[bool, Option(help="Learn anew or pack in the end, if that is due.")] = True,
    limit: Limit = None,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add the items of a file to an index. What was added stays if it is interrupted."""
    if upsert and resume:
        raise InvalidParameter(
            "Only one of --upsert and --resume may be given. Got both. --upsert replaces what is "
            "there, and --resume leaves it as it is."
        )
    if (upsert or resume) and ids is None and first_id is None and not has_payloads(data):
        raise InvalidParameter(
            f"The --ids or --first-id option must be given with --upsert and --resume: {data} has "
            "no ids to know items by. Got neither. Into a new folder, 'irli add' numbers the items "
            "of such a file from 0 up."
        )
    start = perf_counter()
    total = count_items(data, key)
    read = console.read_batches(data, key, id_key, ids, first_id, payloads, limit)
    with _open(index, metric, read) as (opened, batches):
        before, done, skipped = len(opened), 0, 0
        progress = not quiet and sys.stderr.isatty()
        learned = opened.recipe.name
        opened.maintain_threads = threads or 1
        with ticking(min(total, limit or total), progress, "adding") as tick:
            for items in batches:
                some = _leave_out(opened, items) if resume else items
                skipped += len(items.vectors) - len(some.vectors)
                done += _add(opened, some, upsert, done)
                tick(len(items.vectors))
        if refresh:
            opened.maintain = "auto"
            opened.look_after()
        opened.wait()
        values = {
            "index": str(index),
            "added": len(opened) - before,
            "replaced": done - (len(opened) - before),
            "skipped": skipped,
            "items": len(opened),
            "seconds": perf_counter() - start,
        }
        learned_now = opened.recipe.name != learned
    text = f"{index}: {values['added']} items added"
    text += f", {values['replaced']} replaced" if upsert else ""
    text += f", {skipped} left out" if resume else ""
    text += f", {values['items']} in all, in {values['seconds']:.1f} s"
    text += "\nits routers have learned from them" if learned_now else ""
    console.print_result(values, text, as_json)


@contextmanager
def _open(
    path: Path, metric: str | None, batches: Iterator[Items]
) -> Iterator[tuple[VectorIndex, Iterator[Items]]]:
    """Open an index, which is made if it is new. Give it with the batches to add."""
    dim = None
    if not (path / MANIFEST).exists():
        if metric is None:
            raise InvalidParameter(
                f"The --metric option must be given for a new index: there is none at {path}. Got "
                "none. Pass l2, ip or cosine, or check the spelling of the folder."
            )
        first = next(batches, None)  # it says the dimension, before anything is made
        if first is None:
            raise InvalidParameter(
                f"The file of items for the new index {path} must hold one. Got none. Check it."
            )
        dim, batches = first.vectors.shape[1], chain([first], batches)
    with irli.open(path, metric=metric, dim=dim, maintain="manual") as opened:
        try:
            yield opened, batches
        except KeyboardInterrupt:
            typer.echo(
                f"irli: interrupted; {path} has {len(opened)} items. The same command with "
                "--resume adds the others",
                err=True,
            )
            raise typer.Exit(130) from None


def _add(opened: VectorIndex, items: Items, upsert: bool, done: int) -> int:
    if len(items.vectors) == 0:
        return 0
    change = opened.upsert if upsert else opened.add
    try:
        change(items.vectors, items.ids, items.payloads)
    except InvalidParameter as error:
        raise InvalidParameter(
            f"{items.where} cannot be added. {error} {done} items before them are in the index: "
            "correct the file, and give the same command with --resume."
        ) from error
    return len(items.vectors)


def _leave_out(opened: VectorIndex, items: Items) -> Items:
    """Return the items whose ids the index does not have."""
    if items.ids is None:
        raise InvalidParameter(
            f"The --resume option needs ids to know items by. {items.where} has none. Pass --ids."
        )
    left = [row for row, id in enumerate(items.ids) if id not in opened]
    payloads = None if items.payloads is None else [items.payloads[row] for row in left]
    return Items(items.vectors[left], [items.ids[row] for row in left], payloads, items.where)


# --- remove ------------------------------------------------------------------------------------


@app.command()
def remove(
    index: Index,
    names: Annotated[list[str] | None, Argument(metavar="IDS", help="Ids.")] = None,
    ids: Annotated[Path | None, Option(help="Ids: .npy, or a line for each.")] = None,
    filter: Annotated[str | None, Option(help="Or all that a filter allows, as JSON.")] = None,
    as_json: Json = False,
) -> None:
    """Remove items by their ids, or by what their payloads say."""
    if (bool(names) + (ids is not None) + (filter is not None)) != 1:
        raise InvalidParameter(
            "The items to remove must be named in one way: by IDS, --ids or --filter. Got "
            f"{'none' if not names and ids is None and filter is None else 'several'} of them."
        )
    condition = None if filter is None else console.read_json("--filter", filter)
    with irli.open(index, maintain="manual") as opened:
        wanted = None if condition is not None else _read_ids(opened, names or [], ids)
        asked = None if wanted is None else len(set(wanted))
        removed = opened.remove(wanted, filter=condition)
        left = len(opened)
    values = {"index": str(index), "removed": removed, "items": left}
    missing = f", {asked - removed} were not there" if asked is not None and asked > removed else ""
    console.print_result(values, f"{index}: {removed} items removed{missing}, {left} left", as_json)


def _read_ids(opened: VectorIndex, names: list[str], path: Path | None) -> list[Any]:
    """Return ids as the index has them: as strings or integers."""
    if path is not None and path.suffix == ".npy":
        found: list[Any] = console.read_npy(path).ravel().tolist()
        return found
    lines = ((f"{path}, line {n},", text.strip()) for n, text in read_lines(path)) if path else ()
    given = [(where, text) for where, text in chain(lines, (("An id", name) for name in names))]
    if any(isinstance(id, str) for id in islice(opened, 1)):
        return [text for _, text in given if text]
    return [_as_number(where, text) for where, text in given if text]


def _as_number(where: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidParameter(
            f"{where} must be an integer, as the ids of this index are. Got '{text[:40]}' instead."
        ) from None


# --- staying good ------------------------------------------------------------------------------


@app.command()
def compact(index: Index, as_json: Json = False) -> None:
    """Pack the arrays anew, without removed items. The routers stay."""
    start = perf_counter()
    before = _measure(index)
    with irli.open(index, maintain="manual") as opened:
        opened.compact()
        items = len(opened)
    after, seconds = _measure(index), perf_counter() - start
    values = {"index": str(index), "items": items, "bytes": after, "bytes_before": before}
    text = f"{index}: {items} items in {after / 1e6:.1f} MB, {before / 1e6:.1f} MB before"
    console.print_result(values | {"seconds": seconds}, text, as_json)


def _measure(folder: Path) -> int:
    """Return the disk space of a folder."""
    found = (path.stat() for path in folder.iterdir()) if folder.is_dir() else ()
    return sum(getattr(one, "st_blocks", one.st_size // 512) * 512 for one in found)


@app.command()
def refresh(
    index: Index,
    queries: Annotated[Path | None, Option(help="Queries of users, to learn from.")] = None,
    queries_key: Key = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Let the routers learn anew from the items that are there."""
    start = perf_counter()
    asked = None if queries is None else console.read_queries(queries, queries_key)
    with irli.open(index, maintain="manual") as opened:
        opened.maintain_threads = threads or -1
        if asked is not None:
            opened.record(asked)
        taken = opened.refresh()
        items = len(opened)
    seconds = perf_counter() - start
    values = {"index": str(index), "taken": taken, "items": items, "seconds": seconds}
    text = f"{index}: learned anew from {items} items in {seconds:.1f} s"
    if not taken:
        text = f"{index}: the routers stay, as new ones find no more at less work"
    console.print_result(values, text, as_json)


@app.command()
def health(index: Index, as_json: Json = False) -> None:
    """Measure how well items are found after changes, and say what to do."""
    opened = irli.load(index)
    if not isinstance(opened, VectorIndex):
        raise InvalidParameter(f"{index} must hold a VectorIndex. Got a {type(opened).__name__}.")
    found = opened.health()
    console.print_result(dataclasses.asdict(found), _format_health(found), as_json)


def _format_health(found: Health) -> str:
    lines = [
        f"items     {found.items}: {found.learned} learned, {found.added} added and "
        f"{found.removed} removed since; refreshed {found.refreshes} times",
        f"buckets   the largest {found.balance:.2f} x the mean",
        f"size      {found.bytes / 1e6:.1f} MB, {found.bytes_to_reclaim / 1e6:.1f} MB of them to "
        f"give back; {found.removed_rows:.0%} of the rows are removed items",
    ]
    for name, one in (("learned", found.old), ("added", found.recent), ("queries", found.recorded)):
        if one is not None:
            lines.append(f"{name:8}  recall {one} for each of {one.queries}")
    if found.work_then is not None:
        lines.append(f"then      {found.work_then / 1000:.1f} us counted when it was tuned")
    lines += [f"warning   {text}" for text in found.warnings]
    lines += [f"advice    {text}" for text in found.advice or ["none: all is well"]]
    return "\n".join(lines)
