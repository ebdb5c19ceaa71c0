"""The width of the routers: what is tried, when it changes, and what an index keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plantedlabels import labelled, small_labels

import irli
from irli import LabelIndex
from irli.base.recipe import Recipe
from irli.cluster import ShardedLabelIndex
from irli.labels.build import routing
from irli.labels.tuning import tune
from irli.labels.tuning.tune import Wishes
from irli.learning.options import LearnOptions

USUAL = irli.recipe("labels").hidden
WIDTHS = [USUAL // 2, USUAL, 2 * USUAL]


@pytest.fixture(autouse=True)
def few_rows_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "LEAST_ROWS", 100)


def of_usual_width(**changes: Any) -> Recipe:
    return small_labels(**{"epochs": 1, "hidden": USUAL, **changes})


def list_tried(history: list[dict[str, Any]], choice: str) -> dict[Any, float]:
    return {one["tried"]: one["quality"] for one in history if one.get("choice") == choice}


@pytest.mark.parametrize(
    ("qualities", "width"),
    [
        ((0.50, 0.50, 0.52), 2 * USUAL),
        ((0.52, 0.50, 0.50), USUAL // 2),
        ((0.505, 0.50, 0.505), USUAL),  # that may be chance
        ((0.40, 0.50, 0.45), USUAL),
        ((0.0, 0.0, 0.0), USUAL),
    ],
)
def test_only_a_clear_gain_changes_the_width(
    monkeypatch: pytest.MonkeyPatch, qualities: tuple[float, ...], width: int
) -> None:
    X, Y = labelled(300, 30)
    planted = dict(zip(WIDTHS, qualities, strict=True))

    def measure(layout: Any, rows: Any, labels: Any, made: Any, recipe: Recipe, *_: Any) -> float:
        assert not set(made.split.train) & set(made.split.held)
        assert layout.project.shape[-1] == recipe.hidden
        return planted[recipe.hidden]

    monkeypatch.setattr(routing, "measure_sources", measure)
    run = LearnOptions(threads=1)
    _, recipe, trials = routing.choose_routing(X, Y, of_usual_width(), Wishes(), run)
    assert recipe.hidden == width
    assert list_tried(trials, "hidden") == planted


def test_a_small_sample_never_makes_routers_narrower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_ROWS", 100)
    monkeypatch.setattr(routing, "measure_sources", lambda *given: 1 / given[4].hidden)
    X, Y = labelled(300, 30)
    run = LearnOptions(threads=1)
    _, recipe, trials = routing.choose_routing(X, Y, of_usual_width(), Wishes(), run)
    assert recipe.hidden == USUAL
    assert list(list_tried(trials, "hidden")) == WIDTHS[1:]


def test_a_width_of_the_user_is_kept() -> None:
    X, Y = labelled(300, 30)
    index = LabelIndex(small_labels(hidden=24, epochs=1)).fit(X, Y, threads=1)
    assert index.recipe.hidden == 24
    assert not list_tried(index.history, "hidden")


def test_one_machine_and_shards_learn_with_the_chosen_width(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(routing, "measure_sources", lambda *given: given[4].hidden / 1000)
    X, Y = labelled(300, 30)
    index = LabelIndex(of_usual_width()).fit(X, Y, threads=1)
    shards = ShardedLabelIndex(of_usual_width(), shards=2).fit(X, Y, threads=1)
    for one in (index, shards):
        assert list(list_tried(one.history, "hidden")) == WIDTHS
        assert len(list_tried(one.history, "score")) > 1
    index.save(tmp_path / "index")
    again = irli.load(tmp_path / "index")
    assert again.recipe.hidden == 2 * USUAL
    assert again._fitted().contents.model.layout.project.shape[-1] == 2 * USUAL
    # What is learned later is as wide.
    again.refit(X, Y, epochs=1, threads=1)
    assert again.recipe.hidden == 2 * USUAL


def test_without_a_ranker_the_index_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = labelled(300, 30)
    monkeypatch.setattr(tune, "train_ranker", None)  # not to be called
    index = LabelIndex(of_usual_width(), ranker=False).fit(X, Y, threads=1)
    assert all(quality > 0 for quality in list_tried(index.history, "hidden").values())


def test_the_history_shows_every_choice_on_held_out_rows() -> None:
    X, Y = labelled(300, 30)
    index = LabelIndex(of_usual_width(), ranker=True).fit(X, Y, threads=1)
    tried = {one["choice"] for one in index.history if "choice" in one}
    assert {"hidden", "score", "probes of the index", "cost", "sources", "probes"} <= tried
    assert {"candidates", "pruning"} <= tried
