"""Rules specific to Ollama: Go's types, optional ids, and shapes of other APIs."""

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject

HI: JSONObject = {"role": "user", "content": "hi"}


def asks(*ids: str, **more: JSON) -> JSONObject:
    calls = [{**({"id": id} if id else {}), "function": {"name": "look", "arguments": JSONObject()}} for id in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls, **more}


def result(id: str = "", content: str = "1") -> JSONObject:
    return {"role": "tool", "content": content, **({"tool_call_id": id} if id else {})}


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in cc.lint(body, format="ollama")]


def fixed(messages: list[JSONObject]) -> list[JSONObject]:
    """The messages, fixed; they are clean then."""
    found, repairs = cc.fix(messages, format="ollama")
    assert repairs
    assert codes(found) == []
    return found


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            [HI, HI, {"role": "assistant", "content": ""}, {"role": "system", "content": "x"}], id="any roles"
        ),
        pytest.param([{"role": "User", "content": "hi"}], id="a role in capitals"),
        pytest.param([HI, {"role": "assistant"}, HI], id="no content"),
        pytest.param([HI, asks("a"), result("a"), asks("a"), result("a")], id="an id that is used again"),
        pytest.param([HI, asks("a", "b"), result("b"), result("a")], id="results in any order"),
        pytest.param([HI, asks("a"), HI, result("a")], id="somebody speaks between"),
        pytest.param([HI, asks("", ""), result(), result()], id="no ids at all"),
        pytest.param({"model": "m", "messages": [HI], "tools": [], "think": "max", "keep_alive": 0}, id="settings"),
        pytest.param({"messages": [HI], "options": {"num_ctx": 4096.0, "stop": [], "mine": "x"}, "format": ""}),
        pytest.param([{**HI, "images": ["iVBORw==", "iVBO\nRw=="]}], id="base64 in lines"),
    ],
)
def test_what_the_server_takes_is_left_alone(body: JSON) -> None:
    """Guarantee 10.6: a false alarm costs trust."""
    assert codes(body) == []


def test_a_missing_result_is_made_up_without_an_id_where_its_call_has_none() -> None:
    """Guarantee 5.3."""
    found = fixed([HI, asks(""), HI])
    assert found[1] == asks("")
    assert (found[2]["role"], found[2]["tool_name"], "tool_call_id" in found[2]) == ("tool", "look", False)
    assert found[3] == HI


FIELD = "json: cannot unmarshal {} into Go struct field {} of type {}"
WRONG: list[tuple[JSONObject, str, JSONObject]] = [
    (
        {"type": "object", "required": "a"},
        FIELD.format("string", "ChatRequest.tools.function.parameters.required", "[]string"),
        {"type": "object", "required": ["a"]},
    ),
    (
        {"type": "object", "required": ["a", 1]},
        FIELD.format("number", "ChatRequest.tools.function.parameters.required", "string"),
        {"type": "object", "required": ["a"]},
    ),
    ({"type": 1}, FIELD.format("number", "ChatRequest.tools.function.parameters.type", "string"), {}),
    (
        {"type": "object", "properties": {"a": {"type": 1, "description": "x"}}},
        "json: cannot unmarshal number into Go value of type []string",
        {"type": "object", "properties": {"a": {"description": "x"}}},
    ),
    (
        {"properties": {"a": {"anyOf": [{"enum": "x"}]}}},
        FIELD.format("string", "ToolProperty.enum", "[]interface {}"),
        {"properties": {"a": {"anyOf": [{}]}}},
    ),
    (
        {"properties": {"required": True}},
        "json: cannot unmarshal bool into Go value of type api.ToolProperty",
        {"properties": {"required": {}}},
    ),
]


@pytest.mark.parametrize(("schema", "error", "mended"), WRONG, ids=[str(schema)[:50] for schema, _, _ in WRONG])
def test_a_wrong_type_inside_a_schema_is_reported_and_fixed(schema: JSONObject, error: str, mended: JSONObject) -> None:
    """Guarantee 10.6: the server reads the schema into its own types. Tools of other formats are encoded so at once."""
    body: JSONObject = {"messages": [HI], "tools": [{"type": "function", "function": {"name": "look"}}]}
    body["tools"][0]["function"]["parameters"] = schema
    assert [(found.code, found.error) for found in cc.lint(body, format="ollama")] == [("OLL013", error)]
    fixed, _ = cc.fix(body, format="ollama")
    assert fixed["tools"][0]["function"]["parameters"] == mended
    written = cc.formats.OllamaFormatter().encode_tool(cc.Tool(name="look", description="", parameters=schema))
    assert written["function"]["parameters"] == mended
