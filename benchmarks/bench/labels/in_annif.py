"""One stage of `annif.py`, in Annif's environment, which prints what it took as JSON.

python -m bench.labels.in_annif FOLDER load|train|suggest PROJECT THREADS

It uses Annif's own commands. Only single documents are timed by calls, since a command would time
its start.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.common import REPOSITORY, read_memory, time_least

sys.path.insert(0, str(REPOSITORY / "src"))  # irli is not installed in this environment

from annif.cli import cli

from irli.integrations.annif import register

SINGLE = 300  # documents that are asked about one by one
REPEATS = 3  # of all documents; the fastest counts


def load() -> dict[str, float]:
    """Load the vocabulary."""
    call("load-vocab", "--language", "en", "yso", "vocabulary.tsv")
    return {}


def train(project: str, threads: int) -> dict[str, float]:
    """Train a project."""
    wall, cpu = time.perf_counter(), time.process_time()
    call("train", "--jobs", str(threads), project, "train.tsv")
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mb": read_memory("VmHWM") / 2**20,
    }


def suggest(project: str) -> dict[str, float]:
    """Evaluate a project on the test documents, and time its suggestions."""
    call("eval", "--jobs", "1", "--metrics-file", "metrics.json", project, "test.tsv")
    found: dict[str, float] = json.loads(Path("metrics.json").read_text())
    return found | time_suggestions(project) | {"suggest_mb": read_memory("VmHWM") / 2**20}


def time_suggestions(name: str) -> dict[str, float]:
    """Return the CPU milliseconds of a document, in Annif's batches of 32 and one by one."""
    import annif
    import annif.registry
    from annif.corpus import DocumentFileTSV

    with annif.create_flask_app("annif.default_config.Config").app_context():
        project = annif.registry.get_project(name)
        corpus = DocumentFileTSV("test.tsv", project.subjects)
        batches = list(corpus.doc_batches)
        documents = [document for batch in batches for document in batch]

        def ask(several: list[Any]) -> None:
            for each in several:
                project.suggest(each)

        ask(batches[:2])
        single = [[document] for document in documents[:SINGLE]]
        return {
            "batch_ms": 1e3 * time_least(lambda: ask(batches), REPEATS) / len(documents),
            "single_ms": 1e3 * time_least(lambda: ask(single), REPEATS) / len(single),
        }


def call(*arguments: str) -> None:
    """Run a command of Annif in this process."""
    cli.main(args=list(arguments), prog_name="annif", standalone_mode=False)


def main(folder: str, stage: str, project: str, threads: str) -> None:
    """Run the stage that the command line names."""
    os.chdir(folder)
    register()
    if stage == "load":
        found = load()
    else:
        found = train(project, int(threads)) if stage == "train" else suggest(project)
    print()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
