"""Command line: a file per command, or for several of a kind. A command parses its options, calls one function of the
library, and prints.

Exit code 0: success. 1: problems were found. 2: the call or its input is invalid; the reason is on standard error.
"""

import errno
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Annotated, Any, cast

import contextc
from contextc._sequence_comparison import find_near_names
from contextc.cli.command_line import (
    Aborted,
    Exit,
    HelpWanted,
    Option,
    Parameter,
    UsageError,
    parse_arguments,
    read_parameters,
)
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
    "tag": "tags_and_notes:tag_conversation",
    "note": "tags_and_notes:note_conversation",
    "fork": "store_commands:fork_conversation",
    "delete": "store_commands:delete_conversation",
    "redact": "store_commands:redact_messages",
    "compact": "compact",
    "compile": "compile",
    "explain": "explain",
    "findings": "findings",
    "approvals": "approvals",
    "lint": "lint:lint_files",
    "fix": "lint:fix_files",
    "convert": "lint:convert_files",
    "rule": "rule",
    "models": "models",
    "doctor": "doctor",
    "backup": "store_commands:back_up",
    "restore": "store_commands:restore_store",
    "demo": "demo",
    "trust": "trust",
    "mcp": "mcp",
    "completion": "completion",
}
"""The commands in the order of `contextc --help`, each with its module and function, if that is not `run`."""

RENAMED_COMMANDS = {"tour": "demo"}
"""Earlier names of commands, which still work and which `--help` does not list."""

PROGRAM_ARGUMENTS = ("watch",)
"""Commands whose options end where the first argument begins: the rest belongs to another program."""

WITHOUT_SETTINGS = ("lint", "fix", "convert", "rule", "demo", "trust", "completion")
"""Commands that read no settings, so that an untrusted project file does not matter."""


INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def options(version: Annotated[bool, Option("--version", help="Print the version.")] = False) -> None:
    """Compile stored conversations into model requests."""
    if version:
        out.print(f"contextc {contextc.__version__}")
        raise Exit


def load_command(name: str) -> Callable[..., None]:
    module, _, function = COMMANDS[name].partition(":")
    return getattr(import_module(f"contextc.cli.{module}"), function or "run")


def read_docstring(name: str) -> str:
    """Return the docstring of a command, from the code of its module: importing all takes longer than most of them run.

    A loader of an import hook may have no code.
    """
    module, _, function = COMMANDS[name].partition(":")
    place = f"contextc.cli.{module}"
    loader = cast(Any, find_spec(place)).loader
    if not hasattr(loader, "get_code"):
        return load_command(name).__doc__ or ""
    run = next(each for each in loader.get_code(place).co_consts if getattr(each, "co_name", "") == (function or "run"))
    return run.co_consts[0] or ""


def main() -> None:
    use_utf8()
    try:
        app(_expand(sys.argv[1:]))
    except ContextcError as error:
        err.print(f"[bold red]error:[/] {escape_markup(format_error(error))}", soft_wrap=True)
        sys.exit(2)


def use_utf8() -> None:
    """Read and write UTF-8 in pipes and files, as on other systems. Windows has a code page of its language there."""
    if sys.platform == "win32":
        for each in (sys.stdin, sys.stdout, sys.stderr):
            if isinstance(each, TextIOWrapper) and not each.isatty():
                each.reconfigure(encoding="utf-8")


def _expand(arguments: list[str]) -> list[str]:
    """Return the arguments with patterns replaced by file names, which the shell of Windows leaves to programs."""
    if os.name != "nt":
        return arguments
    from glob import glob

    return [path for each in arguments for path in glob(os.path.expanduser(each), recursive=True) or [each]]


def app(arguments: Sequence[str]) -> None:
    """Run a command, and end this process with its exit code."""
    try:
        _run(arguments)
    except Exit as ended:
        sys.exit(ended.code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (Aborted, EOFError):
        err.print("\n[red]Aborted.[/]")
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        # The reader closed the pipe, which is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def _run(arguments: Sequence[str]) -> None:
    program, parameters = _program(), read_parameters(options)
    with _explained(program, options, parameters, has_commands=True):
        given, rest = parse_arguments(parameters, arguments, takes_rest=True, is_interspersed=False)
        options(**given)
        if not rest:
            _print_help(program, options, parameters, has_commands=True)
            raise Exit(2)
        name = RENAMED_COMMANDS.get(rest[0], rest[0])
        if name not in COMMANDS:
            close = find_near_names(name, COMMANDS)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            raise UsageError(f"No such command {name!r}.{hint}")
    command = load_command(name)
    if name not in WITHOUT_SETTINGS and sys.stdin.isatty() and sys.stderr.isatty():
        # Without trust, the command refuses the project file.
        from contextc.cli import trust  # it is needed rarely

        file = find_untrusted_file()
        if file is not None and trust.can_be_trusted(file) and trust.ask_for_trust(file):
            trust_file(file)
    parameters = read_parameters(command)
    with _explained(f"{program} {name}", command, parameters):
        is_interspersed = name not in PROGRAM_ARGUMENTS
        given, _ = parse_arguments(parameters, rest[1:], takes_rest=False, is_interspersed=is_interspersed)
    command(**given)


@contextmanager
def _explained(
    program: str, command: Callable[..., None], parameters: list[Parameter], *, has_commands: bool = False
) -> Generator[None]:
    """Print the help of a command if its options ask for it, and what is wrong with them."""
    try:
        yield
    except HelpWanted:
        _print_help(program, command, parameters, has_commands=has_commands)
        raise Exit from None
    except UsageError as error:
        from contextc.cli import help_pages

        usage = help_pages.usage(program, parameters, has_commands=has_commands)
        help_pages.print_usage_error(str(error), usage, program)
        raise Exit(2) from None


def _print_help(program: str, command: Callable[..., None], parameters: list[Parameter], *, has_commands: bool) -> None:
    from contextc.cli import help_pages  # it takes time to import

    usage = help_pages.usage(program, parameters, has_commands=has_commands)
    commands = {name: read_docstring(name) for name in COMMANDS} if has_commands else None
    help_pages.print_help(usage, command.__doc__ or "", parameters, commands)


def _program() -> str:
    """Return the command that runs this program: its file, or a module."""
    package = sys.modules["__main__"].__package__
    return f"python -m {package}" if package else os.path.basename(sys.argv[0])
