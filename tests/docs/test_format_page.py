"""The page on the index folder lists what `save` writes: names, dtypes, shapes and fields."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from pages import DOCS, bare, section, table

import irli
from irli.cluster import ShardedIndex, ShardedLabelIndex

PAGE = DOCS / "reference" / "format.md"
SECTIONS = {
    "vectors": "## Vectors",
    "labels": "## Labels",
    "shards": "## Shards",
    "label-shards": "## Label shards",
}
Row = tuple[str, str]  # dtype and shape


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Return folders of each kind that together have every array."""
    root = tmp_path_factory.mktemp("folders")
    made: dict[str, list[Path]] = {kind: [] for kind in SECTIONS}
    for number, (kind, index) in enumerate(_indexes()):
        made[kind].append(root / f"{number}")
        index.save(made[kind][-1])
    return made


def _indexes() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(0)
    short: dict[str, Any] = {"epochs": 1, "epoch_size": 512}
    wide, narrow = rng.normal(size=(600, 130)), rng.normal(size=(400, 9))
    for metric, X, changes in (
        ("l2", wide, {"pieces": 8}),
        ("cosine", wide, {"pieces": 8, "repetitions": 2}),
        ("l2", narrow, {"scoring": "full"}),
    ):
        yield "vectors", irli.VectorIndex(metric, recipe=irli.recipe(**short, **changes)).fit(X)
    wants = np.arange(len(narrow))[:, None]
    index = irli.VectorIndex(recipe=irli.recipe("relevance", **short))
    yield "vectors", index.fit(narrow, queries=narrow + 0.1, relevance=wants)
    words = [f"item {i}" for i in range(len(narrow))]
    yield "vectors", irli.VectorIndex(recipe="exact").fit(narrow, ids=words)
    changed = irli.VectorIndex(recipe="exact").fit(narrow)
    changed.add(narrow[:3] + 1)
    yield "vectors", changed
    counts = ["one", "two", "three", "four"]
    texts = [f"{a} {b}" for a in counts for b in counts for _ in range(3)]
    named = [text.split() for text in texts]
    index = irli.LabelIndex(irli.recipe("labels", epochs=1))
    yield "labels", index.fit_text(texts, named, titles={"one": "1"})
    carried = np.arange(600) % 20
    rows = np.eye(20)[carried] + 0.1 * rng.random((600, 20))
    buckets = irli.recipe("labels", epochs=1, buckets=5, repetitions=2)
    for ranker in (True, False):
        index = irli.LabelIndex(buckets, ranker=ranker)
        yield "labels", index.fit(rows, np.eye(20)[carried])
    recipe = irli.recipe(**short)
    sharded_vectors = ShardedIndex("l2", recipe=recipe, shards=2)
    yield "shards", sharded_vectors.fit(narrow, ids=words, queries=narrow + 0.1)
    names = [f"label {i}" for i in range(20)]
    sharded = ShardedLabelIndex(irli.recipe("labels", epochs=1), shards=2)
    yield "label-shards", sharded.fit(rows, np.eye(20)[carried], names=names)
    sharded = ShardedLabelIndex(irli.recipe("labels", epochs=1), shards=2)
    yield "label-shards", sharded.fit_text(texts, named, titles={"one": "1"})


