"""Choices on held-out rows: which option is taken, and what the history tells of them."""

from __future__ import annotations

from typing import Any

import pytest
from plantedlabels import labelled, small_labels

from irli import LabelIndex
from irli.cluster import ShardedLabelIndex
from irli.labels.tuning import scaling, tune
from irli.labels.tuning.choose import Trials

CHOICES = ["scaling", "score", "probes of the index", "sources", "pruning", "ranker"]


@pytest.fixture(autouse=True)
def few_rows_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "LEAST_ROWS", 100)


def list_choices(history: list[dict[str, Any]]) -> list[str]:
    """The choices, each once, in their order."""
    return list(dict.fromkeys(one["choice"] for one in history if "choice" in one))


@pytest.mark.parametrize(
    ("qualities", "tie", "chosen"),
    [
        ((0.5, 0.5, 0.5), 0.0, 0),
        ((0.5, 0.6, 0.6), 0.0, 1),
        ((0.59, 0.5, 0.6), 0.02, 0),
        ((0.58, 0.5, 0.6), 0.02, 2),
        ((0.0, 0.0, 0.0), 0.1, 0),
        ((0.7,), 0.0, 0),
    ],
)
def test_the_first_about_the_best_is_chosen(
    qualities: tuple[float, ...], tie: float, chosen: int
) -> None:
    trials = Trials()
    options = {f"option {place}": place for place in range(len(qualities))}
    made = trials.choose("what", options, lambda place: (qualities[place], place), tie)
    assert made == chosen
    assert [one["quality"] for one in trials] == list(qualities)
    assert [one["tried"] for one in trials] == list(options)


def test_the_history_shows_every_choice() -> None:
    X, Y = labelled(300, 30)
    index = LabelIndex(small_labels(epochs=1)).fit(X * 2, Y, threads=1)
    assert list_choices(index.history) == CHOICES
    one = ShardedLabelIndex(small_labels(epochs=1), shards=1).fit(X * 2, Y, threads=1)
    assert list_choices(one.history) == CHOICES
    several = ShardedLabelIndex(small_labels(epochs=1), shards=2).fit(X * 2, Y, threads=1)
    assert list_choices(several.history) == CHOICES


def test_without_a_ranker_none_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = labelled(300, 30)
    monkeypatch.setattr(tune, "SourceChooser", None)  # not to be called
    index = LabelIndex(small_labels(epochs=1), ranker=False).fit(X, Y, threads=1)
    assert list_choices(index.history) == CHOICES[1:3]


def test_the_width_of_the_user_is_kept() -> None:
    X, Y = labelled(300, 30)
    index = LabelIndex(small_labels(hidden=24, epochs=1)).fit(X, Y, threads=1)
    assert index.recipe.hidden == 24
    shards = ShardedLabelIndex(small_labels(hidden=24, epochs=1), shards=2).fit(X, Y, threads=1)
    assert shards.recipe.hidden == 24
