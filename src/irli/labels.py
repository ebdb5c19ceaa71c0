"""LabelIndex: labels without vectors, learned from rows of features, ranked by learned scores."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli import storage
from irli.checks import check_bool, check_int
from irli.config import Recipe
from irli.config import recipe as named_recipe
from irli.errors import NotFitted
from irli.fusion import INDEX_ALONE
from irli.labelchecks import as_labels, as_rows
from irli.labelfit import Learned, freeze, hashed, ranker_of_new, sparse, with_ranker
from irli.labelfolder import KIND, Contents, pack, unpack
from irli.labelgrowth import joined, ranker_of
from irli.labellearning import known_of, learn
from irli.labelling import Labeller
from irli.labelwords import as_names, as_numbers, grown_names
from irli.metrics import load_summary
from irli.problem import Rows, Sparse
from irli.progress import Progress
from irli.text import Names, Vectorizer
from irli.threads import thread_count


class Prediction(NamedTuple):
    """Scores and labels, best first.

    With a ranker the scores are log-odds, fitted on held-out rows: above 0, more likely than not.
    """

    scores: NDArray[np.float32]
    labels: NDArray[np.int64]


class LabelIndex:
    """Extreme multi-label classification with learned, balanced buckets of labels.

    It also serves retrieval from a query log whose items have no vectors: rows are the queries,
    labels the items that they wanted.

    Parameters
    ----------
    recipe : str or Recipe
        How to learn: "labels", "paper-labels", or one made with `irli.recipe`.
    ranker : bool, optional
        Whether linear classifiers order what the index finds; by default, if that is better on
        held-out rows.

    Attributes
    ----------
    names : Names or None
        What the labels are called, if `fit` was told.
    vectorizer : Vectorizer or None
        What turns texts into rows, after `fit_text`.
    rows : int
        How many rows it has learned from.
    counts : int array of shape (L,)
        How many of them carry each label.
    history : list of dict
        How learning went.

    Examples
    --------
    >>> own = np.arange(600) % 20  # the label of each row
    >>> X = np.eye(20)[own] + 0.1 * np.random.default_rng(0).random((600, 20))
    >>> index = LabelIndex().fit(X, np.eye(20)[own])
    >>> index.predict(X[:5], k=1).labels.ravel()
    array([0, 1, 2, 3, 4])
    """

    def __init__(self, recipe: str | Recipe = "labels", *, ranker: bool | None = None) -> None:
        self.recipe = recipe if isinstance(recipe, Recipe) else named_recipe(recipe)
        self._asked = self.recipe  # `fit` fills in what depends on its data
        self._want_ranker = None if ranker is None else check_bool("ranker", ranker)
        self.history: list[dict[str, Any]] = []
        self._labeller: Labeller | None = None
        self.names: Names | None = None
        self.vectorizer: Vectorizer | None = None
        self.rows = 0
        self.counts = np.empty(0, dtype=np.int64)
        self._trained = np.empty(0, dtype=np.uint64)

    # --- learning ------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        names: Iterable[str] | None = None,
        progress: Progress = False,
        threads: int | None = None,
        workers: int = 1,
        device: str = "cpu",
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> LabelIndex:
        """Learn which labels the rows `X` carry.

        Parameters
        ----------
        X : array_like or sparse array of shape (n, d)
            Features. Sparse rows stay sparse, whatever their width.
        Y : sparse array of shape (n, L)
            Not zero where a row carries a label. Rows without labels are left out.
        names : iterable of str, optional
            What the L labels are called.
        progress, threads, workers, device, checkpoint
            As for `VectorIndex.fit`.
        """
        rows = as_rows(X)
        labels = as_labels(Y, rows.shape[0])
        check_int("workers", workers, at_least=1, owner="fit")
        none = None if names is None else Names.of([])
        named = grown_names(none, names, labels.shape[1], "fit")
        recipe = self._asked.resolved_for_labels(labels.shape[1])
        self._learn(
            rows,
            labels,
            recipe,
            workers=workers,
            threads=thread_count(threads),
            device=device,
            checkpoint=checkpoint,
            progress=progress,
        )
        self.names, self.vectorizer = named, None
        return self

    def fit_text(
        self, texts: Sequence[str], labels: Sequence[Sequence[str]], **options: Any
    ) -> LabelIndex:
        """Learn which labels the texts carry; the words of the texts become the features.

        Parameters
        ----------
        texts : n strings
        labels : n lists of strings
            The names of the labels of each text.
        **options
            As for `fit`.

        Examples
        --------
        >>> pets = ["cat", "dog", "bird"]
        >>> texts = [f"the {pet} {verb}" for pet in pets for verb in ("eats", "naps", "plays")]
        >>> index = LabelIndex().fit_text(texts, [[pet] for pet in pets for _ in range(3)])
        >>> [[name for name, _ in found] for found in index.predict_text(["My dog!", "a bird"], 1)]
        [['dog'], ['bird']]
        """
        worded = as_numbers(texts, labels)
        self.fit(worded.rows, worded.labels, names=worded.names, **options)
        self.vectorizer = worded.vectorizer
        return self

    def refit(
        self,
        X: Any,
        Y: Any,
        *,
        names: Iterable[str] | None = None,
        epochs: int = 2,
        progress: Progress = False,
        threads: int | None = None,
        device: str = "cpu",
    ) -> LabelIndex:
        """Go on learning with rows that have changed, from where the index is now.

        What is chosen is chosen on rows that the routers have never learned from: new ones, and
        those that were held out before. If there are too few of them, known rows are held out, and
        what is chosen is a little too sure of the routers.

        Parameters
        ----------
        X, Y : as for `fit`
            All rows that the index shall know, old and new: the ranker is trained anew on them. `Y`
            has a column for each label that the index has; further columns are new labels.
        names : iterable of str
            What the new labels are called, if the others have names.
        epochs : int
            How long the routers train.
        """
        frozen = self._fitted().frozen
        rows = as_rows(X, self._dim)
        labels = as_labels(Y, rows.shape[0])
        check_int("epochs", epochs, at_least=1, owner="refit")
        check_int("columns", labels.shape[1], at_least=len(self), owner="refit's Y")
        named = grown_names(self.names, names, labels.shape[1] - len(self), "refit")
        known = known_of(frozen, self._trained, rows, labels[:, len(self) :], self.recipe)
        self._learn(
            rows,
            labels,
            self.recipe,
            epochs=epochs,
            known=known,
            threads=thread_count(threads),
            device=device,
            progress=progress,
        )
        self.names = named
        return self

    def add_labels(
        self,
        X: Any,
        Y: Any,
        *,
        names: Iterable[str] | None = None,
        threads: int | None = None,
    ) -> LabelIndex:
        """Add labels without learning anew: each goes to the buckets that its rows are routed to.

        Parameters
        ----------
        X : array_like or sparse array of shape (n, d)
            Rows that carry the new labels. Others among them teach the ranker what does not.
        Y : sparse array of shape (n, m)
            Which of the m new labels each row carries. They become the labels from len(index) on.
        names : iterable of str
            What the new labels are called, if the others have names.
        """
        frozen = self._fitted().frozen
        rows = as_rows(X, self._dim)
        labels = as_labels(Y, rows.shape[0])
        named = grown_names(self.names, names, labels.shape[1], "add_labels")
        new = np.bincount(labels.indices, minlength=labels.shape[1])
        counts = np.concatenate([self.counts, new])
        known = known_of(frozen, self._trained, rows, labels, self.recipe)
        grown = freeze(known.routers, known.partitions, counts)
        if self.fusion.by_margin:
            new_ranker = ranker_of_new(sparse(rows), labels, thread_count(threads))
            grown = with_ranker(grown, joined(ranker_of(frozen), new_ranker))
        self.counts, self.names = counts, named
        self._set(Learned(grown, self.defaults, self.fusion))
        return self

    def _learn(self, rows: Rows, labels: Sparse, recipe: Recipe, **options: Any) -> None:
        outcome = learn(rows, labels, recipe, want_ranker=self._want_ranker, **options)
        went_on = options.get("known") is not None
        self.history = self.history + outcome.history if went_on else outcome.history
        self.recipe, self.counts, self._trained = recipe, outcome.counts, outcome.trained
        self.rows, self._dim = rows.shape
        self._set(outcome.learned)

    def _set(self, learned: Learned) -> None:
        self._labeller = Labeller(learned.frozen)
        self.defaults, self.fusion = learned.parameters, learned.fusion

    # --- predicting ----------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        probes: int | None = None,
        candidates: int | None = None,
        score: str | None = None,
        ranker: bool | None = None,
        threads: int | None = None,
    ) -> Prediction:
        """Return the k best labels of each row: Algorithm 2.

        What is not given is as `fit` chose it on held-out rows.

        Parameters
        ----------
        X : array_like or sparse array of shape (n, d), or (d,) for a single row
        probes : int
            Buckets to probe in each repetition.
        candidates : int
            Labels that the ranker puts in order.
        score : {"votes", "probability", "logit", "log-probability"}
            What a probed bucket adds to the score of its labels.
        ranker : bool
            False: the index alone.
        threads : int
            -1 for every core.

        Returns
        -------
        Prediction
            `scores` and `labels` of shape (n, k), or (k,) for a single row. Where fewer than k
            labels are found, the rest is -1.
        """
        labeller = self._fitted()
        k = check_int("k", k, at_least=1, owner="predict")
        rows = as_rows(X, self._dim)
        parameters = self.defaults.changed(probes, candidates, score)
        alone = ranker is not None and not check_bool("ranker", ranker, owner="predict")
        fusion = INDEX_ALONE if alone else self.fusion
        most = min(k, len(self))
        scores, labels = labeller.predict(
            sparse(hashed(rows, self.recipe.features, self.recipe.seed)),
            sparse(rows),
            most,
            parameters,
            fusion,
            thread_count(threads),
        )
        if most < k:
            more = ((0, 0), (0, k - most))
            scores = np.pad(scores, more, constant_values=-np.inf)
            labels = np.pad(labels, more, constant_values=-1)
        single = isinstance(X, np.ndarray) and X.ndim == 1
        return Prediction(scores[0], labels[0]) if single else Prediction(scores, labels)

    def predict_text(
        self, texts: Sequence[str], k: int = 5, **options: Any
    ) -> list[list[tuple[str, float]]]:
        """Return the names and scores of at most k labels of each text, best first.

        Parameters
        ----------
        **options
            As for `predict`.
        """
        vectorizer, names = self._text()
        return as_names(*self.predict(vectorizer.transform(texts), k, **options), names)

    def features(self, texts: Sequence[str]) -> Sparse:
        """Return texts as rows of the features that `fit_text` learned from."""
        return self._text()[0].transform(texts)

    def _text(self) -> tuple[Vectorizer, Names]:
        self._fitted()
        if self.vectorizer is None or self.names is None:
            raise NotFitted(
                "This LabelIndex was fitted on rows of features and cannot read texts. Make the "
                "same features of them and call predict, or fit it with fit_text(texts, labels)."
            )
        return self.vectorizer, self.names

    # --- looking -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._fitted().frozen.prior)

    def __repr__(self) -> str:
        if self._labeller is None:
            return f"LabelIndex(recipe={self.recipe.name!r}, not fitted)"
        repetitions, buckets = self._labeller.frozen.bias.shape
        ranker = "with" if self.fusion.by_margin else "without"
        return (
            f"LabelIndex(recipe={self.recipe.name!r}, {len(self)} labels, "
            f"{repetitions} x {buckets} buckets, {ranker} ranker)"
        )

    def loads(self) -> list[NDArray[np.int64]]:
        """Return the loads of the buckets, an array of shape (B,) for each repetition."""
        return list(np.diff(self._fitted().frozen.offsets, axis=1))

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and bytes as plain values."""
        frozen = self._fitted().frozen
        repetitions, buckets = frozen.bias.shape
        arrays = [value for value in frozen if isinstance(value, np.ndarray)]
        return {
            "kind": KIND,
            "items": len(self),
            "rows": self.rows,
            "dim": self._dim,
            "names": self.names is not None,
            "text": self.vectorizer is not None,
            "repetitions": repetitions,
            "buckets": buckets,
            "entries": len(frozen.items),
            "ranker_weights": len(frozen.weights),
            "loads": [load_summary(loads) for loads in self.loads()],
            "recipe": dataclasses.asdict(self.recipe),
            "defaults": dataclasses.asdict(self.defaults),
            "fusion": self.fusion._asdict(),
            "bytes": sum(value.nbytes for value in arrays),
        }

    def _fitted(self) -> Labeller:
        if self._labeller is None:
            raise NotFitted("This LabelIndex is not fitted yet. Call fit(X, Y) or irli.load(path).")
        return self._labeller

    # --- files ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index folder `path`, replacing an index that is there already."""
        contents = Contents(
            self.recipe,
            Learned(self._fitted().frozen, self.defaults, self.fusion),
            self.history,
            self.rows,
            self._dim,
            self.counts,
            self._trained,
            self.names,
            self.vectorizer,
            self._want_ranker,
        )
        storage.write_folder(path, pack(contents))

    @classmethod
    def from_folder(cls, folder: storage.Folder) -> LabelIndex:
        """Make the index that a folder holds; `irli.load` opens any kind."""
        contents = unpack(folder)
        index = cls(contents.recipe, ranker=contents.want_ranker)
        index.history, index.counts = contents.history, contents.counts
        index.rows, index._dim = contents.rows, contents.dim
        index._trained = contents.trained
        index.names, index.vectorizer = contents.names, contents.vectorizer
        index._set(contents.learned)
        return index
