"""Helpers for all rewrites: the conversation, and traversal of a body."""

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, cast

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from contextc.messages import AnyPart, ToolCall, ToolResult
from tests.sdk_comparison.request_pairs import Conversation


class RewriteContext(NamedTuple):
    """The conversation that both got, and our format."""

    conversation: Conversation
    form: Formatter

    @property
    def messages(self) -> tuple[cc.Message, ...]:
        return self.conversation.messages

    def parts(self) -> list[AnyPart]:
        return [part for message in self.messages for part in message.parts]

    def calls(self) -> dict[str, ToolCall]:
        return {part.id: part for part in self.parts() if isinstance(part, ToolCall)}

    def results(self) -> dict[str, ToolResult]:
        return {part.call_id: part for part in self.parts() if isinstance(part, ToolResult)}


Rewrite: TypeAlias = Callable[[JSONObject, RewriteContext], None]

IDS = ("id", "tool_use_id", "tool_call_id", "call_id", "toolUseId")
OPAQUE = ("input", "args", "response", "parameters", "input_schema", "parametersJsonSchema", "inputSchema", "arguments")
"""Names under which a tool's own words stand, and not the provider's."""


def objects(value: JSON) -> Iterator[JSONObject]:
    """Every object of a body that is the provider's."""
    if isinstance(value, list):
        for each in cast(list[JSON], value):
            yield from objects(each)
    elif isinstance(value, dict):
        thing = cast(JSONObject, value)
        yield thing
        for key, each in thing.items():
            if key not in OPAQUE or isinstance(each, list):  # the items of Responses are its `input` too
                yield from objects(each)


def is_blank(block: JSONObject) -> bool:
    text: JSON = block.get("text")
    return isinstance(text, str) and not text.strip() and block.get("type", "text") in ("text", "input_text")


def merged(messages: list[JSONObject], key: str, roles: tuple[str, ...] = ("user", "assistant")) -> list[JSONObject]:
    """Neighbours of one of these roles as one."""
    found: list[JSONObject] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"] and message["role"] in roles:
            found[-1][key] += message[key]
        else:
            found.append(message)
    return found


def tagged(text: str) -> str:
    """What the system says, as the user may say it."""
    return f"<system-reminder>\n{text}\n</system-reminder>"


def as_javascript(value: JSON) -> str:
    """JSON as JavaScript writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
