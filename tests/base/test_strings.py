from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.base.strings import Strings
from irli.errors import FormatError

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])))


@given(TEXTS)
def test_strings_come_back(texts: list[str]) -> None:
    strings = Strings.of(texts)
    again = Strings.read("id", strings.bytes, strings.offsets, len(texts))
    for made in (strings, again, pickle.loads(pickle.dumps(strings))):
        assert list(made) == texts
        assert [made[place] for place in range(len(made))] == texts
    assert all(texts[place] == text for text, place in strings.places.items())


def test_long_lists_are_decoded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irli.base.strings._BLOCK", 3)
    texts = ["žluťoučký", "", "kůň", "a", "\0", "🐎🐎"]
    strings = Strings.of(texts)
    assert list(Strings.read("id", strings.bytes, strings.offsets, 6)) == texts


def test_what_utf_8_cannot_write() -> None:
    with pytest.raises(UnicodeEncodeError):
        Strings.of(["a", "\ud800"])


def _bytes(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text, np.uint8)


@pytest.mark.parametrize(
    ("text", "offsets", "message"),
    [
        (_bytes(b"ab"), np.array([0, 1]), r"'id_offsets' .* shape \(3,\)"),
        (_bytes(b"ab"), np.array([0, 1, 3]), "'id_offsets' .* rise from 0 to 2"),
        (_bytes(b"ab"), np.array([1, 1, 2]), "'id_offsets' .* rise from 0 to 2"),
        (_bytes(b"ab"), np.array([0, 3, 2]), "'id_offsets' .* rise from 0 to 2"),
        (_bytes(b"ab"), np.array([0, -5, 2]), "'id_offsets' .* rise from 0 to 2"),
        (_bytes(b"ab"), np.array([0, 1, 2], dtype=np.int32), "'id_offsets' .* int64"),
        (_bytes(b"ab").view(np.int8), np.array([0, 1, 2]), "'id_bytes' .* uint8"),
        (_bytes(b"\xff"), np.array([0, 1, 1]), "'id_bytes' .* UTF-8"),
        (_bytes(b"\xc3"), np.array([0, 1, 1]), "'id_bytes' .* UTF-8"),
        (_bytes(b"\xc3\xa9"), np.array([0, 1, 2]), "'id_bytes' .* UTF-8"),  # é cut into two
    ],
)
def test_arrays_that_are_no_strings(text: Any, offsets: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Strings.read("id", text, offsets, 2)
