"""Labels in shards: the same answers from one shard, the right ones from several."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from folders import array_sums, list_parts, read_files
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from plantedlabels import labelled, small_labels

import irli
from irli import LabelIndex
from irli.base.folder import read_manifest, write_folder
from irli.cluster.build import build as building
from irli.cluster.build.label_blend import blend_shards, read_held, write_held
from irli.cluster.build.label_job import deal_labels, make_label_job
from irli.cluster.label_index import ShardedLabelIndex
from irli.errors import DeadlineExceeded, InvalidParameter, IrliWarning, NotFitted, NotInShards
from irli.labels.metrics import precision
from irli.labels.parts.several import merge_labels
from irli.labels.tuning.calibration import Candidates, to_probabilities
from irli.labels.tuning.tune import Held
from irli.learning import learn, runs
from irli.learning.options import LearnOptions

X, Y = labelled(400, 24)
TRUNK = small_labels(buckets=6, epochs=1)
OWN = small_labels(buckets=6, epochs=2, trunk="own", repetitions=2)


# --- which labels a shard has --------------------------------------------------------------------


@given(arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 5)), st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_every_label_is_in_one_shard(counts: Any, shards: int) -> None:
    parts = deal_labels(counts, shards)
    assert sorted(np.concatenate(parts)) == list(range(len(counts)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("recipe", [TRUNK, OWN], ids=["trunk", "own"])
def test_shards_have_the_routers_of_one_index(recipe: irli.Recipe, tmp_path: Path) -> None:
    """So the scores of a label do not depend on how many shards there are."""
    one = LabelIndex(recipe, ranker=False).fit(X, Y, threads=1)
    index = ShardedLabelIndex(recipe, shards=3).fit(X, Y, threads=1)
    index.save(tmp_path / "index")
    everything = {"probes": 1000, "score": "log-probability", "threads": 1}
    wanted = np.full(Y.shape, np.nan)
    found = one.predict(X, Y.shape[1], **everything)
    np.put_along_axis(wanted, found.labels, found.scores, axis=1)
    dealt = deal_labels(np.diff(sp.csc_array(Y).indptr), 3)
    for folder, own in zip(list_parts(tmp_path / "index"), dealt, strict=True):
        shard = irli.load(folder)
        assert isinstance(shard, LabelIndex)
        shard._learned = shard._fitted().with_calibration(one.calibration)
        found = shard.predict(X, len(own), **everything)
        got = np.full((X.shape[0], len(own)), np.nan)
        np.put_along_axis(got, found.labels, found.scores, axis=1)
        np.testing.assert_allclose(got, wanted[:, own], rtol=1e-4)


# --- one calibration for all shards --------------------------------------------------------------


def _plant_held(seed: int, own: list[int], truth: Any, votes: bool = True) -> Held:
    """The candidates of a shard: a margin above 0 says which labels are right, the rest is noise.

    The last one is padding.
    """
    rng = np.random.default_rng(seed)
    n = truth.shape[0]
    numbers = np.tile(np.append(np.arange(len(own)), -1), (n, 1))
    margins = np.append(truth[:, own] - 0.5, np.ones((n, 1)), axis=1)
    noise = rng.random((2, *margins.shape))
    found = Candidates(
        numbers, noise[0].astype("f4"), margins.astype("f4"), (noise[1] * votes).astype("f4")
    )
    return Held(np.arange(n), found)


def test_shards_are_blended_by_what_is_right_in_all_of_them(tmp_path: Path) -> None:
    truth = np.eye(4)[np.random.default_rng(0).integers(4, size=200)]
    owned = [np.array([0, 3]), np.array([1, 2])]
    parts = [_plant_held(seed, own.tolist(), truth) for seed, own in enumerate(owned)]
    labels = sp.csr_array(truth.astype(np.float32))
    blend = blend_shards(parts, owned, labels, "precision")
    assert blend is not None
    odds = [blend.to_log_odds(part.found)[:, :-1] for part in parts]
    right = [truth[:, own] > 0 for own in owned]
    lowest = min(each[is_right].min() for each, is_right in zip(odds, right, strict=True))
    highest = max(each[~is_right].max() for each, is_right in zip(odds, right, strict=True))
    assert lowest > 0 > highest  # in both shards alike
    for number, (part, own) in enumerate(zip(parts, owned, strict=True)):
        write_held(tmp_path / f"{number}.npz", part, blend)
        again = read_held(tmp_path / f"{number}.npz")
        assert again.found.labels.shape == (200, len(own) + 1)
    read = [read_held(tmp_path / f"{number}.npz") for number in range(2)]
    np.testing.assert_allclose(blend_shards(read, owned, labels, "precision")[:4], blend[:4])


def test_votes_count_only_if_near_rows_vote_in_all_shards() -> None:
    truth = np.eye(4)[np.random.default_rng(0).integers(4, size=200)]
    owned = [np.array([0, 3]), np.array([1, 2])]
    labels = sp.csr_array(truth.astype(np.float32))
    for votes in (True, False):
        parts = [_plant_held(0, [0, 3], truth), _plant_held(1, [1, 2], truth, votes)]
        blend = blend_shards(parts, owned, labels, "precision")
        assert blend is not None
        assert (blend.by_votes > 0) == votes


def test_shards_that_hold_out_different_rows_keep_their_calibrations() -> None:
    truth = np.eye(4)[np.arange(40) % 4]
    owned = [np.array([0, 3]), np.array([1, 2])]
    one, two = (_plant_held(0, own.tolist(), truth) for own in owned)
    moved = two._replace(rows=two.rows[::-1])
    assert blend_shards([one, moved], owned, sp.csr_array(truth), "balanced") is None


def test_all_shards_have_one_calibration(tmp_path: Path) -> None:
    index = ShardedLabelIndex(TRUNK, shards=2).fit(X, Y, threads=1)
    index.save(tmp_path / "index")
    again = ShardedLabelIndex.load(tmp_path / "index")
    assert again.stats()["calibration"] == index.stats()["calibration"]
    wanted = index.predict(X[:50])
    np.testing.assert_array_equal(again.predict(X[:50]).scores, wanted.scores)
    for row, explained in enumerate(again.explain(X[:5])):
        odds = np.array([each.log_odds for each in explained.labels])
        np.testing.assert_allclose(to_probabilities(odds), wanted.scores[row], rtol=1e-4)


# --- the phases of a shard -----------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [TRUNK, OWN], ids=["trunk", "own"])
def test_a_shard_goes_through_the_phases_of_an_index(recipe: irli.Recipe, tmp_path: Path) -> None:
    job = make_label_job(tmp_path, X, Y, recipe, 2, threads=1, device="cpu", objective="balanced")
    building.build(job, None, False)
    (saved := tmp_path / "problem").mkdir()
    made = job.make_problem(0)
    made.save(saved)
    repetitions = learn(made.problem, job.recipe_of(0), LearnOptions(threads=1))
    for shard in range(2):
        write_folder(tmp_path / f"hand {shard}", job.assemble(shard, saved, repetitions))
        assert read_files(tmp_path / f"hand {shard}") == read_files(job.index(shard))


@pytest.mark.parametrize("recipe", [TRUNK, OWN], ids=["trunk", "own"])
def test_one_shard_is_a_local_index(recipe: irli.Recipe, tmp_path: Path) -> None:
    local = LabelIndex(recipe).fit(X, Y, threads=1)
    one = ShardedLabelIndex(recipe).fit(X, Y, threads=1)
    for k in (1, 5, 40):
        right, found = local.predict(X[:50], k), one.predict(X[:50], k)
        np.testing.assert_array_equal(found.labels, right.labels)
        np.testing.assert_array_equal(found.scores, right.scores)
    local.save(tmp_path / "local")
    one.save(tmp_path / "one")
    (shard,) = list_parts(tmp_path / "one")
    assert array_sums(shard) == array_sums(tmp_path / "local")
    assert one.history == [entry | {"shard": 0} for entry in local.history]


def test_routers_are_learned_once_for_all_shards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    learned: list[list[int]] = []
    learn_repetitions = runs.learn_repetitions

    def counted(problem: Any, recipe: Any, numbers: Any, *more: Any, **options: Any) -> Any:
        learned.append(list(numbers))
        return learn_repetitions(problem, recipe, numbers, *more, **options)

    monkeypatch.setattr(runs, "learn_repetitions", counted)
    job = make_label_job(tmp_path, X, Y, OWN, 3, threads=1, device="cpu", objective="balanced")
    building.build(job, None, False)
    assert learned == [[0], [1]]
    assert not list(tmp_path.glob("shard-*/problem"))  # nobody needs it any more
    # A shard that is damaged is built again, and the others stay as they are.
    other = read_files(job.index(0))
    next(job.index(2).glob("*.npy")).write_bytes(b"")
    building.build(job, None, False)
    assert learned == 2 * [[0], [1]]
    assert read_files(job.index(0)) == other
    assert LabelIndex.load(job.index(2)).predict(X[:1], 1).counts.tolist() == [1]


def test_fit_logs_its_phases(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="irli"):
        ShardedLabelIndex(small_labels(buckets=6, epochs=1), shards=2).fit(X, Y, threads=1)
    phases = ("problem: ", "repetition ", "assembled: ", "tuned: ")
    said = [record.getMessage() for record in caplog.records]
    found = [phase for text in said for phase in phases if text.startswith(phase)]
    assert found == ["problem: ", "repetition ", "repetition ", *2 * ["assembled: ", "tuned: "]]


# --- predicting and files ------------------------------------------------------------------------


def test_the_methods_take_what_a_local_index_takes() -> None:
    more = {"predict": {"deadline", "partial"}, "load": {"ray", "options"}}
    fewer = {"predict": {"ranker"}, "load": {"mmap", "verify"}}  # scores must be comparable
    for name in ("fit", "fit_text", "predict", "predict_text", "save", "load", "stats"):
        local, sharded = (
            inspect.signature(getattr(owner, name)).parameters
            for owner in (LabelIndex, ShardedLabelIndex)
        )
        assert sharded.keys() - local.keys() == more.get(name, set()), name
        assert local.keys() - sharded.keys() == fewer.get(name, set()), name


def test_shards_find_the_planted_labels(tmp_path: Path) -> None:
    names = [f"label {number}" for number in range(Y.shape[1])]
    index = ShardedLabelIndex(small_labels(buckets=6, epochs=6), shards=3)
    index.fit(X, Y, names=names, threads=-1)
    found = index.predict(X, k=1)
    assert found.missing == ()
    assert precision(found.labels, Y, 1) > 0.9
    np.testing.assert_array_equal(index.predict(X, k=1, threads=-1).scores, found.scores)
    alone = index.predict(X[[0]].toarray()[0], k=1)
    assert alone.labels.shape == (1,)
    assert alone.labels[0] == found.labels[0]
    everything = index.predict(X[:20], k=Y.shape[1] + 3, probes=1000)
    assert (np.sort(everything.labels[:, :-3], axis=1) == np.arange(Y.shape[1])).all()
    assert (everything.labels[:, -3:] == -1).all()
    assert (everything.scores[:, 1:] <= everything.scores[:, :-1]).all()
    assert ((everything.scores > 0) == (everything.labels >= 0)).all()
    assert everything.scores.max() <= 1
    likely = index.predict(X[:20], k=5, threshold=0.5)
    every = index.predict(X[:20], k=5)
    kept = every.scores >= 0.5
    assert kept.any(axis=1).mean() > 0.9
    assert not kept.all()
    np.testing.assert_array_equal(likely.labels, np.where(kept, every.labels, -1))
    np.testing.assert_array_equal(likely.scores, np.where(kept, every.scores, 0))
    with pytest.raises(InvalidParameter, match="'threshold' parameter of predict"):
        index.predict(X[:2], threshold=1.5)
    tried = [entry for entry in index.history if "choice" in entry]
    assert {entry["shard"] for entry in tried} == {0, 1, 2}

    index.save(tmp_path / "index")
    again = irli.load(tmp_path / "index")
    assert isinstance(again, ShardedLabelIndex)
    np.testing.assert_array_equal(again.predict(X, k=1).labels, found.labels)
    assert list(again.names) == names
    assert (len(again), again.stats()["shards"]) == (Y.shape[1], 3)
    assert again.stats() == index.stats()
    assert repr(again) == repr(index)
    assert again.history == index.history
    again.save(tmp_path / "index")  # over itself
    opened = irli.load(tmp_path / "index")
    np.testing.assert_array_equal(opened.predict(X, k=1).labels, found.labels)


def test_certain_labels_are_merged_by_their_log_odds() -> None:
    """Their probabilities are all 1: float32 has no number between 1 and the odds of e^16.6."""
    odds = [np.array([[20.0, 18.0, -np.inf]]), np.array([[30.0, 19.0, 17.5]])]
    found = [np.array([[1, 0, -1]]), np.array([[0, 2, 1]])]  # 2 is "other" in a shard of two
    parts = [(part.astype(np.float32), labels) for part, labels in zip(odds, found, strict=True)]
    assert (to_probabilities(np.array([17.5, 30.0], dtype=np.float32)) == 1).all()
    merged, labels = merge_labels(parts, [np.array([0, 3]), np.array([1, 2])], 5)
    assert labels.tolist() == [[1, 3, 0, 2, -1]]
    assert merged.tolist() == [[30.0, 20.0, 18.0, 17.5, -np.inf]]


def test_of_equal_labels_the_first_are_better() -> None:
    same = np.zeros((1, 2), dtype=np.float32), np.array([[0, 1]])
    _, labels = merge_labels([same, same], [np.array([1, 3]), np.array([0, 2])], 3)
    assert labels.tolist() == [[0, 1, 2]]


@pytest.fixture(scope="module")
def two() -> ShardedLabelIndex:
    names = [f"label {number}" for number in range(Y.shape[1])]
    index = ShardedLabelIndex(small_labels(buckets=6, epochs=2), shards=2)
    return index.fit(X, Y, names=names, threads=1)


def test_min_votes_that_leave_few_answers_are_said(two: ShardedLabelIndex) -> None:
    rows = np.zeros((2, two.dim), dtype=np.float32)
    with pytest.warns(IrliWarning, match="Fewer than 3 labels .* rows: min_votes=99"):
        assert (two.predict(rows, k=3, min_votes=99).counts < 3).any()


def test_explanations_are_those_of_the_predicted_labels(two: ShardedLabelIndex) -> None:
    found, told = two.predict(X[:10], k=4), two.explain(X[:10], k=4)
    assert len(told) == 10
    for row, explained in enumerate(told):
        assert [each.label for each in explained.labels] == found.labels[row].tolist()
        assert [each.name for each in explained.labels] == [
            f"label {label}" for label in found.labels[row]
        ]
        likely = [each.probability for each in explained.labels]
        np.testing.assert_array_equal(likely, found.scores[row])
        assert explained.labels[0].words
    alone = two.explain(X[[0]].toarray()[0], k=4)
    assert [each.label for each in alone.labels] == found.labels[0].tolist()
    with pytest.raises(InvalidParameter, match="'k' parameter of explain"):
        two.explain(X, k=0)


def test_what_shards_do_not_have_says_what_to_do(two: ShardedLabelIndex) -> None:
    for name in ("partial_fit", "add_labels", "remove_labels", "rename"):
        assert hasattr(LabelIndex, name)
        assert not hasattr(two, name)
        with pytest.raises(NotInShards, match=f"no {name}: .* Fit it again with all rows, or use"):
            getattr(two, name)
    with pytest.raises(AttributeError, match="has no attribute 'predit'"):
        two.predit  # type: ignore[attr-defined]  # noqa: B018


# --- titles and texts ----------------------------------------------------------------------------

PETS = ("bird", "cat", "dog", "fish")
TEXTS = [f"{pet} {verb}" for pet in PETS for verb in ("eats", "naps", "plays", "sits", "runs")] * 3
LISTS = [[text.split()[0]] for text in TEXTS]


@pytest.mark.parametrize("recipe", [TRUNK, OWN], ids=["trunk", "own"])
def test_one_shard_learns_from_titles_as_an_index_does(recipe: irli.Recipe) -> None:
    titles = np.eye(Y.shape[1], X.shape[1])
    titles[0] = 0  # a label without a title
    one = LabelIndex(recipe).fit(X, Y, titles=titles, threads=1)
    shard = ShardedLabelIndex(recipe, shards=1).fit(X, Y, titles=titles, threads=1)
    found, right = shard.predict(X, k=3), one.predict(X, k=3)
    np.testing.assert_array_equal(found.labels, right.labels)
    np.testing.assert_array_equal(found.scores, right.scores)
    assert (shard.rows, shard.counts.tolist()) == (one.rows, one.counts.tolist())


def test_shards_learn_labels_from_their_titles(tmp_path: Path) -> None:
    """Four labels have a single row each, which says nothing. Their titles say it."""
    few = np.arange(20, 24)
    rows = np.zeros((204, 30), dtype=np.float32)
    own = np.concatenate([np.arange(200) % 20, few])
    rows[np.arange(200), own[:200]] = 1
    rows[:, 29] = 0.1
    titles = np.zeros((24, 30), dtype=np.float32)
    titles[few, few] = 1
    untold = ShardedLabelIndex(TRUNK, shards=3).fit(rows, own[:, None], threads=1)
    told = ShardedLabelIndex(TRUNK, shards=3)
    told.fit(rows, own[:, None], titles=titles, threads=1, checkpoint=tmp_path / "work")
    assert told.predict(titles[few], k=1).labels.ravel().tolist() == few.tolist()
    assert untold.predict(titles[few], k=1).labels.ravel().tolist() != few.tolist()
    assert told.rows == 204
    assert told.counts.tolist() == [10] * 20 + [1] * 4  # without the titles
    # Other titles are another build.
    again = ShardedLabelIndex(TRUNK, shards=3)
    again.fit(rows, own[:, None], titles=titles * 0, threads=1, checkpoint=tmp_path / "work")
    np.testing.assert_array_equal(again.predict(rows).scores, untold.predict(rows).scores)
    with pytest.raises(InvalidParameter, match=r"'titles' parameter.* each of the 24 labels"):
        ShardedLabelIndex(TRUNK, shards=3).fit(rows, own[:, None], titles=titles[:5])


def test_texts_in_shards(tmp_path: Path) -> None:
    titles = {"cat": "Felis", "fish": "plays the flute"}
    index = ShardedLabelIndex(small_labels(buckets=3, epochs=3), shards=2)
    index.fit_text(TEXTS, LISTS, titles=titles, threads=1)
    found = index.predict_text(["My cat", "the fish"], k=1)
    assert [row[0][0] for row in found] == ["cat", "fish"]
    told = index.explain_text("the cat", k=1)
    assert (told.labels[0].name, told.labels[0].words[0].word) == ("Felis", "cat")
    with pytest.warns(irli.IrliWarning, match="1 of 2 texts have no word"):
        assert index.predict_text(["unheard of", "dog"], k=1)[0] == []
    with pytest.warns(irli.IrliWarning, match="1 of 1 texts have no word"):
        assert index.explain_text("unheard of").labels == []
    assert index.stats()["text"]
    assert "texts" in index._repr_html_()

    index.save(tmp_path / "index")
    again = ShardedLabelIndex.load(tmp_path / "index")
    assert again.predict_text(["My cat", "the fish"], k=1) == found
    assert again.names is not None
    assert again.names.titles == titles
    assert again.vectorizer is not None
    assert index.vectorizer is not None
    assert again.vectorizer.words == index.vectorizer.words
    plain = ShardedLabelIndex(TRUNK, shards=2).fit(X, Y, threads=1)
    with pytest.raises(NotFitted, match="This ShardedLabelIndex was fitted on rows of features"):
        plain.predict_text(["cat"])
    with pytest.raises(NotFitted, match="not fitted yet"):
        ShardedLabelIndex().predict_text(["cat"])


# --- builds that stop ----------------------------------------------------------------------------


class Stopped(Exception):
    """As a kill between two steps."""


def test_a_build_that_stops_after_every_step_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = ShardedLabelIndex(OWN, shards=2)
    right = index.fit(X, Y, threads=1, checkpoint=tmp_path / "whole").predict(X, k=3)
    learned: list[list[int]] = []
    learn_repetitions = runs.learn_repetitions

    def counted(problem: Any, recipe: Any, numbers: Any, *more: Any, **options: Any) -> Any:
        learned.append(list(numbers))
        return learn_repetitions(problem, recipe, numbers, *more, **options)

    monkeypatch.setattr(runs, "learn_repetitions", counted)
    for last in range(1, 6):  # prepare, two repetitions, two shards to finish
        done: list[int] = []

        def stopping(step: Any, last: int = last, done: Any = done) -> Any:
            def run(*arguments: Any) -> None:
                step(*arguments)
                done.append(1)
                if len(done) == last:
                    raise Stopped

            return run

        with pytest.MonkeyPatch.context() as patch:
            for name in ("prepare", "learn", "finish"):
                patch.setattr(building, name, stopping(getattr(building, name)))
            index = ShardedLabelIndex(OWN, shards=2)
            with pytest.raises(Stopped):
                index.fit(X, Y, threads=1, checkpoint=tmp_path / "broken")
        assert len(done) == last
    assert learned == [[0], [1]]  # each once
    resumed = ShardedLabelIndex(OWN, shards=2).fit(X, Y, threads=1, checkpoint=tmp_path / "broken")
    assert learned == [[0], [1]]
    assert read_files(tmp_path / "broken") == read_files(tmp_path / "whole")
    np.testing.assert_array_equal(resumed.predict(X, k=3).scores, right.scores)


def test_a_full_disk_stops_a_build_that_then_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[list[int]] = []
    learn_repetitions = runs.learn_repetitions

    def counted(problem: Any, recipe: Any, numbers: Any, *more: Any, **options: Any) -> Any:
        if len(learned) == 1:
            raise OSError("No space left on device")
        learned.append(list(numbers))
        return learn_repetitions(problem, recipe, numbers, *more, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "learn_repetitions", counted)
        with pytest.raises(OSError, match="No space"):
            ShardedLabelIndex(OWN, shards=2).fit(X, Y, threads=1, checkpoint=tmp_path)
    assert learned == [[0]]
    learned.clear()
    monkeypatch.setattr(runs, "learn_repetitions", counted)
    index = ShardedLabelIndex(OWN, shards=2).fit(X, Y, threads=1, checkpoint=tmp_path)
    assert learned == [[1]]
    assert len(index) == Y.shape[1]


# --- bad input -----------------------------------------------------------------------------------


def test_bad_input() -> None:
    index = ShardedLabelIndex(small_labels(buckets=6, epochs=1), shards=2)
    with pytest.raises(NotFitted):
        index.predict(X)
    with pytest.raises(InvalidParameter, match="'shards'"):
        ShardedLabelIndex(shards=99).fit(X, Y)
    with pytest.raises(InvalidParameter, match="'names'"):
        index.fit(X, Y, names=["one"])
    with pytest.raises(InvalidParameter, match="'workers'"):
        index.fit(X, Y, workers=2)
    with pytest.raises(InvalidParameter, match="buckets"):
        ShardedLabelIndex(small_labels(buckets=200), shards=2).fit(X, Y)
    with pytest.raises(TypeError, match=r"'thread'\. Did you mean 'threads'"):
        index.fit(X, Y, thread=1)  # type: ignore[call-arg]
    index.fit(X, Y, threads=1)
    with pytest.raises(InvalidParameter, match="'k'"):
        index.predict(X, k=0)
    with pytest.raises(InvalidParameter, match="'threads'"):
        index.predict(X, threads=0)
    with pytest.raises(TypeError, match=r"'probe'\. Did you mean 'probes'"):
        index.predict(X, probe=3)  # type: ignore[call-arg]
    with pytest.raises(DeadlineExceeded):
        index.predict(X, deadline=0.0)
    index.close()
    with pytest.raises(NotFitted):
        index.predict(X)


def test_on_ray(on_ray: str) -> None:
    local = ShardedLabelIndex(OWN, shards=2).fit(X, Y, threads=1)
    spread = ShardedLabelIndex(OWN, shards=2, ray=on_ray).fit(X, Y)
    right, found = local.predict(X, k=3), spread.predict(X, k=3)
    np.testing.assert_array_equal(found.labels, right.labels)
    np.testing.assert_array_equal(found.scores, right.scores)
    spread.close()


def test_the_objective_reaches_the_shards(tmp_path: Path) -> None:
    X, Y = np.eye(20, dtype=np.float32).repeat(9, axis=0), np.eye(20).repeat(9, axis=0)
    index = ShardedLabelIndex(small_labels(), shards=2, objective="propensity").fit(X, Y)
    index.save(tmp_path / "index")
    loaded = ShardedLabelIndex.load(tmp_path / "index")
    assert loaded.get_params()["objective"] == "propensity"
    folders = [tmp_path / "index", *list_parts(tmp_path / "index")]
    told = [read_manifest(path)["meta"]["objective"] for path in folders]
    assert told == ["propensity"] * 3
