"""The backend, with the real Annif where it is installed, and with a stand-in elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import annif_stand_in as stand_in
import numpy as np
import pytest
import scipy.sparse as sp
from annif_stand_in import Analyzer, Corpus, Subjects, best
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import bare, table

import irli

for package in ("joblib", "sklearn", "torch"):
    pytest.importorskip(package)

URIS = [f"http://example.org/s{number}" for number in range(12)]
# Strings, as in projects.cfg.
SHORT = {"epochs": "20", "hidden": "64", "limit": "5"}
NEW = 11  # a subject that no document has before `learn`


def write(number: int, place: int) -> str:
    """Return a text about a subject: its own word, and two that others use too."""
    return f"word{number} common{place % 3} common{place % 4}"


DOCUMENTS = [(write(number, place), [number]) for place in range(60) for number in range(10)]
DOCUMENTS += [(f"word{number} spare", [number]) for number in range(10)]
QUESTIONS = [SimpleNamespace(text=f"word{number} common0") for number in range(10)]


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """`learn` is not told how many, and threads wait for each other on a busy machine."""
    monkeypatch.setenv("IRLI_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def annif() -> Iterator[Any]:
    """Return the module of the backend."""
    missing = importlib.util.find_spec("annif") is None
    if missing:
        stand_in.install()
    yield importlib.import_module("irli.integrations.annif")
    if missing:
        stand_in.uninstall()


def make(annif: Any, folder: Path, uris: list[str] = URIS, **config: str) -> Any:
    """Return a backend on a data folder."""
    project = SimpleNamespace(
        datadir=str(folder), subjects=Subjects(uris), analyzer=Analyzer(), vocab_lang="en"
    )
    return annif.IrliBackend("irli", config_params=SHORT | config, project=project)


@pytest.fixture(scope="module")
def model(annif: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data folder of a trained backend. No test may change it."""
    folder = tmp_path_factory.mktemp("model")
    make(annif, folder).train(Corpus(*DOCUMENTS), jobs=1)
    return folder


def test_labels_of_the_vocabulary_teach(annif: Any, tmp_path: Path) -> None:
    """A word of no document of a subject, only of its label. Also from cached rows."""
    backend = make(annif, tmp_path, epochs="100", limit="12")  # routers alone have to learn it
    backend.project.subjects.labels = {URIS[3]: "spare", URIS[4]: "unheard of"}
    elsewhere = [(text, numbers) for text, numbers in DOCUMENTS if "spare" not in text]
    others = [(f"spare word{number}", [number]) for number in (0, 1)]
    question = [SimpleNamespace(text="spare")]
    backend.train(Corpus(*elsewhere, *others), jobs=1)
    taught = backend.suggest(question).array.toarray()[0]
    backend.train("cached", jobs=1)
    np.testing.assert_array_equal(backend.suggest(question).array.toarray()[0], taught)
    backend.project.subjects.labels = {}
    backend.train("cached", jobs=1)
    untaught = backend.suggest(question).array.toarray()[0]
    odds = [likely[3] / (1 - likely[3]) for likely in (taught, untaught)]
    assert odds[0] > 2 * odds[1]


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Path:
    """Return a copy of the data folder."""
    return Path(shutil.copytree(model, tmp_path / "model"))


# --- training and suggesting ---------------------------------------------------------------------


def test_the_planted_subjects_are_suggested(annif: Any, model: Path) -> None:
    batch = make(annif, model).suggest(QUESTIONS)
    assert best(batch) == list(range(10))
    assert batch.array.shape == (10, len(URIS))
    assert batch.array.dtype == np.float32
    assert (batch.array.data > 0).all()
    assert (batch.array.data <= 1).all()
    assert set(np.diff(batch.array.indptr)) == {5}  # the limit
    assert (
        batch.array.data.min() < 0.4
    )  # the probabilities of irli, which are low for wrong subjects


def test_suggestions_have_the_probabilities_of_the_index(annif: Any, model: Path) -> None:
    backend = make(annif, model)
    suggested = backend.suggest(QUESTIONS).array.toarray()
    index = irli.load(model / "irli-model")
    features = backend.vectorizer.transform([question.text for question in QUESTIONS])
    likely = index.predict_proba(features, k=5).toarray()
    columns = [URIS.index(uri) for uri in index.names]
    np.testing.assert_array_equal(suggested[:, columns], likely)


def test_a_text_without_a_known_word_has_no_suggestion(annif: Any, model: Path) -> None:
    documents = [SimpleNamespace(text=text) for text in ("nothing known", "word3", "")]
    batch = make(annif, model).suggest(documents)
    assert best(batch) == [-1, 3, -1]


def test_alone_a_document_gets_what_it_gets_in_a_batch(annif: Any, model: Path) -> None:
    backend = make(annif, model)
    together = backend.suggest(QUESTIONS).array.toarray()
    alone = [backend.suggest([each]).array.toarray()[0] for each in QUESTIONS]
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_the_folder_has_a_model_only_after_training(annif: Any, folder: Path) -> None:
    assert make(annif, folder).is_trained
    for path in (folder / "irli-model").iterdir():
        path.unlink()
    assert not make(annif, folder).is_trained


