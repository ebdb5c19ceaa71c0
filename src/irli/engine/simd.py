"""SIMD intrinsics in LLVM: sums of codes, products of floats and bytes, comparisons, prefetch.

They are loops over vector registers that Numba cannot express. Each intrinsic takes addresses, so
that no array object is made in an inner loop. The sums of codes and the products of bytes need x86
instructions. On other processors, plain loops with the same results replace them.

A *block* holds the 4-bit codes of 32 items in M / 2 rows of 32 bytes. The low nibbles are pieces 0,
2, 4, ..., and the high nibbles are pieces 1, 3, 5, ... Byte 2 i of a row belongs to lane i, and
byte 2 i + 1 to lane 16 + i. So 8-bit sums split into two vectors of 16-bit sums without reordering.

The *table* of a query has, for each row, 32 bytes for the low nibbles and 32 bytes for the high
ones: 16 values, written twice. A value is at most 127, so that the sum of two fits into 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic as _intrinsic

from irli.base.memory import LINE
from irli.engine.jit import inner, kernel


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the code that `function` emits callable from kernels, without its first argument."""
    made: Callable[..., Any] = _intrinsic(function)
    return made


LANES = 32
MOST = 127  # the largest value in a table
WORDS = 16  # codewords of a piece: as many as 4 bits can number
_BYTE, _SHORT, _INT, _FLOAT = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.FloatType()


def _detect_features() -> set[str]:
    """Return the features of the processor by their LLVM names. Empty unless it is x86."""
    if not llvm.get_process_triple().startswith("x86_64"):
        return set()
    return {name for name, there in llvm.get_host_cpu_features().items() if there}


_CPU_FEATURES = _detect_features()
SHUFFLES = "avx2" in _CPU_FEATURES
_WIDTH = 64 if "avx512bw" in _CPU_FEATURES else 32  # bytes in a register
ROWS = 2  # the rows of a block are a multiple of this, on every machine


def describe_simd() -> str:
    """Return the name of the vector instructions that kernels use on this processor."""
    if not SHUFFLES:
        return "plain"
    return f"avx{'512' if _WIDTH == 64 else '2'}{' vnni' if 'avx512vnni' in _CPU_FEATURES else ''}"


# --- sums of codes ---------------------------------------------------------------------------


@intrinsic
def _sum_block(
    typingctx: Any, codes: Any, low: Any, high: Any, rows: Any, cut: Any, out: Any
) -> Any:
    """Sum up a block into `out` (32,). Return a bit for each lane whose sum is at least `cut`."""
    address = types.uintp
    signature = types.uint32(address, address, address, types.intp, types.uint16, address)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _emit_block_sums(builder, *arguments)

    return signature, build


