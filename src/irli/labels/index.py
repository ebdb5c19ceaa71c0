"""LabelIndex, the public class: fit, partial_fit, refit, predict, explain, save and load."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sized
from typing import Any, NamedTuple, Unpack, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.checks import (
    check_bool,
    check_choice,
    check_float,
    check_int,
    check_k,
    check_keywords,
)
from irli.base.folder import LABELS, Folder, reading, write_folder
from irli.base.html import render_html
from irli.base.index import Configured, SavedIndex
from irli.base.logs import describe_few, get_logger, warn
from irli.base.metrics import load_summary
from irli.base.progress import Progress
from irli.base.recipe import Recipe, as_recipe
from irli.base.sparse import are_numbers, as_labels, as_query_rows, as_rows
from irli.base.threads import thread_count
from irli.base.types import Rows, Sparse, StrPath
from irli.engine.label_layout import BLOCK, LabelLayout
from irli.errors import InvalidParameter, IrliWarning, NoAttributeYet, NotFitted
from irli.labels.build.assemble import assemble_labels, read_repetitions
from irli.labels.build.features import as_sparse, hash_features
from irli.labels.build.problem import LabelProblem, append_titles, make_label_problem
from irli.labels.build.routing import choose_routing
from irli.labels.changes.edit import read_labels, remove, rename
from irli.labels.changes.new_labels import add_to_partitions
from irli.labels.changes.online import NewRows, learn_rows, recalibrate
from irli.labels.contents import LabelContents, pack_labels, unpack_labels
from irli.labels.explain import Asked, explain_rows
from irli.labels.metrics import precision
from irli.labels.parameters import LabelParameters, PredictArguments
from irli.labels.predictor import Predictor
from irli.labels.text.reads_texts import ReadsTexts, describe_empty, find_empty
from irli.labels.text.vectorizer import (
    Names,
    Vectorizer,
    extend_names,
    vectorize_more,
    vectorize_texts,
)
from irli.labels.tuning.calibration import Calibration
from irli.labels.tuning.curve import bend
from irli.labels.tuning.objective import OBJECTIVES
from irli.labels.tuning.tune import LabelModel, LabelTuneResult, Wishes, tune_labels
from irli.learning import learn, load_runs
from irli.learning.options import LearnArguments, LearnOptions
from irli.learning.repetition import History, Repetition, join_histories

log = get_logger(__name__)

_NOT_FITTED = "This LabelIndex is not fitted yet. Call fit(X, Y) or irli.load(path)."
_NO_RANKER = (
    "This index has no ranker, so partial_fit adds new labels and counts rows, and no more. Call "
    "refit with all rows, or fit LabelIndex(ranker=True)."
)
_MANY_EMPTY = 0.1  # a larger share of texts without a known word is worth a warning
_TINY = np.finfo(np.float32).tiny  # the least probability


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


class _Learned(NamedTuple):
    """All that learning leaves behind. An index replaces it as a whole, or not at all."""

    contents: LabelContents
    predictor: Predictor


class LabelIndex(ReadsTexts, SavedIndex, Configured):
    """Extreme multi-label classification with learned, balanced buckets of labels.

    It also learns retrieval from a query log whose items have no vectors. The rows are then the
    queries, and the labels the items that were relevant to them.

    Parameters
    ----------
    recipe : str or Recipe
        How to learn: "labels", "paper-labels", or one made with `irli.recipe`.
    ranker : bool, optional
        Whether linear classifiers and near rows rank labels together with the index. By default
        they do if that is better on held-out rows.
    objective : {"precision", "balanced", "propensity"}
        What counts when rare labels compete with common ones: precision, precision weighted by
        the rarity of the labels (PSP), or the mean of both.

    Learning is all or nothing: if `fit`, `refit`, `partial_fit` or `add_labels` fails or is
    interrupted, the index answers as before.

    Examples
    --------
    >>> own = np.arange(600) % 20  # the label of each row
    >>> X = np.eye(20)[own] + 0.1 * np.random.default_rng(0).random((600, 20))
    >>> index = LabelIndex().fit(X, np.eye(20)[own])
    >>> index.predict(X[:5], k=1).labels.ravel()
    array([0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        recipe: str | Recipe = "labels",
        *,
        ranker: bool | None = None,
        objective: str = "balanced",
    ) -> None:
        as_recipe(recipe).check_for_labels()
        if ranker is not None:
            check_bool("ranker", ranker, owner="LabelIndex")
        check_choice("objective", objective, OBJECTIVES, owner="LabelIndex")
        self._given: dict[str, Any] = {
            "recipe": recipe,
            "ranker": ranker,
            "objective": objective,
        }
        self._learned: _Learned | None = None

    # --- learning ------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        names: Iterable[str] | None = None,
        titles: Any = None,
        **options: Unpack[LearnArguments],
    ) -> LabelIndex:
        """Learn which labels the rows `X` carry.

        Parameters
        ----------
        X : array_like or sparse array of shape (n, d)
            Features. Sparse rows stay sparse, however many features there are.
        Y : matrix of shape (n, L), or int array of shape (n, j)
            Either a matrix that is nonzero where a row carries a label: sparse, or a dense array of
            bools or floats. Or the numbers of the labels of each row, from 0 up, padded with -1. An
            integer array that looks like a matrix of zeros and ones is refused. Rows without labels
            are not used.
        names : iterable of str, optional
            Names of the L labels.
        titles : array_like or sparse array of shape (L, d), optional
            The features of each label's title, made like those of `X`. A label is learned from its
            title as from one more row. Rows of zeros teach nothing.
        **options
            progress, threads, workers, device, checkpoint: see `LearnOptions`.

        Examples
        --------
        >>> X = np.eye(3).repeat(4, axis=0)
        >>> numbers = np.arange(3).repeat(4)[:, None]  # one label for each row
        >>> LabelIndex().fit(X, numbers).predict(X[::4], k=1).labels.ravel()
        array([0, 1, 2])
        """
        self._learned = self._learn(X, Y, names, titles, options)
        return self

    @property
    def _wishes(self) -> Wishes:
        return Wishes(self._given["ranker"], self._given["objective"])

    def _learn(
        self,
        X: Any,
        Y: Any,
        names: Iterable[str] | None,
        titles: Any,
        options: LearnArguments,
        vectorizer: Vectorizer | None = None,
    ) -> _Learned:
        check_keywords(options, LearnArguments.__annotations__, owner="fit")
        run = LearnOptions(**options)
        load_runs(run.device)  # fails early if torch or the device is missing
        rows = as_rows(X)
        labels = as_labels(Y, rows.shape[0], _count_names(names))
        named = None if names is None else Names.of([])
        named = extend_names(named, names, labels.shape[1], "fit")
        given = as_recipe(self._given["recipe"])
        warn_of_one_label(labels)

        scaling, recipe, trials = choose_routing(rows, labels, given, self._wishes, run)
        count = rows.shape[0]
        if titles is not None:
            rows, labels = append_titles(rows, labels, titles)
        made = make_label_problem(
            rows, labels, recipe, scaling=scaling, titles=rows.shape[0] - count
        )._replace(trials=trials)
        repetitions = learn(made.problem, recipe, run)
        contents = complete_labels(
            made,
            repetitions,
            assemble_labels(repetitions, count_labels(labels)),
            rows,
            labels,
            recipe,
            self._wishes,
            run.thread_count,
            run.progress,
        )
        return _learned(dataclasses.replace(contents, names=named, vectorizer=vectorizer))

    def fit_text(
        self,
        texts: Iterable[Any],
        labels: Iterable[Iterable[str]] | None = None,
        *,
        vectorizer: Vectorizer | None = None,
        titles: Mapping[str, str] | None = None,
        **options: Unpack[LearnArguments],
    ) -> LabelIndex:
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
        made = vectorize_texts(texts, labels, vectorizer, titles)
        self._learned = self._learn(
            made.rows, made.labels, made.names, made.titles, options, made.vectorizer
        )
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
            All rows, old and new. The ranker is trained again on all of them. As a matrix, `Y` has
            a column for each label of the index; further columns are new labels.
        names : iterable of str
            Names of the new labels, if the others have names.
        epochs : int
            Training epochs of the routers.
        **options
            As for `fit`.
        """
        old, predictor = self._fitted()
        check_keywords(options, LearnArguments.__annotations__, owner="refit")
        run = LearnOptions(**options)
        load_runs(run.device)
        count = len(old.counts)
        rows = as_rows(X, old.dim)
        labels = as_labels(Y, rows.shape[0], count + _count_names(names))
        check_int("epochs", epochs, at_least=1, owner="refit")
        check_int("columns", labels.shape[1], at_least=count, owner="refit's Y")
        named = extend_names(old.names, names, labels.shape[1] - count, "refit")
        warn_of_one_label(labels)

        known = read_repetitions(predictor.layout)
        routing = old.model.routing
        start = add_to_partitions(known, routing.apply(rows), labels[:, count:], old.recipe)
        made = make_label_problem(rows, labels, old.recipe, old.trained, routing)
        shorter = dataclasses.replace(old.recipe, epochs=epochs)
        repetitions = learn(made.problem, shorter, run, start)
        contents = complete_labels(
            made,
            repetitions,
            assemble_labels(repetitions, count_labels(labels)),
            rows,
            labels,
            old.recipe,
            self._wishes,
            run.thread_count,
            run.progress,
        )
        self._learned = _learned(
            dataclasses.replace(
                contents,
                history=old.history + contents.history,
                names=named,
                vectorizer=old.vectorizer,
            )
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
            Rows that carry the new labels. Further rows serve the ranker as negatives. So do known
            rows, if the index has near rows.
        Y : matrix of shape (n, m), or int array of shape (n, j)
            Which of the m new labels each row carries, in one of the forms that `fit` takes. `Y`
            counts the new labels from 0. The index numbers them from len(index) up.
        names : iterable of str
            Names of the new labels, if the others have names.
        """
        old, _ = self._fitted()
        rows = as_rows(X, old.dim)
        labels = as_labels(Y, rows.shape[0], _count_names(names))
        new = count_labels(labels)
        if are_numbers(Y) and not new.all():
            raise InvalidParameter(
                "The 'Y' parameter of add_labels must count the new labels from 0 up, each with a "
                f"row. Got no row with {int(np.argmin(new > 0))}. Subtract len(index) from numbers "
                "of the whole index."
            )
        named = extend_names(old.names, names, labels.shape[1], "add_labels")
        wide = shift_labels(labels, len(old.counts))
        contents = learn_rows(old, NewRows(rows, wide, partly=True), thread_count(threads))
        self._learned = _learned(dataclasses.replace(contents, names=named))
        return self

    def partial_fit(
        self,
        X: Any,
        Y: Any,
        *,
        names: Iterable[str] | None = None,
        threads: int | None = None,
    ) -> LabelIndex:
        """Learn from new rows alone, in a time that depends on these, not on the old rows.

        The classifiers of the labels that the rows carry, or might be taken to carry, change as
        little as the rows allow. New labels are placed as `add_labels` does. If near rows vote in
        this index, the new rows will, too. From 30 rows on, halves of the new rows decide how much
        these and the sources count. Routers, buckets and parameters stay: call `refit` with all
        rows now and then. An index without a ranker learns new labels and counts only, and warns.
        Before `fit`, this is `fit`.

        Parameters
        ----------
        X : array_like or sparse array of shape (n, d)
            New rows. The more at once, the better; rows without labels are not used.
        Y : matrix of shape (n, L), or int array of shape (n, j)
            All labels of each row, in one of the forms that `fit` takes. As a matrix, it has a
            column for each label of the index; further columns are new labels.
        names : iterable of str
            Names of the new labels, if the others have names.
        threads : int
            -1 uses every core.

        Examples
        --------
        >>> own = np.arange(300) % 10
        >>> X = np.eye(11)[own] + 0.1 * np.random.default_rng(0).random((300, 11))
        >>> index = LabelIndex(ranker=True).fit(X, own[:, None])
        >>> index = index.partial_fit(np.eye(11)[[10, 10, 3]], [[10], [10], [3]])
        >>> index.predict(np.eye(11)[[10, 3]], k=1).labels.ravel()
        array([10,  3])
        """
        if self._learned is None:
            return self.fit(X, Y, names=names, threads=threads)
        old = self._learned.contents
        count = len(old.counts)
        rows = as_rows(X, old.dim)
        labels = as_labels(Y, rows.shape[0], count + _count_names(names))
        check_int("columns", labels.shape[1], at_least=count, owner="partial_fit's Y")
        named = extend_names(old.names, names, labels.shape[1] - count, "partial_fit")
        if not old.model.calibration.is_blended:
            warn(_NO_RANKER)
        self._learned = self._learn_more(rows, labels, named, threads)
        return self

    def _learn_more(
        self, rows: Rows, labels: Sparse, names: Names | None, threads: int | None, titles: int = 0
    ) -> _Learned:
        """Learn from new rows (n, d) with labels (n, L). So many of the last ones are titles."""
        old, _ = self._fitted()
        used, cores = np.flatnonzero(np.diff(labels.indptr)), thread_count(threads)
        rows, labels, given = rows[used], labels[used], len(used) - titles
        some = NewRows(rows[:given], labels[:given])  # rows to come are unlike titles
        cost, calibration = recalibrate(old, some, old.recipe.seed, cores)
        contents = learn_rows(old, NewRows(rows, labels), cores, cost)
        known = len(old.model.layout.near_scale)
        return _learned(
            dataclasses.replace(
                contents,
                model=contents.model._replace(calibration=calibration),
                rows=contents.rows - titles,
                counts=contents.counts - count_labels(labels[given:]),
                titled=[*old.titled, (known + given, known + len(used))] if titles else old.titled,
                names=names,
            )
        )

    def partial_fit_text(
        self,
        texts: Iterable[Any],
        labels: Iterable[Iterable[str]] | None = None,
        *,
        titles: Mapping[str, str] | None = None,
        threads: int | None = None,
    ) -> LabelIndex:
        """Learn from new texts alone: see `partial_fit`. Before `fit_text`, this is `fit_text`.

        Parameters
        ----------
        texts, labels, titles
            As for `fit_text`. Words that the index does not know are ignored, and so are texts
            without a known word. A warning says if these are many.

        Examples
        --------
        >>> pets = ["cat", "dog", "bird"]
        >>> texts = [f"the {pet} {verb}" for pet in pets for verb in ("eats", "naps", "plays")]
        >>> index = LabelIndex(ranker=True).fit_text(texts, [[pet] for pet in pets for _ in "123"])
        >>> index = index.partial_fit_text(["naps", "the plays naps"], [["sloth"], ["sloth"]])
        >>> list(index.names)
        ['bird', 'cat', 'dog', 'sloth']
        """
        if self._learned is None:
            return self.fit_text(texts, labels, titles=titles, threads=threads)
        vectorizer, known = self._get_text_model()
        made = vectorize_more(texts, labels, vectorizer, known, titles)
        empty = len(find_empty(made.rows))
        if empty > _MANY_EMPTY * made.rows.shape[0]:
            warn(describe_empty(empty, made.rows.shape[0], "They teach nothing."))
        rows, carried = append_titles(made.rows, made.labels, made.titles)
        used = np.flatnonzero(np.diff(as_sparse(rows).indptr))
        if not len(used):
            return self
        if not self.calibration.is_blended:
            warn(_NO_RANKER)
        self._learned = self._learn_more(
            rows[used],
            as_labels(carried[used], len(used)),
            made.names,
            threads,
            titles=rows.shape[0] - made.rows.shape[0],
        )
        return self

    # --- editing -------------------------------------------------------------------------------

    def remove_labels(self, labels: Any) -> LabelIndex:
        """Remove labels. Those that stay keep their order and get new numbers, from 0 up.

        They keep their scores. Buckets, routers and weights stay, so it takes no time to learn.

        Parameters
        ----------
        labels : list of int or str
            Numbers or names. At least one label must stay.

        Examples
        --------
        >>> X = np.eye(3).repeat(4, axis=0)
        >>> index = LabelIndex().fit(X, np.arange(3).repeat(4)[:, None], names=["a", "b", "c"])
        >>> index = index.remove_labels(["b"])
        >>> list(index.names), index.predict(np.eye(3)[2], k=1).labels
        (['a', 'c'], array([1]))
        """
        contents, _ = self._fitted()
        numbers = read_labels(labels, contents.names, len(contents.counts), "remove_labels")
        self._learned = _learned(remove(contents, numbers))
        return self

    def rename(self, names: Mapping[str, str]) -> LabelIndex:
        """Change names of labels. Titles stay with their labels.

        Parameters
        ----------
        names : dict
            New names by old ones. Labels may swap names; no name may come twice.

        Examples
        --------
        >>> X = np.eye(2).repeat(4, axis=0)
        >>> index = LabelIndex().fit(X, X > 0, names=["cat", "dgo"])
        >>> list(index.rename({"dgo": "dog"}).names)
        ['cat', 'dog']
        """
        contents, predictor = self._fitted()
        renamed = rename(contents.names, names)
        self._learned = _Learned(dataclasses.replace(contents, names=renamed), predictor)
        return self

    # --- predicting ----------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        threshold: float | None = None,
        ranker: bool | None = None,
        threads: int | None = None,
        **parameters: Unpack[PredictArguments],
    ) -> Prediction:
        """Return the k best labels of each row (Algorithm 2 of the paper).

        Parameters
        ----------
        X : array_like or sparse array of shape (n, d), or (d,) for a single row
            There may be no rows at all (n = 0).
        k : int
            At most the number of labels, or 65,536 if that is more.
        threshold : float
            Leave out labels that are less probable than this, in [0, 1].
        ranker : bool
            False returns what the index finds, without ranker and near rows. True is an error if
            there is no ranker.
        threads : int
            -1 uses every core. A single row uses several for the repetitions of large routers.
        **parameters
            probes, min_votes, candidates, near, score: see `LabelParameters`. Those left out have
            the values that `fit` chose on held-out rows.

        Returns
        -------
        Prediction
            `scores`, which are probabilities, and `labels` of shape (n, k), or (k,) for a single
            row. If fewer than k labels are found, the other columns have label -1 and score 0.
            `counts` says how many are found: all labels of the probed buckets can be fewer than k.
        """
        if threshold is not None:
            check_float("threshold", threshold, at_least=0.0, at_most=1.0, owner="predict")
        odds, labels, single = self._rank(X, k, ranker, threads, parameters)
        scores = to_probabilities(odds)
        missing = labels < 0
        scores[missing] = 0
        min_votes = parameters.get("min_votes") or self.defaults.min_votes
        if min_votes > 1 and missing[:, : len(self)].any():
            warn(describe_few(k, "labels", "rows", min_votes))
        if threshold is not None:
            unlikely = scores < threshold
            scores[unlikely], labels[unlikely] = 0, -1
        return Prediction(scores[0], labels[0]) if single else Prediction(scores, labels)

    def _rank(
        self,
        X: Any,
        k: int,
        ranker: bool | None,
        threads: int | None,
        parameters: PredictArguments,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], bool]:
        """Return log-odds and labels (n, k), best first, and whether a single row was given."""
        contents, predictor = self._fitted()
        model, count = contents.model, len(contents.counts)
        k = check_k(k, count, owner="predict")
        rows, single = as_query_rows(X, contents.dim)
        chosen, calibration = _choose_way(model, ranker, parameters)
        most = min(k, count)
        routed, ranked = _scale_rows(contents, rows)
        several = rows.shape[0] > BLOCK or predictor.is_slow_to_route
        if threads is not None or several:  # asking the system takes a while
            threads = thread_count(threads)
        scores, labels = predictor.predict(routed, ranked, most, chosen, calibration, threads or 1)
        if not calibration.is_blended:
            scores = scores * np.float32(calibration.by_score) + np.float32(calibration.threshold)
        odds = bend(calibration.curve, scores.astype(np.float64)).astype(np.float32)
        if most < k:
            more = ((0, 0), (0, k - most))
            odds = np.pad(odds, more, constant_values=-np.inf)
            labels = np.pad(labels, more, constant_values=-1)
        return odds, labels, single

    # --- explaining ----------------------------------------------------------------------------

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
            `predict`: see `LabelExplanation`. Printed, it can be read.

        Examples
        --------
        >>> own = np.arange(600) % 20
        >>> X = np.eye(20)[own] + 0.1 * np.random.default_rng(0).random((600, 20))
        >>> index = LabelIndex(ranker=True).fit(X, own[:, None])
        >>> best = index.explain(X[7], k=1).labels[0]
        >>> best.label, best.words[0].word
        (7, '7')
        >>> sources = best.from_routers + best.from_ranker + best.from_near_rows
        >>> bool(np.isclose(sources + best.constant + best.from_curve, best.log_odds, atol=1e-4))
        True
        """
        contents, predictor = self._fitted()
        odds, labels, single = self._rank(X, k, ranker, None, parameters)
        rows, _ = as_query_rows(X, contents.dim)
        asked = Asked(
            *_scale_rows(contents, rows),
            odds,
            to_probabilities(odds),
            labels,
            *_choose_way(contents.model, ranker, parameters),
        )
        explained = explain_rows(
            predictor, asked, contents.names, contents.vectorizer, contents.titled
        )
        return explained[0] if single else explained

    # --- scikit-learn's conventions -------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels in the order of their columns (L,): their names, or else their numbers."""
        if self._learned is None:
            raise NoAttributeYet(_NOT_FITTED)
        names = self.names
        return np.arange(len(self)) if names is None else np.array(list(names), dtype=object)

    def decision_function(self, X: Any, k: int = 5, **options: Any) -> Sparse:
        """Return the log-odds of the k best labels of each row: a sparse array (n, L).

        Labels that are not stored were not found. A stored 0 is a score like any other.

        Parameters
        ----------
        X, k, **options
            As for `predict`, without `threshold`.
        """
        known = ("ranker", "threads", *PredictArguments.__annotations__)
        check_keywords(options, known, owner="decision_function")
        ranker, threads = options.pop("ranker", None), options.pop("threads", None)
        scores, labels, _ = self._rank(
            _as_batch(X), k, ranker, threads, cast(PredictArguments, options)
        )
        return _to_sparse(scores, labels, len(self))

    def predict_proba(self, X: Any, k: int = 5, **options: Any) -> Sparse:
        """Return the probabilities of the k best labels of each row: a sparse array (n, L).

        Parameters
        ----------
        X, k, **options
            As for `predict`.

        Examples
        --------
        >>> X = np.eye(3).repeat(4, axis=0)
        >>> index = LabelIndex().fit(X, np.arange(3).repeat(4)[:, None])
        >>> index.predict_proba(np.eye(3), k=1).toarray().argmax(axis=1)
        array([0, 1, 2])
        """
        found = self.predict(_as_batch(X), k, **options)
        return _to_sparse(found.scores, found.labels, len(self))

    def score(self, X: Any, Y: Any) -> float:
        """Return P@1: the share of rows whose best label is one of theirs. `Y` is as for `fit`."""
        return precision(self.predict(_as_batch(X), 1).labels, Y, 1)

    # --- inspecting ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._fitted().contents.counts)

    def __repr__(self) -> str:
        if self._learned is None:
            return f"LabelIndex(recipe={self.recipe.name!r}, not fitted)"
        repetitions, buckets = self._learned.predictor.layout.bias.shape
        ranker = "with" if self.calibration.is_blended else "without"
        return (
            f"LabelIndex(recipe={self.recipe.name!r}, {len(self)} labels, "
            f"{repetitions} x {buckets} buckets, {ranker} ranker)"
        )

    def _repr_html_(self) -> str:
        if self._learned is None:
            return render_html("LabelIndex", {"recipe": self.recipe.name, "state": "not fitted"})
        stats, defaults, tuned = self.stats(), self.defaults, self.tuned
        facts = {
            "labels": f"{len(self):,} {'with' if stats['names'] else 'without'} names",
            "rows": f"{self.rows:,} {'texts' if stats['text'] else 'rows'}, {self.dim:,} features",
            "buckets": f"{stats['repetitions']} x {stats['buckets']:,}",
            "ranker": f"{stats['ranker_weights']:,} weights" if stats["ranker_weights"] else "none",
            "predict": f"probes={defaults.probes}, candidates={defaults.candidates}, "
            f"score={defaults.score}",
            "recipe": self.recipe.name,
            "memory": f"{stats['bytes'] / 1e6:,.1f} MB",
        }
        if tuned is not None:
            measured = f"{tuned.precision:.3f}, mean of P@1, P@3 and P@5 of {tuned.rows:,} rows"
            facts["held-out precision"] = measured
        return render_html("LabelIndex", facts, self.loads()[0])

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
    def defaults(self) -> LabelParameters:
        """The parameters of a prediction that gives none. `fit` chose them on held-out rows."""
        return self._fitted().contents.model.parameters

    @property
    def calibration(self) -> Calibration:
        """How scores and margins become log-odds."""
        return self._fitted().contents.model.calibration

    def with_calibration(self, calibration: Calibration) -> LabelIndex:
        """Return a copy that blends its sources in another way. Shards share a calibration."""
        contents, predictor = self._fitted()
        model = contents.model._replace(calibration=calibration)
        index = copy.copy(self)
        index._learned = _Learned(dataclasses.replace(contents, model=model), predictor)
        return index

    @property
    def tuned(self) -> LabelTuneResult | None:
        """What `fit` or `refit` chose and measured. None if an early version wrote the folder."""
        return self._fitted().contents.model.tuned

    @property
    def history(self) -> History:
        """Loss, recall and loads after each re-partition, and what was tried on held-out rows."""
        return [] if self._learned is None else self._learned.contents.history

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many labels each bucket holds: an array of shape (B,) for each repetition."""
        return list(np.diff(self._fitted().predictor.layout.offsets, axis=1))

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes as plain values."""
        layout = self._fitted().predictor.layout
        repetitions, buckets = layout.bias.shape
        return {
            "kind": LABELS,
            "items": len(self),
            "rows": self.rows,
            "dim": self.dim,
            "names": self.names is not None,
            "text": self.vectorizer is not None,
            "repetitions": repetitions,
            "buckets": buckets,
            "entries": len(layout.items),
            "ranker_weights": len(layout.weights),
            "loads": [load_summary(loads) for loads in self.loads()],
            "recipe": dataclasses.asdict(self.recipe),
            "defaults": dataclasses.asdict(self.defaults),
            "calibration": self.calibration.state(),
            "bytes": sum(part.nbytes for part in layout),
        }

    def _fitted(self) -> _Learned:
        if self._learned is None:
            raise NotFitted(_NOT_FITTED)
        return self._learned

    # --- files ---------------------------------------------------------------------------------

    def save(self, path: StrPath) -> None:
        """Write the index folder `path`. An index that is there already is replaced."""
        write_folder(path, pack_labels(self._fitted().contents))

    @classmethod
    def from_folder(cls, folder: Folder) -> LabelIndex:
        """Return the index that a folder in memory holds."""
        contents = unpack_labels(folder)
        with reading():  # the native engine checks that no array points outside of another
            index = cls(
                contents.recipe,
                ranker=contents.wishes.ranker,
                objective=contents.wishes.objective,
            )
            index._learned = _learned(contents)
        return index