def _manifest(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return manifest


def _arrays(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    files = _manifest(folder)["files"]
    return {
        name: np.load(folder / entry["file"]) for name, entry in files.items() if name != "routers"
    }


def _tensors(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    entry = _manifest(folder)["files"].get("routers")
    return {} if entry is None else safetensors.numpy.load_file(folder / entry["file"])


def _listed(kind: str, what: str) -> dict[str, Row]:
    """Return the rows of a table of arrays or tensors of a kind: name to dtype and shape."""
    text = section(PAGE, SECTIONS[kind])
    rows = table(text, what, "dtype", "shape", "meaning")
    return {bare(name): (dtype, shape) for name, dtype, shape, _ in rows}


def _symbols(arrays: dict[str, Any], tensors: dict[str, Any], manifest: Any) -> dict[str, int]:
    """Return what the letters in the shapes stand for in one folder."""
    known = {"L": len(arrays.get("counts", arrays.get("labels", ())))}
    known["P"] = len(manifest["parts"])
    known["N"] = len(arrays.get("id_offsets", (0,))) - 1
    known["D"] = manifest["meta"].get("dim", 0)
    for name, letters in (
        ("vectors", ("N", "d")),
        ("items", ("entries",)),
        ("tuning_queries", ("v", "d")),
        ("tuning_relevant", ("v", "j")),
        ("code_blocks", ("blocks",)),
        ("weights", ("weights",)),
        ("near_weights", ("numbers",)),
        ("near_scale", ("K",)),
        ("near_labels", ("pairs",)),
        ("trained", ("rows",)),
        ("seen", ("taught",)),
        ("names", ("name_bytes",)),
        ("titles", ("title_bytes",)),
        ("words", ("word_bytes",)),
        ("idf", ("D",)),
        ("id_bytes", ("id_bytes",)),
    ):
        known |= dict(zip(letters, arrays[name].shape, strict=False)) if name in arrays else {}
    if tensors:
        known |= dict(zip(("R", "B"), tensors["bias"].shape, strict=True))
        known |= dict(zip(("T", "d", "G"), tensors["project"].shape, strict=True))
    if "code_codewords" in arrays:
        known["M"], size, _ = arrays["code_codewords"].shape
        known["p"] = known["M"] * size
    return known


def _agrees(array: np.ndarray[Any, Any], listed: Row, known: dict[str, int]) -> bool:
    dtype, shapes = listed
    for shape in shapes.split(" or "):
        try:
            wanted = eval(shape, {"__builtins__": {}, "ceil": math.ceil}, known)
        except (NameError, ZeroDivisionError):  # of an array that this kind of index has not
            continue
        if array.dtype == dtype and array.shape == tuple(map(int, wanted)):
            return True
    return False


@pytest.mark.parametrize("kind", SECTIONS)
def test_arrays_are_as_listed(kind: str, folders: dict[str, list[Path]]) -> None:
    listed, seen = _listed(kind, "array"), set()
    for folder in folders[kind]:
        arrays, tensors = _arrays(folder), _tensors(folder)
        known = _symbols(arrays, tensors, _manifest(folder))
        for name, array in arrays.items():
            assert name in listed, f"{name} of kind {kind} is not on the page"
            said = f"{name}: {array.dtype} {array.shape}; the page says {listed[name]} of {known}"
            assert _agrees(array, listed[name], known), said
        seen |= set(arrays)
    assert seen == set(listed)


@pytest.mark.parametrize("kind", ["vectors", "labels"])
def test_tensors_are_as_listed(kind: str, folders: dict[str, list[Path]]) -> None:
    listed = _listed(kind, "tensor")
    for folder in folders[kind]:
        tensors = _tensors(folder)
        assert set(tensors) == set(listed)
        known = _symbols(_arrays(folder), tensors, _manifest(folder))
        for name, array in tensors.items():
            said = f"{name}: {array.dtype} {array.shape}; the page says {listed[name]} of {known}"
            assert _agrees(array, listed[name], known), said


@pytest.mark.parametrize("kind", SECTIONS)
def test_fields_of_meta_are_as_listed(kind: str, folders: dict[str, list[Path]]) -> None:
    rows = table(section(PAGE, SECTIONS[kind]), "field of `meta`", "meaning")
    for folder in folders[kind]:
        assert set(_manifest(folder)["meta"]) == _list_fields(folder, rows)


def _list_fields(folder: Path, rows: list[Row]) -> set[str]:
    """Return the fields that the page gives a folder: some are there only after changes."""
    changed = "store" in _manifest(folder)
    given = {bare(name) for name, meaning in rows if changed or not meaning.startswith("only ")}
    return given - {"columns"}  # no filter has asked for payloads


@pytest.mark.parametrize("kind", SECTIONS)
def test_search_defaults_are_as_listed(kind: str, folders: dict[str, list[Path]]) -> None:
    fields = dict(table(section(PAGE, SECTIONS[kind]), "field of `meta`", "meaning"))
    for name in ("`defaults`", "`calibration`", "`text`"):
        if "`" not in fields.get(name, "") or kind == "shards":
            continue
        for folder in folders[kind]:
            value = _manifest(folder)["meta"][bare(name)]
            for key in value or {}:
                assert f"`{key}`" in fields[name], f"{key} of {name} is not on the page"


def test_the_manifest_is_as_listed(folders: dict[str, list[Path]]) -> None:
    rows = table(section(PAGE, "## manifest.json"), "field", "meaning")
    for paths in folders.values():
        for folder in paths:
            manifest = _manifest(folder)
            assert set(manifest) == _list_fields(folder, rows)
            page = PAGE.read_text()
            version = f"version {manifest['version']}."
            assert f"describes format {version}" in page or f"and format {version}" in page


def test_the_kinds_are_as_listed(folders: dict[str, list[Path]]) -> None:
    for kind, paths in folders.items():
        assert {_manifest(path)["kind"] for path in paths} == {kind}
