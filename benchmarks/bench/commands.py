"""What the commands share: their options, and the smallest size, in which each takes seconds."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.common import DATA, RESULTS, say

Options = argparse.Namespace
Benchmark = Callable[[Options], None]


def make_parser(text: str, names: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser with the options that all commands have."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="+", choices=list(names), help="one or more of them")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--results", type=Path, help="folder to write to")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="the smallest size, on generated data: does it run? Its figures mean nothing",
    )
    return parser


def run(options: Options, benchmarks: dict[str, Benchmark]) -> None:
    """Run the benchmarks that the command line names."""
    with _use_folders(options):
        for name in options.name:
            if len(options.name) > 1:
                say(f"\n## {name}\n")
            benchmarks[name](options)


@contextmanager
def _use_folders(options: Options) -> Iterator[None]:
    """Fill in the folders; a smoke run has its own, which go when it ends."""
    if not options.smoke:
        options.results = options.results or RESULTS
        yield
        return
    from bench.smoke import write_files

    with tempfile.TemporaryDirectory() as folder:
        options.data = write_files(Path(folder) / "data")
        options.results = options.results or Path(folder) / "results"
        yield


def find_file(data: Path, name: str) -> Path:
    """Return the path of a data file, or end with what to do."""
    path = data / name
    if not path.exists():
        raise SystemExit(f"There must be a file {name} in {data}. Say where it is: --data FOLDER")
    return path


def make_recipe(options: Options, name: str = "default", **changes: Any) -> Any:
    """Return a recipe; in a smoke run a short one."""
    import irli
    from bench.smoke import SHORT

    return irli.recipe(name, **{**changes, **(SHORT[name] if options.smoke else {})})


def choose_device() -> str:
    """Return the device to learn on: a GPU if there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
