"""Texts and names: Vectorizer turns texts into TF-IDF rows, Names maps label names to columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.checks import check_choice, check_float, check_int
from irli.base.index import Estimator
from irli.base.logs import warn
from irli.base.strings import Strings
from irli.base.types import Sparse
from irli.errors import FormatError, InvalidParameter, NotFitted
from irli.labels.text.words import cut_text

T = TypeVar("T")

_MANY = 1_000  # texts from which on words of a single text are left out
_LARGE = 10_000  # texts from which on words of more than this share of the texts are left out
_LARGE_SHARE = 0.3
_LONGEST = 100  # words or characters of a sequence, at most
_BLOCK = 1 << 13  # texts turned into rows at once


class Vectorizer(Estimator):
    """Texts as TF-IDF vectors: (1 + ln tf) * (1 + ln((1 + n) / (1 + df))), of unit length.

    A word is a run of letters and digits of any script, in lower case, with "++" or "#" at its
    end: "C++", "python3" and "naïve" are words; "wi-fi" and "don't" are two words each.

    The rows are those of scikit-learn's TfidfVectorizer.

    Parameters
    ----------
    ngrams : int
        Sequences of up to this many words are features too.
    characters : (int, int), optional
        Sequences of so many characters within a word are features too, as with scikit-learn's
        analyzer "char_wb": the ends of a word count as characters. (3, 5) finds what forms of an
        inflected word share. (1, 2) is for languages without spaces between words, such as Chinese
        and Japanese.
    min_df : int, optional
        Leave out words that fewer texts contain. By default 2 for 1000 texts or more, and 1 (leave
        out none) for fewer.
    max_df : float, optional
        Leave out words that a larger share of the texts contain. By default 0.3 for 10 000 texts or
        more, and 1.0 (leave out none) for fewer.

    Attributes
    ----------
    words : list of str
        The word of each of the D columns, sorted. "new york" is a sequence of words. Sequences of
        characters have a hyphen where the word may go on: "un-", "-ing", "-nin-".
    idf : float32 array of shape (D,)

    Examples
    --------
    >>> vectorizer = Vectorizer().fit(["Learn C++", "learn python3"])
    >>> vectorizer.words
    ['c++', 'learn', 'python3']
    >>> vectorizer.transform(["C++, Python3 or Rust?", ""]).toarray().round(3)
    array([[0.707, 0.   , 0.707],
           [0.   , 0.   , 0.   ]], dtype=float32)
    >>> Vectorizer(characters=(3, 3)).fit(["sang", "sing"]).transform(["singer"]).nnz
    3
    """

    def __init__(
        self,
        *,
        ngrams: int = 1,
        characters: Sequence[int] | None = None,
        min_df: int | None = None,
        max_df: float | None = None,
    ) -> None:
        self._given = {
            "ngrams": ngrams,
            "characters": characters,
            "min_df": min_df,
            "max_df": max_df,
        }
        if min_df is not None:
            min_df = check_int("min_df", min_df, at_least=1, owner="Vectorizer")
        if max_df is not None:
            max_df = check_float("max_df", max_df, at_least=0, at_most=1, owner="Vectorizer")
        self.ngrams = check_int("ngrams", ngrams, at_least=1, at_most=_LONGEST, owner="Vectorizer")
        self.characters = None if characters is None else _check_lengths(characters)
        self.min_df, self.max_df = min_df, max_df
        self.words: list[str] = []
        self.idf: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._columns: dict[str, int] = {}

    def fit(self, texts: Iterable[str], y: Any = None) -> Vectorizer:
        """Learn the words of `texts` and their weights. `y` is there for scikit-learn."""
        self.fit_transform(texts)
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> Sparse:
        """Learn the words of `texts`, and return their rows (n, D). The texts may be a stream.

        Examples
        --------
        >>> Vectorizer().fit_transform(iter(["one two", "two"])).shape
        (2, 2)
        """
        fresh = Vectorizer(**self._given)  # which set_params may have changed
        rows = fresh._learn(_each_string(texts, "texts", "fit"))
        vars(self).update(vars(fresh))
        return rows

    def _learn(self, texts: Iterator[str]) -> Sparse:
        known: dict[str, int] = {}
        found, ends = array("i"), [0]
        for text in texts:
            found.extend([known.setdefault(word, len(known)) for word in self._cut(text)])
            ends.append(len(found))
        if not known:
            raise self._no_word_error(len(ends) - 1)
        words = sorted(known)
        place = np.empty(len(known), dtype=np.int32)
        place[[known[word] for word in words]] = np.arange(len(known))
        ones, columns = np.ones(len(found), dtype=np.float32), place[np.frombuffer(found, np.intc)]
        counts = sp.csr_array((ones, columns, np.array(ends)), (len(ends) - 1, len(known)))
        counts.sum_duplicates()
        kept = self._choose_words(counts)
        counts = counts[:, kept]
        in_texts = np.bincount(counts.indices, minlength=len(kept)).astype(np.float32)
        self.words = [words[column] for column in kept.tolist()]
        self.idf = np.log(np.float32(len(ends)) / (in_texts + 1)) + np.float32(1)
        rows = np.repeat(np.arange(len(ends) - 1), np.diff(counts.indptr))
        return self._weigh(counts.data, rows, counts.indices, counts.indptr)

    def _cut(self, text: str) -> list[str]:
        return cut_text(text, self.ngrams, self.characters)

    def _choose_words(self, counts: Sparse) -> NDArray[np.int64]:
        """Return the columns of words that are neither too rare nor too common."""
        texts, words = counts.shape
        in_texts = np.bincount(counts.indices, minlength=words)
        usual = (2 if texts >= _MANY else 1, _LARGE_SHARE if texts >= _LARGE else 1.0)
        # If every word is too rare or too common, the usual limits do not suit these texts.
        for limits in (usual, (1, 1.0)):
            least = self.min_df or limits[0]
            most = limits[1] if self.max_df is None else self.max_df
            kept = np.flatnonzero((in_texts >= least) & (in_texts <= most * texts))
            if len(kept):
                return kept
        raise self._no_word_error(texts)

    def _no_word_error(self, texts: int) -> InvalidParameter:
        least, most = self.min_df or 1, 1.0 if self.max_df is None else self.max_df
        return InvalidParameter(
            f"The 'texts' parameter of fit must have a word, in at least {least} and at most "
            f"{most:.0%} of the texts. Got {texts} texts without one. "
            "Check what was read, or set min_df=1 and max_df=1."
        )

    def transform(self, texts: Iterable[str], *, owner: str = "transform") -> Sparse:
        """Return the rows of `texts` (n, D). A text without known words has a row of zeros.

        `owner` is the method that errors name.
        """
        self._check_fitted()
        strings = _each_string(texts, "texts", owner)
        blocks = []
        while block := list(islice(strings, _BLOCK)):
            blocks.append(self._transform_block(block))
        if not blocks:
            blocks.append(sp.csr_array(np.empty((0, len(self.words)), dtype=np.float32)))
        rows: Sparse = blocks[0] if len(blocks) == 1 else sp.vstack(blocks, format="csr")
        return rows

    def _transform_block(self, texts: list[str]) -> Sparse:
        if not self._columns:
            self._columns = {word: column for column, word in enumerate(self.words)}
        known, width = self._columns, len(self.words)
        found: list[int] = []
        ends = []
        for text in texts:
            found += [known[word] for word in self._cut(text) if word in known]
            ends.append(len(found))
        row_of = np.repeat(np.arange(len(texts)), np.diff(ends, prepend=0))
        places, times = np.unique(row_of * width + np.array(found, np.int64), return_counts=True)
        rows, columns = np.divmod(places, width)
        starts = np.searchsorted(rows, np.arange(len(texts) + 1))
        return self._weigh(times, rows, columns, starts)

    def _weigh(
        self,
        times: NDArray[Any],
        rows: NDArray[np.int64],
        columns: NDArray[Any],
        starts: NDArray[Any],
    ) -> Sparse:
        """Return rows in which each word comes so many times."""
        # In the types and in the order of scikit-learn, so that each bit is the same.
        values = (np.log(times.astype(np.float32)) + np.float32(1)) * self.idf[columns]
        lengths = np.sqrt(np.bincount(rows, values * values))
        values = (values / lengths[rows]).astype(np.float32)
        shape = len(starts) - 1, len(self.words)
        return sp.csr_array((values, columns.astype(np.int32), starts.astype(np.int32)), shape)

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
        meta = {
            "ngrams": self.ngrams,
            "characters": None if self.characters is None else list(self.characters),
            "min_df": self.min_df,
            "max_df": self.max_df,
        }
        return meta, {"idf": self.idf, **_pack_strings("words", self.words)}

    @classmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Vectorizer:
        """Return the vectorizer with this `state`. Other arrays are ignored."""
        try:
            made = cls(
                ngrams=meta["ngrams"],
                characters=meta["characters"],
                min_df=meta["min_df"],
                max_df=meta["max_df"],
            )
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

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.words)

    def _check_fitted(self) -> None:
        if not self.words:
            raise NotFitted("This Vectorizer is not fitted yet. Call fit(texts) first.")


class Names:
    """Distinct names of labels. The id of a label is its position.

    If names are URIs or codes, labels can have titles as well: what people read.

    Attributes
    ----------
    titles : dict
        The titles by name, of those labels that have one.

    Examples
    --------
    >>> names = Names.of(["cat", "dog", "bird"], {"dog": "Canis familiaris"})
    >>> names.ids(["bird", "cat"])
    array([2, 0])
    >>> names[1], len(names), "fish" in names
    ('dog', 3, False)
    >>> names.title(1), names.title(2)
    ('Canis familiaris', 'bird')
    """

    def __init__(self, ids: dict[str, int], titles: Mapping[str, str]) -> None:
        self._ids = ids
        self._names = list(ids)
        self.titles = {name: titles[name] for name in ids if titles.get(name)}

    @classmethod
    def of(
        cls,
        names: Iterable[str],
        titles: Mapping[str, str] | None = None,
        *,
        owner: str = "Names.of",
    ) -> Names:
        """Number the names in the given order. No name may come twice.

        `titles` may have more than those of these labels, such as a whole vocabulary. `owner` is
        the method that errors name.
        """
        ids: dict[str, int] = {}
        for place, name in enumerate(_as_strings(names, "names", owner)):
            first = ids.setdefault(name, place)
            if first != place:
                raise InvalidParameter(
                    f"The 'names' parameter of {owner} must not hold a name twice. "
                    f"Got {name!r} at {first} and {place}. Drop one, or pass sorted(set(names))."
                )
            try:
                name.encode()
            except UnicodeEncodeError as error:
                raise InvalidParameter(
                    f"The 'names' parameter of {owner} must hold names that UTF-8 can write. "
                    f"Got {name!r} at {place}: {error.reason}. Repair that name."
                ) from error
        return cls(ids, _check_titles({} if titles is None else titles))

    @classmethod
    def among(
        cls, lists: Iterable[Iterable[str]], titles: Mapping[str, str] | None = None
    ) -> Names:
        """Number all names in the lists, sorted. A name may come more than once.

        Examples
        --------
        >>> list(Names.among([["dog", "cat"], [], ["dog"]]))
        ['cat', 'dog']
        """
        must = "The 'lists' parameter of Names.among must hold lists of strings."
        found: set[str] = set()
        for row, names in enumerate(_each(lists, must)):
            found.update(_as_strings(names, f"lists[{row}]", "Names.among"))
        return cls.of(sorted(found), titles)

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

    def title(self, id: int) -> str:
        """Return the title of a label, or its name if it has none."""
        name = self[id]
        return self.titles.get(name, name)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the names as two arrays, "names" and "names_offsets", and titles likewise."""
        arrays = _pack_strings("names", self._names)
        if self.titles:
            titles = [self.titles.get(name, "") for name in self._names]
            arrays |= _pack_strings("titles", titles)
        return arrays

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]]) -> Names:
        """Return the names with this `state`. Other arrays are ignored."""
        names = _unpack_strings("names", arrays)
        titles = _unpack_strings("titles", arrays) if "titles" in arrays else [""] * len(names)
        if len(titles) != len(names):
            raise _damaged_error(f"there must be {len(names)} titles, and there are {len(titles)}")
        try:
            return cls.of(names, dict(zip(names, titles, strict=True)))
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
    if not isinstance(names, Names):
        raise InvalidParameter(
            "The 'names' parameter of label_matrix must be Names of labels. "
            f"Got {type(names).__name__} instead. Pass Names.of(names), or Names.among(lists)."
        )
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
    """Texts and their labels as matrices, with the vectorizer and the names that made them.

    `titles` are the rows of the labels' titles (L, D), if there are any.
    """

    rows: Sparse
    labels: Sparse
    vectorizer: Vectorizer
    names: Names
    titles: Sparse | None = None


