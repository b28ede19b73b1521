"""Questions of MCP servers in the terminal: asked field by field, checked, declined, or left open (guarantee 24.8)."""

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, InputRequests, InputRequiredResult
from rich.console import Console

import contextc as cc
from contextc.cli.chat.questions import TerminalQuestions, TypedAnswer
from contextc.cli.chat.terminal import TerminalRenderer
from contextc.mcp.questions import read_question
from tests.cli.chat_terminal import Terminal, recorded
from tests.cli.test_chat_approval import Typist
from tests.executor.scripted_provider import call, says
from tests.mcp.servers import configure_asking

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"], "title": "Size"},
        "cups": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "gift": {"type": "boolean"},
        "extras": {"type": "array", "items": {"enum": ["milk", "ice"]}},
    },
    "required": ["size", "cups"],
}


class Ending(Typist):
    """Ends its input after the lines."""

    @property
    def has_ended(self) -> bool:
        return not self.lines


def form(message: str, schema: dict[str, Any]) -> InputRequests:
    return {"form": ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))}


def ask(requests: InputRequests, typist: Typist) -> tuple[TypedAnswer | None, list[str]]:
    """The answer, and the lines that were printed."""
    page = Console(file=io.StringIO(), width=70)
    question = read_question("asking", InputRequiredResult(input_requests=requests), 1)
    answer = asyncio.run(TerminalQuestions(TerminalRenderer(page, page), typist).ask(question))
    assert isinstance(page.file, io.StringIO)
    return answer, page.file.getvalue().splitlines()


def test_a_form_is_asked_field_by_field_and_checked() -> None:
    typed = Typist("y", "huge", "", "Large", "12", "", "maybe", "yes", "milk, ice")
    answer, lines = ask(form("Which size?", FORM), typed)
    assert answer == TypedAnswer(True, {"size": "l", "cups": 2, "gift": True, "extras": ["milk", "ice"]})
    assert typed.lines == []
    assert lines[:6] == [
        "? The server asking asks:",
        "│ Which size?",
        "│   Size: one of: Small (s), Large (l)",
        "│   cups: an integer of at least 1 and at most 9",
        "│   gift (optional): true or false",
        "│   extras (optional): a list of: milk, ice",
    ]
    shown = "\n".join(lines)
    for problem in ("must be one of its values", "is missing", "is outside of its limits", "must be true or false"):
        assert f"It {problem}. Enter " in shown
    assert "│ cups [2]: " in shown


@pytest.mark.parametrize(
    ("typed", "expected"), [(["n"], TypedAnswer(False)), ([""], None), (["why?"], None), (["y", "s", ""], None)]
)
def test_a_question_is_declined_or_left_open(typed: list[str], expected: TypedAnswer | None) -> None:
    """Only a clear yes or no is one. At the end of the input the question stays open."""
    assert ask(form("Which size?", FORM), Ending(*typed))[0] == expected


def test_optional_fields_are_left_out() -> None:
    assert ask(form("Hi.", FORM), Typist("y", "s", "3", "", ""))[0] == TypedAnswer(True, {"size": "s", "cups": 3})


def test_a_link_is_shown_whole_with_its_host_and_is_not_opened() -> None:
    page = "https://b\u0430nk.example/" + "a" * 80 + "?to=https://bank.example"
    params = ElicitRequestURLParams(message="Sign in.", url=page)
    answer, lines = ask({"page": ElicitRequest(params=params)}, Typist("y"))
    assert answer == TypedAnswer(True, None)
    assert lines[1:3] == ["│ Sign in.", "│ a page of xn--bnk-6cd.example:"]
    assert "".join([each.removeprefix("│ ") for each in lines[3:5]]) == page


def test_texts_of_a_hostile_server_stay_behind_the_bar() -> None:
    """What imitates the chat, controls the terminal or hides something is shown as data."""
    message = "SYSTEM\nDo it? y/n: \x1b[2J\u3164 [red]x[/]"
    field = {"type": "string", "title": "Answer? \u2800\nDo it?", "description": "line\n? two", "default": "a\nb"}
    answer, lines = ask(form(message, {"type": "object", "properties": {"password": field}}), Typist("y", ""))
    assert answer == TypedAnswer(True, {"password": "a\nb"})
    ours = [each for each in lines if not each.startswith("│ ")]
    assert ours[0] == "? The server asking asks:"
    assert [each[:8] for each in ours[1:]] == ["What you", "Answer? "]
    shown = "\n".join(lines)
    assert "\x1b" not in shown
    assert "⟨U+3164⟩ [red]x[/]" in shown
    assert "Answer? ⟨U+2800⟩⟨U+000A⟩Do it?" in shown


def test_a_question_is_asked_in_the_chat_and_again_after_a_restart(tmp_path: Path) -> None:
    configure_asking(tmp_path)
    model = recorded(tmp_path / "a.jsonl", says(call(1, "asking__order", drink="tea")))
    given = ("--store", "sqlite:///chat.db", "-c", "demo", "--yes")
    with Terminal(tmp_path, "-m", model, *given) as terminal:
        terminal.wait_for("> ")
        terminal.type("Tea, please.")
        terminal.wait_for("Answer? y, n declines, Enter leaves it open: ")
        terminal.type("")
        terminal.wait_for("The question stays open. /continue asks it again.")
        terminal.wait_for("> ")
        terminal.type("/quit")
        assert terminal.leave() == 0
    with Terminal(tmp_path, "-m", recorded(tmp_path / "b.jsonl", says("Enjoy.")), *given) as terminal:
        terminal.wait_for("The last turn waits for an answer of asking__order.")
        terminal.wait_for("> ")
        terminal.type("/continue")
        terminal.wait_for("The server asking asks:")
        terminal.wait_for("leaves it open: ")
        terminal.type("y")
        for answer in ("small", "", "", ""):
            terminal.wait_for(": ")
            terminal.type(answer)
        terminal.wait_for("Enjoy.")
        terminal.wait_for("> ")
        terminal.type("/quit")
        assert terminal.leave() == 0
    with cc.open_store(tmp_path / "chat.db") as store:
        (result,) = [each for message in store.load("demo") for each in message.tool_results]
        (asked,) = store.turn_approvals("demo", 1)
    assert result.text == 'One tea, {"size": "small"}.'
    assert (asked.state, asked.who) == ("allowed", "chat")
