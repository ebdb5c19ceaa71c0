"""The program `irli`: list the commands, import a command when it runs, and report errors.

Importing commands late lets `irli --help` answer at once. The commands are in `irli.cli.vectors`,
`irli.cli.changes`, `irli.cli.labels` and `irli.cli.plan`. To add one, write it there and list it in
`COMMANDS`.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple, TextIO

import typer
from typer import Option
from typer.core import TyperGroup

import irli
from irli.errors import IrliError, IrliWarning

_SILENT = logging.NullHandler()  # commands print their own output instead of the library's logs
# Depending on its version, typer uses the installed click or its own copy.
_UsageError: type[Exception] = typer.BadParameter.mro()[1]


class Command(NamedTuple):
    """The module of a command, and its line in `irli --help`."""

    module: str
    help: str


COMMANDS = {
    "build": Command("vectors", "Build an index of the vectors in a file."),
    "search": Command("vectors", "Find the nearest items of each query in a file."),
    "eval": Command("vectors", "Measure the recall, work and speed of an index."),
    "tune": Command("vectors", "Find the fastest search that reaches a recall."),
    "info": Command("vectors", "Show the contents and the training history of an index."),
    "add": Command("changes", "Add the items of a file to an index."),
    "remove": Command("changes", "Remove items by their ids or payloads."),
    "compact": Command("changes", "Pack the arrays anew, without removed items."),
    "refresh": Command("changes", "Let the routers learn anew from the items that are there."),
    "health": Command("changes", "Measure how well items are found, and say what to do."),
    "plan": Command("plan", "Predict build time, memory and speed on a cluster."),
    "labels": Command("labels", "Learn and predict labels of feature rows or texts."),
}


class LazyCommands(TyperGroup):
    """A group of commands that imports the module of a command when it runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            from irli.base.checks import suggest

            advice = suggest(cmd_name, list(COMMANDS), otherwise="irli --help lists them.")
            ctx.fail(f"No such command '{cmd_name}'. {advice}")
        module = importlib.import_module(f"irli.cli.{COMMANDS[cmd_name].module}")
        command: Any = typer.main.get_command(module.app)
        return getattr(command, "commands", {}).get(cmd_name, command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


app = typer.Typer(cls=LazyCommands, add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def irli_command(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version.")] = False,
) -> None:
    """A learned index: small networks route queries to balanced buckets of items."""
    if version:
        typer.echo(f"irli {irli.__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors of the user print one line to stderr."""
    logging.getLogger("irli").addHandler(_SILENT)
    command: Any = typer.main.get_command(app)
    try:
        with _print_warnings():
            code: int = command.main(args=argv, prog_name="irli", standalone_mode=False) or 0
        return code
    except _UsageError as error:
        return _fail(error.format_message(), 2)  # type: ignore[attr-defined]
    except (IrliError, FileNotFoundError) as error:
        return _fail(error, 2)
    except ImportError as error:
        if "IRLI_SIMD" not in str(error):
            raise
        return _fail(error, 2)
    except OSError as error:
        return _fail(error, 1)
    except typer.Abort:
        return 130


@contextmanager
def _print_warnings() -> Iterator[None]:
    """Print each warning of irli as a line on stderr."""
    with warnings.catch_warnings():
        print_other = warnings.showwarning

        def print_line(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, IrliWarning):
                typer.echo(f"irli: warning: {message}", err=True)
            else:
                print_other(message, category, filename, lineno, file, line)

        warnings.showwarning = print_line
        warnings.simplefilter("always", IrliWarning)
        yield


def _fail(error: object, code: int) -> int:
    typer.echo(f"irli: error: {' '.join(str(error).split())}", err=True)
    return code
