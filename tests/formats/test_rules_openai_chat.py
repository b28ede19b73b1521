"""Rules specific to Chat Completions: its many providers, and the shapes that they confuse."""

import base64
import os
from typing import cast

import pytest

from contextc._json import JSON, JSONObject
from contextc.formats.openai_chat import OpenAIFormatter
from contextc.linting import fix, lint

FORMAT = OpenAIFormatter.name
HI: JSONObject = {"role": "user", "content": "hi"}
NO_PARTS: list[JSON] = []
PICTURE: JSONObject = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def call(id: str, name: str = "look") -> JSONObject:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def asks(*ids: str) -> JSONObject:
    return {"role": "assistant", "content": None, "tool_calls": [call(id) for id in ids]}


def result(id: str, content: JSON = "1") -> JSONObject:
    return {"role": "tool", "tool_call_id": id, "content": content}


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in lint(body, format=FORMAT)]


def fixed(messages: list[JSONObject]) -> list[JSONObject]:
    """The messages, fixed; they are clean then."""
    found, repairs = fix(messages, format=FORMAT)
    assert repairs
    assert codes(found) == []
    return found


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            {"model": "mistral-large-latest", "messages": [HI, asks("a") | {"content": NO_PARTS}, result("a")]}
        ),
        pytest.param({"model": "mistral-large-latest", "messages": [HI], "tools": [{"function": {"name": "look"}}]}),
        pytest.param({"model": "openai/gpt-5-mini", "messages": [HI], "tools": [{"type": "openrouter:web_search"}]}),
        pytest.param({"model": "deepseek-chat", "messages": [HI], "stop": list("abcdefgh")}),
        pytest.param({"model": "z-ai/glm-4.6", "messages": [HI, asks("a" * 90), result("a" * 90)]}),
        pytest.param({"model": "anthropic/claude-sonnet-4.6", "messages": [HI, asks("a"), result("a", [PICTURE])]}),
        pytest.param({"model": "qwen3", "messages": [HI, {"role": "assistant", "content": None, "reasoning": "hm"}]}),
        pytest.param({"messages": [{"role": "user", "content": [{"type": "document_url", "document_url": "u"}]}]}),
        pytest.param([HI, asks("a"), result("a"), asks("a"), result("a")], id="an id that is used again"),
        pytest.param([HI, asks("a", "b"), result("b"), result("a")], id="results in any order"),
        pytest.param(
            [HI, HI, {"role": "assistant", "content": ""}, {"role": "system", "content": "x"}], id="any roles"
        ),
        pytest.param([HI, {"role": "function", "name": "look", "content": None}], id="a function of old"),
    ],
)
def test_what_an_endpoint_takes_is_not_flagged(body: JSON) -> None:
    """Guarantee 10.6: the checker says what is refused; OpenAI's own limits do not hold for everybody who speaks its
    API.
    """
    assert codes(body) == []


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"stop": list("abcde")}, "OAC018"),
        ({"tools": []}, "OAC005"),
        ({"tools": [{"type": "openrouter:web_search"}]}, "OAC001"),
        ({"tools": [{"function": {"name": "look"}}]}, "OAC001"),
        ({"parallel_tool_calls": True}, "OAC017"),
        ({"function_call": "auto"}, "OAC017"),
    ],
)
def test_limits_of_openai_hold_for_its_own_models(settings: JSONObject, code: str) -> None:
    """Guarantee 10.6: the same body that another house takes."""
    assert codes({"model": "gpt-5-mini", "messages": [HI], **settings}) == [code]
    found, _ = fix({"model": "gpt-5-mini", "messages": [HI], **settings}, format=FORMAT)
    assert codes(found) == []


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([HI, asks("a"), HI, result("a")], ["OAC006", "OAC007"]),
        ([HI, asks("a", "b"), result("a")], ["OAC006"]),
        ([HI, result("a"), asks("a")], ["OAC007", "OAC006"]),
        ([HI, asks("a"), result("a"), result("a")], ["OAC008"]),
        ([HI, asks("a"), result("b")], ["OAC006", "OAC007"]),
        ([result("a"), HI], ["OAC007"]),
    ],
)
def test_a_pair_torn_apart_is_found_on_both_sides(messages: list[JSONObject], expected: list[str]) -> None:
    """Guarantee 5.1."""
    assert codes(messages) == expected
    fixed(messages)


