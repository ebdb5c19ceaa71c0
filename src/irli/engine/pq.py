"""4-bit product quantisation (PQ): learn codewords, and encode the items for the scan.

A vector is cut into M pieces, and each piece is replaced by the nearest of 16 codewords. The inner
product with a query is then a sum of M numbers from a table of M x 16.

For inner products, some errors matter more than others. An item is relevant to queries that point
in its direction. An error along this direction changes the score, and an error across it hardly
does. So the codes are trained with the score-aware loss |e|^2 + (eta - 1) <e, x / |x|>^2 (Guo et
al., ICML 2020). For the Euclidean distance, the loss is the plain error |e|^2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli import _native
from irli._native import LANES, WORDS
from irli.base.memory import empty_at_line, release_pages
from irli.engine.outliers import is_usual, measure_from_middle
from irli.engine.vector_layout import ROWS, Codes, place_blocks

_ITERATIONS = 8
SAMPLE = 8192  # vectors that codewords are learned from
_BLOCK = 16_384  # vectors encoded at a time
_TINY = 1e-30  # the smallest unit of vectors


class Codebook(NamedTuple):
    """A rotation into p dimensions, and 16 codewords for each piece of the rotated vector.

    `codewords` are in units. An index keeps them in its `Codes`, and the other fields to encode
    what is added later.
    """

    centre: NDArray[np.float32]  # (d,): subtracted from the vectors first
    unit: float  # vectors are divided by it, so that squares do not overflow or underflow
    rotation: NDArray[np.float32]  # (d, p)
    codewords: NDArray[np.float32]  # (M, 16, s), M s = p
    eta: float  # weight of an error along the vector, relative to one across it

    @classmethod
    def of(
        cls, codes: Codes, l2: bool, centre: NDArray[Any], unit: Any, rotation: NDArray[Any]
    ) -> Codebook:
        """Return the book that has encoded the items of an index."""
        codewords = codes.codewords.transpose(0, 2, 1) / np.float64(unit)
        eta = 1.0 if l2 else _ETA
        return cls(centre, float(unit), rotation, codewords.astype(np.float32), eta)

    def coordinates(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the rotated coordinates (n, p) of vectors (n, d)."""
        rotated = (vectors - self.centre) / np.float32(self.unit) @ self.rotation
        return np.asarray(rotated, dtype=np.float32)

    def encode(self, vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the codes (n, M) of vectors (n, d), each below 16."""
        codes = np.empty((len(vectors), len(self.codewords)), dtype=np.uint8)
        codewords = _lay_in_lanes(self.codewords)
        for low in range(0, len(vectors), _BLOCK):
            block, part = np.asarray(vectors[low : low + _BLOCK]), codes[low : low + _BLOCK]
            coordinates = self.coordinates(block)
            _native.find_codes(coordinates, codewords, part)
            if self.eta > 1:
                along = self._compute_directions(block)
                _native.improve_codes(coordinates, along, codewords, self.eta, part)
            release_pages(vectors)
        return codes

    def decode(self, codes: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the rotated coordinates (n, p) that codes (n, M) stand for."""
        pieces = self.codewords[np.arange(len(self.codewords)), codes]
        return pieces.reshape(len(codes), -1)

    def _compute_directions(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the directions (n, p) of the vectors, in which errors weigh most."""
        scaled = vectors / np.float32(self.unit)
        along = np.asarray(scaled @ self.rotation, dtype=np.float32)
        along /= np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-30)
        return along


_ETA = 4.0  # for inner products; 1 is the plain error
_FEW_DIMS = 64  # up to this many dimensions, each has its own piece
_LEAST, _MOST = 32, 128  # bounds on the number of pieces, where it is chosen
_VARIANCE = 0.95  # share of the variance that the coded dimensions hold
_NEARLY_ALL = 0.85  # if this share of the dimensions is needed for it, all of them are coded
_VARIANCE_SAMPLE = 4096  # vectors that the variance is estimated from
_FLAT = 0.1  # items hardly differ along an axis if their variance is so much of the codes' error


def choose_pieces(vectors: NDArray[np.float32], rng: np.random.Generator) -> int:
    """Choose M, the pieces of a code.

    Only the leading dimensions that hold 95 % of the variance count. Two of them share a piece. But
    each dimension has its own piece if there are at most 64 of them, or at most 128 and nearly all
    of them count. With 96 dimensions of equal variance, 40 candidates chosen by 96 pieces contain
    .99 of the nearest neighbours, and 320 candidates chosen by 48 pieces only .97.

    Examples
    --------
    >>> choose_pieces(np.zeros((10_000, 50), dtype=np.float32), np.random.default_rng(0))
    52
    """
    count, dim = vectors.shape
    if dim <= _FEW_DIMS:
        return _round_up(dim)
    sample = np.asarray(
        vectors[np.sort(rng.choice(count, size=min(count, _VARIANCE_SAMPLE), replace=False))]
    )
    variance = np.linalg.eigvalsh(np.cov(sample, rowvar=False))[::-1].cumsum()
    dims = int(np.searchsorted(variance, _VARIANCE * variance[-1])) + 1
    if dims > _NEARLY_ALL * dim:
        return most_pieces(dim)
    return _round_up(min(max(dims // 2, _LEAST), _MOST))


def most_pieces(dim: int) -> int:
    """Return M for vectors whose dimensions all count.

    Examples
    --------
    >>> most_pieces(96), most_pieces(160), most_pieces(768)
    (96, 80, 128)
    """
    return _round_up(dim if dim <= _MOST else min(dim // 2, _MOST))


def _round_up(pieces: int) -> int:
    """Round up to whole rows of a block of codes."""
    step = 2 * ROWS
    return -(-pieces // step) * step


def encode_items(
    vectors: NDArray[np.float32],
    l2: bool,
    pieces: int,
    offsets: NDArray[np.int64],
    items: NDArray[np.int32],
    rng: np.random.Generator,
) -> tuple[Codes, Codebook | None]:
    """Learn codes for vectors (N, d) and store them in the order of the buckets.

    Also return the book for what is added later, or None without codes.

    Parameters
    ----------
    offsets : int64 array of shape (R, B + 1)
        Where each bucket starts in `items`.
    items : int32 array of shape (entries,)
        The rows of `vectors`, bucket by bucket.
    """
    if pieces == 0:
        return no_codes(vectors.shape[1]), None
    pieces = _round_up(pieces)
    dims = min(vectors.shape[1], max(2 * pieces, _FEW_DIMS))
    # For inner products, outliers are the nearest items.
    usual = _find_usual(vectors, offsets[0], items) if l2 else None
    book = learn_codebook(vectors, pieces, dims, 1.0 if l2 else _ETA, rng, usual)
    codes = book.encode(vectors)
    blocks, starts = pack_blocks(codes, offsets, items)
    codewords = book.codewords * np.float64(book.unit)
    rotation = _leave_out_flat_axes(book, vectors, codes, usual)
    # For inner products the query needs no centre: it would add the same to all items.
    shift = -book.centre @ rotation if l2 else np.zeros(rotation.shape[1])
    lengths = np.square(codewords).sum(axis=2) if l2 else np.zeros(codewords.shape[:2])
    with np.errstate(over="ignore"):  # the distances overflow in the same way
        bias = (-lengths / 2).astype(np.float32)
    made = Codes(
        rotation=rotation,
        shift=shift.astype(np.float32),
        codewords=_lay_in_lanes(codewords),
        bias=bias,
        blocks=blocks,
        offsets=starts,
    )
    return made, Codebook.of(made, l2, book.centre, book.unit, book.rotation)


def _find_usual(
    vectors: NDArray[np.float32], offsets: NDArray[np.int64], items: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Return which items (N,) are no outliers in one of their buckets, beside all other items."""
    far = np.full(len(vectors), np.inf)
    entries = items[offsets[0] : offsets[-1]]
    np.minimum.at(far, entries, measure_from_middle(vectors, offsets, items))
    return is_usual(far, np.median(far))


def _leave_out_flat_axes(
    book: Codebook,
    vectors: NDArray[np.float32],
    codes: NDArray[np.uint8],
    usual: NDArray[np.bool_] | None,
) -> NDArray[np.float32]:
    """Return the rotation (d, p) for queries: along axes where items hardly differ, they are 0.

    What a query has along such an axis adds the same to the scores of all items. But codes have
    errors along every axis, which it multiplies. A query far from the items would drown in them.
    """
    rows = np.arange(0, len(vectors), max(1, len(vectors) // SAMPLE))
    if usual is not None:
        rows = rows[usual[rows]]
    coordinates = book.coordinates(np.asarray(vectors[rows])).astype(np.float64)
    error = np.square(coordinates - book.decode(codes[rows])).mean()
    squares, axes = np.linalg.eigh(coordinates.T @ coordinates / len(coordinates))
    kept = axes[:, squares >= _FLAT * error]
    if kept.shape[1] in (0, len(axes)):
        return book.rotation
    return np.asarray(book.rotation @ kept @ kept.T, dtype=np.float32)


def no_codes(dim: int) -> Codes:
    """Return the empty codes of an index without codes."""
    return Codes(
        rotation=np.empty((dim, 0), dtype=np.float32),
        shift=np.empty(0, dtype=np.float32),
        codewords=np.empty((0, 1, WORDS), dtype=np.float32),
        bias=np.empty((0, WORDS), dtype=np.float32),
        blocks=np.empty((0, 0, LANES), dtype=np.uint8),
        offsets=np.empty((0, 0), dtype=np.int64),
    )


def learn_codebook(
    vectors: NDArray[np.float32],
    pieces: int,
    dims: int,
    eta: float,
    rng: np.random.Generator,
    usual: NDArray[np.bool_] | None = None,
) -> Codebook:
    """Learn `pieces` x 16 codewords for the `dims` leading directions of vectors (N, d).

    Outliers would take up the codewords, since their squared errors are the largest. So they are
    left out, if it is given which vectors (N,) are usual.
    """
    rows = rng.choice(len(vectors), size=min(SAMPLE, len(vectors)), replace=False)
    if usual is not None:
        rows = rows[usual[rows]]
    sample = np.asarray(vectors[np.sort(rows)])
    centre = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    rotation = _make_rotation(sample - centre, pieces, dims, rng)
    size = rotation.shape[1] // pieces
    unit = max(float(np.abs(sample).mean(dtype=np.float64)), _TINY)
    codewords = np.empty((pieces, WORDS, size), dtype=np.float32)
    book = Codebook(centre, unit, rotation, codewords, eta)
    coordinates = book.coordinates(sample)
    for m in range(pieces):
        first = rng.choice(len(sample), size=WORDS, replace=len(sample) < WORDS)
        codewords[m] = coordinates[first, m * size : (m + 1) * size]
    along = book._compute_directions(sample)
    codes = np.empty((len(sample), pieces), dtype=np.uint8)
    _native.find_codes(coordinates, _lay_in_lanes(codewords), codes)
    for iteration in range(_ITERATIONS):
        weight = 1.0 if iteration < 2 else eta  # start with the plain error
        _native.improve_codewords(coordinates, along, codes, weight, codewords)
        if weight > 1:
            _native.improve_codes(coordinates, along, _lay_in_lanes(codewords), weight, codes)
        else:
            _native.find_codes(coordinates, _lay_in_lanes(codewords), codes)
    return book


def _lay_in_lanes(codewords: NDArray[Any]) -> NDArray[np.float32]:
    """Return codewords (M, 16, s) as kernels read them: (M, s, 16)."""
    return np.ascontiguousarray(codewords.transpose(0, 2, 1), dtype=np.float32)


def _make_rotation(
    centred: NDArray[np.float32], pieces: int, dims: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return the axes (d, p) of the coordinates, padded with zeros to whole pieces.

    Along the principal axes, the first pieces would hold most of the variance. A random rotation
    within them gives each piece its share, so that one scale suits the tables of all pieces.
    """
    dim = centred.shape[1]
    width = -(-dims // pieces) * pieces
    rotation = np.zeros((dim, width), dtype=np.float32)
    _, axes = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
    random_rotation, _ = np.linalg.qr(rng.normal(size=(dims, dims)))
    rotation[:, :dims] = axes[:, ::-1][:, :dims] @ random_rotation
    return rotation


def pack_blocks(
    codes: NDArray[np.uint8], offsets: NDArray[np.int64], items: NDArray[np.int32]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Store codes (N, M) in blocks, in the order of the buckets. Pad each to whole blocks.

    Return the blocks (blocks, M / 2, 32), and where each bucket starts in them (R, B + 1).
    """
    starts = place_blocks(offsets)
    shape = int(starts[-1, -1]), codes.shape[1] // 2, LANES
    blocks = empty_at_line(shape, np.dtype(np.uint8))
    blocks[...] = 0
    _native.fill_blocks(codes, offsets, items, starts, blocks)
    return blocks, starts


def unpack_blocks(
    blocks: NDArray[np.uint8], starts: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Return the codes (entries, M) that `pack_blocks` has stored, in the order of the buckets."""
    loads = np.diff(offsets, axis=1).ravel()
    first = starts[:, :-1].ravel()
    place = np.arange(loads.sum()) - np.repeat(loads.cumsum() - loads, loads)
    block, lane = np.repeat(first, loads) + place // LANES, place % LANES
    pairs = blocks[block, :, 2 * (lane % 16) + lane // 16]
    codes = np.empty((len(pairs), 2 * pairs.shape[1]), dtype=np.uint8)
    codes[:, ::2], codes[:, 1::2] = pairs & 15, pairs >> 4
    return codes
