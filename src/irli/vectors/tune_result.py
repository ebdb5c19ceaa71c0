"""TuneResult: what `tune` chose and measured. It is kept in the index folder."""

from __future__ import annotations

from typing import Any, NamedTuple

from irli.base.checks import check_bool, check_float, check_int
from irli.vectors.cost import Sizes, count_exact_work
from irli.vectors.parameters import SearchParameters


class TuneResult(NamedTuple):
    """The parameters that `tune` chose, and what it measured with them.

    Attributes
    ----------
    parameters : SearchParameters
    k : int
    recall : float
        Recall at k on the queries used for tuning. Equally near items count as well.
    self_hits : float
        The share of the items that find themselves, or an equal item. 1 for inner products, where
        other items may be nearer.
    scanned : float
        Entries that a query reads, on average.
    work : float
        What a query costs, in counted nanoseconds (see `irli.vectors.cost`).
    reached : bool
        Whether recall and self-hits reach their targets.
    """

    parameters: SearchParameters
    k: int
    recall: float
    self_hits: float
    scanned: float
    work: float
    reached: bool

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return self._asdict() | {"parameters": self.parameters.to_json()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TuneResult:
        """Return the result that `to_json` turned into plain values, checked."""
        shares = ("recall", "self_hits")
        return cls(
            parameters=SearchParameters.from_json(values["parameters"]),
            k=check_int("k", values["k"], at_least=1),
            **{name: check_float(name, values[name], at_least=0.0, at_most=1.0) for name in shares},
            **{name: check_float(name, values[name], at_least=0.0) for name in ("scanned", "work")},
            reached=check_bool("reached", values["reached"]),
        )


def describe_exact(sizes: Sizes, k: int, parts: int = 1) -> TuneResult:
    """Return the result for an index, or parts of such sizes, where all items are compared."""
    scanned, work = float(parts * sizes.items), parts * count_exact_work(sizes, sizes.items)
    return TuneResult(SearchParameters(exact=True), k, 1.0, 1.0, scanned, work, reached=True)
