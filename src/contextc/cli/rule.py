"""`contextc rule`: what a rule says, and why."""

from typing import Annotated

import typer
from rich.table import Table

from contextc.cli.terminal import out, plain
from contextc.formats import format_names, formatter
from contextc.formats.pages import entry, find_rule


def run(code: Annotated[str | None, typer.Argument(help="The code of a rule, such as ANT014.")] = None) -> None:
    """Explain a rule: what, why, what the provider says, an example, the repair. Without a code: list them all."""
    if code is not None:
        out.print(plain(entry(find_rule(code))), soft_wrap=True)
        return
    table = Table("format", "code", "rule", box=None)
    for name in format_names():
        for rule in formatter(name).rules.rules:
            table.add_row(name, rule.code, plain(rule.title))
    out.print(table)