def test_the_cache_trains_the_same_model_again(annif: Any, folder: Path) -> None:
    before = make(annif, folder).suggest(QUESTIONS).array.toarray()
    again = make(annif, folder)
    again.train("cached", jobs=1)
    np.testing.assert_array_equal(again.suggest(QUESTIONS).array.toarray(), before)
    again.train("cached", params={"hidden": "8"}, jobs=1)
    assert again._index.recipe.hidden == 8


def test_the_cache_keeps_its_features_and_says_so(
    annif: Any, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = make(annif, folder)
    with caplog.at_level(logging.WARNING, logger="annif"):
        backend.train("cached", params={"hidden": "8"}, jobs=1)
        assert not caplog.text
        backend.train("cached", params={"ngram": "2"}, jobs=1)
    assert "cached documents have ngram=1, not 2: train without --cached" in caplog.text


def test_documents_without_subjects_or_words_teach_nothing(annif: Any, tmp_path: Path) -> None:
    backend = make(annif, tmp_path)
    backend.train(Corpus(("lonely", []), ("", [2]), *DOCUMENTS), jobs=1)
    rows = annif.read_rows(str(tmp_path / backend.TRAIN_FILE))
    assert rows.features.shape[0] == rows.labels.shape[0] == len(DOCUMENTS)
    assert "lonely" not in backend.vectorizer.vocabulary_


def test_pairs_and_rare_words_are_features_if_asked_for(annif: Any, tmp_path: Path) -> None:
    backend = make(annif, tmp_path, ngram="2", min_df="2")
    backend.train(Corpus(("rare word1", [1]), *DOCUMENTS), jobs=1)
    assert "word1 common0" in backend.vectorizer.vocabulary_
    assert "rare" not in backend.vectorizer.vocabulary_


def test_parameters_have_the_defaults_of_the_recipe(annif: Any) -> None:
    defaults = annif.IrliBackend.DEFAULT_PARAMETERS
    recipe = annif.recipe("labels")
    assert {name: getattr(recipe, name) for name in annif._SETTINGS}.items() <= defaults.items()
    assert (defaults["min_df"], defaults["ngram"]) == (1, 1)


def test_the_page_shows_the_defaults(annif: Any) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "annif.md"
    if not page.exists():
        pytest.skip("an sdist has no docs")
    shown = {}
    for names, values, _ in table(page.read_text("utf-8"), "parameter", "default", "meaning"):
        words = (bare(cell).split(", ") for cell in (names, values))
        shown |= dict(zip(*words, strict=True))
    expected = {"limit": 100} | annif.IrliBackend.DEFAULT_PARAMETERS
    assert shown == {name: str(value) for name, value in expected.items()}


# --- vocabularies --------------------------------------------------------------------------------


def test_suggestions_follow_a_vocabulary_that_is_loaded_again(annif: Any, model: Path) -> None:
    uris = ["http://example.org/first", *reversed(URIS[1:])]  # the first subject is gone
    found = best(make(annif, model, uris).suggest(QUESTIONS))
    assert [uris[number] for number in found[1:]] == URIS[1:10]
    assert found[0] != uris.index("http://example.org/first")


# --- learning on ---------------------------------------------------------------------------------


def test_learning_adds_documents_and_subjects(annif: Any, folder: Path) -> None:
    backend = make(annif, folder)
    more = [(f"spare common{place % 3}", [NEW]) for place in range(20)]
    more += [(write(number, place), [number]) for place in range(2) for number in range(10)]
    backend.learn(Corpus(*more))
    questions = [*QUESTIONS, SimpleNamespace(text="spare common1")]
    for each in (backend, make(annif, folder)):
        assert best(each.suggest(questions)) == [*range(10), NEW]
    rows = annif.read_rows(str(folder / backend.TRAIN_FILE))
    assert rows.features.shape[0] == len(DOCUMENTS) + len(more)
    assert rows.uris == [*URIS[:10], URIS[NEW]]
    assert rows.labels[:, 10].sum() == 20

    backend.learn(Corpus((write(2, 0), [2]), ("spare", [10])))  # and on from there
    rows = annif.read_rows(str(folder / backend.TRAIN_FILE))
    assert rows.uris == [*URIS[:10], URIS[NEW], URIS[10]]
    assert list(backend._index.names) == rows.uris


def test_learning_needs_the_rows_of_the_model(annif: Any, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    make(annif, other).train(Corpus(*DOCUMENTS[:5]), jobs=1)
    backend = make(annif, folder)
    (other / backend.TRAIN_FILE).replace(folder / backend.TRAIN_FILE)
    with pytest.raises(annif.OperationFailedException, match=r"Train the project again\."):
        backend.learn(Corpus(*DOCUMENTS))


def test_learning_that_fails_leaves_everything_as_it_was(
    annif: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = make(annif, folder)
    before = backend.suggest(QUESTIONS).array.toarray()
    size = (folder / backend.TRAIN_FILE).stat().st_size

    def fail(*arguments: Any) -> None:
        raise annif.InvalidParameter("no")

    monkeypatch.setattr(annif, "continue_learning", fail)
    with pytest.raises(annif.OperationFailedException, match="no"):
        backend.learn(Corpus(("word1", [NEW])))
    assert (folder / backend.TRAIN_FILE).stat().st_size == size
    for each in (backend, make(annif, folder)):
        np.testing.assert_array_equal(each.suggest(QUESTIONS).array.toarray(), before)


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [[], [("word", [])], [("", [1])]])
def test_training_needs_a_document(annif: Any, tmp_path: Path, pairs: list[Any]) -> None:
    with pytest.raises(
        (annif.NotSupportedException, annif.OperationFailedException), match="document"
    ):
        make(annif, tmp_path).train(Corpus(*pairs))
    assert not make(annif, tmp_path).is_trained


@pytest.mark.parametrize("pairs", [[], [("word1", [])], [("unheard-of", [1])]])
def test_learning_needs_a_document(annif: Any, folder: Path, pairs: list[Any]) -> None:
    with pytest.raises(annif.NotSupportedException, match="Cannot learn without a document"):
        make(annif, folder).learn(Corpus(*pairs))


def test_a_backend_without_a_model_says_so(annif: Any, folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for use in ("initialize", "suggest", "train", "learn"):
        arguments = {"initialize": [], "suggest": [QUESTIONS], "train": ["cached"]}
        with pytest.raises(annif.NotInitializedException, match="not found"):
            getattr(make(annif, empty), use)(*arguments.get(use, [Corpus(*DOCUMENTS)]))
    (folder / "irli-model").rename(tmp_path / "elsewhere")
    with pytest.raises(annif.NotInitializedException, match="irli-model not found"):
        make(annif, folder).suggest(QUESTIONS)


def test_a_damaged_model_is_reported(annif: Any, folder: Path) -> None:
    (folder / "irli-model" / "manifest.json").write_text("{")
    with pytest.raises(annif.OperationFailedException, match="manifest"):
        make(annif, folder).suggest(QUESTIONS)


def test_damaged_rows_are_reported(annif: Any, folder: Path) -> None:
    path = folder / annif.IrliBackend.TRAIN_FILE
    path.write_bytes(path.read_bytes()[:200])
    for use, corpus in (("train", "cached"), ("learn", Corpus(*DOCUMENTS))):
        with pytest.raises(annif.OperationFailedException, match="without --cached"):
            getattr(make(annif, folder), use)(corpus)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"epochs": "many"}, "'epochs' parameter must be a whole number. Got 'many'"),
        ({"epochs": "0"}, "'epochs' parameter of the recipe must be"),
        ({"min_df": ".5"}, "'min_df' parameter must be a whole number"),
    ],
)
def test_a_wrong_parameter_is_named(
    annif: Any, tmp_path: Path, config: dict[str, str], message: str
) -> None:
    with pytest.raises(annif.ConfigurationException, match=message) as caught:
        make(annif, tmp_path, **config).train(Corpus(*DOCUMENTS))
    assert caught.value.backend_id == "irli"


