"""Remove labels from an index, and rename them. Nothing is learned."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.checks import as_array, suggest
from irli.engine.label_layout import LabelLayout
from irli.errors import InvalidParameter
from irli.labels.build.assemble import add_near_rows, add_ranker, read_near_rows, read_ranker
from irli.labels.contents import LabelContents
from irli.labels.ranking.near_rows import NearRows
from irli.labels.ranking.ranker import Ranker
from irli.labels.text.vectorizer import Names


def read_labels(labels: Any, names: Names | None, count: int, owner: str) -> NDArray[np.int64]:
    """Return the numbers of labels that are given by number or by name.

    Examples
    --------
    >>> read_labels(["dog", "cat"], Names.of(["cat", "dog"]), 2, "remove_labels")
    array([1, 0])
    >>> read_labels([0, 2], None, 3, "remove_labels")
    array([0, 2])
    """
    must = f"The 'labels' parameter of {owner} must be a list of label numbers or names."
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise InvalidParameter(f"{must} Got {labels!r} instead. Put a single one into a list.")
    array = as_array(labels if hasattr(labels, "dtype") else list(labels), "labels")
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind in "UOT" and all(isinstance(label, str) for label in array.ravel()):
        if names is None:
            raise InvalidParameter(
                f"{must} This index has no names. Got '{array.ravel()[0]}' instead. Pass numbers."
            )
        wanted = [str(name) for name in array.ravel()]
        for name in wanted:
            _check_name(name, names, "labels", owner)
        return names.ids(wanted)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InvalidParameter(
            f"{must} Got dtype {array.dtype} and shape {array.shape} instead. Pass for example "
            "[3, 7]."
        )
    wrong = (array < 0) | (array >= count)
    if wrong.any():
        raise InvalidParameter(
            f"The 'labels' parameter of {owner} must hold numbers in the range [0, {count - 1}]. "
            f"Got {array[wrong][0]} instead. Removing labels renumbers those after them."
        )
    return array.astype(np.int64)


def remove(contents: LabelContents, labels: NDArray[np.int64]) -> LabelContents:
    """Return the contents without some labels. The others keep their order.

    Probabilities within buckets stay as they are, so that the scores of the other labels do, too.
    """
    count = len(contents.counts)
    is_kept = np.ones(count, dtype=np.bool_)
    is_kept[labels] = False
    if not is_kept.any():
        raise InvalidParameter(
            f"The 'labels' parameter of remove_labels must leave at least one of {count} labels. "
            "Got all of them instead. Make a new index."
        )
    kept = np.flatnonzero(is_kept)
    names = contents.names
    if names is not None:
        names = Names.of([names[label] for label in kept.tolist()], names.titles)
    layout, calibration = take_labels(contents.model.layout, kept), contents.model.calibration
    calibration = calibration._replace(complete=int(is_kept[: calibration.complete].sum()))
    return dataclasses.replace(
        contents,
        model=contents.model._replace(layout=layout, calibration=calibration),
        counts=contents.counts[kept],
        names=names,
    )


def take_labels(layout: LabelLayout, kept: NDArray[np.int64]) -> LabelLayout:
    """Return the layout with some of its labels (m,), in their order. They keep their scores."""
    is_kept = np.zeros(len(layout.prior), dtype=np.bool_)
    is_kept[kept] = True
    number = (np.cumsum(is_kept) - 1).astype(np.int32)
    stays = is_kept[layout.items]
    before = np.concatenate([[0], np.cumsum(stays)])
    made = layout._replace(
        offsets=before[layout.offsets],
        items=number[layout.items[stays]],
        share=layout.share[stays],
        prior=layout.prior[is_kept],
    )
    if len(layout.starts) > 1:
        made = add_ranker(made, _remove_from_ranker(read_ranker(layout), is_kept))
    return add_near_rows(made, _remove_from_rows(read_near_rows(layout), is_kept, number))


def _remove_from_ranker(ranker: Ranker, is_kept: NDArray[np.bool_]) -> Ranker:
    matrix = sp.csr_array(ranker.matrix()[:, np.flatnonzero(is_kept)])
    matrix.sort_indices()
    return Ranker.pack(matrix, ranker.bias[is_kept])


def _remove_from_rows(
    known: NearRows, is_kept: NDArray[np.bool_], number: NDArray[np.int32]
) -> NearRows:
    """Remove labels from rows. A row without labels stays, so that others do not take its place."""
    stays = is_kept[known.labels]
    before = np.concatenate([[0], np.cumsum(stays)])
    return known._replace(
        labels=number[known.labels[stays]], label_starts=before[known.label_starts]
    )


def rename(names: Names | None, changes: Mapping[str, str]) -> Names:
    """Return the names with some of them changed. Titles go with the labels.

    Examples
    --------
    >>> list(rename(Names.of(["cat", "dog"]), {"cat": "dog", "dog": "cat"}))
    ['dog', 'cat']
    """
    if names is None:
        raise InvalidParameter(
            "The 'names' parameter of rename must change names, and the labels of this index have "
            "none. Pass names to fit."
        )
    if not isinstance(changes, Mapping):
        raise InvalidParameter(
            "The 'names' parameter of rename must be a dict from old names to new ones. "
            f"Got {type(changes).__name__} instead. Pass for example {{'old': 'new'}}."
        )
    for old, new in changes.items():
        _check_name(old, names, "names", "rename")
        if not isinstance(new, str):
            raise InvalidParameter(
                "The 'names' parameter of rename must have strings as new names. "
                f"Got {type(new).__name__} for {old!r} instead. Pass a string."
            )
    renamed = [changes.get(name, name) for name in names]
    first: dict[str, int] = {}
    for place, name in enumerate(renamed):
        other = first.setdefault(name, place)
        if other != place:
            raise InvalidParameter(
                f"The 'names' parameter of rename must not give two labels one name. Got {name!r} "
                f"for {names[other]!r} and {names[place]!r}. Choose another name."
            )
    titles = {changes.get(name, name): title for name, title in names.titles.items()}
    return Names.of(renamed, titles)


def _check_name(name: Any, names: Names, parameter: str, owner: str) -> None:
    if name not in names:
        words = [word for word in names if isinstance(name, str) and word[:1] == name[:1]]
        advice = suggest(str(name), words, otherwise="Check its spelling and case.")
        raise InvalidParameter(
            f"The '{parameter}' parameter of {owner} must hold names of labels. "
            f"Got {name!r} instead. {advice}"
        )
