"""Fuzz index folders: damage or forge them in random ways, open them, and search what opens.

A damaged folder has checksums that no longer fit. Opening must refuse it wherever checksums are
compared. A forged folder has valid ones. It must be refused, or answer with its own ids, and with
the same numbers in memory as mapped: memory that is not its own would hardly repeat itself.

`make fuzz-folders` runs this file. The cases run in a worker process, so that a crash or a hang is
seen, reported and skipped. Case n of a seed is always the same.
"""

from __future__ import annotations

import argparse
import copy
import functools
import hashlib
import json
import os
import pickle
import selectors
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from damage import EDITS, FOLDERS, Edit, read

import irli
from irli import FormatError, InvalidParameter, LabelIndex, VectorIndex
from irli.base.data_files import make_npy_header
from irli.base.folder import MANIFEST, _seal

PATIENCE = 60.0  # seconds for one case; they take milliseconds
MEMORY = 8 << 30  # bytes of address space; no folder here needs a hundredth of it

Rng = np.random.Generator
Files = dict[
    str, Any
]  # bytes by path; a function that makes something else there; None for nothing


# --- folders to begin with -------------------------------------------------------------------


def write_bases(place: Path) -> list[Path]:
    """Write small indexes of all kinds."""
    for name in ("codes", "int8", "features", "texts", "shards", "label-shards"):
        irli.load(FOLDERS / name).save(place / name)
    for name in ("int8-l2", "floats"):
        VectorIndex.from_folder(read(name)).save(place / name)
    LabelIndex.from_folder(read("near")).save(place / "near")
    return sorted(place.iterdir())


def read_files(base: Path) -> Files:
    """Return the files of a folder, without locks."""
    found = (path for path in sorted(base.rglob("*")) if path.is_file())
    return {str(p.relative_to(base)): p.read_bytes() for p in found if not p.name.startswith(".")}


# --- damage: the checksums do not fit any more -------------------------------------------------


def flip(data: bytes, rng: Rng) -> bytes:
    """Flip a bit, or some."""
    changed = bytearray(data)
    for place in rng.integers(len(data), size=rng.integers(1, 4)):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def truncate(data: bytes, rng: Rng) -> bytes:
    """Cut off the end, and more of it than white space, which no text would miss."""
    return data[: rng.integers(max(1, len(data.rstrip())))]


def lengthen(data: bytes, rng: Rng) -> bytes:
    """Add bytes at the end."""
    return data + rng.bytes(int(rng.integers(1, 200)))


def overwrite(data: bytes, rng: Rng) -> bytes:
    """Replace a part with zeros, ones or noise."""
    start = int(rng.integers(len(data)))
    size = min(int(rng.integers(1, 100)), len(data) - start)
    new = (bytes(size), b"\xff" * size, rng.bytes(size))[rng.integers(3)]
    return data[:start] + new + data[start + size :]


def make_pipe(path: Path) -> None:
    """Make a pipe, which nobody writes to."""
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    """Make a folder."""
    path.mkdir()


def make_device_link(path: Path) -> None:
    """Make a link to a device without an end."""
    path.symlink_to("/dev/zero")


def make_loop(path: Path) -> None:
    """Make a link to itself."""
    path.symlink_to(path.name)


CONTENT = (flip, truncate, lengthen, overwrite)
THINGS = (make_pipe, make_folder, make_device_link, make_loop, None)


def damage(files: Files, rng: Rng) -> str:
    """Damage one file. Return what was done, or "" if the files are the same as before."""
    names = sorted(files)
    name = names[rng.integers(len(names))]
    way = rng.integers(8)
    if way == 0:
        thing = THINGS[rng.integers(len(THINGS))]
        files[name] = thing
        return f"{name}: {getattr(thing, '__name__', 'removed')}"
    if way == 1:
        other = names[rng.integers(len(names))]
        same = files[name] == files[other]
        files[name], files[other] = files[other], files[name]
        return "" if same else f"{name}: swapped with {other}"
    change = CONTENT[rng.integers(len(CONTENT))]
    before, files[name] = files[name], change(files[name], rng)
    return "" if files[name] == before else f"{name}: {change.__name__}"


