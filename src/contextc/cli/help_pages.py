"""Prints the help of a command, and errors about its command line: panels with a table of options or commands."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from rich.columns import Columns
from rich.console import Console, Group
from rich.highlighter import RegexHighlighter
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from contextc.cli.command_line import HELP, Argument, Option, Parameter


class _Options(RegexHighlighter):
    """Highlights options, and the beginning of the usage line."""

    highlights = (
        r"(^|\W)(?P<switch>\-\w+)(?![a-zA-Z0-9])",
        r"(^|\W)(?P<option>\-\-[\w\-]+)(?![a-zA-Z0-9])",
        r"(?P<types>\<[^\>]+\>)",
        r"(?P<usage>Usage: )",
    )


class _Types(RegexHighlighter):
    """Highlights what separates types."""

    highlights = (r"^(?P<types_sep>(\[|<))", r"(?P<types_sep>\|)", r"(?P<types_sep>(\]|>))(\.\.\.)?$")


highlight, highlight_types = _Options(), _Types()
STYLES = {
    "option": "bold cyan",
    "switch": "bold green",
    "types": "bold yellow",
    "types_sep": "dim",
    "usage": "yellow",
}


def usage(program: str, parameters: Sequence[Parameter], *, has_commands: bool) -> str:
    """Return the usage line of a command."""
    parts = [f"Usage: {program} [OPTIONS]"]
    for each in parameters:
        if isinstance(each.declared, Argument):
            name = each.declared.metavar or each.key
            parts.append((f"{{{name}}}" if each.is_required else f"[{name}]") + ("..." if each.is_list else ""))
    return " ".join([*parts, "COMMAND [ARGS]..."] if has_commands else parts)


def print_help(
    usage_line: str, text: str, parameters: Sequence[Parameter], commands: Mapping[str, str] | None = None
) -> None:
    """Print the help of a command: its docstring, its arguments and options, and the commands below it."""
    console = _console()
    console.print(Padding(highlight(usage_line), 1), style="bold")
    first, *rest = inspect.cleandoc(text).split("\n\n")
    paragraphs = [_markup(first.replace("\n", " ").strip())]
    if rest:
        paragraphs += [Text(""), _markup("\n\n".join(rest), "dim")]
    console.print(Padding(Group(*paragraphs), (0, 1, 1, 1)))
    shown = [*parameters, HELP]
    _print_parameters(console, "Arguments", [each for each in shown if isinstance(each.declared, Argument)])
    options = [each for each in shown if isinstance(each.declared, Option) and not each.declared.hidden]
    _print_parameters(console, "Options", options)
    if commands is not None:
        table = _table()
        table.add_column(style="bold cyan", no_wrap=True, width=max(map(len, commands)))
        table.add_column(ratio=10)
        for name, about in commands.items():
            table.add_row(Text(name), _markup(inspect.cleandoc(about).partition("\n\n")[0].strip()))
        console.print(Panel(table, border_style="dim", title="Commands", title_align="left"))


def print_usage_error(message: str, usage_line: str, program: str) -> None:
    """Print an error about the command line on standard error."""
    console = _console(stderr=True)
    console.print(highlight(usage_line), style="bold")
    console.print(f"Try [blue]'{escape(program)} --help'[/] for help.", style="dim")
    console.print(Panel(highlight(message), border_style="red", title="Error", title_align="left"))


def _console(*, stderr: bool = False) -> Console:
    return Console(theme=Theme(STYLES), highlighter=highlight, stderr=stderr)


def _markup(text: str, style: str = "") -> Text:
    found = Text.from_markup(text, style=style)
    highlight.highlight(found)
    return found


def _table(**settings: Any) -> Table:
    return Table(show_header=False, expand=True, box=None, pad_edge=False, padding=(0, 1), **settings)


def _print_parameters(console: Console, title: str, parameters: Sequence[Parameter]) -> None:
    if not parameters:
        return
    table = _table(highlight=True)
    for each in parameters:
        declared = each.declared
        types = Text(_type_text(each), style="bold yellow", overflow="fold")
        names = (declared.name, declared.short) if isinstance(declared, Option) else ("", _argument_name(each))
        opposite = Text(",".join(each.opposites), style="bold magenta")
        row = [*map(highlight, names), opposite, "", highlight_types(types), _help_cell(each)]
        if any(other.is_required for other in parameters):
            row.insert(0, Text("*", style="red") if each.is_required else "")
        table.add_row(*row)
    console.print(Panel(table, border_style="dim", title=title, title_align="left"))


def _argument_name(parameter: Parameter) -> str:
    return parameter.declared.metavar or f"{parameter.key}{'...' if parameter.is_list else ''}"


def _type_text(parameter: Parameter) -> str:
    declared = parameter.declared
    names = ",".join([_type_name(each) for each in parameter.types])
    if isinstance(declared, Option) and declared.metavar:
        text = declared.metavar
    elif parameter.is_list:
        text = f"<list[{names}]>"
    elif isinstance(declared, Option) and declared.min is not None:
        text = f"<{names} range>"
    else:
        text = f"<{names}>{'...' if len(parameter.types) > 1 else ''}"
    least = declared.min if isinstance(declared, Option) else None
    return text if least is None else f"{text} [x>={least}]"


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    return "path" if kind is Path else kind.__name__


def _help_cell(parameter: Parameter) -> Columns:
    declared, default = parameter.declared, parameter.default
    items = [_markup(declared.help.strip())] if declared.help else []
    is_shown = isinstance(declared, Option) or declared.show_default
    if is_shown and not parameter.is_required and default not in (None, False) and str(default):
        items.append(Text(f"[default: {default}]", style="dim"))
    if parameter.is_required:
        items.append(Text("[required]", style="dim red"))
    return Columns(items)
