"""The parser of XMC text on any bytes: it ends, and what it returns is well-formed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irli.engine.xmc_parser import GOOD, ROW_TOO_MANY, parse

PIECES = st.sampled_from([b"0", b"1", b"7", b"12", b",", b":", b" ", b"\n", b".", b"e", b"-", b"+"])


@settings(deadline=None)
@given(
    st.lists(PIECES | st.binary(max_size=3), max_size=30).map(b"".join),
    st.booleans(),
    st.integers(0, 4),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_any_text(text: bytes, labelled: bool, n: int, columns: int, labels: int) -> None:
    text += b"\n"
    fault, at, rows = parse(text, labelled, n, columns, labels)
    assert 0 <= at < len(text)
    assert GOOD <= fault <= ROW_TOO_MANY
    assert rows.label_counts.sum() <= len(rows.labels)
    assert rows.pair_counts.sum() <= len(rows.columns) == len(rows.values)
    assert ((rows.labels >= 0) & (rows.labels < labels)).all()
    assert ((rows.columns >= 0) & (rows.columns < columns)).all()
    assert np.isfinite(rows.values).all()
    if fault == GOOD:
        assert len(rows.label_counts) == len(rows.pair_counts) == min(n, text.count(b"\n"))
        assert rows.label_counts.sum() == len(rows.labels)
        assert rows.pair_counts.sum() == len(rows.columns)


def test_text_must_end_with_a_newline() -> None:
    assert parse(b"", True, 1, 1, 1)[0] == GOOD
    with pytest.raises(ValueError, match="must end with a newline"):
        parse(b"0 0:1", True, 1, 1, 1)
