"""Retrieval from a query log whose items have no vectors.

A shop knows the vectors of its visitors' queries and which item each visitor took in the end. It
has no vectors of the items. So the queries are the rows and the items are the labels.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

import irli
from irli.labels.metrics import recall

NEEDS, ITEMS, DIM = 100, 300, 32  # what visitors look for, the items that serve it, query vectors


def main() -> None:
    rng = np.random.default_rng(0)
    needs = rng.normal(size=(NEEDS, DIM))
    serves = rng.permutation(ITEMS).reshape(NEEDS, -1)  # three items for each need

    def log(count: int) -> tuple[np.ndarray, sp.csr_array]:
        """Return queries (count, DIM), and the one item (count, ITEMS) that each led to."""
        need = rng.integers(NEEDS, size=count)
        queries = needs[need] + 0.3 * rng.normal(size=(count, DIM))
        taken = serves[need, rng.integers(serves.shape[1], size=count)]
        return queries, sp.csr_array((np.ones(count), (np.arange(count), taken)), (count, ITEMS))

    yesterday, today = log(4_000), log(1_000)
    recipe = irli.recipe("labels", repetitions=2, buckets=50, hidden=64)
    index = irli.LabelIndex(recipe).fit(*yesterday)
    print(index)
    queries, taken = today
    for k in (3, 10):
        found = index.predict(queries, k=k).labels
        print(f"recall@{k:<2d} {recall(found, taken, k):.3f}")


if __name__ == "__main__":
    main()
