"""What a folder of vectors must hold, beyond what keeps kernels within their arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from damage import change, change_meta, put, read

from irli import FormatError, VectorIndex


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_queries_to_tune_by_are_finite(value: float) -> None:
    folder = change(read("codes"), "tuning_queries", put((0, 0), value))
    with pytest.raises(FormatError, match=r"'tuning_queries' .* must hold finite numbers"):
        VectorIndex.from_folder(folder)


def test_no_id_stands_for_no_item() -> None:
    with pytest.raises(FormatError, match=r"'ids' .* must hold numbers in the range \[0"):
        VectorIndex.from_folder(change(read("codes"), "ids", put(3, -1)))


def test_the_default_score_can_be_computed() -> None:
    defaults = {"probes": 2, "score": "codes"}
    assert VectorIndex.from_folder(change_meta(read("codes"), defaults=defaults)).defaults
    folder = read("codes")
    for part, shape in {
        "code_rotation": (8, 0),
        "code_shift": (0,),
        "code_codewords": (0, 1, 16),
        "code_bias": (0, 16),
        "code_blocks": (0, 0, 32),
        "code_offsets": (0, 0),
    }.items():
        folder = change(folder, part, lambda array, shape=shape: np.empty(shape, array.dtype))
    with pytest.raises(FormatError, match="'defaults' of the index must have a score that"):
        VectorIndex.from_folder(change_meta(folder, defaults=defaults))


@pytest.mark.parametrize("history", [None, True, {}, "long", [1], [{}, []]])
def test_the_history_is_a_list_of_objects(history: Any) -> None:
    with pytest.raises(FormatError, match="The field 'history' of the index must be a list"):
        VectorIndex.from_folder(change_meta(read("codes"), history=history))


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**63])
@pytest.mark.parametrize("field", ["linear", "defaults"])
def test_numbers_beyond_64_bits_are_refused(field: str, value: int) -> None:
    fields = {"linear": value, "defaults": {"threshold": value}}
    with pytest.raises(FormatError):
        VectorIndex.from_folder(change_meta(read("codes"), **{field: fields[field]}))
