"""Recipes. Each is written out here, setting by setting: a changed one must change a test."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import irli
from irli.base.recipe import RECIPES, Recipe, as_recipe, is_exact_cheap, recipe
from irli.errors import InvalidParameter

TRAINING = {
    "repetitions": 1,
    "buckets": None,
    "hidden": 32,
    "choices": None,
    "slack": 1.3,
    "buckets_per_item": 2,
    "epochs": 10,
    "repartition_every": None,
    "epoch_size": 65_536,
    "stop_moved": 0.02,
    "until_converged": False,
    "mixed_precision": False,
    "batch_size": 512,
    "learning_rate": 0.002,
    "seed": 0,
}
VECTORS = {
    "scoring": "int8",
    "pieces": None,
    "neighbors": 20,
    "neighbor_recall": 0.97,
    "training_points": None,
    "query_share": 0.4,
    "mixed_queries": 20_000,
    "noise": 0.12,
    "self_hits": True,
    "boost": True,
}
NO_LABELS: dict[str, Any] = {"features": None, "trunk": None}
NO_VECTORS = dict.fromkeys(VECTORS)
SWITCHES = {
    "start": "kmeans",
    "router": "warm",
    "standardize": True,
    "loss": "softmax",
    "affinity": "both",
    "repartition": "bounded",
    "accept": "validated",
    "schedule": "one-cycle",
    "search": "threshold",
}
DEFAULT: dict[str, Any] = {"name": "default", **TRAINING, **VECTORS, **NO_LABELS, **SWITCHES}
PAPER_TRAINING = {
    "repetitions": 32,
    "buckets": 5000,
    "hidden": 1024,
    "choices": None,
    "slack": 1.3,
    "buckets_per_item": 1,
    "epochs": 30,
    "repartition_every": 5,
    "epoch_size": 0,
    "stop_moved": 0.0,
    "until_converged": False,
    "mixed_precision": False,
    "batch_size": 256,
    "learning_rate": 0.001,
    "seed": 0,
}
PAPER_VECTORS = {
    "scoring": "full",
    "pieces": 0,
    "neighbors": 100,
    "neighbor_recall": 1.0,
    "training_points": 10_000_000,
    "query_share": 0.4,
    "mixed_queries": 0,
    "noise": 0.0,
    "self_hits": False,
    "boost": False,
}
PAPER_SWITCHES = {
    "start": "hash",
    "router": "network",
    "standardize": False,
    "loss": "sigmoid-bce",
    "affinity": "item",
    "repartition": "least-loaded",
    "accept": "always",
    "schedule": "constant",
    "search": "votes",
}
PAPER = {"name": "paper", **PAPER_TRAINING, **PAPER_VECTORS, **NO_LABELS, **PAPER_SWITCHES}
DEEP = {"repetitions": 4, "buckets": 20_000, "epochs": 20, "query_share": 1.0}
PAPER_DEEP = PAPER | {"name": "paper-deep"} | DEEP
PAPER_LABELS = {
    "name": "paper-labels",
    **PAPER_TRAINING,
    **NO_VECTORS,
    "features": 0,
    "trunk": "own",
    **PAPER_SWITCHES,
} | {"buckets": 20_000, "affinity": "sum", "loss": "softmax-bce"}
PAPER_LABELS_SIGMOID = PAPER_LABELS | {"name": "paper-labels-sigmoid", "loss": "sigmoid-bce"}
LABELS = {
    "name": "labels",
    "repetitions": None,
    "buckets": None,
    "hidden": None,
    "choices": None,
    "slack": 1.3,
    "buckets_per_item": 1,
    "epochs": None,
    "repartition_every": 1,
    "epoch_size": 0,
    "stop_moved": 0.02,
    "until_converged": False,
    "mixed_precision": False,
    "batch_size": None,
    "learning_rate": None,
    "seed": 0,
    **NO_VECTORS,
    "features": 1_048_576,
    "trunk": "shared",
    "start": None,
    "router": "network",
    "standardize": True,
    "loss": None,
    "affinity": "queries",
    "repartition": "bounded",
    "accept": "validated",
    "schedule": "one-cycle",
    "search": "threshold",
}
MANY_LABELS = {
    "start": "kmeans",
    "repetitions": 4,
    "hidden": 192,
    "loss": "softmax",
    "epochs": 5,
    "batch_size": 128,
    "learning_rate": 0.002,
}
AUTO = DEFAULT | {"name": "auto"}
EXACT = DEFAULT | {"name": "exact", "buckets": 1, "pieces": 0, "self_hits": False}
TABLES: dict[str, dict[str, Any]] = {
    "auto": AUTO,
    "exact": EXACT,
    "relevance": DEFAULT | {"name": "relevance", "repetitions": 4, "boost": False},
    "default": DEFAULT,
    "paper": PAPER,
    "paper-labels": PAPER_LABELS,
    "paper-labels-sigmoid": PAPER_LABELS_SIGMOID,
    "paper-deep": PAPER_DEEP,
    "labels": LABELS,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_recipe_is_as_written_here(name: str) -> None:
    assert dataclasses.asdict(recipe(name)) == TABLES[name]


def test_these_are_all_recipes() -> None:
    assert set(RECIPES) == set(TABLES)
    assert recipe() == recipe("default") == Recipe()


def test_changes_touch_nothing_else() -> None:
    changed = recipe("paper", repetitions=4, buckets=64)
    assert dataclasses.asdict(changed) == PAPER | {"repetitions": 4, "buckets": 64}
    assert recipe("paper", repetitions=None, pieces=None) == recipe("paper")  # None: not given
    assert dataclasses.asdict(recipe("paper")) == PAPER


def test_a_recipe_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe("paper").buckets = 8  # type: ignore[misc]


# --- names and settings -------------------------------------------------------------------------


def test_a_recipe_may_be_given_by_its_name() -> None:
    mine = recipe("labels", epochs=3)
    assert as_recipe(mine) is mine
    assert as_recipe("labels") == recipe("labels")
    assert irli.recipe is recipe


@pytest.mark.parametrize("given", [7, None, "papers", {"epochs": 3}])
def test_what_is_no_recipe(given: Any) -> None:
    with pytest.raises(InvalidParameter, match="'recipe' parameter must be one of 'auto'"):
        as_recipe(given)


@pytest.mark.parametrize(
    ("setting", "near"),
    [
        ("repetition", "repetitions"),
        ("bucket", "buckets"),
        ("epoch", "epochs"),
        ("neighbours", "neighbors"),
        ("lr", None),
        ("name", None),
    ],
)
def test_unknown_settings(setting: str, near: str | None) -> None:
    with pytest.raises(InvalidParameter) as caught:
        recipe("paper", **{setting: 4})
    advice = f"Did you mean '{near}'?" if near else f"It has: {', '.join(list(DEFAULT)[1:])}."
    assert str(caught.value) == f"The recipe has no setting '{setting}'. {advice}"


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [("default", "features", 5), ("paper", "trunk", "own"), ("labels", "pieces", 8)],
)
def test_settings_of_the_other_kind_of_index(name: str, setting: str, value: Any) -> None:
    with pytest.raises(InvalidParameter, match=f"'{name}' has no setting '{setting}'.* Got"):
        recipe(name, **{setting: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repetitions": 0}, r"'repetitions' parameter of the recipe.*Got 0"),
        ({"buckets": 0}, "'buckets' parameter"),
        ({"buckets_per_item": 3}, r"'buckets_per_item'.*\[1, 2\]"),
        ({"pieces": 513}, r"'pieces'.*\[0, 512\]"),
        ({"pieces": "8"}, "'pieces' parameter"),
        ({"slack": 0.5}, "'slack' parameter"),
        ({"noise": -0.1}, "'noise' parameter"),
        ({"query_share": 1.5}, r"'query_share'.*\[0.0, 1.0\]"),
        ({"learning_rate": float("nan")}, "'learning_rate' parameter"),
        ({"self_hits": 1}, "'self_hits' parameter of the recipe must be True or False"),
        ({"boost": 1}, "'boost' parameter of the recipe must be True or False"),
        ({"until_converged": 1}, "'until_converged' parameter of the recipe must be True or False"),
        (
            {"until_converged": True, "start": "one-per-item", "router": "network"},
            "'until_converged' parameter of the recipe must be False with start='one-per-item'",
        ),
        ({"start": "alone"}, "'start'.*'kmeans', 'one-per-item', 'hash'"),
        ({"accept": "never"}, "'accept'.*'validated', 'always'"),
        ({"seed": 2**31}, "'seed' parameter"),
        ({"start": "hash"}, "must be 'network' with start='hash'"),
        ({"repartition": "least-loaded"}, "'buckets_per_item' parameter of the recipe must be 1"),
        ({"affinity": "sum"}, "'buckets_per_item' parameter of the recipe must be 1 with affinity"),
    ],
)
def test_values_that_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        recipe("default", **change)


# --- what depends on the data -------------------------------------------------------------------


def test_the_paper_asks_for_nothing_that_depends_on_the_data() -> None:
    assert dataclasses.asdict(recipe("paper").resolve(10**6, 96)) == PAPER | {"choices": 10}
    asked = recipe("paper-labels").resolve_for_labels(10**5)
    assert dataclasses.asdict(asked) == PAPER_LABELS | {"choices": 10}
    deep = recipe("paper-deep").resolve(12_500_000, 96)
    assert dataclasses.asdict(deep) == PAPER_DEEP | {"choices": 10}


@pytest.mark.parametrize("items", [19_999, 20_000])
def test_the_paper_s_buckets_must_fit_the_data(items: int) -> None:
    for name, resolve in (
        ("paper-deep", lambda asked: asked.resolve(items, 8)),
        ("paper-labels", lambda asked: asked.resolve_for_labels(items)),
    ):
        if items < 20_000:
            with pytest.raises(InvalidParameter, match=r"'buckets'.*19999.*Got 20000"):
                resolve(recipe(name))
        assert resolve(recipe(name, buckets=100)).buckets == 100


@pytest.mark.parametrize(
    ("items", "dim", "filled"),
    [
        (
            10,
            3,
            {
                "buckets": 1,
                "choices": 1,
                "buckets_per_item": 1,
                "scoring": "full",
                "pieces": 0,
                "training_points": 200_000,
                "repartition_every": 2,
            },
        ),
        (
            100_000,
            768,
            {
                "buckets": 2048,
                "choices": 32,
                "training_points": 200_000,
                "repartition_every": 2,
            },
        ),
        (
            10_000_000,
            96,
            {
                "buckets": 16_384,
                "choices": 32,
                "training_points": 50_000,
                "repartition_every": 5,
            },
        ),
    ],
)
def test_the_default_is_filled_in(items: int, dim: int, filled: dict[str, Any]) -> None:
    assert dataclasses.asdict(recipe().resolve(items, dim)) == DEFAULT | filled


ONE_BUCKET = {"choices": 1, "buckets_per_item": 1, "repartition_every": 2}


def test_auto_learns_nothing_for_few_items() -> None:
    few = dataclasses.asdict(recipe("auto", seed=3).resolve(5000, 64))
    assert few == EXACT | ONE_BUCKET | {"seed": 3, "training_points": 200_000}
    assert few == dataclasses.asdict(recipe("exact", seed=3).resolve(5000, 64))
    for items, dim in ((50_001, 1), (100_000, 64), (10**7, 2)):
        resolved = recipe("auto", seed=3).resolve(items, dim)
        assert resolved == recipe("default", seed=3).resolve(items, dim)


def test_who_says_how_to_learn_wants_to_learn() -> None:
    assert recipe("auto", epochs=3) == recipe("default", epochs=3)
    assert recipe("auto", seed=3, buckets=4).resolve(20, 3).name == "default"
    assert recipe("auto", seed=3).name == "auto"


@given(st.integers(1, 10**6), st.integers(1, 5000), st.integers(1, 10**6), st.integers(1, 5000))
def test_fewer_and_shorter_items_are_cheaper(items: int, dim: int, more: int, longer: int) -> None:
    if not is_exact_cheap(items, dim):
        assert not is_exact_cheap(items + more, dim)
        assert not is_exact_cheap(items, dim + longer)


def test_few_labels_get_an_output_each() -> None:
    few = {
        "start": "one-per-item",
        "buckets": 2048,
        "repetitions": 1,
        "hidden": 1024,
        "choices": 32,
        "loss": "sigmoid-bce",
        "epochs": 16,
        "batch_size": 128,
        "learning_rate": 4e-3,
    }
    assert dataclasses.asdict(recipe("labels").resolve_for_labels(2048)) == LABELS | few
    many = dataclasses.asdict(recipe("labels").resolve_for_labels(2049))
    assert many == LABELS | MANY_LABELS | {"buckets": 226, "choices": 32}
    assert recipe("labels", buckets=64).resolve_for_labels(983).start == "kmeans"
    assert recipe("labels", start="kmeans").resolve_for_labels(983).buckets == 156


@pytest.mark.parametrize("name", MANY_LABELS)
@pytest.mark.parametrize("labels", [983, 15_031])
def test_what_is_given_is_kept_even_if_it_is_the_default(name: str, labels: int) -> None:
    for value in {MANY_LABELS[name], recipe("labels").resolve_for_labels(983).__dict__[name]}:
        assert getattr(recipe("labels", **{name: value}).resolve_for_labels(labels), name) == value


def test_what_the_data_bounds() -> None:
    with pytest.raises(InvalidParameter, match=r"'buckets'.*a recipe for 99 items.*Got 100"):
        recipe("default", buckets=100).resolve(99, 8)
    with pytest.raises(InvalidParameter, match=r"'choices'.*8 buckets.*Got 9"):
        recipe("default", buckets=8, choices=9).resolve(99, 8)
    assert recipe("default", buckets=8).resolve(99, 8).choices == 8  # nobody asked for 32
    with pytest.raises(InvalidParameter, match=r"'buckets'.*a recipe for 9 labels.*Got 10"):
        recipe("labels", buckets=10).resolve_for_labels(9)


@pytest.mark.parametrize("name", ["auto", "default", "exact", "paper", "paper-deep"])
def test_recipes_of_vectors_are_not_for_labels(name: str) -> None:
    with pytest.raises(
        InvalidParameter, match=f"must be one for labels: 'labels', .* Got '{name}'"
    ):
        recipe(name).resolve_for_labels(100)


@pytest.mark.parametrize("name", ["labels", "paper-labels", "paper-labels-sigmoid"])
def test_recipes_of_labels_are_not_for_vectors(name: str) -> None:
    message = (
        rf"must be one for vectors: 'auto', .* 'paper', 'paper-deep'\. Got '{name}' .* LabelIndex"
    )
    with pytest.raises(InvalidParameter, match=message):
        recipe(name, buckets=8).resolve(1000, 16)
