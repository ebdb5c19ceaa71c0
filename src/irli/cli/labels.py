"""The commands `irli labels fit`, `predict`, `eval` and `explain`, for feature rows or texts."""

from __future__ import annotations

import dataclasses
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
from irli.base.files import claim_file, open_output
from irli.base.folder import LABEL_SHARDS, LABELS, read_manifest
from irli.base.logs import warn
from irli.base.sparse import as_labels, as_rows
from irli.base.threads import thread_count
from irli.base.types import Sparse
from irli.cli import console
from irli.cli.console import Index, Json, Threads, Values
from irli.cluster.build.workdir import clear
from irli.cluster.label_index import ShardedLabelIndex
from irli.errors import InvalidParameter
from irli.labels.explain import LabelExplanation
from irli.labels.files.documents import FORMATS, detect_format, read_documents, read_texts
from irli.labels.files.rows import read_matrix, read_rows
from irli.labels.files.titles import read_titles
from irli.labels.files.xmc_text import open_input
from irli.labels.front import Prediction
from irli.labels.index import LabelIndex
from irli.labels.metrics import (
    f1,
    inverse_propensity_of_counts,
    ndcg,
    precision,
    precision_of_possible,
    propensity_scored_precision,
    recall,
)
from irli.labels.parameters import SCORES, LabelParameters, PredictArguments
from irli.labels.text.reads_texts import describe_empty, find_empty
from irli.labels.text.vectorizer import Names, Vectorizer, label_matrix, split_pairs
from irli.labels.tuning.objective import OBJECTIVES

AnyLabels = LabelIndex | ShardedLabelIndex

_FORMATS = ("xmc", "matrix", *FORMATS)
_SHORTLIST = 100  # labels; their recall bounds what a better ranker could reach

