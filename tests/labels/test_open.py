"""A label index that is open in its folder keeps each change, and readers follow."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import irli
from irli import LabelIndex
from irli.errors import IndexInUse, StorageError

OWN = np.arange(300) % 10
ROWS = np.eye(12)[OWN] + 0.1 * np.random.default_rng(0).random((300, 12))
NEW = np.eye(12)[[10, 10, 10]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    LabelIndex(ranker=True).fit(ROWS, OWN[:, None]).save(tmp_path / "index")
    return tmp_path / "index"


def test_each_change_is_in_the_folder(folder: Path) -> None:
    with irli.open(folder) as index:
        index.partial_fit(NEW, [[10], [10], [10]])
        assert len(LabelIndex.load(folder)) == 11
        assert LabelIndex.load(folder).predict(NEW[0], k=1).labels.tolist() == [10]
        index.remove_labels([0])
        assert len(LabelIndex.load(folder)) == 10
    with irli.open(folder) as again:
        assert again.predict(ROWS[1], k=1).labels.tolist() == [0]  # they were numbered anew


def test_readers_follow(folder: Path) -> None:
    reader = irli.open(folder, writable=False)
    with irli.open(folder) as index:
        index.partial_fit(NEW, [[10], [10], [10]])
    time.sleep(0.1)
    assert reader.predict(NEW[0], k=1).labels.tolist() == [10]
    with pytest.raises(StorageError, match="reading"):
        reader.remove_labels([1])
    assert len(reader) == 11


def test_one_process_writes(folder: Path) -> None:
    with irli.open(folder), pytest.raises(IndexInUse, match="process"):
        irli.open(folder)
    irli.open(folder).close()


def test_threads_that_change_it_wait_for_each_other(folder: Path) -> None:
    with irli.open(folder) as index:
        threads = [threading.Thread(target=index.remove_labels, args=([0],)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(index) == len(LabelIndex.load(folder)) == 6


def test_copies_have_no_folder(folder: Path) -> None:
    with irli.open(folder) as index:
        for other in (copy.copy(index), copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
            other.remove_labels([1])
            assert len(other) == 9
        assert len(index) == len(LabelIndex.load(folder)) == 10


def test_a_killed_writer_leaves_what_was_acknowledged(folder: Path) -> None:
    script = f"""
import irli, numpy as np
index = irli.open({str(folder)!r})
while True:
    index.partial_fit(np.eye(12)[[11, 11]], [[len(index)], [len(index)]])
    print(len(index), flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(3)]
        writer.kill()
        told += [int(line) for line in writer.stdout.read().split()]
    assert len(LabelIndex.load(folder)) in (told[-1], told[-1] + 1)
    irli.open(folder).close()