# --- forgery: all checksums are computed again -------------------------------------------------


def forge(files: Files, rng: Rng) -> str:
    """Change one part or more, with valid checksums. Return what was done."""
    manifests = sorted(name for name in files if name.endswith(".json"))
    manifest_name = manifests[rng.integers(len(manifests))]
    manifest = json.loads(files[manifest_name])
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if not is_forgeable(manifest):
            break
        change = FORGERIES[rng.integers(len(FORGERIES))]
        done.append(f"{manifest_name}: {change(files, manifest, rng)}")
    files[manifest_name] = seal(manifest)
    if manifest_name != MANIFEST:  # the name of a part has its checksum, and the whole names it
        new = f"part.{json.loads(files[manifest_name])['checksum'][:16]}.json"
        whole = json.loads(files[MANIFEST])
        whole["parts"] = [new if part == manifest_name else part for part in whole["parts"]]
        files[MANIFEST], files[new] = seal(whole), files.pop(manifest_name)
    return "; ".join(done)


def is_forgeable(manifest: Any) -> bool:
    """Whether a manifest still has the parts that forgeries change."""
    files, meta = manifest.get("files"), manifest.get("meta")
    return isinstance(files, dict) and isinstance(meta, dict) and bool(list_entries(files))


def list_entries(files: Any) -> list[str]:
    """Return the names of the files of a manifest that are described."""
    return sorted(name for name, e in files.items() if isinstance(e, dict) and "file" in e)


def seal(manifest: Any) -> bytes:
    """Return the text of a manifest with its checksum, if it can have one."""
    with suppress(ValueError, AttributeError):
        manifest = _seal(manifest)
    return json.dumps(manifest).encode()


def pick_entry(manifest: Any, rng: Rng) -> tuple[str, Any]:
    """Return a file of the manifest that is well described."""
    names = list_entries(manifest["files"])
    name = names[rng.integers(len(names))]
    return name, manifest["files"][name]


def put(files: Files, entry: Any, data: bytes) -> None:
    """Replace a data file, and describe it."""
    files[str(entry["file"])] = data
    entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()


def forge_bytes(files: Files, manifest: Any, rng: Rng) -> str:
    """Change the bytes of a data file."""
    name, entry = pick_entry(manifest, rng)
    change = CONTENT[rng.integers(len(CONTENT))]
    old = files.get(str(entry["file"])) or b"?"  # it may be empty, or gone
    put(files, entry, change(old, rng))
    return f"{name}: {change.__name__}"


def forge_array(files: Files, manifest: Any, rng: Rng) -> str:
    """Change values, the shape or the dtype of an array or tensor."""
    name, entry = pick_entry(manifest, rng)
    kinds = ("entries", "near", *EDITS)  # wrong values are harder to notice than wrong shapes
    edit = Edit(kinds[rng.integers(len(kinds))], int(rng.integers(2**32)))
    data = files.get(str(entry["file"])) or b""
    if "dtype" not in entry:
        from safetensors.numpy import load, save

        try:
            tensors = load(data)
        except Exception:
            return forge_bytes(files, manifest, rng)
        tensor = sorted(tensors)[rng.integers(len(tensors))]
        tensors[tensor] = np.ascontiguousarray(edit(tensors[tensor].copy()))
        put(files, entry, save(tensors))
        return f"{tensor}: {edit}"
    try:
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry.get("shape", ()))
        head = len(make_npy_header(dtype, shape))
        array = edit(np.frombuffer(data, dtype, offset=head).reshape(shape).copy())
    except (TypeError, ValueError, OverflowError, IndexError):
        return forge_bytes(files, manifest, rng)
    entry["dtype"], entry["shape"] = array.dtype.str, list(array.shape)
    content = np.ascontiguousarray(array).tobytes()
    put(files, entry, make_npy_header(array.dtype, array.shape) + content)
    return f"{name}: {edit}"