def _emit_block_sums(
    builder: Any, codes: Any, low: Any, high: Any, rows: Any, cut: Any, out: Any
) -> Any:
    """Emit the loop over the rows: shuffle, add in 8 bits, widen, add in 16 bits."""
    wide, half = ir.VectorType(_BYTE, _WIDTH), ir.VectorType(_SHORT, _WIDTH // 2)
    name = "llvm.x86.avx512.pshuf.b.512" if _WIDTH == 64 else "llvm.x86.avx2.pshuf.b"
    shuffle = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(wide, [wide, wide]), name
    )
    even = cgutils.alloca_once_value(builder, _fill(half, 0))
    odd = cgutils.alloca_once_value(builder, _fill(half, 0))
    steps = builder.udiv(rows, ir.Constant(rows.type, _WIDTH // LANES))

    def load(address: Any, offset: Any) -> Any:
        return _load(builder, wide, builder.add(address, offset))

    with cgutils.for_range(builder, steps) as loop:
        offset = builder.mul(loop.index, ir.Constant(rows.type, _WIDTH))
        both = load(codes, offset)
        shifted = builder.bitcast(builder.lshr(builder.bitcast(both, half), _fill(half, 4)), wide)
        first = builder.call(shuffle, [load(low, offset), builder.and_(both, _fill(wide, 15))])
        second = builder.call(shuffle, [load(high, offset), builder.and_(shifted, _fill(wide, 15))])
        pair = builder.bitcast(builder.add(first, second), half)
        lower = builder.and_(pair, _fill(half, 255))
        builder.store(builder.add(builder.load(even), lower), even)
        builder.store(builder.add(builder.load(odd), builder.lshr(pair, _fill(half, 8))), odd)

    sums = builder.shuffle_vector(
        _fold(builder, builder.load(even)),
        _fold(builder, builder.load(odd)),
        _make_mask(range(LANES)),
    )
    builder.store(sums, builder.inttoptr(out, sums.type.as_pointer()), align=2)
    return _compare_lanes(builder, builder.icmp_unsigned, sums, cut)


def _fold(builder: Any, sums: Any) -> Any:
    """Add the two rows that a wide register holds. 16 sums are left."""
    if sums.type.count == 16:
        return sums
    halves = [builder.shuffle_vector(sums, sums, _make_mask(range(s, s + 16))) for s in (0, 16)]
    return builder.add(*halves)


@kernel
def _shuffled(blocks: Any, block: int, table: Any, cut: Any, out: Any) -> Any:
    codes = blocks.ctypes.data + block * blocks.strides[0]
    low = table.ctypes.data
    high = low + table.strides[0]
    return _sum_block(codes, low, high, blocks.shape[1], cut, out.ctypes.data)


@kernel
def _plain(blocks: Any, block: int, table: Any, cut: Any, out: Any) -> Any:
    """Do the same without shuffles, for other processors and for tests."""
    for lane in range(LANES):
        total = np.uint16(0)
        for row in range(blocks.shape[1]):
            byte = blocks[block, row, 2 * (lane % 16) + lane // 16]
            total += np.uint16(table[0, row, byte & 15]) + np.uint16(table[1, row, byte >> 4])
        out[lane] = total
    bits = np.uint32(0)
    for lane in range(LANES):
        bits |= np.uint32(out[lane] >= cut) << np.uint32(lane)
    return bits


block_sums: Callable[..., Any] = _shuffled if SHUFFLES else _plain


# --- products and comparisons of floats ------------------------------------------------------


def _make_panel(width: int) -> Any:
    """Make an intrinsic for matrices of `width` columns."""

    @intrinsic
    def add(
        typingctx: Any, row: Any, depth: Any, matrix: Any, stride: Any, bias: Any, out: Any
    ) -> Any:
        """out = bias + sum of row[j] * matrix[j]. Rows of the matrix are `stride` bytes apart."""
        address = types.uintp
        signature = types.void(address, types.intp, address, types.intp, address, address)

        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _emit_panel(builder, ir.VectorType(_FLOAT, width), *arguments)
            return context.get_dummy_value()

        return signature, build

    return add


def _emit_panel(
    builder: Any, panel: Any, row: Any, depth: Any, matrix: Any, stride: Any, bias: Any, out: Any
) -> None:
    """Emit the loop over the rows of the matrix. The sums stay in registers."""
    fused = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(panel, [panel] * 3), f"llvm.fmuladd.v{panel.count}f32"
    )
    total = cgutils.alloca_once_value(builder, _load(builder, panel, bias))
    with cgutils.for_range(builder, depth) as loop:
        at = builder.add(row, builder.mul(loop.index, ir.Constant(depth.type, 4)))
        factor = _broadcast(builder, panel, _load(builder, _FLOAT, at))
        weights = _load(builder, panel, builder.add(matrix, builder.mul(loop.index, stride)))
        builder.store(builder.call(fused, [factor, weights, builder.load(total)]), total)
    builder.store(builder.load(total), builder.inttoptr(out, panel.as_pointer()), align=4)


PANEL, NARROW = 64, 16  # columns that are summed together
add_panel, add_narrow = _make_panel(PANEL), _make_panel(NARROW)


# --- products of bytes -----------------------------------------------------------------------


@intrinsic
def _sum_bytes(typingctx: Any, row: Any, fours: Any, weights: Any, out: Any) -> Any:
    """out[b] = sum of row[j] * weights[j // 4, b, j % 4] for 64 columns b, in 32-bit integers."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _emit_byte_sums(builder, *arguments)
        return context.get_dummy_value()

    return types.void(types.uintp, types.intp, types.uintp, types.uintp), build


def _emit_byte_sums(builder: Any, row: Any, fours: Any, weights: Any, out: Any) -> None:
    """Emit the loop over groups of four bytes. The sums stay in registers."""
    ints = ir.VectorType(_INT, _WIDTH // 4)
    totals = [
        cgutils.alloca_once_value(builder, _fill(ints, 0)) for _ in range(4 * PANEL // _WIDTH)
    ]
    word = fours.type
    with cgutils.for_range(builder, fours) as loop:
        at = builder.add(row, builder.mul(loop.index, ir.Constant(word, 4)))
        four = _broadcast(builder, ints, _load(builder, _INT, at))
        begin = builder.add(weights, builder.mul(loop.index, ir.Constant(word, 4 * PANEL)))
        for part, total in enumerate(totals):
            place = builder.add(begin, ir.Constant(word, part * _WIDTH))
            more = _load(builder, ints, place)
            builder.store(_add_fours(builder, builder.load(total), four, more), total)
    for part, total in enumerate(totals):
        place = builder.add(out, ir.Constant(word, part * _WIDTH))
        builder.store(builder.load(total), builder.inttoptr(place, ints.as_pointer()), align=4)


def _add_fours(builder: Any, total: Any, four: Any, more: Any) -> Any:
    """Add the products of unsigned and signed bytes, four at a time, to 32-bit sums."""
    ints = total.type
    bytes_, shorts = ir.VectorType(_BYTE, 4 * ints.count), ir.VectorType(_SHORT, 2 * ints.count)

    def call(name: str, to: Any, *values: Any) -> Any:
        kind = ir.FunctionType(to, [value.type for value in values])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}")
        return builder.call(function, values)

    if _WIDTH == 64 and "avx512vnni" in _CPU_FEATURES:
        return call("avx512.vpdpbusd.512", ints, total, four, more)
    pairs, fold = ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512")
    if _WIDTH == 32:
        pairs, fold = ("avx2.pmadd.ub.sw", "avx2.pmadd.wd")
    products = call(pairs, shorts, builder.bitcast(four, bytes_), builder.bitcast(more, bytes_))
    return builder.add(total, call(fold, ints, products, _fill(shorts, 1)))


@kernel
def _fast_bytes(rows: Any, i: int, weights: Any, r: int, panel: int, out: Any) -> None:
    row = rows.ctypes.data + i * rows.strides[0]
    begin = weights.ctypes.data + r * weights.strides[0] + panel * weights.strides[1]
    to = out.ctypes.data + i * out.strides[0] + 4 * panel * PANEL
    _sum_bytes(row, weights.shape[2], begin, to)


@kernel
def _plain_bytes(rows: Any, i: int, weights: Any, r: int, panel: int, out: Any) -> None:
    """Do the same without these instructions, for other processors and for tests."""
    for b in range(PANEL):
        total = np.int32(0)
        for four in range(weights.shape[2]):
            for j in range(4):
                total += np.int32(rows[i, 4 * four + j]) * np.int32(weights[r, panel, four, b, j])
        out[i, panel * PANEL + b] = total


byte_sums: Callable[..., Any] = _fast_bytes if SHUFFLES else _plain_bytes


# --- the table of a query --------------------------------------------------------------------


@intrinsic
def piece_values(typingctx: Any, row: Any, codewords: Any, size: Any, bias: Any, out: Any) -> Any:
    """Write bias[j] + sum of row[s] * codewords[s, j] for the 16 codewords of a piece.

    The smallest value is subtracted from all. Return the largest one.
    """
    address = types.uintp

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, codewords, size, bias, out = arguments
        piece = ir.VectorType(_FLOAT, WORDS)
        stride = ir.Constant(size.type, 4 * WORDS)
        _emit_panel(builder, piece, row, size, codewords, stride, bias, out)
        values = _load(builder, piece, out)
        least, most = (_reduce(builder, values, sign) for sign in ("<", ">"))
        raised = builder.fsub(values, _broadcast(builder, piece, least))
        builder.store(raised, builder.inttoptr(out, piece.as_pointer()), align=4)
        return builder.fsub(most, least)

    return types.float32(address, address, types.intp, address, address), build


@intrinsic
def round_piece(typingctx: Any, values: Any, scale: Any, out: Any) -> Any:
    """Scale and round 16 values to at most 127, and write them twice."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, scale, out = arguments
        values = _load(builder, ir.VectorType(_FLOAT, WORDS), at)
        scaled = builder.fmul(values, _broadcast(builder, values.type, scale))
        # A larger value, or NaN, would make a sum that is outside of the histogram of the scan.
        for sign, bound in ((">", 0.0), ("<", float(MOST))):
            limit = ir.Constant(values.type, [bound] * WORDS)
            scaled = builder.select(builder.fcmp_ordered(sign, scaled, limit), scaled, limit)
        half = ir.Constant(values.type, [0.5] * WORDS)
        whole = builder.fptosi(builder.fadd(scaled, half), ir.VectorType(_INT, WORDS))
        small = builder.trunc(whole, ir.VectorType(_BYTE, WORDS))
        twice = builder.shuffle_vector(small, small, _make_mask([*range(WORDS), *range(WORDS)]))
        builder.store(twice, builder.inttoptr(out, twice.type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.uintp, types.float32, types.uintp), build


# --- comparisons -----------------------------------------------------------------------------


@intrinsic
def reaching(typingctx: Any, values: Any, cut: Any) -> Any:
    """Return a bit for each of 32 floats that is at least `cut` or NaN."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = _load(builder, ir.VectorType(_FLOAT, LANES), arguments[0])
        return _compare_lanes(builder, builder.fcmp_unordered, values, arguments[1])

    return types.uint32(types.uintp, types.float32), build


@intrinsic
def lowest_bit(typingctx: Any, bits: Any) -> Any:
    """Return the number of the lowest bit that is set."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint32(types.uint32), build


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Prefetch the cache line of an address that will be read soon."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _BYTE.as_pointer()
        name = "llvm.prefetch.p0"
        kind = ir.FunctionType(ir.VoidType(), [pointer, _INT, _INT, _INT])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        where = builder.inttoptr(arguments[0], pointer)
        builder.call(function, [where, *(ir.Constant(_INT, value) for value in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(types.uintp), build


@inner
def fetch(address: int, size: int) -> None:
    """Prefetch `size` bytes that will be read soon."""
    for line in range(0, size + address % LINE, LINE):
        prefetch(address + line)


# --- helpers that emit LLVM ------------------------------------------------------------------


def _fill(kind: Any, value: int) -> Any:
    return ir.Constant(kind, [value] * kind.count)


def _make_mask(places: Any) -> Any:
    chosen = list(places)
    return ir.Constant(ir.VectorType(_INT, len(chosen)), chosen)


def _load(builder: Any, kind: Any, address: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _broadcast(builder: Any, kind: Any, value: Any) -> Any:
    """Return a vector that holds `value` everywhere."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_INT, 0))
    return builder.shuffle_vector(one, one, _make_mask([0] * kind.count))


def _reduce(builder: Any, values: Any, sign: str) -> Any:
    """Return the smallest ("<") or the largest (">") float of a vector.

    The reductions of LLVM also handle NaN, which takes three times as long.
    """
    while values.type.count > 1:
        half = values.type.count // 2
        low, high = (
            builder.shuffle_vector(values, values, _make_mask(range(start, start + half)))
            for start in (0, half)
        )
        values = builder.select(builder.fcmp_ordered(sign, low, high), low, high)
    return builder.extract_element(values, ir.Constant(_INT, 0))


def _compare_lanes(builder: Any, compare: Any, values: Any, cut: Any) -> Any:
    """Return a bit for each of 32 values that is at least `cut`."""
    return builder.bitcast(compare(">=", values, _broadcast(builder, values.type, cut)), _INT)