RowFile = Annotated[
    Path, Argument(metavar="ROWS", help="Texts, or rows of features: a file, or a folder of texts.")
]
LabelFile = Annotated[
    Path | None, Argument(metavar="LABELS", help="Labels, if they are in another file.")
]
Format = Annotated[
    str | None,
    Option(
        help="text, tsv, jsonl, csv, parquet, folder, xmc or matrix. Default: detected from ROWS."
    ),
]
TextColumns = Annotated[
    list[str] | None,
    Option("--text", help="Column or key of the text. Repeat it to join several. Default: text."),
]
LabelColumn = Annotated[
    str | None, Option("--label", help="Column or key of the labels. Default: labels.")
]
Separator = Annotated[
    str | None,
    Option(help="What is between labels. Default: tabs if there are any, or else spaces."),
]
Probes = Annotated[int | None, Option(help="Buckets to probe per repetition.")]
Candidates = Annotated[int | None, Option(help="Labels that each source proposes.")]
Score = Annotated[
    str | None,
    Option(help=f"How found labels are scored: {', '.join(SCORES)}."),
]
MinVotes = Annotated[int | None, Option(help="Probed buckets that must hold a label.")]
Near = Annotated[int | None, Option(help="Nearest training rows that vote. 0 is faster.")]
NoRanker = Annotated[bool, Option("--no-ranker", help="Use neither ranker nor near rows.")]

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
    text: TextColumns = None,
    label: LabelColumn = None,
    separator: Separator = None,
    ngrams: Annotated[
        int | None, Option(help="Sequences of up to this many words are features. Default: 1.")
    ] = None,
    characters: Annotated[
        str | None,
        Option(help="Sequences of so many characters are features, too: 3,5. Default: none."),
    ] = None,
    min_df: Annotated[
        int | None, Option(help="Leave out words of fewer texts. Default: 2 from 1000 texts on.")
    ] = None,
    names: Annotated[Path | None, Option(help="File of label names, one per line.")] = None,
    titles: Annotated[
        Path | None,
        Option(help="Vocabulary with titles of labels, to learn from, too: .ttl, .nt, .tsv, .csv."),
    ] = None,
    language: Annotated[str | None, Option(help="Language of the titles, such as en.")] = None,
    start: Annotated[
        Path | None,
        Option(help="Index of similar rows to learn on from: known rows take little time."),
    ] = None,
    recipe: Annotated[str, Option(help="Recipe: labels or paper-labels(-sigmoid).")] = "labels",
    settings: Annotated[
        list[str] | None, Option("--set", help="Recipe setting: KEY=VALUE.")
    ] = None,
    ranker: Annotated[
        bool | None,
        Option(
            "--ranker/--no-ranker",
            help="Rank with linear classifiers and near rows, too. Default: if it helps.",
        ),
    ] = None,
    objective: Annotated[
        str, Option(help=f"What counts for rare labels: {', '.join(OBJECTIVES)}.")
    ] = "balanced",
    seed: Annotated[int | None, Option(help="Random seed.")] = None,
    threads: Threads = None,
    shards: Annotated[
        int | None, Option(min=1, help="Number of shards to deal the labels to.")
    ] = None,
    ray: Annotated[str | None, Option(help="Ray cluster to learn on: auto or an address.")] = None,
    as_json: Json = False,
    quiet: Annotated[bool, Option("--quiet", help="Show no progress bars.")] = False,
) -> None:
    """Learn the labels of rows. An interrupted fit is resumed."""
    console.claim_output(out)
    chosen = console.read_recipe(recipe, settings, seed)
    index: AnyLabels = LabelIndex(chosen, ranker=ranker, objective=objective)
    if shards is not None or ray is not None:
        if ranker is not None:
            raise InvalidParameter(
                "The --ranker and --no-ranker options must be left out with --shards or --ray: all "
                "shards rank in one way. Got one of them. Leave it out."
            )
        index = ShardedLabelIndex(chosen, shards=shards or 1, ray=ray, objective=objective)
    options: Values = {"progress": not quiet and sys.stderr.isatty(), "threads": threads}
    words = {"ngrams": ngrams, "characters": characters, "min_df": min_df}
    if start is not None:
        _refuse_options("an index to start from, whose words are used", **words)
        options["start"] = open_labels(start)
    columns = _name_columns(text, label, separator)
    given = read_labelled(rows, labels, format, columns, progress=options["progress"])
    if given.are_texts:
        options["vectorizer"] = None if start is not None else _make_vectorizer(words)
        options["titles"] = None if titles is None else read_titles(titles, language)
        _refuse_options("texts, whose labels are names already", names=names)
    else:
        _refuse_options("rows of features", titles=titles, **words)
        options["names"] = None if names is None else read_texts(names)
    with console.keep_checkpoint(out) as checkpoint:
        began = perf_counter()
        learn: Callable[..., AnyLabels] = index.fit_text if given.are_texts else index.fit
        learn(given.rows, given.labels, checkpoint=checkpoint, **options)
        seconds = perf_counter() - began
        index.save(out)
        stats = index.stats()
        if isinstance(index, ShardedLabelIndex):
            index.close()
            clear(checkpoint)
    shown = ("items", "rows", "dim", "names", "text", "buckets", "repetitions", "ranker_weights")
    values = {name: stats[name] for name in (*shown, "defaults", "shards") if name in stats}
    uneven = _find_imbalance(stats)
    summary = f"""\
{out}: {_describe_size(stats)}
buckets   {stats["repetitions"]} x {stats["buckets"]}, the largest {uneven:.2f} x the mean
predict   {_describe_predict(stats)}
fitted in {seconds:.1f} s"""
    values_shown = {"index": str(out)} | values | {"max_over_mean": uneven, "fit_seconds": seconds}
    console.print_result(values_shown, summary, as_json)


