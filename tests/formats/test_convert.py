"""Requests converted to another provider's format: they are valid, and lost content is reported."""

import json
import re
from collections.abc import Sequence
from itertools import product
from typing import TypeAlias, cast

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import format_names, formatter
from contextc.formats.base import Request
from contextc.messages import Message, pair_tool_calls
from tests.conftest import some
from tests.formats.known import known, problems
from tests.formats.traffic import accepted, transcripts

Body: TypeAlias = JSONObject | list[JSONObject]

NAMES = format_names()
RECORDED: list[tuple[str, Body]] = [
    *((name, exchange.request) for name in NAMES for exchange in accepted(name)),
    *(("openai_chat", {"messages": messages}) for messages in transcripts()),
    *(("openai_chat", messages) for messages in transcripts()[:5]),
]
ATTACHED = re.compile(r"\[Attached file [^\]]*\]\n(`{3,})\n(.*?)\1\n\[End of the attached file [^\]]*\]", re.DOTALL)
"""A text file in a format that has no place for it."""
ASIDE = re.compile(r"\[[^\[\]]*(?:not shown|returned by [^\]]*)\]|</?system-reminder>|\[System Context\]:|\s")
"""What a format puts in the place of what it cannot show, and white space: both are named elsewhere."""


def others(source: str) -> list[str]:
    return [target for target in NAMES if target != source]


def messages_of(name: str, body: Body) -> list[Message]:
    form = formatter(name)
    request = form.decode_request({form.messages_key: body} if isinstance(body, list) else body)
    system = [request.system] if request.system else []
    paired = pair_tool_calls(form.with_session_results(request), orphans_as_text=True).messages
    return [*system, *(form.with_text_files(message, documents=False)[0] for message in paired)]


def essence(name: str, body: Body, *, flags: bool) -> list[tuple[str, ...]]:
    """What was said, asked for and returned, in order; whether a result is an error only where `flags` asks for it.

    Text files come last, because some formats list them apart from the text.
    """
    found: list[tuple[str, ...]] = []
    files: list[tuple[str, ...]] = []
    for message in messages_of(name, body):
        for part in message.parts:
            text = part.text if isinstance(part, cc.Text) else ""
            files += [("file", file[2].strip()) for file in ATTACHED.finditer(text)]
            if isinstance(part, cc.Text) and (words := ASIDE.sub("", ATTACHED.sub("", text))):
                if found and found[-1][0] == "text":
                    words = found.pop()[1] + words
                found.append(("text", words))
            elif isinstance(part, cc.ToolCall):
                found.append(("call", part.name, json.dumps(part.arguments, sort_keys=True)))
            elif isinstance(part, cc.ToolResult):
                found.append(("result", part.name, ASIDE.sub("", part.text), str(part.is_error) if flags else ""))
    return found + sorted(files)


def recorded(source: str) -> Sequence[Body]:
    return some([body for name, body in RECORDED if name == source], 3)


@pytest.mark.parametrize("source", NAMES)
def test_everything_recorded_is_valid_in_every_other_format(source: str) -> None:
    """Guarantee 10.5: by our rules and by the vendor's own types."""
    for target, body in product(others(source), recorded(source)):
        made = cc.convert(cast(JSONObject, body), source=source, target=target)
        assert cc.lint(made, format=target) == [], target
        assert problems(target, made) == [], target


@pytest.mark.parametrize("source", NAMES)
def test_a_round_trip_keeps_the_content(source: str) -> None:
    """Guarantee 10.5: texts, their order, calls, arguments, results; error flags too, unless a warning names them."""
    for target, body in product(others(source), recorded(source)):
        there = cc.convert(cast(JSONObject, body), source=source, target=target)
        back = cc.convert(cast(JSONObject, json.loads(json.dumps(there))), source=target, target=source)
        warned = " ".join(there.warnings)
        if "that no call asked for" in warned:  # its call is held by the provider; the result is text now
            continue
        flags = "is an error" not in warned
        assert essence(source, back, flags=flags) == essence(source, body, flags=flags)


@pytest.mark.parametrize("name", NAMES)
def test_a_conversion_to_itself_changes_nothing(name: str) -> None:
    """Guarantee 10.5."""
    for source, body in RECORDED:
        if source == name and not isinstance(body, list):
            made = cc.convert(body, source=name, target=name)
            assert cc.convert(made, source=name, target=name) == made
            assert [each for each in made.warnings if not each.startswith(("made up", "described"))] == []


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("name", ["files.read", "my tool", "naïve", "a_x2E_b", "x" * 200, "größe" * 30])
def test_names_and_ids_a_provider_would_refuse_are_spelled_and_read_back(target: str, name: str) -> None:
    """Guarantee 10.4: and a call and its result still belong together."""
    call_id = f"id:{name}/1"
    history = [
        cc.user("hi"),
        cc.assistant(tool_calls=[cc.tool_call(call_id, name, "{}")]),
        cc.tool_result(call_id, name, "ok"),
    ]
    form = formatter(target)
    body = form.encode_request(Request(messages=tuple(history), tools=(cc.Tool(name=name),)))
    assert cc.lint(body, format=target) == []
    assert problems(target, body) == []
    back = form.decode_request(body)
    (call,), (result,) = back.messages[1].tool_calls, back.messages[2].tool_results
    assert call.id == result.call_id
    again = form.name_codec.restore_names(back.messages[1], [cc.Tool(name=name)])
    assert again.tool_calls[0].name == name
    if len(name) < 20:
        assert call.name == name
        assert (call.id == call_id) is not known(target).HASHES_IDS


