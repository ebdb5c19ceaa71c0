"""4-bit codes: what they lose, where they lie, and that no data breaks them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli import _native
from irli._native import LANES, WORDS
from irli.engine.pq import (
    Codebook,
    _lay_in_lanes,
    choose_pieces,
    encode_items,
    learn_codebook,
    most_pieces,
    no_codes,
    pack_blocks,
)
from irli.engine.vector_layout import Codes

pytestmark = pytest.mark.usefixtures("simd")


def gauss(n: int, dim: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


def book_of(X: NDArray, pieces: int, eta: float = 1.0, dims: int | None = None) -> Codebook:
    rng = np.random.default_rng(0)
    return learn_codebook(X, pieces, X.shape[1] if dims is None else dims, eta, rng)


def errors(book: Codebook, X: NDArray) -> NDArray[np.float32]:
    """What coding loses of each vector, in coordinates."""
    return book.coordinates(X) - book.decode(book.encode(X))


# --- what codes lose -------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [1.0, 4.0])
def test_more_pieces_lose_less(eta: float) -> None:
    X = gauss(1500, 16)
    lost = [np.square(errors(book_of(X, m, eta), X)).mean() for m in (4, 8, 16)]
    assert lost[0] > 1.2 * lost[1] > 1.2 * 1.2 * lost[2] > 0


def test_codewords_are_learned() -> None:
    """16 codewords for one normal coordinate lose about 1 % of its variance, if well chosen."""
    X = gauss(4000, 4)
    book = book_of(X, 4)
    assert np.square(errors(book, X)).mean() < 0.02 * np.square(book.coordinates(X)).mean()


def test_outliers_take_up_no_codewords() -> None:
    """Each is alone in its bucket, or among others: the codes of all others are as good."""
    X = gauss(2000, 8)
    offsets, items = np.array([[0, 1000, 1995, 1996, 1998, 2000]]), np.arange(2000, dtype=np.int32)
    far = X.copy()
    far[[3, 500, *range(1990, 2000)]] *= 1000
    lost = []
    for vectors in (X, far):
        codes, _ = encode_items(vectors, True, 8, offsets, items, np.random.default_rng(0))
        coordinates = X @ codes.rotation + codes.shift
        gaps = coordinates[:, :, None] - codes.codewords[:, 0]  # to the codewords of each piece
        lost.append(np.square(gaps).min(axis=2)[:1990].mean())
    assert lost[1] < 1.5 * lost[0]


def test_a_cluster_far_away_has_codewords() -> None:
    """A tenth of the items: far from all others, and as close to each other."""
    X = gauss(2000, 8)
    X[1800:] += 1000
    offsets, items = np.array([[0, 900, 1800, 2000]]), np.arange(2000, dtype=np.int32)
    codes, _ = encode_items(X, True, 8, offsets, items, np.random.default_rng(0))
    coordinates = X @ codes.rotation + codes.shift
    lost = np.square(coordinates[:, :, None] - codes.codewords[:, 0]).min(axis=2)
    assert lost[1800:].mean() < 0.7  # of a variance of 1; one codeword would lose all of it


def test_score_aware_codes_lose_less_along_the_vector() -> None:
    X = gauss(2000, 16) + 0.3
    plain, aware = book_of(X, 8, 1.0), book_of(X, 8, 4.0)

    def along(book: Codebook) -> float:
        """The mean square of what an inner product with the vector itself would lose."""
        direction = X / np.linalg.norm(X, axis=1, keepdims=True)
        return float(np.square((errors(book, X) * (direction @ book.rotation)).sum(axis=1)).mean())

    assert along(aware) < 0.6 * along(plain)
    total = [np.square(errors(book, X)).sum(axis=1).mean() for book in (plain, aware)]
    assert total[0] < total[1], "the plain codes minimise the whole error"
    losses = [t + 3 * along(b) for t, b in zip(total, (plain, aware), strict=True)]
    assert losses[1] < losses[0], "the score-aware codes minimise their own loss"


@pytest.mark.parametrize("eta", [1.0, 4.0])
def test_vectors_of_three_kinds_are_coded_without_error(eta: float) -> None:
    """Each piece takes three values, so that every one can have a codeword."""
    X = gauss(3, 8)[np.random.default_rng(0).integers(3, size=600)]
    np.testing.assert_allclose(errors(book_of(X, 4, eta), X), 0, atol=1e-4)


@pytest.mark.parametrize("l2", [True, False])
@pytest.mark.parametrize(
    ("n", "dim", "pieces"),
    [(1, 5, 4), (7, 5, 4), (15, 3, 8), (16, 10, 8), (100, 6, 32), (40, 1, 4)],
)
def test_few_vectors(l2: bool, n: int, dim: int, pieces: int) -> None:
    """Down to a single one; with fewer vectors than codewords in all pieces, too."""
    codes, book = codes_and_book(gauss(n, dim), l2, pieces)
    assert (book.encode(gauss(n, dim)) < WORDS).all()
    assert np.isfinite(codes.codewords).all()
    if n == 1:
        np.testing.assert_allclose(errors(book, gauss(n, dim)), 0, atol=1e-6)


def codes_and_book(X: NDArray, l2: bool, pieces: int) -> tuple[Codes, Codebook]:
    """Code everything in one bucket; the same random numbers make the same codebook."""
    offsets, items = np.array([[0, len(X)]]), np.arange(len(X), dtype=np.int32)
    codes, _ = encode_items(X, l2, pieces, offsets, items, np.random.default_rng(0))
    return codes, book_of(X, pieces, 1.0 if l2 else 4.0)


@pytest.mark.parametrize("eta", [1.0, 4.0])
@pytest.mark.parametrize("value", [0.0, 1.0, -1e-20, 1e20])
def test_equal_vectors(value: float, eta: float) -> None:
    X = np.full((50, 6), value, dtype=np.float32)
    book = book_of(X, 4, eta)
    np.testing.assert_allclose(errors(book, X), 0, atol=1e-3)
    assert len(np.unique(book.encode(X), axis=0)) == 1


@pytest.mark.parametrize("eta", [1.0, 4.0])
@pytest.mark.parametrize(("dim", "pieces"), [(1, 4), (7, 4), (9, 8), (10, 4), (13, 12)])
def test_dimensions_that_do_not_divide_into_pieces(dim: int, pieces: int, eta: float) -> None:
    X = gauss(600, dim)
    book = book_of(X, pieces, eta)
    assert book.rotation.shape[1] % pieces == 0
    lost = np.square(errors(book, X)).sum(axis=1).mean()
    assert lost < 0.35 * np.square(book.coordinates(X)).sum(axis=1).mean()


def test_fewer_dimensions_are_those_that_vary() -> None:
    """Of 40 dimensions 8 vary, not along the axes: coding just 8 loses next to nothing else."""
    rng = np.random.default_rng(0)
    frame, _ = np.linalg.qr(rng.normal(size=(40, 40)))
    X = (rng.normal(size=(2000, 8)) @ frame[:8] + frame[20]).astype(np.float32)
    book = book_of(X, 8, dims=8)
    held = book.coordinates(X) * book.unit
    np.testing.assert_allclose(
        np.square(held).sum(axis=1), np.square(X - book.centre).sum(axis=1), rtol=1e-3
    )
    per_piece = held.var(axis=0)
    assert per_piece.min() > 0.5 * per_piece.max(), "each piece has its share"


@pytest.mark.parametrize("eta", [1.0, 4.0])
@pytest.mark.parametrize("power", [-60, -100, 60, 100])
def test_the_scale_of_vectors_changes_no_code(power: int, eta: float) -> None:
    """Squares of 1e-20 vanish in float32, and those of 1e20 overflow."""
    X = gauss(300, 10)
    scaled = (X * 2.0**power).astype(np.float32)  # powers of two round nothing
    book, other = book_of(X, 4, eta), book_of(scaled, 4, eta)
    np.testing.assert_array_equal(other.encode(scaled), book.encode(X))


def test_vectors_that_are_no_numbers_in_coordinates_have_codes_all_the_same() -> None:
    book = book_of(gauss(50, 6), 4, 4.0)
    with np.errstate(all="ignore"):
        codes = book.encode(np.full((3, 6), 3e38, dtype=np.float32))
    assert (codes < WORDS).all()


@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_codes_are_the_best_ones(size: int) -> None:
    """Against all 16 codewords in float64; of equals, the first."""
    rng = np.random.default_rng(size)
    x, along = gauss(40, 5 * size), gauss(40, 5 * size, seed=1)
    codewords = rng.normal(size=(5, WORDS, size)).astype(np.float32)
    codewords[2, 9] = codewords[2, 4]
    x[:, 2 * size : 3 * size] = codewords[2, 4]
    codes = np.full((40, 5), 15, dtype=np.uint8)
    _native.find_codes(x, _lay_in_lanes(codewords), codes)
    gaps = x.reshape(40, 5, 1, size).astype(np.float64) - codewords
    np.testing.assert_array_equal(codes, np.square(gaps).sum(axis=3).argmin(axis=2))
    assert (codes[:, 2] == 4).all()
    _native.improve_codes(x, along, _lay_in_lanes(codewords), 4.0, codes)
    for _ in range(20):  # after more passes, no other code of a piece is better
        _native.improve_codes(x, along, _lay_in_lanes(codewords), 4.0, codes)
    inner = (gaps * along.reshape(40, 5, 1, size)).sum(axis=3)
    chosen = np.take_along_axis(inner, codes[:, :, None].astype(np.int64), axis=2)
    others = chosen.sum(axis=1, keepdims=True) - chosen
    losses = np.square(gaps).sum(axis=3) + 3 * np.square(others + inner)
    mine = np.take_along_axis(losses, codes[:, :, None].astype(np.int64), axis=2)
    assert (mine[:, :, 0] <= losses.min(axis=2) + 1e-3).all()


@pytest.mark.parametrize("eta", [1.0, 4.0])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_codewords_minimise_the_loss(size: int, eta: float) -> None:
    """For one piece, they solve the normal equations of their vectors."""
    x, along = gauss(300, size), gauss(300, size, seed=1)
    codes = np.random.default_rng(0).integers(WORDS - 1, size=(300, 1), dtype=np.uint8)
    codewords = np.full((1, WORDS, size), 7, dtype=np.float32)
    _native.improve_codewords(x, along, codes, eta, codewords)
    for word in range(WORDS - 1):
        mine, a = (rows[codes[:, 0] == word].astype(np.float64) for rows in (x, along))
        left = len(mine) * np.eye(size) + (eta - 1) * a.T @ a
        right = mine.sum(axis=0) + (eta - 1) * a.T @ (a * mine).sum(axis=1)
        np.testing.assert_allclose(codewords[0, word], np.linalg.solve(left, right), rtol=1e-5)
    assert (codewords[0, -1] == 7).all(), "no vector uses it"


@pytest.mark.parametrize("eta", [1.0, 4.0])
def test_all_back_ends_agree(simd: str, eta: float) -> None:
    X = gauss(900, 20)
    mine = book_of(X, 12, eta)
    codes = mine.encode(X)
    _native.use_simd(_native.available_simd()[-1])
    other = book_of(X, 12, eta)
    _native.use_simd(simd)
    if simd == "plain":
        np.testing.assert_allclose(mine.codewords, other.codewords, rtol=1e-2, atol=1e-2)
        assert (codes == other.encode(X)).mean() > 0.99
    else:
        np.testing.assert_array_equal(mine.codewords, other.codewords)
        np.testing.assert_array_equal(codes, other.encode(X))


def test_no_vectors() -> None:
    book = book_of(gauss(50, 6), 4, 4.0)
    assert book.encode(gauss(0, 6)).shape == (0, 4)


def test_wrong_arrays_are_refused() -> None:
    x, codes = gauss(9, 8), np.zeros((9, 4), dtype=np.uint8)
    words, lanes = np.zeros((4, WORDS, 2), dtype=np.float32), np.zeros((4, 2, WORDS), dtype="f4")
    large = codes + 16
    for act in (
        lambda: _native.find_codes(x, words, codes),
        lambda: _native.find_codes(x[:, :6].copy(), lanes, codes),
        lambda: _native.find_codes(x, lanes, codes[:8]),
        lambda: _native.improve_codes(x, x[:8], lanes, 4.0, codes),
        lambda: _native.improve_codes(x, x, lanes, 4.0, large),
        lambda: _native.improve_codewords(x, x, codes, 4.0, lanes),
        lambda: _native.improve_codewords(x, x, large, 4.0, words),
    ):
        with pytest.raises(ValueError, match="must"):
            act()


# --- how many pieces -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "pieces"), [((100, 50), 52), ((100, 70), 32), ((4096, 1), 4), ((5000, 64), 64)]
)
def test_choose_pieces(shape: tuple[int, int], pieces: int) -> None:
    X = np.zeros(shape, dtype=np.float32)
    assert choose_pieces(X, np.random.default_rng(0)) == pieces


@pytest.mark.parametrize("dim", [1, 4, 31, 96, 128, 129, 300, 5000])
def test_most_pieces_are_whole_blocks_of_codes(dim: int) -> None:
    pieces = most_pieces(dim)
    assert pieces % 4 == 0
    assert min(dim, 128) // 2 <= pieces <= min(dim + 3, 128)


def test_choose_pieces_by_what_varies() -> None:
    rng = np.random.default_rng(0)
    varied = gauss(4100, 160)
    assert choose_pieces(varied, rng) == 80  # all of 160 equal dimensions, two by two
    varied[:, 90:] = 1.0
    assert choose_pieces(varied, rng) == 44
    varied[:, 3:] = 1.0
    assert choose_pieces(varied, rng) == 32
    assert choose_pieces(np.zeros((4096, 400), dtype=np.float32), rng) == 32
    even = gauss(4100, 96)
    assert choose_pieces(even, rng) == 96  # nothing can be left out: one each
    even[:, 70:] *= 0.1
    assert choose_pieces(even, rng) == 36


# --- where codes lie -------------------------------------------------------------------------


def unpacked(blocks: NDArray, block: int, lane: int) -> NDArray[np.uint8]:
    """The code (M,) in one lane: even pieces in low nibbles, odd ones in high nibbles."""
    column = blocks[block, :, 2 * lane if lane < 16 else 2 * (lane - 16) + 1]
    return np.stack([column & 15, column >> 4], axis=1).reshape(-1)


def check_layout(loads: list[list[int]], pieces: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    loads_ = np.array(loads)
    ends = loads_.cumsum().reshape(loads_.shape)
    offsets = np.concatenate([(ends - loads_)[:, :1], ends], axis=1).astype(np.int64)
    items = rng.integers(50, size=offsets[-1, -1], dtype=np.int32)
    codes = rng.integers(WORDS, size=(50, pieces), dtype=np.uint8)
    blocks, starts = pack_blocks(codes, offsets, items)
    assert blocks.size == 0 or blocks.ctypes.data % 64 == 0
    assert starts.shape == offsets.shape
    assert starts[0, 0] == 0
    assert starts[-1, -1] == len(blocks)
    for r, line in enumerate(loads):
        assert r == 0 or starts[r, 0] == starts[r - 1, -1]
        for b, load in enumerate(line):
            assert starts[r, b + 1] - starts[r, b] == -(-load // LANES)
            for place in range(load):
                block, lane = divmod(place, LANES)
                np.testing.assert_array_equal(
                    unpacked(blocks, starts[r, b] + block, lane),
                    codes[items[offsets[r, b] + place]],
                )


@pytest.mark.parametrize("pieces", [4, 8, 52])
def test_layout_of_round_and_odd_buckets(pieces: int) -> None:
    sizes = [0, 1, 31, 32, 33, 0, 64, 65]
    check_layout([sizes], pieces, seed=0)
    check_layout([sizes, sizes[::-1]], pieces, seed=1)
    check_layout([[0, 0]], pieces, seed=2)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda b: st.lists(
            st.lists(st.integers(0, 70), min_size=b, max_size=b), min_size=1, max_size=3
        )
    ),
    st.integers(0, 99),
)
def test_layout_of_any_buckets(loads: list[list[int]], seed: int) -> None:
    check_layout(loads, 4, seed)


def test_blocks_outside_of_the_arrays_are_refused() -> None:
    codes, items = np.zeros((5, 4), dtype=np.uint8), np.arange(5, dtype=np.int32)
    offsets, starts = np.array([[0, 2, 5]]), np.array([[0, 1, 2]])
    blocks = np.zeros((2, 2, LANES), dtype=np.uint8)
    _native.fill_blocks(codes, offsets, items, starts, blocks)
    for wrong in (
        (codes, offsets + 1, items, starts, blocks),
        (codes, offsets - 1, items, starts, blocks),
        (codes, offsets[:, ::-1].copy(), items, starts, blocks),
        (codes, offsets, items + 1, starts, blocks),
        (codes, offsets, items - 1, starts, blocks),
        (codes, offsets, items, starts + 1, blocks),
        (codes, offsets, items, starts - 1, blocks),
        (codes, offsets, items, starts, blocks[:1]),
    ):
        with pytest.raises(ValueError, match="out of bounds"):
            _native.fill_blocks(*wrong)
    for wrong in (
        (codes, offsets, items, starts[:, :2].copy(), blocks),
        (codes, offsets, items, starts, blocks[:, :1].copy()),
    ):
        with pytest.raises(ValueError, match="must have the shape"):
            _native.fill_blocks(*wrong)


@pytest.mark.parametrize("l2", [True, False])
@pytest.mark.parametrize("pieces", [1, 4, 5, 8])
def test_sums_of_codewords_are_scores(l2: bool, pieces: int) -> None:
    """A query and the codewords add up to the score of the decoded item, up to a constant."""
    X, q = gauss(200, 12) + 1, gauss(5, 12, seed=1).astype(np.float64)
    pieces_up = -(-pieces // 4) * 4
    codes, book = codes_and_book(X, l2, pieces)[0], codes_and_book(X, l2, pieces_up)[1]
    assert codes.codewords.shape == (pieces_up, book.codewords.shape[2], WORDS)
    chosen = book.encode(X)
    for i in range(len(X)):
        np.testing.assert_array_equal(unpacked(codes.blocks, i // LANES, i % LANES), chosen[i])
    at = q @ codes.rotation + codes.shift
    parts = at.reshape(len(q), pieces_up, -1)
    by_word = np.einsum("qms,msw->qmw", parts, codes.codewords) + codes.bias
    scores = sum(by_word[:, m, chosen[:, m]] for m in range(pieces_up))
    decoded = book.decode(chosen) * book.unit @ book.rotation.T + book.centre
    right = q @ decoded.T
    if l2:
        right = -((q[:, None] - decoded) ** 2).sum(axis=2) / 2
    gap = scores - right
    np.testing.assert_allclose(gap - gap[:, :1], 0, atol=2e-3)


def test_no_codes() -> None:
    codes = no_codes(7)
    assert codes.blocks.size == codes.codewords.size == 0
    assert codes.rotation.shape == (7, 0)
    assert (
        encode_items(
            gauss(10, 7), True, 0, np.array([[0, 10]]), np.arange(10), np.random.default_rng(0)
        )[0].blocks.size
        == 0
    )
