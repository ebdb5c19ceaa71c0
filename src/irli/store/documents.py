"""Payloads: JSON documents, how they are written, and what they say at a path.

A document comes back as it was given, so what JSON cannot say is refused: NaN, keys that are no
strings, tuples, objects of other types.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from irli.errors import FormatError, InvalidParameter
from irli.store.filters import Path

Document: TypeAlias = dict[str, Any]

MOST_BYTES = 1 << 20  # of a document as UTF-8
MOST_LEVELS = 32  # lists and objects within each other


class _Missing:
    """Nothing is there: what `find` returns where None would be JSON's null."""


MISSING = _Missing()


class Opened(list[Any]):
    """The values that were found by opening a list on the way."""


def encode(payloads: Sequence[Any], first: int = 0) -> tuple[list[str | None], list[Any]]:
    """Return payloads (n,) as JSON text, and as they will be read. None is no payload.

    Examples
    --------
    >>> encode([{"price": 3}, None])
    (['{"price":3}', None], [{'price': 3}, None])
    >>> encode([{"price": float("nan")}])
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'payloads' parameter must hold JSON objects. The one in row 0
    is none: Out of range float values are not JSON compliant. Leave out what has no value, write
    dates with isoformat() and NumPy values with .item() or .tolist().
    """
    texts: list[str | None] = []
    read: list[Any] = []
    for row, payload in enumerate(payloads, first):
        if payload is None:
            texts.append(None)
            read.append(None)
            continue
        try:
            text, plain = _encode(payload)
        except (TypeError, ValueError, RecursionError) as error:
            # Newer versions of Python add the value to their message.
            why = str(error).removesuffix(": nan").removesuffix(": inf").removesuffix(": -inf")
            raise InvalidParameter(
                f"The 'payloads' parameter must hold JSON objects. The one in row {row} is none: "
                f"{why}. Leave out what has no value, write dates with isoformat() and NumPy "
                "values with .item() or .tolist()."
            ) from None
        texts.append(text)
        read.append(plain)
    return texts, read


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _encode(payload: Any) -> tuple[str, Document]:
    if not isinstance(payload, dict):
        raise TypeError(f"it is a {type(payload).__name__}, and not a dictionary")
    text = _ENCODER.encode(payload)
    # A character has at most 4 bytes.
    if 4 * len(text) > MOST_BYTES and (size := len(text.encode())) > MOST_BYTES:
        raise ValueError(f"it has {size} bytes as JSON, and at most {MOST_BYTES} are allowed")
    if not text.isascii():
        text.encode()  # a lone surrogate is no UTF-8
    if text.count("{") + text.count("[") > MOST_LEVELS and _levels(payload) > MOST_LEVELS:
        raise ValueError(f"it has more than {MOST_LEVELS} lists and objects within each other")
    plain: Document = json.loads(text)
    if plain != payload:
        raise ValueError("it would not be the same after reading it back (keys must be strings)")
    return text, plain


def _levels(value: Any) -> int:
    """Return how many lists and objects are within each other, or one more than are allowed."""
    levels, layer = 0, [value]
    while layer and levels <= MOST_LEVELS:
        inner = [each for each in layer if isinstance(each, dict | list | tuple)]
        levels += bool(inner)
        layer = [
            part for each in inner for part in (each.values() if isinstance(each, dict) else each)
        ]
    return levels


def decode(texts: Sequence[str | None]) -> list[Any]:
    """Return the documents of texts (n,) that `encode` wrote.

    Examples
    --------
    >>> decode(['{"price":3}', None])
    [{'price': 3}, None]
    """
    joined = "[" + ",".join("null" if text is None else text for text in texts) + "]"
    try:
        documents: list[Any] = json.loads(joined)
    except (ValueError, RecursionError) as error:
        documents = []
        message = str(error)
    else:
        message = "their number is another"
    if len(documents) != len(texts):
        raise FormatError(
            f"The store is damaged: payloads are not the JSON that was written ({message}). "
            "Restore the folder from a snapshot."
        )
    return documents


def find(document: Any, path: Path) -> Any:
    """Return what a document has at a path, or MISSING. Lists on the way are opened.

    Examples
    --------
    >>> find({"author": {"name": "x"}}, ("author", "name"))
    'x'
    >>> find({"authors": [{"name": "x"}, {"name": "y"}, {}]}, ("authors", "name"))
    ['x', 'y']
    """
    for depth, key in enumerate(path):
        if isinstance(document, dict):
            if key not in document:
                return MISSING
            document = document[key]
        elif isinstance(document, list):
            found = Opened()
            for member in document:
                value = find(member, path[depth:])
                if isinstance(value, Opened):
                    found += value
                elif value is not MISSING:
                    found.append(value)
            return found if found else MISSING
        else:
            return MISSING
    return document


def remove(document: Any, path: Path) -> None:
    """Remove what a document has at a path. Lists on the way are opened.

    Examples
    --------
    >>> document = {"author": {"name": "x", "age": 3}}
    >>> remove(document, ("author", "age"))
    >>> document
    {'author': {'name': 'x'}}
    """
    if isinstance(document, list):
        for member in document:
            remove(member, path)
    elif isinstance(document, dict):
        if len(path) == 1:
            document.pop(path[0], None)
        else:
            remove(document.get(path[0]), path[1:])
