"""`contextc rule`: what a rule says, and why."""

from typing import Annotated

import typer

from contextc.cli.terminal import out, plain
from contextc.formats.pages import entry, find_rule


def run(code: Annotated[str, typer.Argument(help="The code of a rule, such as ANT014.")]) -> None:
    """Explain a rule: what it demands, why, what the provider says, an example, and the repair."""
    out.print(plain(entry(find_rule(code))), soft_wrap=True)
