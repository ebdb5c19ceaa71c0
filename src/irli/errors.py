"""The exception classes that irli raises, `IrliError` and its subclasses, and its warning.

Each subclass also inherits from the built-in error that fits it. So both `except IrliError` and
`except ValueError` catch an invalid parameter.

>>> issubclass(InvalidParameter, ValueError) and issubclass(InvalidParameter, IrliError)
True
"""

from __future__ import annotations


class IrliError(Exception):
    """The base class of all errors that irli raises."""


class IrliWarning(UserWarning):
    """An answer may not be what the caller thinks. `warnings` shows it, hides it or raises it."""


class InvalidParameter(IrliError, ValueError):
    """A parameter has an invalid value or type."""


class DimensionMismatch(IrliError, ValueError):
    """Vectors or rows do not have the number of dimensions that the index was fitted on."""


class NotFitted(IrliError, RuntimeError):
    """The call needs a fitted index, but `fit` has not been called."""


class NoAttributeYet(NotFitted, AttributeError):
    """An attribute needs a fitted index. `hasattr` is False until then, as scikit-learn wants."""


class FormatError(IrliError, ValueError):
    """A file or an index folder is damaged, truncated, or in another format."""


class IncompatibleVersion(FormatError):
    """An index folder has a format version that this version of irli cannot read."""


class IndexInUse(IrliError, RuntimeError):
    """Another process, or another object of this one, has the index open for changes."""


class StorageError(IrliError, OSError):
    """The disk refused a change: it is full, or broken. Nothing of the change is there."""


class MissingDependency(IrliError, ImportError):
    """An optional package is needed but not installed."""


class NotInShards(IrliError, AttributeError):
    """An index in shards does not have a method that an index on one machine has."""


class ClusterError(IrliError, RuntimeError):
    """The cluster cannot be reached, or work on it failed for a reason other than the data."""


class ShardUnavailable(ClusterError):
    """A shard of the index is down and did not come back in time."""


class DeadlineExceeded(ClusterError, TimeoutError):
    """A search did not finish before its deadline."""
