from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from irli.base import data_files
from irli.base import folder as folder_module
from irli.base.folder import (
    Folder,
    changing,
    publish,
    read_folder,
    read_manifest,
    retry_if_replaced,
    write_folder,
    write_part,
)
from irli.base.parts.local import LocalParts
from irli.errors import FormatError, IncompatibleVersion, InvalidParameter

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "routers")
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def sample(seed: int = 0, rows: int = 5) -> Folder:
    rng = np.random.default_rng(seed)
    return Folder(
        kind="vectors",
        meta={"metric": "l2", "seed": seed, "history": [{"loss": 0.5}, {"loss": 0.25}]},
        arrays={
            "ids": np.arange(7),
            "vectors": rng.standard_normal((rows, 4), dtype=np.float32),
        },
        tensors={"0.weight": rng.standard_normal((4, 3)).T, "0.bias": np.full(3, seed, np.float32)},
    )


def same(left: Folder, right: Folder) -> bool:
    def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return a.keys() == b.keys() and all(
            a[key].shape == b[key].shape
            and a[key].dtype.newbyteorder("<") == b[key].dtype.newbyteorder("<")
            and np.array_equal(a[key], b[key], equal_nan=True)
            for key in a
        )

    return (
        (left.kind, left.meta) == (right.kind, right.meta)
        and equal(left.arrays, right.arrays)
        and equal(left.tensors, right.tensors)
    )


def list_files(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()} - {"manifest.json", ".irli.lock"}


def edit_manifest(
    path: Path, change: Callable[[dict[str, Any]], Any], *, seal: bool = True
) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    if seal:
        manifest = folder_module._seal(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    write_folder(tmp_path / "index", sample())
    return tmp_path / "index"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    meta=st.dictionaries(st.text(), JSON, max_size=3),
    arrays=st.dictionaries(NAMES, ARRAYS, max_size=3),
    tensors=st.dictionaries(st.text("ab.0", min_size=1), ARRAYS, max_size=3),
    mmap=st.booleans(),
    verify=st.booleans(),
)
def test_what_is_written_is_read(
    tmp_path: Path, meta: Any, arrays: Any, tensors: Any, mmap: bool, verify: bool
) -> None:
    folder = Folder("vectors", meta, arrays, tensors)
    write_folder(tmp_path, folder)
    assert same(read_folder(tmp_path, mmap=mmap, verify=verify), folder)


def test_any_memory_order_is_stored_in_c_order(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.int32).reshape(4, 6)
    views = {"transposed": base.T, "strided": base[::2, ::-1], "fortran": np.asfortranarray(base)}
    write_folder(tmp_path, Folder("vectors", {}, views, views))
    read = read_folder(tmp_path)
    assert same(read, Folder("vectors", {}, views, views))
    assert all(array.flags.c_contiguous for array in read.arrays.values())


def test_arrays_are_plain_npy_files_and_may_span_many_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "_CHUNK", 100)
    write_folder(tmp_path, sample(rows=50))
    file = read_manifest(tmp_path)["files"]["vectors"]["file"]
    np.testing.assert_array_equal(np.load(tmp_path / file), sample(rows=50).arrays["vectors"])


def test_arrays_are_mapped_read_only(index: Path) -> None:
    vectors = read_folder(index).arrays["vectors"]
    assert isinstance(vectors, np.memmap)
    assert not vectors.flags.writeable
    assert vectors.ctypes.data % 64 == 0
    assert not isinstance(read_folder(index, mmap=False).arrays["vectors"], np.memmap)


