from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import Pipeline

from irli.base.folder import Folder, read_folder, write_folder
from irli.errors import FormatError, InvalidParameter, NotFitted
from irli.labels.text.vectorizer import Names, Vectorizer, extend_names, label_matrix
from irli.labels.text.words import cut_text, cut_word

# What UTF-8 can write; lone surrogates (Cs) it cannot.
unicode_text = st.text(st.characters(exclude_categories=["Cs"]))
lengths = st.none() | st.tuples(st.integers(1, 3), st.integers(0, 3)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)
FEW = settings(max_examples=50, deadline=None)


# --- words and weights --------------------------------------------------------------------------


def test_weights_by_hand() -> None:
    vectorizer = Vectorizer().fit(["apple pear", "apple fig fig", "apple"])
    assert vectorizer.words == ["apple", "fig", "pear"]
    rare = 1 + math.log(4 / 2)
    np.testing.assert_allclose(vectorizer.idf, [1, rare, rare], rtol=1e-6)
    found = vectorizer.transform(["fig apple FIG fig", "pear", "apple kiwi"])
    assert found.dtype == np.float32
    fig = (1 + math.log(3)) * rare
    length = math.hypot(1, fig)
    expected = np.array([[1 / length, fig / length, 0], [0, 0, 1], [1, 0, 0]])
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("C++, c++11 and C#!", ["c++", "11", "and", "c#"]),
        ("python3 R", ["python3", "r"]),
        ("page#top #tag", ["page", "top", "tag"]),
        ("wi-fi don't", ["wi", "fi", "don", "t"]),
        ("STRASSE Straße ÉTÉ", ["strasse", "straße", "été"]),
        ("हिन्दी தமிழ்", ["हिन्दी", "தமிழ்"]),
        ("cafe\u0301", ["café"]),
        ("ﬁle ＡＢＣ", ["file", "abc"]),
        ("one\u2028two\x0bthree\nfour", ["one", "two", "three", "four"]),
    ],
)
def test_what_a_word_is(text: str, words: list[str]) -> None:
    assert Vectorizer().fit([text]).words == sorted(set(words))


def test_sequences_are_no_longer_than_a_text() -> None:
    assert cut_text("one two", 100, None) == cut_text("one two", 2, None)
    assert cut_text("", 100, None) == []


def test_ngrams_are_words_too() -> None:
    assert Vectorizer(ngrams=2).fit(["new york city"]).words == [
        "city",
        "new",
        "new york",
        "york",
        "york city",
    ]


def test_characters_are_written_as_parts_of_a_word() -> None:
    found = Vectorizer(characters=(1, 2)).fit(["un 図書館"]).words
    assert set(found) == {"un", "-u-", "-n-", "u-", "-un-", "-n"} | {
        *("図書館", "-図-", "-書-", "-館-", "図-", "-図書-", "-書館-", "-館")
    }
    assert cut_word("a", 3, 9) == ()  # the whole word is a feature already
    forms = Vectorizer(characters=(3, 5)).fit(["kirjastossa"])
    assert forms.transform(["kirjaston"]).nnz > 10
    assert Vectorizer().fit(["kirjastossa"]).transform(["kirjaston"]).nnz == 0


@FEW
@given(st.text(st.characters(categories=["L", "N"]), min_size=1), lengths.filter(bool))
def test_characters_are_those_of_scikit_learn(word: str, range: tuple[int, int]) -> None:
    analyze = CountVectorizer(analyzer="char_wb", ngram_range=range, lowercase=False)
    parts = analyze.build_analyzer()(word)
    marked = [(part[0] != " ") * "-" + part.strip() + (part[-1] != " ") * "-" for part in parts]
    whole = (word, "")  # a blank alone says nothing
    assert list(cut_word(word, *range)) == [part for part in marked if part not in whole]


def scikit_learn(vectorizer: Vectorizer) -> TfidfVectorizer:
    """A TfidfVectorizer of the same features."""
    return TfidfVectorizer(
        analyzer=lambda text: cut_text(text, vectorizer.ngrams, vectorizer.characters),
        min_df=vectorizer.min_df or 1,
        max_df=1.0 if vectorizer.max_df is None else vectorizer.max_df,
        sublinear_tf=True,
        dtype=np.float32,
    )


