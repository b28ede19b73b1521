"""Detection of a file by its content."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.registry import format_names, formatter
from contextc.interchange.open_any import OWN_FORMAT, detect_format, open_text, split_command
from contextc.messages import encode_message
from contextc.observation.reply_decoding import detect_message_format
from tests.conftest import some
from tests.formats.traffic import transcripts

TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]
LOOK = cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
HISTORY = (
    cc.user("What is there?"),
    cc.assistant("Let me see.", tool_calls=[cc.tool_call("call_1", "look", {"at": "a.txt"})]),
    cc.tool_result("call_1", "look", "nothing"),
    cc.assistant("Nothing."),
)
ALIKE = ("mistral", "ollama", "vercel_legacy")  # as OpenAI's, as Mistral's, and read by the newer one
SPOKEN = [name for name in format_names() if not formatter(name).session_line_fields]


@pytest.mark.parametrize("format", [name for name in SPOKEN if name not in ALIKE])
def test_a_bare_list_with_calls_is_reported_by_how_calls_are_written(format: str) -> None:
    """Guarantee 10.6: no format is named anywhere, all of them are asked."""
    messages = formatter(format).format(HISTORY)
    assert detect_message_format(messages) == format
    found = open_text(json.dumps(messages))
    assert (found.format, found.kind, found.body) == (format, "messages", messages)
    assert [message.role for message in found.request.messages] == ["user", "assistant", "tool", "assistant"]


def test_requests_of_the_field_are_read_as_what_they_are() -> None:
    """Transcripts that were recorded elsewhere are all of OpenAI's kind."""
    for body in some(transcripts(), 8):
        assert detect_format(body) == "openai_chat"
        found = open_text(json.dumps(body))
        assert (found.format, found.kind) == ("openai_chat", "messages" if isinstance(body, list) else "request")


def test_our_own_messages_are_ours_in_a_list_or_line_by_line() -> None:
    """Guarantee 10.6: also before they were ever stored."""
    lines = [encode_message(message).decode() for message in HISTORY]
    for text in ("\n".join(lines), f"[{', '.join(lines)}]", lines[0]):
        found = open_text(text)
        assert (found.format, found.kind) == (OWN_FORMAT, "messages")
        assert found.request.messages[0].text == "What is there?"


def test_a_recording_of_a_browser_is_looked_into() -> None:
    """The request that was sent is shown, in its own format; what was answered is no part of it."""
    asked = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
    request = {"url": "https://api.openai.com/v1/chat/completions", "postData": {"text": json.dumps(asked)}}
    reply = {"choices": [{"message": {"role": "assistant", "content": "hello"}}]}
    entry = {"request": request, "response": {"status": 200, "content": {"text": json.dumps(reply)}}}
    found = open_text(json.dumps({"log": {"entries": [entry]}}))
    assert [message.text for message in found.request.messages] == ["hi"]


def test_a_given_format_wins_over_detection() -> None:
    """A person may know better."""
    text = json.dumps([{"role": "user", "content": "hi"}])
    assert open_text(text, "anthropic").format == "anthropic"
    assert open_text(text).format == "openai_chat"


def test_a_transcript_that_is_on_another_file_opens_none(tmp_path: Path) -> None:
    """Nothing that is pasted makes us read a file."""
    meta: JSONObject = {"id": "x", "history_base": {"thread_id": "y", "end_ordinal_exclusive": 1}}
    item: JSONObject = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    lines: list[JSON] = [{"type": "session_meta", "payload": meta}, {"type": "response_item", "payload": item}]
    found = open_text("\n".join(map(json.dumps, lines)))
    assert found.format == "codex"
    assert [message.text for message in found.request.messages] == ["hi"]


@pytest.mark.parametrize("text", ["", "hello", "[]", "{}", "[1]", "null", '"x"', "[" * 10_000, "curl x", "curl 'x"])
def test_unknown_content_is_refused(text: str) -> None:
    with pytest.raises(cc.errors.InvalidRequest):
        open_text(text)


WORDS_OF_A_SHELL = (
    "curl https://x -d '{\"a\": 1}'",
    'curl -d "{\\"a\\": \\"\\\\n\\"}" \\$x',
    "curl 'a'\"b\"c\\ d ''  \t e\n",
    "curl \"\\a\" \\é 'it'\\''s' $'x'",
)


@pytest.mark.parametrize("command", WORDS_OF_A_SHELL)
def test_a_command_has_the_text_that_a_shell_finds(command: str) -> None:
    """Quotes and escapes decide where a body begins and what is in it."""
    assert split_command(command) == shlex.split(command)


@pytest.mark.parametrize("command", ["curl 'x", 'curl "x\\"', "curl x\\", "curl ''' x"])
def test_a_command_whose_quotes_are_not_closed_is_refused(command: str) -> None:
    """Half of a command was copied: a part of its body must not be taken for all of it."""
    with pytest.raises(cc.errors.InvalidRequest, match="not closed"):
        open_text(command)


@pytest.mark.parametrize("quoted", ["'{}'", '"{}"', "$'{}'"])
def test_the_work_of_a_long_command_does_not_grow_with_its_body(quoted: str) -> None:
    """A body of a megabyte is one shell word; a step for each of its characters kept a server busy for a minute."""
    counts: list[int] = []
    for size in (1_000, 50_000):
        steps = 0

        def count(frame: FrameType, event: str, given: object) -> TraceFunction:
            nonlocal steps
            steps += event == "line"
            return count

        sys.settrace(count)
        try:
            with pytest.raises(cc.errors.InvalidRequest):
                open_text("curl -d " + quoted.replace("{}", "\\u0041" * size))
        finally:
            sys.settrace(None)
        counts.append(steps)
    assert counts[1] == counts[0]