def test_the_format_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "package_version", lambda: "0.1.0")
    write_folder(
        tmp_path,
        Folder(
            "vectors",
            {"metric": "l2", "name": "tiny é"},
            {"ids": np.arange(2), "vectors": np.ones((2, 3), np.float32)},
            {"weight": np.eye(2, dtype=np.float32)},
        ),
    )
    assert (tmp_path / "manifest.json").read_text() == GOLDEN
    for entry in read_manifest(tmp_path)["files"].values():
        content = (tmp_path / entry["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"]
        assert len(content) == entry["bytes"]


GOLDEN = """\
{
  "checksum": "e23542d98d50c52b71e4ec2b6abd6f13352e2386e17b4ed773b0976c0a386d46",
  "files": {
    "ids": {
      "bytes": 144,
      "dtype": "<i8",
      "file": "ids.f038149f1c16dc9a.npy",
      "sha256": "f038149f1c16dc9ab177aedf46ce316060b06d80d7873dcc760419850cb88bd1",
      "shape": [
        2
      ]
    },
    "routers": {
      "bytes": 88,
      "file": "routers.02ba2825828e07fc.safetensors",
      "sha256": "02ba2825828e07fcd7d5d3d628077aa4848a8e460098d4ec6f4b6d9160c953d2"
    },
    "vectors": {
      "bytes": 152,
      "dtype": "<f4",
      "file": "vectors.6c09893c36373f9c.npy",
      "sha256": "6c09893c36373f9c4d40bc35ab93f6940c0fbe880469b4000f5b36c478c5a717",
      "shape": [
        2,
        3
      ]
    }
  },
  "format": "irli-index",
  "irli": "0.1.0",
  "kind": "vectors",
  "meta": {
    "metric": "l2",
    "name": "tiny \\u00e9"
  },
  "parts": [],
  "version": 1
}
"""


def test_a_new_save_replaces_the_old_one_and_cleans_up(index: Path) -> None:
    write_folder(index, sample(1))
    assert same(read_folder(index), sample(1))
    assert list_files(index) == {e["file"] for e in read_manifest(index)["files"].values()}


def test_unchanged_files_are_not_written_again(index: Path) -> None:
    def identity(name: str) -> tuple[int, int]:
        status = (index / read_manifest(index)["files"][name]["file"]).stat()
        return status.st_ino, status.st_mtime_ns

    before = {name: identity(name) for name in ("ids", "vectors", "routers")}
    folder = sample()
    folder.arrays["vectors"][0] = 0
    write_folder(index, folder)
    after = {name: identity(name) for name in before}
    assert [name for name in before if before[name] != after[name]] == ["vectors"]


def test_a_save_repairs_a_damaged_file(index: Path) -> None:
    file = index / read_manifest(index)["files"]["vectors"]["file"]
    file.write_bytes(bytes(file.stat().st_size))
    write_folder(index, sample())
    assert same(read_folder(index), sample())


def test_saving_over_the_folder_that_is_mapped(index: Path) -> None:
    opened = read_folder(index)
    mapped = opened.arrays["vectors"]
    backwards = Folder("vectors", {}, {"vectors": mapped[::-1], "ids": opened.arrays["ids"]}, {})
    write_folder(index, backwards)
    np.testing.assert_array_equal(mapped, sample().arrays["vectors"])
    np.testing.assert_array_equal(read_folder(index).arrays["vectors"], mapped[::-1])


def test_files_of_others_in_an_index_folder_stay(index: Path) -> None:
    for name in ("notes.txt", "vectors.npy", "manifest.json.bak"):
        (index / name).write_text("mine")
    write_folder(index, sample(1))
    assert {"notes.txt", "vectors.npy", "manifest.json.bak"} <= list_files(index)


@pytest.mark.parametrize("content", ['{"name": "my web app"}', "no json"])
def test_a_strangers_folder_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    (tmp_path / "vectors.0123abcd.npy").write_text("mine")
    with pytest.raises(InvalidParameter, match="Choose another path"):
        write_folder(tmp_path, sample())
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "manifest.json",
        "vectors.0123abcd.npy",
    ]


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidParameter, match="is a file"):
        write_folder(tmp_path / "file", sample())
    with pytest.raises(InvalidParameter, match="must name a place to write to"):
        write_folder(tmp_path / "file" / "index", sample())
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "meta", [{"loss": float("nan")}, {"n": np.int64(3)}, {"shape": (1, 2)}, {1: 2}]
)
def test_meta_must_be_json(tmp_path: Path, meta: dict[Any, Any]) -> None:
    with pytest.raises(InvalidParameter, match="must be plain JSON"):
        write_folder(tmp_path / "index", Folder("vectors", meta, {}, {}))
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("name", ["routers", "../x", "A", "", "a.b"])
def test_names_of_arrays_must_be_simple(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidParameter, match="name of an array"):
        write_folder(tmp_path, Folder("vectors", {}, {name: np.ones(2)}, {}))


@pytest.mark.parametrize("dtype", [object, "U3", np.complex64, np.longdouble, "f4,i4"])
def test_only_plain_numbers_are_stored(tmp_path: Path, dtype: Any) -> None:
    array = np.zeros(2, dtype)
    for arrays, tensors in (({"x": array}, {}), ({"x": np.ones(2)}, {"x": array})):
        with pytest.raises(InvalidParameter, match="'x' must hold"):
            write_folder(tmp_path, Folder("vectors", {}, arrays, tensors))