@pytest.mark.parametrize("name", ["openai_chat", "openai_responses"])
def test_an_id_of_the_providers_own_is_never_touched(name: str) -> None:
    """Though we would not have written it so."""
    own = "chatcmpl-tool-0123456789abcdef0123456789abcdef:7"
    chat: JSONObject = {
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": own, "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": own, "content": "ok"},
        ]
    }
    body = chat if name == "openai_chat" else dict(cc.convert(chat, source="openai_chat", target=name))
    form = formatter(name)
    decoded = form.decode_request(json.loads(json.dumps(body).replace("_x3A_", ":")))
    again = form.encode_history([*decoded.messages[:2], cc.tool_result(own, "f", "anew")])
    assert json.dumps(again).count(own) == 2


@pytest.mark.parametrize(("given", "said"), [(None, "null"), ("hi", "a string"), (3, "a number")])
def test_invalid_requests_are_refused(given: JSON, said: str) -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidRequest, match=f"an object or a list of messages, got {said}"):
        cc.convert(given, source="openai_chat", target="anthropic")


@pytest.mark.parametrize("target", NAMES)
def test_strict_tools_stay_strict_or_the_loss_is_reported(target: str) -> None:
    """Guarantee 10.5: the user of a strict tool must know that its schema is no longer enforced."""
    tools = (cc.Tool(name="a", strict=True), cc.Tool(name="b"), cc.Tool(name="c", strict=True))
    form = formatter(target)
    written = form.encode_with_notes(Request(messages=(cc.user("hi"),), tools=tools))
    said = [str(note) for note in written.notes]
    says_it = '"strict": true' in json.dumps(form.encode_tool(tools[0]))
    assert said == ([] if says_it else [f"left out: `strict` of the tools a, c, which {target} does not take"])
    assert form.encode_with_notes(Request(messages=(cc.user("hi"),), tools=tools[1:2])).notes == ()


def test_an_unknown_format_is_reported_with_the_known_ones() -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidSetting, match="Format 'claude' not found"):
        cc.lint({}, format="claude")


@pytest.mark.parametrize("name", NAMES)
def test_media_without_data_can_be_converted(name: str) -> None:
    """A client that sends an empty file gets a request back, in every format that can carry one."""
    form, media = formatter(name), cc.Media(mime_type="image/png", data=b"\x89PNG\r\n")
    history = [cc.user([media]), cc.assistant(tool_calls=[cc.tool_call("c1", "look", {})])]
    text = json.dumps(form.format([*history, cc.tool_result("c1", "look", [media]), cc.user("well?")]))
    body = {form.messages_key: json.loads(text.replace("iVBORw0K", ""))}
    for target in NAMES:
        assert "well?" in json.dumps(cc.convert(body, source=name, target=target))


def system_block(block: JSONObject, **fields: JSON) -> JSONObject:
    """A request of Anthropic with a system message between the others."""
    message: JSONObject = {"role": "system", "content": [block], **fields}
    return {"model": "claude-opus-4-8", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi."}, message]}


def more_tools(tool: JSONObject) -> JSONObject:
    item: JSONObject = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    return {"model": "gpt-5.6", "input": [{"role": "user", "content": "Hi."}, item]}


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("anthropic", system_block({"type": "tool_addition", "tool": {"type": "tool_reference"}})),
        ("anthropic", system_block({"type": "tool_removal", "tool": {"type": "tool_reference", "name": []}})),
        ("anthropic", system_block({"type": "tool_addition", "tool": {"type": "tool_definition"}})),
        (
            "anthropic",
            system_block(
                {
                    "type": "tool_addition",
                    "tool": {"type": "tool_definition", "definition": {"name": "a", "input_schema": "x"}},
                }
            ),
        ),
        ("anthropic", system_block({"type": "text", "text": "Go."}, output_config=[{"effort": "low"}])),
        ("openai_responses", more_tools({"type": "function", "name": []})),
        ("openai_responses", more_tools({"type": "function", "name": "a", "parameters": "x"})),
    ],
)
def test_a_malformed_change_of_tools_or_effort_is_left_out(source: str, body: JSONObject) -> None:
    """Guarantee 15.1: a block of a message that adds or removes tools is checked as far as it is read."""
    for target in others(source):
        made = cc.convert(body, source=source, target=target)
        assert not made.get("tools")
        assert problems(target, made) == []
