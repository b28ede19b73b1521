"""Every input shape of `MessageManager.add_message`, with every formatter, one message at a time.

`python -m tests.message_manager_inputs` prints the table of docs/reference/formats.md. Each text, argument and result
in a shape has a mark such as `K1`; a shape is kept where every mark is in what was stored and in what is sent.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter
from contextc.manager import HistoryFormatter
from contextc.messages import encode_message

Item = cc.Message | JSONObject
OWN = "your own"
PICTURE = cc.Media(mime_type="image/png", data=b"\x89PNG")
PICTURE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}


class Transcript:
    """A formatter as a user may write it: two methods, no base class."""

    def format(self, history: Sequence[cc.Message], system_prompt: str | None) -> list[str]:
        prompt = [f"system: {system_prompt}"] if system_prompt else []
        return [*prompt, *(f"{message.role}: {encode_message(message).decode()}" for message in history)]

    def get_system_prompt(self, system_prompt: str | None) -> str | None:
        return None


FORMATTERS: dict[str, HistoryFormatter] = {**{name: formatter(name) for name in format_names()}, OWN: Transcript()}
HISTORY = [
    cc.user(["K1", PICTURE]),
    cc.assistant(
        "K2", tool_calls=[cc.tool_call("a", "look", '{"at": "K3"}'), cc.tool_call("b", "find", '{"by":"K4"}')]
    ),
    cc.tool_result("a", "look", "K5"),
    cc.tool_result("b", "find", "K6", is_error=True),
    cc.user("K7"),
    cc.assistant("K8"),
    cc.user("K9"),
]
ASKED = {"role": "user", "content": "K1"}
CALLS = [
    {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": "K2"}'}},
    {"id": "b", "type": "function", "function": {"name": "find", "arguments": '{"by": "K3"}'}},
]


def ours(_: HistoryFormatter) -> list[Item]:
    return [*HISTORY]


def seed_c(_: HistoryFormatter) -> list[Item]:
    return [
        {"role": "system", "content": "K9"},
        ASKED,
        {"role": "assistant", "content": None, "toolCalls": CALLS},
        {"role": "tool", "content": "K4", "toolCallId": "a", "name": "look"},
        {"role": "tool", "content": "K5", "toolCallId": "b", "name": "find"},
        {"role": "assistant", "content": "K6"},
    ]


def chat(_: HistoryFormatter) -> list[Item]:
    return [
        {"role": "developer", "content": "K9"},
        {"role": "user", "content": [{"type": "text", "text": "K1"}, PICTURE_PART]},
        {"role": "assistant", "content": "K8", "tool_calls": CALLS},
        {"role": "tool", "content": "K4", "tool_call_id": "a"},
        {"role": "tool", "content": [{"type": "text", "text": "K5"}], "tool_call_id": "b"},
        {"role": "assistant", "content": None, "refusal": "K6"},
    ]


def chat_functions(_: HistoryFormatter) -> list[Item]:
    """What OpenAI had before tools, twice: neither calls nor results have ids."""
    rounds = [
        [
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "look", "arguments": f'{{"at": "{call}"}}'},
            },
            {"role": "function", "name": "look", "content": result},
        ]
        for call, result in (("K2", "K3"), ("K4", "K5"))
    ]
    return [ASKED, *rounds[0], *rounds[1]]


def own(form: HistoryFormatter) -> list[Item] | None:
    """Return a history in the provider's own API; where it joins messages, results are beside text in one dict."""
    return [*form.format(HISTORY, None)] if isinstance(form, Formatter) else None


def own_unknown(form: HistoryFormatter) -> list[Item] | None:
    """The same with a field that no provider has, in its first message."""
    items = own(form)
    if items is None:
        return None
    first = cast(JSONObject, items[0])
    holder = (
        {**first, "message": {**first["message"], "shoeSize": 44}} if "message" in first else {**first, "shoeSize": 44}
    )
    return [holder]


def chat_unknown(_: HistoryFormatter) -> list[Item]:
    return [{**ASKED, "shoeSize": 44}]


