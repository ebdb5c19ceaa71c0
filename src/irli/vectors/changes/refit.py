"""Learn anew in another process: `python -m irli.vectors.changes.refit FOLDER`.

Learning in the process that answers would make searches wait for Python's lock. The folder has the
vectors, the queries and the settings, and gets the learned index. The process ends with the one
that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.folder import read_folder, write_folder
from irli.base.recipe import Recipe
from irli.errors import IrliError
from irli.vectors.contents import VectorContents, pack_vectors, unpack_vectors

_NICE = 10


class RefitFailed(IrliError):
    """Learning in another process has failed."""


def refit(
    folder: Path,
    contents: VectorContents,
    recipe: Recipe,
    queries: NDArray[np.float32] | None,
    relevant: NDArray[np.int64] | None,
    *,
    warm: bool,
    threads: int,
) -> VectorContents:
    """Learn an index of the same vectors in another process, and return its contents.

    `relevant` (n, j) are the rows that are relevant to the queries, padded with -1.
    """
    np.save(folder / "vectors.npy", contents.layout.vectors)
    if queries is not None:
        np.save(folder / "queries.npy", queries)
    if relevant is not None:
        np.save(folder / "relevant.npy", relevant)
    if warm:
        write_folder(folder / "start", pack_vectors(contents))
    task = {"metric": contents.metric, "recipe": vars(recipe), "threads": threads}
    (folder / "task.json").write_text(json.dumps(task))
    command = [sys.executable, "-m", "irli.vectors.changes.refit", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    with (folder / "told.txt").open("wb") as told:
        # Its input stays open meanwhile: that tells it that we are there.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=told, env=environment)
        with process:
            try:
                process.wait()
            except BaseException:
                process.kill()
                raise
    if process.returncode:
        last = (folder / "told.txt").read_text(errors="replace").strip().splitlines()[-1:]
        raise RefitFailed(
            f"Learning anew has failed: {''.join(last) or process.returncode}. The index stays as "
            "it is. Call refresh() to try again."
        )
    return unpack_vectors(read_folder(folder / "learned", mmap=False, verify=False))


def _run(folder: Path) -> None:
    from irli.vectors.index import VectorIndex

    task: dict[str, Any] = json.loads((folder / "task.json").read_text())
    index = VectorIndex(task["metric"], recipe=Recipe(**task["recipe"]))
    given: dict[str, Any] = {}
    if (folder / "queries.npy").exists():
        given["queries"] = np.load(folder / "queries.npy")
    if (folder / "relevant.npy").exists():
        given["relevance"] = np.load(folder / "relevant.npy")
    if (folder / "start").exists():
        given["start"] = VectorIndex.load(folder / "start", verify=False)
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    index.fit(vectors, threads=task["threads"], **given).save(folder / "learned")


def _end_with_parent() -> None:
    """End this process when the one that has started it is gone: then its pipe is closed."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(_NICE)
    _run(Path(sys.argv[1]))
