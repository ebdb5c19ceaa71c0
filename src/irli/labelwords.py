"""Words around a label index: texts as its rows, names for its labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.errors import InvalidParameter
from irli.problem import Sparse
from irli.text import Names, Vectorizer, label_matrix


class Worded(NamedTuple):
    """Texts and their labels, as numbers."""

    rows: Sparse
    labels: Sparse
    vectorizer: Vectorizer
    names: Names


def as_numbers(texts: Sequence[str], labels: Sequence[Sequence[str]]) -> Worded:
    """Learn the words of texts and the names of labels, and turn both into numbers.

    Examples
    --------
    >>> worded = as_numbers(["meow", "woof woof"], [["cat"], []])
    >>> worded.rows.shape, worded.labels.shape
    ((2, 2), (2, 1))
    """
    if len(texts) != len(labels):
        raise InvalidParameter(
            f"The 'labels' parameter of fit_text must have a list for each of {len(texts)} texts. "
            f"Got {len(labels)} instead. Pass an empty list where there is none."
        )
    names = Names.among(labels)
    vectorizer = Vectorizer().fit(texts)
    return Worded(vectorizer.transform(texts), label_matrix(labels, names), vectorizer, names)


def as_names(
    scores: NDArray[np.float32], labels: NDArray[np.int64], names: Names
) -> list[list[tuple[str, float]]]:
    """Return the name and the score of each label that was found, leaving out the padding.

    Examples
    --------
    >>> as_names(np.array([[0.5, -np.inf]]), np.array([[1, -1]]), Names.of(["a", "b"]))
    [[('b', 0.5)]]
    """
    return [
        [(names[id], score) for id, score in zip(*row, strict=True) if id >= 0]
        for row in zip(labels.tolist(), scores.tolist(), strict=True)
    ]


def grown_names(
    known: Names | None, names: Iterable[str] | None, count: int, owner: str
) -> Names | None:
    """Return the names of known labels and of `count` further ones: of all labels, or of none.

    Examples
    --------
    >>> list(grown_names(Names.of(["cat"]), ["dog", "bird"], 2, "add_labels"))
    ['cat', 'dog', 'bird']
    """
    if names is None and (known is None or count == 0):
        return known
    if known is None:
        raise InvalidParameter(
            f"The 'names' parameter of {owner} must be left out for an index whose labels have no "
            "names. Got some instead. Pass the names of all labels to fit."
        )
    if names is None:
        raise InvalidParameter(
            f"The 'names' parameter of {owner} must name the {count} new labels, since all others "
            "have names. Got None instead. Pass a list of strings."
        )
    new = list(Names.of(names))
    if len(new) != count:
        raise InvalidParameter(
            f"The 'names' parameter of {owner} must have a name for each of {count} labels. "
            f"Got {len(new)} instead. Pass them in the order of the columns of Y."
        )
    return Names.of([*known, *new])
