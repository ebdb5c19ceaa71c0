"""Every Python block of README and docs runs, and prints what the page shows."""

from __future__ import annotations

import importlib.util
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
        if block.info == "python" and not _lacks(block.text):
            source = "\n" * (block.line - 1) + block.text  # so that errors name the page's lines
            exec(compile(source, str(page), "exec"), names)
            printed = capsys.readouterr().out
        elif block.info == "text" and printed is not None:
            where = f"{name_of(page)}:{block.line} shows another output than:\n{printed}"
            assert skeleton(printed) == skeleton(block.text), where
            assert close(printed, block.text), where
            printed = None


def _lacks(code: str) -> bool:
    """Whether code needs FAISS, and it is not installed."""
    return "import faiss" in code and importlib.util.find_spec("faiss") is None


def test_no_block_is_left_out() -> None:
    infos = {block.info for page in PAGES for block in blocks(page)}
    assert infos <= {"python", "text", "console", "yaml", "bibtex", ""}
