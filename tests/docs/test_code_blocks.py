"""Every Python block of README and docs runs, and prints what the page shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from outputs import close, skeleton
from pages import PAGES, ROOT, blocks, name_of

WITH_CODE = [p for p in PAGES if any(b.info.startswith("python") for b in blocks(p))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_blocks_of_a_page_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(ROOT / "examples" / "data", tmp_path / "examples" / "data")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    printed = None
    for block in blocks(page):
        if block.info == "python":
            source = "\n" * (block.line - 1) + block.text  # so that errors name the page's lines
            exec(compile(source, str(page), "exec"), names)
            printed = capsys.readouterr().out
        elif block.info == "text" and printed is not None:
            where = f"{name_of(page)}:{block.line} shows another output than:\n{printed}"
            assert skeleton(printed) == skeleton(block.text), where
            assert close(printed, block.text), where
            printed = None


def test_few_blocks_are_left_out() -> None:
    left_out = [
        name_of(page) for page in PAGES for b in blocks(page) if b.info.startswith("python ")
    ]
    assert left_out == ["docs/how-to/cluster.md", "docs/how-to/faiss.md"]