def forge_shape(files: Files, manifest: Any, rng: Rng) -> str:
    """Say that an array has another shape or dtype, and write the header for it."""
    name, entry = pick_entry(manifest, rng)
    lengths = [0, 1, 2, 3, 8, 1000, 2**31, 2**40, 2**62, 2**63, 2**70]
    shape = [int(rng.choice(8 * [0, 1, 2, 3, 8] + [4])) for _ in range(rng.integers(5))]
    shape += [lengths[rng.integers(len(lengths))] for _ in range(rng.integers(3))]
    shape = shape if rng.random() < 0.9 else shape * 40
    entry["shape"] = shape
    entry["dtype"] = str(rng.choice(["<f4", "<i8", "|i1", "<f2", "<u2", "|b1"]))
    head = make_npy_header(np.dtype(entry["dtype"]), tuple(shape))
    old = files.get(str(entry["file"])) or b""
    put(files, entry, head + (b"" if 0 in shape else old[128:]))
    return f"{name}: shape {shape}"


def forge_swap(files: Files, manifest: Any, rng: Rng) -> str:
    """Exchange the descriptions of two files, drop one, or add one."""
    entries = manifest["files"]
    names = sorted(entries)
    one, two = (names[i] for i in rng.integers(len(names), size=2))
    way = rng.integers(4)
    if way < 2 or len(entries) < 2:
        entries[one], entries[two] = entries[two], entries[one]
        return f"{one} and {two} exchanged"
    if way == 2:
        del entries[one]
        return f"{one} dropped"
    entries[one + "_more"] = entries[two]
    return f"{one}_more added"


VALUES: list[Any] = [None, True, False, 0, 1, -1, 2, 7, 10**6, 2**31, 2**63, 10**400, 0.5, -0.0]
VALUES += [1e308, 1e-308, "", "l2", "cosine", "codes", "\ud800", "../x", "x" * 5000, [], {}, [[]]]
VALUES += [[0], [[1, 2]], {"a": None}, [None] * 20]


def forge_value(files: Files, manifest: Any, rng: Rng) -> str:
    """Replace, drop or add a value anywhere in the manifest."""
    part: Any = manifest if rng.random() < 0.2 else manifest["meta"]
    path: list[Any] = []
    while isinstance(part, dict | list) and part:
        keys = sorted(part) if isinstance(part, dict) else list(range(len(part)))
        key = keys[rng.integers(len(keys))]
        path.append(key)
        inner = part[key]
        if not (isinstance(inner, dict | list) and inner) or rng.random() < 0.2:
            break
        part = inner
    if not path or path == ["checksum"]:
        return "nothing"
    value = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    way = rng.integers(6)
    if way == 0:
        del part[path[-1]]
    elif way == 1 and isinstance(part, list):
        part.append(value)
    elif way == 1:
        part["wide"] = value
    elif way == 2 and type(part[path[-1]]) in (int, float):
        part[path[-1]] += float(rng.normal()) if rng.random() < 0.3 else int(rng.integers(-3, 4))
    else:
        part[path[-1]] = value
    return f"{'.'.join(map(str, path))} {('dropped', 'extended')[way] if way < 2 else 'changed'}"


FORGERIES: list[Callable[[Files, Any, Rng], str]] = [
    *[forge_array] * 6,
    *[forge_value] * 4,
    *[forge_bytes] * 2,
    forge_shape,
    forge_swap,
]


# --- using what opens ------------------------------------------------------------------------


def use(index: Any) -> list[Any]:
    """Search an index in several ways. Return all answers."""
    repr(index), index.history, index.stats()
    if isinstance(index, LabelIndex):
        return use_labels(
            index, [{}, {"near": 0}, {"ranker": False, "probes": 3, "score": "votes"}]
        )
    if not hasattr(index, "search"):
        return use_labels(index, [{}, {"probes": 3}])
    return use_vectors(index)