def vectorize_texts(
    texts: Iterable[Any],
    labels: Iterable[Iterable[str]] | None,
    vectorizer: Vectorizer | None,
    titles: Mapping[str, str] | None,
) -> TextRows:
    """Learn the words of texts and the names of labels, and turn both into matrices.

    `LabelIndex.fit_text` explains the parameters.

    Examples
    --------
    >>> made = vectorize_texts(["meow", "woof woof"], [["cat"], []], None, None)
    >>> made.rows.shape, made.labels.shape
    ((2, 2), (2, 1))
    """
    lists: list[list[str]] = []
    pairs = texts if labels is None else _pair_lists(texts, labels)
    fresh = Vectorizer(**({} if vectorizer is None else vectorizer.get_params()))
    rows = fresh.fit_transform(split_pairs(pairs, lists, "fit_text"))
    names = Names.among(lists, titles)
    if titles and not names.titles and len(names):
        warn(
            f"None of the {len(names)} labels has a title. They are called {names[0]!r} and the "
            f"like, and those with titles {next(iter(titles))!r} and the like."
        )
    written = None
    if names.titles:
        written = fresh.transform(names.titles.get(name, "") for name in names)
    return TextRows(rows, label_matrix(lists, names), fresh, names, written)


def vectorize_more(
    texts: Iterable[Any],
    labels: Iterable[Iterable[str]] | None,
    vectorizer: Vectorizer,
    names: Names,
    titles: Mapping[str, str] | None,
    owner: str = "partial_fit_text",
) -> TextRows:
    """Turn texts and labels into matrices, with known words. New names come after the known ones.

    Examples
    --------
    >>> made = vectorize_texts(["meow", "woof woof"], [["cat"], ["dog"]], None, None)
    >>> more = vectorize_more(["woof"], [["ape"]], made.vectorizer, made.names, None)
    >>> list(more.names), more.labels.toarray()
    (['cat', 'dog', 'ape'], array([[0., 0., 1.]], dtype=float32))
    """
    lists: list[list[str]] = []
    pairs = texts if labels is None else _pair_lists(texts, labels)
    rows = vectorizer.transform(split_pairs(pairs, lists, owner))
    new = [name for name in Names.among(lists) if name not in names]
    every = Names.of([*names, *new], {**(titles or {}), **names.titles})
    # Known labels were learned from their titles before.
    written = vectorizer.transform([""] * len(names) + [every.titles.get(name, "") for name in new])
    return TextRows(rows, label_matrix(lists, every), vectorizer, every, written)


