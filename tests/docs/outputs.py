"""Comparing what a page shows with what a program printed."""

from __future__ import annotations

import re

# What goes by the clock, or by the machine: the number stays a number, whatever it is.
_VARIES = (
    (r"\b(probes|threshold|candidates)=[\d.e-]+( score=[\w-]+)?", "PARAMETERS"),
    (r"PARAMETERS( PARAMETERS)+", "PARAMETERS"),
    (r"\d[\d.,]*(e[+-]?\d+)?", "#"),
    (r"-#", "#"),
    (r"\n {8,}", " "),  # a line that goes on
    (r" +", " "),
    (r"(\n ?(# )+(#|taken back))+", "\n# ROWS"),  # how many rounds there were
)


def skeleton(text: str) -> str:
    """Return a text with '#' in place of each number, and one space in place of many.

    >>> skeleton("threshold=0.00178: recall 0.9504 at k=10")
    'PARAMETERS: recall # at k=#'
    """
    for pattern, replacement in _VARIES:
        text = re.sub(pattern, replacement, text)
    return "\n".join(line.strip() for line in text.strip().split("\n"))


def numbers(text: str) -> list[float]:
    """Return the numbers of a text that are no timings.

    >>> numbers("recall 0.95 at k=10, 146 µs a query")
    [0.95, 10.0]
    """
    text = re.sub(r"[\d.]+ (µs|ms|s)\b", "", text)
    return [float(number) for number in re.findall(r"(?<![\w.])-?\d+\.?\d*(?:e-?\d+)?", text)]
