"""Rules specific to Bedrock: one member per block, required tools, and shapes that it accepts."""

import pytest

from contextc._json import JSON, JSONObject
from contextc.formats.bedrock.codec import DOCUMENT_TEXT, EMPTY_ERROR_TEXT, PLACEHOLDER_TOOL, encode_tool
from contextc.linting import fix, lint

ASK: JSONObject = {"role": "user", "content": [{"text": "What is in a.py?"}]}
POINT: JSONObject = {"cachePoint": {"type": "default"}}
DOCUMENT: JSONObject = {"document": {"name": "A", "format": "pdf", "source": {"bytes": "JVBERg=="}}}
SPEC: JSONObject = {"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in lint(body, format="bedrock")]


def said(body: JSON) -> list[str]:
    return [violation.error for violation in lint(body, format="bedrock")]


def call(call_id: str = "a", name: str = "look") -> JSONObject:
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": {}}}


def result(*content: JSONObject, call_id: str = "a", **beside: JSON) -> JSONObject:
    return {"toolResult": {"toolUseId": call_id, "content": list(content), **beside}}


def model(*blocks: JSONObject) -> JSONObject:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: JSONObject) -> JSONObject:
    return {"role": "user", "content": list(blocks)}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([model({"text": "Hello!"}), ASK], id="begins with the model, which Claude takes"),
        pytest.param([user({"text": "a"}, DOCUMENT, {"text": "\n"}, POINT)], id="white space before a cache point"),
        pytest.param([ASK, model(call()), user(result())], id="an empty result"),
        pytest.param([ASK, model(call()), user(result({"text": ""}))], id="a result that says nothing"),
        pytest.param([ASK, model(call()), user(result({"text": "1"}), POINT)], id="a cache point behind a result"),
        pytest.param([ASK, model(call()), user(result({"json": {}}))], id="an object"),
        pytest.param([ASK, model(call("a.b:c")), user(result(call_id="a.b:c"))], id="an id of Bedrock's own"),
        pytest.param([ASK, model({"reasoningContent": {"reasoningText": {"text": "hm"}}}), ASK], id="unsigned"),
        pytest.param(
            [user({"text": "a"}, {"video": {"format": "video/mp4", "source": {"bytes": "AA=="}}})], id="a type"
        ),
    ],
)
def test_what_it_takes_breaks_no_rule(messages: list[JSONObject]) -> None:
    """ARCHITECTURE: the checker is looser than the encoder. A false alarm costs trust."""
    assert codes(messages) == []


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([user()], "The content field in the Message object at messages.0 is empty."),
        ([user({"text": ""})], "The text field in the ContentBlock object at messages.0.content.0 is blank."),
        ([ASK, ASK], "A conversation must alternate between user and assistant roles."),
        ([ASK, model(call()), ASK], "Expected toolResult blocks at messages.2.content for the following Ids: a"),
        (
            [ASK, model({"text": "."}), user(result({"text": "1"}))],
            "The number of toolResult blocks at messages.2.content",
        ),
        (
            [ASK, model(call()), user(result(status="error"))],
            "The content field at messages.2.content.0.toolResult cannot be empty when status value is error.",
        ),
        (
            [ASK, model(call()), user(result({"json": [1]}))],
            "The format of the value at messages.2.content.0.toolResult.content.0.json is invalid.",
        ),
        (
            [ASK, model(call("a b")), user(result(call_id="a b"))],
            "1 validation error detected: Value 'a b' at 'messages.2.member.content.1.member.toolUse.toolUseId' failed "
            "to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.:-]+",
        ),
        (
            [ASK, model(call("x" * 65)), user(result(call_id="x" * 65))],
            f"1 validation error detected: Value '{'x' * 65}' at "
            "'messages.2.member.content.1.member.toolUse.toolUseId' failed to satisfy constraint: Member must have "
            "length less than or equal to 64",
        ),
    ],
)
def test_findings_use_the_error_texts_of_bedrock(messages: list[JSONObject], error: str) -> None:
    """Guarantee 10.6."""
    (found,) = said(messages)
    assert found.startswith(error)
    assert codes(fix(messages, format="bedrock")[0]) == []


