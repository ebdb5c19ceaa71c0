"""Shapes of data on which an index must keep its promise: clusters, outliers, offsets, ties, ...

Every shape is a function of the number of items and a seed. Its queries are ordinary: drawn as the
items are, and never items themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Draw = Callable[[np.random.Generator, int], NDArray]  # (generator, rows) -> (rows, d)


class Shape(NamedTuple):
    """Items (N, d), ordinary queries (n, d), and the metric that fits."""

    base: Floats
    queries: Floats
    metric: str


def make_shape(name: str, items: int, queries: int = 200, seed: int = 0) -> Shape:
    """Make one of `SHAPES`.

    Examples
    --------
    >>> base, queries, metric = make_shape("tight clusters", 1000, queries=10)
    >>> base.shape, queries.shape, metric
    ((1000, 32), (10, 32), 'l2')
    """
    metric, make = SHAPES[name]
    rng = np.random.default_rng([seed, *name.encode()])
    draw = make(rng)
    return Shape(_floats(draw(rng, items)), _floats(draw(rng, queries)), metric)


def make_strange_queries(shape: Shape, kind: str, count: int = 200, seed: int = 0) -> Floats:
    """Make queries unlike the items: "between" two of them, "noise", or "far" from all of them."""
    rng = np.random.default_rng([seed, *kind.encode()])
    base = shape.base.astype(np.float64)
    middle, spread = base.mean(axis=0), base.std(axis=0)
    if kind == "between":
        pairs = rng.integers(len(base), size=(count, 2))
        return _floats(base[pairs].mean(axis=1))
    noise = rng.normal(size=(count, base.shape[1]))
    if kind == "noise":
        return _floats(middle + spread * noise)
    if kind == "far":
        return _floats(middle + 10 * spread * noise)
    raise KeyError(kind)


def _floats(points: NDArray) -> Floats:
    return np.ascontiguousarray(points, dtype=np.float32)


# --- what is drawn -------------------------------------------------------------------------------
# Each function takes the generator that fixes the shape, and returns the one that draws its rows.


def _clusters(
    rng: np.random.Generator,
    dim: int,
    centres: int,
    deviation: float,
    noise: float | tuple[float, float],
    skew: float = 0.0,
) -> Draw:
    """Clusters; noise may lie in a range, and sizes follow the power law with exponent `skew`."""
    middles = deviation * rng.normal(size=(centres, dim))
    low, high = noise if isinstance(noise, tuple) else (noise, noise)
    widths = np.geomspace(low, high, centres)
    share = np.arange(1, centres + 1) ** -skew
    order = rng.permutation(centres)  # so that size and width have nothing to do with each other
    share = share[order] / share.sum()

    def draw(rng: np.random.Generator, rows: int) -> NDArray:
        which = rng.choice(centres, rows, p=share)
        return middles[which] + widths[which, None] * rng.normal(size=(rows, dim))

    return draw


def _moved(
    rng: np.random.Generator, plain: Callable[..., Draw], offset: float, scale: float
) -> Draw:
    inner = plain(rng)
    return lambda rng, rows: offset + scale * inner(rng, rows)


def _stretched(rng: np.random.Generator, plain: Callable[..., Draw], widest: float) -> Draw:
    """Coordinates of scales from 1 to `widest`."""
    inner = plain(rng)
    return lambda rng, rows: (x := inner(rng, rows)) * np.geomspace(1, widest, x.shape[1])


def _with_outliers(
    rng: np.random.Generator, plain: Callable[..., Draw], share: float, times: float
) -> Draw:
    """A share of the rows lies `times` as far out."""
    inner = plain(rng)

    def draw(rng: np.random.Generator, rows: int) -> NDArray:
        return inner(rng, rows) * np.where(rng.random((rows, 1)) < share, times, 1)

    return draw


def _with_copies(
    rng: np.random.Generator, plain: Callable[..., Draw], originals: float, skew: float
) -> Draw:
    """Exact copies of fewer rows: with skew, a few of them have most of the copies."""
    inner = plain(rng)

    def draw(rng: np.random.Generator, rows: int) -> NDArray:
        few = inner(rng, max(1, round(originals * rows)))
        return few[(len(few) * rng.random(rows) ** (1 + skew)).astype(int)]

    return draw


def _with_lengths(rng: np.random.Generator, plain: Callable[..., Draw], deviation: float) -> Draw:
    """Rows times lengths with a log-normal distribution."""
    inner = plain(rng)

    def draw(rng: np.random.Generator, rows: int) -> NDArray:
        return inner(rng, rows) * np.exp(deviation * rng.normal(size=(rows, 1)))

    return draw


def _gaussian(rng: np.random.Generator, dim: int) -> Draw:
    return lambda rng, rows: rng.normal(size=(rows, dim))


def _uniform(rng: np.random.Generator, dim: int) -> Draw:
    return lambda rng, rows: rng.random((rows, dim))


def _student(rng: np.random.Generator, dim: int, freedom: float) -> Draw:
    return lambda rng, rows: rng.standard_t(freedom, size=(rows, dim))


def _low_rank(rng: np.random.Generator, dim: int, rank: int, noise: float) -> Draw:
    axes = rng.normal(size=(rank, dim)) / rank**0.5

    def draw(rng: np.random.Generator, rows: int) -> NDArray:
        return rng.normal(size=(rows, rank)) @ axes + noise * rng.normal(size=(rows, dim))

    return draw


def _curve(rng: np.random.Generator, dim: int) -> Draw:
    """A closed curve, with a little noise."""
    speeds = rng.integers(1, 6, size=dim)
    phases = rng.uniform(0, 2 * np.pi, size=dim)

    def draw(rng: np.random.Generator, rows: int) -> NDArray:
        place = rng.uniform(0, 2 * np.pi, size=(rows, 1))
        return np.sin(speeds * place + phases) + 0.02 * rng.normal(size=(rows, dim))

    return draw


def _binary(rng: np.random.Generator, dim: int, patterns: int) -> Draw:
    """Zeros and ones; each of some patterns says how likely a one is in each place."""
    likely = rng.beta(0.3, 0.7, size=(patterns, dim))
    return lambda rng, rows: rng.random((rows, dim)) < likely[rng.integers(patterns, size=rows)]


def _counts(rng: np.random.Generator, dim: int, topics: int) -> Draw:
    """Words counted in texts: mixtures of topics, lengths with a heavy tail, one word at least."""
    words = rng.dirichlet(np.full(dim, 0.05), size=topics)

    def draw(rng: np.random.Generator, rows: int) -> NDArray:
        mixed = rng.dirichlet(np.full(topics, 0.1), size=rows) @ words
        lengths = 30 * np.exp(rng.normal(size=(rows, 1)))
        counts = rng.poisson(lengths * mixed)
        counts[np.arange(rows), mixed.argmax(axis=1)] += 1
        return counts

    return draw


def _factors(rng: np.random.Generator, dim: int) -> Draw:
    """As matrix factorisation leaves them: axes that fade, and popularity as length."""
    axes = np.arange(1, dim + 1) ** -0.5

    def draw(rng: np.random.Generator, rows: int) -> NDArray:
        lengths = np.minimum(rng.pareto(2.0, size=(rows, 1)) + 0.1, 50)
        return lengths * (axes * rng.normal(size=(rows, dim)))

    return draw


def _places(rng: np.random.Generator) -> Draw:
    """Towns of very different sizes and widths in a large country, and lonely farms."""
    towns = 400
    middles, widths = 30 * rng.normal(size=(towns, 2)), 0.2 * np.exp(rng.normal(size=towns))
    share = rng.pareto(1.0, size=towns) + 0.05
    share /= share.sum()

    def draw(rng: np.random.Generator, rows: int) -> NDArray:
        town = rng.choice(towns, rows, p=share)
        out = widths[town] * rng.standard_gamma(0.7, size=rows)
        places = middles[town] + out[:, None] * rng.normal(size=(rows, 2))
        farms = rng.random(rows) < 0.15
        places[farms] = rng.uniform(-90, 90, size=(int(farms.sum()), 2))
        return places

    return draw


def _patches(rng: np.random.Generator, dim: int) -> Draw:
    """Pieces of pictures: a colour, and a texture whose contrast has a heavy tail."""
    axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0] / np.arange(1, dim + 1)[:, None]

    def draw(rng: np.random.Generator, rows: int) -> NDArray:
        colours = 200 * rng.beta(0.7, 0.9, size=(rows, 1)) + 8 * rng.normal(size=(rows, 3))
        contrasts = 10 * np.exp(1.4 * rng.normal(size=(rows, 1)))
        textures = contrasts * (rng.normal(size=(rows, dim)) @ axes)
        return np.clip(np.rint(np.repeat(colours, dim // 3, axis=1) + textures), 0, 255)

    return draw


# --- the shapes ----------------------------------------------------------------------------------

_TIGHT = partial(_clusters, dim=32, centres=50, deviation=10, noise=0.1)
_LOOSE = partial(_clusters, dim=48, centres=300, deviation=1, noise=0.7)

# The metric, and a function of a generator. Binary and counted data, copies and integers have
# ties: judge answers by their distances there, not by their numbers.
SHAPES: dict[str, tuple[str, Callable[[np.random.Generator], Draw]]] = {
    "tight clusters": ("l2", _TIGHT),
    "loose clusters": ("l2", _LOOSE),
    "clusters 48": ("l2", partial(_clusters, dim=48, centres=100, deviation=3, noise=0.5)),
    "skewed clusters": ("l2", partial(_LOOSE, skew=1.2)),
    "mixed densities": ("l2", partial(_LOOSE, deviation=3, noise=(0.01, 3))),
    "clusters by angle": ("cosine", _LOOSE),
    "clusters by product": ("ip", _LOOSE),
    "outliers": ("l2", partial(_with_outliers, plain=_LOOSE, share=0.01, times=100)),
    "offset 1000": ("l2", partial(_moved, plain=_LOOSE, offset=1e3, scale=1)),
    "offset 10000": ("l2", partial(_moved, plain=_LOOSE, offset=1e4, scale=1)),
    "offset by angle": ("cosine", partial(_moved, plain=_LOOSE, offset=3, scale=1)),
    "offset by product": ("ip", partial(_moved, plain=_LOOSE, offset=3, scale=1)),
    "scale 1e6": ("l2", partial(_moved, plain=_LOOSE, offset=0, scale=1e6)),
    "scale 1e-6": ("l2", partial(_moved, plain=_LOOSE, offset=0, scale=1e-6)),
    "stretched": ("l2", partial(_stretched, plain=_LOOSE, widest=1e3)),
    "copies": ("l2", partial(_with_copies, plain=_LOOSE, originals=0.05, skew=0)),
    "skewed copies": ("cosine", partial(_with_copies, plain=_LOOSE, originals=0.2, skew=3)),
    "heavy tails": ("l2", partial(_student, dim=24, freedom=2)),
    "heavy tails by product": ("ip", partial(_with_lengths, plain=_LOOSE, deviation=1)),
    "factors": ("ip", partial(_factors, dim=64)),
    "uniform 16": ("l2", partial(_uniform, dim=16)),
    "gaussian 100": ("l2", partial(_gaussian, dim=100)),
    "sphere 24": ("cosine", partial(_gaussian, dim=24)),
    "low rank": ("l2", partial(_low_rank, dim=256, rank=8, noise=0)),
    "low rank, noise": ("cosine", partial(_low_rank, dim=256, rank=12, noise=0.1)),
    "curve": ("l2", partial(_curve, dim=20)),
    "binary": ("l2", partial(_binary, dim=64, patterns=100)),
    "binary by angle": ("cosine", partial(_binary, dim=200, patterns=100)),
    "counts": ("cosine", partial(_counts, dim=300, topics=40)),
    "counts by distance": ("l2", partial(_counts, dim=100, topics=40)),
    "counts by product": ("ip", partial(_counts, dim=100, topics=20)),
    "places": ("l2", _places),
    "patches": ("l2", partial(_patches, dim=192)),
    "d = 1": ("l2", partial(_gaussian, dim=1)),
    "d = 2": ("l2", partial(_clusters, dim=2, centres=100, deviation=1, noise=(0.01, 0.3))),
    "d = 3, by angle": ("cosine", partial(_gaussian, dim=3)),
    "d = 2000": ("l2", partial(_low_rank, dim=2000, rank=30, noise=0.05)),
}
