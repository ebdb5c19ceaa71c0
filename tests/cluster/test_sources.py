"""Vectors in files, of which a shard opens a slice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from planted import clusters

from irli.base.vector_files import write_vectors
from irli.cluster import ShardedIndex
from irli.cluster.build.sources import Source
from irli.errors import DimensionMismatch, FormatError, InvalidParameter

X = clusters(n_per=12, centres=10, dim=6, spread=0.5, seed=1).points


def test_a_source_is_files_one_after_the_other(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X[:50])
    write_vectors(tmp_path / "b.fbin", X[50:51])
    write_vectors(tmp_path / "c.fvecs", X[51:])
    source = Source.of([tmp_path / "a.npy", tmp_path / "b.fbin", tmp_path / "c.fvecs"])
    assert (source.rows, source.dim) == (120, 6)
    for start, stop in ((0, 120), (10, 20), (49, 52), (50, 51), (119, 120)):
        np.testing.assert_array_equal(source.read(start, stop), X[start:stop])
    assert not source.read(3, 50).flags.owndata  # mapped


@pytest.mark.parametrize("name", ["x.npy", "x.fbin"])
def test_a_source_in_an_object_store(tmp_path: Path, name: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    write_vectors(tmp_path / name, X)
    fsspec.filesystem("memory").pipe(f"/{name}", (tmp_path / name).read_bytes())
    source = Source.of([f"memory://{name}", f"file://{tmp_path}/{name}"])
    assert source.rows == 240
    np.testing.assert_array_equal(source.read(100, 140), np.concatenate([X[100:], X[:20]]))


def test_bad_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :5])
    index = ShardedIndex(shards=2)
    with pytest.raises(DimensionMismatch, match=r"6 dimensions.*b\.npy"):
        index.fit([tmp_path / "a.npy", tmp_path / "b.npy"])
    with pytest.raises(InvalidParameter, match="nothing at"):
        index.fit([tmp_path / "a.npy", tmp_path / "c.npy"])
    with pytest.raises(InvalidParameter, match="exist"):
        index.fit("memory://nothing.npy")
    with pytest.raises(InvalidParameter, match="at least one file"):
        Source.of([])
    source = Source.of(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", X[:50])
    with pytest.raises(FormatError, match="when the build began"):
        source.read(0, 60)
