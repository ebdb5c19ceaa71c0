"""The rooms of the source: few modules beside them, one way of imports, names that are unique."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import irli

TESTS = Path(__file__).parents[1]
SOURCE = Path(irli.__file__).parent
ROOMS = ("base", "cli", "cluster", "engine", "integrations", "labels", "learning", "vectors")
MODULES = sorted(SOURCE.rglob("*.py"))
MOST_BESIDE = 6
# Tests that belong to no room: of files beside the code, and what tests read.
OTHER_TESTS = {"benchmarks", "data", "docs", "repository"}
# Two private helpers, each the measuring of candidates in its own module `tune`.
TWINS: set[str] = set()


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def test_there_are_eight_rooms_and_few_modules_beside_them() -> None:
    rooms = {name_of(path).partition("/")[0] for path in MODULES if path.parent != SOURCE}
    assert sorted(rooms) == sorted(ROOMS)
    beside = [path.name for path in SOURCE.glob("*.py") if path.name != "__init__.py"]
    assert len(beside) <= MOST_BESIDE, beside


def test_the_first_line_of_a_module_says_what_it_is() -> None:
    faults = []
    for path in MODULES:
        docstring = ast.get_docstring(parse(path)) or ""
        first, _, rest = docstring.partition("\n")
        if not first.endswith(".") or len(first) > 100 or (rest and not rest.startswith("\n")):
            faults.append(f"{name_of(path)}: {first}")
    assert faults == []


def test_no_two_modules_begin_alike() -> None:
    lines = [(ast.get_docstring(parse(path)) or "").partition("\n")[0] for path in MODULES]
    assert len(set(lines)) == len(lines)


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in TWINS} == {}


def test_the_cluster_calls_no_kernel() -> None:
    users = {
        name_of(path).partition("/")[0]
        for path in MODULES
        if "irli._native" in path.read_text("utf-8")
    }
    assert "engine" in users
    assert "cluster" not in users


def test_the_tests_have_the_same_rooms() -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert set(ROOMS) <= folders
    assert folders - set(ROOMS) <= OTHER_TESTS
