from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from irli.base import checks
from irli.base.checks import (
    as_ids,
    as_queries,
    as_vectors,
    check_bool,
    check_choice,
    check_float,
    check_int,
    check_k,
    check_keywords,
    check_norms,
)
from irli.base.sparse import as_labels, as_query_rows, as_relevance, as_rows
from irli.errors import DimensionMismatch, InvalidParameter, IrliError


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", ">f4", "i1", "u1", "i4", "i8", "u8", "?", "longdouble"]
)
def test_vectors_of_any_real_type(dtype: str) -> None:
    x = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    vectors = as_vectors(x, "X")
    assert vectors.dtype == np.float32
    assert vectors.dtype.isnative
    assert vectors.flags.c_contiguous
    np.testing.assert_array_equal(vectors, [[0, 1], [1, 0], [1, 1]])


def test_vectors_are_not_copied_when_right(tmp_path: Path) -> None:
    x = np.ones((3, 2), dtype=np.float32)
    assert np.shares_memory(as_vectors(x, "X"), x)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(as_vectors(mapped, "X"), mapped)


@pytest.mark.parametrize("view", [np.s_[:, ::2], np.s_[::-1], np.s_[:, 1:]])
def test_vectors_need_not_be_contiguous(view: Any) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)[view]
    vectors = as_vectors(x, "X")
    assert vectors.flags.c_contiguous
    np.testing.assert_array_equal(vectors, x)
    np.testing.assert_array_equal(as_vectors(np.asfortranarray(x), "X"), x)


@pytest.mark.parametrize("shape", [(), (4,), (2, 2, 2)])
def test_vectors_of_wrong_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidParameter, match=r"'X' parameter must be an array of shape \(n, d\)"):
        as_vectors(np.ones(shape), "X")


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_vectors_must_not_be_empty(shape: tuple[int, int]) -> None:
    with pytest.raises(InvalidParameter, match="at least one vector"):
        as_vectors(np.ones(shape), "X")


@pytest.mark.parametrize(
    "x",
    [
        np.ones((2, 2), dtype=complex),
        np.array([["a", "b"]]),
        np.array([[object()]]),
        np.array([["2020-01-01"]], dtype="M8[D]"),
        [[1, 2], [3]],
        None,
        sp.csr_array(np.eye(2)),
    ],
)
def test_vectors_of_wrong_type(x: Any) -> None:
    with pytest.raises(InvalidParameter, match="The 'X' parameter must"):
        as_vectors(x, "X")


@pytest.mark.parametrize(("bad", "name"), [(np.nan, "nan"), (-np.inf, "-inf"), (1e300, "inf")])
@pytest.mark.parametrize("row", [0, 5, 9])
def test_vectors_that_are_not_finite(
    bad: float, name: str, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_BLOCK", 8)
    x = np.zeros((10, 4))
    x[row:, 2] = bad
    with pytest.raises(InvalidParameter, match=f"Got {name} in row {row} instead"):
        as_vectors(x, "X")


def test_wrong_dimension_names_both_numbers() -> None:
    with pytest.raises(DimensionMismatch, match=r"must have 8 dimensions.*Got 4 dimensions"):
        as_vectors(np.ones((2, 4)), "X", dim=8)
    with pytest.raises(DimensionMismatch, match=r"must have 8 dimensions.*Got 4 dimensions"):
        as_queries(np.ones(4), dim=8)


def test_queries_single_batch_and_none() -> None:
    one, single = as_queries(np.ones(3), dim=3)
    assert (one.shape, single) == ((1, 3), True)
    batch, single = as_queries(np.ones((1, 3)), dim=3)
    assert (batch.shape, single) == ((1, 3), False)
    empty, single = as_queries(np.ones((0, 3)), dim=3)
    assert (empty.shape, empty.dtype, single) == ((0, 3), np.float32, False)


@pytest.mark.parametrize("x", [np.float32(1), np.ones((2, 2, 2)), [[np.nan, 1]], ["a"]])
def test_queries_that_are_wrong(x: Any) -> None:
    with pytest.raises(InvalidParameter, match="The 'queries' parameter must"):
        as_queries(x, dim=2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.uint64])
