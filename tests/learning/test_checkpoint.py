"""Checkpoints: what is written is read again, and only for what it was learned from."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from conftest import small_default
from planted import random_partition, random_router
from plantedlabels import small_labels
from problems import assert_same_repetitions, vector_task

from irli.errors import FormatError, InvalidParameter
from irli.learning.checkpoint import Checkpoint, open_checkpoint
from irli.learning.repetition import Repetition


def group_of(numbers: list[int], form: str = "plain") -> list[Repetition]:
    """Repetitions on one trunk."""
    sample = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)
    trunk = random_router(5, 7)
    group = []
    for number in numbers:
        router = random_router(5, 7, seed=number)
        router = router._replace(project=trunk.project, shift=trunk.shift)
        if form != "plain":
            router = router.to_int8(sample)
        history = [{"repetition": number, "epoch": 2, "loss": 0.1 + number, "kept": True}]
        group.append(Repetition(router, random_partition(9, 7, 2, seed=number), history))
    return group


@pytest.mark.parametrize("form", ["plain", "int8"])
def test_what_is_saved_is_loaded(tmp_path: Path, form: str) -> None:
    checkpoint = Checkpoint(tmp_path, "mark")
    for numbers in ([0], [3]):
        checkpoint.save(numbers, group_of(numbers, form))
    for numbers in ([3], [0]):
        loaded = checkpoint.load(numbers)
        assert loaded is not None
        assert_same_repetitions(loaded, group_of(numbers, form))
    assert checkpoint.load([1]) is None
    assert len(list(tmp_path.iterdir())) == 2  # nothing else is left


def test_a_shared_trunk_is_saved_once(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "mark")
    group = group_of([0, 1, 2])
    checkpoint.save([0, 1, 2], group)
    [file] = tmp_path.iterdir()
    with np.load(file) as saved:
        trunks = [name for name in saved.files if name.endswith((".project", ".shift"))]
        assert sorted(trunks) == ["0.router.project", "0.router.shift"]
    loaded = checkpoint.load([0, 1, 2])
    assert loaded is not None
    assert_same_repetitions(loaded, group)
    for repetition in loaded:  # which is how an index knows that it is shared
        assert repetition.router.project is loaded[0].router.project
        assert repetition.router.shift is loaded[0].router.shift


def test_another_mark_is_not_used(tmp_path: Path) -> None:
    Checkpoint(tmp_path, "mark").save([0], group_of([0]))
    assert Checkpoint(tmp_path, "another").load([0]) is None
    assert Checkpoint(tmp_path, "mark").load([0]) is not None
    Checkpoint(tmp_path, "another").save([0], group_of([0]))  # and takes its place
    assert Checkpoint(tmp_path, "mark").load([0]) is None


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "other arrays", "fewer"])
def test_a_damaged_file_is_as_good_as_none(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Checkpoint(tmp_path, "mark")
    checkpoint.save([0, 1], group_of([0, 1]))
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    if damage == "other arrays":
        np.savez(file, mark=np.array("mark"), other=np.zeros(3))
    elif damage == "fewer":
        checkpoint.save([0], group_of([0]))
    else:
        parts = {"empty": b"", "cut": whole[: len(whole) // 2], "garbage": b"PK" + whole[9:]}
        file.write_bytes(parts[damage])
    with caplog.at_level(logging.WARNING, logger="irli"):
        assert checkpoint.load([0, 1]) is None
    assert "damaged and is learned again" in caplog.text


def test_a_flipped_byte_never_raises_nor_loads_something_else(tmp_path: Path) -> None:
    """Wherever it is: in an array, the name of one, or in the directory of the file."""
    checkpoint = Checkpoint(tmp_path, "mark")
    right = group_of([0])
    checkpoint.save([0], right)
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    directory = whole.index(b"PK\x01\x02")
    places = [*range(0, directory, 97), *range(directory, len(whole), 5)]
    found = 0
    for at in places:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        loaded = checkpoint.load([0])
        if loaded is not None:  # a date, say
            assert_same_repetitions(loaded, right)
            found += 1
    assert found < 0.5 * len(places)


def test_an_epoch_is_kept_until_its_group_is_finished(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "mark")
    state = {"a": np.arange(3), "b.c": np.zeros((2, 2), dtype=np.float32)}
    assert checkpoint.load_epoch([3]) is None
    checkpoint.save_epoch([3], state)
    loaded = checkpoint.load_epoch([3])
    assert loaded is not None
    assert set(loaded) == set(state)
    for name, value in state.items():
        np.testing.assert_array_equal(loaded[name], value)
    assert checkpoint.load_epoch([2]) is None
    assert Checkpoint(tmp_path, "another").load_epoch([3]) is None
    checkpoint.save([2], group_of([2]))
    assert checkpoint.load_epoch([3]) is not None
    checkpoint.save([3], group_of([3]))
    assert checkpoint.load_epoch([3]) is None


def test_a_flipped_byte_never_loads_another_epoch(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "mark")
    state = {"a": np.arange(30), "b": np.ones(9, dtype=np.float32)}
    checkpoint.save_epoch([0], state)
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    for at in range(0, len(whole), 3):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        loaded = checkpoint.load_epoch([0])
        if loaded is not None:
            assert set(loaded) == set(state)
            for name, value in state.items():
                np.testing.assert_array_equal(loaded[name], value)


def test_without_a_folder_nothing_is_kept() -> None:
    checkpoint = Checkpoint(None, "mark")
    checkpoint.save([0], group_of([0]))
    assert checkpoint.load([0]) is None
    checkpoint.save_epoch([0], {"a": np.arange(3)})
    assert checkpoint.load_epoch([0]) is None


def test_all_repetitions_are_loaded_or_what_is_missing_is_named(tmp_path: Path) -> None:
    recipe = small_default(repetitions=3)
    checkpoint = Checkpoint(tmp_path, "mark")
    for number in (0, 1):
        checkpoint.save([number], group_of([number]))
    both = group_of([0]) + group_of([1])
    assert_same_repetitions(checkpoint.load_all(recipe, before=2), both)
    assert_same_repetitions(checkpoint.load_all(recipe, before=1), both[:1])
    with pytest.raises(FormatError, match=r"repetition-0002\.npz must hold a finished repetition"):
        checkpoint.load_all(recipe)
    shared = small_labels(repetitions=3)
    checkpoint.save([0, 1, 2], group_of([0, 1, 2]))
    assert_same_repetitions(checkpoint.load_all(shared), group_of([0, 1, 2]))


def test_a_checkpoint_is_marked_by_problem_and_recipe(tmp_path: Path) -> None:
    problem, recipe = vector_task(small_default())
    with open_checkpoint(
        tmp_path / "new" / "folder", problem, recipe, [], needed=False
    ) as checkpoint:
        assert checkpoint.mark == problem.fingerprint(recipe)
        assert checkpoint.folder == tmp_path / "new" / "folder"
        assert checkpoint.folder.is_dir()
    with open_checkpoint(None, problem, recipe, [], needed=False) as checkpoint:
        assert checkpoint.folder is None
    with open_checkpoint(None, problem, recipe, [], needed=True) as checkpoint:
        assert checkpoint.folder is not None
        assert checkpoint.folder.is_dir()
    assert not checkpoint.folder.exists()


def test_two_builds_cannot_use_one_checkpoint(tmp_path: Path) -> None:
    problem, recipe = vector_task(small_default())
    with open_checkpoint(tmp_path, problem, recipe, [], needed=False) as checkpoint:
        checkpoint.save([0], group_of([0]))
        refused = pytest.raises(InvalidParameter, match=r"'checkpoint'.*Another build is running")
        with refused, open_checkpoint(tmp_path, problem, recipe, [], needed=False):
            pass
        assert checkpoint.load([0]) is not None
    with open_checkpoint(tmp_path, problem, recipe, [], needed=False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["repetition-0000.npz"]
