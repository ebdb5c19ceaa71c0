"""One process changes an index, and others read it at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_default

import irli
from irli import InvalidParameter
from irli.vectors.changes.living import FOLLOW

DIM, STEPS, PAIRS = 6, 60, 5

# Items come in pairs of equal vectors, whose payloads name the step. Pair p of step s has the ids
# 1000 s + 2 p and the next one. Each step adds some pairs and removes those of an earlier step, in
# one change each, and now and then packs the arrays or learns anew.
READER = """
import json, sys, time
import numpy as np
import irli

path, dim, texts = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "filters"
index = irli.load(path)
print(json.dumps(["ready"]), flush=True)
query, seen = np.zeros(dim), []
while True:
    began = time.monotonic()
    found = index.search(query, 2000, exact=True, with_payload=True)
    ids = found.ids[: found.counts].tolist()
    assert len(set(ids)) == len(ids), ids
    assert not [id for id in ids if id ^ 1 not in ids], "half a change"
    for id, payload in zip(ids, found.payloads):
        assert payload in ({"step": id // 1000}, None), (id, payload)
    near = index.search(query, 10)
    assert len(set(near.ids[: near.counts].tolist())) == near.counts
    if texts:
        index.search(query, 10, filter={"step": {"$gt": 3}})
    steps = sorted({id // 1000 for id in ids})
    if not seen or seen[-1][1] != steps:
        seen.append([began, steps])
        print(json.dumps(seen[-1]), flush=True)
    if steps and steps[-1] == 999:
        break
"""


def test_readers_follow_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "index"
    recipe = small_default(epochs=1, epoch_size=256)
    rng = np.random.default_rng(0)
    index = irli.open(path, metric="l2", dim=DIM, recipe=recipe, sync="normal", maintain="manual")
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(path), str(DIM), kind],
            stdout=subprocess.PIPE,
            text=True,
        )
        for kind in ("filters", "plain")
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert json.loads(reader.stdout.readline()) == ["ready"]
        changes: list[tuple[float, str, int]] = []  # when each was acknowledged
        live: set[int] = set()
        for step in [*range(STEPS), 999]:
            rows = np.repeat(rng.normal(size=(PAIRS, DIM)), 2, axis=0)
            ids = [1000 * step + item for item in range(2 * PAIRS)]
            index.add(rows, ids=ids, payloads=[{"step": step}] * len(ids))
            changes.append((time.monotonic(), "added", step))
            live.add(step)
            if step % 3 == 2 and step < 999:
                gone = min(live) if step % 2 else step
                index.remove([1000 * gone + item for item in range(2 * PAIRS)])
                changes.append((time.monotonic(), "removed", gone))
                live.discard(gone)
            if step % 10 == 5:
                index.compact()
            if step in (25, 45):
                index.refresh()
            time.sleep(0.01)
        for reader in readers:
            out, _ = reader.communicate(timeout=120)
            assert reader.returncode == 0
            check_history([json.loads(line) for line in out.splitlines()], changes)
    finally:
        for reader in readers:
            reader.kill()
        index.close()


def check_history(seen: list[Any], changes: list[tuple[float, str, int]]) -> None:
    """What a search sees is a version of the index, and none that was old when it began."""
    versions: list[set[int]] = [set()]
    for _, what, step in changes:
        versions.append(versions[-1] | {step} if what == "added" else versions[-1] - {step})
    last = 0
    for began, steps in seen:
        known = sum(at + FOLLOW < began for at, _, _ in changes)
        later = [
            n for n, each in enumerate(versions) if n >= max(known, last) and each == set(steps)
        ]
        assert later, f"{steps} is none of the versions from {known} on"
        last = later[0]


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index"
    program = (
        f"import irli; irli.open({str(path)!r}, metric='l2', dim=2)\n"
        "print('open', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(irli.IrliError, match=f"in process {other.pid}"):
            irli.open(path)
        assert len(irli.load(path)) == 0
        other.kill()
    with irli.open(path) as index:  # the lock ended with its process
        index.add([[0.0, 1.0]])


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    with irli.open(tmp_path / "index", metric="l2", dim=2) as index:
        index.add([[0.0, 1.0]])
        reader = irli.load(tmp_path / "index")
        for change in (
            lambda: reader.add([[1.0, 1.0]]),
            lambda: reader.remove([0]),
            lambda: reader.set_payload([0], {"a": 1}),
            lambda: reader.compact(),
        ):
            with pytest.raises((irli.IrliError, InvalidParameter), match="reading only"):
                change()
