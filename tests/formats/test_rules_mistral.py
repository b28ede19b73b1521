"""Rules specific to Mistral: compared with its own validators, and shapes that are confused with its format."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.mistral.rules import OPENAI_SETTINGS, OTHER_API_SETTINGS
from tests.conftest import often
from tests.formats.known import problems
from tests.formats.known.mistral import ID

HI: JSONObject = {"role": "user", "content": "hi"}
OTHER = "000000000"
BEGINS = ("assistant", "tool")
SOME_TAKE = re.compile("v15: .* in system message: .'ThinkChunk'|v11: .* in tool message: .'ImageURLChunk'")
PICTURE: JSONObject = {"type": "image_url", "image_url": "https://example.com/a.png"}
THOUGHT: JSONObject = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


def call(id: str = ID, name: str = "look", arguments: JSON = "{}") -> JSONObject:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*ids: str) -> JSONObject:
    return {"role": "assistant", "content": "", "tool_calls": [call(id) for id in ids]}


def result(id: str = ID, content: JSON = "1") -> JSONObject:
    return {"role": "tool", "tool_call_id": id, "content": content}


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in cc.lint(body, format="mistral")]


def fixed(messages: list[JSONObject]) -> list[JSONObject]:
    """The messages, fixed; neither our rules nor Mistral's find fault with them then."""
    found, repairs = cc.fix(messages, format="mistral")
    assert repairs
    assert codes(found) == []
    assert problems("mistral", found) == []
    return found


CHUNKS: tuple[JSONObject, ...] = (
    {"type": "text", "text": "x"},
    PICTURE,
    THOUGHT,
    {"type": "document_url", "document_url": "u"},
    {"type": "reference", "reference_ids": [1]},
    {"type": "text"},
    {"type": "odd"},
    {"type": "text", "text": "x", "cache_control": {}},
)
IDS = st.sampled_from((ID, ID, ID, OTHER, OTHER, "call_1"))
CONTENT = st.one_of(st.sampled_from(("hi", "hi", "hi", "", " ")), st.lists(st.sampled_from(CHUNKS), max_size=2))
CALLS = st.lists(st.builds(call, IDS, st.sampled_from(("look", "look", "look", "files.read"))), max_size=2)


@st.composite
def messages(draw: st.DrawFn) -> list[JSONObject]:
    """A few messages of all roles in any order, some of them broken."""
    made: list[JSONObject] = []
    for role in draw(st.lists(st.sampled_from(("system", "user", "assistant", "tool")), max_size=6)):
        message: JSONObject = {"role": role, "content": draw(CONTENT)}
        if role == "assistant":
            message |= {"tool_calls": calls} if (calls := draw(CALLS)) else {}
            message |= draw(st.sampled_from(({}, {}, {}, {"prefix": True}, {"prefix": False})))
        elif role == "tool":
            message |= {"tool_call_id": draw(IDS)} | draw(st.sampled_from(({}, {"name": "look"}, {"name": "a.b"})))
        made.append(message)
    return made