def test_a_reminder_between_call_and_result_comes_after_the_results() -> None:
    """Guarantee 5.2."""
    reminder: JSONObject = {"role": "system", "content": "Be brief."}
    found = fixed([HI, asks("a", "b"), result("b", "2"), reminder, result("a", "1")])
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool", "system"]
    assert found[-1] == reminder


def test_the_error_text_of_openai_names_both_results() -> None:
    """Guarantee 10.6: each violation comes with the provider's own error."""
    [violation] = lint([HI, asks("a"), result("a"), result("a", "2")], format=FORMAT)
    assert violation.path == "[3]"
    assert violation.error == (
        "Invalid parameter: Duplicate value for 'tool_call_id' of 'a', in messages[2] and messages[3]."
    )


def test_swapped_roles_are_detected_by_content() -> None:
    """A tool message without an id answers no call, and one with an id is an answer, whatever its role."""
    sound = [HI, asks("a"), result("a"), {"role": "user", "content": "and?"}]
    swapped = [HI, {**asks("a"), "role": "tool"}, {**result("a"), "role": "assistant"}, sound[3]]
    assert set(codes(swapped)) == {"OAC001"}
    assert [message["role"] for message in fixed(swapped)] == ["user", "assistant", "tool", "user"]
    swapped = [HI, asks("a"), {**result("a"), "role": "user"}, {"role": "tool", "content": "and?"}]
    assert [message["role"] for message in fixed(swapped)] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize(
    ("broken", "sound"),
    [
        ({"id": "a", "type": "function", "function": {"name": "look", "arguments": {"x": 1}}}, '{"x":1}'),
        ({"id": "a", "name": "look", "arguments": '{"x":1}'}, '{"x":1}'),
        ({"id": "a", "type": "tool_use", "name": "look", "input": {"x": 1}}, '{"x":1}'),
        ({"id": "a", "type": "function", "function": {"name": "look"}}, "{}"),
    ],
)
def test_calls_of_another_shape_become_calls(broken: JSONObject, sound: str) -> None:
    """A call without arguments, or with an object, is what other APIs write."""
    messages = [HI, {**asks(), "tool_calls": [broken]}, result("a")]
    assert "OAC001" in codes(messages)
    expected = {"id": "a", "type": "function", "function": {"name": "look", "arguments": sound}}
    assert fixed(messages)[1]["tool_calls"] == [expected]


def test_partial_arguments_are_a_text_and_go_back() -> None:
    """OpenAI takes what its model wrote, even if the abort left half of it."""
    half: JSONObject = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"path": "a'}}
    assert codes([HI, {**asks(), "tool_calls": [half]}, result("a")]) == []


def test_an_invalid_call_becomes_text_of_the_assistant() -> None:
    """Guarantee 10.6: a repair loses no text."""
    found = fixed([HI, {**asks("a"), "tool_calls": [call("a"), "look at this"]}, result("a")])
    assert found[1] == {**asks("a"), "content": "look at this"}


def test_calls_with_one_id_in_one_message_keep_their_own_results() -> None:
    """Guarantee 5.1: matching is by id; some models give the same one twice in a reply."""
    twice: JSONObject = {**asks(), "tool_calls": [call("a"), call("a", "find")]}
    found = fixed([HI, twice, result("a", "1"), result("a", "2")])
    calls = cast(list[JSONObject], found[1]["tool_calls"])
    assert [(each["id"], each["function"]["name"]) for each in calls] == [("a", "look"), ("a_2", "find")]
    assert found[2:] == [result("a", "1"), result("a_2", "2")]


