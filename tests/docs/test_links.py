"""Links lead somewhere, and the site shows every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import DOCS, PAGES, ROOT, anchors, name_of, prose


def _links(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.S | re.M)
    return [
        link
        for link in re.findall(r"\]\(([^)\s]+)\)", text)
        if not link.startswith(("http:", "https:", "mailto:"))
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_anchors_exist(page: Path) -> None:
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{name_of(page)} links to {link}, which is not there"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)} links to {link}: no such heading"


@pytest.mark.parametrize("page", [p for p in PAGES if p.is_relative_to(DOCS)], ids=name_of)
def test_pages_link_only_within_the_site(page: Path) -> None:
    for link in _links(page):
        target = (page.parent / link.partition("#")[0]).resolve()
        assert target.is_relative_to(DOCS), f"{name_of(page)} links to {link}, outside of docs/"


def test_the_site_shows_every_page() -> None:
    listed = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.M)
    listed += re.findall(r"^  - .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.M)
    assert set(listed) == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_no_page_is_without_a_title() -> None:
    for page in PAGES:
        if page.name != "changelog.md":  # it includes CHANGELOG.md
            assert prose(page).startswith("# "), name_of(page)


def test_benchmarks_that_pages_name_exist() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"benchmarks/(\w+\.py) ([a-z-]+)", text))
    assert named
    for file, name in named:
        # The docstring at its top lists what a benchmark's file can be asked for.
        listed = (ROOT / "benchmarks" / file).read_text(encoding="utf-8").split('"""')[1]
        assert re.search(rf"^    {name} ", listed, flags=re.M), f"benchmarks/{file} {name}"
