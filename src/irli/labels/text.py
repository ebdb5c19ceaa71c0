"""Texts and names: Vectorizer turns texts into TF-IDF rows, Names maps label names to columns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.checks import check_choice, check_float, check_int
from irli.base.strings import Strings
from irli.base.types import Sparse
from irli.errors import FormatError, InvalidParameter, MissingDependency, NotFitted

T = TypeVar("T")

_MANY = 1_000  # texts from which on words of a single text are left out
_LARGE = 10_000  # texts from which on words of more than this share of the texts are left out
_LARGE_SHARE = 0.3
# "c++" and "c#" are words; the "#" in "page#top" is not part of one.
_SUFFIX = r"(?:\+\+|#(?!\w))?"
_ASCII_WORD = re.compile(rf"\w+{_SUFFIX}")


class Vectorizer:
    """Texts as TF-IDF vectors: (1 + ln tf) * (1 + ln((1 + n) / (1 + df))), of unit length.

    A word is a run of letters and digits of any script, in lower case, with "++" or "#" at its
    end: "C++", "python3" and "naïve" are words; "wi-fi" and "don't" are two words each.

    Parameters
    ----------
    ngrams : int
        Sequences of up to this many words are features too.
    min_df : int, optional
        Leave out words that fewer texts contain. By default 2 for 1000 texts or more, and 1 (leave
        out none) for fewer.
    max_df : float, optional
        Leave out words that a larger share of the texts contain. By default 0.3 for 10 000 texts or
        more, and 1.0 (leave out none) for fewer.

    Attributes
    ----------
    words : list of str
        The word of each of the D columns, sorted.
    idf : float32 array of shape (D,)

    Examples
    --------
    >>> vectorizer = Vectorizer().fit(["Learn C++", "learn python3"])
    >>> vectorizer.words
    ['c++', 'learn', 'python3']
    >>> vectorizer.transform(["C++, Python3 or Rust?", ""]).toarray().round(3)
    array([[0.707, 0.   , 0.707],
           [0.   , 0.   , 0.   ]], dtype=float32)
    """

    def __init__(
        self, *, ngrams: int = 1, min_df: int | None = None, max_df: float | None = None
    ) -> None:
        if min_df is not None:
            min_df = check_int("min_df", min_df, at_least=1, owner="Vectorizer")
        if max_df is not None:
            max_df = check_float("max_df", max_df, at_least=0, at_most=1, owner="Vectorizer")
        self.ngrams = check_int("ngrams", ngrams, at_least=1, owner="Vectorizer")
        self.min_df, self.max_df = min_df, max_df
        self.words: list[str] = []
        self.idf: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._model: Any = None

    def fit(self, texts: Iterable[str]) -> Vectorizer:
        """Learn the words of `texts` and their weights."""
        given = _as_strings(texts, "texts", "fit")
        many, large = len(given) >= _MANY, len(given) >= _LARGE
        try:
            model = self._fit_model(given, 2 if many else 1, _LARGE_SHARE if large else 1.0)
        except InvalidParameter:
            # Every word is too rare or too common: the usual limits do not suit these texts.
            model = self._fit_model(given, 1, 1.0)
        self.words, self.idf = model.get_feature_names_out().tolist(), model.idf_
        self._model = None
        return self

    def _fit_model(self, texts: list[str], min_df: int, max_df: float) -> Any:
        """Return scikit-learn's model of the texts. The limits apply if the user set none."""
        min_df = self.min_df or min_df
        max_df = max_df if self.max_df is None else self.max_df
        model = _make_model(self.ngrams, min_df=min_df, max_df=max_df)
        try:
            return model.fit(texts)
        except ValueError as error:
            raise InvalidParameter(
                f"The 'texts' parameter of fit must have a word, in at least {min_df} and at most "
                f"{max_df:.0%} of the texts. Got {len(texts)} texts without one. "
                "Check what was read, or set min_df=1 and max_df=1."
            ) from error

    def transform(self, texts: Iterable[str]) -> Sparse:
        """Return the rows of `texts` (n, D). A text without known words has a row of zeros."""
        self._check_fitted()
        given = _as_strings(texts, "texts", "transform")
        if not given:  # scikit-learn refuses an empty list
            return sp.csr_array(np.empty((0, len(self.words)), dtype=np.float32))
        if self._model is None:
            self._model = _make_model(self.ngrams, vocabulary=self.words)
            self._model.idf_ = self.idf
        return sp.csr_array(self._model.transform(given))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state to save: plain JSON values, and arrays.

        Examples
        --------
        >>> meta, arrays = Vectorizer().fit(["one", "two"]).state()
        >>> sorted(arrays)
        ['idf', 'words', 'words_offsets']
        >>> Vectorizer.from_state(meta, arrays).words
        ['one', 'two']
        """
        self._check_fitted()
        meta = {"ngrams": self.ngrams, "min_df": self.min_df, "max_df": self.max_df}
        return meta, {"idf": self.idf, **_pack_strings("words", self.words)}

    @classmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Vectorizer:
        """Return the vectorizer with this `state`. Other arrays are ignored."""
        try:
            made = cls(ngrams=meta["ngrams"], min_df=meta["min_df"], max_df=meta["max_df"])
            idf = np.array(arrays["idf"])
        except (KeyError, InvalidParameter) as error:
            raise _damaged_error(f"its settings or arrays are wrong or missing: {error}") from error
        words = _unpack_strings("words", arrays)
        if not words or len(set(words)) != len(words):
            raise _damaged_error(f"its {len(words)} words must be distinct, and at least one")
        if idf.dtype != np.float32 or idf.shape != (len(words),) or not np.isfinite(idf).all():
            raise _damaged_error(
                f"'idf' must be finite float32 of shape ({len(words)},), one for each word, and is "
                f"{idf.dtype} of shape {idf.shape}"
            )
        made.words, made.idf = words, idf
        return made

    def _check_fitted(self) -> None:
        if not self.words:
            raise NotFitted("This Vectorizer is not fitted yet. Call fit(texts) first.")


class Names:
    """Distinct names of labels. The id of a label is its position.

    Examples
    --------
    >>> names = Names.of(["cat", "dog", "bird"])
    >>> names.ids(["bird", "cat"])
    array([2, 0])
    >>> names[1], len(names), "fish" in names
    ('dog', 3, False)
    """

    def __init__(self, ids: dict[str, int]) -> None:
        self._ids = ids
        self._names = list(ids)

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Number the names in the given order. No name may come twice."""
        ids: dict[str, int] = {}
        for place, name in enumerate(_as_strings(names, "names", "Names.of")):
            first = ids.setdefault(name, place)
            if first != place:
                raise InvalidParameter(
                    "The 'names' parameter of Names.of must not hold a name twice. "
                    f"Got {name!r} at {first} and {place}. Drop one, or pass sorted(set(names))."
                )
            try:
                name.encode()
            except UnicodeEncodeError as error:
                raise InvalidParameter(
                    "The 'names' parameter of Names.of must hold names that UTF-8 can write. "
                    f"Got {name!r} at {place}: {error.reason}. Repair that name."
                ) from error
        return cls(ids)

    @classmethod
    def among(cls, lists: Iterable[Iterable[str]]) -> Names:
        """Number all names in the lists, sorted. A name may come more than once.

        Examples
        --------
        >>> list(Names.among([["dog", "cat"], [], ["dog"]]))
        ['cat', 'dog']
        """
        must = "The 'lists' parameter of Names.among must hold lists of strings."
        found: set[str] = set()
        for row, names in enumerate(_as_list(lists, must)):
            found.update(_as_strings(names, f"lists[{row}]", "Names.among"))
        return cls.of(sorted(found))

    def ids(self, names: Iterable[str]) -> NDArray[np.int64]:
        """Return the id of each of `names`, which must all be known."""
        wanted = _as_strings(names, "names", "ids")
        for name in wanted:
            if name not in self:
                raise InvalidParameter(
                    f"The 'names' parameter of ids must hold some of the {len(self)} known names. "
                    f"Got {name!r} instead. Check its spelling and case, or leave it out."
                )
        return np.array([self._ids[name] for name in wanted], dtype=np.int64)

    def __getitem__(self, id: int) -> str:
        # In results, -1 means "no label". It must not stand for the last one.
        if not 0 <= id < len(self):
            raise IndexError(f"There is no label {id}: ids go from 0 to {len(self) - 1}.")
        return self._names[id]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the names as two arrays, "names" and "names_offsets"."""
        return _pack_strings("names", self._names)

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]]) -> Names:
        """Return the names with this `state`. Other arrays are ignored."""
        try:
            return cls.of(_unpack_strings("names", arrays))
        except InvalidParameter as error:
            raise _damaged_error(str(error)) from error


def label_matrix(lists: Iterable[Iterable[str]], names: Names, unknown: str = "error") -> Sparse:
    """Return a float32 CSR of shape (n, L), with 1 where a text has a label.

    Parameters
    ----------
    lists : n lists of strings
        The labels of each text. A label that comes twice counts once.
    names : Names
        The names of the L labels.
    unknown : {"error", "skip"}
        What to do with labels that `names` does not have.

    Examples
    --------
    >>> label_matrix([["b"], [], ["b", "a"]], Names.of(["a", "b"])).toarray()
    array([[0., 1.],
           [0., 0.],
           [1., 1.]], dtype=float32)
    """
    skip = check_choice("unknown", unknown, ("error", "skip"), owner="label_matrix") == "skip"
    columns: list[int] = []
    ends = [0]
    for row, given in enumerate(lists):
        labels = dict.fromkeys(_as_strings(given, f"lists[{row}]", "label_matrix"))
        known = [names._ids[label] for label in labels if label in names]
        if len(known) < len(labels) and not skip:
            label = next(label for label in labels if label not in names)
            raise InvalidParameter(
                "The 'lists' parameter of label_matrix must hold labels that 'names' has. "
                f"Got {label!r} in row {row}. Add it to the names, or pass unknown='skip'."
            )
        columns.extend(sorted(known))
        ends.append(len(columns))
    ones = np.ones(len(columns), dtype=np.float32)
    return sp.csr_array((ones, columns, ends), shape=(len(ends) - 1, len(names)))


class TextRows(NamedTuple):
    """Texts and their labels as matrices, with the vectorizer and the names that made them."""

    rows: Sparse
    labels: Sparse
    vectorizer: Vectorizer
    names: Names


def vectorize_texts(texts: Sequence[str], labels: Sequence[Sequence[str]]) -> TextRows:
    """Learn the words of texts and the names of labels, and turn both into matrices.

    Examples
    --------
    >>> made = vectorize_texts(["meow", "woof woof"], [["cat"], []])
    >>> made.rows.shape, made.labels.shape
    ((2, 2), (2, 1))
    """
    strings = _as_strings(texts, "texts", "fit_text")
    must = "The 'labels' parameter of fit_text must hold a list of names for each text."
    lists = [
        _as_strings(names, f"labels[{row}]", "fit_text")
        for row, names in enumerate(_as_list(labels, must))
    ]
    if len(strings) != len(lists):
        raise InvalidParameter(
            f"The 'labels' parameter of fit_text must have a list for each of {len(strings)} texts."
            f" Got {len(lists)} instead. Pass an empty list where there is none."
        )
    names = Names.among(lists)
    vectorizer = Vectorizer().fit(strings)
    return TextRows(vectorizer.transform(strings), label_matrix(lists, names), vectorizer, names)


def name_labels(
    scores: NDArray[np.float32], labels: NDArray[np.int64], names: Names
) -> list[list[tuple[str, float]]]:
    """Return the name and the score of each label found, without the padding.

    Examples
    --------
    >>> name_labels(np.array([[0.5, -np.inf]]), np.array([[1, -1]]), Names.of(["a", "b"]))
    [[('b', 0.5)]]
    """
    return [
        [(names[id], score) for id, score in zip(*row, strict=True) if id >= 0]
        for row in zip(labels.tolist(), scores.tolist(), strict=True)
    ]


def extend_names(
    known: Names | None, names: Iterable[str] | None, count: int, owner: str
) -> Names | None:
    """Return the names of the known labels and of `count` new ones. All labels have names, or none.

    Examples
    --------
    >>> list(extend_names(Names.of(["cat"]), ["dog", "bird"], 2, "add_labels"))
    ['cat', 'dog', 'bird']
    """
    if names is None and (known is None or count == 0):
        return known
    if known is None:
        raise InvalidParameter(
            f"The 'names' parameter of {owner} must be left out for an index whose labels have no "
            "names. Got names instead. Pass the names of all labels to fit."
        )
    if names is None:
        raise InvalidParameter(
            f"The 'names' parameter of {owner} must name the {count} new labels, since all others "
            "have names. Got None instead. Pass a list of strings."
        )
    new = list(Names.of(names))
    if len(new) != count:
        raise InvalidParameter(
            f"The 'names' parameter of {owner} must have a name for each of {count} labels. "
            f"Got {len(new)} instead. Pass them in the order of the columns of Y."
        )
    return Names.of([*known, *new])


def _make_model(ngrams: int, **settings: Any) -> Any:
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"Turning texts into vectors needs {error.name}, which is not installed. "
            "Install it with: pip install 'irli[text]'"
        ) from error
    return TfidfVectorizer(
        tokenizer=_split_words,
        token_pattern=None,
        lowercase=False,
        ngram_range=(1, ngrams),
        sublinear_tf=True,
        dtype=np.float32,
        **settings,
    )


def _split_words(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _compile_unicode_word().findall(unicodedata.normalize("NFKC", text).lower())


@cache
def _compile_unicode_word() -> re.Pattern[str]:
    # \w matches no vowel signs and accents, and would cut most words of Hindi or Tamil into pieces.
    signs = map(chr, range(0x300, 0x20000))
    marks = "".join(sign for sign in signs if unicodedata.category(sign).startswith("M"))
    return re.compile(rf"\w[\w{marks}]*{_SUFFIX}")


def _as_list(values: Iterable[T], must: str) -> list[T]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidParameter(
            f"{must} Got {type(values).__name__} instead. Put a single one into a list."
        )
    return list(values)


def _as_strings(values: Iterable[str], name: str, owner: str) -> list[str]:
    must = f"The '{name}' parameter of {owner} must be a list of strings."
    strings = _as_list(values, must)
    for row, value in enumerate(strings):
        if not isinstance(value, str):
            raise InvalidParameter(
                f"{must} Got {type(value).__name__} at {row} instead. Use '' where there is none."
            )
    return strings


def _pack_strings(name: str, strings: list[str]) -> dict[str, NDArray[Any]]:
    """Return the strings as one array of UTF-8 bytes, and the offsets where they begin and end."""
    packed = Strings.of(strings)
    return {name: packed.bytes, f"{name}_offsets": packed.offsets}


def _unpack_strings(name: str, arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    try:
        text, offsets = arrays[name], arrays[f"{name}_offsets"]
    except KeyError as error:
        raise _damaged_error(f"the array {error} is missing") from error
    valid = text.dtype == np.uint8 and text.ndim == 1
    if not (valid and offsets.dtype.kind in "iu" and offsets.ndim == 1 and len(offsets)):
        raise _damaged_error(f"'{name}' must be bytes, and '{name}_offsets' integers")
    bounds = offsets.tolist()
    if bounds[0] != 0 or bounds[-1] != len(text) or any(a > b for a, b in pairwise(bounds)):
        raise _damaged_error(f"'{name}_offsets' must rise from 0 to {len(text)}")
    try:
        return list(Strings(text, offsets))
    except UnicodeDecodeError as error:
        raise _damaged_error(f"'{name}' must be UTF-8 ({error})") from error


def _damaged_error(what: str) -> FormatError:
    return FormatError(
        f"The saved text model is damaged: {what}. Restore it from a copy or build it again."
    )
