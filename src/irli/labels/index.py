"""LabelIndex, the public class: fit, partial_fit, predict, explain, save and load."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from irli.base.checks import (
    check_bool,
    check_choice,
    check_keywords,
)
from irli.base.folder import Folder, reading, write_folder
from irli.base.index import SavedIndex
from irli.base.logs import warn
from irli.base.recipe import Recipe, as_recipe
from irli.base.threads import thread_count
from irli.base.types import StrPath
from irli.errors import InvalidParameter
from irli.labels.build.features import as_sparse
from irli.labels.build.problem import append_titles
from irli.labels.changes.edit import read_labels, remove, rename
from irli.labels.changes.online import NewRows, learn_rows
from irli.labels.contents import LabelContents, pack_labels, unpack_labels
from irli.labels.front import LabelFront, Prediction
from irli.labels.given import read_more_rows, read_new_labels, read_rows_to_fit
from irli.labels.learned import Learned
from irli.labels.learner import fit_labels, learn_on, partial_fit_labels
from irli.labels.opened import OpenedLabels, one_at_a_time
from irli.labels.parameters import LabelParameters, PredictArguments
from irli.labels.scikit_learn import ActsAsClassifier
from irli.labels.text.reads_texts import describe_empty, find_empty
from irli.labels.text.vectorizer import Vectorizer, vectorize_more
from irli.labels.tuning.calibration import Calibration
from irli.labels.tuning.objective import OBJECTIVES
from irli.labels.tuning.tune import LabelTuneResult, RankingOptions
from irli.learning import check_device
from irli.learning.options import LearnArguments, LearnOptions

_NO_RANKER = (
    "This index has no ranker, so partial_fit adds new labels and counts rows, and no more. Call "
    "fit(all rows, start=index), or fit LabelIndex(ranker=True)."
)
# Settings of the recipe that must be those of an index to start from.
_SAME = ("name", "repetitions", "buckets", "hidden", "trunk", "start", "loss")
_MANY_EMPTY = 0.1  # a larger share of texts without a known word is worth a warning


class LabelIndex(LabelFront[Learned], ActsAsClassifier, SavedIndex):
    """Extreme multi-label classification with learned, balanced buckets of labels.

    It also learns retrieval from a query log whose items have no vectors. The rows are then the
    queries, and the labels the items that were relevant to them.

    Parameters
    ----------
    recipe : str or Recipe
        How to learn: "labels", "paper-labels", "paper-labels-sigmoid", or one made with
        `irli.recipe`.
    ranker : bool, optional
        Whether linear classifiers and near rows rank labels together with the index. By default
        they do if that is better on held-out rows.
    objective : {"precision", "balanced", "propensity"}
        What counts when rare labels compete with common ones: precision, precision weighted by
        the rarity of the labels (PSP), or the mean of both.

    Learning is all or nothing: if `fit`, `partial_fit` or `add_labels` fails or is
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
        as_recipe(recipe).check_kind(labels=True)
        if ranker is not None:
            check_bool("ranker", ranker, owner="LabelIndex")
        check_choice("objective", objective, OBJECTIVES, owner="LabelIndex")
        self._given: dict[str, Any] = {
            "recipe": recipe,
            "ranker": ranker,
            "objective": objective,
        }

    _opened: OpenedLabels | None = None  # the folder that it is open in

    # --- learning ------------------------------------------------------------------------------

    @property
    def _ranking(self) -> RankingOptions:
        return RankingOptions(self._given["ranker"], self._given["objective"])

    def _learn(
        self,
        X: Any,
        Y: Any,
        names: Iterable[str] | None,
        titles: Any,
        start: LabelIndex | None,
        options: LearnArguments,
        vectorizer: Vectorizer | None = None,
    ) -> Learned:
        run = _check_options(options, "fit")
        recipe = as_recipe(self._given["recipe"])
        if start is None:
            rows, labels, named = read_rows_to_fit(X, Y, names)
            contents = fit_labels(rows, labels, titles, recipe, self._ranking, run)
        else:
            old = _read_start(start, recipe)
            rows, labels, named = read_more_rows(X, Y, names, old, "fit")
            contents = learn_on(old, rows, labels, titles, self._ranking, run)
            vectorizer = old.vectorizer
        return Learned.of(dataclasses.replace(contents, names=named, vectorizer=vectorizer))

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
        old = self._fitted().contents
        rows, labels, named = read_new_labels(X, Y, names, old)
        contents = learn_rows(old, NewRows(rows, labels, partly=True), thread_count(threads))
        self._show(Learned.of(dataclasses.replace(contents, names=named)))
        return self

    @one_at_a_time
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
        these and the sources count. Routers, buckets and parameters stay: call `fit` with all rows
        and this index as `start` now and then. An index without a ranker learns new labels and
        counts only, and warns. Before `fit`, this is `fit`.

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
        rows, labels, named = read_more_rows(X, Y, names, old, "partial_fit")
        if not self.calibration.is_blended:
            warn(_NO_RANKER)
        contents = partial_fit_labels(old, rows, labels, thread_count(threads))
        self._show(Learned.of(dataclasses.replace(contents, names=named)))
        return self

    @one_at_a_time
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
        contents = partial_fit_labels(
            self._learned.contents,
            rows[used],
            carried[used],
            thread_count(threads),
            titles=rows.shape[0] - made.rows.shape[0],
        )
        self._show(Learned.of(dataclasses.replace(contents, names=made.names)))
        return self

    # --- editing -------------------------------------------------------------------------------

    @one_at_a_time
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
        self._show(Learned.of(remove(contents, numbers)))
        return self

    @one_at_a_time
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
        self._show(Learned(dataclasses.replace(contents, names=renamed), predictor))
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
        return self._predict(self._fitted(), X, k, threshold, ranker, threads, parameters)

    # --- inspecting ----------------------------------------------------------------------------

    def _describe(self) -> str:
        if self._learned is None:
            return ""
        repetitions, buckets = self._learned.predictor.layout.bias.shape
        ranker = "with" if self.calibration.is_blended else "without"
        return f", {repetitions} x {buckets} buckets, {ranker} ranker"

    def _list_facts(self) -> dict[str, object]:
        chosen, tuned = self.defaults, self.tuned
        by = f"candidates={chosen.candidates}, score={chosen.score}"
        facts: dict[str, object] = {"predict": f"probes={chosen.probes}, {by}"}
        if tuned is not None:
            measured = f"{tuned.precision:.3f}, mean of P@1, P@3 and P@5 of {tuned.rows:,} rows"
            facts["held-out precision"] = measured
        return facts

    @property
    def defaults(self) -> LabelParameters:
        """The parameters of a prediction that gives none. `fit` chose them on held-out rows."""
        return self._fitted().contents.model.parameters

    @property
    def calibration(self) -> Calibration:
        """How scores and margins become log-odds."""
        return self._fitted().contents.model.calibration

    @property
    def tuned(self) -> LabelTuneResult | None:
        """What `fit` chose and measured."""
        return self._fitted().contents.model.tuned

    # --- files ---------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: StrPath, *, writable: bool = True) -> LabelIndex:
        """Open an index folder to change it: each change is in the folder when its call returns.

        One process changes an index at a time. Others open it with ``writable=False``, and follow.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.mkdtemp() + "/index"
        >>> X = np.eye(3).repeat(4, axis=0)
        >>> LabelIndex().fit(X, np.arange(3).repeat(4)[:, None]).save(folder)
        >>> with LabelIndex.open(folder) as index:
        ...     _ = index.remove_labels([1])
        >>> len(LabelIndex.load(folder))
        2
        """
        opened = OpenedLabels(Path(path), writable=writable)
        try:
            index = cls.load(path)
        except BaseException:
            opened.close()
            raise
        index._opened = opened
        return index

    def close(self) -> None:
        """Let another process change the folder that is open. Predictions go on."""
        if self._opened is not None:
            self._opened.close()

    def __enter__(self) -> LabelIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _show(self, learned: Learned) -> None:
        if self._opened is not None:
            self._opened.write(pack_labels(learned.contents))
        self._learned = learned

    def _fitted(self) -> Learned:
        opened = self._opened
        if opened is not None and opened.has_changed():
            self._learned = type(self).load(opened.root)._learned
        return super()._fitted()

    def __getstate__(self) -> dict[str, Any]:
        if self._opened is None:
            return super().__getstate__()
        return copy.copy(self).__getstate__()

    def __copy__(self) -> LabelIndex:
        copied = super().__copy__()
        copied._opened = None
        return copied

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
                ranker=contents.ranking.ranker,
                objective=contents.ranking.objective,
            )
            index._learned = Learned.of(contents)
        return index


def _read_start(start: Any, recipe: Recipe) -> LabelContents:
    """Return what a fit starts from. A recipe, if one is given, must not want something else."""
    if not isinstance(start, LabelIndex):
        raise InvalidParameter(
            "The 'start' parameter of fit must be a LabelIndex that has learned. "
            f"Got {type(start).__name__} instead. Open a folder with irli.load."
        )
    old = start._fitted().contents
    given = dataclasses.replace(recipe, seed=0) != as_recipe("labels")
    for name in _SAME if given else ():
        ours, theirs = getattr(recipe, name), getattr(old.recipe, name)
        if ours is not None and ours != theirs:
            raise InvalidParameter(
                f"The '{name}' parameter of the recipe must be {theirs!r}, as in the index to "
                f"start from. Got {ours!r} instead. Leave it out, or fit without start."
            )
    return old


def _check_options(options: LearnArguments, owner: str) -> LearnOptions:
    """Return the options of learning. Raise early if the device is missing."""
    check_keywords(options, LearnArguments.__annotations__, owner=owner)
    run = LearnOptions(**options)
    check_device(run.device)
    return run
