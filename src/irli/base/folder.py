"""Read and write index folders: a manifest over files that never change.

An array is an `.npy` file that is named by its content. The routers are one safetensors file. A
manifest describes the files, and holds plain values. `manifest.json` is that of the whole index. It
may name parts, as a sharded index does: a part is another manifest, itself named by its content, in
the same folder. So a new version of an index shares with the old one, by name, all that is the
same, and a save writes the rest. What differs between versions of a part, such as a mask of removed
rows, is an array of the whole.

Replacing ``manifest.json`` makes a version the current one. At any moment, also after a crash, a
reader finds the old version or the new one. Files that no manifest names are then removed. A file
that this process has mapped is mapped and verified once, and neither hashed nor written again.
The format is described in ``docs/reference/format.md``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from irli.base.data_files import (
    DIGITS,
    Array,
    check_size,
    damage_error,
    map_npy,
    read_npy,
    read_tensors,
    write_named,
    write_npy,
    write_tensors,
)
from irli.base.files import (
    TEMPORARY,
    WriterLock,
    lock_file,
    make_folder,
    open_regular,
    sync_directory,
)
from irli.base.types import StrPath
from irli.errors import FormatError, IncompatibleVersion, InvalidParameter

FORMAT = "irli-index"
VERSION = 1
WITH_STORE = 2  # the version of a folder that names a store of changes
VECTORS, LABELS, SHARDS, LABEL_SHARDS = "vectors", "labels", "shards", "label-shards"  # kinds
OPEN_SHARDS = "open-shards"  # another kind: shards whose items change

T = TypeVar("T")

MANIFEST = "manifest.json"
_LOCK = ".irli.lock"
_ROUTERS = "routers"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_DATA = re.compile(r"[a-z][a-z0-9_]*\.[0-9a-f]{16}\.(npy|safetensors)")
_PART = re.compile(r"part\.[0-9a-f]{16}\.json")
_STORE = re.compile(r"store\.[0-9a-f]{16}")
_DTYPE = re.compile(r"\|[biu]1|<[iuf][248]")
_MOST_MANIFEST = 64 << 20  # bytes; a manifest has some kilobytes
_MOST_AXES = 8
_MOST_NUMBERS = 1 << 60  # of an array, where an axis of length 0 counts as 1
# Attempts to open all files. One fails only if a save finishes between two of the opens.
_ATTEMPTS = 20


@dataclass(frozen=True, eq=False)  # comparing arrays gives no single truth value
class Folder:
    """The contents of an index folder.

    Attributes
    ----------
    kind : the kind of index, such as ``"vectors"``.
    meta : settings and results as plain JSON: recipe, history, counts, defaults.
    arrays : the large arrays, one ``.npy`` file each. They are memory-mapped when read.
    tensors : the router weights, all in one safetensors file.
    parts : the names of the manifests of its parts, in the same folder.
    store : the name of the store of changes, and the last change that the arrays have.
    """

    kind: str
    meta: dict[str, Any]
    arrays: dict[str, Array]
    tensors: dict[str, Array]
    parts: Sequence[str] = ()
    store: dict[str, Any] | None = None


def write_folder(path: StrPath, folder: Folder) -> None:
    """Save ``folder`` at ``path`` and atomically replace the index that is there.

    Arrays that have not changed since the last save are not written again. Memory maps of the old
    index stay valid. Concurrent saves wait for each other.

    >>> import tempfile
    >>> import numpy as np
    >>> at = tempfile.mkdtemp()
    >>> write_folder(at, Folder("vectors", {"metric": "l2"}, {"ids": np.arange(3)}, {}))
    >>> read_folder(at).arrays["ids"].tolist()
    [0, 1, 2]
    """
    root = Path(path)
    _check_folder(folder)
    with changing(root):
        publish(root, folder)


@contextmanager
def changing(root: Path) -> Iterator[None]:
    """Hold an index folder to write parts and to publish a manifest that names them.

    In the end, files that no manifest names are removed.
    """
    claim(root)
    with lock_file(root / _LOCK):
        try:
            yield
        finally:
            _sweep(root)


@contextmanager
def holding(root: Path) -> Iterator[None]:
    """Hold an index folder so that no file that it names is removed."""
    with lock_file(root / _LOCK):
        yield


def make_store_name() -> str:
    """Return a name for a new store. Its files have names that start with it and a dot."""
    return f"store.{os.urandom(DIGITS // 2).hex()}"


def write_part(root: Path, part: Folder) -> str:
    """Write a part into a folder that is being changed. Return the name of its manifest."""
    _check_folder(part)
    manifest = _make_manifest(root, part)
    name = _name_part(manifest)
    if not (root / name).is_file():
        _write_manifest(root, name, manifest)
    return name


def publish(root: Path, folder: Folder) -> None:
    """Make a folder that is being changed hold this index. Its parts must have been written."""
    with _leaving_store(root, folder):
        manifest = _make_manifest(root, folder)
        # The files must be on disk before the manifest that names them.
        sync_directory(root)
        _write_manifest(root, MANIFEST, manifest)
        sync_directory(root)


@contextmanager
def _leaving_store(root: Path, folder: Folder) -> Iterator[None]:
    """Raise if another index takes the place of one that is open for changes."""
    named = None
    with suppress(FormatError):
        named = read_manifest(root).get("store")
    if named is None or (folder.store is not None and folder.store["name"] == named["name"]):
        yield
        return
    lock = WriterLock(root)
    try:
        yield
    finally:
        lock.release()


def _make_manifest(root: Path, folder: Folder) -> dict[str, Any]:
    version = VERSION if folder.store is None else WITH_STORE
    header = {"format": FORMAT, "version": version, "irli": package_version()}
    content = {"kind": folder.kind, "meta": folder.meta, "parts": list(folder.parts)}
    if folder.store is not None:
        content["store"] = folder.store
    return _seal(header | content | {"files": _write_files(root, folder)})


def _write_manifest(root: Path, name: str, manifest: dict[str, Any]) -> None:
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    write_named(root, name, [text.encode()])


def is_part(path: Path) -> bool:
    """Whether a path is that of a part, by its name."""
    return _PART.fullmatch(path.name) is not None


def _name_part(manifest: dict[str, Any]) -> str:
    return f"part.{manifest['checksum'][:DIGITS]}.json"


def read_folder(path: StrPath, *, mmap: bool = True, verify: bool = True) -> Folder:
    """Read the index folder at ``path``, or a part of one if it is the path of its manifest.

    Parameters
    ----------
    mmap : map the arrays, read-only, instead of reading them into memory.
    verify : compare the checksum of every file that is not mapped and verified already, which reads
        it once. If False, only sizes, dtypes and shapes are checked, and a large index opens as
        fast as a small one.

    >>> import tempfile
    >>> import numpy as np
    >>> at = tempfile.mkdtemp()
    >>> write_folder(at, Folder("vectors", {"metric": "l2"}, {"ids": np.arange(3)}, {}))
    >>> folder = read_folder(at, mmap=False)
    >>> folder.kind, folder.meta
    ('vectors', {'metric': 'l2'})
    """
    place = Path(path)
    root = place.parent if is_part(place) else place
    arrays: dict[str, Array] = {}
    tensors: dict[str, Array] = {}
    with ExitStack() as stack:
        # Open all files first. A save that removes them in the meantime then does no harm.
        manifest, files = _open_files(place, root, stack)
        for name, file in files.items():
            entry = manifest["files"][name]
            check_size(root, entry, file)
            if name == _ROUTERS:
                tensors = read_tensors(root, entry, file, verify)
            else:
                read = map_npy if mmap else read_npy
                arrays[name] = read(root, entry, file, verify)
    kind, meta, parts = manifest["kind"], manifest["meta"], manifest["parts"]
    return Folder(kind, meta, arrays, tensors, parts, manifest.get("store"))


def retry_if_replaced(path: StrPath, load: Callable[[], T]) -> T:
    """Return what `load` makes of an index in parts.

    It starts over if a save has replaced the index meanwhile, and so removed parts.
    """
    for _ in range(_ATTEMPTS):
        before = read_manifest(path)["checksum"]
        try:
            return load()
        except FormatError:
            if read_manifest(path)["checksum"] == before:
                raise
    return load()


def check_kind(folder: Folder, kind: str) -> None:
    """Raise unless the folder holds an index of this kind."""
    if folder.kind != kind:
        raise FormatError(
            f"The folder must hold an index of kind '{kind}'. Got '{folder.kind}' instead. "
            "Open it with irli.load."
        )


@contextmanager
def reading() -> Iterator[None]:
    """Raise a FormatError if something read from a folder is missing or wrong."""
    try:
        yield
    except FormatError:
        raise
    except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise FormatError(
            f"The index folder lacks or misstates something that its version needs: {error}. "
            "Build the index again, or open it with the version of irli that wrote it."
        ) from error


def read_manifest(path: StrPath) -> dict[str, Any]:
    """Read and check the manifest of the index folder or part at ``path``. Reads no data file.

    >>> import tempfile
    >>> import numpy as np
    >>> at = tempfile.mkdtemp()
    >>> write_folder(at, Folder("vectors", {}, {"ids": np.arange(3)}, {}))
    >>> manifest = read_manifest(at)
    >>> manifest["kind"], manifest["files"]["ids"]["shape"]
    ('vectors', [3])
    """
    root = Path(path)
    part = is_part(root)
    if part and not root.is_file():
        raise damage_error(root.parent, f"{root.name} is missing, or is not a regular file")
    if not root.exists():
        raise FormatError(f"There is no index at {root}: the path does not exist. Check the path.")
    if not part and not root.is_dir():
        raise FormatError(f"{root} is a file, but an index is a folder. Pass the folder's path.")
    try:
        with open_regular(root if part else root / MANIFEST) as file:
            size = os.fstat(file.fileno()).st_size
            text = file.read(min(size, _MOST_MANIFEST))
    except FileNotFoundError:
        raise FormatError(
            f"{root} is not an index folder: it has no {MANIFEST}. Pass the path given to save()."
        ) from None
    if size > _MOST_MANIFEST:
        raise damage_error(root, f"{MANIFEST} has more than {_MOST_MANIFEST} bytes")
    try:
        manifest: dict[str, Any] = json.loads(text)
        sealed = _seal(manifest) if isinstance(manifest, dict) else None
    except (ValueError, RecursionError) as error:
        raise damage_error(root, f"{MANIFEST} is not valid JSON ({error})") from None
    if sealed is None or manifest.get("format") != FORMAT:
        raise FormatError(
            f"{root} is not an index folder: its {MANIFEST} belongs to something else. "
            "Pass the path given to save()."
        )
    version = manifest.get("version")
    if type(version) is int and version > WITH_STORE:
        raise IncompatibleVersion(
            f"{root} has format version {version}, written by irli {manifest.get('irli')}, but "
            f"this irli reads versions up to {WITH_STORE}. Upgrade irli to open it."
        )
    if manifest.get("checksum") != sealed["checksum"]:
        raise damage_error(root, f"{MANIFEST} does not match its own checksum: it has been edited")
    if not _is_well_formed(manifest):
        raise damage_error(root, f"{MANIFEST} does not follow format version {version}")
    if part and (root.name != _name_part(manifest) or manifest["parts"]):
        raise damage_error(root.parent, f"{root.name} does not hold the part of its name")
    return manifest


def package_version() -> str:
    """Return the version of irli that is installed."""
    from importlib import metadata

    try:
        return metadata.version("irli")
    except metadata.PackageNotFoundError:
        return "unknown"


def _seal(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest with a checksum over all its other fields."""
    rest = {key: value for key, value in manifest.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return rest | {"checksum": hashlib.sha256(text.encode()).hexdigest()}


def _is_well_formed(manifest: dict[str, Any]) -> bool:
    """Whether all fields have the right types, and no file name leads out of the folder."""
    match manifest:
        case {"kind": str(), "meta": dict(), "files": dict() as files, "parts": list() as parts}:
            named = all(isinstance(part, str) and _PART.fullmatch(part) for part in parts)
            named = named and _has_well_formed_store(manifest)
            return named and all(_is_well_formed_entry(*item) for item in files.items())
    return False


def _has_well_formed_store(manifest: dict[str, Any]) -> bool:
    """Whether a manifest names a store, if its version is one that has a store."""
    match manifest:
        case {"version": int() as version} if type(version) is int and version == VERSION:
            return "store" not in manifest
        case {"version": int() as version, "store": {"name": str() as name, "applied": applied}}:
            fits = type(applied) is int and 0 <= applied < 1 << 63
            return version == WITH_STORE and fits and _STORE.fullmatch(name) is not None
    return False


def _is_well_formed_entry(name: str, entry: Any) -> bool:
    match entry:
        case {"file": str() as file, "bytes": int(), "sha256": str()} if _DATA.fullmatch(file):
            return name == _ROUTERS or _is_well_formed_array(entry)
    return False


def _is_well_formed_array(entry: Any) -> bool:
    match entry:
        case {"dtype": str() as dtype, "shape": list() as shape} if _DTYPE.fullmatch(dtype):
            if len(shape) <= _MOST_AXES and all(type(n) is int and n >= 0 for n in shape):
                return bool(math.prod(max(n, 1) for n in shape) <= _MOST_NUMBERS)
    return False


def _check_folder(folder: Folder) -> None:
    try:
        if json.loads(json.dumps(folder.meta, allow_nan=False)) != folder.meta:
            raise ValueError("it would not be the same after reading it back")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameter(
            f"The meta of an index must be plain JSON, but: {error}. Use None for NaN or infinity, "
            "lists for tuples and arrays, strings as keys, and .item() for NumPy numbers."
        ) from None
    for name in folder.arrays:
        if not _NAME.fullmatch(name) or name == _ROUTERS:
            raise InvalidParameter(
                f"The name of an array must be lower-case letters, digits and '_', and not "
                f"'{_ROUTERS}'. Got {name!r} instead; rename the array."
            )
    for name, array in chain(folder.arrays.items(), folder.tensors.items()):
        if not _DTYPE.fullmatch(array.dtype.newbyteorder("<").str):
            raise InvalidParameter(
                f"The array {name!r} must hold booleans, integers or floats of at most 64 bits. "
                f"Got {array.dtype} instead; convert it first."
            )


def claim(root: Path) -> None:
    """Create the folder. Raise if it exists and holds something other than an index."""
    if root.exists() and not root.is_dir():
        raise InvalidParameter(
            f"An index is a folder, but {root} is a file. Choose another path or remove the file."
        )
    make_folder(root, "'path' parameter of save")
    # An interrupted first save leaves a lock file but no manifest.
    if not any(root.iterdir()) or (root / _LOCK).exists():
        return
    try:
        read_manifest(root)
    except FormatError:
        raise InvalidParameter(
            f"An index must be saved to a new folder or over another index, but {root} holds other "
            "files or an index that does not open. Choose another path or empty the folder."
        ) from None


def _write_files(root: Path, folder: Folder) -> dict[str, Any]:
    """Write the data files that are new. Return the entries of all in the manifest."""
    entries = {name: write_npy(root, name, array) for name, array in folder.arrays.items()}
    if folder.tensors:
        entries[_ROUTERS] = write_tensors(root, _ROUTERS, folder.tensors)
    return entries


def list_files(root: Path) -> list[str]:
    """Return the names of the files of parts and data that the manifests of a folder name."""
    whole = read_manifest(root)
    manifests = [whole, *(read_manifest(root / part) for part in whole["parts"])]
    files = {entry["file"] for each in manifests for entry in each["files"].values()}
    return sorted({*whole["parts"], *files})


def _sweep(root: Path) -> None:
    """Remove the files of irli that the current manifest and its parts do not name."""
    ours = [path for path in root.iterdir() if TEMPORARY.fullmatch(path.name)]
    # If a manifest cannot be read, its data files are kept: it may still be repaired.
    with suppress(FormatError):
        named: set[str] = set()
        store = ""
        if (root / MANIFEST).exists():
            named = set(list_files(root))
            store = read_manifest(root).get("store", {}).get("name", "")
        known = re.compile(f"{_DATA.pattern}|{_PART.pattern}|(?P<store>{_STORE.pattern})\\..+")
        for path in root.iterdir():
            match = known.fullmatch(path.name)
            if match and path.name not in named and (not store or match["store"] != store):
                ours.append(path)
    for path in ours:
        with suppress(OSError):
            path.unlink()


def _open_files(
    place: Path, root: Path, stack: ExitStack
) -> tuple[dict[str, Any], dict[str, BufferedReader]]:
    """Open all data files of one manifest. Start over if a save has just replaced them."""
    missing = ""
    for _ in range(_ATTEMPTS):
        manifest = read_manifest(place)
        try:
            return manifest, {
                name: stack.enter_context(open_regular(root / entry["file"]))
                for name, entry in manifest["files"].items()
            }
        except FileNotFoundError as error:
            missing = Path(error.filename).name
    raise damage_error(root, f"{missing} is missing, or is not a regular file")