def test_ids_of_any_integer_type(dtype: type) -> None:
    ids = as_ids(np.array([5, 0, 9], dtype=dtype), 3)
    assert ids.dtype == np.int64
    assert ids.tolist() == [5, 0, 9]


def test_ids_up_to_the_largest_int64() -> None:
    assert as_ids([2**63 - 1, 0], 2).tolist() == [2**63 - 1, 0]
    assert as_ids([], 0).shape == (0,)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2], r"shape \(3,\).*Got shape \(2,\)"),
        ([[1, 2, 3]], r"Got shape \(1, 3\)"),
        ([4, -7, 5], "Got -7 in row 1"),
        ([4, 8, 4], "Got 4 in rows 0 and 2"),
        ([1.0, 2.0, 3.0], "dtype float64"),
        ([True, False, True], "dtype bool"),
        (["a", "b", "c"], "must hold integers"),
        (np.array([1, 2**63, 3], dtype=np.uint64), "Got 9223372036854775808 in row 1"),
        ([1, 2**70, 3], "dtype object"),
    ],
)
def test_ids_that_are_wrong(ids: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        as_ids(ids, 3)


def test_first_duplicate_is_named() -> None:
    with pytest.raises(InvalidParameter, match="Got 2 in rows 1 and 2"):
        as_ids([9, 2, 2, 9, 9], 5)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok"])
@pytest.mark.parametrize("dtype", ["?", "i8", "f8"])
def test_relevance_from_any_sparse_form(form: str, dtype: str) -> None:
    dense = np.array([[0, 1, 1], [0, 0, 0]], dtype=dtype)
    relevance = as_relevance(sp.csr_array(dense).asformat(form), 2, 3)
    assert isinstance(relevance, sp.csr_array)
    assert relevance.dtype == np.float32
    np.testing.assert_array_equal(relevance.toarray(), dense)


def test_relevance_is_a_tidy_copy() -> None:
    y = sp.csr_array((np.array([1.0, 2.0, 0.0]), np.array([2, 2, 0]), np.array([0, 2, 3])))
    before = y.copy()
    relevance = as_relevance(y, 2, 3)
    assert relevance.nnz == 1
    assert relevance[0, 2] == 3
    relevance.data[:] = 9
    np.testing.assert_array_equal(y.data, before.data)
    np.testing.assert_array_equal(y.indices, before.indices)


def test_relevance_from_item_rows() -> None:
    relevance = as_relevance(np.array([[2, 2, -1], [-1, -1, -1], [0, 1, 2]], np.int32), 3, 3)
    np.testing.assert_array_equal(relevance.toarray(), [[0, 0, 1], [0, 0, 0], [1, 1, 1]])
    assert as_relevance(np.empty((2, 0)), 2, 3).nnz == 0


def _malformed() -> sp.csr_array:
    y = sp.csr_array(np.eye(2, 3))
    y.indices[1] = 7
    return y


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (sp.csr_array((3, 2)), r"shape \(2, 3\).*Got shape \(3, 2\)"),
        (sp.csr_array([[0, 0, 0], [0, -2.0, 0]]), "Got -2.0 in row 1"),
        (sp.csr_array([[0, 0, 1], [0, np.nan, 0]]), "Got nan in row 1"),
        (sp.csr_array(np.eye(2, 3) * 1j), "dtype complex"),
        (_malformed(), "well-formed"),
        ([[0, 3], [1, 1]], r"range \[0, 2\].*Got 3 in row 0"),
        ([[0, 1], [1, -2]], "Got -2 in row 1"),
        ([[0], [1], [2]], r"shape \(2, j\).*Got shape \(3, 1\)"),
        ([0, 1], r"Got shape \(2,\)"),
        ([[0.0, 1.0], [0.0, 1.0]], r"shape \(2, 3\).*Got shape \(2, 2\)"),
        ([[1, 0, 1], [0, 1, 0]], "item rows.*Got 0 twice in row 1 instead"),
        ([[1j, 0, 0], [0, 0, 0]], "Got dtype complex128"),
        ([[0, 1], [1]], "'relevance' parameter must"),
    ],
)
def test_relevance_that_is_wrong(y: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        as_relevance(y, 2, 3)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
def test_sparse_rows_are_tidied(form: str) -> None:
    rows = as_rows(sp.csr_array(np.array([[0, 2, 1.5], [0, 0, 0]])).asformat(form))
    assert isinstance(rows, sp.csr_array)
    assert (rows.dtype, rows.indices.dtype, rows.indptr.dtype) == ("f4", "i4", "i4")
    assert rows.has_canonical_format
    np.testing.assert_array_equal(rows.toarray(), [[0, 2, 1.5], [0, 0, 0]])


def test_columns_of_a_row_are_put_in_order_and_counted_once() -> None:
    given = sp.csr_array((np.array([1.0, 2, 4]), np.array([2, 0, 2]), np.array([0, 3])))
    rows = as_rows(given)
    assert (rows.indices.tolist(), rows.data.tolist()) == ([0, 2], [2, 5])
    assert given.indices.tolist() == [2, 0, 2]


def ordered_rows() -> sp.csr_array:
    return sp.csr_array(np.array([[0, 1, 2], [0, 0, 0], [3, 0, 4]], dtype=np.float32))


def test_rows_in_order_are_not_copied() -> None:
    rows, row = ordered_rows(), ordered_rows()[[0]]
    assert as_rows(rows, dim=3) is rows
    assert as_rows(row, dim=3) is row


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.indices.__setitem__(slice(2, 4), [2, 0]),  # backwards
        lambda rows: rows.indices.__setitem__(slice(2, 4), [2, 2]),  # twice
        lambda rows: setattr(rows, "data", rows.data.astype(np.float64)),
        lambda rows: setattr(rows, "indices", rows.indices.astype(np.int64)),
        lambda rows: setattr(rows, "indptr", rows.indptr.astype(np.int64)),
        lambda rows: setattr(rows, "data", np.repeat(rows.data, 2)[::2]),  # strided
    ],
)
def test_other_rows_are_tidied_in_a_copy(change: Any) -> None:
    rows = ordered_rows()
    change(rows)
    right = rows.toarray()
    tidy = as_rows(rows, dim=3)
    assert tidy is not rows
    assert tidy.has_canonical_format
    np.testing.assert_array_equal(tidy.toarray(), right)
    assert as_rows(tidy, dim=3) is tidy


