"""Annif's backends on library titles: ours, Omikuji and TF-IDF, all through Annif itself.

Each backend is trained by one process and suggests in another, both in the environment of
annif.txt. Annif computes the metrics: `irli-annif eval`.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench.commands import Options, find_file
from bench.common import find_python, list_packages, report_table, run_module, say
from bench.smoke import SHORT

ENVIRONMENT = ".venv-annif"
DATA = "finna-en"
SUBJECT = "http://www.yso.fi/onto/yso/"
# Omikuji as the National Library of Finland runs it, which is Bonsai.
BONSAI = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}
PROJECTS: dict[str, dict[str, Any]] = {
    "tfidf": {"backend": "tfidf"},
    "omikuji": {"backend": "omikuji", **BONSAI},
    "irli": {"backend": "irli"},
}
COMMON = {"language": "en", "analyzer": "snowball(english)", "vocab": "yso"}
METRICS = ("F1@5", "NDCG", "NDCG@5", "NDCG@10", "Precision@1")
HEAD = [
    "backend",
    *METRICS,
    "train s",
    "train CPU s",
    "train MB",
    "model MB",
    "batch CPU ms",
    "single CPU ms",
    "suggest MB",
]
FIGURES = ("seconds", "cpu_seconds", "peak_mb", "model_mb", "batch_ms", "single_ms", "suggest_mb")


def annif(options: Options) -> None:
    """Train and measure every backend; ours is the mean over the seeds."""
    installed = list_packages(find_python(ENVIRONMENT))
    if not {"annif", "omikuji"} <= set(installed):
        say("annif: skipped, since annif or omikuji is not installed (make annif).")
        return
    seeds = range(1 if options.smoke else options.seeds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_documents(options.data, folder, options.titles, options.test_titles)
        projects = list_projects(seeds, SHORT["labels"] if options.smoke else {})
        write_projects(folder / "projects.cfg", projects)
        _run(folder, "load", "", options.threads)
        runs: dict[str, list[dict[str, float]]] = {each: [] for each in PROJECTS}
        for project, settings in projects.items():
            found = _run(folder, "train", project, options.threads)
            found |= _run(folder, "suggest", project, options.threads)
            found["model_mb"] = measure_model(folder / "data" / "projects" / project)
            runs[settings["backend"]].append(found)
            say(f"{project}: trained in {found['seconds']:.0f} s, F1@5 {found['F1@5']:.4f}")
    rows = [[backend, *_tabulate(found)] for backend, found in runs.items()]
    sizes = {"titles": options.titles, "test_titles": options.test_titles, "seeds": len(seeds)}
    versions = {each: installed[each] for each in ("annif", "omikuji")}
    path = options.results / "labels" / f"annif-{sizes['titles']}.json"
    report_table(path, HEAD, rows, **sizes, **versions)


def list_projects(seeds: range, changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of each project. Ours has one for each seed.

    Examples
    --------
    >>> list(list_projects(range(2), {}))
    ['tfidf', 'omikuji', 'irli-0', 'irli-1']
    """
    others = {name: settings for name, settings in PROJECTS.items() if name != "irli"}
    ours = {f"irli-{seed}": PROJECTS["irli"] | {"seed": seed} | changes for seed in seeds}
    return others | ours


def write_projects(path: Path, projects: dict[str, dict[str, Any]]) -> None:
    """Write the file that tells Annif of its projects."""
    lines: list[str] = []
    for name, settings in projects.items():
        every = {"name": name} | COMMON | settings
        lines += [f"[{name}]", *(f"{key}={value}" for key, value in every.items()), ""]
    path.write_text("\n".join(lines))


def write_documents(data: Path, folder: Path, titles: int, test_titles: int) -> None:
    """Write vocabulary, training and test titles as Annif reads them."""
    with _open(find_file(data, f"{DATA}-labels.tsv.gz")) as lines:
        subjects = [line.rstrip("\n").split("\t") for line in lines]
    uris = [f"<{SUBJECT}{number}>" for number, _ in subjects]
    names = (f"{uri}\t{name}\n" for uri, (_, name) in zip(uris, subjects, strict=True))
    (folder / "vocabulary.tsv").write_text("".join(names), "utf-8")
    for part, count in (("train", titles), ("test", test_titles)):
        with (
            _open(find_file(data, f"{DATA}-{part}.tsv.gz")) as lines,
            (folder / f"{part}.tsv").open("w", encoding="utf-8") as out,
        ):
            for line in islice(lines, count):
                title, numbers = line.rstrip("\n").split("\t")
                out.write(f"{title}\t{' '.join(uris[int(each)] for each in numbers.split())}\n")


def _open(path: Path) -> Any:
    return gzip.open(path, "rt", encoding="utf-8")


def measure_model(folder: Path) -> float:
    """Return the MB of what suggesting reads: all but what is kept to train again."""
    paths = [path for path in folder.rglob("*") if path.is_file() and "-train" not in path.name]
    return sum(path.stat().st_size for path in paths) / 1e6


def _run(folder: Path, stage: str, project: str, threads: int) -> dict[str, float]:
    """Run one stage in a fresh process, in Annif's environment."""
    python = find_python(ENVIRONMENT)
    arguments = (folder, stage, project, threads)
    said = run_module("bench.labels.in_annif", *arguments, python=python, threads=threads)
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found


def _tabulate(runs: list[dict[str, float]]) -> list[str]:
    """Return the means over the runs as cells of the table."""

    def mean(key: str) -> float:
        return float(np.mean([run[key] for run in runs]))

    return [
        *(f"{mean(key):.4f}" for key in METRICS),
        *(f"{mean(key):.2f}" if key.endswith("_ms") else f"{mean(key):.0f}" for key in FIGURES),
    ]