@settings(max_examples=often(25, 800), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=messages())
def test_our_rules_agree_with_mistrals_own_validators(messages: list[JSONObject]) -> None:
    """Guarantees 10.5, 10.6: what they refuse is flagged, and nothing else is, but for what they do not look at: the
    first message, and a reply of nothing, which is refused by what comes after them. Thoughts of the system's are taken
    up to v13, pictures in results from v15 on."""
    flagged, refused = set(codes(messages)), problems("mistral", messages)
    if refused and SOME_TAKE.match(refused[0]):
        return
    assert flagged or not refused
    if flagged and not refused:
        unseen = ["MIS006", "MIS007", "MIS009", "MIS014"] if messages[0]["role"] in BEGINS else []
        assert flagged <= {"MIS003", *unseen}
    if flagged:
        found, _ = cc.fix(messages, format="mistral")
        assert codes(found) == []
        assert not [each for each in problems("mistral", found) if not SOME_TAKE.match(each)]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([HI, HI, {"role": "system", "content": "x"}, HI], id="system after user"),
        pytest.param([HI, {"role": "system", "content": "x"}], id="system at the end"),
        pytest.param([HI, asks(ID), result(), HI], id="user after tool"),
        pytest.param([HI, asks(ID, OTHER), result(OTHER), result()], id="results in any order"),
        pytest.param([HI, asks(ID), result(), asks(ID), result()], id="an id that is used again"),
        pytest.param([HI, asks(ID), result(content=[PICTURE])], id="a picture in a result"),
        pytest.param([HI, {"role": "assistant", "content": "One", "prefix": True}], id="a beginning"),
        pytest.param([{"role": "assistant", "content": "Hello"}, HI], id="a greeting"),
        pytest.param({"messages": [HI], "tools": [{"type": "connector", "connector_id": "c"}]}, id="a connector"),
        pytest.param({"messages": [HI], "of_tomorrow": 1}, id="a setting of tomorrow"),
    ],
)
def test_what_mistral_takes_is_not_flagged(body: JSON) -> None:
    """Guarantee 10.6: the checker says what is refused."""
    assert codes(body) == []


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([HI, asks(ID), HI, result()], ["MIS006", "MIS007"]),
        ([HI, asks(ID, OTHER), result()], ["MIS006"]),
        ([HI, asks(ID), result(), result()], ["MIS008"]),
        ([HI, asks(ID), result(OTHER)], ["MIS006", "MIS007"]),
        ([result(), HI], ["MIS007"]),
        ([asks(ID), result()], ["MIS014"]),
    ],
)
def test_a_pair_torn_apart_is_found_on_both_sides(messages: list[JSONObject], expected: list[str]) -> None:
    """Guarantee 5.1."""
    assert codes(messages) == expected
    fixed(messages)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (
            [HI, asks("call_1"), result("call_1")],
            "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
        ),
        ([HI, result()], "Unexpected role 'tool' after role 'user'"),
        ([HI, asks(ID), result(), result(OTHER)], f"Unexpected tool call id {OTHER} in tool results"),
        ([HI, {"role": "user", "content": "a", "name": "b"}], "body.messages.1.name: Extra inputs are not permitted"),
        ([HI, {"role": "user"}], "body.messages.1.content: Field required"),
        ([{"role": "user", "content": 1}], "body.messages.0.content: Input should be a valid string"),
        (
            [{"role": "developer", "content": "a"}],
            "body.messages.0.role: Input tag 'developer' found using 'role' does not match any of the expected tags: "
            "'system', 'user', 'assistant', 'tool'",
        ),
    ],
)
def test_each_violation_has_the_error_text_of_mistral(messages: list[JSONObject], said: str) -> None:
    """Guarantee 10.6."""
    [violation] = cc.lint(messages, format="mistral")
    assert violation.error == said
    fixed(messages)


SOUND: JSONObject = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
FILE: JSONObject = {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERg==", "filename": "a.pdf"}}


@pytest.mark.parametrize(
    ("part", "meant"),
    [
        ({"type": "input_text", "text": "hi"}, {"type": "text", "text": "hi"}),
        (SOUND, {"type": "input_audio", "input_audio": "data:audio/wav;base64,UklGRg=="}),
        (
            FILE,
            {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERg==", "document_name": "a.pdf"},
        ),
        ({"type": "refusal", "refusal": "No."}, {"type": "text", "text": "No."}),
    ],
)
def test_a_part_of_openais_is_understood(part: JSONObject, meant: JSONObject) -> None:
    """Guarantee 10.6: what was meant is written as Mistral has it."""
    more: JSONObject = {"type": "text", "text": "?"}
    assert fixed([{"role": "user", "content": [part, more]}]) == [{"role": "user", "content": [meant, more]}]


def test_a_message_of_openais_is_understood() -> None:
    """Guarantee 10.6: roles, calls of old and of custom tools, a thought as a string, a tool without parameters."""
    body: JSONObject = {
        "max_completion_tokens": 9,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "look"}}],
        "messages": [
            {"role": "developer", "content": "Be brief."},
            HI,
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}],
                "tool_calls": [{"id": ID, "type": "custom", "custom": {"name": "sql", "input": "select 1"}}],
            },
            result(),
        ],
    }
    found, _ = cc.fix(body, format="mistral")
    assert found == {
        "max_tokens": 9,
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            HI,
            {"role": "assistant", "content": [THOUGHT], "tool_calls": [call(ID, "sql", "select 1")]},
            result(),
        ],
    }
    assert problems("mistral", found) == []