def use_vectors(index: Any) -> list[Any]:
    """Search with defaults, a filter, votes, one query, and by comparing all items."""
    ids, dim = np.array(index.ids), index.stats()["dim"]
    queries = np.random.default_rng(0).normal(size=(9, dim)).astype(np.float32)
    known = {-1, *ids.tolist()}
    loads = index.loads()
    answers: list[Any] = [ids, *loads, len(index), int(ids[0]) in index]
    ways: list[dict[str, Any]] = [
        {"k": 5},
        {"k": min(len(index) + 2, 400), "filter": ids[:4], "probes": 2},
        {"k": 3, "threshold": 0.0, "candidates": 7, "score": "votes"},
        {"k": 3, "probes": 10**6, "score": "log-probability"},
    ]
    for way in ways:
        answers += check_answer(*index.search(queries, threads=1, **way), known)
    answers += check_answer(*index.search(queries[0], k=4), known)
    answers += check_answer(*index.search(queries[:2], 3, exact=True), known)
    explained = index.explain(queries[:2], k=2)
    return [*answers, explained.ids, explained.votes, explained.scanned]


def check_answer(distances: Any, ids: Any, known: set[int]) -> list[Any]:
    """Raise unless all ids are those of the index."""
    foreign = set(np.asarray(ids).ravel().tolist()) - known
    if foreign:
        raise AssertionError(f"ids that are not of this index: {sorted(foreign)[:5]}")
    return [distances, ids]


def use_labels(index: Any, ways: list[dict[str, Any]]) -> list[Any]:
    """Predict the labels of some rows, and of texts if the index knows words."""
    rows = np.random.default_rng(0).random((9, index.stats()["dim"])).astype(np.float32)
    answers: list[Any] = [len(index)]
    known = set(range(-1, len(index)))
    for way in ways:
        answers += check_answer(*index.predict(rows, 4, threads=1, **way), known)
    answers += check_answer(*index.predict(rows[0], min(len(index) + 2, 400)), known)
    if getattr(index, "vectorizer", None) is not None and index.names is not None:
        answers.append(index.predict_text(["an apple or a pear", ""], k=3))
    return answers


def are_equal(one: Any, two: Any) -> bool:
    """Whether two answers have the same numbers."""
    if isinstance(one, np.ndarray):
        return np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
    if isinstance(one, float):
        return one == two or (one != one and two != two)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(are_equal, one, two))
    return bool(one == two)


# --- cases -----------------------------------------------------------------------------------


class Base(NamedTuple):
    """A folder to begin with, and its files."""

    path: Path
    files: Files


class Failure(NamedTuple):
    """What went wrong, in which case."""

    case: int
    what: str


def run_case(bases: list[Base], place: Path, seed: int, case: int) -> str:
    """Make and open one folder. Return the outcome; raise if irli misbehaves."""
    rng = np.random.default_rng([seed, case])
    base = bases[rng.integers(len(bases))]
    files = dict(base.files)
    forged = rng.random() < 0.7
    done = forge(files, rng) if forged else damage(files, rng)
    path = write_case(base, files, place)
    try:
        return open_case(path, forged, bool(done), thorough=rng.random() < 0.05)
    except BaseException as error:
        error.add_note(f"case {case} of seed {seed}: {base.path.name}, {done}")
        raise
    finally:
        shutil.rmtree(path)


def open_case(path: Path, forged: bool, changed: bool, thorough: bool) -> str:
    """Open a folder in memory and mapped, and use it. If `thorough`, tune and save it, too."""
    mapped = open_folder(path, mmap=True, verify=True)
    if not forged and changed:
        if mapped is not None:
            raise AssertionError("a damaged folder was opened")
        mapped = open_folder(path, mmap=True, verify=False)
    read = open_folder(path, mmap=False, verify=forged)
    if (mapped is None) != (read is None):
        raise AssertionError("a folder opens only in memory or only mapped")
    if mapped is None:
        return "refused"
    answers = use(mapped)
    if not are_equal(answers, use(read)):
        raise AssertionError("the answers in memory differ from those of the mapped folder")
    if thorough:
        mapped.save(path / "again")
        if not are_equal(answers, use(irli.load(path / "again"))):
            raise AssertionError("the answers differ after saving")
        if hasattr(mapped, "tune"):
            # It may have lost its queries to tune by, or have vectors that are not finite.
            with suppress(InvalidParameter, FormatError):
                mapped.tune()
            use(mapped)
        if not are_equal(answers, use(pickle.loads(pickle.dumps(read)))):
            raise AssertionError("the answers of a pickle differ")
    return "answered"


