"""A backend for Annif, the tool with which libraries suggest subjects for documents.

A project takes it with `backend=irli`. Its data folder holds

    vectorizer        Annif's TF-IDF features
    irli-train.npz    the training rows, for `train --cached` and `learn`
    irli-model        the index folder; `irli info` describes it

Labels are named by the URIs of their subjects. So a vocabulary may be loaded again, in another
order too, without training again.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.recipe import RECIPES, Recipe, recipe
from irli.base.types import Sparse
from irli.errors import InvalidParameter, IrliError, MissingDependency
from irli.labels.index import LabelIndex

try:
    import annif
    import annif.backend
    from annif.backend.backend import AnnifLearningBackend
    from annif.backend.mixins import TfidfVectorizerMixin
    from annif.exception import (
        ConfigurationException,
        NotInitializedException,
        NotSupportedException,
        OperationFailedException,
    )
    from annif.suggestion import SuggestionBatch
    from annif.util import atomic_save
except ModuleNotFoundError as error:
    raise MissingDependency(
        f"The backend for Annif needs {error.name}, which is not installed. "
        "Install it with: pip install 'irli[annif]'"
    ) from error

_SETTINGS = ("seed", "epochs", "repetitions", "buckets", "hidden")  # of the recipe


class DocumentRows(NamedTuple):
    """Documents as rows of features (n, d), their labels (n, L), and the URIs of the labels."""

    features: Sparse
    labels: Sparse
    uris: list[str]


class IrliBackend(TfidfVectorizerMixin, AnnifLearningBackend):  # type: ignore[misc]
    """Learned buckets of subjects, and a linear ranker for what they find."""

    name = "irli"

    TRAIN_FILE = "irli-train.npz"  # Annif ignores *-train* when it asks whether there is a model
    MODEL_FILE = "irli-model"

    DEFAULT_PARAMETERS: Mapping[str, Any] = {
        "min_df": 1,
        "ngram": 1,
        **{name: getattr(RECIPES["labels"], name) for name in _SETTINGS},
    }

    _index: LabelIndex | None = None
    _subject_ids: NDArray[np.int64]  # Annif's number of each label, -1 if the vocabulary lacks it

    # --- what Annif calls ------------------------------------------------------------------------

    def initialize(self, parallel: bool = False) -> None:
        """Load the model if it is not loaded."""
        self.initialize_vectorizer()
        self._get_index()

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        chosen = self._make_recipe(params)
        if corpus == "cached":
            self.info("reusing the training rows of the previous run")
            self.initialize_vectorizer()
            self._warn_of_features(params)
            rows = self._load_rows()
        else:
            rows = self._make_rows(corpus, params)
            self._save_rows(rows)
        count, dim = rows.features.shape
        self.info(f"learning {len(rows.uris)} subjects from {count} documents, {dim} features")
        with self._report_errors():
            index = LabelIndex(chosen)
            titles = self.vectorizer.transform(self._list_titles(rows.uris))
            index.fit(
                rows.features, rows.labels, names=rows.uris, titles=titles, threads=jobs or None
            )
            index.save(self._path(self.MODEL_FILE))
        self._use(index)

    def _learn(self, corpus: Any, params: dict[str, Any]) -> None:
        self.initialize()
        index, rows = self._get_index(), self._load_rows()
        if rows.uris[: len(index)] != list(index.names or ()):
            raise OperationFailedException(
                f"{self.TRAIN_FILE} is not what the model was trained on. Train the project again.",
                backend_id=self.backend_id,
            )
        count = rows.features.shape[0]
        rows = self._append_rows(rows, corpus)
        with self._report_errors():
            index = continue_learning(index, rows, count)
            # In this order: an index may know fewer labels than the rows, but not more.
            self._save_rows(rows)
            index.save(self._path(self.MODEL_FILE))
        self._use(index)

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> Any:
        limit = self._read_int(params, "limit")
        features = self.vectorizer.transform([document.text for document in documents])
        with self._report_errors():  # one thread: `--jobs` and web servers start processes
            found = self._get_index().predict(features, limit, threads=1)
        subjects = np.where(found.labels >= 0, self._subject_ids[found.labels], -1)
        subjects[np.diff(features.indptr) == 0] = -1  # no known word
        row, place = np.nonzero(subjects >= 0)
        shape = len(documents), len(self.project.subjects)
        entries = found.scores[row, place], (row, subjects[row, place])
        return SuggestionBatch(sp.coo_array(entries, shape=shape).tocsr())

    # --- the model -------------------------------------------------------------------------------

    def _get_index(self) -> LabelIndex:
        """Return the index. It is loaded when it is first needed."""
        if self._index is None:
            path = self._find_file(self.MODEL_FILE)
            with self._report_errors():
                return self._use(LabelIndex.load(path))
        return self._index

    def _use(self, index: LabelIndex) -> LabelIndex:
        """Suggest with an index from now on."""
        subjects = self.project.subjects
        numbers = [subjects.by_uri(uri, warnings=False) for uri in index.names or ()]
        self._subject_ids = np.array([-1 if each is None else each for each in numbers])
        self._index = index
        return index

    def _make_recipe(self, params: Mapping[str, Any]) -> Recipe:
        given = [name for name in _SETTINGS if params[name] is not None]
        settings = {name: self._read_int(params, name) for name in given}
        try:
            return recipe("labels", **settings)
        except InvalidParameter as error:
            raise ConfigurationException(str(error), backend_id=self.backend_id) from error

    def _warn_of_features(self, params: Mapping[str, Any]) -> None:
        """Warn if parameters ask for other features than the cached rows have."""
        made = {"min_df": self.vectorizer.min_df, "ngram": self.vectorizer.ngram_range[1]}
        for name, value in made.items():
            if self._read_int(params, name) != value:
                self.warning(
                    f"the cached documents have {name}={value}, not {params[name]}: train without "
                    "--cached to change it"
                )

    def _read_int(self, params: Mapping[str, Any], name: str) -> int:
        try:
            return int(params[name])
        except ValueError as error:
            raise ConfigurationException(
                f"The '{name}' parameter must be a whole number. Got {params[name]!r} instead.",
                backend_id=self.backend_id,
            ) from error

    def _list_titles(self, uris: list[str]) -> list[str]:
        """Return what the vocabulary calls each subject, in the project's language, or ""."""
        subjects, language = self.project.subjects, self.project.vocab_lang
        numbers = [subjects.by_uri(uri, warnings=False) for uri in uris]
        known = [{} if each is None else subjects[each].labels or {} for each in numbers]
        return [labels.get(language) or "" for labels in known]

    # --- training rows ---------------------------------------------------------------------------

    def _make_rows(self, corpus: Any, params: Mapping[str, Any]) -> DocumentRows:
        """Choose the features, and return all documents that have subjects."""
        settings = {
            "min_df": self._read_int(params, "min_df"),
            "ngram_range": (1, self._read_int(params, "ngram")),
            "tokenizer": self.project.analyzer.tokenize_words,
            "sublinear_tf": True,
            "dtype": np.float32,
        }
        subjects: list[list[int]] = []
        texts = _read_texts(corpus, subjects)
        try:
            features = self.create_vectorizer(texts, settings)
        except ValueError as error:
            if not subjects:
                raise self._no_documents("train") from error
            raise OperationFailedException(
                f"The {len(subjects)} documents have no features: {error}",
                backend_id=self.backend_id,
            ) from error
        return self._label_rows(features, subjects, [], "train")

    def _append_rows(self, known: DocumentRows, corpus: Any) -> DocumentRows:
        """Return the known rows and, with the same features, those of a corpus."""
        subjects: list[list[int]] = []
        texts = list(_read_texts(corpus, subjects))
        if not texts:
            raise self._no_documents("learn")
        new = self._label_rows(self.vectorizer.transform(texts), subjects, known.uris, "learn")
        count = len(new.uris)
        labels = sp.csr_array(
            (known.labels.data, known.labels.indices, known.labels.indptr),
            shape=(known.labels.shape[0], count),
        )
        return DocumentRows(
            sp.vstack([known.features, new.features], format="csr"),
            sp.vstack([labels, new.labels], format="csr"),
            new.uris,
        )

    def _label_rows(
        self, features: Any, subjects: list[list[int]], known: list[str], action: str
    ) -> DocumentRows:
        """Return rows with labels: the known URIs, and then new ones, by Annif's numbers."""
        features = sp.csr_array(features, dtype=np.float32)
        used = np.flatnonzero(np.diff(features.indptr))  # documents with a known word
        if not len(used):
            raise self._no_documents(action)
        index = self.project.subjects
        uri_of = {number: index[number].uri for number in sorted({n for s in subjects for n in s})}
        column = {uri: place for place, uri in enumerate(known)}
        for uri in uri_of.values():
            column.setdefault(uri, len(column))
        columns = [[column[uri_of[number]] for number in subjects[row]] for row in used]
        ends = np.cumsum([0, *map(len, columns)])
        entries = np.concatenate([np.array(row, dtype=np.int64) for row in columns])
        labels = sp.csr_array(
            (np.ones(len(entries), dtype=np.float32), entries, ends),
            shape=(len(used), len(column)),
        )
        labels.sort_indices()
        return DocumentRows(features[used], labels, list(column))

    def _save_rows(self, rows: DocumentRows) -> None:
        atomic_save(rows, self.datadir, self.TRAIN_FILE, method=write_rows)

    def _load_rows(self) -> DocumentRows:
        path = self._find_file(self.TRAIN_FILE)
        try:
            return read_rows(path)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise OperationFailedException(
                f"{path} cannot be read: {error}. Train the project again, without --cached.",
                backend_id=self.backend_id,
            ) from error

    # --- files and errors ------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self.datadir, name)

    def _find_file(self, name: str) -> str:
        path = self._path(name)
        if not os.path.exists(path):
            raise NotInitializedException(f"{path} not found", backend_id=self.backend_id)
        return path

    def _no_documents(self, action: str) -> Exception:
        made: Exception = NotSupportedException(
            f"Cannot {action} without a document that has subjects of the vocabulary and a word.",
            backend_id=self.backend_id,
        )
        return made

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Turn errors of irli into Annif's, which its command line prints in a line."""
        try:
            yield
        except IrliError as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error


