"""What irli logs, and who sees it."""

from __future__ import annotations

import subprocess
import sys

CODE = "from irli.base.logs import get_logger; get_logger('irli.tune').warning('out of reach')"


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stderr


def test_nothing_is_printed_unless_the_user_asks_for_it() -> None:
    assert run(CODE) == ""
    asked = run(f"import logging; logging.basicConfig(); {CODE}")
    assert asked == "WARNING:irli.tune:out of reach\n"
