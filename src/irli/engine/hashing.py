"""2-universal hash functions, and mixed numbers for them: the random first partition of the paper.

A 2-universal hash makes each two items unlikely to meet. It does not make loads look random: it is
linear, so it deals consecutive numbers out almost evenly. `mix_numbers` scatters them first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irli.base.checks import check_int
from irli.errors import InvalidParameter

# A Mersenne prime. Products of smaller numbers fit into 64 bits, so the arithmetic is exact.
PRIME = 2**31 - 1
_FACTORS = (0x45D9F3B, 0x119DE1F3)  # odd, so that multiplying by them is one-to-one


def mix_numbers(items: ArrayLike) -> NDArray[np.int64]:
    """Scatter item numbers below 2^31 - 1 over that range, one-to-one.

    So a 2-universal hash of them is one of the items, too, and its loads vary like those of
    independent draws.

    Examples
    --------
    >>> mix_numbers([0, 1, 2])
    array([         0, 2113755695,  228080655])
    """
    mixed = np.array(items, dtype=np.int64)
    waiting = np.ones(mixed.shape, dtype=bool)
    while waiting.any():  # once more for the one number that becomes 2^31 - 1
        mixed[waiting] = _mix_bits(mixed[waiting])
        waiting = mixed == PRIME
    return mixed


def _mix_bits(x: NDArray[np.int64]) -> NDArray[np.int64]:
    """Map the numbers of 31 bits to each other. Each step can be undone."""
    for factor in _FACTORS:
        x = (x ^ (x >> 16)) * factor & PRIME
    return x ^ (x >> 16)


class UniversalHash:
    """h(x) = ((a x + b) mod p) mod B, with random a and b (Carter and Wegman).

    Over all seeds, two different items fall into the same bucket with probability at most 1/B.

    Parameters
    ----------
    buckets : int
        B, at most 2^31 - 1.
    seed : int
        The seed of a and b.

    Examples
    --------
    >>> h = UniversalHash(buckets=4, seed=0)
    >>> h(np.arange(6)).dtype, h(np.arange(6)).max() < 4
    (dtype('int32'), np.True_)
    """

    def __init__(self, buckets: int, seed: int) -> None:
        self.buckets = check_int(
            "buckets", buckets, at_least=1, at_most=PRIME, owner="UniversalHash"
        )
        self.seed = check_int("seed", seed, at_least=0, owner="UniversalHash")
        rng = np.random.default_rng(self.seed)
        self._a = int(rng.integers(1, PRIME))
        self._b = int(rng.integers(0, PRIME))

    def __call__(self, items: ArrayLike) -> NDArray[np.int32]:
        """Return the buckets of item numbers below 2^31 - 1, as int32 of the shape of `items`."""
        x: NDArray[Any] = np.asarray(items)
        if x.size and (x.dtype.kind not in "iu" or x.min() < 0 or x.max() >= PRIME):
            got = f"{x.min()} to {x.max()}" if x.dtype.kind in "iu" else f"dtype {x.dtype}"
            raise InvalidParameter(
                f"The 'items' parameter must hold integers in the range [0, {PRIME - 1}]. "
                f"Got {got} instead. Number the items from 0 up."
            )
        hashed = (self._a * x.astype(np.int64) + self._b) % PRIME % self.buckets
        return np.asarray(hashed, dtype=np.int32)

    def __repr__(self) -> str:
        return f"UniversalHash(buckets={self.buckets}, seed={self.seed})"
