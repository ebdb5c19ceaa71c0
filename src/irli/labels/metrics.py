"""Metrics of multi-label predictions: P@k, PSP@k, nDCG@k, F1@k, recall, inverse propensities.

All metrics take `found` and `truth`. `found` is an int array of shape (n, at least 1): the labels
found for each instance, best first, padded with -1. `truth` has the labels of each instance, in the
forms that `LabelIndex.fit` takes: a matrix of shape (n, L), sparse or of bools or floats, or an int
array of label numbers, padded with -1. A label that is found twice counts once. Rows of `found`
shorter than k count as padded.

The conventions are those of pyxclib, the tool of the Extreme Classification Repository, unless a
metric says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from irli.base.checks import as_array, check_float, check_int, check_padded_range
from irli.base.sparse import as_label_matrix
from irli.base.types import Sparse
from irli.errors import InvalidParameter


class _Answers(NamedTuple):
    """Found labels, compared with the truth."""

    found: NDArray[np.int64]  # (n, width)
    hits: NDArray[np.bool_]  # (n, width): true labels, at their first place
    truth: Sparse  # (n, L), sorted, without zeros
    wanted: NDArray[np.int64]  # (n,): how many labels each instance has


def precision(found: ArrayLike, truth: Any, k: int) -> float:
    """Precision@k: the share of the first `k` places that hold true labels.

    It is the mean over all instances. Those without labels count as 0. Those with fewer than k
    labels cannot reach 1.

    Examples
    --------
    >>> truth = sp.csr_array([[1, 0, 1, 0], [0, 1, 0, 0]])
    >>> precision([[2, 3], [1, -1]], truth, k=2)
    0.5
    """
    return _compute_precision(_compare(found, truth), _check_k(k))


def precision_of_possible(found: ArrayLike, truth: Any, k: int) -> float:
    """Hits among the first `k`, divided by the min(k, |y|) hits that are possible.

    Some papers call this precision@k, which it is not. It is never lower, and it flatters instances
    with few labels: with one label, one hit counts as 1. Instances without labels are skipped.

    Examples
    --------
    >>> truth = sp.csr_array([[1, 0, 1, 0], [0, 1, 0, 0]])
    >>> precision_of_possible([[2, 3], [1, -1]], truth, k=2)
    0.75
    """
    answers, k = _compare(found, truth), _check_k(k)
    return _compute_mean_share(answers, k, np.minimum(answers.wanted, k))


def recall(found: ArrayLike, truth: Any, k: int) -> float:
    """Recall@k: the share of an instance's labels that are among the first `k`.

    It is the mean over instances with labels. Others have nothing to recall and are skipped, unlike
    in pyxclib.

    Examples
    --------
    >>> truth = sp.csr_array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    >>> recall([[2, 3], [1, -1], [0, 1]], truth, k=2)
    0.75
    """
    answers = _compare(found, truth)
    return _compute_mean_share(answers, _check_k(k), answers.wanted)


def ndcg(found: ArrayLike, truth: Any, k: int) -> float:
    """nDCG@k: the discounted gain of the first `k` places, divided by the largest possible one.

    A hit in place j, from 1 up, gains 1 / log2(j + 1). The gain is largest if the first min(k, |y|)
    places are all hits. The mean is over all instances: those without labels count as 0, as in
    pyxclib.

    Examples
    --------
    >>> truth = sp.csr_array([[0, 0, 1, 0], [0, 1, 0, 0]])
    >>> ndcg([[2, 3], [0, -1]], truth, k=2)
    0.5
    """
    return _compute_ndcg(_compare(found, truth), _check_k(k))


def f1(found: ArrayLike, truth: Any, k: int) -> float:
    """F1@k: hits among the first `k`, twice, divided by the labels found there and the true ones.

    It is the mean over all instances, as scikit-learn's f1_score with average="samples", and as
    Annif reports it. Places without a label are no errors. Instances without labels count as 0.

    Examples
    --------
    >>> truth = sp.csr_array([[1, 0, 1, 0], [0, 1, 0, 0]])
    >>> f1([[2, 3], [1, -1]], truth, k=2)
    0.75
    """
    return _compute_f1(_compare(found, truth), _check_k(k))


def inverse_propensity(train_labels: Any, a: float = 0.55, b: float = 1.5) -> NDArray[np.float64]:
    """Weights of labels (L,): a hit is worth more if the label is rare in training.

    The weight is 1 + C * (n_l + b) ** -a with C = (ln N - 1) * (b + 1) ** a, for a label of n_l
    among N instances (Jain, Prabhu, Varma 2016).

    Parameters
    ----------
    train_labels : labels of N instances, like `truth`
        At least three instances. With fewer, rare labels would weigh less than frequent ones.
    a, b : float
        Usually 0.5 and 0.4 for data from Wikipedia, 0.6 and 2.6 for data from Amazon, and the
        defaults for other data.

    Examples
    --------
    >>> inverse_propensity(sp.csr_array([[1, 0], [1, 1], [1, 0], [1, 0]]))
    array([1.25037208, 1.38629436])
    """
    return _weigh(_canonicalize(train_labels, "train_labels"), a, b)


def _weigh(labels: Sparse, a: float, b: float) -> NDArray[np.float64]:
    counts = np.bincount(labels.indices, minlength=labels.shape[1])
    return inverse_propensity_of_counts(counts, labels.shape[0], a, b)


def inverse_propensity_of_counts(
    counts: NDArray[np.int64], rows: int, a: float = 0.55, b: float = 1.5
) -> NDArray[np.float64]:
    """The weights of `inverse_propensity`, from counts alone.

    Parameters
    ----------
    counts : int array of shape (L,)
        The number of training instances of each label.
    rows : int
        The number of training instances.

    Examples
    --------
    >>> inverse_propensity_of_counts(np.array([4, 1]), rows=4)
    array([1.25037208, 1.38629436])
    """
    a = check_float("a", a, at_least=0, owner="inverse_propensity")
    b = check_float("b", b, at_least=0, owner="inverse_propensity")
    if rows < 3:
        raise InvalidParameter(
            "The 'train_labels' parameter must have at least 3 rows, one for each instance. "
            f"Got {rows} instead. Pass the labels of the whole training set."
        )
    if b == 0 and not np.all(counts):
        raise InvalidParameter(
            "The 'b' parameter of inverse_propensity must be above 0 if some label has no training "
            "instance. Got 0 instead. Use 1.5."
        )
    weights: NDArray[np.float64] = 1 + (np.log(rows) - 1) * (b + 1) ** a * (counts + b) ** -a
    return weights


def propensity_scored_precision(found: ArrayLike, truth: Any, weights: ArrayLike, k: int) -> float:
    """PSP@k: precision@k with hits weighted by label, divided by the largest possible value.

    It is a ratio of means: the mean over all instances, divided by the mean of their best values.

    Parameters
    ----------
    weights : array of shape (L,)
        See `inverse_propensity`.

    Examples
    --------
    >>> truth = sp.csr_array([[1, 1, 0], [0, 0, 1]])
    >>> propensity_scored_precision([[1], [2]], truth, weights=[6, 2, 2], k=1)
    0.5
    """
    values = as_array(weights, "weights")
    return _compute_propensity_scored(_compare(found, truth, values.size), values, _check_k(k))


def evaluate(
    found: ArrayLike,
    truth: Any,
    train_labels: Any = None,
    ks: Iterable[int] = (1, 3, 5),
    a: float = 0.55,
    b: float = 1.5,
) -> dict[str, float]:
    """Return P@k, nDCG@k and F1@k for each of `ks`, and the recall of all labels found.

    Parameters
    ----------
    found : int array of shape (n, width)
    truth : labels of n instances
    train_labels : labels of N instances, optional
        If given, PSP@k is returned too. `inverse_propensity` says what `a` and `b` mean.

    Examples
    --------
    >>> truth = sp.csr_array([[1, 0, 1, 0], [0, 1, 0, 0]])
    >>> evaluate([[2, 3, 0], [1, -1, -1]], truth, ks=[1])
    {'P@1': 1.0, 'nDCG@1': 1.0, 'F1@1': 0.8333333333333333, 'recall@3': 1.0}
    """
    answers = _compare(found, truth)
    depths = [_check_k(k) for k in ks]
    scores = {f"P@{k}": _compute_precision(answers, k) for k in depths}
    scores |= {f"nDCG@{k}": _compute_ndcg(answers, k) for k in depths}
    scores |= {f"F1@{k}": _compute_f1(answers, k) for k in depths}
    if train_labels is not None:
        known = _canonicalize(train_labels, "train_labels", answers.truth.shape[1])
        weights = _weigh(known, a, b)
        scores |= {f"PSP@{k}": _compute_propensity_scored(answers, weights, k) for k in depths}
    width = answers.found.shape[1]
    scores[f"recall@{width}"] = _compute_mean_share(answers, width, answers.wanted)
    return scores


def _compute_precision(answers: _Answers, k: int) -> float:
    return float(answers.hits[:, :k].sum() / (len(answers.hits) * k))


def _compute_mean_share(answers: _Answers, k: int, possible: NDArray[np.int64]) -> float:
    """Return the mean of hits among the first `k` / `possible`, over instances with labels."""
    some = answers.wanted > 0
    if not some.any():
        raise _no_labels_error()
    return float((answers.hits[some, :k].sum(axis=1) / possible[some]).mean())


def _compute_ndcg(answers: _Answers, k: int) -> float:
    gains = 1 / np.log2(np.arange(k) + 2)
    hits = answers.hits[:, :k]
    # An instance without labels has no hits and counts as 0, whatever it is divided by.
    best = np.cumsum(gains)[np.clip(answers.wanted, 1, k) - 1]
    return float((hits @ gains[: hits.shape[1]] / best).mean())


def _compute_f1(answers: _Answers, k: int) -> float:
    hits = answers.hits[:, :k].sum(axis=1)
    given = (answers.found[:, :k] >= 0).sum(axis=1) + answers.wanted
    return float((2 * hits / np.maximum(given, 1)).mean())


def _compute_propensity_scored(answers: _Answers, weights: NDArray[Any], k: int) -> float:
    truth = answers.truth
    if weights.shape != (truth.shape[1],):
        raise InvalidParameter(
            f"The weights must have shape ({truth.shape[1]},), one for each label in the truth. "
            f"Got shape {weights.shape} instead. Compute them from training labels of that width."
        )
    if truth.nnz == 0:
        raise _no_labels_error()
    gained = weights[answers.found[:, :k][answers.hits[:, :k]]].sum()
    # Sorted by row, then by weight, the k heaviest labels of each row come first.
    values = weights[truth.indices]
    rows = _expand_rows(truth)
    order = np.lexsort((-values, rows))
    place = np.arange(truth.nnz) - truth.indptr[rows]
    return float(gained / values[order][place < k].sum())


def _compare(found: ArrayLike, truth: Any, least: int = 0) -> _Answers:
    """Return the found labels, compared. There are at least `least` labels."""
    numbers = as_array(found, "found")
    if numbers.dtype.kind in "iu" and numbers.size:
        least = max(least, int(numbers.max()) + 1)
    true = _canonicalize(truth, "truth", least)
    n, n_labels = true.shape
    ids = _check_found(numbers, n, n_labels)
    # Each pair of an instance and a label becomes one number. Those of the truth are sorted.
    true_keys = _expand_rows(true) * n_labels + true.indices
    keys = np.arange(n)[:, None] * n_labels + ids
    place = np.searchsorted(true_keys, keys)
    hits = (ids >= 0) & (place < true.nnz)
    hits[hits] = true_keys[place[hits]] == keys[hits]
    at = np.flatnonzero(hits)
    _, first = np.unique(keys.ravel()[at], return_index=True)
    hits[...] = False
    hits.flat[at[first]] = True
    return _Answers(ids, hits, true, np.diff(true.indptr).astype(np.int64))


def _canonicalize(labels: Any, name: str, least: int = 0) -> Sparse:
    """Return `labels` as a CSR with sorted entries, without duplicates and zeros."""
    given = as_label_matrix(labels, name, least)
    if len(given.shape) != 2:
        raise InvalidParameter(
            f"The '{name}' parameter must be a matrix of shape (n, L), instances by labels. "
            f"Got shape {given.shape} instead. Reshape it."
        )
    matrix: Sparse = sp.csr_array(given)
    if not (matrix.has_canonical_format and matrix.data.all()):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix


def _check_found(ids: NDArray[Any], n: int, n_labels: int) -> NDArray[np.int64]:
    if ids.ndim != 2 or len(ids) != n or ids.size == 0 or ids.dtype.kind not in "iu":
        raise InvalidParameter(
            f"The 'found' parameter must hold integers of shape ({n}, at least 1), the labels "
            f"found for each of at least one instance. Got {ids.dtype} of shape {ids.shape} "
            "instead. Pad short rows with -1."
        )
    check_padded_range("found", ids, n_labels, "labels", "Pass columns of the truth, not names.")
    return ids.astype(np.int64)


def _expand_rows(matrix: Sparse) -> NDArray[np.int64]:
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _check_k(k: int) -> int:
    return check_int("k", k, at_least=1)


def _no_labels_error() -> InvalidParameter:
    return InvalidParameter(
        "The 'truth' parameter must hold at least one label. "
        "Got none instead. Check how it was loaded."
    )
