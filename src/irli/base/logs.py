"""The loggers of irli. They print nothing unless the user asks `logging` for it."""

from __future__ import annotations

import logging

logging.getLogger("irli").addHandler(logging.NullHandler())


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module."""
    return logging.getLogger(name)
