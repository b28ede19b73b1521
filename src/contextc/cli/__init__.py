"""The command line: one file per command. A command parses, calls one function of the library, and prints.

Exit code 0: done. 1: something was found. 2: the call or its input was wrong; the reason is on standard error.
"""

import sys

import typer

from contextc.cli import doctor, export, fork, import_, tour
from contextc.cli.terminal import err, plain
from contextc.errors import ContextcError

app = typer.Typer(
    name="contextc",
    help="Compiles a stored conversation into exactly what one model should see.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("import")(import_.run)
app.command("export")(export.run)
app.command("fork")(fork.run)
app.command("doctor")(doctor.run)
app.command("tour")(tour.run)


def main() -> None:
    try:
        app()
    except ContextcError as error:
        err.print(f"[bold red]error:[/] {plain(str(error))}")
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        sys.exit(0)
