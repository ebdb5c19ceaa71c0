from __future__ import annotations

import math
from typing import Any

import pytest

from irli.base.distance import METRICS, resolve_metric, worst_distance
from irli.errors import InvalidParameter


@pytest.mark.parametrize("metric", METRICS)
def test_names_stay(metric: str) -> None:
    assert resolve_metric(metric) == metric


@pytest.mark.parametrize(
    ("alias", "metric"),
    [("euclidean", "l2"), ("dot", "ip"), ("inner_product", "ip"), ("angular", "cosine")],
)
def test_aliases(alias: str, metric: str) -> None:
    assert resolve_metric(alias) == metric


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("cosin", "Did you mean 'cosine'?"),
        ("l1", "Choose one of them."),
        ("euclidian", "Did you mean 'euclidean'?"),
        ("inner-product", "Did you mean 'inner_product'?"),
        ("hamming", "Choose one of them."),
        ("L2", "Did you mean 'l2'?"),
        (2, "Choose one of them."),
        (None, "Choose one of them."),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(given: Any, advice: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        resolve_metric(given, owner="VectorIndex")
    assert str(caught.value) == (
        "The 'metric' parameter of VectorIndex must be one of 'l2', 'ip', 'cosine', 'euclidean', "
        f"'dot', 'inner_product', 'angular'. Got {given!r} instead. {advice}"
    )


def test_padding_is_farther_than_any_item() -> None:
    assert worst_distance("l2") == worst_distance("cosine") == math.inf
    assert worst_distance("ip") == -math.inf  # where more is nearer