def part_unknown(_: HistoryFormatter) -> list[Item]:
    return [{"role": "user", "content": [{"type": "text", "text": "K1", "shoeSize": 44}]}]


def of_anthropic(_: HistoryFormatter) -> list[Item]:
    block = {"type": "tool_result", "tool_use_id": "a", "content": "K3"}
    return [
        ASKED,
        cc.assistant(tool_calls=[cc.tool_call("a", "look", '{"at": "K2"}')]),
        {"role": "user", "content": [block, {"type": "text", "text": "K4"}]},
    ]


def of_gemini(_: HistoryFormatter) -> list[Item]:
    calls = [{"functionCall": {"name": "look", "args": {"at": at}}} for at in ("K2", "K3")]
    results = [{"functionResponse": {"name": "look", "response": {"output": expected}}} for expected in ("K4", "K5")]
    return [ASKED, {"role": "model", "parts": calls}, {"role": "user", "parts": results}]


def of_the_ai_sdk(_: HistoryFormatter) -> list[Item]:
    names = {"toolCallId": "a", "toolName": "look"}
    return [
        ASKED,
        {"role": "assistant", "content": [{"type": "tool-call", **names, "input": {"at": "K2"}}]},
        {"role": "tool", "content": [{"type": "tool-result", **names, "output": {"type": "text", "value": "K3"}}]},
    ]


def of_responses(_: HistoryFormatter) -> list[Item]:
    return [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "K1"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "K2"},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"at": "K3"}', "id": "fc_1"},
        {"type": "function_call_output", "call_id": "a", "output": "K4"},
    ]


SHAPES: dict[str, Callable[[HistoryFormatter], list[Item] | None]] = {
    "`cc.Message`": ours,
    "camel case: `toolCalls`, `toolCallId`": seed_c,
    "OpenAI chat": chat,
    "OpenAI chat, `function_call`": chat_functions,
    "the provider's own": own,
    "the provider's own, a field it does not have": own_unknown,
    "OpenAI chat, a field it does not have": chat_unknown,
    "a field that a part does not have": part_unknown,
    "Anthropic: results beside text": of_anthropic,
    "Gemini: results without ids": of_gemini,
    "AI SDK: `tool-result`": of_the_ai_sdk,
    "Responses: items, with reasoning": of_responses,
}


def outcome(form: HistoryFormatter, items: Sequence[Item]) -> str:
    """Add the items one by one: `kept`, or `refused` with the field. An `AssertionError` says what was lost."""
    manager = cc.MessageManager(form)
    for item in items:
        before = manager.messages
        try:
            manager.add_message(item)
        except cc.errors.InvalidMessage as error:
            refused = error
        else:
            continue
        assert refused.field, f"{item} was refused without a field: {refused}"
        assert manager.messages == before, f"{item} was refused, and something was stored"
        return f"refused {refused.field}"
    wire = manager.get_formatted_messages()
    given = set(
        marks(json.dumps([item if isinstance(item, dict) else encode_message(item).decode() for item in items]))
    )
    stored = set(marks(b"".join(map(encode_message, manager.messages)).decode()))
    sent = set(marks(json.dumps([wire, manager.get_formatted_system_prompt()])))
    assert given == stored, f"not stored: {given - stored}"
    assert given == sent, f"not sent: {given - sent}"
    if isinstance(form, Formatter):
        assert cc.lint(wire, format=form.name) == []
        assert list(form.rules.unknown_fields(form.rules.parse(cast(Any, wire)))) == []
    return "kept"


def marks(text: str) -> Iterator[str]:
    return (found[0] for found in re.finditer(r"K\d", text))


def table() -> str:
    """The formatters that take every shape, in Markdown."""
    rows = ["| shape | taken by |", "|---|---|"]
    for shape, items_for in SHAPES.items():
        given = {name: items for name, form in FORMATTERS.items() if (items := items_for(form)) is not None}
        taken = [f"`{name}`" for name, items in given.items() if outcome(FORMATTERS[name], items) == "kept"]
        rows.append(f"| {shape} | {'all' if len(taken) == len(given) else ', '.join(taken) or 'none'} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
