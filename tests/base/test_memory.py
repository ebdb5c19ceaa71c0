from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from irli.base.memory import (
    LINE,
    align,
    align_fields,
    empty_at_line,
    release_pages,
)


def resident(path: Path) -> int:
    """The bytes of a mapped file that are in the memory of this process."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if line.endswith(str(path))]
    sizes = [next(line for line in lines[at:] if line.startswith("Rss:")) for at in starts]
    return sum(1024 * int(line.split()[1]) for line in sizes)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="looks into /proc")
@pytest.mark.parametrize("view", [lambda x: x, np.asarray, lambda x: np.asarray(x)[5:, 1:]])
def test_what_was_read_is_given_back_and_can_be_read_again(
    view: Callable[[Any], Any], tmp_path: Path
) -> None:
    path = tmp_path / "array.npy"
    np.save(path, np.arange(1 << 20, dtype=np.float32).reshape(-1, 64))
    array = np.load(path, mmap_mode="r")
    total = array.sum(dtype=np.float64)
    assert resident(path) > 1 << 21
    release_pages(view(array))
    assert resident(path) < 1 << 20
    assert array.sum(dtype=np.float64) == total


@pytest.mark.parametrize("mode", ["c", "r+"])
def test_what_was_written_stays(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    np.save(path, np.zeros(1 << 16))
    array = np.load(path, mmap_mode=mode)
    array[:] = 1
    release_pages(array)
    assert (array == 1).all()


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[1:], lambda x: x.T])
def test_arrays_in_memory_are_left_alone(view: Callable[[Any], Any]) -> None:
    array = np.arange(16.0).reshape(4, 4)
    release_pages(view(array))
    np.testing.assert_array_equal(array, np.arange(16.0).reshape(4, 4))


@pytest.mark.parametrize("shape", [(), (5,), (3, 7)])
@pytest.mark.parametrize("dtype", ["i1", "f4", "f8"])
def test_empty_arrays_start_at_a_cache_line(shape: tuple[int, ...], dtype: str) -> None:
    array = empty_at_line(shape, dtype)
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert array.ctypes.data % LINE == 0
    assert array.flags.c_contiguous


def test_only_an_array_off_the_line_is_copied() -> None:
    right = empty_at_line((4, 16), np.float32)
    right[:] = 1
    assert align(right) is right
    shifted = empty_at_line((17,), np.float32)[1:]
    shifted[:] = np.arange(16)
    for wrong in (shifted, right.T):
        moved = align(wrong)
        assert moved.ctypes.data % LINE == 0
        assert not np.shares_memory(moved, wrong)
        np.testing.assert_array_equal(moved, wrong)


def test_kernels_get_read_only_views() -> None:
    class Part(NamedTuple):
        weights: Any
        count: int

    weights = align(np.arange(32.0))
    fields = align_fields(Part(weights, 3))
    assert fields["count"] == 3
    assert np.shares_memory(fields["weights"], weights)
    with pytest.raises(ValueError, match="read-only"):
        fields["weights"][0] = 1
    weights[0] = 5  # the owner still may
    assert fields["weights"][0] == 5
