"""Random histories in every format: whatever a log holds, the request keeps the provider's rules and loses no word.

`CONTEXTC_EXAMPLES=50` makes fifty times as many; histories.py says what they are made of.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from hypothesis import HealthCheck, settings

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter, Request, segments
from contextc.formats.checking import Piece
from contextc.pairing import pair
from tests.formats.histories import TOOLS, History, marks
from tests.formats.vendor import problems

TIMES = int(os.environ.get("CONTEXTC_EXAMPLES", "1"))
NAMES = format_names()
PROMPT = cc.system("Be brief. «t0»")
SETTINGS: dict[str, JSONObject] = {
    "anthropic": {"model": "claude-opus-5-5", "max_tokens": 100},
    "gemini": {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}},
    "openai_chat": {"model": "gpt-5.2"},
    "openai_responses": {"model": "gpt-5.2", "store": False},
    "vercel": {"model": "anthropic/claude-opus-5-5"},
    "vercel_legacy": {"model": "gpt-4"},
}
ARGUMENTS: dict[str, Callable[[JSONObject], JSON]] = {
    "anthropic": lambda wire: wire["input"],
    "gemini": lambda wire: wire["functionCall"]["args"],
    "openai_chat": lambda wire: wire["function"]["arguments"],
    "openai_responses": lambda wire: wire["arguments"],
    "vercel": lambda wire: wire["input"],
    "vercel_legacy": lambda wire: wire["arguments"],
}
"""Where a call has its arguments on the wire."""
SIGNED = ("anthropic", "bedrock", "openai", "google")
"""Whose proofs of reasoning the AI SDK knows how to pass on."""


class Form(NamedTuple):
    """A formatter under the name of its format."""

    name: str
    formatter: Formatter

    def request(self, history: History) -> Request:
        return Request(messages=tuple(history.messages), system=PROMPT, tools=TOOLS, settings=SETTINGS[self.name])

    def paired(self, history: History) -> list[cc.Message]:
        return pair(history.messages, unique_ids=self.formatter.unique_ids).messages


FORMS = {
    **{name: Form(name, formatter(name)) for name in NAMES},
    "anthropic, system between": Form("anthropic", cc.AnthropicFormatter(system_between=True)),
    "openai_chat, reasoning": Form(
        "openai_chat", cc.OpenAIFormatter(provider="deepseek", reasoning_field="reasoning_content")
    ),
}


def examples(number: int) -> settings:
    return settings(max_examples=number * TIMES, deadline=None, suppress_health_check=list(HealthCheck))


def text_of(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)


def words(messages: Sequence[cc.Message]) -> list[str]:
    """The marks of all that a model is told in texts and results, in order."""
    found: list[str] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, cc.Text | cc.ToolResult):
                found += marks(part.text, "tr")
    return found


def pieces(form: Form, body: JSON, kind: str) -> list[Piece]:
    return [piece for turn in form.formatter.rules.read(body).turns for piece in turn.pieces if piece.kind == kind]


def keeps_the_rules(form: Form, history: History) -> None:
    """SPEC 5.1, 10.4, 10.5: by our rules, as a whole request and as bare messages."""
    if messages := form.formatter.format(history.messages):
        assert cc.lint(messages, format=form.name) == []
        assert cc.lint(form.formatter.encode_request(form.request(history)), format=form.name) == []


def has_the_vendors_types(form: Form, history: History) -> None:
    """SPEC 10.5: by the types of the vendor's SDK. What other vendors say in a recording of theirs is not in them."""
    if history.recorded != form.name and form.formatter.format(history.messages):
        assert problems(form.name, form.formatter.encode_request(form.request(history))) == []


def tells_every_word_once(form: Form, history: History) -> None:
    """SPEC 5.2, 5.3, 10.3: texts and results in the order of the paired history; no hint, no result without a call."""
    told = text_of(form.formatter.format(history.messages, "Be brief. «t0»"))
    expected = words(form.paired(history))
    found = marks(told, "tr")
    assert found == (["«t0»", *expected] if form.formatter.system_among_messages else expected)
    assert marks(told, "h") == []
    body = text_of(form.formatter.encode_request(form.request(history)))
    assert sorted(marks(body, "tr")) == sorted(["«t0»", *expected])


