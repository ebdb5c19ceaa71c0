"""LabelFront: what all label indexes share. It checks arguments, and asks what was learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import check_float, check_k
from irli.base.html import render_html
from irli.base.index import Configured
from irli.base.logs import describe_few, warn
from irli.base.metrics import load_summary
from irli.base.recipe import Recipe, as_recipe
from irli.base.sparse import as_query_rows
from irli.base.types import Rows
from irli.errors import InvalidParameter, NotFitted
from irli.labels.explain import RowExplanation
from irli.labels.parameters import PredictArguments
from irli.labels.text.reads_texts import ReadsTexts
from irli.labels.text.vectorizer import Names, Vectorizer, vectorize_more, vectorize_texts
from irli.labels.tuning.calibration import to_probabilities
from irli.learning.options import LearnArguments
from irli.learning.repetition import History

Answer = tuple[NDArray[np.float32], NDArray[np.int64]]  # log-odds and labels


class Prediction(NamedTuple):
    """Scores and labels, best first.

    A score is the probability that the row carries the label, calibrated on held-out rows: in
    (0, 1], and 0 where there is no label.
    """

    scores: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def counts(self) -> Any:
        """How many labels were found for each row. The other columns are padding."""
        return (self.labels >= 0).sum(axis=-1)


class Known(Protocol):
    """What is known of the labels, wherever they are: see `LabelContents`."""

    @property
    def recipe(self) -> Recipe: ...
    @property
    def history(self) -> History: ...
    @property
    def rows(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def counts(self) -> NDArray[np.int64]: ...
    @property
    def names(self) -> Names | None: ...
    @property
    def vectorizer(self) -> Vectorizer | None: ...


class LabelEngine(Protocol):
    """What learning leaves behind, and predicts: in memory, or in several parts.

    Arguments have been checked, and rows are of the features that it has learned from.
    """

    @property
    def contents(self) -> Known: ...
    def rank(
        self,
        rows: Rows,
        k: int,
        ranker: bool | None,
        threads: int | None,
        parameters: PredictArguments,
    ) -> Answer:
        """Return log-odds and labels (n, k), best first, padded with -inf and -1."""

    def explain(
        self, rows: Rows, k: int, ranker: bool | None, parameters: PredictArguments
    ) -> list[RowExplanation]: ...
    def least_votes(self, parameters: PredictArguments) -> int:
        """Return the votes that a label needs to be found."""

    def loads(self) -> list[NDArray[np.int64]]: ...
    def stats(self) -> dict[str, Any]: ...


E = TypeVar("E", bound=LabelEngine)


class LabelFront(ReadsTexts, Configured, Generic[E]):
    """The methods of every label index, wherever its labels are.

    Learning is all or nothing: if it fails or is interrupted, the index answers as before.
    """

    _given: dict[str, Any]
    _learned: E | None = None

    # --- learning ------------------------------------------------------------------------------

    def _show(self, learned: E) -> None:
        """Answer with what was learned, from the next prediction on."""
        self._learned = learned

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        names: Iterable[str] | None = None,
        titles: Any = None,
        start: Self | None = None,
        **options: Unpack[LearnArguments],
    ) -> Self:
        """Learn which labels the rows `X` carry.

        Parameters
        ----------
        X : array_like or sparse array of shape (n, d)
            Features. Sparse rows stay sparse, however many features there are.
        Y : matrix of shape (n, L), or lists of labels, or one label for each row
            Either a matrix that is nonzero where a row carries a label: sparse, or a dense array of
            bools or floats. Or names of labels, or their numbers from 0 up: n lists, or an int
            array of shape (n, j), padded with -1, or one for each row. An integer array that may
            be a matrix of zeros and ones is refused. Rows without labels are not used.
        names : iterable of str, optional
            Names of the L labels. By default those that `Y` has, sorted.
        titles : array_like or sparse array of shape (L, d), optional
            The features of each label's title, made like those of `X`. A label is learned from its
            title as from one more row. Rows of zeros teach nothing.
        start : LabelIndex, optional
            An earlier index of similar rows, in memory or loaded. It may be this one. Learning goes
            on from it: its labels come first, and further columns of `Y`, or `names`, are new ones.
            Where at most a quarter of the rows are new or have other labels, and it has a ranker,
            that takes a fifth of the time; else all is chosen and ranked anew. Recipe and features
            are those of `start`.
            Rows that its routers have never seen are held out. Not for shards.
        **options
            progress, threads, workers, device, checkpoint: see `LearnOptions`. For shards they are
            as for `ShardedIndex.fit`.

        Examples
        --------
        >>> import irli
        >>> X = np.eye(3).repeat(4, axis=0)
        >>> index = irli.LabelIndex().fit(X, ["ant", "bee", "cow"] * 4)
        >>> irli.LabelIndex().fit(X, np.arange(3).repeat(4)).predict(X[::4], k=1).labels.ravel()
        array([0, 1, 2])
        """
        self._show(self._learn(X, Y, names, titles, start, options))
        return self

    def fit_text(
        self,
        texts: Iterable[Any],
        labels: Iterable[Iterable[str]] | None = None,
        *,
        vectorizer: Vectorizer | None = None,
        titles: Mapping[str, str] | None = None,
        start: Self | None = None,
        **options: Unpack[LearnArguments],
    ) -> Self:
        """Learn which labels the texts carry. The features are the words of the texts.

        Parameters
        ----------
        texts : n strings
            Or, without `labels`, n pairs of a text and its labels. They may be a stream, such as
            that of `irli.labels.files.documents.read_documents`, and are read once.
        labels : n lists of strings
            The names of the labels of each text.
        vectorizer : Vectorizer, optional
            What to take as features: see its settings. The index fits a copy of it.
        titles : dict, optional
            What people read for labels whose names are URIs or codes, by name: see
            `irli.labels.files.read_titles`. `names.title` has them afterwards. A label is learned
            from its title, too, as from one more text: so they should be in the language of the
            texts.
        start : LabelIndex, optional
            An earlier index of similar texts: see `fit`. Its words and names stay, words that it
            does not know are ignored, and new names come after its own.
        **options
            As for `fit`.

        Examples
        --------
        >>> import irli
        >>> pets = ["cat", "dog", "bird"]
        >>> texts = [f"the {pet} {verb}" for pet in pets for verb in ("eats", "naps", "plays")]
        >>> index = irli.LabelIndex().fit_text(texts, [[pet] for pet in pets for _ in range(3)])
        >>> [[name for name, _ in found] for found in index.predict_text(["My dog!", "a bird"], 1)]
        [['dog'], ['bird']]
        """
        if start is None:
            made = vectorize_texts(texts, labels, vectorizer, titles)
            named = made.names
        else:
            if vectorizer is not None:
                raise InvalidParameter(
                    "The 'vectorizer' parameter of fit_text must be left out with start, whose "
                    "words are used. Got one. Leave one of them out."
                )
            words, known = start._get_text_model()
            made = vectorize_more(texts, labels, words, known, titles, "fit_text")
            named = Names.of(list(made.names)[len(known) :], made.names.titles)
            if made.names.titles:  # those of known labels teach, too
                written = (made.names.titles.get(name, "") for name in made.names)
                made = made._replace(titles=words.transform(written))
        self._show(
            self._learn(made.rows, made.labels, named, made.titles, start, options, made.vectorizer)
        )
        return self

    def _learn(
        self,
        X: Any,
        Y: Any,
        names: Iterable[str] | None,
        titles: Any,
        start: Self | None,
        options: LearnArguments,
        vectorizer: Vectorizer | None = None,
    ) -> E:
        raise NotImplementedError

    # --- predicting ----------------------------------------------------------------------------

    def _predict(
        self,
        engine: E,
        X: Any,
        k: int,
        threshold: float | None,
        ranker: bool | None,
        threads: int | None,
        parameters: PredictArguments,
    ) -> Prediction:
        if threshold is not None:
            check_float("threshold", threshold, at_least=0.0, at_most=1.0, owner="predict")
        odds, labels, single = self._rank(engine, X, k, ranker, threads, parameters)
        scores = to_probabilities(odds)
        missing = labels < 0
        scores[missing] = 0
        least = engine.least_votes(parameters)
        if least > 1 and missing[:, : len(self)].any():
            warn(describe_few(k, "labels", "rows", least))
        if threshold is not None:
            unlikely = scores < threshold
            scores[unlikely], labels[unlikely] = 0, -1
        return Prediction(scores[0], labels[0]) if single else Prediction(scores, labels)

    def _rank(
        self,
        engine: E,
        X: Any,
        k: int,
        ranker: bool | None,
        threads: int | None,
        parameters: PredictArguments,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], bool]:
        """Return log-odds and labels (n, k), best first, and whether a single row was given."""
        k = check_k(k, len(self), owner="predict")
        rows, single = as_query_rows(X, self.dim)
        return *engine.rank(rows, k, ranker, threads, parameters), single

    def explain(
        self,
        X: Any,
        k: int = 5,
        *,
        ranker: bool | None = None,
        **parameters: Unpack[PredictArguments],
    ) -> Any:
        """Return why the k best labels of a row were predicted. This is for one row, or for a few.

        Parameters
        ----------
        X, k, ranker, **parameters
            As for `predict`.

        Returns
        -------
        RowExplanation, or a list of them
            One for a single row (d,), and a list for rows (n, d). Its `labels` are those of
            `predict`: see `LabelExplanation`. Printed, it can be read. In shards, the buckets of a
            label are those of its shard.

        Examples
        --------
        >>> import irli
        >>> own = np.arange(600) % 20
        >>> X = np.eye(20)[own] + 0.1 * np.random.default_rng(0).random((600, 20))
        >>> index = irli.LabelIndex(ranker=True).fit(X, own[:, None])
        >>> best = index.explain(X[7], k=1).labels[0]
        >>> best.label, best.words[0].word
        (7, '7')
        >>> sources = best.from_routers + best.from_ranker + best.from_near_rows
        >>> bool(np.isclose(sources + best.constant + best.from_curve, best.log_odds, atol=1e-4))
        True
        """
        engine = self._fitted()
        k = check_k(k, len(self), owner="explain")
        rows, single = as_query_rows(X, self.dim)
        explained = engine.explain(rows, k, ranker, parameters)
        return explained[0] if single else explained

    # --- inspecting ----------------------------------------------------------------------------

    def _fitted(self) -> E:
        if self._learned is None:
            raise NotFitted(
                f"This {type(self).__name__} is not fitted yet. Call fit(X, Y) or irli.load(path)."
            )
        return self._learned

    def __len__(self) -> int:
        return len(self._fitted().contents.counts)

    def __repr__(self) -> str:
        state = "not fitted" if self._learned is None else f"{len(self)} labels"
        return f"{type(self).__name__}(recipe={self.recipe.name!r}, {state}{self._describe()})"

    def _describe(self) -> str:
        """Return what else `repr` says, after a comma."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        title = type(self).__name__
        if self._learned is None:
            return render_html(title, {"recipe": self.recipe.name, "state": "not fitted"})
        stats = self.stats()
        facts = {
            "labels": f"{len(self):,} {'with' if stats['names'] else 'without'} names",
            "rows": f"{self.rows:,} {'texts' if stats['text'] else 'rows'}, {self.dim:,} features",
            "buckets": f"{stats['repetitions']} x {stats['buckets']:,}",
            "ranker": f"{stats['ranker_weights']:,} weights" if stats["ranker_weights"] else "none",
            "recipe": self.recipe.name,
            "memory": f"{stats['bytes'] / 1e6:,.1f} MB",
        }
        return render_html(title, facts | self._list_facts(), self.loads()[0])

    def _list_facts(self) -> dict[str, object]:
        """Return what else to show in a notebook."""
        raise NotImplementedError

    @property
    def recipe(self) -> Recipe:
        """The settings of learning: those given, and after `fit` those resolved for the data."""
        if self._learned is None:
            return as_recipe(self._given["recipe"])
        return self._learned.contents.recipe

    @property
    def names(self) -> Names | None:
        """The names of the labels, if `fit` was given any."""
        return None if self._learned is None else self._learned.contents.names

    @property
    def vectorizer(self) -> Vectorizer | None:
        """Turns texts into rows of features. It is made by `fit_text`."""
        return None if self._learned is None else self._learned.contents.vectorizer

    @property
    def rows(self) -> int:
        """The number of rows that the index has learned from."""
        return 0 if self._learned is None else self._learned.contents.rows

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of these rows that carry each label (L,)."""
        return self._fitted().contents.counts

    @property
    def dim(self) -> int:
        """The number of features of a row."""
        return self._fitted().contents.dim

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """The type to which the features of rows are converted."""
        return np.dtype(np.float32)

    @property
    def history(self) -> History:
        """Loss, recall and loads after each re-partition, and what was tried on held-out rows."""
        return [] if self._learned is None else self._learned.contents.history

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many labels each bucket holds: an array for each repetition.

        It has the shape (B,), or (P B,) for P shards.
        """
        return self._fitted().loads()

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes as plain values, of all shards together."""
        return self._fitted().stats() | {
            "items": len(self),
            "names": self.names is not None,
            "text": self.vectorizer is not None,
            "loads": [load_summary(loads) for loads in self.loads()],
        }
