"""Titles of a library catalogue as rows of features, the same TF-IDF for every library."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bench.commands import find_file
from irli.base.types import Sparse
from irli.labels.text.vectorizer import Vectorizer

FILES = "finna-en-train.tsv.gz", "finna-en-test.tsv.gz", "finna-en-labels.tsv.gz"
# How many titles to learn from, and up to how many words are a feature.
SETS: dict[str, tuple[int | None, int]] = {
    "finna-100k": (100_000, 1),
    "finna-100k-bigrams": (100_000, 2),
    "finna-100k-names": (100_000, 1),
    "finna": (None, 1),
}
NAMED = "-names"  # the end of the names of sets in which subjects are learned from their names, too


class TitleFiles(NamedTuple):
    """The files of a set of titles.

    Where subjects are learned from their names, too, `names` has a row for each subject, and
    `joined` the training rows and then those of the names: libraries that know no titles of labels
    learn from these.
    """

    train: Path
    test: Path
    names: Path
    joined: Path


def make_title_files(data: Path, folder: Path, name: str) -> TitleFiles:
    """Write the rows of a set of titles in the format of the Extreme Classification Repository.

    Titles without a word that two others have are left out: some libraries refuse empty rows.
    """
    kinds = TitleFiles._fields if name.endswith(NAMED) else TitleFiles._fields[:2]
    paths = TitleFiles(*(folder / f"{name}-{kind}.txt" for kind in TitleFiles._fields))
    if all((folder / f"{name}-{kind}.txt").exists() for kind in kinds):
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    count, ngrams = SETS[name]
    train, test, labels = (find_file(data, file) for file in FILES)
    with gzip.open(labels, "rt", encoding="utf-8") as lines:
        names = [line.rstrip("\n").partition("\t")[2] for line in lines]
    wide = len(names)
    vectorizer = Vectorizer(ngrams=ngrams)
    texts, carried = _read_titles(train, count)
    rows = vectorizer.fit_transform(texts)
    _write_rows(paths.train, rows, carried, wide, keep_empty=False)
    if len(kinds) > 2:
        known = set(",".join(carried).split(","))  # what no title carries cannot be learned
        named = vectorizer.transform(
            text if str(number) in known else "" for number, text in enumerate(names)
        )
        owners = [str(number) for number in range(wide)]
        _write_rows(paths.names, named, owners, wide, keep_empty=True)
        together = sp.vstack([rows, named], format="csr")
        _write_rows(paths.joined, together, carried + owners, wide, keep_empty=False)
    texts, carried = _read_titles(test, None)
    _write_rows(paths.test, vectorizer.transform(texts), carried, wide, keep_empty=True)
    return paths


def _read_titles(path: Path, count: int | None) -> tuple[list[str], list[str]]:
    """Return the titles, and the numbers of their subjects, with commas between them."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        pairs = [line.rstrip("\n").split("\t") for line in islice(lines, count)]
    return [title for title, _ in pairs], [",".join(numbers.split()) for _, numbers in pairs]


def _write_rows(path: Path, rows: Sparse, labels: list[str], wide: int, keep_empty: bool) -> None:
    kept = np.arange(rows.shape[0]) if keep_empty else np.flatnonzero(np.diff(rows.indptr))
    with path.open("w") as file:
        file.write(f"{len(kept)} {rows.shape[1]} {wide}\n")
        for row in kept:
            part = slice(rows.indptr[row], rows.indptr[row + 1])
            pairs = zip(rows.indices[part], rows.data[part], strict=True)
            words = " ".join(f"{column}:{value:.6g}" for column, value in pairs)
            file.write(f"{labels[row]} {words}\n")
