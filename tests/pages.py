"""The pages of the docs as the tests read them: fenced blocks, tables, headings and links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
_FENCE = re.compile(r"^( *)```(.*)$")


class Block(NamedTuple):
    """A fenced block: its info, such as `python`, its text, and the number of its first line."""

    info: str
    text: str
    line: int


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Return all fenced blocks of a page, in order."""
    found: list[Block] = []
    inside: tuple[str, int, list[str]] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), start=1):
        fence = _FENCE.match(line)
        if fence and inside is None:
            inside = (fence[2].strip(), number + 1, [])
        elif fence and inside is not None:
            info, first, lines = inside
            found.append(Block(info, "".join(f"{text}\n" for text in lines), first))
            inside = None
        elif inside is not None:
            inside[2].append(line)
    assert inside is None, f"{name_of(page)} has a fence that never ends"
    return found


def prose(page: Path) -> str:
    """Return a page without its fenced blocks and inline code."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Markdown's table of contents makes them."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in headings}


def section(page: Path, heading: str) -> str:
    """Return the text below a heading, up to the next one of the same level or higher."""
    level = len(heading) - len(heading.lstrip("#"))
    text = page.read_text(encoding="utf-8")
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{level}}} |\Z)", text, flags=re.S | re.M
    )
    assert found, f"{name_of(page)} has no section '{heading}'"
    return found[1]


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a text, each a list of rows of cells; the first row is the head."""
    found = []
    for lines in re.findall(r"(?:^\|.*\|\n)+", text, flags=re.M):
        rows = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            for line in lines.strip().split("\n")
        ]
        found.append([rows[0], *rows[2:]])
    return found


def table(text: str, *head: str) -> list[list[str]]:
    """Return the rows of the one table with this head."""
    [found] = [rows[1:] for rows in tables(text) if rows[0] == list(head)]
    return found


def bare(cell: str) -> str:
    """Return a cell without its back ticks."""
    return cell.replace("`", "")