BLANK: JSONObject = {"text": "\n"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": [user(BLANK, {"text": "a"})]}, {"messages": [user({"text": "a"})]}),
        ({"messages": [ASK, model(BLANK, {"text": "a"}), ASK]}, {"messages": [ASK, model({"text": "a"}), ASK]}),
        ({"system": [BLANK], "messages": [ASK]}, {"messages": [ASK]}),
        ({"messages": [user({"text": "a"}, BLANK, POINT)]}, {"messages": [user({"text": "a"})]}),
    ],
    ids=["user", "assistant", "system", "a cache point behind a text"],
)
def test_a_blank_text_is_refused_at_any_position(body: JSONObject, expected: JSONObject) -> None:
    """The service: "The text field in the ContentBlock object at … is blank."."""
    assert codes(body) == ["BED004"]
    assert fix(body, format="bedrock")[0] == expected


def test_a_document_beside_a_blank_text_counts_as_without_text() -> None:
    """The service: "A text block must be included when using documents."."""
    body = [user(BLANK, DOCUMENT)]
    assert codes(body) == ["BED004", "BED019"]
    fixed, _ = fix(body, format="bedrock")
    assert fixed == [user(DOCUMENT, {"text": DOCUMENT_TEXT})]


def test_tools_must_be_there_where_calls_are() -> None:
    """A whole request can be held against this, and bare messages cannot."""
    messages = [ASK, model(call()), user(result({"text": "1"}))]
    assert codes(messages) == []
    assert codes({"messages": messages, "toolConfig": {"tools": [SPEC]}}) == []
    assert said({"messages": messages}) == [
        "The toolConfig field must be defined when using toolUse and toolResult content blocks."
    ]
    fixed, _ = fix({"messages": messages}, format="bedrock")
    assert fixed["toolConfig"] == {"tools": [encode_tool(PLACEHOLDER_TOOL)]}


@pytest.mark.parametrize(
    "block",
    [
        pytest.param({}, id="no member"),
        pytest.param({"text": "a", "image": {}}, id="two members"),
        pytest.param({"text": "a", "cachePoint": None}, id="a member that is null"),
        pytest.param({"image": {"format": "png", "source": {"bytes": "AA==", "text": "a"}}}, id="two sources"),
        pytest.param({"thought": {}}, id="a kind that is not there"),
        pytest.param({"reasoningContent": {"redactedContent": 1}}, id="reasoning without a shape"),
    ],
)
def test_a_block_has_one_member_and_what_that_must_have(block: JSONObject) -> None:
    """Guarantee 10.6: tagged unions."""
    messages = [user({"text": "a"}, block)]
    assert codes(messages) == ["BED001"]
    assert codes(fix(messages, format="bedrock")[0]) == []


def test_a_cache_point_inside_a_result_is_reported() -> None:
    """A cache breakpoint is a block of its own after the content, never inside `toolResult`."""
    assert codes([ASK, model(call()), user(result({"text": "1"}, POINT))]) == ["BED001"]


