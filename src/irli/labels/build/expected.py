"""About how long the phases of a fit of labels take, for its progress bar."""

from __future__ import annotations

from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse

SCALING, LEARNING, RANKING = "scaling", "learning", "ranking"
_PRODUCT = 3 * 1.5e-11  # a multiplication of a router, forward and backward
_RANKED, _SCALED = 3e-8, 2e-9  # a feature of a row, for each label that is tried


def expect_seconds(rows: Rows, labels: Sparse, recipe: Recipe) -> dict[str, float]:
    """Return the phases of a fit from rows (n, d) with labels (n, L), and the seconds of each.

    Examples
    --------
    >>> import irli, scipy.sparse as sp
    >>> rows = labels = sp.eye_array(100, format="csr")
    >>> list(expect_seconds(rows, labels, irli.recipe("labels")))
    ['scaling', 'learning', 'ranking']
    """
    resolved = recipe.resolve_for_labels(labels.shape[1])
    features = getattr(rows, "nnz", rows.shape[0] * rows.shape[1])
    products = resolved.hidden * (
        features + rows.shape[0] * resolved.repetitions * resolved.buckets
    )
    tried = min(labels.shape[1], 1000)
    return {
        SCALING: features * tried * _SCALED + 0.1,
        LEARNING: resolved.epochs * products * _PRODUCT,
        RANKING: features * tried * _RANKED + 0.1,
    }
