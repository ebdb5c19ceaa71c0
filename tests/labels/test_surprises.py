"""What a new user would not expect of a LabelIndex is said, and what it is like can be seen."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from plantedlabels import labelled, random_label_layout, small_labels

import irli
from irli import IrliWarning, LabelIndex, Prediction
from irli.base.sparse import count_labels
from irli.cluster import ShardedLabelIndex
from irli.errors import InvalidParameter, NotFitted
from irli.labels.predictor import Predictor
from irli.labels.tuning.tune import LabelTuneResult

LABELS = 57
X, Y = labelled(400, LABELS)
RECIPE = small_labels(buckets=8, epochs=1)
PETS = ("cat", "dog", "bird")
TEXTS = [f"the {pet} {verb}" for pet in PETS for verb in ("eats", "naps", "plays")]
LISTS = [[text.split()[1]] for text in TEXTS]


def numbers_of(labels: sp.csr_array) -> Any:
    """The label numbers of each row, padded with -1."""
    rows = [row.nonzero()[0] for row in labels.toarray()]
    padded = np.full((len(rows), max(map(len, rows))), -1)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded


@pytest.fixture(scope="module")
def index() -> LabelIndex:
    return LabelIndex(RECIPE, ranker=True).fit(X, Y, threads=1)


@pytest.fixture(scope="module")
def pets() -> LabelIndex:
    return LabelIndex().fit_text(TEXTS, LISTS, threads=1)


def same(one: Prediction, other: Prediction) -> None:
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.scores, other.scores)


# --- labels by number ------------------------------------------------------------------------


def test_label_numbers_teach_what_a_matrix_teaches(index: LabelIndex) -> None:
    numbers = numbers_of(Y)
    by_number = LabelIndex(RECIPE, ranker=True).fit(X, numbers, threads=1)
    assert len(by_number) == LABELS
    np.testing.assert_array_equal(by_number.counts, count_labels(Y))
    same(by_number.predict(X), index.predict(X))
    names = [f"label {number}" for number in range(LABELS + 3)]  # three that no row carries
    assert len(LabelIndex(RECIPE).fit(X, numbers, names=names, threads=1)) == LABELS + 3


def test_label_numbers_in_shards() -> None:
    by_number = ShardedLabelIndex(RECIPE, shards=2).fit(X, numbers_of(Y), threads=1)
    by_matrix = ShardedLabelIndex(RECIPE, shards=2).fit(X, Y, threads=1)
    assert len(by_number) == LABELS
    same(by_number.predict(X[:9], k=70), by_matrix.predict(X[:9], k=70))


def test_a_matrix_of_integers_is_refused(index: LabelIndex) -> None:
    matrix = Y.toarray().astype(int)
    for call in (
        index.fit,
        partial(index.fit, start=index),
        index.add_labels,
        ShardedLabelIndex(RECIPE).fit,
    ):
        with pytest.raises(InvalidParameter, match=r"'Y' .* 0 twice in row 0 .*astype\(bool\)"):
            call(X, matrix)


def test_learning_on_and_add_labels_by_number(index: LabelIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "index")
    grown: LabelIndex = irli.load(tmp_path / "index")
    numbers = numbers_of(Y)
    few = np.where(numbers >= 3, -1, numbers)
    grown.fit(X, few, threads=1, start=grown)  # rows of the first three labels only
    assert len(grown) == LABELS
    assert grown.counts[3:].sum() == 0
    grown.add_labels(X, few)
    assert len(grown) == LABELS + 3
    grown.fit(X, np.where(numbers == 0, LABELS + 3, numbers), threads=1, start=grown)
    assert len(grown) == LABELS + 4
    with pytest.raises(
        InvalidParameter, match=r"add_labels must count .* from 0 up.* no row with 0"
    ):
        grown.add_labels(X, numbers + len(grown))
    assert len(grown) == LABELS + 4


def test_more_labels_than_float32_can_count() -> None:
    """From 2**24 on, neighbouring numbers are the same in float32."""
    small = random_label_layout(labels=4, buckets=2, repetitions=1, dim=3, hidden=2)
    first = 2**24
    items = np.arange(first + 4, dtype=np.int32)
    offsets = np.array([[0, first, first + 4]])  # the last four labels are alone in a bucket
    layout = small._replace(
        items=items,
        offsets=offsets,
        share=np.ones(len(items), dtype=np.float32),
        prior=np.zeros(len(items), dtype=np.float32),
        bias=np.array([[0.0, 100.0]], dtype=np.float32),
    )
    rows = sp.csr_array(np.ones((1, 3), dtype=np.float32))
    parameters = irli.labels.LabelParameters(probes=1, candidates=4)
    _, labels = Predictor(layout).predict(rows, rows, 4, parameters)
    assert labels.tolist() == [[first, first + 1, first + 2, first + 3]]


# --- what is said ----------------------------------------------------------------------------


def test_texts_without_a_known_word(pets: LabelIndex) -> None:
    with pytest.warns(IrliWarning, match="2 of 3 texts have no word that the index knows"):
        found = pets.predict_text(["my dog", "", "un chien"], 2)
    assert found[0][0][0] == "dog"
    assert found[1:] == [[], []]
    assert pets.predict_text([], 2) == []
    assert len(pets.predict_text(["a cat"], 2)[0]) == 2  # without a warning


def test_names_are_plain_strings() -> None:
    index = LabelIndex().fit_text(np.array(TEXTS), [np.array(one) for one in LISTS])
    assert {type(name) for name in index.names or ()} == {str}


@pytest.mark.parametrize("seed", range(3))
def test_forty_texts_are_enough_for_three_topics(seed: int) -> None:
    rng = np.random.default_rng(seed)
    about = np.arange(240) % 3
    words = [[*(rng.choice(8, 3) + 8 * topic), *(rng.choice(100, 1) + 24)] for topic in about]
    texts = [" ".join(f"word{word}" for word in chosen) for chosen in words]
    lists = [[f"topic {topic}"] for topic in about]
    index = LabelIndex().fit_text(texts[:40], lists[:40], threads=1)
    found = index.predict_text(texts[40:], k=1)
    right = [best[0][0] == wanted[0] for best, wanted in zip(found, lists[40:], strict=True)]
    assert np.mean(right) > 0.9


def test_copies_of_a_few_texts_are_known() -> None:
    index = LabelIndex().fit_text(TEXTS * 10, LISTS * 10, threads=1)
    assert [found[0][0] for found in index.predict_text(TEXTS, k=1)] == [one[0] for one in LISTS]


@pytest.mark.parametrize("times", [5, 20])
def test_rows_that_repeat_are_learned(times: int) -> None:
    """Held out as a family, all rows of a label were lost, and every label was as likely."""
    texts = ["red apples and pears", "a pear tart", "carrots and leeks", "leek soup"]
    own = ["fruit", "tart", "vegetable", "soup"]
    index = LabelIndex().fit_text(texts * times, [[name] for name in own] * times, threads=1)
    best = [found[0] for found in index.predict_text(texts, k=1)]
    assert [name for name, _ in best] == own
    assert min(probability for _, probability in best) > 0.9


def test_a_ranker_that_is_not_there() -> None:
    alone = LabelIndex(RECIPE, ranker=False).fit(X, Y, threads=1)
    with pytest.raises(InvalidParameter, match=r"'ranker' .* must not be True .*ranker=True\)"):
        alone.predict(X, ranker=True)
    same(alone.predict(X, ranker=False), alone.predict(X))


def test_a_ranker_that_is_there(index: LabelIndex) -> None:
    same(index.predict(X, ranker=True), index.predict(X))


def test_one_label_and_rows_without_it() -> None:
    one = np.arange(60)[:, None] % 2 == 0
    rows = np.random.default_rng(0).random((60, 4))
    with pytest.warns(IrliWarning, match="one label, and 30 of 60 rows do not carry it"):
        LabelIndex().fit(rows, one, threads=1)
    LabelIndex().fit(rows, np.ones((60, 1)), threads=1)  # without a warning


def test_fewer_answers_than_asked_for_are_counted(index: LabelIndex) -> None:
    found = index.predict(X[:20], k=LABELS, probes=1)
    np.testing.assert_array_equal(found.counts, (found.labels >= 0).sum(axis=1))
    assert found.counts.max() < LABELS


def test_min_votes_that_leave_few_answers_are_said(index: LabelIndex) -> None:
    with pytest.warns(IrliWarning, match=f"Fewer than {LABELS} labels .* rows: min_votes=9"):
        found = index.predict(X[:20], k=LABELS, probes=1, min_votes=9, ranker=False)
    assert found.counts.max() < LABELS
    index.predict(X[:20], k=1, min_votes=1)  # without a warning


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (TEXTS, [pet for pet, *_ in LISTS], r"'labels\[0\]' .*fit_text.* Got str .*into a list"),
        (TEXTS, "cat", "'labels' .*fit_text must hold a list of names for each text. Got str"),
        (TEXTS, LISTS[1:], "'labels' .*fit_text .* each of 9 texts. Got 8"),
        ("the cat", LISTS, "'texts' .*fit_text must be a list of strings. Got str"),
        (TEXTS, [*LISTS[1:], [7]], r"'labels\[8\]' .*fit_text.* Got int 7 .*numbers as strings"),
        (TEXTS, [*LISTS[1:], [""]], r"'labels\[8\]' .*fit_text.* Got an empty string .*leave out"),
        (TEXTS, None, "'texts' .*fit_text .*pairs of a text and its labels"),
    ],
)
def test_texts_and_names_that_are_wrong(texts: Any, labels: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        LabelIndex().fit_text(texts, labels)


@pytest.mark.parametrize("method", ["predict_text", "features"])
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("the cat", "Got str instead. Put a single one into a list"),
        ([None], "Got NoneType at 0 instead. Use ''"),
        (["cat", 7], "Got int at 1 instead. Convert it to str"),
    ],
)
def test_errors_name_the_method_that_was_called(
    pets: LabelIndex, method: str, texts: Any, message: str
) -> None:
    with pytest.raises(InvalidParameter, match=f"'texts' parameter of {method} must .*{message}"):
        getattr(pets, method)(texts)


@pytest.mark.parametrize("kind", [LabelIndex, ShardedLabelIndex])
def test_names_that_come_twice(kind: Any) -> None:
    with pytest.raises(InvalidParameter, match="'names' parameter of fit must not hold a name twi"):
        kind(RECIPE).fit(X, Y, names=["same"] * LABELS)


@pytest.mark.parametrize("recipe", ["default", "paper", irli.recipe("default", epochs=1)])
@pytest.mark.parametrize("kind", [LabelIndex, ShardedLabelIndex])
def test_recipes_for_vectors_are_refused_at_once(kind: Any, recipe: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"'recipe' .* one for labels: 'labels', 'pap"):
        kind(recipe)


# --- tuning ----------------------------------------------------------------------------------


def test_what_was_tuned_survives_loading(index: LabelIndex, tmp_path: Path) -> None:
    tuned = index.tuned
    assert isinstance(tuned, LabelTuneResult)
    assert tuned.parameters == index.defaults
    assert tuned.ranker
    assert 0 <= tuned.precision_without_ranker <= tuned.precision <= 1
    assert tuned.rows > 0
    index.save(tmp_path / "index")
    assert irli.load(tmp_path / "index").tuned == tuned


def test_tuning_gives_the_same_answer_every_time(
    index: LabelIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the clock says, and on however many threads."""
    import time

    for name in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(time, name, iter(np.random.default_rng(1).random(10**5)).__next__)
    again = LabelIndex(RECIPE, ranker=True).fit(X, Y, threads=2)
    monkeypatch.undo()
    assert again.tuned == index.tuned
    same(again.predict(X), index.predict(X))


