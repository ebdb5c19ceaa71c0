"""The loggers of irli, which print nothing unless the user asks for it, and its warnings."""

from __future__ import annotations

import logging
import warnings

from irli.errors import IrliWarning

logging.getLogger("irli").addHandler(logging.NullHandler())


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module."""
    return logging.getLogger(name)


def warn(message: str) -> None:
    """Warn whoever called the method that calls this: an answer may not be what they think."""
    warnings.warn(message, IrliWarning, stacklevel=3)
