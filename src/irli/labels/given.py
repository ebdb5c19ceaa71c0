"""Rows and labels as people have them, turned into matrices and names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from irli.base.checks import check_int
from irli.base.sparse import are_numbers, as_label_matrix, as_labels, as_rows, count_labels
from irli.base.types import Rows, Sparse
from irli.errors import InvalidParameter, IrliWarning
from irli.labels.contents import LabelContents
from irli.labels.text.vectorizer import Names, as_names, extend_names, label_matrix


class Given(NamedTuple):
    """Rows (n, d), the labels that they carry (n, L), and the names of the L labels."""

    rows: Rows
    labels: Sparse
    names: Names | None


def read_rows_to_fit(X: Any, Y: Any, names: Iterable[str] | None, owner: str = "fit") -> Given:
    """Return what an index is to learn from: see `LabelIndex.fit`.

    Examples
    --------
    >>> given = read_rows_to_fit(np.eye(3), [["dog"], ["cat", "dog"], []], None)
    >>> given.labels.toarray(), list(given.names)
    (array([[0., 1.],
           [1., 1.],
           [0., 0.]], dtype=float32), ['cat', 'dog'])
    """
    rows = as_rows(X)
    lists = read_lists(Y, owner)
    if names is not None:
        names = names if isinstance(names, Names) else Names.of(names, owner=owner)
    elif lists is not None:
        names = Names.among(lists)
    labels = as_labels(
        Y if lists is None or names is None else label_matrix(lists, names),
        rows.shape[0],
        0 if names is None else len(names),
    )
    names = None if names is None else extend_names(Names.of([]), names, labels.shape[1], owner)
    _warn_of_one_label(labels)
    return Given(rows, labels, names)


def read_more_rows(
    X: Any, Y: Any, names: Iterable[str] | None, old: LabelContents, owner: str
) -> Given:
    """Return rows whose labels are the known ones, and after them new ones."""
    count, rows, lists = len(old.counts), as_rows(X, old.dim), read_lists(Y, owner)
    new = names
    if new is not None and not isinstance(new, Names):
        new = Names.of(new, owner=owner)
    if lists is not None:
        known = _get_names(old, owner)
        if new is None:
            new = Names.of([name for name in Names.among(lists) if name not in known])
        Y = label_matrix(lists, Names.of([*known, *new], owner=owner))
    labels = as_labels(Y, rows.shape[0], count + (0 if new is None else len(new)))
    check_int("columns", labels.shape[1], at_least=count, owner=f"{owner}'s Y")
    if lists is not None and labels.shape[1] == count:
        new = None
    return Given(rows, labels, extend_names(old.names, new, labels.shape[1] - count, owner))


def read_new_labels(X: Any, Y: Any, names: Iterable[str] | None, old: LabelContents) -> Given:
    """Return rows whose labels `Y` counts from the first new one, as columns after the known."""
    rows, lists = as_rows(X, old.dim), read_lists(Y, "add_labels")
    new = None if names is None else Names.of(names, owner="add_labels")
    if lists is not None:
        new = new or Names.among(lists)
        Y = label_matrix(lists, new)
    labels = as_labels(Y, rows.shape[0], 0 if new is None else len(new))
    counts = count_labels(labels)
    if are_numbers(Y) and not counts.all():
        raise InvalidParameter(
            "The 'Y' parameter of add_labels must count the new labels from 0 up, each with a "
            f"row. Got no row with {int(np.argmin(counts > 0))}. Subtract len(index) from numbers "
            "of the whole index."
        )
    names = extend_names(old.names, new, labels.shape[1], "add_labels")
    return Given(rows, shift_labels(labels, len(old.counts)), names)


def read_true_labels(Y: Any, old: LabelContents) -> Any:
    """Return labels to compare predictions with. Names that the index does not know are no hits."""
    lists = read_lists(Y, "score")
    if lists is not None:
        return label_matrix(lists, _get_names(old, "score"), unknown="skip")
    return as_label_matrix(Y, "Y", len(old.counts))


def read_lists(Y: Any, owner: str) -> list[list[str]] | None:
    """Return the names of the labels of each row, or None if labels are not given by name.

    Examples
    --------
    >>> read_lists(["cat", "dog"], "fit"), read_lists([{"dog"}, ()], "fit")
    ([['cat'], ['dog']], [['dog'], []])
    """
    if sp.issparse(Y) or isinstance(Y, str) or not isinstance(Y, Iterable):
        return None
    if getattr(getattr(Y, "dtype", None), "kind", "O") not in "OUT":
        return None
    rows = [[row] if isinstance(row, str) else row for row in Y]
    first = next((row for row in rows if not hasattr(row, "__len__") or len(row)), [])
    if not isinstance(first, Iterable) or not any(isinstance(name, str) for name in first):
        return None
    return [as_names(row, "Y", owner) for row in rows]


def _get_names(old: LabelContents, owner: str) -> Names:
    if old.names is None:
        raise InvalidParameter(
            f"The 'Y' parameter of {owner} must hold numbers of labels, since the labels of this "
            "index have no names. Got strings instead. Pass names to fit."
        )
    return old.names


def _warn_of_one_label(labels: Sparse) -> None:
    """Warn if nothing can be learned, since there is one label and rows without it are not used."""
    without = labels.shape[0] - labels.nnz
    if labels.shape[1] == 1 and without:
        warnings.warn(
            f"There is one label, and {without} of {labels.shape[0]} rows do not carry it. Rows "
            "without labels are not used, so every row will be said to carry it. Give the other "
            "rows a label of their own.",
            IrliWarning,
            stacklevel=5,
        )


def shift_labels(labels: Sparse, by: int) -> Sparse:
    """Return labels (n, m) as the last columns of (n, by + m).

    Examples
    --------
    >>> shift_labels(sp.csr_array(np.array([[1.0]])), 2).toarray()
    array([[0., 0., 1.]])
    """
    shape = (labels.shape[0], by + labels.shape[1])
    return sp.csr_array((labels.data, labels.indices + by, labels.indptr), shape=shape)
