"""Tables of results, as JSON with all that was measured, and as Markdown for the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.common import format_table, report_table


def keep_table(path: Path, head: list[str], rows: list[list[Any]], **more: Any) -> None:
    """Print a table, and write it into `path`.json and `path`.md."""
    report_table(path.with_suffix(".json"), head, rows, **more)
    path.with_suffix(".md").write_text("\n".join(format_table(head, rows)) + "\n")
