"""Rules specific to Mistral: compared with its own validators, and shapes that are confused with its format."""

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


def result(id: str = ID, content: JSON = "1") -> JSONObject:
    return {"role": "tool", "tool_call_id": id, "content": content}


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in cc.lint(body, format="mistral")]


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


def test_no_setting_of_mistrals_types_is_taken_for_anothers() -> None:
    """Guarantee 10.6: a false alarm costs trust; the SDK's types are what we hold it against."""
    from mistralai.client.models import ChatCompletionRequest, ChatCompletionStreamRequest

    known = {*ChatCompletionRequest.model_fields, *ChatCompletionStreamRequest.model_fields}
    assert "reasoning_effort" in known
    assert known.isdisjoint((*OPENAI_SETTINGS, *OTHER_API_SETTINGS))