def assert_same_bits(one: Any, other: Any) -> None:
    assert one.shape == other.shape
    for part in ("data", "indices", "indptr"):
        assert getattr(one, part).tobytes() == getattr(other, part).tobytes()


words = st.sampled_from(["a", "ab", "abc", "ABC", "c++", "日本", "naïve", "ﬁn", "x1"])
sentences = st.lists(words, max_size=30).map(" ".join)


@FEW
@given(
    st.lists(sentences | unicode_text, max_size=12),
    st.integers(1, 3),
    lengths,
    st.integers(1, 2),
    st.lists(sentences | unicode_text, min_size=1, max_size=5),
)
def test_rows_are_those_of_scikit_learn(
    texts: list[str],
    ngrams: int,
    characters: tuple[int, int] | None,
    min_df: int,
    queries: list[str],
) -> None:
    texts = [*texts, "ab", "AB cd"]
    ours = Vectorizer(ngrams=ngrams, characters=characters, min_df=min_df)
    theirs = scikit_learn(ours)
    assert_same_bits(ours.fit_transform(texts), theirs.fit(texts).transform(texts))
    assert ours.words == theirs.get_feature_names_out().tolist()
    assert ours.idf.tobytes() == theirs.idf_.tobytes()
    assert_same_bits(ours.transform(iter(queries)), theirs.transform(queries))
    assert_same_bits(ours.transform(texts), theirs.transform(texts))


def test_blocks_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{'a ' * (i % 5)} b{i % 3} c" for i in range(20)]
    vectorizer = Vectorizer().fit(texts)
    whole = vectorizer.transform(texts)
    monkeypatch.setattr("irli.labels.text.vectorizer._BLOCK", 7)
    assert_same_bits(whole, vectorizer.transform(texts))


