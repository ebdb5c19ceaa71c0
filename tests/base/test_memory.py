from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from irli.base.memory import release_pages


def resident(path: Path) -> int:
    """The bytes of a mapped file that are in the memory of this process."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if line.endswith(str(path))]
    sizes = [next(line for line in lines[at:] if line.startswith("Rss:")) for at in starts]
    return sum(1024 * int(line.split()[1]) for line in sizes)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="looks into /proc")
@pytest.mark.parametrize("view", [lambda x: x, np.asarray, lambda x: np.asarray(x)[5:, 1:]])
def test_what_was_read_is_given_back_and_can_be_read_again(view, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
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


def test_other_arrays_are_left_alone() -> None:
    for other in (np.ones(3), np.ones((4, 4))[1:], None, "text"):
        release_pages(other)
