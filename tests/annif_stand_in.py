"""A stand-in for Annif where it is not installed: what a backend gets from it, and no more.

Classes, names and behaviour are those of Annif 1.4. With the real one, the same tests run in
`.venv-annif` (`make test-annif`).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

BACKENDS: dict[str, Any] = {}


class AnnifBackend:
    """A backend: parameters, a data folder, and whether there is a model in it."""

    name: str | None = None
    DEFAULT_PARAMETERS: Mapping[str, Any] = {"limit": 100}

    def __init__(self, backend_id: str, config_params: Any, project: Any) -> None:
        self.backend_id = backend_id
        self.config_params = config_params
        self.project = project
        self.datadir = project.datadir

    def _merge(self, params: Any) -> dict[str, Any]:
        own = {**AnnifBackend.DEFAULT_PARAMETERS, **self.DEFAULT_PARAMETERS}
        return {**own, **self.config_params, **(params or {})}

    @property
    def is_trained(self) -> bool:
        folder = Path(self.datadir)
        ignored = {*folder.glob("*-train*"), *folder.glob("tmp-*"), folder / "vectorizer"}
        return any(path.is_file() and path not in ignored for path in folder.rglob("*"))

    def train(self, corpus: Any, params: Any = None, jobs: int = 0) -> None:
        self._train(corpus, params=self._merge(params), jobs=jobs)  # type: ignore[attr-defined]

    def initialize(self, parallel: bool = False) -> None:
        pass

    def suggest(self, documents: list[Any], params: Any = None) -> Any:
        self.initialize()
        return self._suggest_batch(documents, params=self._merge(params))  # type: ignore[attr-defined]

    def info(self, message: str) -> None:
        logging.getLogger("annif").info(message)

    def warning(self, message: str) -> None:
        logging.getLogger("annif").warning(message)


class AnnifLearningBackend(AnnifBackend):
    """A backend that can learn on."""

    def learn(self, corpus: Any, params: Any = None) -> None:
        self._learn(corpus, params=self._merge(params))  # type: ignore[attr-defined]


class TfidfVectorizerMixin:
    """Scikit-learn's TF-IDF, kept in the data folder."""

    vectorizer: Any = None

    def initialize_vectorizer(self) -> None:
        import joblib

        path = Path(self.datadir) / "vectorizer"  # type: ignore[attr-defined]
        if self.vectorizer is None:
            if not path.exists():
                raise NotInitializedException(f"vectorizer file '{path}' not found")
            self.vectorizer = joblib.load(path)

    def create_vectorizer(self, input: Any, params: dict[str, Any]) -> Any:
        import joblib
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.vectorizer = TfidfVectorizer(**{**params, "token_pattern": None})
        rows = self.vectorizer.fit_transform(input)
        joblib.dump(self.vectorizer, Path(self.datadir) / "vectorizer")  # type: ignore[attr-defined]
        return rows


class SuggestionBatch:
    """A sparse matrix of scores, documents by subjects."""

    def __init__(self, array: Any) -> None:
        self.array = array


class AnnifException(Exception):
    """The base class of Annif's errors."""

    def __init__(
        self, message: str, project_id: str | None = None, backend_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.backend_id = message, backend_id


class NotInitializedException(AnnifException):
    """There is no vocabulary or no model."""


class ConfigurationException(AnnifException):
    """A parameter is wrong."""


class NotSupportedException(AnnifException):
    """A backend cannot do that."""


class OperationFailedException(AnnifException):
    """Something else went wrong."""


def atomic_save(obj: Any, dirname: str, filename: str, method: Any = None) -> None:
    """Save an object under another name, and then rename the file."""
    part = os.path.join(dirname, f"tmp-{filename}")
    method(obj, part)
    os.replace(part, os.path.join(dirname, filename))


def get_backend(name: str) -> Any:
    """Return the class of a backend."""
    return BACKENDS[name]()


MODULES: dict[str, dict[str, Any]] = {
    "annif": {},
    "annif.backend": {"_backend_fns": BACKENDS, "get_backend": get_backend},
    "annif.backend.backend": {"AnnifLearningBackend": AnnifLearningBackend},
    "annif.backend.mixins": {"TfidfVectorizerMixin": TfidfVectorizerMixin},
    "annif.exception": {
        each.__name__: each
        for each in (
            ConfigurationException,
            NotInitializedException,
            NotSupportedException,
            OperationFailedException,
        )
    },
    "annif.suggestion": {"SuggestionBatch": SuggestionBatch},
    "annif.util": {"atomic_save": atomic_save},
}


def install() -> None:
    """Put the stand-in among the imported modules."""
    uninstall()  # pytest keeps a module that could not be imported
    for name, contents in MODULES.items():
        module = ModuleType(name)
        module.__path__ = []  # so that it can have submodules
        vars(module).update(contents)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


def uninstall() -> None:
    """Take it out again, and what was made with it."""
    for name in [*MODULES, "irli.integrations.annif"]:
        sys.modules.pop(name, None)


# --- what a backend is given, with the real Annif too --------------------------------------------


class Subjects:
    """A vocabulary: the number of a subject is the place of its URI. It may have English labels."""

    def __init__(self, uris: list[str], labels: Mapping[str, str] | None = None) -> None:
        self.uris, self.labels = uris, labels or {}

    def __len__(self) -> int:
        return len(self.uris)

    def __getitem__(self, number: int) -> Any:
        uri = self.uris[number]
        labels = {"en": self.labels[uri]} if uri in self.labels else None
        return SimpleNamespace(uri=uri, labels=labels)

    def by_uri(self, uri: str, warnings: bool = True) -> int | None:
        return self.uris.index(uri) if uri in self.uris else None


class Analyzer:
    """Words are what white space separates."""

    def tokenize_words(self, text: str) -> list[str]:
        return text.split()


class Corpus:
    """Pairs of a text and the numbers of its subjects."""

    def __init__(self, *pairs: tuple[str, list[int]]) -> None:
        self.pairs = pairs

    @property
    def documents(self) -> Any:
        return (SimpleNamespace(text=text, subject_set=numbers) for text, numbers in self.pairs)


def best(batch: Any) -> list[int]:
    """Return the subject of the highest score of each document, -1 if it has none."""
    rows = batch.array.toarray()
    return [int(np.argmax(row)) if row.any() else -1 for row in rows]
