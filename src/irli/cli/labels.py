"""The commands `irli labels fit`, `predict` and `eval`, for feature rows or texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import typer
from typer import Argument, Option

from irli.base.checks import check_choice
from irli.base.folder import LABELS
from irli.base.logs import warn
from irli.base.sparse import as_labels, as_rows
from irli.base.threads import thread_count
from irli.base.types import Sparse
from irli.cli import console
from irli.cli.console import Index, Json, Threads, Values
from irli.errors import InvalidParameter
from irli.labels.files import read_matrix, read_rows
from irli.labels.index import LabelIndex, Prediction, describe_empty, leave_out_empty
from irli.labels.metrics import (
    inverse_propensity_of_counts,
    ndcg,
    precision,
    precision_of_possible,
    propensity_scored_precision,
    recall,
)
from irli.labels.parameters import PredictArguments
from irli.labels.text import Names, label_matrix
from irli.labels.text_files import read_jsonl, read_label_lists, read_texts
from irli.labels.xmc_text import open_input

_FORMATS = ("xmc", "matrix", "text", "jsonl")
_WITH_LABELS = ("xmc", "jsonl")
_SHORTLIST = 100  # labels; their recall bounds what a better ranker could reach

RowFile = Annotated[Path, Argument(metavar="ROWS", help="XMC file, matrix, texts or JSON lines.")]
LabelFile = Annotated[
    Path | None, Argument(metavar="LABELS", help="Labels, if they are in another file.")
]
Format = Annotated[
    str | None, Option(help="xmc, matrix, text or jsonl. Default: detected from ROWS.")
]
Probes = Annotated[int | None, Option(help="Buckets to probe per repetition.")]
Candidates = Annotated[int | None, Option(help="Labels to rerank.")]
Score = Annotated[
    str | None,
    Option(help="How found labels are scored: votes, probability, logit or log-probability."),
]
NoRanker = Annotated[bool, Option("--no-ranker", help="Do not rerank.")]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def labels_command(context: typer.Context) -> None:
    """Learn and predict labels of feature rows or texts."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def fit(
    rows: RowFile,
    out: Annotated[Path, Option(help="Folder for the index.")],
    labels: LabelFile = None,
    format: Format = None,
    names: Annotated[Path | None, Option(help="File of label names, one per line.")] = None,
    recipe: Annotated[str, Option(help="Recipe: labels or paper-labels.")] = "labels",
    settings: Annotated[
        list[str] | None, Option("--set", help="Recipe setting: KEY=VALUE.")
    ] = None,
    ranker: Annotated[
        bool | None,
        Option(
            "--ranker/--no-ranker", help="Rerank with linear classifiers. Default: if it helps."
        ),
    ] = None,
    seed: Annotated[int | None, Option(help="Random seed.")] = None,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Annotated[bool, Option("--quiet", help="Show no progress bars.")] = False,
) -> None:
    """Learn the labels of rows. An interrupted fit is resumed."""
    console.claim_output(out)
    index = LabelIndex(console.read_recipe(recipe, settings, seed), ranker=ranker)
    given = read_labelled(rows, labels, format)
    options: Values = {"progress": not quiet and sys.stderr.isatty(), "threads": threads}
    if names is not None:
        if given.are_texts:
            raise InvalidParameter(
                "The --names option must be left out for texts, whose labels are names already. "
                f"Got {names}. It is for rows of features."
            )
        options["names"] = read_texts(names)
    with console.keep_checkpoint(out) as checkpoint:
        start = perf_counter()
        learn: Callable[..., LabelIndex] = index.fit_text if given.are_texts else index.fit
        learn(given.rows, given.labels, checkpoint=checkpoint, **options)
        seconds = perf_counter() - start
        index.save(out)
    stats = index.stats()
    shown = ("items", "rows", "dim", "names", "text", "buckets", "repetitions", "ranker_weights")
    values = {name: stats[name] for name in shown} | {"defaults": stats["defaults"]}
    uneven = _find_imbalance(stats)
    text = f"""\
{out}: {_describe_size(stats)}
buckets   {stats["repetitions"]} x {stats["buckets"]}, the largest {uneven:.2f} x the mean
predict   {_describe_predict(stats)}
fitted in {seconds:.1f} s"""
    values_shown = {"index": str(out)} | values | {"max_over_mean": uneven, "fit_seconds": seconds}
    console.print_result(values_shown, text, as_json)


