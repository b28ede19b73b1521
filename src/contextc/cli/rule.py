"""`contextc rule`: explain a lint rule."""

from typing import Annotated

from rich.table import Table

from contextc.cli.command_line import Argument, Option
from contextc.cli.console import escape_markup, out
from contextc.formats.rules_docs import find_rule, list_rules, render_rule


def run(
    code: Annotated[str | None, Argument(help="The code of a rule or a finding, such as ANT014; or a prefix.")] = None,
    format: Annotated[
        str | None, Option("--format", "-f", help="List the rules of this format: openai_chat, anthropic, …")
    ] = None,
) -> None:
    """Explain a rule: reason, error of the provider, example, repair; or a finding. Without a code: list the rules."""
    found = list_rules(format, (code or "").upper())
    if code is not None and not found and format is None and (text := _describe_finding(code)):
        out.print(escape_markup(text), soft_wrap=True)
        return
    if code is not None and (not found or found[0][1].code == code.upper()):
        out.print(escape_markup(render_rule(find_rule(code))), soft_wrap=True)
        return
    table = Table("format", "code", "rule", box=None)
    for name, rule in found:
        table.add_row(name, rule.code, escape_markup(rule.title))
    out.print(table)


def _describe_finding(code: str) -> str:
    """Return what `contextc findings` means by a code; "" if there is none."""
    from contextc.analysis.finding import get_code  # it takes time to import

    try:
        found = get_code(code.upper())
    except KeyError:
        return ""
    return f"{found.code} ({found.cause}): {found.title}\n\n{found.description}\n\nFix: {found.fix}"
