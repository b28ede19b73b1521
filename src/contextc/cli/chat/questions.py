"""Questions of MCP servers in the terminal: the forms field by field, and links as text.

All texts of a question are a server's. They have a bar at the left, and invisible characters are escaped, so that they
cannot imitate the chat. The server is named above them. Nothing opens a link.
"""

import asyncio
from typing import NamedTuple, cast

from rich.text import Text

from contextc._json import JSON, JSONObject
from contextc.app.display_text import spell_out_invisible, spell_out_line
from contextc.cli.chat.terminal import TerminalInput, TerminalRenderer, wrap_lines
from contextc.tools.questions import FormField, InputRequest, Question, describe_values, find_problem, read_typed

YES, NO = ("y", "yes"), ("n", "no")


class TypedAnswer(NamedTuple):
    """An answer to a question: the values of its forms, or that it was declined."""

    allow: bool
    content: JSONObject | None = None


class TerminalQuestions:
    """Asks questions of MCP servers in the terminal."""

    def __init__(self, screen: TerminalRenderer, keyboard: TerminalInput) -> None:
        self.screen, self.keyboard = screen, keyboard

    async def ask(self, question: Question) -> TypedAnswer | None:
        """Return the answer to a question, or None if it stays open."""
        self.screen.line(f"The server {spell_out_line(question.server)} asks:", "bold yellow", "? ")
        for request in question.requests:
            for line in _describe(request):
                self._show(line)
        has_links = len(question.forms) < len(question.requests)
        if has_links:
            self.screen.note("Open the link yourself if you know this site. Then answer.")
        if question.forms:
            self.screen.note("What you enter is sent to this server.")
        self.keyboard.flush_input()
        answer = await self._read(Text.assemble(("Answer? ", "bold yellow"), "y, n declines, Enter leaves it open: "))
        if answer.lower() in NO:
            return TypedAnswer(False)
        if answer.lower() not in YES:
            return None
        found: dict[str, JSONObject] = {}
        for form in question.forms:
            values = await self._fill_in(form)
            if values is None:
                return None
            found[form.key] = values
        if len(found) == 1:
            return TypedAnswer(True, *found.values())
        return TypedAnswer(True, dict[str, JSON](found) if found else None)

    async def _fill_in(self, form: InputRequest) -> JSONObject | None:
        """Return the values of a form, or None if there is no more input."""
        found: JSONObject = {}
        for field in form.fields:
            default = _typed_default(field)
            hint = "" if default is None else f" [{spell_out_line(_as_text(default))}]"
            prompt = Text.assemble(("│ ", "yellow"), f"{_label(field)}{hint}: ")
            while True:
                text = await self._read(prompt)
                if self.keyboard.has_ended:
                    return None
                if not text and default is None and not field.required:
                    break
                value = read_typed(field, text) if text else default
                problem = "is missing" if value is None else find_problem(field, value)
                if not problem:
                    found[field.name] = cast(JSON, value)
                    break
                self.screen.warn(f"It {problem}. Enter {spell_out_line(_values_text(field))}.")
        return found

    async def _read(self, prompt: Text) -> str:
        self.screen.notices.print(prompt, end="", soft_wrap=True)
        try:
            return (await self.keyboard.read_answer()).strip()
        except asyncio.CancelledError:
            self.screen.notices.print()
            raise

    def _show(self, line: str) -> None:
        for piece in wrap_lines(line, self.screen.notices.width - 3):
            self.screen.notices.print(Text.assemble(("│ ", "yellow"), piece), soft_wrap=True)


def _describe(request: InputRequest) -> list[str]:
    """Return a request in lines: its message, then its link or its fields."""
    lines = spell_out_invisible(request.message).split("\n")
    if request.url:
        return [*lines, f"a page of {spell_out_line(request.host)}:", spell_out_line(request.url)]
    for field in request.fields:
        about = f". {spell_out_line(field.description)}" if field.description else ""
        lines.append(f"  {_label(field)}: {spell_out_line(_values_text(field))}{about}")
    return lines


def _label(field: FormField) -> str:
    name = spell_out_line(field.title or field.name)
    return name if field.required else f"{name} (optional)"


def _values_text(field: FormField) -> str:
    """Return what a field takes. A choice is entered as its title or its value."""
    if not any(each.title for each in field.choices):
        return describe_values(field)
    values = ", ".join([f"{each.title} ({each.value})" if each.title else each.value for each in field.choices])
    return f"{'some' if field.kind == 'choices' else 'one'} of: {values}"


def _typed_default(field: FormField) -> str | float | bool | list[str] | None:
    """Return the value that a field begins with, if it fits."""
    given = field.default
    value = list(given) if isinstance(given, tuple) else given
    if value is None or find_problem(field, value):
        return None
    return int(value) if field.kind == "integer" and isinstance(value, float) else value


def _as_text(value: str | float | bool | list[str]) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(value)
        case _:
            return str(value)
