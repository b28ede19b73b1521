"""Command line: one file per command. A command parses its options, calls one function of the library, and prints.

Exit code 0: success. 1: problems were found. 2: the call or its input is invalid; the reason is on standard error.
"""

import sys
from typing import Annotated

import typer

import contextc
from contextc.cli import (
    backup,
    chat,
    compile,
    convert,
    delete,
    doctor,
    explain,
    export,
    fix,
    fork,
    import_,
    lint,
    list_,
    proxy,
    redact,
    rule,
    serve,
    tour,
    trust,
    watch,
)
from contextc.cli.console import err, escape_markup, out
from contextc.cli.error_text import format_error
from contextc.config import find_untrusted_file, trust_file
from contextc.errors import ContextcError

app = typer.Typer(
    name="contextc",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("chat")(chat.run)
app.command("serve")(serve.run)
app.command("watch", context_settings={"allow_interspersed_args": False})(watch.run)  # the rest is the program's
app.command("proxy")(proxy.run)
app.command("list")(list_.run)
app.command("import")(import_.run)
app.command("export")(export.run)
app.command("fork")(fork.run)
app.command("delete")(delete.run)
app.command("redact")(redact.run)
app.command("compile")(compile.run)
app.command("explain")(explain.run)
app.command("lint")(lint.run)
app.command("fix")(fix.run)
app.command("convert")(convert.run)
app.command("rule")(rule.run)
app.command("doctor")(doctor.run)
app.command("backup")(backup.run)
app.command("restore")(backup.run_restore)
app.command("tour")(tour.run)
app.command("trust")(trust.run)

WITHOUT_SETTINGS = ("lint", "fix", "convert", "rule", "tour", "trust")
"""Commands that read no settings, so that an untrusted project file does not matter."""


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
        _ask_for_trust()


def _ask_for_trust() -> None:
    """Ask for trust in a project file that is not trusted. Without it, the command refuses the file."""
    file = find_untrusted_file()
    if file is not None and trust.can_be_trusted(file) and trust.ask_for_trust(file):
        trust_file(file)


def main() -> None:
    try:
        app()
    except ContextcError as error:
        err.print(f"[bold red]error:[/] {escape_markup(format_error(error))}", soft_wrap=True)
        sys.exit(2)
