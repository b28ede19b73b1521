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


STRING = "json: cannot unmarshal {} into Go struct field ChatRequest.{} of type {}"
GO: list[tuple[JSON, str]] = [
    ([{"role": "user", "content": []}], STRING.format("array", "messages.content", "string")),
    ([{"role": "user", "content": {"text": "hi"}}], STRING.format("object", "messages.content", "string")),
    ([{"role": 1, "content": "hi"}], STRING.format("number", "messages.role", "string")),
    ([{**HI, "images": "iVBO"}], STRING.format("string", "messages.images", "[]api.ImageData")),
    ([{**HI, "images": [1]}], STRING.format("number", "messages.images", "api.ImageData")),
    (["hi"], STRING.format("string", "messages", "api.Message")),
    ({"messages": "hi"}, STRING.format("string", "messages", "[]api.Message")),
    ({"messages": [HI], "tools": {}}, STRING.format("object", "tools", "api.Tools")),
    ({"messages": [HI], "tools": ["look"]}, STRING.format("string", "tools", "api.Tool")),
    ({"messages": [HI], "stream": "yes"}, STRING.format("string", "stream", "bool")),
    ({"messages": [HI], "options": []}, STRING.format("array", "options", "map[string]interface {}")),
    (
        [HI, {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}, result()],
        STRING.format("string", "messages.tool_calls.function.arguments", "api.ToolCallFunctionArguments"),
    ),
]


@pytest.mark.parametrize(("body", "said"), GO, ids=[said.partition("Go struct field ")[2] for _, said in GO])
def test_a_wrong_type_has_the_error_text_of_go(body: JSON, said: str) -> None:
    """Guarantee 10.6: the server's own error."""
    found = cc.lint(body, format="ollama")
    assert (found[0].code, found[0].error) == ("OLL001", said)


def test_content_in_parts_becomes_a_text_with_pictures_beside_it() -> None:
    """What OpenAI's API takes, and this one refuses."""
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "text", "text": "And that?"},
    ]
    assert fixed([{"role": "user", "content": parts}]) == [
        {"role": "user", "content": "What is this?\n\nAnd that?", "images": ["iVBORw=="]}
    ]


def test_arguments_as_text_become_an_object() -> None:
    """Of what is not an object, the text is kept in one."""
    calls = [
        {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "look", "arguments": '{"at": '}},
        {"id": "c", "type": "function", "function": {"name": "look", "arguments": ""}},
    ]
    found = fixed([HI, {"role": "assistant", "content": None, "tool_calls": calls}, *map(result, "abc")])
    assert [call["function"]["arguments"] for call in found[1]["tool_calls"]] == [
        {"at": 1},
        {"malformed_arguments": '{"at": '},
        {},
    ]


def test_messages_of_another_api_are_converted() -> None:
    """A history that went through several programs."""
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {"at": 1}}]}
    told = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "a ship"}]}
    assert fixed([HI, use, told]) == [
        HI,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": {"at": 1}}}],
        },
        {"role": "tool", "content": "a ship", "tool_name": "look", "tool_call_id": "a"},
    ]


@pytest.mark.parametrize(("role", "meant"), [("developer", "system"), ("human", "user"), ("Model", "assistant")])
def test_a_role_that_no_template_shows_becomes_the_one_that_was_meant(role: str, meant: str) -> None:
    messages: list[JSONObject] = [{"role": role, "content": "x"}, HI]
    assert codes(messages) == ["OLL001"]
    assert fixed(messages) == [{"role": meant, "content": "x"}, HI]


def test_a_call_that_names_no_tool_becomes_text() -> None:
    found = fixed([HI, {"role": "assistant", "content": "Hm.", "tool_calls": [{"function": {"arguments": {}}}]}, HI])
    assert found[1] == {"role": "assistant", "content": 'Hm.\n\n{"function":{"arguments":{}}}'}


def test_a_missing_result_is_made_up_without_an_id_where_its_call_has_none() -> None:
    """Guarantee 5.3."""
    found = fixed([HI, asks(""), HI])
    assert found[1] == asks("")
    assert (found[2]["role"], found[2]["tool_name"], "tool_call_id" in found[2]) == ("tool", "look", False)
    assert found[3] == HI


@pytest.mark.parametrize(
    ("image", "byte", "images", "content"),
    [
        ("data:image/png;base64,iVBORw==", 4, ["iVBORw=="], "hi"),
        ("https://e.com/a.png", 5, [], "hi\n\n[image: https://e.com/a.png; not shown]"),
        ("./a.png", 0, [], "hi\n\n[image: ./a.png; not shown]"),
        ("iVBORw", 4, [], "hi\n\n[image: iVBORw; not shown]"),
    ],
)
def test_pictures_are_bytes(image: str, byte: int, images: list[str], content: str) -> None:
    """Guarantee 10.6: where Go stopped reading, and what becomes of it."""
    messages: list[JSONObject] = [{**HI, "images": [image]}]
    (found,) = cc.lint(messages, format="ollama")
    assert (found.code, found.error) == ("OLL008", f"illegal base64 data at input byte {byte}")
    assert fixed(messages) == [{"role": "user", "content": content, **({"images": images} if images else {})}]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"think": "xhigh"}, 'invalid think value: "xhigh" (must be "high", "medium", "low", "max", true, or false)'),
        ({"format": "xml"}, 'invalid format: "xml"; expected "json" or a valid JSON Schema object'),
        ({"options": {"num_ctx": "4096"}}, 'option "num_ctx" must be of type integer'),
        ({"options": {"temperature": "hot"}}, 'option "temperature" must be of type float32'),
        ({"options": {"stop": "END"}}, 'option "stop" must be of type array'),
        ({"options": {"stop": [1]}}, 'option "stop" must be of an array of strings'),
        ({"options": {"use_mmap": 1}}, 'option "use_mmap" must be of type boolean'),
        ({"top_logprobs": -1}, "top_logprobs must be between 0 and 20"),
    ],
    ids=str,
)
def test_a_refused_setting_has_the_servers_error_text_and_is_dropped(settings: JSONObject, said: str) -> None:
    body: JSONObject = {"model": "m", "keep_alive": "5m", **settings, "messages": [HI]}
    assert [violation.error for violation in cc.lint(body, format="ollama")] == [said]
    found, _ = cc.fix(body, format="ollama")
    assert codes(found) == []
    assert (found["model"], found["keep_alive"], found["messages"]) == ("m", "5m", [HI])


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


def test_what_the_server_passes_over_in_a_schema_is_left_alone() -> None:
    """Guarantee 10.6: a false alarm costs trust."""
    at: JSONObject = {"type": ["string", "null"], "default": None, "minLength": 1, "items": True, "enum": [1, "a"]}
    schema: JSONObject = {"type": "object", "properties": {"at": at}, "required": [], "additionalProperties": False}
    body: JSONObject = {"messages": [HI], "tools": [{"type": "function", "function": {"name": "look"}}]}
    body["tools"][0]["function"]["parameters"] = schema
    assert codes(body) == []


def test_a_call_without_a_name_gets_a_result() -> None:
    """Guarantee 10.6: the result of a call that names no tool is matched with it."""
    call: JSONObject = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "", "arguments": {}}}]}
    fixed, _ = cc.fix({"model": "m", "messages": [{"role": "user", "content": "hi"}, call]}, format="ollama")
    assert cc.lint(fixed, format="ollama") == []
    assert [message["role"] for message in fixed["messages"]] == ["user", "assistant", "tool"]
