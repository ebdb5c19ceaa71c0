"""Every error that irli raises on purpose.

Each one is an `IrliError` and also the built-in error that fits, so that both `except IrliError`
and `except ValueError` do what one expects.

>>> issubclass(InvalidParameter, ValueError) and issubclass(InvalidParameter, IrliError)
True
"""

from __future__ import annotations


class IrliError(Exception):
    """The base of all errors of irli."""


class InvalidParameter(IrliError, ValueError):
    """A parameter has a value or a type that it cannot have."""


class DimensionMismatch(IrliError, ValueError):
    """Vectors have another number of dimensions than the ones that they are to meet."""


class NotFitted(IrliError, RuntimeError):
    """The index was asked for something that it knows only after `fit`."""


class FormatError(IrliError, ValueError):
    """A file or an index folder is damaged, truncated, or of another kind."""


class IncompatibleVersion(FormatError):
    """An index folder was written in a format that this version does not read."""


class MissingDependency(IrliError, ImportError):
    """An optional package is needed and not installed."""


class ClusterError(IrliError, RuntimeError):
    """A cluster cannot be reached, or work on it failed for no fault of the data."""


class ShardUnavailable(ClusterError):
    """A shard of an index is down and has not come back in time."""


class DeadlineExceeded(ClusterError, TimeoutError):
    """A search was not over at the time that it was given."""