@app.command()
def predict(
    index: Index,
    rows: RowFile,
    format: Format = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    separator: Separator = None,
    k: Annotated[int, Option("--k", "-k", min=1, help="Number of labels per row.")] = 5,
    threshold: Annotated[
        float | None, Option(help="Leave out labels that are less probable, in [0, 1].")
    ] = None,
    probes: Probes = None,
    candidates: Candidates = None,
    score: Score = None,
    min_votes: MinVotes = None,
    near: Near = None,
    no_ranker: NoRanker = False,
    out: Annotated[
        Path | None, Option(help="File for all results: .npz of label numbers, or .jsonl.")
    ] = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Predict the best labels of each row, with their probabilities.

    They are printed by title or name if the labels have one.
    """
    if out is not None:
        check_choice("extension of --out", out.suffix, (".npz", ".jsonl"))
        claim_file(out, "--out option")
    known = open_labels(index)
    columns = _name_columns(text, label, separator)
    given = make_features(read_inputs(rows, None, format, columns), known)
    features = given.rows
    chosen = PredictArguments(
        probes=probes, candidates=candidates, score=score, min_votes=min_votes, near=near
    )
    predict_best = _make_predict(
        known, features, given.are_texts, chosen, no_ranker, threads, threshold
    )
    start = perf_counter()
    found = predict_best(k)
    seconds = perf_counter() - start
    kept = _name_found(found, known)
    values = {"index": str(index), "rows": len(kept), "k": k, "seconds": seconds}
    if out is None:
        values |= {name: [row[name] for row in kept] for name in kept[0]}
        shown = [(row.get("titles", row["labels"]), row["scores"]) for row in kept]
        pairs = [list(zip(*row, strict=True)) for row in shown]
        console.print_result(values, console.format_pairs("row", pairs), as_json)
        return
    if out.suffix == ".npz":
        with open_output(out, "--out option") as file:
            np.savez(file, scores=found.scores, labels=found.labels)
    else:
        with open_output(out, "--out option") as file:
            file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n".encode() for row in kept)
    summary = f"{out}: the {k} best labels of {len(kept)} rows, found in {seconds:.3f} s"
    console.print_result(values | {"out": str(out)}, summary, as_json)


@app.command("eval")
def evaluate(
    index: Index,
    rows: RowFile,
    labels: LabelFile = None,
    format: Format = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    separator: Separator = None,
    k: Annotated[str, Option("--k", "-k", help="Depths to measure at.")] = "1,3,5,10",
    probes: Probes = None,
    candidates: Candidates = None,
    score: Score = None,
    min_votes: MinVotes = None,
    near: Near = None,
    no_ranker: NoRanker = False,
    a: Annotated[float, Option(help="Propensity: 0.5 for Wikipedia, 0.6 for Amazon.")] = 0.55,
    b: Annotated[float, Option(help="Propensity: 0.4 for Wikipedia, 2.6 for Amazon.")] = 1.5,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Measure precision on rows with known labels.

    The table has precision, nDCG, propensity-scored precision and F1. Labels that the index has
    never seen count as missed.
    """
    depths = _read_depths(k)
    known = open_labels(index)
    columns = _name_columns(text, label, separator)
    given = make_features(read_labelled(rows, labels, format, columns), known)
    features, truth = given.rows, make_truth(given, known)
    counts = np.pad(known.counts, (0, truth.shape[1] - len(known)))
    weights = inverse_propensity_of_counts(counts, known.rows, a, b)
    chosen = PredictArguments(
        probes=probes, candidates=candidates, score=score, min_votes=min_votes, near=near
    )
    predict_best = _make_predict(known, features, given.are_texts, chosen, no_ranker, threads)
    predict_best(max(depths))  # the first call loads the kernels
    start = perf_counter()
    found = predict_best(max(depths)).labels
    seconds = perf_counter() - start
    measures: dict[str, Callable[..., float]] = {
        "P": precision,
        "nDCG": ndcg,
        "PSP": partial(propensity_scored_precision, weights=weights),
        "F1": f1,
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
    shown = f"""\
{console.align_columns(table)}
recall@{_SHORTLIST} {covered:.4f}; {speed:.3f} ms a row, {count} rows, threads={cores}"""
    if len(unseen):
        shown += f"\n{len(unseen)} of the labels are unknown to the index: nothing can find them"
    console.print_result(values, shown, as_json)


@app.command()
def explain(
    index: Index,
    text: Annotated[str, Argument(metavar="TEXT", help="The text, in quotes. - reads it.")],
    k: Annotated[int, Option("--k", "-k", min=1, help="Number of labels.")] = 5,
    probes: Probes = None,
    candidates: Candidates = None,
    score: Score = None,
    min_votes: MinVotes = None,
    near: Near = None,
    no_ranker: NoRanker = False,
    as_json: Json = False,
) -> None:
    """Say why labels are predicted for a text.

    For each of the best labels: what routers, ranker and near rows add to its log-odds, the words
    that speak for and against it, the near texts that carry it, and its buckets.
    """
    known = open_labels(index)
    chosen = PredictArguments(
        probes=probes, candidates=candidates, score=score, min_votes=min_votes, near=near
    )
    read = sys.stdin.read() if text == "-" else text
    told = known.explain_text(read, k, **_leave_ranker(known, no_ranker), **chosen)
    labels = [describe_label(each) for each in told.labels]
    console.print_result({"index": str(index), "labels": labels}, str(told), as_json)


def describe_label(told: LabelExplanation) -> Values:
    """Return an explanation as plain values."""
    values = dataclasses.asdict(told)
    values["words"] = [word._asdict() | {"effect": word.effect} for word in told.words]
    for name in ("near", "buckets"):
        values[name] = [each._asdict() for each in getattr(told, name)]
    return values


# --- reading -----------------------------------------------------------------------------------


class LabelInputs(NamedTuple):
    """The contents of files: features and a label matrix, or texts."""

    rows: Any  # features (n, d), or a stream of documents
    labels: Any  # a matrix, or after `make_features` the names of each row; None if unknown
    are_texts: bool


def open_labels(path: Path) -> AnyLabels:
    """Open a label index, in shards or not."""
    if read_manifest(path)["kind"] == LABEL_SHARDS:
        return ShardedLabelIndex.load(path)
    return LabelIndex.from_folder(console.read_index(path, LABELS))


def _leave_ranker(index: AnyLabels, no_ranker: bool) -> Values:
    """Return the argument of `predict` that --no-ranker stands for."""
    if no_ranker and isinstance(index, ShardedLabelIndex):
        raise InvalidParameter(
            "The --no-ranker option must be left out for an index in shards: their scores could "
            "not be compared. Got --no-ranker. Leave it out."
        )
    return {"ranker": False} if no_ranker else {}


def _name_columns(text: list[str] | None, label: str | None, separator: str | None) -> Values:
    columns: Values = {"label_column": label, "separator": separator}
    return columns | ({"text_columns": text} if text else {})


def read_inputs(
    rows: Path,
    labels: Path | None,
    format: str | None,
    columns: Values,
    progress: bool = False,
) -> LabelInputs:
    """Return rows, and their labels if there are any."""
    kind = _detect_format(rows) if format is None else check_choice("--format", format, _FORMATS)
    if kind not in ("text", "matrix") and labels is not None:
        raise InvalidParameter(
            f"LABELS must be left out for {rows}, a file of the format '{kind}' with labels "
            f"of its own. Got {labels}. Set --format if the file has another format."
        )
    if kind in FORMATS:
        documents = read_documents(rows, labels, format=kind, progress=progress, **columns)
        return LabelInputs(documents, None, True)
    _refuse_options(
        "rows of features",
        text=columns.get("text_columns"),
        label=columns["label_column"],
        separator=columns["separator"],
    )
    if kind == "xmc":
        return LabelInputs(*read_rows(rows), False)
    return LabelInputs(read_matrix(rows), None if labels is None else read_matrix(labels), False)


def read_labelled(
    rows: Path,
    labels: Path | None,
    format: str | None,
    columns: Values,
    progress: bool = False,
) -> LabelInputs:
    """Return rows with their labels. Missing labels are an error."""
    given = read_inputs(rows, labels, format, columns, progress)
    lacking = given.labels is None
    if given.are_texts:
        lacking = labels is None and (format or _detect_format(rows)) == "text"
    if lacking:
        what = "a line of names for each text" if given.are_texts else "a matrix of labels"
        raise InvalidParameter(
            f"LABELS must be given for {rows}, which has no labels of its own: {what}. "
            "Got nothing. Name the file of labels after the file of rows."
        )
    if not given.are_texts and given.rows.shape[0] != given.labels.shape[0]:
        raise InvalidParameter(
            f"LABELS must have a row for each of the {given.rows.shape[0]} rows of {rows}. "
            f"Got {given.labels.shape[0]} in {labels} instead."
        )
    return given


def _make_vectorizer(words: Values) -> Vectorizer:
    """Return the vectorizer with the settings that the options give."""
    settings = {name: value for name, value in words.items() if value is not None}
    if "characters" in settings:
        lengths = settings["characters"].split(",")
        if not all(length.isdecimal() for length in lengths):
            raise InvalidParameter(
                "The --characters option must be two whole numbers with a comma between. "
                f"Got '{settings['characters']}' instead. Write for example: --characters 3,5"
            )
        settings["characters"] = [int(length) for length in lengths]
    return Vectorizer(**settings)


def _refuse_options(what: str, **options: Any) -> None:
    """Raise if an option is given that has no meaning for these rows."""
    for name, value in options.items():
        if value is not None:
            raise InvalidParameter(
                f"The --{name.replace('_', '-')} option must be left out for {what}. "
                f"Got {value}. Leave it out, or set --format if ROWS has another format."
            )


def _detect_format(path: Path) -> str:
    """Return the format, by the name or by the first line. Only numeric data start with a shape."""
    if path.suffix in (".npz", ".npy"):
        return "matrix"
    kind = detect_format(path)
    if kind != "text":
        return kind
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


def make_features(given: LabelInputs, index: AnyLabels) -> LabelInputs:
    """Return rows of features, and warn of texts without a known word."""
    if not given.are_texts:
        return given._replace(rows=as_rows(given.rows))
    if index.vectorizer is None:
        raise InvalidParameter(
            "ROWS must be rows of features for an index that was not fitted on texts. Got texts "
            "instead. Turn them into rows of the same features, or fit an index on texts."
        )
    names: list[list[str]] = []
    rows = index.features(split_pairs(given.rows, names, "predict"))
    if not names:
        raise InvalidParameter(
            "ROWS must have at least one row. Got an empty file. Check the name of the file."
        )
    empty = len(find_empty(rows))
    if empty:
        warn(describe_empty(empty, rows.shape[0]))
    return LabelInputs(rows, names, True)


def make_truth(given: LabelInputs, index: AnyLabels) -> Sparse:
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
    index: AnyLabels,
    features: Any,
    are_texts: bool,
    chosen: PredictArguments,
    no_ranker: bool,
    threads: int | None,
    threshold: float | None = None,
) -> Callable[[int], Prediction]:
    """Return a function that predicts the k best labels of the rows."""
    LabelParameters().replace(**chosen)  # raises before anything is timed
    options = _leave_ranker(index, no_ranker)
    empty = find_empty(features) if are_texts else np.empty(0, dtype=np.int64)

    def predict_best(k: int) -> Prediction:
        found: Prediction = index.predict(
            features, k, **chosen, threshold=threshold, threads=threads, **options
        )
        found.scores[empty], found.labels[empty] = 0, -1
        return found

    return predict_best


def _name_found(found: Prediction, index: AnyLabels) -> list[dict[str, list[Any]]]:
    """Return labels and probabilities of each row: names and titles if labels have them."""
    names = index.names
    rows = []
    answers = zip(found.scores.tolist(), found.labels.tolist(), found.counts, strict=True)
    for scores, labels, count in answers:
        ids = labels[:count]
        row = {"labels": ids if names is None else [names[id] for id in ids]}
        row["scores"] = scores[:count]
        if names is not None and names.titles:
            row["titles"] = [names.title(id) for id in ids]
        rows.append(row)
    return rows


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
    cut = f", in {stats['shards']} shards" if "shards" in stats else ""
    return f"{stats['items']} labels {named} names{cut}, from {rows}"


def _find_imbalance(stats: Values) -> float:
    return max(float(loads["max_over_mean"]) for loads in stats["loads"])


def _describe_predict(stats: Values) -> str:
    ranker = "with the ranker" if stats["ranker_weights"] else "without a ranker"
    return f"{console.format_parameters(stats['defaults'])}, {ranker}"