@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.parametrize("column", [-1, 3])
def test_rows_are_checked_all_the_same(row: int, column: int) -> None:
    rows = ordered_rows()
    rows.indices[rows.indptr[row + 1] - 1] = column
    for each in (rows, rows[[row]]):
        with pytest.raises(InvalidParameter, match="'X' parameter must be a well-formed"):
            as_rows(each, dim=3)


@pytest.mark.parametrize("ends", [[0, 2, 1, 4], [0, 2, 2, 5], [1, 2, 2, 4]])
def test_the_ends_of_rows_are_checked(ends: list[int]) -> None:
    rows = ordered_rows()
    rows.indptr = np.array(ends, dtype=np.int32)
    with pytest.raises(InvalidParameter, match="must be a well-formed"):
        as_rows(rows, dim=3)


def test_dense_rows() -> None:
    assert as_rows(np.ones((1, 3))).shape == (1, 3)
    assert as_query_rows(np.ones(3), 3)[0].shape == (1, 3)
    assert as_rows([[1, 2], [3, 4]]).dtype == np.float32


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (sp.csr_array((0, 3)), InvalidParameter, r"at least one row.*Got shape \(0, 3\)"),
        (sp.csr_array([[1, np.inf, 0]]), InvalidParameter, "Got inf in row 0"),
        (sp.csr_array([[0, 0, 0], [0, 1e300, 0]]), InvalidParameter, "Got inf in row 1"),
        (sp.csr_array([[1j, 0, 0]]), InvalidParameter, "Got dtype complex128"),
        (sp.coo_array(np.ones(3)), InvalidParameter, r"two axes.*shape \(3,\)"),
        (sp.csr_array(np.ones((2, 4))), DimensionMismatch, "must have 3 features.*Got 4"),
        (np.ones((2, 4)), DimensionMismatch, "must have 3 features.*Got 4"),
        (np.array([[1, np.nan, 0]]), InvalidParameter, "Got nan in row 0"),
        ([["a", "b", "c"]], InvalidParameter, "'X' parameter must hold real numbers"),
    ],
)
def test_rows_that_are_wrong(x: Any, error: type[IrliError], message: str) -> None:
    with pytest.raises(error, match=message):
        as_rows(x, dim=3)


