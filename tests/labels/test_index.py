"""LabelIndex: what it promises, in memory, mapped and read."""

from __future__ import annotations

import json
import logging
import re
import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from folders import read_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from plantedlabels import Labelled, labelled, small_labels, small_paper_labels

import irli
from irli import LabelIndex, Prediction, Recipe
from irli.base.folder import write_folder
from irli.base.sparse import as_labels, as_rows, count_labels
from irli.labels import predictor as predictor_module
from irli.labels.build.assemble import assemble_labels, read_routers
from irli.labels.build.features import hash_features
from irli.labels.build.problem import make_label_problem, row_keys
from irli.labels.contents import LabelContents, pack_labels
from irli.labels.metrics import precision
from irli.labels.parameters import SCORES
from irli.labels.predictor import Predictor
from irli.labels.tuning.tune import RankingOptions, tune_labels
from irli.learning import learn, runs
from irli.learning.options import LearnOptions
from irli.learning.repetition import join_histories

LABELS = 24
EXAMPLE = Path(__file__).parents[2] / "examples" / "query_log.py"

RECIPES: dict[str, Recipe] = {
    "labels": small_labels(epochs=6),
    "own trunks": small_paper_labels(epochs=12, search="threshold"),
    # For few rows: smaller steps, and not too few of them.
    "one-per-item": irli.recipe(
        "labels", hidden=1024, batch_size=100, learning_rate=1.9e-3, epochs=25
    ),
    "hashed": small_labels(features=64, epochs=6),  # the rows have 112
}


def data(rows: int = 500, seed: int = 0) -> Labelled:
    return labelled(rows, LABELS, seed=seed)


def fit(recipe: Recipe | None = None, ranker: bool | None = None, rows: Any = None) -> LabelIndex:
    X, Y = rows or data()
    return LabelIndex(recipe or small_labels(), ranker=ranker).fit(X, Y, threads=1)


def same(one: Prediction, other: Prediction) -> None:
    """Identical answers, to the bit."""
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.scores, other.scores)


def arrays(index: LabelIndex) -> dict[str, NDArray[Any]]:
    layout = index._fitted().predictor.layout._asdict()
    return {name: value for name, value in layout.items() if hasattr(value, "dtype")}


class Made:
    """The indexes that many tests share, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[tuple[str, str], LabelIndex] = {}

    def __call__(self, recipe: str, form: str = "memory") -> LabelIndex:
        key = (recipe, form)
        if key not in self.made:
            if form == "memory":
                self.made[key] = fit(RECIPES[recipe], ranker=recipe != "own trunks")
            else:
                path = self.folder / recipe
                if not path.exists():
                    self(recipe).save(path)
                self.made[key] = irli.load(path, mmap=form == "mapped")
        return self.made[key]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("labels"))


# Every recipe, and every form: what differs in code.
KINDS = [
    ("labels", "memory"),
    ("own trunks", "mapped"),
    ("one-per-item", "mapped"),
    ("hashed", "read"),
]


@pytest.fixture(params=KINDS, ids="-".join)
def index(request: pytest.FixtureRequest, made: Made) -> LabelIndex:
    return made(*request.param)


PLANS: list[dict[str, Any]] = [
    {},
    {"probes": 1},
    {"probes": 3, "candidates": 4},
    {"probes": 1000},
    {"ranker": False},
    *({"score": score, "probes": 3} for score in SCORES),
]


# --- predicting ------------------------------------------------------------------------------


def test_planted_labels_are_found(index: LabelIndex) -> None:
    X, Y = labelled(200, LABELS, seed=9)  # fresh rows of the same making
    found = index.predict(X, k=5)
    floor = 0.2 if index.calibration.by_margin == 0 else 0.95  # by chance, a sixteenth
    assert precision(found.labels, Y, 1) > floor


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_answers(index: LabelIndex, plan: dict[str, Any]) -> None:
    X = data().X[:37]
    scores, labels = index.predict(X, k=6, **plan)
    assert scores.shape == labels.shape == (37, 6)
    assert scores.dtype == np.float32
    assert labels.dtype == np.int64
    assert ((labels >= -1) & (labels < LABELS)).all()
    there = labels >= 0
    assert ((scores[there] > 0) & (scores[there] <= 1)).all()
    assert (scores[~there] == 0).all()
    assert (np.diff(there.astype(int), axis=1) <= 0).all()  # padding comes last
    assert (scores[:, 1:] <= scores[:, :-1]).all()
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in labels)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_one_by_one_in_batches_and_on_threads(index: LabelIndex, plan: dict[str, Any]) -> None:
    X = data().X[:37]
    batch = index.predict(X, k=6, **plan)
    same(index.predict(X, k=6, threads=3, **plan), batch)
    for row in (0, 7, 8, 36):
        one = index.predict(X[[row]], k=6, **plan)
        single = index.predict(X[[row]].toarray()[0], k=6, **plan)
        assert single.labels.shape == single.scores.shape == (6,)
        same(single, Prediction(one.scores[0], one.labels[0]))
        same(one, Prediction(batch.scores[[row]], batch.labels[[row]]))


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_threads_share_the_repetitions_of_a_single_row(
    index: LabelIndex, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of threads gives the same bits, with one trunk and with one for each network."""
    predictor, asked = index._fitted().predictor, []
    real = Predictor._route_on_threads

    def watched(self: Predictor, row: Any, threads: int) -> Any:
        asked.append(threads)
        return real(self, row, threads)

    monkeypatch.setattr(Predictor, "_route_on_threads", watched)
    for row in data().X[:3].toarray():
        monkeypatch.setattr(predictor, "is_slow_to_route", False)
        right = index.predict(row, k=6, threads=3, **plan)
        monkeypatch.setattr(predictor, "is_slow_to_route", True)
        for threads in (1, 2, 3, 8):
            same(index.predict(row, k=6, threads=threads, **plan), right)
    assert asked == [2, 3, 8] * 3