def test_unsigned_reasoning_is_refused_where_it_is_certainly_claudes() -> None:
    """Other models sign nothing, and the body does not say which one is asked."""
    messages = [ASK, model({"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "Hello!"}), ASK]
    thinking: JSONObject = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    body: JSONObject = {"messages": messages, "additionalModelRequestFields": thinking}
    assert codes({"messages": messages}) == []
    assert codes(body) == ["BED023"]
    fixed, _ = fix(body, format="bedrock")
    assert fixed["messages"][1]["content"] == [{"text": "Hello!"}]


def test_an_error_without_text_gets_a_text() -> None:
    fixed, repairs = fix([ASK, model(call()), user(result({"text": ""}, status="error"))], format="bedrock")
    assert fixed[2]["content"] == [result({"text": EMPTY_ERROR_TEXT}, status="error")]
    assert [repair.code for repair in repairs] == ["BED017"]


def test_a_tool_or_prompt_in_the_shape_of_another_provider_is_taken_over() -> None:
    """Guarantee 10.6."""
    body: JSONObject = {
        "system": "Be brief.",
        "toolConfig": {"tools": [{"name": "look", "input_schema": {"type": "object"}}]},
        "messages": [{"role": "user", "content": "hi"}],
    }
    fixed, _ = fix(body, format="bedrock")
    assert fixed == {
        "system": [{"text": "Be brief."}],
        "toolConfig": {"tools": [SPEC]},
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
    }


def test_recorded_refusals_that_can_be_seen_without_asking() -> None:
    """Of the recorded ones, all are about the model that was asked: its name, and which media it takes."""
    document = {
        "document": {"name": "Document 1", "format": "pdf", "source": {"s3Location": {"uri": "s3://abc/a.pdf"}}}
    }
    assert codes([user({"text": "See."}, document)]) == []


def test_a_document_that_only_bedrock_can_read_gets_a_valid_name() -> None:
    """Its content, and documents with a valid name, stay as they are."""
    source: JSONObject = {"content": [{"text": "x"}]}
    given = user({"text": "Sum up."}, {"document": {"name": "a_b?.pdf", "format": "pdf", "source": source}}, DOCUMENT)
    fixed, _ = fix([given], format="bedrock")
    assert codes(fixed) == []
    _, renamed, same = fixed[0]["content"]
    assert renamed["document"]["name"].startswith("a b pdf")
    assert (renamed["document"]["source"], same) == (source, DOCUMENT)


def test_an_invalid_call_of_bedrocks_own_tools_becomes_text() -> None:
    """Its tool is left out; a valid call of another tool stays."""
    own: JSONObject = {"toolUse": {"toolUseId": "a b!", "name": "lo ok", "input": {}, "type": "server_tool_use"}}
    answer = result({"text": "sunny"}, call_id="a b!", type="web_search")
    tools = [SPEC, {"systemTool": {"name": "lo ok"}}]
    messages = [ASK, model(own, answer, call()), user(result({"text": "1"}))]
    fixed, _ = fix({"messages": messages, "toolConfig": {"tools": tools}}, format="bedrock")
    assert codes(fixed) == []
    first, second, third = fixed["messages"][1]["content"]
    assert ("lo ok" in first["text"], "sunny" in second["text"], third) == (True, True, call())
    assert fixed["toolConfig"]["tools"] == [SPEC]


def test_of_too_many_documents_the_last_stay_also_inside_results() -> None:
    documents = [{"document": {**DOCUMENT["document"], "name": f"A{number}"}} for number in range(6)]
    messages = [user({"text": "Compare."}, *documents[:3]), model(call()), user(result(*documents[3:]))]
    fixed, _ = fix({"messages": messages, "toolConfig": {"tools": [SPEC]}}, format="bedrock")
    assert codes(fixed) == []
    _, described, *kept = fixed["messages"][0]["content"]
    assert "A0" in described["text"]
    assert kept + fixed["messages"][2]["content"][0]["toolResult"]["content"] == documents[1:]


@pytest.mark.parametrize(("given", "expected"), [({"maxTokens": 0}, {"maxTokens": 1}), ({"topP": -1}, {"topP": 0})])
def test_a_setting_below_its_range_becomes_the_lowest_value(given: JSONObject, expected: JSONObject) -> None:
    body: JSONObject = {"messages": [ASK], "inferenceConfig": given}
    assert "greater than or equal to" in said(body)[0]
    assert fix(body, format="bedrock")[0]["inferenceConfig"] == expected