@pytest.mark.parametrize("make", [sp.csr_array, sp.coo_array, np.array, list])
def test_labels_are_ones(make: Any) -> None:
    labels = as_labels(make([[0, 2.5, 1], [0, 0, 0]]), rows=2)
    assert isinstance(labels, sp.csr_array)
    assert labels.nnz == 2
    np.testing.assert_array_equal(labels.toarray(), [[0, 1, 1], [0, 0, 0]])


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8"])
def test_integers_are_label_numbers(dtype: str) -> None:
    numbers = np.array([[2, 0], [1, 4]], dtype=dtype)
    right = [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1]]
    np.testing.assert_array_equal(as_labels(numbers, rows=2).toarray(), right)
    np.testing.assert_array_equal(as_relevance(numbers, 2, 5).toarray(), right)
    assert as_labels(numbers, rows=2, least=9).shape == (2, 9)


def test_padding_tells_numbers_from_a_matrix() -> None:
    for numbers in ([[0, -1], [1, -1]], [[1, 1, -1], [0, 1, 0]], [[3, 3], [0, 2]]):
        right = np.zeros((2, np.max(numbers) + 1))
        for row, named in enumerate(numbers):
            right[row, [number for number in named if number >= 0]] = 1
        np.testing.assert_array_equal(as_labels(numbers, rows=2).toarray(), right)


@given(arrays(bool, st.tuples(st.integers(1, 6), st.integers(1, 6))), st.integers(0, 9))
def test_numbers_and_a_matrix_are_the_same(matrix: Any, least: int) -> None:
    """Padded numbers are always read as such, and integers never as a matrix."""
    matrix[0, 0] = True
    numbers = np.full((len(matrix), matrix.shape[1] + 1), -1)
    for row, carried in enumerate(matrix):
        numbers[row, : carried.sum()] = np.flatnonzero(carried)
    labels = as_labels(numbers, len(matrix), least)
    width = max(least, numbers.max() + 1)
    right = np.zeros((len(matrix), width))
    right[:, : numbers.max() + 1] = matrix[:, : numbers.max() + 1]
    np.testing.assert_array_equal(labels.toarray(), right)
    np.testing.assert_array_equal(as_labels(matrix, len(matrix)).toarray(), matrix)
    relevance = as_relevance(numbers, len(matrix), matrix.shape[1])
    np.testing.assert_array_equal(relevance.toarray(), matrix)
    with pytest.raises(InvalidParameter, match="'Y' parameter must hold label numbers"):
        as_labels(matrix.astype(int), len(matrix))


@pytest.mark.parametrize("dtype", ["?", "f2", "f4", "f8"])
def test_bools_and_floats_are_a_matrix(dtype: str) -> None:
    matrix = np.array([[1, 0, 1], [0, 1, 0]], dtype=dtype)
    np.testing.assert_array_equal(as_labels(matrix, rows=2).toarray(), matrix)
    np.testing.assert_array_equal(as_relevance(matrix, 2, 3).toarray(), matrix)


def test_item_rows_that_cannot_be_a_matrix() -> None:
    """With fewer columns than items, zeros and ones can only be item rows, named once or twice."""
    relevance = as_relevance([[1, 1], [0, 1]], 2, 3)
    np.testing.assert_array_equal(relevance.toarray(), [[0, 1, 0], [1, 1, 0]])


def test_label_numbers_beyond_float32() -> None:
    """From 2**24 on, float32 cannot tell neighbouring numbers apart."""
    numbers = 2**24 + np.arange(4).reshape(2, 2)
    labels = as_labels(numbers, rows=2, least=2**24 + 4)
    assert labels.shape == (2, 2**24 + 4)
    assert labels.indices.tolist() == numbers.ravel().tolist()


