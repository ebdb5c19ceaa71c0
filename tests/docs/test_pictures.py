"""The pictures are those that `docs/make_pictures.py` draws, and whole."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from xml.etree import ElementTree

import pytest
from pages import DOCS


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()


@pytest.mark.parametrize("name", SCRIPT.PICTURES)
def test_a_picture_is_the_one_that_the_script_draws(name: str) -> None:
    drawn = SCRIPT.PICTURES[name]()
    kept = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert kept == drawn, "Run: python docs/make_pictures.py"


@pytest.mark.parametrize("name", SCRIPT.PICTURES)
def test_a_picture_has_a_title_and_colours_for_the_dark(name: str) -> None:
    root = ElementTree.fromstring(SCRIPT.PICTURES[name]())
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text
    assert "prefers-color-scheme:dark" in SCRIPT.PICTURES[name]()


def test_no_picture_is_left_over() -> None:
    assert {path.stem for path in (DOCS / "pictures").glob("*.svg")} == set(SCRIPT.PICTURES)