def test_transform_needs_no_scikit_learn() -> None:
    code = """
import sys, numpy as np
from irli.labels.text.vectorizer import Vectorizer
arrays = {"words": np.frombuffer(b"cat", "u1"), "words_offsets": np.array([0, 3])}
meta = {"ngrams": 1, "characters": [2, 3], "min_df": None, "max_df": None}
made = Vectorizer.from_state(meta, arrays | {"idf": np.ones(1, "f4")})
assert made.transform(["a cat"]).toarray().tolist() == [[1]]
assert not {"sklearn", "torch"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)


def test_a_vectorizer_is_a_step_of_a_pipeline() -> None:
    steps = clone(Pipeline([("words", Vectorizer(ngrams=2))]))
    assert steps.set_params(words__characters=(2, 3)).get_params()["words__ngrams"] == 2
    texts = ["one two", "two three"]
    assert_same_bits(steps.fit_transform(texts), steps.transform(texts))
    assert {"one two", "-ne"} <= set(steps["words"].words)
    fitted = steps["words"].set_params(ngrams=1, characters=None)
    assert "one two" in fitted.words  # what was learned stays
    assert fitted.fit(texts).words == ["one", "three", "two"]


def test_a_text_without_known_words_is_an_empty_row() -> None:
    vectorizer = Vectorizer().fit(["one two"])
    found = vectorizer.transform(["", "three ?!", "two \ud800"])
    assert np.diff(found.indptr).tolist() == [0, 0, 1]
    assert vectorizer.transform([]).shape == (0, 2)


def numbered(count: int, common: float) -> list[str]:
    """Texts of two words that come twice and one that is unique; some also have "common"."""
    return [
        f"pair{i // 2} other{i // 2} lone{i}" + (" common" if i < count * common else "")
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "lone", "common"), [(20, True, True), (1000, False, True), (10_000, False, False)]
)
def test_which_words_stay(count: int, lone: bool, common: bool) -> None:
    words = Vectorizer().fit(numbered(count, common=0.5)).words
    assert ("lone0" in words, "common" in words) == (lone, common)
    assert "pair0" in words


def test_limits_that_the_user_sets() -> None:
    texts = numbered(20, common=0.5)
    assert Vectorizer(min_df=10).fit(texts).words == ["common"]
    assert "common" not in Vectorizer(max_df=0.3).fit(texts).words
    assert "common" in Vectorizer(max_df=1).fit(numbered(10_000, common=0.5)).words
    with pytest.raises(InvalidParameter, match="in at least 11 and at most 100%"):
        Vectorizer(min_df=11).fit(texts)


def test_usual_limits_never_leave_nothing() -> None:
    assert Vectorizer().fit(f"lone{i}" for i in range(1000)).transform(["lone7"]).nnz == 1
    assert Vectorizer().fit(["same"] * 10_000).words == ["same"]


@pytest.mark.parametrize("texts", [[], [""], ["?!", "\n", "..."], ["", ""] * 1000])
def test_no_word_at_all(texts: list[str]) -> None:
    with pytest.raises(InvalidParameter, match=f"must have a word.* Got {len(texts)} texts"):
        Vectorizer().fit(texts)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "Got str instead"),
        (b"bytes", "Got bytes instead"),
        (5, "Got int instead"),
        (["a", None], "Got NoneType at 1"),
        (["a", "b", b"c"], "Got bytes at 2"),
    ],
)
def test_texts_that_are_none(texts: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=f"'texts' parameter of fit.*{message}"):
        Vectorizer().fit(texts)
    with pytest.raises(InvalidParameter, match=f"'texts' parameter of transform.*{message}"):
        Vectorizer().fit(["a"]).transform(texts)


@pytest.mark.parametrize(
    "setting",
    [
        {"ngrams": 0},
        {"ngrams": 101},
        {"characters": (3, 101)},
        {"min_df": 0},
        {"min_df": 0.5},
        {"max_df": 2},
    ]
    + [{"characters": x} for x in (3, (3,), (0, 2), (3, 2), (1.0, 2), "35")],
)
def test_settings_out_of_range(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=f"'{next(iter(setting))}' parameter of Vectorizer"):
        Vectorizer(**setting)


def test_not_fitted() -> None:
    with pytest.raises(NotFitted):
        Vectorizer().transform(["a"])
    with pytest.raises(NotFitted):
        Vectorizer().state()


def test_fitting_again_forgets_the_first_texts() -> None:
    vectorizer = Vectorizer().fit(["one two"])
    vectorizer.transform(["one"])
    vectorizer.fit(["three"])
    assert vectorizer.transform(["one", "three"]).toarray().tolist() == [[0], [1]]


# --- saving -------------------------------------------------------------------------------------


@FEW
@given(st.lists(unicode_text, max_size=8), st.integers(1, 3), lengths, st.lists(unicode_text))
def test_vectorizer_round_trip(
    texts: list[str], ngrams: int, characters: tuple[int, int] | None, queries: list[str]
) -> None:
    vectorizer = Vectorizer(ngrams=ngrams, characters=characters, max_df=1.0).fit([*texts, "word"])
    meta, arrays = vectorizer.state()
    assert all(array.dtype.kind in "biuf" for array in arrays.values())
    again = Vectorizer.from_state(json.loads(json.dumps(meta)), arrays)
    assert (again.ngrams, again.characters) == (ngrams, characters)
    assert (again.min_df, again.max_df) == (None, 1.0)
    assert again.words == vectorizer.words
    for some in (texts, queries):
        assert_same_bits(vectorizer.transform(some), again.transform(some))


@FEW
@given(st.lists(unicode_text, unique=True))
def test_names_round_trip(names: list[str]) -> None:
    arrays = Names.of(names).state()
    assert all(array.dtype.kind in "biuf" for array in arrays.values())
    again = Names.from_state(arrays)
    assert list(again) == names
    assert again.ids(names).tolist() == list(range(len(names)))


@pytest.mark.parametrize("mmap", [True, False])
def test_states_share_an_index_folder(mmap: bool, tmp_path: Path) -> None:
    vectorizer, names = Vectorizer().fit(["ein Café", "c++"]), Names.of(["ü", ""])
    meta, arrays = vectorizer.state()
    both = Folder("labels", {"text": meta}, arrays | names.state(), {})
    write_folder(tmp_path / "index", both)
    folder = read_folder(tmp_path / "index", mmap=mmap)
    again = Vectorizer.from_state(folder.meta["text"], folder.arrays)
    assert again.words == ["c++", "café", "ein"]
    np.testing.assert_array_equal(again.idf, vectorizer.idf)
    assert list(Names.from_state(folder.arrays)) == ["ü", ""]


BAD_STRINGS: list[tuple[dict[str, Any], str]] = [
    ({"": None}, "'{}' is missing"),
    ({"_offsets": None}, "'{}_offsets' is missing"),
    ({"": np.frombuffer("äb".encode(), np.int8)}, "must be bytes"),
    ({"": np.zeros((3, 1), np.uint8)}, "must be bytes"),
    ({"_offsets": np.array([0.0, 2, 3])}, "integers"),
    ({"_offsets": np.array([], dtype=int)}, "integers"),
    ({"_offsets": np.array([0, 2])}, "must rise from 0 to 3"),
    ({"_offsets": np.array([0, 2, 4])}, "must rise from 0 to 3"),
    ({"_offsets": np.array([1, 2, 3])}, "must rise from 0 to 3"),
    ({"_offsets": np.array([0, 5, 3])}, "must rise from 0 to 3"),
    ({"_offsets": np.array([0, -1, 3])}, "must rise from 0 to 3"),
    ({"_offsets": np.array([0, 1, 3])}, "must be UTF-8"),
    ({"": np.frombuffer(b"\xff\xffb", np.uint8)}, "must be UTF-8"),
    ({"": np.frombuffer(b"bb", np.uint8), "_offsets": np.array([0, 1, 2])}, "twice|distinct"),
]


def changed(
    arrays: dict[str, np.ndarray[Any, Any]], change: dict[str, Any]
) -> dict[str, np.ndarray[Any, Any]]:
    return {name: array for name, array in (arrays | change).items() if array is not None}


@pytest.mark.parametrize(("change", "message"), BAD_STRINGS)
def test_strings_that_are_damaged(change: dict[str, Any], message: str) -> None:
    names = Names.of(["ä", "b"]).state()
    bad = changed(names, {"names" + end: value for end, value in change.items()})
    with pytest.raises(FormatError, match=message.format("names")):
        Names.from_state(bad)
    meta, arrays = Vectorizer().fit(["ä b"]).state()
    arrays |= {"words" + name.removeprefix("names"): value for name, value in names.items()}
    assert Vectorizer.from_state(meta, arrays).words == ["ä", "b"]
    bad = changed(arrays, {"words" + end: value for end, value in change.items()})
    with pytest.raises(FormatError, match=message.format("words")):
        Vectorizer.from_state(meta, bad)


@pytest.mark.parametrize(
    ("settings", "change", "message"),
    [
        ({"ngrams": 0}, {}, "'ngrams' parameter"),
        ({"characters": [3]}, {}, "'characters' parameter"),
        ({"min_df": "2"}, {}, "'min_df' parameter"),
        ({}, {"idf": None}, "'idf'"),
        ({}, {"idf": np.ones(3, np.float32)}, r"shape \(2,\)"),
        ({}, {"idf": np.ones((2, 1), np.float32)}, r"shape \(2,\)"),
        ({}, {"idf": np.ones(2)}, "float64"),
        ({}, {"idf": np.array([1, np.nan], np.float32)}, "finite"),
        (
            {},
            {
                "idf": np.ones(0, np.float32),
                "words": np.ones(0, np.uint8),
                "words_offsets": np.zeros(1, int),
            },
            "at least one",
        ),
    ],
)
def test_vectorizer_state_that_is_damaged(
    settings: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    meta, arrays = Vectorizer().fit(["one two"]).state()
    with pytest.raises(FormatError, match=message):
        Vectorizer.from_state(meta | settings, changed(arrays, change))


def test_vectorizer_settings_that_are_missing() -> None:
    _, arrays = Vectorizer().fit(["one two"]).state()
    with pytest.raises(FormatError, match="'ngrams'"):
        Vectorizer.from_state({}, arrays)


# --- names and labels ---------------------------------------------------------------------------


def test_names_go_both_ways() -> None:
    names = Names.of(name for name in ("b", "a", "c"))
    assert names.ids(["c", "b", "c"]).tolist() == [2, 0, 2]
    assert names.ids([]).dtype == np.int64
    assert [names[id] for id in np.array([1, 2])] == ["a", "c"]
    assert (len(names), list(names), "a" in names, "A" in names) == (
        3,
        ["b", "a", "c"],
        True,
        False,
    )


@pytest.mark.parametrize("id", [-1, 3])
def test_there_is_no_name_out_of_range(id: int) -> None:
    with pytest.raises(IndexError, match=f"no label {id}: ids go from 0 to 2"):
        Names.of(["a", "b", "c"])[id]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a"], "Got 'a' at 0 and 2"),
        (["a", 3], "Got int at 1"),
        ("abc", "Got str instead"),
        (["a", "\ud83d"], "Got '.ud83d' at 1: surrogates not allowed"),
    ],
)
def test_names_that_are_refused(names: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        Names.of(names)


def test_names_among_lists_are_sorted_and_come_once() -> None:
    assert list(Names.among(iter([["b", "ä"], (), ["a", "b"]]))) == ["a", "b", "ä"]
    assert len(Names.among([])) == 0


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ("ab", "'lists' parameter of Names.among must hold lists.* Got str"),
        ([["a"], "b"], r"'lists\[1\]' parameter.* Got str"),
        ([["a"], None], r"'lists\[1\]' parameter.* Got NoneType"),
        ([["a", 3]], r"'lists\[0\]' parameter.* Got int at 1"),
    ],
)
def test_lists_without_names(lists: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        Names.among(lists)


def test_names_grow_with_the_labels() -> None:
    known = Names.of(["a"])
    grown = extend_names(known, ["c", "b"], 2, "add")
    assert grown is not None
    assert list(grown) == ["a", "c", "b"]
    assert extend_names(known, None, 0, "add") is known
    assert extend_names(None, None, 2, "add") is None


@pytest.mark.parametrize(
    ("known", "names", "message"),
    [
        (None, ["b"], "'names' parameter of add must be left out"),
        (["a"], None, "'names' parameter of add must name the 1 new"),
        (["a"], ["b", "c"], "for each of 1 labels. Got 2"),
        (["a"], "b", "Got str instead"),
        (["a"], ["a"], "Got 'a' at 0 and 1"),
    ],
)
def test_names_that_cannot_grow(known: list[str] | None, names: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        extend_names(None if known is None else Names.of(known), names, 1, "add")


def test_unknown_names() -> None:
    with pytest.raises(InvalidParameter, match=r"the 2 known names\. Got 'c' instead"):
        Names.of(["a", "b"]).ids(["a", "c"])


@FEW
@given(st.lists(st.lists(st.sampled_from("abcdefxyz"))))
def test_label_matrix_has_ones_where_labels_are(lists: list[list[str]]) -> None:
    matrix = label_matrix(lists, Names.of("fedcba"[i] for i in range(6)), unknown="skip")
    assert (matrix.dtype, matrix.shape) == (np.float32, (len(lists), 6))
    assert matrix.has_canonical_format
    expected = [[float(name in labels) for name in "fedcba"] for labels in lists]
    np.testing.assert_array_equal(matrix.toarray(), np.reshape(expected, (-1, 6)))


def test_label_matrix_refuses_what_it_does_not_know() -> None:
    names = Names.of(["a", "b"])
    with pytest.raises(InvalidParameter, match="Got 'c' in row 1"):
        label_matrix([["a"], ["b", "c"]], names)
    with pytest.raises(InvalidParameter, match=r"'lists\[1\]' parameter.* Got str"):
        label_matrix([["a"], "b"], names)
    with pytest.raises(InvalidParameter, match="'unknown' parameter of label_matrix"):
        label_matrix([["a"]], names, unknown="ignore")
    with pytest.raises(InvalidParameter, match=r"must be Names of labels. Got list"):
        label_matrix([["a"]], ["a", "b"])