def test_a_path_without_an_index(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FormatError, match="does not exist"):
        read_folder(tmp_path / "missing")
    with pytest.raises(FormatError, match="is a file"):
        read_folder(tmp_path / "file")
    with pytest.raises(FormatError, match=r"has no manifest\.json"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"format": NaN}', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[1, 2]", "belongs to something else"),
        (b'{"format": "other"}', "belongs to something else"),
        (b'{"format": "irli-index", "version": 1}', "has been edited"),
    ],
)
def test_a_manifest_that_is_not_ours(index: Path, content: bytes, message: str) -> None:
    (index / "manifest.json").write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read_manifest(index)


def test_an_edited_manifest_is_noticed(index: Path) -> None:
    edit_manifest(index, lambda manifest: manifest["meta"].update(metric="ip"), seal=False)
    with pytest.raises(FormatError, match="has been edited"):
        read_folder(index)


@pytest.mark.parametrize("seal", [True, False])
def test_a_newer_version_asks_for_an_upgrade(index: Path, seal: bool) -> None:
    edit_manifest(index, lambda manifest: manifest.update(version=3, files=[]), seal=seal)
    with pytest.raises(IncompatibleVersion, match="Upgrade irli"):
        read_folder(index)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(version=0),
        lambda m: m.update(version="1"),
        lambda m: m.update(version=2),
        lambda m: m.update(version=True),
        lambda m: m.update(store={"name": "store.0123456789abcdef", "applied": 0}),
        lambda m: m.update(version=2, store={"name": "../store", "applied": 0}),
        lambda m: m.update(version=2, store={"name": "store.0123456789abcdef", "applied": -1}),
        lambda m: m.update(version=2, store={"name": "store.0123456789abcdef"}),
        lambda m: m.update(version=None),
        lambda m: m.update(kind=3),
        lambda m: m.update(meta=[]),
        lambda m: m.update(files=[]),
        lambda m: m["files"].update(vectors=3),
        lambda m: m["files"]["vectors"].pop("sha256"),
        lambda m: m["files"]["vectors"].update(bytes="many"),
        lambda m: m["files"]["vectors"].update(dtype="|O"),
        lambda m: m["files"]["vectors"].update(shape=[-5, -4]),
        lambda m: m["files"]["vectors"].update(file="../x"),
        lambda m: m["files"]["vectors"].update(file="/etc/passwd"),
        lambda m: m["files"]["vectors"].update(file="../vectors.0123abcd.npy"),
        lambda m: m["files"]["routers"].update(file="/routers.0123abcd.safetensors"),
    ],
)
def test_a_malformed_manifest_is_refused(index: Path, change: Callable[[Any], Any]) -> None:
    edit_manifest(index, change)
    with pytest.raises(FormatError, match="does not follow format version"):
        read_manifest(index)