def continue_learning(index: LabelIndex, rows: DocumentRows, known: int) -> LabelIndex:
    """Return the index after learning on. It has learned from the first `known` rows already.

    The new rows are enough for an index with a ranker. Without one, its routers go over all rows.
    """
    new = rows.uris[len(index) :]
    if index.calibration.is_blended:
        return index.partial_fit(rows.features[known:], rows.labels[known:], names=new)
    return index.fit(rows.features, rows.labels, names=new, start=index)


def _read_texts(corpus: Any, subjects: list[list[int]]) -> Iterator[str]:
    """Yield the texts of documents with subjects, in one pass, and put these into a list."""
    for document in corpus.documents:
        if document.subject_set:
            subjects.append(list(document.subject_set))
            yield document.text


def write_rows(rows: DocumentRows, path: str) -> None:
    """Write training rows into an `.npz` file."""
    features, labels = rows.features, rows.labels
    np.savez(
        path,
        data=features.data,
        indices=features.indices,
        indptr=features.indptr,
        dim=features.shape[1],
        label_indices=labels.indices,
        label_indptr=labels.indptr,
        uris=np.frombuffer("\n".join(rows.uris).encode(), dtype=np.uint8),
    )


def read_rows(path: str) -> DocumentRows:
    """Read training rows from an `.npz` file."""
    with open(path, "rb") as source, np.load(source) as file:
        uris = file["uris"].tobytes().decode().split("\n")
        columns, ends = file["label_indices"], file["label_indptr"]
        count = len(ends) - 1
        labels = sp.csr_array(
            (np.ones(len(columns), dtype=np.float32), columns, ends), shape=(count, len(uris))
        )
        features = sp.csr_array(
            (file["data"], file["indices"], file["indptr"]), shape=(count, int(file["dim"]))
        )
    return DocumentRows(features, labels, uris)


# --- adding the backend to Annif -----------------------------------------------------------------


def register() -> None:
    """Add the backend to those that Annif knows, for this process."""
    annif.backend._backend_fns[IrliBackend.name] = lambda: IrliBackend


def create_app() -> Any:
    """Return Annif's web application, for a server such as gunicorn, with the backend added."""
    register()
    return annif.create_app()
