"""The example of the README runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import irli

README = Path(__file__).parent.parent / "README.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(code.replace("progress=True", "progress=False"), names)
    assert len(irli.load("items.irli")) == 5000


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
