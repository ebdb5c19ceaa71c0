"""An exception or interrupt anywhere in learning leaves the index as it was, in every part."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import read_files
from plantedlabels import labelled, small_labels

from irli import LabelIndex
from irli.cluster import label_index as sharded
from irli.cluster.label_index import ShardedLabelIndex
from irli.labels import given, learner
from irli.labels import index as module

LABELS = 12
X, Y = labelled(120, LABELS)
OTHER_X, OTHER_Y = labelled(90, 6, seed=5)
NEW_X, NEW_Y = labelled(60, LABELS, seed=7)
TEXTS = [f"{pet} {verb}" for pet in ("cat", "dog", "bird") for verb in ("eats", "naps", "plays")]
LISTS = [[text.split()[0]] for text in TEXTS]
RECIPE = small_labels(buckets=3, epochs=1)

Learning = Callable[[LabelIndex], Any]
METHODS: dict[str, Learning] = {
    "fit": lambda index: index.fit(OTHER_X, OTHER_Y, names=list("abcdef"), threads=1),
    "fit_text": lambda index: index.fit_text(TEXTS, LISTS, threads=1),
    "fit on": lambda index: index.fit(NEW_X, NEW_Y, threads=1, start=index),
    "add_labels": lambda index: index.add_labels(NEW_X, NEW_Y[:, :3], names=list("xyz")),
    "partial_fit": lambda index: index.partial_fit(NEW_X, NEW_Y, threads=1),
    "remove_labels": lambda index: index.remove_labels([0, 3]),
    "rename": lambda index: index.rename({"label 1": "one"}),
}


def parts_of(place: Any) -> list[str]:
    """The names of all functions and classes that a module can call."""
    return [
        name
        for name, value in vars(place).items()
        if inspect.isfunction(value) or inspect.isclass(value)
    ]


class Counted:
    """Calls a function, and is interrupted at the end of the n-th call."""

    def __init__(self, original: Any, at: int) -> None:
        self.original, self.left, self.raised = original, at, False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        result = self.original(*arguments, **options)
        self.left -= 1
        if self.left != 0:
            return result
        self.raised = True
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def fitted() -> LabelIndex:
    names = [f"label {number}" for number in range(LABELS)]
    return LabelIndex(RECIPE, ranker=True).fit(X, Y, names=names, threads=1)


def state(index: LabelIndex, path: Path) -> tuple[Any, ...]:
    """Everything that can be seen of an index."""
    index.save(path)
    found = index.predict(X, k=4)
    seen = (index.stats(), index.history, index.tuned, list(index.names or []), index.dim)
    return (found.labels.tolist(), found.scores.tolist(), seen, read_files(path))


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_at_any_call(
    fitted: LabelIndex, method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = state(fitted, tmp_path / "right")
    reached = set()
    calls = [(place, name) for place in (module, given, learner) for name in parts_of(place)]
    for place, name in calls:
        for at in (1, 2):
            index = copy.copy(fitted)
            with monkeypatch.context() as patch:
                broken = Counted(getattr(place, name), at)
                patch.setattr(place, name, broken)
                try:
                    METHODS[method](index)
                except (KeyboardInterrupt, TypeError, AttributeError):
                    pass  # a class that is used other than by a call is broken as a whole
                else:
                    assert not broken.raised
                    break  # never called so often
            reached |= {name} if broken.raised else set()
            assert state(index, tmp_path / "index") == right, f"{name}, call {at}"
    if method not in ("remove_labels", "rename"):  # which take no rows
        assert {"as_rows", "as_labels", "extend_names"} <= reached


def test_an_interrupted_first_fit_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    index = LabelIndex(RECIPE)
    monkeypatch.setattr(learner, "complete_labels", Counted(learner.complete_labels, 1))
    with pytest.raises(KeyboardInterrupt):
        METHODS["fit_text"](index)
    assert "not fitted" in repr(index)
    assert index.names is index.vectorizer is None
    assert index.history == []


@pytest.mark.parametrize(
    "name", ["read_rows_to_fit", "make_label_job", "build", "deal_labels", "open_parts"]
)
def test_shards(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = ShardedLabelIndex(RECIPE, shards=2).fit(X, Y, threads=1)
    right = index.predict(X, k=4)
    monkeypatch.setattr(sharded, name, Counted(getattr(sharded, name), 1))
    with pytest.raises(KeyboardInterrupt):
        index.fit(OTHER_X, OTHER_Y, names=list("abcdef"), threads=1)
    found = index.predict(X, k=4)
    np.testing.assert_array_equal(found.labels, right.labels)
    np.testing.assert_array_equal(found.scores, right.scores)
    assert len(index) == LABELS
    assert index.names is None