def split_pairs(pairs: Iterable[Any], lists: list[list[str]], owner: str) -> Iterator[str]:
    """Yield the text of each pair of a text and its labels, and add the labels to `lists`.

    So a stream of pairs becomes a stream of texts, and no text stays in memory.

    Examples
    --------
    >>> lists = []
    >>> list(split_pairs([("meow", ["cat"]), ("?", [])], lists, "fit_text")), lists
    (['meow', '?'], [['cat'], []])
    """
    must = f"The 'texts' parameter of {owner} must hold pairs of a text and its labels."
    for row, pair in enumerate(_each(pairs, must)):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            got = "one text" if isinstance(pair, str) else type(pair).__name__
            raise InvalidParameter(
                f"{must} Got {got} at {row} instead. Pass the labels as the second parameter, or "
                'pairs such as ("meow", ["cat"]).'
            )
        text, labels = pair
        lists.append(as_names(labels, f"labels[{row}]", owner))
        yield text


def _pair_lists(texts: Iterable[str], labels: Iterable[Iterable[str]]) -> Iterator[Any]:
    """Return pairs of a text and its labels, of which there must be as many."""
    strings = _as_strings(texts, "texts", "fit_text")
    must = "The 'labels' parameter of fit_text must hold a list of names for each text."
    lists = list(_each(labels, must))
    if len(strings) != len(lists):
        raise InvalidParameter(
            f"The 'labels' parameter of fit_text must have a list for each of {len(strings)} texts."
            f" Got {len(lists)} instead. Pass an empty list where there is none."
        )
    return zip(strings, lists, strict=True)


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
    new = names if isinstance(names, Names) else Names.of(names, owner=owner)
    if len(new) != count:
        raise InvalidParameter(
            f"The 'names' parameter of {owner} must have a name for each of {count} labels. "
            f"Got {len(new)} instead. Pass them in the order of the columns of Y."
        )
    return Names.of([*known, *new], known.titles | new.titles, owner=owner)


