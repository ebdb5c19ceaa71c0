"""Folders of format version 1, saved by the irli that wrote it, open under the present names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irli
from irli.base.folder import VERSION, Folder, read_folder, read_manifest, write_folder
from irli.labels.ranking.near_rows import NearRows

FOLDERS = Path(__file__).parents[1] / "data" / "format-1"
VECTORS = ("codes", "int8", "shards")
LABELS = ("features", "texts", "label-shards")
EVERY = (*VECTORS, *LABELS)

ARRAYS = {
    "code_turn": "code_rotation",
    "code_words": "code_codewords",
    "code_start": "code_bias",
    "rounded_bytes": "int8_bytes",
    "rounded_shift": "int8_shift",
    "rounded_step": "int8_step",
    "rounded_lengths": "int8_lengths",
    "held_queries": "tuning_queries",
    "held_rows": "tuning_rows",
    "held": "tuning_queries",
}
TENSORS = {"coarse": "weights"}
SETTINGS = {
    "cut": "probe_cut",
    "lift": "normalize_affinity",
    "keep": "accept",
    "every": "repartition_every",
    "mixes": "mixed_queries",
}


def manifests(path: Path) -> list[Path]:
    """Return the folder itself and those of its shards."""
    return sorted(file.parent for file in path.rglob("manifest.json"))


def check_answers(index: Any, name: str) -> None:
    """Compare with what the irli that wrote the folder has answered."""
    with np.load(FOLDERS / f"{name}.npz") as known:
        asks = json.loads(str(known["asks"]))
        for number, ask in enumerate(asks):
            if name in VECTORS:
                found = index.search(known["queries"], 5, **ask, threads=1)
                numbers, wanted = found.distances, known[f"distances_{number}"]
                np.testing.assert_array_equal(found.ids, known[f"ids_{number}"])
            else:
                texts = "texts" in known
                if texts:
                    pytest.importorskip("sklearn")
                rows = index.features(known["texts"].tolist()) if texts else known["rows"]
                found = index.predict(rows, 4, **ask, threads=1)
                odds = known[f"scores_{number}"].astype(np.float64)  # that irli returned log-odds
                numbers, wanted = found.scores, 1 / (1 + np.exp(-odds))
                if hasattr(index, "decision_function"):
                    check_log_odds(index.decision_function(rows, 4, **ask), odds, found.labels)
                np.testing.assert_array_equal(found.labels, known[f"labels_{number}"])
            np.testing.assert_allclose(numbers, wanted, rtol=1e-4, atol=1e-5)
        assert len(asks) >= 2


def check_log_odds(decided: Any, odds: Any, labels: Any) -> None:
    """Compare the log-odds of the labels found."""
    row, place = np.nonzero(labels >= 0)
    found = decided.toarray()[row, labels[row, place]]
    np.testing.assert_allclose(found, odds[row, place], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["features", "texts"])
def test_label_folders_without_near_rows_are_completed(name: str, tmp_path: Path) -> None:
    """Folders of version 2 were first written without the parts that are new."""
    folder = read_folder(FOLDERS / name)
    new = ("near_", "routing_", "ranking_")
    assert not [part for part in folder.arrays if part.startswith(new)]
    write_folder(tmp_path / "early", folder)
    assert read_manifest(tmp_path / "early")["version"] == VERSION == 2
    index = irli.load(tmp_path / "early")
    check_answers(index, name)
    assert index.get_params()["objective"] == "balanced"
    assert index.defaults.near == 0
    assert not index.calibration.own
    index.save(tmp_path / "again")
    written = read_folder(tmp_path / "again")
    assert {part for part in written.arrays if part.startswith(new)} == {
        *(f"near_{part}" for part in NearRows._fields),
        *(f"{use}_{part}" for use in ("routing", "ranking") for part in ("factors", "means")),
    }
    check_answers(irli.load(tmp_path / "again"), name)


def test_there_is_one_of_each_kind() -> None:
    kinds = {read_manifest(FOLDERS / name)["kind"] for name in EVERY}
    assert kinds == {"vectors", "labels", "shards", "label-shards"}
    assert sorted(path.name for path in FOLDERS.iterdir() if path.is_dir()) == sorted(EVERY)


@pytest.mark.parametrize("name", EVERY)
def test_the_files_are_of_version_1(name: str) -> None:
    for folder in manifests(FOLDERS / name):
        assert read_manifest(folder)["version"] == 1


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("mmap", [True, False])
def test_answers_are_those_of_the_irli_that_wrote_it(name: str, mmap: bool) -> None:
    check_answers(irli.load(FOLDERS / name, mmap=mmap), name)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("where", ["elsewhere", "over it"])
def test_saving_it_writes_the_present_version(name: str, where: str, tmp_path: Path) -> None:
    old = shutil.copytree(FOLDERS / name, tmp_path / "old")
    new = old if where == "over it" else tmp_path / "new"
    irli.load(old).save(new)
    manifest = read_manifest(new)
    assert manifest["version"] == VERSION == 2
    assert not set(manifest["files"]) & set(ARRAYS)
    assert not set(manifest["meta"]["recipe"]) & set(SETTINGS)
    if where == "elsewhere":
        assert {read_manifest(folder)["version"] for folder in manifests(new)} == {VERSION}
    names = {path.name.split(".")[0] for path in new.glob("*.npy")}
    assert names == set(manifest["files"]) - {"routers"}  # nothing is left of the old files
    check_answers(irli.load(new), name)


@pytest.mark.parametrize("name", EVERY)
def test_settings_have_their_present_names(name: str) -> None:
    old = json.loads((FOLDERS / name / "manifest.json").read_text())["meta"]["recipe"]
    recipe = irli.load(FOLDERS / name).recipe
    values = {"alone": "one-per-item"}
    for setting, value in old.items():
        assert getattr(recipe, SETTINGS.get(setting, setting)) == values.get(value, value)


@pytest.mark.parametrize("name", VECTORS)
def test_it_can_be_tuned_by_the_queries_that_it_holds(name: str) -> None:
    index = irli.load(FOLDERS / name)
    tuned = index.tune(0.5, k=3)
    assert tuned.recall >= 0.5
    assert index.defaults == tuned.parameters


def test_the_folders_have_every_part_that_was_renamed() -> None:
    arrays, settings = set(), set()
    tensors: set[str] = set()
    for folder in manifests(FOLDERS):
        manifest = read_manifest(folder)
        arrays |= set(manifest["files"])
        settings |= set(manifest["meta"]["recipe"])
        tensors |= set(read_folder(folder).tensors)
    assert set(ARRAYS) <= arrays
    assert set(SETTINGS) <= settings
    assert set(TENSORS.values()) <= tensors


def as_version_1(path: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Path:
    with monkeypatch.context() as patch:
        patch.setattr("irli.base.folder.VERSION", 1)
        write_folder(path, folder)
    return path


def test_every_renamed_part_is_read_under_its_present_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = {old: new for old, new in ARRAYS.items() if old != "held"}
    old = Folder(
        "vectors",
        {
            "recipe": {name: n for n, name in enumerate(SETTINGS)} | {"start": "alone", "seed": 3},
            "fusion": {"weight": 1.0},
            "metric": "l2",
        },
        {name: np.full(2, n) for n, name in enumerate([*renamed, "ids"])},
        {name: np.full(3, n) for n, name in enumerate([*TENSORS, "bias"])},
    )
    found = read_folder(as_version_1(tmp_path, old, monkeypatch))
    settings = {name: n for n, name in enumerate(SETTINGS.values())}
    assert found.meta == {
        "recipe": settings | {"start": "one-per-item", "seed": 3},
        "calibration": {"weight": 1.0},
        "metric": "l2",
    }
    assert {name: array[0] for name, array in found.arrays.items()} == {
        name: n for n, name in enumerate([*renamed.values(), "ids"])
    }
    assert {name: array[0] for name, array in found.tensors.items()} == {
        name: n for n, name in enumerate([*TENSORS.values(), "bias"])
    }


def test_the_present_version_is_read_as_it_is(tmp_path: Path) -> None:
    folder = Folder("vectors", {"fusion": 1}, {"held": np.arange(2)}, {"turn": np.arange(3)})
    write_folder(tmp_path, folder)
    found = read_folder(tmp_path)
    assert (found.meta, set(found.arrays), set(found.tensors)) == (
        {"fusion": 1},
        {"held"},
        {"turn"},
    )
