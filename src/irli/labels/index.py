"""LabelIndex, the public class: fit, refit, add_labels, predict (rows or texts), save and load."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import check_bool, check_int, check_keywords
from irli.base.folder import LABELS, Folder, reading, write_folder
from irli.base.index import SavedIndex
from irli.base.logs import get_logger
from irli.base.metrics import load_summary
from irli.base.recipe import Recipe, as_recipe
from irli.base.sparse import as_labels, as_rows
from irli.base.threads import thread_count
from irli.base.types import Rows, Sparse, StrPath
from irli.engine.label_layout import BLOCK
from irli.errors import NotFitted
from irli.labels.assemble import add_ranker, assemble_labels, read_ranker, read_repetitions
from irli.labels.calibration import INDEX_ALONE
from irli.labels.contents import LabelContents, pack_labels, unpack_labels
from irli.labels.features import as_sparse, hash_features
from irli.labels.grow import add_to_partitions, join_rankers, train_new_labels
from irli.labels.parameters import PredictArguments
from irli.labels.predictor import Predictor
from irli.labels.problem import LabelProblem, make_label_problem
from irli.labels.text import Names, Vectorizer, extend_names, name_labels, vectorize_texts
from irli.labels.tune import LabelModel, tune_labels
from irli.learning import learn, load_runs
from irli.learning.options import LearnArguments, LearnOptions
from irli.learning.repetition import History, Repetition, join_histories

log = get_logger(__name__)


class Prediction(NamedTuple):
    """Scores and labels, best first.

    With a ranker, scores are log-odds, calibrated on held-out rows. Above 0, a label is more likely
    than not.
    """

    scores: NDArray[np.float32]
    labels: NDArray[np.int64]


class LabelIndex(SavedIndex):
    """Extreme multi-label classification with learned, balanced buckets of labels.

    It also learns retrieval from a query log whose items have no vectors. The rows are then the
    queries, and the labels the items that were relevant to them.

    Parameters
    ----------
    recipe : str or Recipe
        How to learn: "labels", "paper-labels", or one made with `irli.recipe`.
    ranker : bool, optional
        Whether linear classifiers rerank the labels that the index finds. By default they do if
        that is better on held-out rows.

    Attributes
    ----------
    names : Names or None
        The names of the labels, if `fit` was given any.
    vectorizer : Vectorizer or None
        Turns texts into rows of features. It is set by `fit_text`.
    rows : int
        The number of rows that the index has learned from.
    counts : int array of shape (L,)
        The number of these rows that carry each label.
    history : list of dict
        Loss, recall and loads after each re-partition of each repetition.

    Examples
    --------
    >>> own = np.arange(600) % 20  # the label of each row
    >>> X = np.eye(20)[own] + 0.1 * np.random.default_rng(0).random((600, 20))
    >>> index = LabelIndex().fit(X, np.eye(20)[own])
    >>> index.predict(X[:5], k=1).labels.ravel()
    array([0, 1, 2, 3, 4])
    """

    def __init__(self, recipe: str | Recipe = "labels", *, ranker: bool | None = None) -> None:
        self.recipe = self._given_recipe = as_recipe(recipe)  # `fit` resolves it for its data
        self._want_ranker = None if ranker is None else check_bool("ranker", ranker)
        self.history: History = []
        self._predictor: Predictor | None = None
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
        **options: Unpack[LearnArguments],
    ) -> LabelIndex:
        """Learn which labels the rows `X` carry.

        Parameters
        ----------
        X : array_like or sparse array of shape (n, d)
            Features. Sparse rows stay sparse, however many features there are.
        Y : sparse array of shape (n, L)
            Nonzero where a row carries a label. Rows without labels are not used.
        names : iterable of str, optional
            Names of the L labels.
        **options
            progress, threads, workers, device, checkpoint: see `LearnOptions`.
        """
        check_keywords(options, LearnArguments.__annotations__, owner="fit")
        run = LearnOptions(**options)
        load_runs(run.device)  # fails early if torch or the device is missing
        rows = as_rows(X)
        labels = as_labels(Y, rows.shape[0])
        named = None if names is None else Names.of([])
        named = extend_names(named, names, labels.shape[1], "fit")
        recipe = self._given_recipe.resolve_for_labels(labels.shape[1])

        made = make_label_problem(rows, labels, recipe)
        repetitions = learn(made.problem, recipe, run)
        contents = complete_labels(
            made, repetitions, rows, labels, recipe, self._want_ranker, run.thread_count
        )
        self._set(dataclasses.replace(contents, names=named))
        return self

    def fit_text(
        self, texts: Sequence[str], labels: Sequence[Sequence[str]], **options: Any
    ) -> LabelIndex:
        """Learn which labels the texts carry. The features are the words of the texts.

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
        made = vectorize_texts(texts, labels)
        self.fit(made.rows, made.labels, names=made.names, **options)
        self.vectorizer = made.vectorizer
        return self

    def refit(
        self,
        X: Any,
        Y: Any,
        *,
        names: Iterable[str] | None = None,
        epochs: int = 2,
        **options: Unpack[LearnArguments],
    ) -> LabelIndex:
        """Continue learning on changed rows, starting from the current index.

        Rows that the routers have never seen are held out: new rows, and those held out before. If
        there are too few of them, seen rows are held out, and what is tuned on these trusts the
        routers a little too much.

        Parameters
        ----------
        X, Y : as for `fit`
            All rows, old and new. The ranker is trained again on all of them. `Y` has a column for
            each label of the index; further columns are new labels.
        names : iterable of str
            Names of the new labels, if the others have names.
        epochs : int
            Training epochs of the routers.
        **options
            As for `fit`.
        """
        layout = self._fitted().layout
        check_keywords(options, LearnArguments.__annotations__, owner="refit")
        run = LearnOptions(**options)
        load_runs(run.device)
        rows = as_rows(X, self._dim)
        labels = as_labels(Y, rows.shape[0])
        check_int("epochs", epochs, at_least=1, owner="refit")
        check_int("columns", labels.shape[1], at_least=len(self), owner="refit's Y")
        named = extend_names(self.names, names, labels.shape[1] - len(self), "refit")
        recipe = self.recipe

        known = read_repetitions(layout)
        start = add_to_partitions(known, rows, labels[:, len(self) :], recipe)
        made = make_label_problem(rows, labels, recipe, self._trained)
        repetitions = learn(made.problem, dataclasses.replace(recipe, epochs=epochs), run, start)
        contents = complete_labels(
            made, repetitions, rows, labels, recipe, self._want_ranker, run.thread_count
        )
        history = self.history + contents.history
        self._set(
            dataclasses.replace(contents, history=history, names=named, vectorizer=self.vectorizer)
        )
        return self

    def add_labels(
        self,
        X: Any,
        Y: Any,
        *,
        names: Iterable[str] | None = None,
        threads: int | None = None,
    ) -> LabelIndex:
        """Add labels without retraining: each goes to the buckets to which its rows are routed.

        Parameters
        ----------
        X : array_like or sparse array of shape (n, d)
            Rows that carry the new labels. Further rows serve the ranker as negatives.
        Y : sparse array of shape (n, m)
            Which of the m new labels each row carries. They are numbered from len(index) up.
        names : iterable of str
            Names of the new labels, if the others have names.
        """
        layout = self._fitted().layout
        rows = as_rows(X, self._dim)
        labels = as_labels(Y, rows.shape[0])
        named = extend_names(self.names, names, labels.shape[1], "add_labels")
        counts = np.concatenate([self.counts, count_labels(labels)])
        repetitions = add_to_partitions(read_repetitions(layout), rows, labels, self.recipe)
        grown = assemble_labels(repetitions, counts)
        if self.calibration.by_margin:
            new_ranker = train_new_labels(as_sparse(rows), labels, thread_count(threads))
            grown = add_ranker(grown, join_rankers(read_ranker(layout), new_ranker))
        self.counts, self.names, self._predictor = counts, named, Predictor(grown)
        return self

    def _set(self, contents: LabelContents) -> None:
        self.recipe, self.history = contents.recipe, contents.history
        self.rows, self._dim = contents.rows, contents.dim
        self.counts, self._trained = contents.counts, contents.trained
        self.names, self.vectorizer = contents.names, contents.vectorizer
        self.defaults, self.calibration = contents.model.parameters, contents.model.calibration
        self._predictor = Predictor(contents.model.layout)

    # --- predicting ----------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        ranker: bool | None = None,
        threads: int | None = None,
        **parameters: Unpack[PredictArguments],
    ) -> Prediction:
        """Return the k best labels of each row (Algorithm 2 of the paper).

        Parameters
        ----------
        X : array_like or sparse array of shape (n, d), or (d,) for a single row
        ranker : bool
            False returns what the index finds, without reranking.
        threads : int
            -1 uses every core.
        **parameters
            probes, candidates, score: see `LabelParameters`. Those left out have the values that
            `fit` chose on held-out rows.

        Returns
        -------
        Prediction
            `scores` and `labels` of shape (n, k), or (k,) for a single row. If fewer than k labels
            are found, the other columns have label -1.
        """
        predictor = self._fitted()
        k = check_int("k", k, at_least=1, owner="predict")
        rows = as_rows(X, self._dim)
        chosen = self.defaults.replace(**parameters)
        alone = ranker is not None and not check_bool("ranker", ranker, owner="predict")
        calibration = INDEX_ALONE if alone else self.calibration
        most = min(k, len(self))
        routed = hash_features(rows, self.recipe)
        if threads is not None or rows.shape[0] > BLOCK:  # asking the system takes a while
            threads = thread_count(threads)
        scores, labels = predictor.predict(routed, rows, most, chosen, calibration, threads or 1)
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
        vectorizer, names = self._get_text_model()
        return name_labels(*self.predict(vectorizer.transform(texts), k, **options), names)

    def features(self, texts: Sequence[str]) -> Sparse:
        """Return texts as rows of features, in the way of `fit_text`."""
        return self._get_text_model()[0].transform(texts)

    def _get_text_model(self) -> tuple[Vectorizer, Names]:
        self._fitted()
        if self.vectorizer is None or self.names is None:
            raise NotFitted(
                "This LabelIndex was fitted on rows of features and cannot read texts. Turn them "
                "into rows of the same features and call predict, or fit the index with "
                "fit_text(texts, labels)."
            )
        return self.vectorizer, self.names

    # --- inspecting ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._fitted().layout.prior)

    def __repr__(self) -> str:
        if self._predictor is None:
            return f"LabelIndex(recipe={self.recipe.name!r}, not fitted)"
        repetitions, buckets = self._predictor.layout.bias.shape
        ranker = "with" if self.calibration.by_margin else "without"
        return (
            f"LabelIndex(recipe={self.recipe.name!r}, {len(self)} labels, "
            f"{repetitions} x {buckets} buckets, {ranker} ranker)"
        )

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many labels each bucket holds: an array of shape (B,) for each repetition."""
        return list(np.diff(self._fitted().layout.offsets, axis=1))

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes as plain values."""
        layout = self._fitted().layout
        repetitions, buckets = layout.bias.shape
        return {
            "kind": LABELS,
            "items": len(self),
            "rows": self.rows,
            "dim": self._dim,
            "names": self.names is not None,
            "text": self.vectorizer is not None,
            "repetitions": repetitions,
            "buckets": buckets,
            "entries": len(layout.items),
            "ranker_weights": len(layout.weights),
            "loads": [load_summary(loads) for loads in self.loads()],
            "recipe": dataclasses.asdict(self.recipe),
            "defaults": dataclasses.asdict(self.defaults),
            "calibration": self.calibration._asdict(),
            "bytes": sum(part.nbytes for part in layout),
        }

    def _fitted(self) -> Predictor:
        if self._predictor is None:
            raise NotFitted("This LabelIndex is not fitted yet. Call fit(X, Y) or irli.load(path).")
        return self._predictor

    # --- files ---------------------------------------------------------------------------------

    def save(self, path: StrPath) -> None:
        """Write the index folder `path`. An index that is there already is replaced."""
        contents = LabelContents(
            recipe=self.recipe,
            model=LabelModel(self._fitted().layout, self.defaults, self.calibration),
            history=self.history,
            rows=self.rows,
            dim=self._dim,
            counts=self.counts,
            trained=self._trained,
            names=self.names,
            vectorizer=self.vectorizer,
            want_ranker=self._want_ranker,
        )
        write_folder(path, pack_labels(contents))

    @classmethod
    def from_folder(cls, folder: Folder) -> LabelIndex:
        """Return the index that a folder in memory holds."""
        contents = unpack_labels(folder)
        index = cls(contents.recipe, ranker=contents.want_ranker)
        with reading():  # the native engine checks that no array points outside of another
            index._set(contents)
        return index


def complete_labels(
    made: LabelProblem,
    repetitions: list[Repetition],
    rows: Rows,
    labels: Sparse,
    recipe: Recipe,
    want_ranker: bool | None,
    threads: int,
) -> LabelContents:
    """Run the last two phases, assemble and tune, on rows (n, d) with labels (n, L)."""
    counts = count_labels(labels)
    layout = assemble_labels(repetitions, counts)
    model = tune_labels(layout, rows, labels, made.split, recipe, want_ranker, threads)
    ranker = "with" if model.calibration.by_margin else "without"
    log.info("tuned: %s, %s ranker", model.parameters, ranker)
    return LabelContents(
        recipe=recipe,
        model=model,
        history=join_histories(repetitions),
        rows=rows.shape[0],
        dim=rows.shape[1],
        counts=counts,
        trained=made.trained,
        want_ranker=want_ranker,
    )


def count_labels(labels: Sparse) -> NDArray[np.int64]:
    """Return how many rows carry each label (L,)."""
    return np.bincount(labels.indices, minlength=labels.shape[1])