# --- settings and looks ----------------------------------------------------------------------


def test_parameters_are_read_and_changed() -> None:
    index = LabelIndex(RECIPE, ranker=False)
    others = {"ranker": False, "objective": "balanced"}
    assert index.get_params() == {"recipe": RECIPE, **others}
    assert index.get_params()["recipe"] is RECIPE
    assert index.set_params(recipe="paper-labels") is index
    assert index.get_params(deep=False) == {"recipe": "paper-labels", **others}
    assert index.recipe.name == "paper-labels"
    for wrong in ({"recipe": "default"}, {"ranker": 3}, {"objective": "all"}, {"rankers": True}):
        with pytest.raises(InvalidParameter):
            index.set_params(**wrong)
        assert index.get_params() == {"recipe": "paper-labels", **others}
    sharded = ShardedLabelIndex(RECIPE, shards=3)
    assert sharded.get_params() == {
        "recipe": RECIPE,
        "shards": 3,
        "ray": None,
        "replicas": 1,
        "objective": "balanced",
    }
    assert sharded.set_params(shards=2).shards == 2


def test_parameters_do_not_change_what_was_learned(index: LabelIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "index")
    loaded: LabelIndex = irli.load(tmp_path / "index")
    loaded.set_params(recipe="labels", ranker=False)
    assert loaded.recipe == index.recipe
    same(loaded.predict(X), index.predict(X))