def open_folder(path: Path, **how: bool) -> Any:
    """Return the index, or None if it is refused with the right error."""
    try:
        return irli.load(path, **how)
    except FormatError:
        return None


def write_case(base: Base, files: Files, place: Path) -> Path:
    """Write the changed files of a case; link the others, which takes less time.

    A part whose manifest is linked would be open already, and its files not looked at again.
    """
    path = place / "case"
    path.mkdir()
    for name, content in files.items():
        target = path / name
        if content is base.files.get(name) and not name.startswith("part."):
            os.link(base.path / name, target)
        elif isinstance(content, bytes):
            target.write_bytes(content)
        elif content is not None:
            content(target)
    return path


def run_cases(seed: int, first: int, last: int) -> Iterator[tuple[int, str]]:
    """Run cases in this process. Yield the number of each before it starts, and its outcome."""
    with tempfile.TemporaryDirectory() as folder:
        (at := Path(folder, "bases")).mkdir()
        bases = [Base(path, read_files(path)) for path in write_bases(at)]
        for case in range(first, last):
            yield case, ""
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # wrong numbers overflow
                try:
                    outcome = run_case(bases, Path(folder), seed, case)
                except Exception as error:
                    outcome = "failed: " + "".join(traceback.format_exception(error)[-8:])
            yield case, outcome


# --- the worker and its watchman -------------------------------------------------------------


def work(seed: int, first: int, last: int, limit: bool) -> None:
    """Run cases and report them, one JSON list in a line."""
    if limit:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for case, outcome in run_cases(seed, first, last):
        sys.stdout.write(json.dumps([case, outcome]) + "\n")
        sys.stdout.flush()


def watch(seed: int, first: int, last: int, limit: bool) -> tuple[Counter[str], list[Failure]]:
    """Run cases in a worker. If it crashes or hangs, note the case and start another one."""
    outcomes: Counter[str] = Counter()
    failures: list[Failure] = []
    start, shown = monotonic(), monotonic()
    while first < last:
        arguments = [f"--seed={seed}", f"--first={first}", f"--last={last}", "--worker"]
        arguments += [] if limit else ["--sanitized"]
        with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory() as place:
            worker = subprocess.Popen(
                [sys.executable, __file__, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"TMPDIR": place},  # a worker that crashes cannot clean up
            )
            case = first - 1
            for line in read_lines(worker):
                case, outcome = json.loads(line)
                if outcome.startswith("failed"):
                    failures.append(Failure(case, outcome))
                    print(f"case {case}: {outcome}", flush=True)
                if outcome:
                    outcomes[outcome.split(":")[0]] += 1
                if monotonic() - shown > 60:
                    shown = monotonic()
                    rate = (case - first + 1) / (shown - start)
                    print(f"case {case}: {dict(outcomes)}, {rate:.0f} a second", flush=True)
            if worker.poll() is None:
                worker.kill()
            code = worker.wait()
            if code == 0 and case == last - 1:
                break
            errors.seek(0)
            what = f"crashed or hung, exit code {code}\n{errors.read()[-4000:]}"
        print(f"case {case}: {what}", flush=True)
        failures.append(Failure(case, what))
        if case < first:
            break  # the worker does not even start
        outcomes["crashed"] += 1
        first = case + 1
    return outcomes, failures


def read_lines(worker: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield the lines of a worker, until it ends or has been silent for too long."""
    assert worker.stdout is not None
    descriptor, rest = worker.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while selector.select(PATIENCE):
            block = os.read(descriptor, 1 << 16)
            if not block:
                return
            *lines, rest = (rest + block).split(b"\n")
            yield from lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first case")
    parser.add_argument("--last", type=int, default=10_000, help="the case after the last")
    parser.add_argument(
        "--sanitized", action="store_true", help="let the process map any amount of memory"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    run = functools.partial(work if args.worker else watch, args.seed, args.first, args.last)
    if args.worker:
        run(not args.sanitized)
        return
    outcomes, failures = run(not args.sanitized)
    print(f"{sum(outcomes.values())} folders: {dict(outcomes)}, {len(failures)} failures")
    sys.exit(1 if failures else None)


if __name__ == "__main__":
    main()