def test_pictures_of_results_are_shown_after_all_results_of_the_step() -> None:
    """Guarantee 10.3: OpenAI's newer models do not refuse a picture in a result, but do not see it either."""
    seen: JSONObject = {"type": "text", "text": "see"}
    found = fixed([HI, asks("a", "b"), result("a", [seen, PICTURE]), result("b", [PICTURE]), HI])
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert found[2] == result("a", [seen])
    assert [part for part in cast(list[JSONObject], found[4]["content"]) if part["type"] != "text"] == [PICTURE] * 2


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_text", "text": "words"},
        {"type": "output_text", "text": "words", "annotations": []},
        {"text": "words"},
        "words",
    ],
)
def test_texts_of_other_apis_become_text(part: JSON) -> None:
    """Parts of the Responses API are what people send here most often by mistake."""
    assert codes([{"role": "user", "content": [part]}]) == ["OAC001"]
    assert "words" in str(fixed([{"role": "user", "content": [part]}])[0]["content"])


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "name": "look", "parameters": {"type": "object"}},
        {"name": "look", "input_schema": {"type": "object"}},
    ],
)
def test_tools_of_other_apis_become_functions(tool: JSONObject) -> None:
    """A tool as the Responses API or Anthropic takes it is not left out, but written as it should be."""
    found, repairs = fix({"messages": [HI], "tools": [tool]}, format=FORMAT)
    assert [repair.code for repair in repairs] == ["OAC001"]
    assert found["tools"] == [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def test_a_name_is_spelled_the_same_everywhere() -> None:
    """Guarantee 10.4: in the tools, in the choice and in the calls."""
    function: JSONObject = {"name": "files.read", "strict": True}
    body: JSONObject = {
        "messages": [HI, {**asks(), "tool_calls": [call("a", "files.read")]}, result("a")],
        "tools": [{"type": "function", "function": function}, {"type": "custom", "custom": {"name": "files.write"}}],
        "tool_choice": {"type": "function", "function": {"name": "files.read"}},
    }
    assert codes(body) == ["OAC012", "OAC012", "OAC012"]
    found, _ = fix(body, format=FORMAT)
    assert codes(found) == []
    assert found["tool_choice"]["function"]["name"] == found["tools"][0]["function"]["name"]
    assert found["messages"][1]["tool_calls"][0]["function"]["name"] == found["tools"][0]["function"]["name"]


@pytest.mark.parametrize("place", [40, 90])
def test_encrypted_reasoning_with_a_piece_missing_is_found(place: int) -> None:
    """OpenRouter wants `reasoning_details` back as they came."""
    token = base64.urlsafe_b64encode(b"\x80" + bytes(8) + os.urandom(16 + 64 + 32)).decode()
    secret: JSONObject = {"type": "reasoning.encrypted", "format": "openai-responses-v1", "data": token}
    body = [HI, {"role": "assistant", "content": "Hello!", "reasoning_details": [secret]}, HI]
    assert codes(body) == []
    secret["data"] = token[:place] + token[place + 5 :]
    assert codes(body) == ["OAC020"]
    assert fixed(body)[1] == {"role": "assistant", "content": "Hello!"}


@pytest.mark.parametrize("body", [None, 3, "hi", {}, [[]], [None], {"messages": "hi"}, {"messages": {}, "tools": 3}])
def test_anything_can_be_looked_at(body: JSON) -> None:
    """Guarantee 10.6: a request comes from anywhere, and may be no request at all."""
    assert "OAC001" in codes(body)


@pytest.mark.parametrize("content", [None, "I look."])
def test_calls_in_a_message_of_the_developer_become_calls_of_the_assistant(content: JSON) -> None:
    """Every call keeps its own result, also if two have the same id."""
    found = fixed([HI, {**asks("a", "a"), "role": "developer", "content": content}, result("a"), result("a", "2")])
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool"]
    assert found[1]["content"] == (content or "")
    ids = [each["id"] for each in cast(list[JSONObject], found[1]["tool_calls"])]
    assert len(set(ids)) == 2
    assert [(message["tool_call_id"], message["content"]) for message in found[2:]] == [(ids[0], "1"), (ids[1], "2")]


def test_only_names_with_invalid_characters_change() -> None:
    """The name of a tool message is that of its tool."""
    given = [{**HI, "name": "a b"}, asks("a"), {**result("a"), "name": "x y"}, {**HI, "name": "ann"}, HI]
    assert [message.get("name") for message in fixed(given)] == ["a_b", None, "x y", "ann", None]


def test_images_for_a_model_without_vision_become_text() -> None:
    """Guarantee 10.6: the texts beside them stay, and no bytes are left."""
    inline: JSONObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    asked: JSONObject = {"role": "user", "content": [{"type": "text", "text": "See?"}, PICTURE, inline]}
    found, _ = fix({"model": "o1-mini", "messages": [asked, HI]}, format=FORMAT)
    assert [part["text"] for part in found["messages"][0]["content"]] == [
        "See?",
        "[image: https://example.com/a.png; not shown]",
        "[image; not shown]",
    ]
    assert found["messages"][1] == HI
