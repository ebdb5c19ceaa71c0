"""The loggers of irli, which print nothing unless the user asks for it, and its warnings."""

from __future__ import annotations

import logging
import sys
import warnings

from irli.errors import IrliWarning

logging.getLogger("irli").addHandler(logging.NullHandler())


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module."""
    return logging.getLogger(name)


def warn(message: str, category: type[Warning] = IrliWarning) -> None:
    """Warn whoever called irli: an answer may not be what they think."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("irli."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def describe_few(k: int, what: str, asked: str, min_votes: int) -> str:
    """Return the warning that `min_votes` leaves fewer than k answers.

    Examples
    --------
    >>> describe_few(3, "items", "queries", min_votes=2)[:62]
    'Fewer than 3 items were found for some queries: min_votes=2 le'
    """
    return (
        f"Fewer than {k} {what} were found for some {asked}: min_votes={min_votes} leaves out "
        "those in fewer probed buckets. Lower it, or probe more buckets."
    )