def test_labels_are_copied() -> None:
    given = sp.csr_array(np.array([[0, 2.0]], dtype=np.float32))
    as_labels(given, rows=1)
    assert given.data.tolist() == [2]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (sp.csr_array([[1.0], [1.0], [1.0]]), "each of the 2 rows of X. Got 3"),
        (sp.csr_array([[1.0], [-1.0]]), "zeros and positive numbers.*Got -1.0 in row 1"),
        (sp.csr_array([[1.0], [np.nan]]), "Got nan in row 1"),
        (sp.csr_array((2, 3)), "at least one row. Got none at all"),
        ([0.5, 1], r"Got list of dtype float64 and shape \(2,\)"),
        ([["a"], ["b"]], "which labels each row carries.* Got list of dtype <U1"),
        ([[999, 1000], [4000, -1]], "number the labels from 0 up.* to 4000, of which .* 3"),
        ([[0, 1, 0], [1, 0, 0]], "label numbers.* Got 0 twice in row 0"),
        ([[3, 2, 1], [0, 0, 1]], "label numbers.* Got 0 twice in row 1"),  # counts
        ([[1, 1, 0], [1, 1, 1]], "Got nothing but 0 and 1"),
        ([[0, 1], [1, 0]], "Got nothing but 0 and 1"),
        ([[0], [1]], "Got nothing but 0 and 1"),
        ([[5, -2], [1, -1]], "padding. Got -2 in row 0"),
        ([[2**31], [5]], "label numbers in the range .* Got 2147483648 in row 0"),
        ([[-1, -1], [-1, -1]], "at least one row. Got none at all"),
        ([[1.5], [1, 2]], "'Y' parameter must be something that numpy"),
    ],
)
def test_labels_that_are_wrong(y: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        as_labels(y, rows=2)


@pytest.mark.parametrize("change", ["requires_grad_", "bfloat16"])
def test_tensors_that_numpy_cannot_read(change: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = getattr(torch.ones(2, 3), change)()
    for call in (lambda: as_vectors(tensor, "X"), lambda: as_queries(tensor, 3)):
        with pytest.raises(InvalidParameter, match=r"Got Tensor .* x\.detach\(\)\.cpu\(\)"):
            call()
    with pytest.raises(InvalidParameter, match=r"Got list .* x\.detach\(\)\.cpu\(\)"):
        as_vectors(list(tensor), "X")
    assert as_vectors(tensor.detach().cpu().float().numpy(), "X").shape == (2, 3)


def test_masked_values_are_refused() -> None:
    """NumPy would take the values below the mask."""
    masked = np.ma.masked_greater(np.arange(6.0).reshape(2, 3), 3)
    for call in (lambda: as_vectors(masked, "X"), lambda: as_queries(masked, 3)):
        with pytest.raises(InvalidParameter, match=r"Got 2 of 6 masked .* x\.filled"):
            call()
    assert as_vectors(np.ma.masked_array(masked.data), "X").shape == (2, 3)


@pytest.mark.parametrize("given", ["vectors.npy", ["some text", "and more"]])
def test_paths_and_texts_are_no_vectors(given: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"real numbers.*numpy\.load.*fit_text"):
        as_vectors(given, "X")


def test_check_k() -> None:
    assert [check_k(k, 10, owner="search") for k in (1, 10, 11, 65_536)] == [1, 10, 11, 65_536]
    assert check_k(np.int64(100_000), 100_000, owner="search") == 100_000
    for k, count in ((0, 10), (True, 10), (1.0, 10), (65_537, 10), (10**9, 100_000)):
        with pytest.raises(InvalidParameter, match=r"'k' parameter of search .* Got"):
            check_k(k, count, owner="search")


def test_check_int() -> None:
    assert check_int("k", np.int16(3), at_least=1, at_most=3) == 3
    assert type(check_int("k", np.int16(3))) is int
    with pytest.raises(InvalidParameter) as caught:
        check_int("k", 0, at_least=1, owner="search")
    assert str(caught.value) == (
        "The 'k' parameter of search must be an int in the range [1, inf). "
        "Got 0 instead. Use 1 or more."
    )
    with pytest.raises(InvalidParameter, match=r"range \(-inf, 5\].*Use 5 or less"):
        check_int("k", 6, at_most=5)


@pytest.mark.parametrize("value", [1.0, "1", None, True, np.float32(2), np.array([1])])
def test_check_int_of_wrong_type(value: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"'k' parameter must be an int\. Got"):
        check_int("k", value)


def test_check_float() -> None:
    assert check_float("slack", np.float32(1.5), at_least=1) == 1.5
    assert check_float("slack", 2, at_least=1) == 2.0
    with pytest.raises(InvalidParameter, match=r"range \[1, inf\).*Got 0.5.*Use 1 or more"):
        check_float("slack", 0.5, at_least=1)


@pytest.mark.parametrize("value", [np.nan, np.inf, "1", None, True, 1j])
def test_check_float_of_wrong_type(value: Any) -> None:
    with pytest.raises(InvalidParameter, match="'slack' parameter must be a finite number"):
        check_float("slack", value)


def test_check_choice() -> None:
    assert check_choice("metric", "l2", ("l2", "ip")) == "l2"
    with pytest.raises(InvalidParameter, match=r"of VectorIndex must be one of 'l2', 'ip'.*Got 3"):
        check_choice("metric", 3, ("l2", "ip"), owner="VectorIndex")


@pytest.mark.parametrize("value", [7, None, b"l2", ["l2"]])
def test_only_words_are_answered_with_a_near_one(value: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"instead\. Choose one of them\.$"):
        check_choice("metric", value, ("l2", "ip", "cosine", "7th"))
    with pytest.raises(InvalidParameter, match=r"Got 'Cosine' instead\. Did you mean 'cosine'\?"):
        check_choice("metric", "Cosine", ("l2", "ip", "cosine"))


# --- lengths -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0.0, 1e-30, 1.0, 9.9e17])
def test_lengths_whose_squares_are_numbers(length: float) -> None:
    check_norms(np.array([[0.6 * length, 0.8 * length], [0, 0]], dtype=np.float32), "X")


@pytest.mark.parametrize("length", [1.1e18, 1e19, 1e25, 3e38])
@pytest.mark.parametrize("row", [0, 3])
def test_vectors_that_are_too_long(length: float, row: int) -> None:
    """In float32 their squares are infinite, or soon would be."""
    vectors = np.ones((5, 2), dtype=np.float32)
    vectors[row] = 0, length
    said = rf"'Q' parameter must hold vectors of a length of at most 1e\+18.*in row {row} instead"
    with pytest.raises(InvalidParameter, match=said):
        check_norms(vectors, "Q")


def test_many_numbers_that_are_not_long_alone() -> None:
    with pytest.raises(InvalidParameter, match=r"Got 1.6e\+19 in row 0"):
        check_norms(np.full((1, 256), 1e18, dtype=np.float32), "X")


@pytest.mark.parametrize("block", [1, 4, 1 << 20])
def test_rows_are_counted_over_all_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_BLOCK", block)
    vectors = np.full((9, 2), 1e-20, dtype=np.float32)
    with pytest.raises(InvalidParameter, match=r"length of at least 1e-15.*Got 1.41e-20"):
        check_norms(vectors, "X", least=1e-15)
    vectors[6] = 1
    check_norms(vectors, "X", least=1e-15)  # one that is long enough will do
    vectors[7] = 2e18
    with pytest.raises(InvalidParameter, match="in row 7"):
        check_norms(vectors, "X", least=1e-15)


def test_zeros_are_a_length() -> None:
    check_norms(np.zeros((3, 2), dtype=np.float32), "X", least=1e-15)
    check_norms(np.zeros((0, 2), dtype=np.float32), "X", least=1e-15)
    check_norms(np.array([[1e-44, 0]], dtype=np.float32), "X")
    with pytest.raises(InvalidParameter, match="at least 1e-15"):
        check_norms(np.array([[1e-44, 0]], dtype=np.float32), "X", least=1e-15)


@pytest.mark.parametrize("value", [0, 1, None, "true", np.True_])
def test_check_bool(value: Any) -> None:
    assert check_bool("boost", True) is True
    with pytest.raises(InvalidParameter, match=f"must be True or False. Got {value!r}"):
        check_bool("boost", value)


def test_check_names() -> None:
    check_keywords(["k", "probes"], ["k", "probes", "score"], owner="search")
    with pytest.raises(TypeError, match=r"search\(\) got an .* 'zz'\. It has: k, probes\."):
        check_keywords(["k", "zz"], ["k", "probes"], owner="search")


def test_errors_are_also_the_built_in_ones() -> None:
    with pytest.raises(ValueError, match="'k'"):
        check_int("k", 0, at_least=1)
    with pytest.raises(IrliError):
        check_int("k", 0, at_least=1)