@pytest.mark.parametrize("recipe", ["labels", RECIPE], ids=["name", "recipe"])
def test_clones_of_scikit_learn(recipe: Any) -> None:
    base = pytest.importorskip("sklearn.base")
    index = LabelIndex(recipe, ranker=False)
    other = base.clone(index)
    assert type(other) is LabelIndex
    assert other is not index
    assert other.get_params() == index.get_params()
    with pytest.raises(NotFitted):
        len(base.clone(LabelIndex(RECIPE).fit(X, Y, threads=1)))


def test_pipelines_of_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    pipeline = clone(make_pipeline(Normalizer(), LabelIndex(RECIPE)))
    assert not pipeline.__sklearn_is_fitted__()
    pipeline.set_params(labelindex__ranker=True).fit(X, numbers_of(Y))
    assert pipeline.__sklearn_is_fitted__()
    assert pipeline.predict(X[:5], k=3).labels.shape == (5, 3)


def test_properties(index: LabelIndex) -> None:
    assert index.dim == X.shape[1]
    assert index.dtype == np.float32
    assert index.rows == X.shape[0]
    for name in ("dim", "counts", "defaults", "tuned"):
        with pytest.raises(NotFitted):
            getattr(LabelIndex(), name)


def test_html(index: LabelIndex, pets: LabelIndex) -> None:
    from xml.etree import ElementTree

    for shown in (index, pets, LabelIndex()):
        root = ElementTree.fromstring(shown._repr_html_().replace("<br>", "<br/>"))
        assert root.findtext("strong") == "LabelIndex"
    text = index._repr_html_()
    assert f"{LABELS} without names" in text
    assert "<svg" in text
    assert "not fitted" in LabelIndex()._repr_html_()
    sharded = ShardedLabelIndex(RECIPE, shards=2)
    assert "not fitted" in sharded._repr_html_()
    assert f"{LABELS} without names" in sharded.fit(X, Y, threads=1)._repr_html_()
