"""Everything that users of a LabelIndex do wrong, or do oddly, has a defined answer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import small_default
from plantedlabels import labelled, small_labels

import irli
from irli import LabelIndex, VectorIndex
from irli.base.folder import Folder, read_folder, write_folder
from irli.base.sparse import as_labels, as_rows
from irli.cluster import ShardedLabelIndex
from irli.errors import DimensionMismatch, FormatError, InvalidParameter, IrliError, NotFitted

ROWS, LABELS = 120, 12
X, Y = labelled(ROWS, LABELS)
DIM = X.shape[1]
SPARSE = ["csr", "csc", "coo", "lil", "dok", "bsr"]


def fit(rows: Any = X, labels: Any = Y, recipe: Any = None, **arguments: Any) -> LabelIndex:
    arguments.setdefault("threads", 1)
    return LabelIndex(recipe or small_labels(buckets=4, epochs=1)).fit(rows, labels, **arguments)


@pytest.fixture(scope="module")
def index() -> LabelIndex:
    return fit()


def refuses(name: str, says: str = "", error: type[Exception] = InvalidParameter) -> Any:
    """Our error, whose message names the parameter, what it must be, what it got."""
    assert issubclass(error, IrliError)
    return pytest.raises(error, match=rf"(?s)The '{name}' parameter(?=.* must .* Got .*\.).*{says}")


def everywhere(index: LabelIndex, rows: Any) -> list[Any]:
    """All that takes rows."""
    count = rows.shape[0] if sp.issparse(rows) else len(rows)
    labels = np.ones((count, LABELS))
    return [
        lambda: fit(rows, labels),
        lambda: index.predict(rows),
        lambda: index.fit(rows, labels, start=index),
        lambda: index.add_labels(rows, labels),
    ]


def spoiled(matrix: sp.csr_array, value: float, dtype: str = "f4") -> sp.csr_array:
    bad = matrix.astype(dtype)
    bad.data[bad.indptr[13]] = value
    return bad


# --- rows of features ------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_features_that_are_not_finite(index: LabelIndex, value: float, dtype: str) -> None:
    bad = spoiled(X, value, dtype)
    for rows in (bad, bad.toarray(), bad.tocsc()):
        for call in everywhere(index, rows):
            with refuses("X", f"finite.* Got {value} in row 13 "):
                call()


def test_features_that_no_row_has_take_no_memory() -> None:
    """240 rows of a million columns took 4 GB: a hidden layer had weights for all of them."""
    own, dim = np.arange(240) % 12, 1_000_000
    columns = np.random.default_rng(0).integers(12, dim, size=(240, 20))
    columns = np.hstack([columns, own[:, None], own[:, None] + 100])
    places = np.arange(240).repeat(22), columns.ravel()
    rows = sp.csr_array((np.ones(240 * 22), places), shape=(240, dim))
    for kind in (LabelIndex(), ShardedLabelIndex(shards=2)):
        index: Any = kind.fit(rows, own, threads=1)
        assert index.stats()["bytes"] < 2e8
        assert (index.predict(rows, k=1).labels.ravel() == own).mean() > 0.9


def test_features_beyond_float32(index: LabelIndex) -> None:
    bad = spoiled(X, 1e300, "f8")
    for rows in (bad, bad.toarray()):
        for call in everywhere(index, rows):
            with refuses("X", "within float32.* Got inf in row 13 "):
                call()


@pytest.mark.parametrize(
    "rows",
    [
        [],
        np.empty((0, DIM)),
        np.empty((ROWS, 0)),
        sp.csr_array((0, DIM)),
        sp.csr_array((ROWS, 0)),
        np.ones((2, 3, 4)),
        5.0,
        None,
        "abc",
        [["a", "b"]],
        [[1.0, 2.0], [3.0]],
        np.ones((3, DIM), dtype=complex),
        sp.csr_array(np.ones((3, DIM), dtype=complex)),
        sp.coo_array(np.ones(DIM)),
        np.array([[{}]]),
    ],
    ids=lambda x: f"{type(x).__name__}-{getattr(x, 'shape', x)}",
)
def test_what_are_no_rows(index: LabelIndex, rows: Any) -> None:
    with refuses("X"):
        fit(rows)
    if getattr(rows, "shape", None) not in ((0, DIM), (DIM,)):  # no rows, and a single one
        with pytest.raises(IrliError, match="'X' parameter"):
            index.predict(rows)


def test_the_wrong_width(index: LabelIndex) -> None:
    for width in (DIM + 1, DIM - 1):
        for rows in (np.ones((3, width)), sp.csr_array(np.ones((3, width)))):
            for call in everywhere(index, rows)[1:]:
                with refuses("X", f"{DIM} features.* Got {width} ", DimensionMismatch):
                    call()
        with refuses("X", f"{DIM} features", DimensionMismatch):
            index.predict(np.ones(width))


@pytest.mark.parametrize("format", SPARSE)
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_sparse_rows_of_any_format(index: LabelIndex, format: str, kind: str) -> None:
    make = getattr(sp, f"{format}_{kind}")
    right = index.predict(X[:30], k=4)
    found = index.predict(make(X[:30]), k=4)
    np.testing.assert_array_equal(found.labels, right.labels)
    again = fit(make(X), make(Y)).predict(X, k=4)
    np.testing.assert_array_equal(again.labels, index.predict(X, k=4).labels)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "u8", "i8", "f4", "f8"])
def test_numbers_of_any_type(dtype: str) -> None:
    whole = (X > 0).astype(np.float32)
    right = fit(whole, Y).predict(whole, k=4)
    forms = [Y.astype(dtype)]
    if dtype[0] not in "iu":  # dense integers are label numbers
        forms.append(Y.toarray().astype(dtype))
    rows = whole.astype(dtype)
    for labels in forms:
        found = fit(rows, labels).predict(rows, k=4)
        np.testing.assert_array_equal(found.labels, right.labels)
        np.testing.assert_array_equal(found.scores, right.scores)


def test_half_precision(index: LabelIndex) -> None:
    assert index.predict(X[:5].toarray().astype("f2")).labels.shape == (5, 5)


def scrambled(matrix: sp.csr_array) -> sp.csr_array:
    """The same numbers with the entries of each row in another order, and each in two halves."""
    columns, values, starts = [], [], [0]
    for row in range(matrix.shape[0]):
        part = slice(matrix.indptr[row], matrix.indptr[row + 1])
        columns += [*matrix.indices[part][::-1], *matrix.indices[part]]
        values += [*matrix.data[part][::-1] / 2, *matrix.data[part] / 2]
        starts.append(len(columns))
    return sp.csr_array((values, columns, starts), shape=matrix.shape, dtype=np.float32)


def test_entries_unsorted_or_twice(index: LabelIndex) -> None:
    """Features that are there twice add up; labels are carried once."""
    rows, labels = scrambled(X), scrambled(Y)
    before = rows.data.copy(), rows.indices.copy()
    right = index.predict(X, k=4)
    for found in (index.predict(rows, k=4), fit(rows, labels).predict(X, k=4)):
        np.testing.assert_array_equal(found.labels, right.labels)
        np.testing.assert_array_equal(found.scores, right.scores)
    np.testing.assert_array_equal(rows.data, before[0])
    np.testing.assert_array_equal(rows.indices, before[1])


def test_stored_zeros_are_no_labels() -> None:
    zeros = Y.copy()
    zeros.data[::3] = 0
    labels = as_labels(zeros, ROWS)
    np.testing.assert_array_equal(labels.toarray(), zeros.toarray())
    assert labels.nnz < zeros.nnz == Y.nnz


def test_index_types_are_made_one() -> None:
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    for rows in (as_rows(X), as_rows(wide), as_rows(sp.coo_array(wide))):
        assert rows.indices.dtype == rows.indptr.dtype == np.int32
        assert rows.has_canonical_format
    assert wide.indices.dtype == np.int64


def malformed(format: str, column: int) -> Any:
    """A matrix whose indices somebody has spoiled."""
    bad = sp.csr_array(np.eye(ROWS, DIM)).asformat(format)
    bad.indices = bad.indices.copy()
    bad.indices[2] = column
    return bad


@pytest.mark.parametrize("format", ["csr", "csc"])
@pytest.mark.parametrize("column", [-1, 100_000])
def test_malformed_sparse_arrays(index: LabelIndex, format: str, column: int) -> None:
    bad = malformed(format, column)
    with refuses("X", "well-formed"):
        fit(bad)
    with refuses("X", "well-formed"):
        index.predict(bad)
    with refuses("Y", "well-formed"):
        fit(X, bad)


def test_single_rows(index: LabelIndex) -> None:
    row = X[[5]].toarray()[0]
    found = index.predict(row, k=3)
    assert found.labels.shape == found.scores.shape == (3,)
    np.testing.assert_array_equal(found.labels, index.predict(row[None], k=3).labels[0])
    np.testing.assert_array_equal(found.labels, index.predict(X[[5]], k=3).labels[0])
    for other in (row.tolist(), tuple(row), sp.coo_array(row)):
        again = index.predict(other, k=3)
        np.testing.assert_array_equal(again.labels, found.labels)
    assert found.counts == 3
    with refuses("X", r"shape \(n, d\)"):
        fit(row, Y)


def test_no_rows(index: LabelIndex) -> None:
    for none in (np.empty((0, DIM)), sp.csr_array((0, DIM)), np.empty((0, DIM), dtype=int)):
        found = index.predict(none, k=3)
        assert found.labels.shape == found.scores.shape == (0, 3)
        assert found.counts.shape == (0,)
    with refuses("X", f"{DIM} features", DimensionMismatch):
        index.predict(np.empty((0, DIM + 1)))


def test_rows_of_any_layout(index: LabelIndex) -> None:
    dense = X.toarray()
    right = index.predict(dense, k=3).labels
    locked = dense.copy()
    locked.setflags(write=False)
    wide = np.repeat(dense, 2, axis=1)[:, ::2]
    for other in (np.asfortranarray(dense), locked, wide, dense.tolist()):
        np.testing.assert_array_equal(index.predict(other, k=3).labels, right)
    assert len(fit(locked, Y)) == LABELS


# --- labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0])
def test_labels_that_are_no_weights(index: LabelIndex, value: float) -> None:
    bad = spoiled(Y, value)
    for labels in (bad, bad.toarray(), bad.tocoo()):
        for call in (
            lambda labels=labels: fit(X, labels),
            lambda labels=labels: index.fit(X, labels, start=index),
            lambda labels=labels: index.add_labels(X, labels),
        ):
            with refuses("Y", f"zeros and positive numbers.* Got {value} in row 13 "):
                call()


@pytest.mark.parametrize(
    "labels",
    [
        None,
        "abc",
        3,
        [0, 1, 2],
        np.arange(ROWS) / 2,
        np.arange(ROWS) > 2,
        [[0, 1], [2]],  # of too few rows
        [["cat"], ["dog"]],
        ["cat", 3] * (ROWS // 2),
        [["cat", 3]] * ROWS,
        np.ones((ROWS, 2, 2)),
        np.ones((ROWS, 2), dtype=complex),
        np.array([[{}]] * ROWS),
        sp.coo_array(np.ones(ROWS)),
        sp.csr_array(np.ones((ROWS, 2), dtype=complex)),
    ],
    ids=lambda y: f"{type(y).__name__}-{getattr(y, 'shape', str(y)[:20])}",
)
def test_what_are_no_labels(index: LabelIndex, labels: Any) -> None:
    for call in (fit, partial(index.fit, start=index), index.add_labels):
        with refuses("Y"):
            call(X, labels)


@pytest.mark.parametrize("rows", [0, ROWS - 1, ROWS + 1])
def test_rows_and_labels_of_different_lengths(index: LabelIndex, rows: int) -> None:
    for labels in (np.ones((rows, LABELS)), sp.csr_array(np.ones((rows, LABELS)))):
        for call in (fit, partial(index.fit, start=index), index.add_labels):
            with refuses("Y", f"each of the {ROWS} rows of X.* Got {rows} "):
                call(X, labels)


@pytest.mark.parametrize("width", [0, 1, LABELS])
def test_no_labels_at_all(index: LabelIndex, width: int) -> None:
    for labels in (np.zeros((ROWS, width)), sp.csr_array((ROWS, width))):
        for call in (fit, partial(index.fit, start=index), index.add_labels):
            with refuses("Y", "at least one row"):
                call(X, labels)


def test_a_start_with_fewer_labels(index: LabelIndex) -> None:
    with refuses("columns", rf"{LABELS}.* Got {LABELS - 1} "):
        index.fit(X, Y[:, :-1] + 1e-3 * np.eye(ROWS, LABELS - 1), start=index)


def test_one_row_with_labels() -> None:
    labels = np.zeros((ROWS, LABELS))
    labels[17, 3] = 1
    assert (fit(X, labels).predict(X, k=1).labels == 3).all()


# --- arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"k": 0}, "k"),
        ({"k": -1}, "k"),
        ({"k": 1.0}, "k"),
        ({"k": True}, "k"),
        ({"k": None}, "k"),
        ({"k": 10**9}, "k"),
        ({"ranker": 1}, "ranker"),
        ({"probes": 0}, "probes"),
        ({"probes": 1.5}, "probes"),
        ({"candidates": 0}, "candidates"),
        ({"candidates": -4}, "candidates"),
        ({"score": "best"}, "score"),
        ({"score": 1}, "score"),
        ({"threads": 0}, "threads"),
        ({"threads": "all"}, "threads"),
    ],
    ids=str,
)
def test_bad_arguments_of_predict(index: LabelIndex, arguments: dict[str, Any], name: str) -> None:
    with refuses(name):
        index.predict(X, **arguments)


def test_unknown_arguments(index: LabelIndex) -> None:
    with pytest.raises(TypeError, match=r"predict\(\) .* 'probe'\. Did you mean 'probes'\?"):
        index.predict(X, probe=3)  # type: ignore[call-arg]
    for call in (fit, partial(index.fit, start=index)):
        with pytest.raises(TypeError, match=r"'thread'\. Did you mean 'threads'\?"):
            call(X, Y, thread=1)
    with pytest.raises(TypeError, match="'thread'"):
        index.fit_text(["a"], [["b"]], thread=1)


@pytest.mark.parametrize("probes", [2**31, 2**70])
def test_enormous_arguments(index: LabelIndex, probes: int) -> None:
    right = index.predict(X, k=3, probes=4, candidates=LABELS)
    found = index.predict(X, k=3, probes=probes, candidates=probes)
    np.testing.assert_array_equal(found.labels, right.labels)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"workers": 0}, "workers"),
        ({"workers": 1.5}, "workers"),
        ({"workers": 2}, "workers"),  # heads learn together
        ({"threads": 0}, "threads"),
        ({"device": "abacus"}, "device"),
    ],
    ids=str,
)
def test_bad_arguments_of_fit(arguments: dict[str, Any], name: str) -> None:
    with refuses(name):
        fit(X, Y, **arguments)


@pytest.mark.parametrize("recipe", ["label", "", 7, None])
def test_unknown_recipes(recipe: Any) -> None:
    with refuses("recipe"):
        LabelIndex(recipe)


def test_more_buckets_than_labels() -> None:
    with refuses("buckets", f"{LABELS} labels.* Got 13 "):
        fit(recipe=small_labels(buckets=13))
    with refuses("buckets"):
        fit(recipe="paper-labels")  # 5000 buckets
    assert fit(recipe=small_labels(buckets=12, epochs=1)).stats()["buckets"] == 12


@pytest.mark.parametrize("changes", [{"router": "warm"}, {"boost": True}], ids=str)
def test_recipes_that_contradict_themselves(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=r"labels.* Got .*Leave"):
        small_labels(**changes)


@pytest.mark.parametrize(
    "recipe",
    [
        irli.recipe("default", buckets=4, epochs=1),  # scores with bytes, which labels do not
        irli.recipe("paper", buckets=4, choices=2, epochs=1),  # asks items that are no points
    ],
    ids=lambda recipe: recipe.name,
)
def test_recipes_for_vectors(recipe: irli.Recipe) -> None:
    with pytest.raises(InvalidParameter, match=r"must .* Got "):
        fit(X.toarray(), Y, recipe)


@pytest.mark.parametrize("ranker", ["yes", 1, 0])
def test_a_ranker_is_wanted_or_not(index: LabelIndex, ranker: Any) -> None:
    with refuses("ranker"):
        LabelIndex(ranker=ranker)
    with refuses("ranker"):
        index.predict(X, ranker=ranker)


# --- states ----------------------------------------------------------------------------------


def test_not_fitted(tmp_path: Path) -> None:
    index = LabelIndex()
    for call in (
        lambda: index.predict(X),
        lambda: index.fit(X, Y, start=index),
        lambda: index.add_labels(X, Y),
        lambda: index.save(tmp_path / "index"),
        index.stats,
        index.loads,
        lambda: len(index),
    ):
        with pytest.raises(NotFitted, match=r"not fitted yet. Call fit"):
            call()
    assert not (tmp_path / "index").exists()


def test_what_fails_changes_nothing(index: LabelIndex) -> None:
    right, history, stats = index.predict(X, k=4), list(index.history), index.stats()
    for call in (
        lambda: index.fit(X, Y[:-1]),
        lambda: index.fit(X[:, :-1], Y, workers=0),
        lambda: index.fit(X, Y[:-1], start=index),
        lambda: index.fit(X[:, :-1], Y, start=index),
        lambda: index.add_labels(X, Y[:-1]),
    ):
        with pytest.raises(IrliError):
            call()
    found = index.predict(X, k=4)
    np.testing.assert_array_equal(found.labels, right.labels)
    np.testing.assert_array_equal(found.scores, right.scores)
    assert index.stats() == stats
    assert index.history == history != []


def test_a_fit_that_fails_late_changes_nothing() -> None:
    index = fit()
    history = list(index.history)
    with refuses("workers"):
        index.fit(X, Y, workers=2)
    assert index.history == history != []


# --- folders ---------------------------------------------------------------------------------


def test_folders_of_another_kind(tmp_path: Path, index: LabelIndex) -> None:
    VectorIndex(recipe=small_default()).fit(X.toarray(), threads=1).save(tmp_path / "vectors")
    with pytest.raises(FormatError, match=r"must hold an index of kind 'labels'. Got 'vectors'"):
        LabelIndex.load(tmp_path / "vectors")
    index.save(tmp_path / "labels")
    with pytest.raises(FormatError, match=r"must hold an index of kind 'vectors'. Got 'labels'"):
        VectorIndex.load(tmp_path / "labels")
    write_folder(tmp_path / "other", Folder("songs", {}, {"a": np.arange(3)}, {}))
    with pytest.raises(FormatError, match="Got one of kind 'songs'"):
        irli.load(tmp_path / "other")


@pytest.mark.parametrize("part", ["meta", "arrays", "tensors"])
def test_folders_that_lack_something(tmp_path: Path, index: LabelIndex, part: str) -> None:
    index.save(tmp_path / "index")
    folder = read_folder(tmp_path / "index")
    for name in {"meta": ["dim", "calibration"], "arrays": ["prior", "counts"], "tensors": ["out"]}[
        part
    ]:
        kept = getattr(folder, part).pop(name)
        with pytest.raises(FormatError, match=r"lacks or misstates .* Build the index again"):
            LabelIndex.from_folder(folder)
        getattr(folder, part)[name] = kept
    assert len(LabelIndex.from_folder(folder)) == LABELS


def test_no_index_there(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        irli.load(tmp_path / "nothing")


@pytest.mark.parametrize("column", [-1, 1_000_000])
def test_a_single_row_with_a_column_out_of_bounds(index: LabelIndex, column: int) -> None:
    """A single row takes a short cut through the checks, which must not lead past them."""
    row = sp.csr_array(X[:1], copy=True)
    row.indices[-1] = column
    with refuses("X"):
        index.predict(row)


def test_a_single_row_is_left_alone(index: LabelIndex) -> None:
    row = sp.csr_array(X[:1], dtype=np.float32, copy=True)
    before = row.toarray()
    right = index.predict(X[:2], threads=1)
    found = index.predict(row, threads=1)
    np.testing.assert_array_equal(found.labels, right.labels[:1])
    np.testing.assert_array_equal(row.toarray(), before)
