"""Cut texts into features: words, sequences of words, and sequences of characters in a word.

A word is a run of letters and digits of any script, in lower case, with "++" or "#" at its end.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

# "c++" and "c#" are words; the "#" in "page#top" is not part of one.
_SUFFIX = r"(?:\+\+|#(?!\w))?"
_ASCII_WORD = re.compile(rf"\w+{_SUFFIX}")


def cut_text(text: str, ngrams: int, characters: tuple[int, int] | None) -> list[str]:
    """Return the words of a text, its sequences of up to `ngrams` words, and those of characters.

    Examples
    --------
    >>> cut_text("New York City", ngrams=2, characters=None)
    ['new', 'york', 'city', 'new york', 'york city']
    >>> cut_text("a city", ngrams=1, characters=(4, 4))
    ['a', 'city', 'cit-', '-city-', '-ity']
    """
    words = split_words(text)
    features = list(words)
    for n in range(2, min(ngrams, len(words)) + 1):
        features += map(" ".join, zip(*(words[start:] for start in range(n)), strict=False))
    if characters is not None:
        for word in words:
            features += cut_word(word, *characters)
    return features


@lru_cache(maxsize=1 << 16)  # common words are cut once
def cut_word(word: str, least: int, most: int) -> tuple[str, ...]:
    """Return the sequences of `least` to `most` characters in a word.

    They are those of scikit-learn's analyzer "char_wb": the blanks before and after the word count
    as characters. A hyphen says that the word may go on, as in dictionaries: "un-" begins a word,
    "-ing" ends one, and "-nin-" may be anywhere. The whole word is not among them.

    Examples
    --------
    >>> cut_word("city", 3, 4)
    ('ci-', '-cit-', '-ity-', '-ty', 'cit-', '-city-', '-ity')
    """
    padded = f" {word} "
    return tuple(
        _write_part(padded[start : start + length])
        for length in range(least, min(most, len(padded) - 1) + 1)
        for start in range(len(padded) - length + 1)
        if padded[start : start + length] != " "
    )


def _write_part(part: str) -> str:
    before = "" if part[0] == " " else "-"
    after = "" if part[-1] == " " else "-"
    return before + part.strip(" ") + after


def split_words(text: str) -> list[str]:
    """Return the words of a text.

    Examples
    --------
    >>> split_words("Learn C++, not wi-fi!")
    ['learn', 'c++', 'not', 'wi', 'fi']
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _compile_unicode_word().findall(unicodedata.normalize("NFKC", text).lower())


@cache
def _compile_unicode_word() -> re.Pattern[str]:
    # \w matches no vowel signs and accents, and would cut most words of Hindi or Tamil into pieces.
    signs = map(chr, range(0x300, 0x20000))
    marks = "".join(sign for sign in signs if unicodedata.category(sign).startswith("M"))
    return re.compile(rf"\w[\w{marks}]*{_SUFFIX}")