def _check_titles(titles: Mapping[str, str]) -> Mapping[str, str]:
    for name, title in titles.items():
        if not isinstance(title, str):
            raise InvalidParameter(
                "The 'titles' parameter must have a string for each name. Got "
                f"{type(title).__name__} for {name!r} instead. Leave out labels without a title."
            )
    return titles


def _check_lengths(characters: Any) -> tuple[int, int]:
    """Return the least and the most characters of a sequence."""
    lengths = list(characters) if isinstance(characters, Sequence) else []
    whole = all(isinstance(x, int | np.integer) for x in lengths)
    if len(lengths) != 2 or not whole or not 1 <= lengths[0] <= lengths[1] <= _LONGEST:
        raise InvalidParameter(
            "The 'characters' parameter of Vectorizer must be two whole numbers, the least and the "
            f"most characters of a sequence, from 1 to {_LONGEST}. Got {characters!r} instead. "
            "Pass for example (3, 5)."
        )
    return int(lengths[0]), int(lengths[1])


def _each(values: Iterable[T], must: str) -> Iterator[T]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidParameter(
            f"{must} Got {type(values).__name__} instead. Put a single one into a list."
        )
    return iter(values)


def _each_string(values: Iterable[str], name: str, owner: str) -> Iterator[str]:
    """Yield the values, which must be strings."""
    must = f"The '{name}' parameter of {owner} must be a list of strings."
    for row, value in enumerate(_each(values, must)):
        if not isinstance(value, str):
            raise InvalidParameter(
                f"{must} Got {type(value).__name__} at {row} instead. "
                + ("Use '' where there is none." if value is None else "Convert it to str.")
            )
        yield value


def as_names(values: Iterable[str], name: str, owner: str) -> list[str]:
    """Return the names of labels, as plain strings. None may be empty."""
    must = f"The '{name}' parameter of {owner} must be a list of names of labels."
    found = list(_each(values, must))
    for value in found:
        if not isinstance(value, str) or not value:
            got = "an empty string" if isinstance(value, str) else f"{type(value).__name__} {value}"
            raise InvalidParameter(
                f"{must} Got {got} instead. Write numbers as strings, and leave out what is empty."
            )
    return list(map(str, found))


def _as_strings(values: Iterable[str], name: str, owner: str) -> list[str]:
    return list(_each_string(values, name, owner))


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
