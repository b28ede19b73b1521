"""Command line: a file per command, or for several of a kind. A command parses its options, calls one function of the
library, and prints.

Exit code 0: success. 1: problems were found. 2: the call or its input is invalid; the reason is on standard error.
"""

import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import contextc
from contextc.cli.console import err, escape_markup, format_error, out
from contextc.config import find_untrusted_file, trust_file
from contextc.errors import ContextcError

COMMANDS = {
    "chat": "chat",
    "serve": "serve",
    "worker": "worker",
    "watch": "watch",
    "proxy": "proxy",
    "list": "store_commands:list_conversations",
    "import": "import_",
    "export": "export",
    "fork": "store_commands:fork_conversation",
    "delete": "store_commands:delete_conversation",
    "redact": "store_commands:redact_messages",
    "compact": "compact",
    "compile": "compile",
    "explain": "explain",
    "findings": "findings",
    "lint": "lint:lint_files",
    "fix": "lint:fix_files",
    "convert": "lint:convert_files",
    "rule": "rule",
    "models": "models",
    "doctor": "doctor",
    "backup": "store_commands:back_up",
    "restore": "store_commands:restore_store",
    "tour": "tour",
    "trust": "trust",
}
"""The commands in the order of `contextc --help`, each with its module and function, if that is not `run`."""

PROGRAM_ARGUMENTS = ("watch",)
"""Commands whose options end where the first argument begins: the rest belongs to another program."""

WITHOUT_SETTINGS = ("lint", "fix", "convert", "rule", "tour", "trust")
"""Commands that read no settings, so that an untrusted project file does not matter."""


class CommandGroup(TyperGroup):
    """The commands. Importing all of them would take longer than most of them run.

    The types of contexts and commands are private in typer.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        only = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        settings = {"allow_interspersed_args": cmd_name not in PROGRAM_ARGUMENTS}
        module, _, function = COMMANDS[cmd_name].partition(":")
        run = getattr(import_module(f"contextc.cli.{module}"), function or "run")
        only.command(cmd_name, context_settings=settings)(run)
        return typer.main.get_command(only)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command. An error names similar ones, which typer does only for commands that are imported."""
        if args and args[0] not in COMMANDS and (close := get_close_matches(args[0], COMMANDS)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(close)}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="contextc",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Compile stored conversations into model requests."""
    if version:
        out.print(f"contextc {contextc.__version__}")
        raise typer.Exit
    if context.invoked_subcommand not in WITHOUT_SETTINGS and sys.stdin.isatty() and sys.stderr.isatty():
        # Without trust, the command refuses the project file.
        from contextc.cli import trust  # it is needed rarely

        file = find_untrusted_file()
        if file is not None and trust.can_be_trusted(file) and trust.ask_for_trust(file):
            trust_file(file)


def main() -> None:
    try:
        app()
    except ContextcError as error:
        err.print(f"[bold red]error:[/] {escape_markup(format_error(error))}", soft_wrap=True)
        sys.exit(2)
