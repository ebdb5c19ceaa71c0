"""The command itself: it starts fast, knows its commands, and takes each option everywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import Runner, refused

import irli
from irli.cli import console
from irli.cli.app import COMMANDS, app
from irli.errors import InvalidParameter

HEAVY = {"numpy", "scipy", "torch", "ray", "h5py", "sklearn", "tqdm"}


def python(*arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def each_command() -> Iterator[tuple[str, Any]]:
    """Return every command with the words that a user types, subcommands too."""
    group: Any = typer.main.get_command(app)
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield name, command
        for below, more in getattr(command, "commands", {}).items():
            yield f"{name} {below}", more


# --- help and version ---------------------------------------------------------------------------


def test_version(run: Runner) -> None:
    assert run("--version").out == f"irli {irli.__version__}\n"
    assert python("-m", "irli", "--version") == f"irli {irli.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from irli.cli.app import main
assert main({arguments!r}) == 0
print("modules:", *sys.modules)
"""
    modules = python("-c", code).rpartition("modules:")[2].split()
    assert "irli.cli.app" in modules
    assert not HEAVY & {module.partition(".")[0] for module in modules}


def test_help_lists_every_command(run: Runner) -> None:
    for shown in (run(), run("--help")):
        assert shown.code == 0
        listed = re.findall(r"^  (\w+)  +(.*)$", shown.out.partition("Commands:")[2], re.MULTILINE)
        assert dict(listed) == {name: command.help for name, command in COMMANDS.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_how_its_help_begins(run: Runner, name: str) -> None:
    help = dict(each_command())[name].help

    def words(text: str) -> list[str]:
        return re.findall(r"\w+", text)[:4]

    assert words(COMMANDS[name].help) == words(help)
    assert COMMANDS[name].help.endswith(".")
    assert len(COMMANDS[name].help) < 60
    shown = run(name, "--help")
    assert shown.code == 0
    assert " ".join(help.split()) in " ".join(shown.out.split())


def test_every_command_and_option_has_help(run: Runner) -> None:
    for name, command in each_command():
        shown = run(*name.split(), "--help")
        assert (shown.code, shown.err) == (0, "")
        assert f"irli {name}" in shown.out
        assert "completion" not in shown.out
        assert "..." not in re.sub(r"\[\w+\]\.\.\.", "", shown.out), name  # no line is cut
        for option in command.params:
            assert option.help or option.name == "help", f"irli {name} {option.name}"


def test_search_help_names_all_scores(run: Runner) -> None:
    said = " ".join(run("search", "--help").out.split())
    assert "codes, votes, probability or log-probability" in said
    assert "--threshold" in run("search", "--help").out


def test_wrong_usage_is_one_line(run: Runner) -> None:
    refused(run("bild"), "bild")
    refused(run("labels", "fits"), "fits")
    refused(run("build"))
    refused(run("search", "a", "b", "--nothing"), "--nothing")
    refused(run("search", "a", "b", "--k", "ten"), "--k")
    refused(run("search", "a", "b", "-k", "0"), "-k")


# --- options that many commands have ------------------------------------------------------------


def test_k_has_a_short_form_everywhere() -> None:
    with_k = {
        name: option.opts
        for name, command in each_command()
        for option in command.params
        if option.name == "k"
    }
    labels = {"labels predict", "labels eval", "labels explain"}
    assert set(with_k) == {"search", "eval", "tune", "plan"} | labels
    assert all({"--k", "-k"} == set(opts) for opts in with_k.values())


def test_settings_are_read_by_their_types() -> None:
    pairs = ["pieces=0", "boost=false", "noise=0.5", "affinity=item", "epochs=3", "slack=2"]
    assert console.read_settings(pairs) == {
        "pieces": 0,
        "boost": False,
        "noise": 0.5,
        "affinity": "item",
        "epochs": 3,
        "slack": 2.0,
    }
    assert console.read_settings(["boost=True"]) == {"boost": True}
    assert console.read_settings([]) == {}


@pytest.mark.parametrize(
    ("pair", "kind"),
    [
        ("pieces=x", "int"),
        ("pieces=", "int"),
        ("pieces=None", "int"),
        ("epochs=1.5", "int"),
        ("boost=maybe", "bool"),
        ("boost=1", "bool"),
        ("noise=loud", "float"),
        ("epochs", "int"),
    ],
)
def test_settings_of_another_type(pair: str, kind: str) -> None:
    with pytest.raises(InvalidParameter, match=f"a value of type {kind} for .* Got '{pair}'"):
        irli.recipe(**console.read_settings([pair]))


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("pieces=x", ["--set", "type int", "'pieces=x'"]),
        ("pieces=-1", ["'pieces'", "-1"]),
        ("boost=maybe", ["--set", "type bool", "'boost=maybe'"]),
        ("nothing=1", ["no setting 'nothing'"]),
        ("=3", ["no setting ''"]),
        ("name=mine", ["no setting 'name'"]),
    ],
)
@pytest.mark.parametrize(
    "command",
    [["build", "x.npy", "out"], ["labels", "fit", "x.txt", "--out", "o"], ["plan", "--items=9"]],
)
def test_settings_that_are_refused(
    run: Runner,
    command: list[str],
    pair: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    more = ["--dim=3"] if command[0] == "plan" else []
    refused(run(*command, *more, "--set", pair), *words)
    assert not any(tmp_path.iterdir())


def test_wrong_vector_instructions_print_one_line(tmp_path: Path) -> None:
    code = "import sys; from irli.cli.app import main; sys.exit(main(['info', 'nothing']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"IRLI_SIMD": "mmx"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("irli: error: The environment variable IRLI_SIMD must be one of")
    assert done.stderr.count("\n") == 1