@app.command()
def predict(
    index: Index,
    rows: RowFile,
    format: Format = None,
    k: Annotated[int, Option("--k", "-k", min=1, help="Number of labels per row.")] = 5,
    probes: Probes = None,
    candidates: Candidates = None,
    score: Score = None,
    no_ranker: NoRanker = False,
    out: Annotated[
        Path | None, Option(help="File for all results: .npz of label numbers, or .jsonl.")
    ] = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Predict the best labels of each row.

    They are printed by name if the labels have names.
    """
    if out is not None:
        check_choice("extension of --out", out.suffix, (".npz", ".jsonl"))
    known = LabelIndex.from_folder(console.read_index(index, LABELS))
    given = read_inputs(rows, None, format)
    features = make_features(given, known)
    chosen = PredictArguments(probes=probes, candidates=candidates, score=score)
    predict_best = _make_predict(known, features, given.are_texts, chosen, no_ranker, threads)
    start = perf_counter()
    found = predict_best(k)
    seconds = perf_counter() - start
    answers = _name_found(found, known)
    values = {"index": str(index), "rows": len(answers), "k": k, "seconds": seconds}
    kept = [{"labels": [n for n, _ in row], "scores": [s for _, s in row]} for row in answers]
    if out is None:
        values |= {name: [row[name] for row in kept] for name in ("labels", "scores")}
        console.print_result(values, console.format_pairs("row", answers), as_json)
        return
    if out.suffix == ".npz":
        np.savez(out, scores=found.scores, labels=found.labels)
    else:
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in kept)
        out.write_text("".join(lines), encoding="utf-8")
    text = f"{out}: the {k} best labels of {len(answers)} rows, found in {seconds:.3f} s"
    console.print_result(values | {"out": str(out)}, text, as_json)


@app.command("eval")
def evaluate(
    index: Index,
    rows: RowFile,
    labels: LabelFile = None,
    format: Format = None,
    k: Annotated[str, Option("--k", "-k", help="Depths to measure at.")] = "1,3,5",
    probes: Probes = None,
    candidates: Candidates = None,
    score: Score = None,
    no_ranker: NoRanker = False,
    a: Annotated[float, Option(help="Propensity: 0.5 for Wikipedia, 0.6 for Amazon.")] = 0.55,
    b: Annotated[float, Option(help="Propensity: 0.4 for Wikipedia, 2.6 for Amazon.")] = 1.5,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Measure precision on rows with known labels.

    The table has precision, nDCG and propensity-scored precision. Labels that the index has never
    seen count as missed.
    """
    depths = _read_depths(k)
    known = LabelIndex.from_folder(console.read_index(index, LABELS))
    given = read_labelled(rows, labels, format)
    features, truth = make_features(given, known), make_truth(given, known)
    counts = np.pad(known.counts, (0, truth.shape[1] - len(known)))
    weights = inverse_propensity_of_counts(counts, known.rows, a, b)
    chosen = PredictArguments(probes=probes, candidates=candidates, score=score)
    predict_best = _make_predict(known, features, given.are_texts, chosen, no_ranker, threads)
    predict_best(max(depths))  # the first call loads the kernels
    start = perf_counter()
    found = predict_best(max(depths)).labels
    seconds = perf_counter() - start
    measures: dict[str, Callable[..., float]] = {
        "P": precision,
        "nDCG": ndcg,
        "PSP": partial(propensity_scored_precision, weights=weights),
        "hits/min(k,labels)": precision_of_possible,
    }
    results = {
        name: [measure(found, truth, k=depth) for depth in depths]
        for name, measure in measures.items()
    }
    covered = recall(predict_best(_SHORTLIST).labels, truth, _SHORTLIST)
    unseen = np.unique(truth.indices[truth.indices >= len(known)])
    count, cores = truth.shape[0], thread_count(threads)
    speed = 1000 * seconds / count
    values = {"index": str(index), "rows": count, "threads": cores, "ms_per_row": speed}
    values |= {"unknown_labels": len(unseen), f"recall@{_SHORTLIST}": covered}
    for name, numbers in results.items():
        values |= {f"{name}@{d}": number for d, number in zip(depths, numbers, strict=True)}
    table = [["", *(f"@{depth}" for depth in depths)]]
    table += [[name, *(f"{number:.4f}" for number in row)] for name, row in results.items()]
    text = f"""\
{console.align_columns(table)}
recall@{_SHORTLIST} {covered:.4f}; {speed:.3f} ms a row, {count} rows, threads={cores}"""
    if len(unseen):
        text += f"\n{len(unseen)} of the labels are unknown to the index: nothing can find them"
    console.print_result(values, text, as_json)


# --- reading -----------------------------------------------------------------------------------


class LabelInputs(NamedTuple):
    """The contents of files: features and a label matrix, or texts and lists of label names."""

    rows: Any
    labels: Any  # None if unknown
    are_texts: bool


def read_inputs(rows: Path, labels: Path | None, format: str | None) -> LabelInputs:
    """Return rows, and their labels if there are any."""
    kind = _detect_format(rows) if format is None else check_choice("--format", format, _FORMATS)
    if kind in _WITH_LABELS:
        if labels is not None:
            raise InvalidParameter(
                f"LABELS must be left out for {rows}, a file of the format '{kind}' with labels "
                f"of its own. Got {labels}. Set --format if the file has another format."
            )
        return (
            LabelInputs(*read_jsonl(rows), True)
            if kind == "jsonl"
            else LabelInputs(*read_rows(rows), False)
        )
    if kind == "text":
        return LabelInputs(
            read_texts(rows), None if labels is None else read_label_lists(labels), True
        )
    return LabelInputs(read_matrix(rows), None if labels is None else read_matrix(labels), False)


def read_labelled(rows: Path, labels: Path | None, format: str | None) -> LabelInputs:
    """Return rows with their labels. Missing labels are an error."""
    given = read_inputs(rows, labels, format)
    if given.labels is None:
        what = "a line of names for each text" if given.are_texts else "a matrix of labels"
        raise InvalidParameter(
            f"LABELS must be given for {rows}, which has no labels of its own: {what}. "
            "Got nothing. Name the file of labels after the file of rows."
        )
    sizes = [len(x) if isinstance(x, list) else x.shape[0] for x in given[:2]]
    if sizes[0] != sizes[1]:
        raise InvalidParameter(
            f"LABELS must have a row for each of the {sizes[0]} rows of {rows}. "
            f"Got {sizes[1]} in {labels} instead. Keep empty lines where there is no label."
        )
    return given


def _detect_format(path: Path) -> str:
    """Return the format, by the name or by the first line. Only numeric data start with a shape."""
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return "jsonl"
    if path.suffix in (".npz", ".npy"):
        return "matrix"
    with open_input(path) as stream:
        words = stream.readline(200).split()
    numbers = len(words) if all(word.isdigit() for word in words) else 0
    return {3: "xmc", 2: "matrix"}.get(numbers, "text")


def _read_depths(text: str) -> list[int]:
    depths = text.split(",")
    if not all(depth.isdecimal() and int(depth) for depth in depths):
        raise InvalidParameter(
            "The --k option must be whole numbers above 0, separated by commas. "
            f"Got '{text}' instead. Write for example: --k 1,3,5"
        )
    return [int(depth) for depth in depths]


def make_features(given: LabelInputs, index: LabelIndex) -> Any:
    """Return rows of features, and warn of texts without a known word."""
    if not given.are_texts:
        return as_rows(given.rows)
    if not given.rows:
        raise InvalidParameter(
            "ROWS must have at least one row. Got an empty file. Check the name of the file."
        )
    if index.vectorizer is None:
        raise InvalidParameter(
            "ROWS must be rows of features for an index that was not fitted on texts. Got texts "
            "instead. Turn them into rows of the same features, or fit an index on texts."
        )
    rows = index.features(given.rows)
    empty = int((np.diff(rows.indptr) == 0).sum())
    if empty:
        warn(describe_empty(empty, rows.shape[0]))
    return rows


def make_truth(given: LabelInputs, index: LabelIndex) -> Sparse:
    """Return the labels of each row. Labels that the index does not know are the last columns."""
    if given.are_texts:
        known = index.names or Names.of([])
        more = [name for name in Names.among(given.labels) if name not in known]
        matrix = label_matrix(given.labels, Names.of([*known, *more]))
        return as_labels(matrix, matrix.shape[0])
    labels = as_labels(given.labels, given.labels.shape[0], len(index))
    shape = (labels.shape[0], max(labels.shape[1], len(index)))
    return sp.csr_array((labels.data, labels.indices, labels.indptr), shape=shape)


# --- predicting and printing -------------------------------------------------------------------


def _make_predict(
    index: LabelIndex,
    features: Any,
    are_texts: bool,
    chosen: PredictArguments,
    no_ranker: bool,
    threads: int | None,
) -> Callable[[int], Prediction]:
    """Return a function that predicts the k best labels of the rows."""
    index.defaults.replace(**chosen)  # raises before anything is timed
    ranker = False if no_ranker else None

    def predict_best(k: int) -> Prediction:
        found = index.predict(features, k, **chosen, ranker=ranker, threads=threads)
        return leave_out_empty(found, features)[0] if are_texts else found

    return predict_best


def _name_found(found: Prediction, index: LabelIndex) -> list[list[tuple[str | int, float]]]:
    """Return the labels with their scores, by name if they have names."""
    names: Any = range(len(index)) if index.names is None else index.names
    return [
        [(names[label], score) for label, score in zip(*row, strict=True) if label >= 0]
        for row in zip(found.labels.tolist(), found.scores.tolist(), strict=True)
    ]


def format_info(stats: Values, history: list[Values]) -> str:
    worst = max(stats["loads"], key=lambda loads: loads["max_over_mean"])
    return f"""\
labels    {_describe_size(stats)}
buckets   {stats["repetitions"]} x {stats["buckets"]}, {stats["entries"]} entries
loads     {console.format_loads(worst)}
ranker    {stats["ranker_weights"]} weights
memory    {stats["bytes"] / 1e6:.1f} MB
simd      {stats["simd"]} instructions of this processor
predict   {_describe_predict(stats)}
{console.format_recipe(stats["recipe"])}

{console.format_history(history)}"""


def _describe_size(stats: Values) -> str:
    named = "with" if stats["names"] else "without"
    rows = f"{stats['rows']} texts of {stats['dim']} words"
    if not stats["text"]:
        rows = f"{stats['rows']} rows of {stats['dim']} features"
    return f"{stats['items']} labels {named} names, from {rows}"


def _find_imbalance(stats: Values) -> float:
    return max(float(loads["max_over_mean"]) for loads in stats["loads"])


def _describe_predict(stats: Values) -> str:
    ranker = "with the ranker" if stats["ranker_weights"] else "without a ranker"
    return f"{console.format_parameters(stats['defaults'])}, {ranker}"
