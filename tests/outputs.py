"""Comparing what a page shows with what a program printed."""

from __future__ import annotations

import re

# What goes by the clock, or by the machine: the number stays a number, whatever it is.
_VARIES = (
    (r"\b(probes|threshold|candidates)=[\d.e-]+( score=[\w-]+)?", "PARAMETERS"),
    (r"PARAMETERS( PARAMETERS)+", "PARAMETERS"),
    (r'"parameters": {[^}]*}', "PARAMETERS"),
    (r"\d[\d.,]*(e[+-]?\d+)?", "#"),
    (r"-#", "#"),
    (r"\n {10}(?=[a-z_]+=)", " "),  # settings that go on in the next line
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


def close(printed: str, shown: str) -> bool:
    """Whether the numbers of two texts are about the same: within a tenth, or 0.05.

    >>> close("recall 0.96 of 10", "recall 0.94 of 10"), close("recall 0.9", "recall 0.7")
    (True, False)
    """
    pairs = zip(_numbers(printed), _numbers(shown), strict=True)
    return all(abs(a - b) <= max(0.1 * abs(b), 0.05) for a, b in pairs)


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"(?<![\w.])-?\d+\.?\d*(?:e-?\d+)?", text)]