def test_a_vectorizer_of_another_training_is_reported(
    annif: Any, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    make(annif, other).train(Corpus(*DOCUMENTS[:5]), jobs=1)
    (other / "vectorizer").replace(folder / "vectorizer")
    with pytest.raises(annif.OperationFailedException, match="features"):
        make(annif, folder).suggest(QUESTIONS)


# --- files and the registry ----------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 5)),
    seed=st.integers(0, 1000),
    names=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1)),
)
def test_rows_are_read_as_they_were_written(
    annif: Any,
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, int, int],
    seed: int,
    names: list[str],
) -> None:
    rows, dim, labels = shape
    uris = [*names, *(f"u{number}" for number in range(labels))]
    rng = np.random.default_rng(seed)
    features = sp.random_array((rows, dim), density=0.5, rng=rng, format="csr", dtype=np.float32)
    carried = sp.random_array((rows, len(uris)), density=0.5, rng=rng, format="csr")
    carried.data[:] = 1
    path = str(tmp_path_factory.mktemp("rows") / "rows.npz")
    annif.write_rows(annif.DocumentRows(features, carried, uris), path)
    read = annif.read_rows(path)
    assert read.uris == uris
    np.testing.assert_array_equal(read.features.toarray(), features.toarray())
    np.testing.assert_array_equal(read.labels.toarray(), carried.toarray())


def test_registering_adds_the_backend(annif: Any) -> None:
    annif.register()
    registry = importlib.import_module("annif.backend")  # the real one, or the stand-in
    assert registry.get_backend("irli") is annif.IrliBackend


def test_training_says_what_it_learns(
    annif: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="annif"):
        make(annif, tmp_path).train(Corpus(*DOCUMENTS), jobs=1)
    assert f"learning 10 subjects from {len(DOCUMENTS)} documents, 15 features" in caplog.text
