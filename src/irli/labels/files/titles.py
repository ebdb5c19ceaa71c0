"""Read vocabularies: the titles that people read for labels whose names are URIs or codes.

==================  ==============================================================================
`.ttl`, `.nt`       SKOS in Turtle or N-Triples: `<http://onto/p1> skos:prefLabel "cats"@en .`
`.tsv`              a label, a tab and its title in each line
`.csv`              a label in the column "uri" or else in the first, and its title in the column
                    "label_en" for English, or else in the first column whose name begins with
                    "label", or in the second
==================  ==============================================================================

Files are UTF-8, and may be compressed (`.gz`). These are the vocabularies that Annif loads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

from irli.base.checks import check_choice
from irli.base.records import read_lines
from irli.base.types import StrPath
from irli.errors import FormatError
from irli.labels.files.documents import clean_label, read_csv

Titled = tuple[str, str, str | None]  # a label, a title, and the language of it

_PREF_LABEL = "http://www.w3.org/2004/02/skos/core#prefLabel"
_TOKEN = re.compile(
    r"""
      (?P<skip>\s+ | \#[^\n]*)
    | (?P<iri><[^<>\s]*>)
    | (?P<text>\"\"\"(?:[^"\\]|\\.|"(?!""))*\"\"\" | '''(?:[^'\\]|\\.|'(?!''))*'''
        | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
      (?:@(?P<language>[\w-]+) | \^\^(?:<[^<>\s]*>|[\w:.-]*\w))?
    | (?P<mark>[.;,()\[\]])
    | (?P<name>@?[^\s<>"'.;,()\[\]\#]+(?:\.+[^\s<>"'.;,()\[\]\#]+)*)
    """,
    re.VERBOSE | re.DOTALL,
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def read_titles(path: StrPath, language: str | None = None) -> dict[str, str]:
    r"""Return the title of each label in a vocabulary.

    Parameters
    ----------
    path : path
        A file that ends in `.ttl`, `.nt`, `.tsv` or `.csv`, also with `.gz`.
    language : str, optional
        The language of the titles, such as "en", which "en-GB" is, too. Labels without a title in
        this language have the first one that the file gives.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "pets.ttl")
    ...     _ = path.write_text('''
    ... @prefix skos: <http://www.w3.org/2004/02/skos/core#> .
    ... @prefix pets: <http://pets.org/> .
    ... pets:p1 a skos:Concept ; skos:prefLabel "kissa"@fi, "cat"@en ; skos:altLabel "kitty"@en .
    ... ''')
    ...     read_titles(path, "en")
    {'http://pets.org/p1': 'cat'}
    """
    ending = Path(os.fspath(path).removesuffix(".gz")).suffix.lower()
    check_choice("extension of the vocabulary", ending, (".ttl", ".nt", ".tsv", ".csv"))
    if ending == ".tsv":
        found = _read_tsv(path)
    elif ending == ".csv":
        found = _read_csv(path, language)
    else:
        found = _read_turtle(path)
    titles: dict[str, str] = {}
    wanted = set()
    for label, title, spoken in found:
        first, right = label not in titles, _is_spoken(spoken, language)
        if title and (first or (right and label not in wanted)):
            titles[label] = title
            if right:
                wanted.add(label)
    if not titles:
        raise FormatError(
            f"{path} must have titles of labels, as skos:prefLabel or in a second column. "
            "It has none. Convert it to Turtle, TSV or CSV."
        )
    return titles


def _is_spoken(spoken: str | None, language: str | None) -> bool:
    """Whether a title is in the language, or in a kind of it.

    Examples
    --------
    >>> _is_spoken("en-GB", "en"), _is_spoken("FI", "fi"), _is_spoken("et", "e")
    (True, True, False)
    """
    if spoken is None or language is None:
        return spoken == language
    return f"{spoken}-".lower().startswith(f"{language}-".lower())


def _read_tsv(path: StrPath) -> Iterator[Titled]:
    for _, line in read_lines(path):
        label, _, rest = line.partition("\t")
        yield clean_label(label), rest.partition("\t")[0].strip(), None


def _read_csv(path: StrPath, language: str | None) -> Iterator[Titled]:
    for cells, _ in read_csv(path):
        names = list(cells)
        named = [name for name in names if name.startswith("label")] or names[1:2]
        best = f"label_{language}"
        columns = [best, *named] if best in named else named
        title = next((cells[name] for name in columns if cells[name]), "")
        yield clean_label(cells["uri" if "uri" in names else names[0]]), title, None


# --- Turtle ------------------------------------------------------------------------------------


def _read_turtle(path: StrPath) -> Iterator[Titled]:
    """Yield each subject of skos:prefLabel, with its text and the language of it.

    Of Turtle, this reads what vocabularies have. What is in brackets is passed over.
    """
    prefixes: dict[str, str] = {}
    base = ""
    terms: list[str] = []  # subject and predicate, as far as they are known
    depth = 0
    for token in _split_turtle(path):
        mark = token["mark"]
        if mark:
            depth += (mark in "[(") - (mark in "])")
            if mark == "[" and depth == 1 and not terms:
                terms = [""]  # a subject without a name
            if not depth and mark in ".;":
                del terms[mark == ";" :]
            continue
        if depth:
            continue
        directive = terms[0].lower().removeprefix("@") if terms else ""
        if directive == "prefix":
            if len(terms) == 2:
                prefixes[terms[1]] = _resolve(token[0][1:-1], base)
            terms = [*terms, token[0]] if len(terms) < 2 else []
        elif directive == "base":
            base, terms = _resolve(token[0][1:-1], base), []
        elif len(terms) < 2:
            terms.append(_read_term(token, prefixes, base))
        elif terms[1] == _PREF_LABEL and token["text"]:
            yield terms[0], _unquote(token["text"]), token["language"]


def _split_turtle(path: StrPath) -> Iterator[re.Match[str]]:
    text = "\n".join(line for _, line in read_lines(path))
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            line, found = text.count("\n", 0, place) + 1, text[place : place + 20]
            raise FormatError(
                f"{path}, line {line}, must be Turtle. It has {found!r} instead. "
                "Write it again, for example with rapper or rdflib, or as TSV."
            )
        place = token.end()
        if token["skip"] is None:
            yield token


def _read_term(token: re.Match[str], prefixes: dict[str, str], base: str) -> str:
    """Return a URI without brackets, and a name in full: "skos:prefLabel"."""
    if token["iri"]:
        return _resolve(token["iri"][1:-1], base)
    prefix, colon, local = token[0].partition(":")
    space = prefixes.get(f"{prefix}:") if colon else None
    return token[0] if space is None else space + local.replace("\\", "")


def _resolve(iri: str, base: str) -> str:
    """Return a URI in full. `urljoin` drops a "#" at the end, with which many prefixes end.

    Examples
    --------
    >>> _resolve("p1", "http://pets.org/"), _resolve("#", "http://pets.org/")
    ('http://pets.org/p1', 'http://pets.org/#')
    >>> _resolve("urn:cat", "http://pets.org/")
    'urn:cat'
    """
    if not base or _SCHEME.match(iri):
        return iri
    return urljoin(base, iri) + "#" * iri.endswith("#")


def _unquote(text: str) -> str:
    quotes = 3 if text[:3] in ('"""', "'''") else 1
    return _ESCAPE.sub(_unescape, text[quotes:-quotes])


def _unescape(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else _ESCAPED.get(match[3], match[3])