def _learned(contents: LabelContents) -> _Learned:
    """Return the contents with a predictor. Both use the same arrays."""
    predictor = Predictor(contents.model.layout)
    model = contents.model._replace(layout=predictor.layout)
    return _Learned(dataclasses.replace(contents, model=model), predictor)


def complete_labels(
    made: LabelProblem,
    repetitions: list[Repetition],
    layout: LabelLayout,
    rows: Rows,
    labels: Sparse,
    recipe: Recipe,
    wishes: Wishes,
    threads: int,
    progress: Progress = False,
) -> LabelContents:
    """Run the last phase, tune, on rows (n, d) with labels (n, L), those of the layout."""
    model = tune_labels(layout, rows, labels, made, recipe, wishes, threads, progress)
    ranker = "with" if model.calibration.is_blended else "without"
    log.info("tuned: %s, %s ranker", model.parameters, ranker)
    given = rows.shape[0] - made.titles
    near = len(np.union1d(*made.split))  # rows with labels, the titles last
    return LabelContents(
        recipe=recipe,
        model=model,
        history=[*join_histories(repetitions), *made.trials, *model.trials],
        rows=given,
        dim=rows.shape[1],
        counts=count_labels(labels[:given]),
        trained=made.trained,
        wishes=wishes,
        titled=[(near - made.titles, near)] if made.titles else [],
    )