def test_only_slow_routers_share_their_repetitions(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handing work to a thread takes longer than routing by small networks."""
    layout = made("own trunks")._fitted().predictor.layout
    assert not Predictor(layout).is_slow_to_route
    monkeypatch.setattr(predictor_module, "_SLOW", layout.out.size)
    assert Predictor(layout).is_slow_to_route
    one = layout._replace(bias=layout.bias[:1])  # a single repetition cannot be shared
    monkeypatch.setattr(predictor_module, "LabelPredictor", lambda layout: None)
    assert not Predictor(one).is_slow_to_route


def test_from_many_threads_at_once(index: LabelIndex) -> None:
    X = data().X[:60]
    right = index.predict(X, k=6, threads=1)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: index.predict(X, k=6, threads=2), range(8)):
            same(found, right)


def test_dense_rows_are_the_sparse_ones(index: LabelIndex) -> None:
    X = data().X[:20]
    right = index.predict(X, k=4)
    for other in (X.toarray(), X.toarray().astype(np.float64), X.tocsc(), sp.coo_matrix(X)):
        same(index.predict(other, k=4), right)
    same(index.predict(X.toarray().tolist(), k=4), right)


def test_more_k_than_labels(index: LabelIndex) -> None:
    X = data().X[:10]
    found = index.predict(X, k=LABELS + 5, probes=1000)
    assert (np.sort(found.labels[:, :LABELS], axis=1) == np.arange(LABELS)).all()
    assert (found.labels[:, LABELS:] == -1).all()
    assert (found.scores[:, LABELS:] == 0).all()


def test_few_probes_find_few_labels(made: Made) -> None:
    index = made("own trunks")
    found = index.predict(data().X, k=LABELS, probes=1)
    counts = (found.labels >= 0).sum(axis=1)
    most = sum(int(part.max()) for part in index.loads())
    assert counts.max() <= most < LABELS
    np.testing.assert_array_equal(found.scores == 0, found.labels == -1)


def test_rows_without_features(index: LabelIndex) -> None:
    found = index.predict(sp.csr_array((3, index.stats()["dim"])), k=3)
    assert (found.labels == found.labels[0]).all()
    assert (found.labels >= 0).all()


def test_scores_are_probabilities(made: Made) -> None:
    """Above a half means more likely than not: the planted rows leave little doubt."""
    X, Y = labelled(300, LABELS, seed=9)
    found = made("labels").predict(X, k=6)
    right = np.take_along_axis(Y.toarray(), found.labels, axis=1) > 0
    assert right[found.scores > 0.5].mean() > 0.95
    assert right[found.scores < 0.5].mean() < 0.05


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_log_odds_and_probabilities_agree(index: LabelIndex, plan: dict[str, Any]) -> None:
    X = data().X[:37]
    found = index.predict(X, k=6, **plan)
    odds, likely = index.decision_function(X, k=6, **plan), index.predict_proba(X, k=6, **plan)
    for matrix in (odds, likely):
        assert matrix.shape == (37, LABELS)
        assert matrix.nnz == found.counts.sum()
    np.testing.assert_allclose(likely.data, 1 / (1 + np.exp(-odds.data)), rtol=1e-5)
    for row, (scores, labels) in enumerate(zip(*found, strict=True)):
        there = labels >= 0
        np.testing.assert_array_equal(likely.toarray()[row, labels[there]], scores[there])


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.9, 1.0])
def test_a_threshold_leaves_out_what_is_less_probable(index: LabelIndex, threshold: float) -> None:
    X = data().X[:37]
    every, likely = index.predict(X, k=6), index.predict(X, k=6, threshold=threshold)
    kept = every.scores >= threshold
    np.testing.assert_array_equal(likely.labels, np.where(kept, every.labels, -1))
    np.testing.assert_array_equal(likely.scores, np.where(kept, every.scores, 0))
    np.testing.assert_array_equal(likely.counts, (kept & (every.labels >= 0)).sum(axis=1))
    single = index.predict(X[[0]].toarray()[0], k=6, threshold=threshold)
    same(single, Prediction(likely.scores[0], likely.labels[0]))
    proba = index.predict_proba(X, k=6, threshold=threshold)
    assert proba.nnz == likely.counts.sum()


@pytest.mark.parametrize("threshold", [-0.1, 1.1, np.nan, "much"])
def test_a_threshold_is_a_probability(made: Made, threshold: Any) -> None:
    with pytest.raises(irli.errors.InvalidParameter, match=r"'threshold' parameter of predict"):
        made("labels").predict(data().X[:2], threshold=threshold)


def test_predicting_changes_nothing(index: LabelIndex) -> None:
    X = data().X[:20]
    before = X.copy()
    found = index.predict(X, k=4)
    kept = Prediction(found.scores.copy(), found.labels.copy())
    found.scores[:], found.labels[:] = 0, 0
    same(index.predict(X, k=4), kept)
    assert (before != X).nnz == 0


# --- learning --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["labels", "own trunks"])
def test_same_seed_same_index(name: str, made: Made) -> None:
    again = fit(RECIPES[name], ranker=name != "own trunks")
    for key, value in arrays(made(name)).items():
        np.testing.assert_array_equal(arrays(again)[key], value, err_msg=key)
    assert again.history == made(name).history
    assert again.defaults == made(name).defaults


def test_another_seed_another_index(made: Made) -> None:
    other = arrays(fit(small_labels(seed=1), ranker=True))
    assert not np.array_equal(other["project"], arrays(made("labels"))["project"])


def test_dense_and_sparse_rows_both_learn() -> None:
    X, Y = data()
    index = fit(small_labels(epochs=6), rows=(X.toarray(), Y))
    assert precision(index.predict(X, k=1).labels, Y, 1) > 0.9


def test_a_ranker_as_asked(made: Made) -> None:
    X = data().X[:30]
    without, with_one = fit(ranker=False), made("labels")
    assert without.stats()["ranker_weights"] == 0 < with_one.stats()["ranker_weights"]
    assert "without ranker" in repr(without)
    assert "with ranker" in repr(with_one)
    same(without.predict(X), without.predict(X, ranker=False))
    assert not np.array_equal(with_one.predict(X).scores, with_one.predict(X, ranker=False).scores)


def test_by_default_a_ranker_that_helps_is_kept() -> None:
    """With next to no training of the routers, the classifiers know better."""
    assert fit(small_labels(epochs=1, repetitions=1, hidden=2)).calibration.is_blended


def test_rows_without_labels_teach_nothing() -> None:
    X, Y = data(300)
    strangers = labelled(60, LABELS, seed=5).X
    nothing = sp.csr_array((60, LABELS), dtype=np.float32)
    both = Labelled(sp.csr_array(sp.vstack([X, strangers])), sp.csr_array(sp.vstack([Y, nothing])))
    index = fit(rows=both)
    assert precision(index.predict(X, k=1).labels, Y, 1) > 0.9


@pytest.mark.parametrize("recipe", RECIPES)
def test_labels_never_seen_are_kept_and_found(recipe: str) -> None:
    """They are in a bucket, even if nothing speaks for them."""
    X, Y = data(300)
    carried = Y.toarray()
    carried[:, [0, 11, LABELS - 1]] = 0
    index = fit(RECIPES[recipe], rows=(X, sp.csr_array(carried)))
    assert len(index) == LABELS
    for part in index.loads():
        assert part.sum() == LABELS
    found = index.predict(X[:20], k=LABELS, probes=1000)
    assert (np.sort(found.labels, axis=1) == np.arange(LABELS)).all()


@pytest.mark.parametrize("rows", [1, 2, 19, 25])
def test_few_rows(rows: int) -> None:
    X, Y = data(rows)
    index = fit(rows=(X, Y))
    found = index.predict(X, k=LABELS, probes=1000).labels
    assert all((row == own).any() for own in Y.indices[Y.indptr[:-1]] for row in found)


def test_a_single_label() -> None:
    X, _ = data(50)
    index = fit(irli.recipe("labels", epochs=1), rows=(X, np.ones((50, 1))))
    assert (index.predict(X, k=2).labels == [0, -1]).all()


def test_rows_that_are_all_alike() -> None:
    X = sp.csr_array(np.tile(data(1).X.toarray(), (60, 1)))
    Y = np.eye(LABELS)[np.arange(60) % 3]
    index = fit(rows=(X, Y))
    assert set(index.predict(X[[0]], k=3).labels[0]) == {0, 1, 2}


def test_no_features_at_all() -> None:
    X = sp.csr_array((60, 5), dtype=np.float32)
    Y = np.eye(LABELS)[np.where(np.arange(60) % 4, 7, np.arange(60) % LABELS)]
    assert (fit(rows=(X, Y)).predict(X, k=1).labels == 7).all()


@pytest.mark.parametrize("repetitions", [1, 2])
def test_no_bucket_exceeds_the_bound(repetitions: int) -> None:
    X, Y = labelled(300, 100)
    settings = small_labels(repetitions=repetitions, epochs=4, buckets=16)
    index = fit(settings, rows=(X, Y))
    for part in index.loads():
        assert part.sum() == 100
        assert part.max() <= np.ceil(settings.slack * 100 / 16)


def test_fit_neither_changes_nor_keeps_the_caller_s_arrays() -> None:
    for dense in (False, True):
        X, Y = data(200)
        rows = X.toarray() if dense else X.copy()
        labels = Y.copy()
        index = fit(rows=(rows, labels))
        right = index.predict(X, k=3)
        assert np.array_equal(rows if dense else rows.toarray(), X.toarray())
        assert (labels != Y).nnz == 0
        (rows if dense else rows.data)[:] = 7
        labels.data[:] = 0
        same(index.predict(X, k=3), right)


def test_fit_again_on_other_labels() -> None:
    index = LabelIndex(irli.recipe("labels", epochs=1))
    for labels in (30, 10):
        X, Y = labelled(60, labels)
        assert index.fit(X, Y, threads=1) is index
        assert len(index) == labels
        assert index.recipe.buckets == labels  # chosen anew


@pytest.mark.parametrize("dense", [False, True])
def test_hashing_folds_features(dense: bool) -> None:
    X = data().X
    rows = X.toarray() if dense else X.copy()
    assert hash_features(rows, small_labels(features=X.shape[1])) is rows
    assert hash_features(rows, small_labels(features=0)) is rows
    recipe = small_labels(features=64)
    folded = hash_features(rows, recipe)
    assert folded.shape == (X.shape[0], 64)
    np.testing.assert_allclose(folded.sum(axis=1), X.sum(axis=1), rtol=1e-5)
    assert not np.abs(rows - X).max()
    same_feature = sp.csr_array((np.ones(2, "f4"), ([0, 1], [90, 90])), shape=(2, 112))
    assert (np.diff(hash_features(same_feature, recipe).indices) == 0).all()


def test_a_checkpoint_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = data(200)
    one = LabelIndex(small_labels()).fit(X, Y, threads=1, checkpoint=tmp_path)
    monkeypatch.setattr(runs, "learn_repetitions", None)  # nothing is learned again
    two = LabelIndex(small_labels()).fit(X, Y, threads=1, checkpoint=tmp_path)
    same(one.predict(X), two.predict(X))
    assert one.history == two.history


# --- phases ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["labels", "own trunks", "hashed"])
def test_the_phases_by_hand_are_fit(name: str, made: Made, tmp_path: Path) -> None:
    index, recipe = made(name), RECIPES[name].resolve_for_labels(LABELS)
    index.save(tmp_path / "fit")
    rows, labels = as_rows(data().X), as_labels(data().Y, data().X.shape[0])
    ranking = RankingOptions(ranker=name != "own trunks")

    problem = make_label_problem(rows, labels, recipe)
    repetitions = learn(problem.problem, recipe, LearnOptions(threads=1))
    layout = assemble_labels(repetitions, count_labels(labels))
    model = tune_labels(layout, rows, labels, problem, recipe, ranking, threads=1)
    contents = LabelContents(
        recipe=recipe,
        model=model,
        history=[*join_histories(repetitions), *model.trials],
        rows=rows.shape[0],
        dim=rows.shape[1],
        counts=count_labels(labels),
        trained=problem.trained,
        seen=np.unique(problem.seen),
        ranking=ranking,
    )
    write_folder(tmp_path / "hand", pack_labels(contents))

    assert read_files(tmp_path / "hand") == read_files(tmp_path / "fit")


def test_fit_logs_its_phases(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="irli"):
        fit(small_labels(epochs=2), ranker=False)
    said = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"problem: 24 labels, \d+ training rows, \d+ held out", said[0])
    assert [text.split(":")[0] for text in said[1:5]] == [
        f"repetition {number}, epoch {epoch}" for epoch in (1, 2) for number in (1, 2)
    ]
    assert said[5] == "assembled: 48 entries of 24 labels"
    tried = [text.split(":")[0] for text in said[6:-1]]
    assert tried[0] == "score log-probability"
    assert tried[-1] == "probes of the index 8"
    assert re.fullmatch(r"tuned: LabelParameters\(.*\), without ranker", said[-1])
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="irli"):
        fit(small_labels(epochs=1), ranker=True)
    assert caplog.records[-1].getMessage().endswith(", with ranker")


def test_minus_one_is_a_thread_for_each_core() -> None:
    X, Y = data(100)
    index = LabelIndex(small_labels(epochs=1)).fit(X, Y, threads=-1)
    index.fit(X, Y, threads=-1, start=index)
    index.add_labels(X[:9], np.ones((9, 1)), threads=-1)
    assert len(index) == LABELS + 1
    same(index.predict(X, threads=-1), index.predict(X, threads=1))
    texts = LabelIndex(small_labels(buckets=2, epochs=1))
    texts.fit_text(["a cat", "a dog"] * 6, [["cat"], ["dog"]] * 6, threads=-1)
    assert texts.predict_text(["cat"], 1, threads=-1)[0][0][0] == "cat"


# --- looking ---------------------------------------------------------------------------------


def test_len_repr_stats_and_loads(index: LabelIndex) -> None:
    stats, loads = index.stats(), index.loads()
    repetitions, buckets = index.recipe.repetitions, index.recipe.buckets
    assert len(index) == stats["items"] == LABELS
    assert stats["kind"] == "labels"
    assert stats["dim"] == data().X.shape[1]
    assert stats["repetitions"] == repetitions == len(loads) == len(stats["loads"])
    assert stats["buckets"] == buckets
    assert stats["entries"] == sum(int(part.sum()) for part in loads) == repetitions * LABELS
    for part, summary in zip(loads, stats["loads"], strict=True):
        assert part.shape == (buckets,)
        assert summary["max"] == part.max()
    assert json.loads(json.dumps(stats)) == stats
    assert f"{LABELS} labels, {repetitions} x {buckets} buckets" in repr(index)
    assert repr(LabelIndex()) == "LabelIndex(recipe='labels', not fitted)"


def test_history(made: Made) -> None:
    history = [entry for entry in made("labels").history if "choice" not in entry]
    assert {entry["repetition"] for entry in history} == {0, 1}
    for r in (0, 1):
        rounds = [entry for entry in history if entry["repetition"] == r]
        assert [entry["epoch"] for entry in rounds] == list(range(1, 7))
        assert rounds[-1]["loss"] < rounds[0]["loss"]
        assert rounds[-1]["recall"] >= rounds[0]["recall"]


def test_history_ends_with_what_was_tried(made: Made) -> None:
    index = made("labels")
    history = index.history
    tried = [entry for entry in history if "choice" in entry]
    assert history[-len(tried) :] == tried
    assert all(set(entry) == {"choice", "tried", "quality"} for entry in tried)
    assert all(0 <= entry["quality"] <= 1 for entry in tried)
    values = {
        choice: [entry["tried"] for entry in tried if entry["choice"] == choice]
        for choice in dict.fromkeys(entry["choice"] for entry in tried)
    }
    assert {"sources", "pruning"} <= set(values)
    assert index.defaults.probes <= max(values["probes of the index"])
    assert f"near={index.defaults.near}" in values["sources"]
    assert values["ranker"] == ["index alone", "blended"]
    alone = [entry["choice"] for entry in made("own trunks").history if "choice" in entry]
    assert set(alone) == {"score", "probes of the index"}  # it has no ranker


def test_heads_share_their_trunk(made: Made) -> None:
    assert len(made("labels")._fitted().predictor.layout.project) == 1
    assert len(made("own trunks")._fitted().predictor.layout.project) == 2
    assert made("hashed")._fitted().predictor.layout.project.shape[1] == 64


# --- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "form"), [*((name, "mapped") for name in RECIPES), ("labels", "read")]
)
def test_loaded_answers_are_those_of_the_original(recipe: str, form: str, made: Made) -> None:
    index, original = made(recipe, form), made(recipe)
    assert index is not original
    X = data().X[:50]
    for plan in PLANS:
        same(index.predict(X, k=7, **plan), original.predict(X, k=7, **plan))
    assert index.stats() == original.stats()
    assert index.history == original.history
    assert index.defaults == original.defaults
    assert index.calibration == original.calibration
    assert index.recipe == original.recipe
    for part, right in zip(index.loads(), original.loads(), strict=True):
        np.testing.assert_array_equal(part, right)


@pytest.mark.parametrize("mmap", [True, False])
def test_load(mmap: bool, made: Made, tmp_path: Path) -> None:
    index = made("labels")
    index.save(tmp_path / "index")
    again = LabelIndex.load(tmp_path / "index", mmap=mmap)
    same(again.predict(data().X), index.predict(data().X))
    weights = next((tmp_path / "index").glob("weights.*"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(irli.errors.FormatError, match="checksum"):
        LabelIndex.load(tmp_path / "index")
    assert len(LabelIndex.load(tmp_path / "index", verify=False)) == LABELS


def test_save_over_an_index_and_load_again(index: LabelIndex, tmp_path: Path) -> None:
    X = data().X[:30]
    for _ in range(2):
        index.save(tmp_path / "index")
        again = irli.load(tmp_path / "index")
        assert isinstance(again, LabelIndex)
        same(again.predict(X), index.predict(X))


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 60),
    labels=st.integers(1, 12),
    dense=st.booleans(),
    ranker=st.sampled_from([None, False, True]),
)
def test_any_index_survives_its_folder(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    rows: int,
    labels: int,
    dense: bool,
    ranker: bool | None,
) -> None:
    X, Y = labelled(rows, labels, most=1, seed=seed)
    recipe = small_labels(epochs=1, buckets=min(labels, 3), seed=seed)
    index = fit(recipe, ranker, rows=(X.toarray() if dense else X, Y))
    path = tmp_path_factory.mktemp("any") / "index"
    index.save(path)
    for mmap in (True, False):
        again = irli.load(path, mmap=mmap)
        same(again.predict(X, k=4), index.predict(X, k=4))
        assert again.stats() == index.stats()


# --- growing ---------------------------------------------------------------------------------


def halves() -> tuple[Labelled, Labelled]:
    """Rows of the first labels only, and rows of the others, with columns for those alone."""
    X, Y = labelled(700, LABELS, most=1)
    old = np.asarray(Y[:, : LABELS - 4].sum(axis=1)) > 0
    new = np.asarray(Y[:, LABELS - 4 :].sum(axis=1)) > 0
    first = Labelled(X[old & ~new], Y[old & ~new][:, : LABELS - 4])
    return first, Labelled(X[new], Y[new][:, LABELS - 4 :])


@pytest.mark.parametrize("form", ["memory", "mapped"])
@pytest.mark.parametrize("ranker", [False, True])
@pytest.mark.parametrize(
    "settings", [small_labels(epochs=5), RECIPES["one-per-item"]], ids=["8", "one-per-item"]
)
def test_add_labels(form: str, ranker: bool, settings: Recipe, tmp_path: Path) -> None:
    old, new = halves()
    index = fit(settings, ranker, rows=old)
    before, trunks = index.predict(old.X, k=1), index._fitted().predictor.layout.project.shape
    if form == "mapped":
        index.save(tmp_path / "index")
        index = irli.load(tmp_path / "index")
    assert index.add_labels(new.X, new.Y, threads=1) is index
    assert len(index) == LABELS
    assert index._fitted().predictor.layout.project.shape == trunks  # shared as before
    for part in index.loads():
        assert part.sum() == LABELS
        assert part.max() <= np.ceil(settings.slack * LABELS / index.recipe.buckets)
    found = index.predict(new.X, k=LABELS, probes=1000)
    assert (np.sort(found.labels, axis=1) == np.arange(LABELS)).all()
    if ranker:
        best = index.predict(new.X, k=1).labels - (LABELS - 4)
        assert precision(np.maximum(best, -1), new.Y, 1) > 0.9  # -1: an old label, so wrong
        assert (index.predict(old.X, k=1).labels == before.labels).mean() > 0.95
    index.save(tmp_path / "grown")
    same(irli.load(tmp_path / "grown").predict(new.X), index.predict(new.X))
    index.add_labels(new.X[:3], np.ones((3, 1)))
    assert len(index) == LABELS + 1


def test_new_labels_go_where_their_rows_go() -> None:
    """Twins of known labels land in the buckets of those, as far as there is room."""
    X, Y = labelled(600, LABELS, most=1)
    index = fit(small_labels(epochs=6, slack=3.0), rows=(X, Y))
    for r, part in enumerate(index.loads()):
        assert part.sum() == LABELS, r
    index.add_labels(X, Y)
    layout = index._fitted().predictor.layout
    together = []
    for offsets in layout.offsets:
        bucket = np.empty(2 * LABELS, dtype=int)
        for b in range(len(offsets) - 1):
            bucket[layout.items[offsets[b] : offsets[b + 1]]] = b
        together.append((bucket[:LABELS] == bucket[LABELS:]).mean())
    assert np.mean(together) > 0.5  # by chance, an eighth


def test_added_labels_without_rows_have_a_bucket() -> None:
    old, new = halves()
    index = fit(rows=old)
    index.add_labels(new.X, sp.csr_array(np.eye(1, 3).repeat(new.X.shape[0], axis=0)))
    assert len(index) == LABELS - 1
    assert all(part.sum() == LABELS - 1 for part in index.loads())


def test_few_labels_have_an_output_each_and_keep_what_was_asked_for() -> None:
    usual = irli.recipe("labels").resolve_for_labels(100)
    assert (usual.start, usual.buckets) == ("one-per-item", 100)
    assert (usual.hidden, usual.epochs) == (1024, 16)
    assert (usual.batch_size, usual.learning_rate) == (128, 4e-3)
    asked = irli.recipe("labels", hidden=64, epochs=3, batch_size=8).resolve_for_labels(100)
    assert (asked.start, asked.hidden, asked.epochs, asked.batch_size) == ("one-per-item", 64, 3, 8)
    assert asked.loss == usual.loss == "sigmoid-bce"


@pytest.mark.parametrize("name", ["labels", "own trunks", "one-per-item"])
@pytest.mark.parametrize("dense", [False, True])
def test_a_start_goes_on_and_adds_labels(name: str, dense: bool, tmp_path: Path) -> None:
    old, _ = halves()
    everything = labelled(700, LABELS, most=1)
    X = everything.X.toarray() if dense else everything.X
    rows = old.X.toarray() if dense else old.X
    index = fit(RECIPES[name], rows=(rows, old.Y))
    rounds, trunks = len(index.history), index._fitted().predictor.layout.project.shape
    index.save(tmp_path / "index")
    for one in (index, irli.load(tmp_path / "index")):
        assert one.fit(X, everything.Y, threads=1, start=one) is one
        assert len(one) == LABELS
        assert len(one.history) > rounds
        assert one._fitted().predictor.layout.project.shape == trunks
        assert all(part.sum() == LABELS for part in one.loads())
        assert precision(one.predict(X, k=1).labels, everything.Y, 1) > 0.9
    same(index.predict(X), one.predict(X))


@pytest.mark.parametrize("loss", ["softmax-bce", "sigmoid-bce"])
@pytest.mark.parametrize("ranker", [None, False])
def test_labels_of_the_paper_s_recipes_are_ordered_by_the_sums_of_their_buckets(
    ranker: bool | None, loss: str
) -> None:
    """As in its figure 2, with the m = 10 of its Table 1; votes are there for who asks for them."""
    X, Y = data()
    recipe = small_paper_labels(repetitions=6, buckets=12, epochs=20, loss=loss)
    index = irli.LabelIndex(recipe, ranker=ranker).fit(X, Y, threads=1)
    assert (index.defaults.score, index.defaults.probes) == ("probability", 10)
    assert index.tuned is not None
    assert not index.tuned.ranker
    found = index.predict(X, k=3)
    same(found, index.predict(X, k=3, score="probability", probes=10))
    assert precision(found.labels, Y, 1) > 0.9
    asked = {"k": 3, "score": "votes", "probes": 3}
    for least, some in ((6, True), (7, False)):  # there are six repetitions
        with pytest.warns(irli.errors.IrliWarning, match=f"min_votes={least}"):
            assert (index.predict(X, **asked, min_votes=least).labels >= 0).any() == some


def test_a_ranker_orders_labels_of_the_paper_s_recipe_if_asked_for() -> None:
    index = fit(small_paper_labels(), ranker=True)
    assert index.tuned is not None
    assert index.tuned.ranker


def test_learning_on_begins_where_the_index_is() -> None:
    """One step at no learning rate: the routers are the ones that there were."""
    X, Y = data(300)
    index = fit(small_labels(epochs=5, learning_rate=1e-9), ranker=False, rows=(X, Y))
    before = read_routers(index._fitted().predictor.layout)
    index.fit(X, Y, threads=1, start=index)
    for one, other in zip(read_routers(index._fitted().predictor.layout), before, strict=True):
        for name in ("project", "shift", "weights", "bias"):
            left, right = getattr(one, name), getattr(other, name)
            step = np.abs(right).max() / 127  # the weights are rounded anew
            np.testing.assert_allclose(left, right, atol=1e-4 + step, err_msg=name)


@pytest.mark.parametrize("loaded", [False, True])
def test_learning_on_remembers_what_the_routers_know(loaded: bool, tmp_path: Path) -> None:
    """Some rows were held out, and are again, or others that are new."""
    X, Y = data(400)
    index = fit(rows=(X[:300], Y[:300]))
    before, keys = set(index._fitted().contents.trained), row_keys(X)
    assert before < set(keys[:300])
    if loaded:
        index.save(tmp_path / "index")
        index = irli.load(tmp_path / "index")
    index.fit(X, Y, threads=1, start=index)
    after = set(index._fitted().contents.trained)
    assert before < after < set(keys)
    assert len(set(keys) - after) >= 20


def test_learning_on_learns_what_has_changed() -> None:
    """The labels of all rows are exchanged: what was learned before is wrong now."""
    X, Y = labelled(500, LABELS, most=1)
    turned = sp.csr_array(Y[:, (np.arange(LABELS) + 5) % LABELS])
    index = fit(RECIPES["one-per-item"], ranker=False, rows=(X, Y))
    assert precision(index.predict(X, k=1).labels, turned, 1) < 0.1
    index.fit(X, turned, threads=1, start=index)
    assert precision(index.predict(X, k=1).labels, turned, 1) > 0.9


def test_a_loaded_index_still_wants_no_ranker(tmp_path: Path) -> None:
    X, Y = data(300)
    index = fit(ranker=False, rows=(X, Y))
    index.save(tmp_path / "index")
    again = irli.load(tmp_path / "index")
    again.fit(X, Y, start=again, threads=1)
    assert again.stats()["ranker_weights"] == index.stats()["ranker_weights"] == 0


# --- a query log -----------------------------------------------------------------------------


def test_items_without_vectors_are_retrieved_from_a_query_log() -> None:
    """Dense query vectors as X, the items that they wanted as Y: the geometry of items is none."""
    rng = np.random.default_rng(0)
    intents = rng.normal(size=(40, 12))
    wanted = rng.permutation(120).reshape(40, 3)  # the items of each intent, by no rule

    def log(count: int, seed: int) -> tuple[NDArray, sp.csr_array]:
        rng = np.random.default_rng(seed)
        intent = rng.integers(40, size=count)
        queries = intents[intent] + 0.2 * rng.normal(size=(count, 12))
        clicked = wanted[intent, rng.integers(3, size=count)]  # one item of three each time
        ones = np.ones(count, dtype=np.float32)
        return queries, sp.csr_array((ones, (np.arange(count), clicked)), shape=(count, 120))

    index = LabelIndex(small_labels(buckets=30, hidden=64, epochs=10)).fit(*log(2000, 1), threads=1)
    queries, clicked = log(300, 2)
    found = index.predict(queries, k=3).labels
    assert (found == clicked.indices[:, None]).any(axis=1).mean() > 0.9


def test_the_example_of_a_query_log_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRLI_NUM_THREADS", "1")
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shares = re.findall(r"recall@\d+ +([\d.]+)", capsys.readouterr().out)
    assert shares
    assert all(float(share) > 0.8 for share in shares)
