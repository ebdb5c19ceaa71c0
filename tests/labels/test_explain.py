"""Explanations agree with predictions, add up, and name what was planted."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from plantedlabels import labelled, small_labels

from irli import IrliWarning, LabelIndex, NotFitted
from irli.labels.build.assemble import add_near_rows, read_partitions, read_routers
from irli.labels.build.features import hash_features
from irli.labels.explain import route_row
from irli.labels.learned import Learned
from irli.labels.ranking.near_rows import NearRows

LABELS = 12
X, Y = labelled(360, LABELS)


@pytest.fixture(scope="module")
def fitted() -> LabelIndex:
    """An index with three sources, of which no one knows everything."""
    recipe = small_labels(buckets=4, epochs=10)
    index = LabelIndex(recipe, ranker=True).fit(X, Y, threads=1)
    contents = index._fitted().contents
    model = contents.model
    layout = add_near_rows(model.layout, NearRows.pack(sp.csr_array(model.scaling.apply(X)), Y))
    calibration = model.calibration._replace(by_margin=1.0, by_score=0.3, by_votes=0.5, own=True)
    parameters = model.parameters.replace(near=20, probes=2, candidates=5)
    model = model._replace(layout=layout, calibration=calibration, parameters=parameters)
    index._learned = Learned.of(dataclasses.replace(contents, model=model))
    return index


WAYS: list[dict[str, Any]] = [
    {},
    {"ranker": False},
    {"near": 0},
    {"probes": 1, "candidates": 1},
    {"score": "probability", "min_votes": 2},
]


@pytest.mark.parametrize("way", WAYS)
def test_it_agrees_with_predict_and_adds_up(fitted: LabelIndex, way: dict[str, Any]) -> None:
    rows = X[:20]
    found = fitted.predict(rows, 8, **way)
    odds = fitted.decision_function(rows, 8, **way)
    explained = fitted.explain(rows, 8, **way)
    assert len(explained) == 20
    for row, told in enumerate(explained):
        labels = [each.label for each in told.labels]
        assert labels == [label for label in found.labels[row].tolist() if label >= 0]
        for place, each in enumerate(told.labels):
            assert each.probability == found.scores[row, place]
            np.testing.assert_allclose(each.log_odds, odds[row, each.label], rtol=1e-6)
            parts = each.from_routers + each.from_ranker + each.from_near_rows + each.constant
            whole = parts + each.from_curve
            np.testing.assert_allclose(whole, each.log_odds, rtol=1e-4, atol=1e-4)


def test_words_add_up_to_the_margin(fitted: LabelIndex) -> None:
    for told in fitted.explain(X[:20], 6):
        for each in told.labels:
            total = each.bias + sum(word.effect for word in each.words)
            np.testing.assert_allclose(total, each.margin, rtol=1e-4, atol=1e-4)
            effects = [abs(word.effect) for word in each.words]
            assert effects == sorted(effects, reverse=True)


def test_the_planted_features_speak_for_the_label(fitted: LabelIndex) -> None:
    for row, told in enumerate(fitted.explain(X[:30], 1)):
        best = told.labels[0]
        assert best.label in Y[[row]].indices
        assert best.words[0].feature // 3 == best.label  # three features speak for each label
        assert best.words[0].effect > 0
        assert best.words[0].word == str(best.words[0].feature)


def test_near_rows_carry_the_label_and_their_votes_add_up(fitted: LabelIndex) -> None:
    for told in fitted.explain(X[:20], 6):
        for each in told.labels:
            assert all(Y[near.row, each.label] for near in each.near)
            assert [near.cosine for near in each.near] == sorted(
                (near.cosine for near in each.near), reverse=True
            )
            votes = sum(near.cosine**2 for near in each.near)
            np.testing.assert_allclose(votes, each.votes, rtol=1e-3, atol=1e-4)
    assert fitted.explain(X[3], 1).labels[0].near[0].row == 3  # the row itself is known


def test_buckets_are_those_of_the_partitions(fitted: LabelIndex) -> None:
    contents = fitted._fitted().contents
    layout = contents.model.layout
    partitions, routers = read_partitions(layout), read_routers(layout)
    routed = hash_features(contents.model.scaling.apply(X[:10]), contents.recipe)
    for row, told in enumerate(fitted.explain(X[:10], 6)):
        likely = [np.exp(router.log_probabilities(routed[[row]]))[0] for router in routers]
        for each in told.labels:
            assert [way.repetition for way in each.buckets] == [0, 1]
            for way in each.buckets:
                assert way.bucket in partitions[way.repetition].assignment[each.label]
                right = likely[way.repetition][way.bucket]
                np.testing.assert_allclose(way.probability, right, atol=0.02)
                assert way.probed == (way.rank <= 2)


def test_the_score_is_that_of_the_buckets(fitted: LabelIndex) -> None:
    """With all buckets probed, a score is the mean log-probability of its buckets, and a prior."""
    layout = fitted._fitted().contents.model.layout
    told = fitted.explain(X[:10], 6, probes=4, candidates=12, score="log-probability")
    for each in (label for row in told for label in row.labels):
        mean = np.mean([np.log(way.probability) for way in each.buckets])
        np.testing.assert_allclose(mean + layout.prior[each.label], each.score, atol=2e-3)


def test_probabilities_of_buckets_add_up(fitted: LabelIndex) -> None:
    contents = fitted._fitted().contents
    rows = hash_features(contents.model.scaling.apply(X), contents.recipe)
    for row in range(5):
        likely = np.exp(route_row(contents.model.layout, rows[[row]]))
        np.testing.assert_allclose(likely.sum(axis=1), 1, rtol=1e-6)


def test_a_single_row_has_one_explanation(fitted: LabelIndex) -> None:
    told = fitted.explain(X[[0]].toarray()[0], 2)
    assert [each.label for each in told.labels] == fitted.predict(X[[0]], 2).labels[0].tolist()
    assert fitted.explain(X[:0], 2) == []
    text = str(told)
    for word in ("log-odds", "for", "margin", "near rows", "buckets", "routers", "constant"):
        assert word in text
    assert "<table" in told._repr_html_()


def test_an_index_alone() -> None:
    index = LabelIndex(small_labels(buckets=4), ranker=False).fit(X, Y, threads=1)
    told = index.explain(X[:5], LABELS)
    for row, one in enumerate(told):
        found = index.predict(X[row : row + 1], LABELS)
        assert [each.label for each in one.labels] == found.labels[0].tolist()
        assert not any(each.words or each.near or each.margin for each in one.labels)
    assert "for" not in told[0].labels[0].facts()


def test_texts() -> None:
    pets = ("cat", "dog", "bird")
    texts = [f"the {pet} {verb}" for pet in pets for verb in ("eats", "naps", "plays", "sits")] * 4
    lists = [[text.split()[1]] for text in texts]
    titles = {"cat": "Felis"}
    index = LabelIndex(small_labels(buckets=3), ranker=True)
    index.fit_text(texts, lists, titles=titles, threads=1)
    best = index.explain_text("My cat sits", 1).labels[0]
    assert best.name == "Felis"
    assert best.words[0].word == "cat"
    assert best.words[0].effect > 0
    with pytest.warns(IrliWarning, match="1 of 2 texts have no word that the index knows"):
        several = index.explain_text(["a bird", "xyz"], 1)
    assert several[0].labels[0].name == "bird"
    assert several[1].labels == []
    assert str(several[1]) == "no label was found"
    assert index.explain_text([]) == []


def test_it_needs_texts_or_a_fit(fitted: LabelIndex) -> None:
    with pytest.raises(NotFitted, match="not fitted"):
        LabelIndex().explain(X)
    with pytest.raises(NotFitted, match="cannot read texts"):
        copy.copy(fitted).explain_text("a")
