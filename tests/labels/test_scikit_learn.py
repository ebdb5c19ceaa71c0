"""Those who come from scikit-learn find what they know: classes, scores, pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from plantedlabels import labelled, small_labels

from irli import LabelIndex
from irli.errors import InvalidParameter, NotFitted
from irli.labels.metrics import precision

pytest.importorskip("sklearn")
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

LABELS = 57
X, Y = labelled(400, LABELS)
RECIPE = small_labels(buckets=8, epochs=1)


@pytest.fixture(scope="module", params=[True, False], ids=["ranker", "index alone"])
def index(request: pytest.FixtureRequest) -> LabelIndex:
    return LabelIndex(RECIPE, ranker=request.param).fit(X, Y, threads=1)


def stored(matrix: Any, labels: Any) -> Any:
    """The values of the labels found, in the order of `predict`."""
    return matrix.toarray()[np.arange(len(labels))[:, None], labels]


def test_probabilities_are_those_of_the_best_labels(index: LabelIndex) -> None:
    found = index.predict(X, k=3)
    likely = index.predict_proba(X, k=3)
    assert likely.shape == (400, LABELS)
    assert likely.dtype == np.float32
    assert likely.has_canonical_format
    assert ((likely.data > 0) & (likely.data <= 1)).all()
    assert likely.nnz == found.counts.sum() == 1200
    values = stored(likely, found.labels)
    assert (np.diff(values, axis=1) <= 0).all()
    np.testing.assert_array_equal(values, found.scores)
    alone = index.predict_proba(X, k=3, ranker=False)
    assert ((alone.data > 0) & (alone.data <= 1)).all()


def test_decisions_are_log_odds(index: LabelIndex) -> None:
    found = index.predict(X, k=4)
    decided = index.decision_function(X, k=4)
    assert decided.nnz == 1600
    odds = stored(decided, found.labels)
    assert (np.diff(odds, axis=1) <= 0).all()
    np.testing.assert_allclose(1 / (1 + np.exp(-odds)), found.scores, rtol=1e-5)


def test_short_answers_have_fewer_entries(index: LabelIndex) -> None:
    likely = index.predict_proba(X[:2], k=LABELS + 9, probes=1)
    counts = index.predict(X[:2], k=LABELS + 9, probes=1).counts
    assert np.diff(likely.indptr).tolist() == counts.tolist()
    assert counts.max() < LABELS + 9
    assert np.isfinite(likely.data).all()
    assert index.predict_proba(X[:0]).shape == (0, LABELS)
    one = index.predict_proba(X[:1].toarray()[0])
    np.testing.assert_array_equal(one.toarray(), index.predict_proba(X[:1]).toarray())


def test_classes_are_numbers_or_names(index: LabelIndex) -> None:
    assert index.classes_.tolist() == list(range(LABELS))
    texts = [f"{pet} {i}" for pet in ("cat", "dog") for i in range(6)]
    pets = LabelIndex().fit_text(texts, [[text.split()[0]] for text in texts], threads=1)
    assert pets.classes_.tolist() == ["cat", "dog"]
    best = pets.predict_proba(pets.features(["a dog"]), k=1)
    assert pets.classes_[best.indices].tolist() == ["dog"]
    for ask in (lambda: LabelIndex().classes_, lambda: LabelIndex().predict_proba(X)):
        with pytest.raises(NotFitted):
            ask()


def test_what_is_not_fitted_has_no_classes() -> None:
    assert not hasattr(LabelIndex(), "classes_")


def test_a_misspelt_argument_is_found(index: LabelIndex) -> None:
    with pytest.raises(TypeError, match=r"'treshold'\. Did you mean 'threshold'"):
        index.predict(X, treshold=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"decision_function\(\) got .* 'threshold'"):
        index.decision_function(X, threshold=0.5)


def test_the_score_is_precision(index: LabelIndex) -> None:
    expected = precision(index.predict(X, 1).labels, Y, 1)
    assert index.score(X, Y) == expected
    assert index.score(X, Y.toarray() > 0) == expected
    with pytest.raises(InvalidParameter):
        index.score(X, Y[:9])


def test_pipelines_and_cross_validation() -> None:
    pipeline = make_pipeline(Normalizer(), LabelIndex(RECIPE, ranker=False))
    dense = Y.toarray() > 0  # scikit-learn's cross_val_score refuses sparse labels
    scores = cross_val_score(pipeline, X, dense, cv=2)
    assert scores.shape == (2,)
    assert ((scores >= 0) & (scores <= 1)).all()
    again = cross_val_score(pipeline, sp.csr_matrix(X), dense.tolist(), cv=2)
    np.testing.assert_array_equal(scores, again)
    pipeline.fit(X, Y)
    assert pipeline.score(X, Y) == pipeline[-1].score(Normalizer().transform(X), Y)
    assert pipeline.classes_.tolist() == list(range(LABELS))
    assert pipeline.predict_proba(X).shape == pipeline.decision_function(X).shape == Y.shape


def test_settings_can_be_searched() -> None:
    search = GridSearchCV(LabelIndex(RECIPE), {"ranker": [False, True]}, cv=2).fit(X, Y)
    assert set(search.best_params_) == {"ranker"}
    assert search.predict_proba(X[:2]).nnz == 10
