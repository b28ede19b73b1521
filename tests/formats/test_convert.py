"""Requests converted to another provider's format: they are valid, and lost content is reported."""

import json
import re
from collections.abc import Sequence
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


def pairs(*, apart: bool = True) -> list[tuple[str, str]]:
    return [(source, target) for source in NAMES for target in NAMES if source != target or not apart]


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


@pytest.mark.parametrize(("source", "target"), pairs(), ids="-".join)
def test_everything_recorded_is_valid_in_every_other_format(source: str, target: str) -> None:
    """Guarantee 10.5: by our rules and by the vendor's own types."""
    for body in recorded(source):
        made = cc.convert(cast(JSONObject, body), source=source, target=target)
        assert cc.lint(made, format=target) == []
        assert problems(target, made) == []


@pytest.mark.parametrize(("source", "target"), pairs(), ids="-".join)
def test_a_round_trip_keeps_the_content(source: str, target: str) -> None:
    """Guarantee 10.5: texts, their order, calls, arguments, results; error flags too, unless a warning names them."""
    for body in recorded(source):
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


CHAT: JSONObject = {
    "model": "gpt-5.2",
    "max_tokens": 500,
    "temperature": 0.2,
    "stop": "END",
    "seed": 7,
    "logit_bias": {"50256": -100},
    "tool_choice": {"type": "function", "function": {"name": "files_read"}},
    "parallel_tool_calls": False,
    "reasoning_effort": "minimal",
    "response_format": {"type": "json_schema", "json_schema": {"name": "ship", "schema": {"type": "object"}}},
    "tools": [{"type": "function", "function": {"name": "files_read", "parameters": {"type": "object"}}}],
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
}


def test_settings_are_converted_to_the_target_format() -> None:
    """Guarantee 10.1: settings of the caller pass through, as far as the target has them."""
    made = cc.convert(CHAT, source="openai_chat", target="anthropic")
    assert made == {
        "model": "gpt-5.2",
        "max_tokens": 500,
        "stop_sequences": ["END"],
        "tool_choice": {"type": "tool", "name": "files_read", "disable_parallel_tool_use": True},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "tools": [{"name": "files_read", "input_schema": {"type": "object"}}],
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    }
    assert made.warnings == [
        "left out: the setting `logit_bias.50256`, which only openai_chat has",
        "left out: the setting `temperature`, which anthropic does not take",
        "left out: the setting `seed`, which anthropic does not take",
        "changed: the setting `effort` (`reasoning_effort`), which anthropic represents differently",
        "changed: the setting `output`, which anthropic represents differently",
        "kept: the model 'gpt-5.2': name one of the target's own",
    ]


@pytest.mark.parametrize("target", [name for name in NAMES if name != "openai_chat"])
def test_settings_that_go_over_come_back(target: str) -> None:
    """What a format has a place for is still there after two conversions."""
    there = cc.convert(CHAT, source="openai_chat", target=target)
    back = cc.convert(there, source=target, target="openai_chat")
    lost = " ".join([*there.warnings, *back.warnings])
    for name, value in {
        "max_completion_tokens": 500,
        "seed": 7,
        "temperature": 0.2,
        "tool_choice": CHAT["tool_choice"],
        "stop": ["END"],
    }.items():
        plain = {"max_completion_tokens": "max_output_tokens"}.get(name, name)
        assert back.get(name) == value or f"`{plain}`" in lost


def test_a_choice_among_no_tools_is_left_out() -> None:
    """Providers refuse one: a tool only the source has cannot be chosen elsewhere."""
    body: JSONObject = {
        "model": "claude-opus-5-5",
        "max_tokens": 100,
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        "tool_choice": {"type": "tool", "name": "web_search"},
        "messages": [{"role": "user", "content": "hi"}],
    }
    made = cc.convert(body, source="anthropic", target="openai_chat")
    assert "tools" not in made
    assert "tool_choice" not in made
    assert "left out: the tool web_search of anthropic" in made.warnings


def test_a_list_stays_a_list_where_it_can() -> None:
    """A bare list of messages, with a system prompt that some formats keep elsewhere."""
    chat = cast(list[JSONObject], CHAT["messages"])
    assert cc.convert(chat, source="openai_chat", target="vercel") == chat
    assert cc.convert(chat, source="openai_chat", target="openai_responses") == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    assert cc.convert(chat[1:], source="openai_chat", target="gemini") == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert cc.convert(chat, source="openai_chat", target="gemini") == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    }


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


def test_what_was_given_is_not_changed() -> None:
    body = json.loads(json.dumps(CHAT))
    cc.convert(body, source="openai_chat", target="gemini")
    assert body == CHAT


@pytest.mark.parametrize(("given", "said"), [(None, "null"), ("hi", "a string"), (3, "a number")])
def test_invalid_requests_are_refused(given: JSON, said: str) -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidRequest, match=f"an object or a list of messages, got {said}"):
        cc.convert(given, source="openai_chat", target="anthropic")


def loss_of(content: list[JSONObject], target: str) -> list[str]:
    body: JSONObject = {"messages": [{"role": "user", "content": content}]}
    made = cc.convert(body, source="openai_chat", target=target)
    return [warning for warning in made.warnings if warning.startswith("left out: `")]


@pytest.mark.parametrize("target", [name for name in NAMES if name != "openai_chat"])
def test_only_omitted_fields_of_a_block_are_reported(target: str) -> None:
    """Guarantee 10.5: a warning that is not true hides those that are."""
    picture: JSONObject = {"type": "image_url", "image_url": {"url": "https://example.com/a.jpg", "detail": "low"}}
    sound: JSONObject = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav", "later": 1}}
    pages: JSONObject = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg==", "later": 1}
    assert loss_of([picture], target) == ["left out: `detail`, in one place"]
    assert loss_of([sound, {"type": "file", "file": pages}], target) == ["left out: `later`, in 2 places"]


def test_only_omitted_fields_of_a_call_are_reported() -> None:
    """Guarantee 10.5: its name and its arguments are converted, also with other fields beside them."""
    call: JSONObject = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}", "later": 1}}
    messages: list[JSONObject] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ]
    made = cc.convert({"messages": messages}, source="openai_chat", target="anthropic")
    assert made.warnings == ["left out: `later`, in one place"]


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


def settings_lost(target: str, **settings: JSON) -> list[str]:
    body: JSONObject = {"messages": [{"role": "user", "content": "hi"}], **settings}
    return cc.convert(body, source="openai_chat", target=target).warnings


def test_a_model_that_is_a_call_argument_is_reported() -> None:
    """Guarantee 10.5: where it goes, and not only where it does not."""
    why = "which goes into the call (`{}`) and not into the body"
    assert settings_lost("bedrock", model="m") == [f"left out: the setting `model`, {why.format('modelId')}"]
    assert settings_lost("gemini", model="m") == [f"left out: the setting `model`, {why.format('model')}"]


def test_a_setting_is_omitted_if_the_target_has_no_such_value() -> None:
    """Guarantee 10.5: it is dropped, not changed. Its name in the request is reported too."""
    for target in ("gemini", "bedrock", "anthropic"):
        assert settings_lost(target, reasoning_effort="none") == [
            f"left out: the setting `effort` (`reasoning_effort`), which {target} does not take as `none`"
        ]
    assert settings_lost("gemini", reasoning_effort="xhigh") == [
        "changed: the setting `effort` (`reasoning_effort`), which gemini represents differently"
    ]
    assert settings_lost("vercel_legacy", max_tokens=5, verbosity="low") == [
        "left out: the setting `verbosity`, which vercel_legacy does not take"
    ]


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
