"""Folders of format version 1, saved before, open and answer as when they were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_folders import FOLDERS, answer

import irli
from irli.base.folder import VERSION, read_manifest

VECTORS = ("codes", "int8", "shards")
LABELS = ("features", "texts", "label-shards")
EVERY = (*VECTORS, *LABELS)


def list_manifests(path: Path) -> list[dict[str, Any]]:
    """Return the manifests of a folder and of those in it, without what differs by version."""
    found = [read_manifest(file.parent) for file in sorted(path.rglob("manifest.json"))]
    return [{key: each[key] for key in ("format", "kind", "meta", "files")} for each in found]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("mmap", [True, False])
def test_answers_are_those_of_the_irli_that_wrote_it(name: str, mmap: bool) -> None:
    if name == "texts":
        pytest.importorskip("sklearn")
    index = irli.load(FOLDERS / name, mmap=mmap)
    with np.load(FOLDERS / f"{name}.npz") as known:
        asks = json.loads(str(known["asks"]))
        for number, ask in enumerate(asks):
            numbers, found = answer(index, known, ask)
            np.testing.assert_array_equal(found, known[f"found_{number}"])
            np.testing.assert_allclose(numbers, known[f"numbers_{number}"], rtol=1e-4, atol=1e-5)
        assert len(asks) >= 2


@pytest.mark.parametrize("name", ["codes", "shards"])
def test_answers_are_the_neighbours(name: str) -> None:
    index = irli.load(FOLDERS / name)
    with np.load(FOLDERS / f"{name}.npz") as known:
        gaps = known["queries"][:, None] - index.vector(index.ids)
        nearest = index.ids[np.argsort((gaps**2).sum(axis=2), axis=1)[:, :5]]
        assert np.mean(known["found_0"] == nearest) > 0.95


@pytest.mark.parametrize("name", ["features", "label-shards"])
def test_answers_are_the_labels(name: str) -> None:
    with np.load(FOLDERS / f"{name}.npz") as known:
        spoken = known["rows"][:, :27].reshape(len(known["rows"]), 9, 3).sum(axis=2)
        best = known["found_0"][:, 0]
        assert np.mean(spoken[np.arange(len(best)), best] > 0) > 0.9


@pytest.mark.parametrize("name", EVERY)
def test_saving_it_writes_the_same(name: str, tmp_path: Path) -> None:
    """The bytes of a released version stay. Before a release, run tests/make_folders.py."""
    irli.load(FOLDERS / name).save(tmp_path)
    assert list_manifests(tmp_path) == list_manifests(FOLDERS / name)
    assert {read_manifest(FOLDERS / name)["version"]} == {VERSION} == {1}


def test_there_is_one_of_each_kind() -> None:
    kinds = {read_manifest(FOLDERS / name)["kind"] for name in EVERY}
    assert kinds == {"vectors", "labels", "shards", "label-shards"}
    assert sorted(path.name for path in FOLDERS.iterdir() if path.is_dir()) == sorted(EVERY)


@pytest.mark.parametrize("name", VECTORS)
def test_it_can_be_tuned_by_the_queries_that_it_holds(name: str) -> None:
    index = irli.load(FOLDERS / name)
    tuned = index.tune(0.5, k=3)
    assert tuned.recall >= 0.5
    assert index.defaults == tuned.parameters
