"""The page on the command line shows the options that there are, and what commands print."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from outputs import skeleton
from pages import DOCS, ROOT, Block, bare, blocks, section, table

from irli.cli.app import app, main

PAGE = DOCS / "reference" / "cli.md"


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each command with the words that call it."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_are_those_of_the_command(name: str) -> None:
    rows = table(section(PAGE, f"## {name}"), "option", "meaning")
    listed = [word for cell, _ in rows for word in re.findall(r"(?<![\w-])--?[a-z-]+", bare(cell))]
    options = [
        option
        for parameter in COMMANDS[name].params
        if parameter.param_type_name == "option"
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option != "--help"
    ]
    assert sorted(listed) == sorted(options)
    assert all(meaning for _, meaning in rows)


def test_every_command_is_in_the_overview() -> None:
    rows = table(PAGE.read_text(), "command", "what it does")
    assert [re.findall(r"`irli (.+)`", cell)[0] for cell, _ in rows] == list(COMMANDS)


class Shown(NamedTuple):
    """A command on the page, and the output below it."""

    arguments: list[str]
    output: str
    line: int


def _shown(block: Block) -> Iterator[Shown]:
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "irli", command
        yield Shown(arguments, output, block.line)


@pytest.mark.timeout(900)  # it learns several indexes
def test_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples" / "data", tmp_path / "examples" / "data")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(PAGE):
        if block.info == "python":
            exec(compile(block.text, f"{PAGE}:{block.line}", "exec"), names)
        elif block.info == "console":
            for shown in _shown(block):
                main(shown.arguments)
                captured = capsys.readouterr()
                _compare(captured.out + captured.err, shown)


def _compare(printed: str, shown: Shown) -> None:
    printed = re.sub(r"^simd      \w+", "simd      avx2", printed, flags=re.M)  # of this machine
    where = f"docs/reference/cli.md:{shown.line}: irli {' '.join(shown.arguments)}"
    assert skeleton(printed) == skeleton(shown.output), where
    # Answers are the same ones, whatever the last digits of their scores.
    answers = [re.findall(r"([\w-]+) \(", text) for text in (printed, shown.output)]
    assert answers[0] == answers[1], where