def to_probabilities(odds: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the probabilities that log-odds stand for, in (0, 1].

    Examples
    --------
    >>> to_probabilities(np.array([0.0, 40.0, -500.0], dtype="f4"))
    array([5.0000000e-01, 1.0000000e+00, 1.1754944e-38], dtype=float32)
    """
    with np.errstate(over="ignore", under="ignore"):
        likely = 1 / (1 + np.exp(-odds.astype(np.float64)))
    return np.maximum(likely, _TINY).astype(np.float32)


def _as_batch(X: Any) -> Any:
    """Return rows as they are. A single row becomes one of shape (1, d)."""
    given = X if hasattr(X, "ndim") else np.asarray(X)
    return given if given.ndim != 1 else given.reshape(1, -1)


def _to_sparse(values: NDArray[Any], labels: NDArray[np.int64], count: int) -> Sparse:
    """Return the values of the labels found (n, k) as a CSR of shape (n, count)."""
    found = labels >= 0
    order = np.argsort(np.where(found, labels, count), axis=1)
    place = np.take_along_axis(found, order, 1)
    columns = np.take_along_axis(labels, order, 1)[place]
    data = np.take_along_axis(values, order, 1)[place].astype(np.float32)
    starts = np.concatenate([[0], found.sum(axis=1).cumsum()])
    return sp.csr_array((data, columns, starts), shape=(len(labels), count))


def _choose_way(
    model: LabelModel, ranker: bool | None, given: PredictArguments
) -> tuple[LabelParameters, Calibration]:
    """Return the parameters and the calibration of one call."""
    chosen, calibration = model.parameters.replace(**given), _choose_calibration(model, ranker)
    _check_near(chosen, calibration, given)
    return chosen, calibration


def _scale_rows(contents: LabelContents, rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows with the routers' features, and with those of the ranker."""
    model = contents.model
    return hash_features(model.routing.apply(rows), contents.recipe), model.ranking.apply(rows)


def _choose_calibration(model: LabelModel, ranker: bool | None) -> Calibration:
    """Return the calibration with which to predict, with or without the ranker."""
    if ranker is None:
        return model.calibration
    if not check_bool("ranker", ranker, owner="predict"):
        return model.alone
    if not model.calibration.is_blended:
        raise InvalidParameter(
            "The 'ranker' parameter of predict must not be True for an index without a ranker. "
            "Got True instead. Leave it out, or fit LabelIndex(ranker=True)."
        )
    return model.calibration


def _check_near(chosen: LabelParameters, calibration: Calibration, given: PredictArguments) -> None:
    """Raise if near rows are asked for that the index does not have."""
    if given.get("near") and calibration.by_votes <= 0:
        raise InvalidParameter(
            "The 'near' parameter of predict must be 0 for an index, or a prediction, without near "
            f"rows. Got {chosen.near} instead. Leave it out: they did not help on held-out rows."
        )


def _count_names(names: Iterable[str] | None) -> int:
    """Return how many labels have names. They may be more than the rows carry."""
    return len(names) if isinstance(names, Sized) else 0


def warn_of_one_label(labels: Sparse) -> None:
    """Warn if nothing can be learned, since there is one label and rows without it are not used."""
    without = labels.shape[0] - labels.nnz
    if labels.shape[1] == 1 and without:
        warnings.warn(
            f"There is one label, and {without} of {labels.shape[0]} rows do not carry it. Rows "
            "without labels are not used, so every row will be said to carry it. Give the other "
            "rows a label of their own.",
            IrliWarning,
            stacklevel=4,
        )


def shift_labels(labels: Sparse, by: int) -> Sparse:
    """Return labels (n, m) as the last columns of (n, by + m).

    Examples
    --------
    >>> shift_labels(sp.csr_array(np.array([[1.0]])), 2).toarray()
    array([[0., 0., 1.]])
    """
    shape = (labels.shape[0], by + labels.shape[1])
    return sp.csr_array((labels.data, labels.indices + by, labels.indptr), shape=shape)


def count_labels(labels: Sparse) -> NDArray[np.int64]:
    """Return how many rows carry each label (L,)."""
    return np.bincount(labels.indices, minlength=labels.shape[1])
