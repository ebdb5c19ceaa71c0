"""The names in the source: what modules say of themselves, and classes that are not confused."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import irli

SOURCE = Path(irli.__file__).parent
TREES = {
    path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8"))
    for path in sorted(SOURCE.rglob("*.py"))
}
DOCSTRINGS = {name: ast.get_docstring(tree) or "" for name, tree in TREES.items()}


def test_the_first_line_of_a_module_says_what_it_is() -> None:
    faults = []
    for name, docstring in DOCSTRINGS.items():
        first, _, rest = docstring.partition("\n")
        if not first.endswith(".") or len(first) > 100 or (rest and not rest.startswith("\n")):
            faults.append(f"{name}: {first}")
    assert faults == []


def test_no_two_modules_begin_alike() -> None:
    first = Counter(docstring.partition("\n")[0] for docstring in DOCSTRINGS.values())
    assert [line for line, count in first.items() if count > 1] == []


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_every_room_is_a_package() -> None:
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []
