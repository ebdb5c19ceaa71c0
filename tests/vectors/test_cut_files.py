"""A file of a changed index that was cut or removed is an error, and never ends the process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import small_default

import irli
from irli import InvalidParameter, VectorIndex

# It damages each file in turn, and says what came of it. A signal would end it.
PROGRAM = """
import json, shutil, sys, warnings
from pathlib import Path
import numpy as np
import irli

source, place, way, writable, late = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:6]
warnings.simplefilter("ignore")

def open_it():
    return irli.open(place, writable=writable == "writer", maintain="manual")

def use(index):
    ids = list(index)
    index.search(np.zeros((3, 8)), 5)
    index.search(np.zeros(8), 5, exact=True)
    index.search(np.zeros(8), 5, filter={"n": {"$gt": 1}}, with_payload=True)
    if writable == "writer":
        index.add(np.ones((2, 8)), payloads=[{"n": 1}] * 2)
        index.compact()
        ids = [id for id in index if id < 390]
    return [ids, index.vector(ids).sum(axis=1).tolist(), index.payload(ids)]

for name in sorted(path.name for path in source.iterdir() if not path.name.startswith(".")):
    shutil.copytree(source, place)
    index = open_it() if late == "open" else None
    path = place / name
    size = path.stat().st_size
    if way == "remove":
        path.unlink()
    else:
        with open(path, "rb+") as file:
            file.truncate({"half": size // 2, "end": max(0, size - 1), "all": 0}[way])
    try:
        index = index or open_it()
        told = ["answers", use(index)]
    except (irli.IrliError, OSError) as error:
        told = [type(error).__name__, str(error)]
    print(json.dumps([name, *told]), flush=True)
    if index is not None:
        index.close()
    shutil.rmtree(place)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with arrays, a database with a log that is not in it, and a tail."""
    folder = tmp_path_factory.mktemp("cut")
    rng = np.random.default_rng(0)
    with irli.open(
        folder / "index", metric="l2", dim=8, recipe=small_default(pieces=8), maintain="manual"
    ) as index:
        index.add(rng.normal(size=(300, 8)), payloads=[{"n": i} for i in range(300)])
        index.refresh()
        index.add(rng.normal(size=(90, 8)), payloads=[{"n": i} for i in range(90)])
        index.remove([3, 350])
        shutil.copytree(folder / "index", folder / "copy")  # with SQLite's log, as after a crash
    return folder / "copy"


def damage(source: Path, tmp_path: Path, *how: str) -> list[list[str]]:
    command = [sys.executable, "-c", PROGRAM, str(source), str(tmp_path / "place"), *how]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-500:] + run.stderr[-2000:]
    return [json.loads(line) for line in run.stdout.splitlines()]


def check_answers(source: Path, said: list[list[object]]) -> None:
    """What is found is what was there."""
    whole = irli.load(source)
    assert isinstance(whole, VectorIndex)
    ids = list(whole)
    assert said[0] == ids
    np.testing.assert_allclose(said[1], whole.vector(ids).sum(axis=1), rtol=1e-5)
    assert said[2] == whole.payload(ids)


@pytest.mark.parametrize("who", ["reader", "writer"])
@pytest.mark.parametrize("way", ["half", "end", "all", "remove"])
def test_opening_finds_what_is_cut(source: Path, tmp_path: Path, way: str, who: str) -> None:
    for name, outcome, said in damage(source, tmp_path, way, who, "closed"):
        if outcome != "answers":
            assert outcome in ("FormatError", "StorageError", "InvalidParameter"), (name, said)
            assert "index" in said, (name, said)
        elif name.endswith("-wal"):  # a cut log of SQLite cannot be told from a shorter one
            assert set(said[0]) <= set(range(390))
        else:  # such as the tail, which is longer than what is in it
            check_answers(source, said)


@pytest.mark.parametrize("who", ["reader", "writer"])
def test_what_is_removed_stays_with_those_who_have_it(
    source: Path, tmp_path: Path, who: str
) -> None:
    for name, outcome, said in damage(source, tmp_path, "remove", who, "open"):
        if outcome == "answers":
            check_answers(source, said)
        else:
            assert (who, outcome) in (("writer", "StorageError"), ("writer", "FormatError")), name


def test_items_without_a_manifest_are_kept(source: Path, tmp_path: Path) -> None:
    """Whoever opens an index with its metric and dimension must not get a new one over it."""
    for name in ("arrays", "tail"):
        place = tmp_path / name
        shutil.copytree(source, place)
        for pattern in ("*.tail.*",) if name == "arrays" else ("*.npy",):
            for path in place.glob(pattern):
                path.unlink()
        (place / "manifest.json").unlink()
        before = sorted(path.name for path in place.iterdir())
        with pytest.raises(InvalidParameter, match="no manifest"):
            irli.open(place, metric="l2", dim=8)
        assert sorted(path.name for path in place.iterdir() if path.name[0] != ".") == [
            name for name in before if name[0] != "."
        ]