@pytest.mark.parametrize("name", ["ids", "vectors", "routers"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_missing_or_truncated_file_is_noticed(index: Path, name: str, verify: bool) -> None:
    file = index / read_manifest(index)["files"][name]["file"]
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(FormatError, match=f"{file.name} has .* bytes instead of"):
        read_folder(index, verify=verify)
    file.unlink()
    with pytest.raises(FormatError, match=f"{file.name} is missing"):
        read_folder(index, verify=verify)


def test_any_flipped_byte_is_noticed(index: Path) -> None:
    for file in sorted(index.iterdir()):
        content = file.read_bytes()
        for position in range(0, len(content), 7):
            damaged = bytearray(content)
            damaged[position] ^= 1
            file.write_bytes(damaged)
            with pytest.raises(FormatError):
                read_folder(index)
        file.write_bytes(content)
    assert same(read_folder(index), sample())


def test_a_damaged_header_is_noticed_without_checksums(index: Path) -> None:
    file = index / read_manifest(index)["files"]["vectors"]["file"]
    content = file.read_bytes()
    for position in range(128):
        damaged = bytearray(content)
        damaged[position] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(FormatError, match=r"is not a \.npy file of float32 \[5, 4\]"):
            read_folder(index, verify=False)


def test_damaged_routers_are_noticed_without_checksums(index: Path) -> None:
    file = index / read_manifest(index)["files"]["routers"]["file"]
    file.write_bytes(b"\xff" * file.stat().st_size)
    with pytest.raises(FormatError, match="not a safetensors file"):
        read_folder(index, verify=False)


@pytest.mark.parametrize("change", [{"dtype": "<i4"}, {"shape": [4, 5]}, {"shape": [5, 400]}])
def test_a_header_that_disagrees_with_the_manifest(index: Path, change: dict[str, Any]) -> None:
    edit_manifest(index, lambda manifest: manifest["files"]["vectors"].update(change))
    with pytest.raises(FormatError, match=r"is not a \.npy file of"):
        read_folder(index)


def test_pickle_is_never_loaded(index: Path) -> None:
    entry = read_manifest(index)["files"]["vectors"]
    np.save(index / entry["file"], np.array([{"a": 1}], object), allow_pickle=True)
    content = (index / entry["file"]).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    change = {"bytes": len(content), "sha256": digest}
    edit_manifest(index, lambda manifest: manifest["files"]["vectors"].update(change))
    with pytest.raises(FormatError, match=r"is not a \.npy file of"):
        read_folder(index)


# --- parts -----------------------------------------------------------------------------------


def whole(parts: list[str], removed: int = 0) -> Folder:
    """Return an index in parts, and a mask of removed rows, which are no part of its parts."""
    return Folder("shards", {"removed": removed}, {"removed": np.arange(9) < removed}, {}, parts)


def save_parts(path: Path, seeds: list[int], removed: int = 0) -> list[Path]:
    with changing(path):
        parts = [write_part(path, sample(seed, rows=50)) for seed in seeds]
        publish(path, whole(parts, removed))
    return [path / part for part in parts]


def identities(path: Path) -> dict[str, tuple[int, int]]:
    """Return which file each is, and when it was written."""
    found = {file.name: file.stat() for file in path.iterdir()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}


def test_an_index_has_parts_that_are_read_by_themselves(tmp_path: Path) -> None:
    parts = save_parts(tmp_path, [0, 1], removed=3)
    read = read_folder(tmp_path)
    assert [tmp_path / part for part in read.parts] == parts
    assert read.arrays["removed"].sum() == 3
    for seed, part in enumerate(parts):
        assert same(read_folder(part), sample(seed, rows=50))
        assert read_folder(part).parts == []


def test_a_new_version_shares_the_parts_that_stay(tmp_path: Path) -> None:
    old = save_parts(tmp_path, [0, 1])
    before = identities(tmp_path)
    new = save_parts(tmp_path, [0, 1, 2], removed=4)
    assert new[:2] == old
    after = identities(tmp_path)
    changed = {name for name in before if after.get(name) != before[name]}
    assert {name for name in changed if "lock" not in name} == {
        "manifest.json",
        read_removed(before),
    }
    assert save_parts(tmp_path, [2]) == new[2:]
    for part in old:
        assert not part.exists()
    files = read_manifest(new[2])["files"] | read_manifest(tmp_path)["files"]
    kept = {entry["file"] for entry in files.values()} | {new[2].name}
    assert list_files(tmp_path) == kept  # those of the other parts were swept


def read_removed(names: dict[str, Any]) -> str:
    return next(name for name in names if name.startswith("removed."))


def test_a_part_that_is_not_published_is_swept(tmp_path: Path) -> None:
    save_parts(tmp_path, [0])
    before = list_files(tmp_path)
    with changing(tmp_path):
        write_part(tmp_path, sample(1))
    assert list_files(tmp_path) == before


@pytest.mark.parametrize("damage", ["remove", "exchange", "edit", "nest"])
def test_a_part_holds_what_its_name_says(tmp_path: Path, damage: str) -> None:
    one, two = save_parts(tmp_path, [0, 1])
    if damage == "remove":
        one.unlink()
    elif damage == "exchange":
        one.write_bytes(two.read_bytes())
    else:
        manifest = json.loads(one.read_text())
        manifest["meta" if damage == "edit" else "parts"] = {} if damage == "edit" else [two.name]
        one.write_text(json.dumps(folder_module._seal(manifest)))
    with pytest.raises(FormatError, match=rf"damaged: {one.name} (is missing|does not hold)"):
        read_folder(one)
    names = list_files(tmp_path)
    write_folder(tmp_path, whole([one.name, two.name]))
    assert names <= list_files(tmp_path)  # what a part that cannot be read needs is kept


def test_parts_are_named_in_the_folder_only(index: Path) -> None:
    for parts in ([3], ["../part.0123456789abcdef.json"], ["manifest.json"], {}, "part"):
        edit_manifest(index, lambda manifest, parts=parts: manifest.update(parts=parts))
        with pytest.raises(FormatError, match="does not follow format version"):
            read_manifest(index)


def test_a_new_version_opens_its_new_parts_only(tmp_path: Path) -> None:
    opened: list[str] = []

    def open_part(path: str, mmap: bool, verify: bool) -> Box:
        opened.append(path)
        return Box(read_folder(path, mmap=mmap, verify=verify))

    old = save_parts(tmp_path, [0, 1, 2])
    first = LocalParts(old, open_part, mmap=True, verify=True)
    new = save_parts(tmp_path, [0, 3, 2])
    second = LocalParts(new, open_part, mmap=True, verify=True)
    assert opened == [str(part) for part in (*old, new[1])]
    assert [second.parts[n] is first.parts[n] for n in range(3)] == [True, False, True]
    copied = shutil.copytree(tmp_path, tmp_path / "copy")
    LocalParts([copied / new[1].name], open_part, mmap=True, verify=True)
    assert len(opened) == 5  # what is elsewhere may be damaged
    del first, second
    LocalParts(new, open_part, mmap=True, verify=True)
    assert len(opened) == 8


class Box:
    """Something that holds a folder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder


def test_a_crash_at_any_step_leaves_the_old_parts_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, outcomes = save_parts(tmp_path, [0, 1]), []
    for step in range(1, 100):
        with monkeypatch.context() as patch:
            die_at(patch, step)
            try:
                new = save_parts(tmp_path, [1, 2], removed=2)
            except Crash:
                finished = False
            else:
                finished = True
        whole = read_folder(tmp_path)
        outcomes.append(whole.meta["removed"])
        assert whole.arrays["removed"].sum() == outcomes[-1]
        seeds = [1, 2] if outcomes[-1] else [0, 1]
        for seed, part in zip(seeds, whole.parts, strict=True):
            assert same(read_folder(tmp_path / part), sample(seed, rows=50))
        if finished:
            break
        assert save_parts(tmp_path, [0, 1]) == old
    assert new[0] == old[1]
    # 2 data files, a part, the mask, the folder, the manifest, the folder; then 4 old files.
    assert sorted(outcomes) == outcomes
    assert 0 < outcomes.index(2) < len(outcomes) - 1


def test_readers_of_parts_see_one_version_or_another(tmp_path: Path) -> None:
    versions = [[0, 1], [1, 2], [2, 3]]
    save_parts(tmp_path, versions[0])
    failures: list[BaseException] = []
    done = threading.Event()

    def load() -> list[int]:
        whole = read_folder(tmp_path, verify=False)
        parts = [read_folder(tmp_path / part, verify=False) for part in whole.parts]
        return [part.meta["seed"] for part in parts]

    def read() -> None:
        try:
            while not done.is_set():
                assert retry_if_replaced(tmp_path, load) in versions
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(40):
        save_parts(tmp_path, versions[turn % 3])
    done.set()
    for reader in readers:
        reader.join()
    assert not failures


def test_what_is_damaged_is_not_tried_for_ever(tmp_path: Path) -> None:
    (part,) = save_parts(tmp_path, [0])
    part.unlink()
    with pytest.raises(FormatError, match="is missing"):
        retry_if_replaced(tmp_path, lambda: read_folder(part))


# --- what is mapped already --------------------------------------------------------------------


def count(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Note the calls of a function of the module."""
    calls: list[Any] = []
    function = getattr(data_files, name)
    monkeypatch.setattr(data_files, name, lambda *a: (calls.append(a), function(*a))[1])
    return calls


def test_a_file_is_mapped_and_verified_once(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = count(monkeypatch, "_verify")
    quick = read_folder(index, verify=False)
    assert len(verified) == 0
    first = read_folder(index)
    assert len(verified) == 3
    second = read_folder(index)
    assert len(verified) == 4  # the routers are read again
    for name, array in first.arrays.items():
        assert quick.arrays[name] is array is second.arrays[name]
    del quick, first, second, array
    read_folder(index)
    assert len(verified) == 7


def test_damage_to_a_mapped_file_is_noticed(index: Path) -> None:
    opened = read_folder(index)
    file = index / read_manifest(index)["files"]["vectors"]["file"]
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(0, 0))
    with pytest.raises(FormatError, match="does not match its checksum"):
        read_folder(index)
    write_folder(index, Folder("vectors", {}, {"vectors": np.array(opened.arrays["vectors"])}, {}))
    assert read_manifest(index)["files"]["vectors"]["file"] != file.name


def test_what_is_mapped_is_neither_hashed_nor_written(
    index: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = read_folder(index)
    views = {name: array.view()[...] for name, array in opened.arrays.items()}
    hashed = count(monkeypatch, "_iterate_npy")
    write_folder(index, Folder("vectors", {"tuned": 1}, views, {}))
    assert not hashed
    assert read_manifest(index)["meta"] == {"tuned": 1}
    halves = {"vectors": views["vectors"][:2], "ids": views["ids"].view(np.uint64)}
    write_folder(index, Folder("vectors", {}, halves, {}))  # not the whole file, or as other type
    assert same(read_folder(index), Folder("vectors", {}, halves, {}))
    write_folder(tmp_path / "new", opened)  # in another folder it is another file
    assert same(read_folder(tmp_path / "new"), sample())


class Crash(BaseException):
    """The process dies here."""


def die_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let every change of the disk from the ``step``-th on fail, also those that clean up."""
    done = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            done += 1
            if done >= step:
                raise Crash
            return function(*args, **kwargs)

        return call

    for module, name in ((os, "replace"), (os, "fsync"), (Path, "unlink")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))


def test_a_crash_at_any_step_leaves_the_old_index_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path, sample(0))
    outcomes = []
    for step in range(1, 100):
        with monkeypatch.context() as patch:
            die_at(patch, step)
            try:
                write_folder(tmp_path, sample(1))
            except Crash:
                finished = False
            else:
                finished = True
        outcomes.append(int(read_folder(tmp_path).meta["seed"]))
        assert same(read_folder(tmp_path), sample(outcomes[-1]))
        if finished:
            break
        write_folder(tmp_path, sample(0))
        assert len(list_files(tmp_path)) == 3
    # 2 data files, the folder, the manifest and the folder again; then 2 old files to remove.
    assert outcomes == [0] * 7 + [1] * 4


def test_a_first_save_that_crashed_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 9):
        with monkeypatch.context() as patch:
            die_at(patch, step)
            with pytest.raises(Crash):
                write_folder(tmp_path / str(step), sample())
        with pytest.raises(FormatError, match=r"has no manifest\.json|does not exist"):
            read_folder(tmp_path / str(step))
        write_folder(tmp_path / str(step), sample())
        assert same(read_folder(tmp_path / str(step)), sample())
        assert len(list_files(tmp_path / str(step))) == 3


@pytest.mark.parametrize("failing", ["vectors", "routers", "folder", "manifest"])
def test_a_full_disk_leaves_the_old_index_and_nothing_else(
    index: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    before = list_files(index)
    synced = iter(["vectors", "routers", "folder", "manifest"])

    def fsync(_: int) -> None:
        if next(synced) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        write_folder(index, sample(1))
    assert list_files(index) == before
    assert same(read_folder(index), sample())


def test_readers_during_saves_see_one_index_or_another(tmp_path: Path) -> None:
    folders = [sample(seed, rows=200) for seed in range(3)]
    write_folder(tmp_path, folders[0])
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                folder = read_folder(tmp_path, verify=False)
                assert same(folder, folders[folder.meta["seed"]])
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(30):
        write_folder(tmp_path, folders[turn % 3])
    done.set()
    for reader in readers:
        reader.join()
    assert not failures


def test_saves_at_the_same_time_never_mix(tmp_path: Path) -> None:
    folders = [sample(seed, rows=50) for seed in range(4)]
    failures: list[BaseException] = []

    def save(folder: Folder) -> None:
        try:
            for _ in range(10):
                write_folder(tmp_path, folder)
                read = read_folder(tmp_path)
                assert same(read, folders[read.meta["seed"]])
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=save, args=[folder]) for folder in folders]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failures
    assert len(list_files(tmp_path)) == 3


def test_a_reader_starts_over_when_a_save_comes_between(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = folder_module.read_manifest
    saves = iter([sample(1), sample(2)])

    def slow(path: Path) -> dict[str, Any]:
        manifest = original(path)
        with monkeypatch.context() as patch:
            patch.setattr(folder_module, "read_manifest", original)
            for folder in saves:
                write_folder(path, folder)
                break
        return manifest

    monkeypatch.setattr(folder_module, "read_manifest", slow)
    assert same(read_folder(index), sample(2))