def keeps_every_call(form: Form, history: History) -> None:
    """SPEC 2.3, 5.1, 10.3: each call once, with its name and arguments, and its result under its id."""
    messages = form.formatter.format(history.messages)
    asked = [call for message in form.paired(history) for call in message.tool_calls]
    found = pieces(form, messages, "call")
    names = form.formatter.spelling.names
    assert [call.name for call in found] == [names.spell(call.name) if names else call.name for call in asked]
    for call, piece in zip(asked, found, strict=True):
        given = ARGUMENTS[form.name](piece.wire)
        if call.malformed:
            assert given in (call.raw, {"malformed_arguments": call.raw})
        else:
            assert (json.loads(given or "{}") if isinstance(given, str) else given) == call.arguments
    answered = [piece.id for piece in pieces(form, messages, "result") if piece.id in {call.id for call in found}]
    assert answered == [call.id for call in found]


def keeps_reasoning_to_itself(form: Form, history: History) -> None:
    """SPEC 2.4, 2.5: reasoning and native blocks go to their own provider, once, and to nobody else."""
    told = text_of(form.formatter.format(history.messages))
    found = marks(told, "gn")
    assert len(found) == len(set(found))
    provider = form.formatter.provider
    for message in history.messages:
        for part in message.parts:
            if isinstance(part, cc.Reasoning) and part.provider != provider:
                passed_on = form.name == "vercel" and part.provider in SIGNED
                assert passed_on or not set(marks(part.text, "g")) & set(found)
            if isinstance(part, cc.Native):
                own = marks(text_of(part.data), "n")
                assert [mark for mark in own if mark in found] == (own if part.provider == provider else [])
            if isinstance(part, cc.Reasoning) and part.provider == provider and part.signature:
                assert set(marks(part.text, "g")) <= set(found)


def is_encoded_segment_by_segment(form: Form, history: History) -> None:
    """SPEC 10.1: encoding as it grew equals encoding at once, and no segment is changed by joining it."""
    encoded = [form.formatter.encode(part) for part in segments(form.paired(history))]
    before = text_of([list(each.messages) for each in encoded])
    assert form.formatter.join(encoded) == form.formatter.format(history.messages)
    assert text_of([list(each.messages) for each in encoded]) == before


def changes_nothing_given(form: Form, history: History) -> None:
    """SPEC 10.1: a formatter is pure, and says the same twice."""
    request = form.request(history)
    before = msgspec.json.encode(request)
    body = text_of(form.formatter.encode_request(request))
    assert msgspec.json.encode(request) == before
    assert text_of(form.formatter.encode_request(request)) == body


def comes_back_the_same(form: Form, history: History) -> None:
    """SPEC 10.5: wire → messages → the same wire; and what is decoded was not changed."""
    body = form.formatter.encode_request(form.request(history))
    before = text_of(body)
    again = form.formatter.encode_request(form.formatter.decode_request(body))
    assert text_of(body) == before
    assert again == body


def can_be_converted(form: Form, history: History) -> None:
    """SPEC 10.3, 10.5: a request is sound in every other format, and says the same words in the same order."""
    body = form.formatter.encode_request(form.request(history))
    if not body.get(form.formatter.messages_key):
        return
    said = marks(text_of(form.formatter.format(history.messages)), "tr")
    for target in NAMES:
        if target != form.name:
            made = cc.convert(body, source=form.name, target=target)
            assert cc.lint(made, format=target) == []
            told = text_of(made[formatter(target).messages_key] if formatter(target).messages_key in made else [])
            assert [mark for mark in marks(told, "tr") if mark != "«t0»"] == said
            assert marks(text_of(made), "tr").count("«t0»") == 1


Check = Callable[[Form, History], None]
CHECKS: tuple[Check, ...] = (
    keeps_the_rules,
    has_the_vendors_types,
    tells_every_word_once,
    keeps_every_call,
    keeps_reasoning_to_itself,
    is_encoded_segment_by_segment,
    changes_nothing_given,
    comes_back_the_same,
)
