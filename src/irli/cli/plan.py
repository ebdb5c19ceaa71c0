"""The command `irli plan`: predict build time, memory and speed of an index on a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

import irli
from irli.base.checks import check_int
from irli.base.files import claim_file
from irli.cli import console
from irli.cli.console import Json, K
from irli.cluster.planning.costs import Costs, measure_costs
from irli.cluster.planning.planner import ClusterPlan, Machines, make_plan
from irli.errors import InvalidParameter

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("plan")
def plan_command(
    items: Annotated[float, Option(help="Number of vectors, such as 100e6.")],
    dim: Annotated[int, Option(min=1, help="Dimension of the vectors.")],
    shards: Annotated[
        int | None, Option(min=1, help="Number of shards (P). Default: as memory requires.")
    ] = None,
    probes: Annotated[
        int | None, Option(min=1, help="Buckets to probe (m). Default: measured.")
    ] = None,
    recipe: Annotated[str, Option(help="Recipe: default, paper or paper-deep.")] = "default",
    settings: Annotated[
        list[str] | None, Option("--set", help="Recipe setting: KEY=VALUE.")
    ] = None,
    machines: Annotated[int, Option(help="Number of machines.")] = 1,
    cores: Annotated[int, Option(help="Cores per machine.")] = 8,
    memory: Annotated[float, Option(help="Memory per machine, in GB.")] = 64.0,
    round_trip: Annotated[float, Option(help="Network round trip, in ms.")] = 0.5,
    bandwidth: Annotated[float, Option(help="Bandwidth of the caller, in Gbit/s.")] = 10.0,
    call: Annotated[float, Option(help="Overhead of a Ray call, in ms.")] = 0.5,
    replicas: Annotated[int, Option(min=1, help="Replicas of each shard.")] = 1,
    batch: Annotated[int, Option(min=1, help="Queries per call.")] = 256,
    k: K = 10,
    threads: Annotated[int, Option(min=1, help="Threads of each build step.")] = 1,
    costs: Annotated[Path | None, Option(help="File to keep the measured costs in.")] = None,
    as_json: Json = False,
) -> None:
    """Predict build time, memory, latency and throughput, and recommend P, R, B and m.

    First, the costs of work are measured on this machine, which takes some seconds; with --costs
    FILE only once. The machines of the cluster should have cores like those of this one.
    """
    if items != int(items):
        raise InvalidParameter(
            f"The --items option must be a whole number. Got {items} instead. Write 100e6."
        )
    count = check_int("items", int(items), at_least=1, owner="plan")
    changed = console.read_recipe(recipe, settings)
    known = Machines(
        machines, cores, memory * 1e9, round_trip / 1e3, bandwidth * 1e9 / 8, call / 1e3
    )
    # Measuring takes a while, so check the settings first.
    changed.resolve(-(-count // (shards or 1)), dim)
    sizes: dict[str, Any] = {
        "items": count,
        "shards": shards,
        "replicas": replicas,
        "threads": threads,
    }
    search: dict[str, Any] = {"probes": probes, "batch": batch, "k": k}
    found = make_plan(_get_costs(dim, changed, costs), changed, known, **sizes, **search)
    console.print_result(found.to_dict(), format_plan(found), as_json)


def _get_costs(dim: int, recipe: irli.Recipe, path: Path | None) -> Costs:
    if path is not None and path.exists():
        costs = Costs.load(path)
        if costs.dim != dim:
            raise InvalidParameter(
                f"The --costs option must name costs for {dim} dimensions. {path} has those for "
                f"{costs.dim} instead. Name another file, and they are measured."
            )
        return costs
    if path is not None:
        claim_file(path, "--costs option")
    costs = measure_costs(dim, recipe, progress=sys.stderr.isatty())
    if path is not None:
        costs.save(path)
    return costs


def format_plan(found: ClusterPlan) -> str:
    """Return a plan as text."""
    room = "" if found.fits else ": more than it has; take more machines or shards"
    step, disk = f"{found.build_worker_bytes / 1e9:.2f}", f"{found.disk_bytes / 1e9:.1f}"
    shard, machine = f"{found.shard_bytes / 1e9:.2f}", f"{found.machine_bytes / 1e9:.2f}"
    return f"""\
items       {found.items} of {found.dim} dimensions
shards      P = {found.shards}, each with {found.replicas} replica{"s" * (found.replicas > 1)}
routers     R = {found.repetitions}, B = {found.buckets} in each shard
search      m = {found.probes}, {found.scanned:.0f} entries read for a query
build       {_format_time(found.build_seconds)}: prepare {_format_time(found.prepare_seconds)}, \
learn {_format_time(found.learn_seconds)}, finish {_format_time(found.finish_seconds)}
            {found.build_side_by_side} steps side by side, {step} GB for each, {disk} GB of disk
serving     {shard} GB a shard, {machine} GB a machine{room}
latency     {1e3 * found.latency:.2f} ms for a query, \
{1e3 * found.batch_latency:.2f} ms for {found.batch} at once
throughput  {found.throughput:.0f} queries/s"""


def _format_time(seconds: float) -> str:
    """Return a time in seconds, minutes, hours or days.

    Examples
    --------
    >>> _format_time(90.0), _format_time(7200.0), _format_time(200_000.0)
    ('90 s', '2.0 h', '2.3 days')
    """
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 36_000:
        return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
