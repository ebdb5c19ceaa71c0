"""Labels as people have them: numbers and names, one for each row or several, of any length."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from plantedlabels import labelled, small_labels

from irli import LabelIndex
from irli.cluster import ShardedLabelIndex
from irli.errors import InvalidParameter

LABELS = 12
OWN = np.arange(240) % LABELS
X, Y = labelled(240, LABELS, most=1)
PETS = [f"pet {label:02}" for label in range(LABELS)]
RECIPE = small_labels(buckets=4, epochs=1)


@pytest.fixture(scope="module")
def index() -> LabelIndex:
    return LabelIndex(RECIPE, ranker=True).fit(X, Y, names=PETS, threads=1)


NUMBERS: dict[str, Any] = {
    "one for each row": OWN,
    "a list": OWN.tolist(),
    "small integers": OWN.astype(np.uint8),
    "lists": [[label] for label in OWN.tolist()],
    "lists of different lengths": [[label] * (1 + row % 2) for row, label in enumerate(OWN)],
    "sets": [{label} for label in OWN.tolist()],
    "an array of lists": np.array([[one] * (1 + one % 2) for one in OWN] + [[]], dtype=object)[:-1],
}
NAMED: dict[str, Any] = {
    "one for each row": [PETS[label] for label in OWN],
    "an array": np.array(PETS)[OWN],
    "lists": [[PETS[label]] for label in OWN],
    "tuples of different lengths": [
        (PETS[label],) * (1 + row % 2) for row, label in enumerate(OWN)
    ],
    "sets": [{PETS[label]} for label in OWN],
    "a stream": lambda: ([PETS[label]] for label in OWN),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers(kind: str) -> None:
    found = LabelIndex(RECIPE).fit(X, NUMBERS[kind], threads=1)
    assert found.names is None
    assert found.counts.tolist() == [20] * LABELS
    assert found.score(X, NUMBERS[kind]) > 0.9


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("sharded", [False, True])
def test_names(kind: str, sharded: bool) -> None:
    given = NAMED[kind]() if callable(NAMED[kind]) else NAMED[kind]
    made: Any = ShardedLabelIndex(RECIPE, shards=2) if sharded else LabelIndex(RECIPE)
    found = made.fit(X, given, threads=1)
    assert list(found.names) == PETS
    assert (found.predict(X, 1).labels.ravel() == OWN).mean() > 0.9


def test_names_have_the_order_that_is_given() -> None:
    found = LabelIndex(RECIPE).fit(X, NAMED["lists"], names=PETS[::-1], threads=1)
    assert list(found.names or []) == PETS[::-1]
    with pytest.raises(InvalidParameter, match="Got 'pet 11' in row 11"):
        LabelIndex(RECIPE).fit(X, NAMED["lists"], names=PETS[:-1], threads=1)


def test_an_index_learns_on_from_names(index: LabelIndex) -> None:
    names = ["pet 03", "whale", "whale"]
    learned = LabelIndex(RECIPE, ranker=True).fit(X, NAMED["lists"], threads=1)
    learned.partial_fit(X[:3], names, threads=1)
    assert list(learned.names or []) == [*PETS, "whale"]
    assert learned.counts[[3, 12]].tolist() == [21, 2]
    learned.add_labels(X[:2], ["yak", "zebra"], threads=1)
    assert list(learned.names or []) == [*PETS, "whale", "yak", "zebra"]
    learned.fit(X, [*NAMED["one for each row"][:-1], "newt"], threads=1, start=learned)
    assert list(learned.names or []) == [*PETS, "whale", "yak", "zebra", "newt"]
    assert index.score(X, NAMED["lists"]) == index.score(X, Y) > 0.9
    assert index.score(X, ["unknown", *NAMED["one for each row"][1:]]) < index.score(X, Y)


def test_names_for_an_index_that_has_none() -> None:
    found = LabelIndex(RECIPE).fit(X, OWN, threads=1)
    for call in (found.partial_fit, partial(found.fit, start=found), found.add_labels, found.score):
        with pytest.raises(InvalidParameter, match="names"):
            call(X, NAMED["lists"])


def test_few_columns_of_zeros_and_ones_are_numbers(index: LabelIndex) -> None:
    """With 12 labels no matrix has one column, or three."""
    some = np.flatnonzero(OWN < 2)
    assert index.score(X[some], OWN[some][:, None]) > 0.9
    assert index.score(X[some], np.repeat(OWN[some][:, None], 3, axis=1)) > 0.9
    numbered = LabelIndex(RECIPE, ranker=True).fit(X, OWN, threads=1)
    numbered.partial_fit(X[some], OWN[some][:, None], threads=1)
    assert numbered.counts.tolist() == [40, 40] + [20] * 10
    numbered.fit(X[some], OWN[some][:, None], threads=1, start=numbered)
    recipe = small_labels(buckets=2, epochs=1)
    fresh = LabelIndex(recipe).fit(X[some], OWN[some][:, None], names=PETS[:2], threads=1)
    assert fresh.counts.tolist() == [20, 20]


def test_a_number_that_is_a_code() -> None:
    with pytest.raises(InvalidParameter, match="numbers up to 1000000, of which rows carry 13"):
        LabelIndex(RECIPE).fit(X, [*OWN[:-1], 10**6], threads=1)
    wide = sp.csr_array((np.ones(240), (np.arange(240), OWN)), shape=(240, 20_000))
    assert len(LabelIndex(RECIPE).fit(X, wide, threads=1)) == 20_000  # who says so means it