def test_thoughts_that_are_not_the_assistants_become_text() -> None:
    """Guarantee 10.6: nothing that was said is lost."""
    messages: list[JSONObject] = [
        {"role": "user", "content": [THOUGHT]},
        asks(ID),
        result(content=[{"type": "text", "text": "1"}, {**THOUGHT, "thinking": [{"type": "text", "text": "deep"}]}]),
        {"role": "system", "content": [THOUGHT]},
    ]
    found = fixed(messages)
    assert found[0] == {"role": "user", "content": "hm"}
    assert found[2]["content"] == [{"type": "text", "text": "1"}, {"type": "text", "text": "deep"}]
    assert found[3] == {"role": "user", "content": "<system-reminder>\nhm\n</system-reminder>"}
    assert json.dumps(messages).count("hm") == 2


TOOL: JSONObject = {"type": "function", "function": {"name": "look", "parameters": {}}}
ASKED: list[JSONObject] = [HI, {"role": "assistant", "content": "", "tool_calls": [{**call(), "type": "custom"}]}]
SETTINGS: list[tuple[JSONObject, str, str]] = [
    ({"tool_choice": "foo"}, "MIS018", "body.tool_choice: Input should be 'auto', 'none', 'any' or 'required'"),
    ({"tool_choice": {"function": "look"}}, "MIS018", ""),
    ({"reasoning": {"effort": "low"}}, "MIS019", "body.reasoning: Extra inputs are not permitted"),
    ({"messages": [*ASKED, result()]}, "MIS020", "body.messages.1.tool_calls.0.type: Input should be 'function'"),
    (
        {"response_format": {"type": "xml"}},
        "MIS021",
        "body.response_format.type: Input should be 'text', 'json_object' or 'json_schema'",
    ),
    ({"response_format": "json"}, "MIS021", ""),
]


@pytest.mark.parametrize(("wrong", "code", "error"), SETTINGS, ids=[str(wrong)[:50] for wrong, _, _ in SETTINGS])
def test_settings_and_types_unknown_to_mistral_are_reported_and_fixed(wrong: JSONObject, code: str, error: str) -> None:
    """Guarantee 10.6: found before Mistral refuses them, as its own types do."""
    body: JSONObject = {"model": "m", "messages": [HI], "tools": [TOOL], **wrong}
    assert problems("mistral", body)
    found = cc.lint(body, format="mistral")
    assert [each.code for each in found] == [code]
    assert error in (found[0].error or "")
    mended, repairs = cc.fix(body, format="mistral")
    assert [repair.code for repair in repairs] == [code]
    assert codes(mended) == []
    assert problems("mistral", mended) == []


@pytest.mark.parametrize(
    "setting",
    [
        {"tool_choice": "any"},
        {"tool_choice": {"type": "function", "function": {"name": "look"}}},
        {"tool_choice": {"function": {"name": "look"}}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}},
        {"prompt_mode": "reasoning", "safe_prompt": True, "guardrails": [], "prompt_cache_key": "k", "n": 2},
    ],
)
def test_settings_that_mistral_takes_are_left_alone(setting: JSONObject) -> None:
    """Guarantee 10.6: a false alarm costs trust."""
    body: JSONObject = {"model": "m", "messages": [HI], "tools": [TOOL], **setting}
    assert (codes(body), problems("mistral", body)) == ([], [])


def test_no_setting_of_mistrals_types_is_taken_for_anothers() -> None:
    """Guarantee 10.6: a false alarm costs trust; the SDK's types are what we hold it against."""
    from mistralai.client.models import ChatCompletionRequest, ChatCompletionStreamRequest

    known = {*ChatCompletionRequest.model_fields, *ChatCompletionStreamRequest.model_fields}
    assert "reasoning_effort" in known
    assert known.isdisjoint((*OPENAI_SETTINGS, *OTHER_API_SETTINGS))
