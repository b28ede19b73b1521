"""The second judge itself: it accepts what vendors accept, and says in one sentence what they would not."""

import copy

import pytest

from contextc._json import JSON, JSONObject
from tests.formats.traffic import accepted
from tests.formats.vendor import problems

GOOD: dict[str, list[JSONObject]] = {
    "anthropic": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "sunny"}]},
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            ],
        },
    ],
    "openai_chat": [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    ],
    "openai_responses": [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "sunny"},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Weather?"}, {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}]},
        {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": "c2ln"}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "sunny"}}}]},
    ],
    "vercel": [
        {"role": "user", "content": [{"type": "file", "mediaType": "image/png", "data": "iVBO"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Hm.", "providerOptions": {"anthropic": {"any": ["thing"]}}},
                {"type": "tool-call", "toolCallId": "a", "toolName": "weather", "input": {"city": "Paris"}},
            ],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "a",
                    "toolName": "weather",
                    "output": {"type": "json", "value": {"sun": [1, None]}},
                }
            ],
        },
    ],
    "vercel_legacy": [
        {"role": "user", "content": "Weather?", "experimental_attachments": [{"url": "data:,", "contentType": "a/b"}]},
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}},
        {"role": "function", "name": "weather", "content": "sunny", "tool_call_id": "a"},
    ],
}


def changed(format: str, path: str, value: JSON) -> list[JSONObject]:
    """The good conversation with one thing set; `...` takes it away."""
    messages = copy.deepcopy(GOOD[format])
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    place: JSON = messages
    for step in way:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return messages


@pytest.mark.parametrize("format", GOOD)
def test_a_conversation_with_tools_is_accepted(format: str) -> None:
    """A judge that refuses what is right would be of no use; nor one that asks for a model, which we do not choose."""
    assert problems(format, GOOD[format]) == []


REFUSED: list[tuple[str, str, JSON, str]] = [
    ("anthropic", "1.content.1.input", '{"city": "Paris"}', "messages.1.content.1.tool_use: input: Input should be a"),
    ("anthropic", "1.content.1.input", ..., "messages.1.content.1.tool_use: input: Field required"),
    ("anthropic", "1.content.0.signature", ..., "messages.1.content.0.thinking: signature: Field required"),
    ("anthropic", "1.content.0.colour", "red", "messages.1.content.0.thinking: colour: Extra inputs are not permitted"),
    ("anthropic", "1.content.0.type", "idea", "messages.1.content.0: Not expected here: {'type': 'idea'}"),
    ("anthropic", "2.content.0.content.0.text", ..., "messages.2.content.0.tool_result.content.0.text: text: Field"),
    ("anthropic", "2.content.1.source.url", ..., "messages.2.content.1.image.source.url: url: Field required"),
    ("anthropic", "0.role", "tool", "messages.0: Not expected here: {'role': 'tool'}"),
    ("openai_chat", "1.tool_calls.0.function.arguments", {}, "messages.1.tool_calls.0.function: function.arguments: "),
    ("openai_chat", "0.content.0.image_url.url", ..., "messages.0.content.0.image_url: image_url.url: Field required"),
    ("openai_chat", "0.content.0.type", "video", "messages.0.content.0: Not expected here: {'type': 'video'}"),
    ("openai_chat", "2.tool_call_id", ..., "messages.2.tool_call_id: Field required"),
    ("openai_chat", "2.is_error", True, "messages.2.is_error: Extra inputs are not permitted"),
    ("openai_responses", "2.arguments", {}, "input.2.function_call: arguments: Input should be a valid string"),
    ("openai_responses", "3.call_id", ..., "input.3.function_call_output: call_id: Missing, though the type allows it"),
    ("openai_responses", "1.summary", ..., "input.1.reasoning: summary: Field required"),
    ("openai_responses", "0.content.0.type", "text", "input.0.content.0: Not expected here: {'type': 'text'}"),
    ("gemini", "0.parts.0.functionCall", {"name": "f"}, "contents.0.parts.0: Must have exactly one data field, not"),
    ("gemini", "0.parts.1.inlineData.data", "!", "contents.0.parts.1.inlineData.data: Data should be valid base64"),
    ("gemini", "1.role", "assistant", "contents.1.role: Must be user or model, not 'assistant'"),
    ("gemini", "1.parts.0.colour", "red", "contents.1.parts.0.colour: Extra inputs are not permitted"),
    ("gemini", "2.parts.0.functionResponse.response", "sunny", "contents.2.parts.0.functionResponse.response: Input"),
    ("vercel", "1.content.1.input", ..., "messages.1.content.1.tool-call: 'input' is a required property"),
    ("vercel", "1.content.1.args", {}, "messages.1.content.1.tool-call: Additional properties are not allowed ('args'"),
    ("vercel", "0.content.0.data", 5, "messages.0.content.0.file: data: Not expected here: 5"),
    ("vercel", "2.content.0.output", "sunny", "messages.2.content.0.tool-result: output: Not expected here: sunny"),
    ("vercel", "2.role", "function", "messages.2: Not expected here: {'role': 'function'}"),
    (
        "vercel_legacy",
        "1.function_call.arguments",
        {},
        "messages.1.function_call.arguments: {} is not of type 'string'",
    ),
    ("vercel_legacy", "2.name", ..., "messages.2: 'name' is a required property"),
    ("vercel_legacy", "0.function_call", {}, "messages.0: Additional properties are not allowed ('function_call'"),
]


@pytest.mark.parametrize(("format", "path", "value", "sentence"), REFUSED, ids=[f"{f} {p}" for f, p, _, _ in REFUSED])
def test_one_wrong_thing_is_one_sentence(format: str, path: str, value: JSON, sentence: str) -> None:
    """WIRE 12: naive validation lets most of these pass, and says the rest a hundred times."""
    found = problems(format, changed(format, path, value))
    assert [each[: len(sentence)] for each in found] == [sentence]


def test_the_rest_of_a_body_is_judged_too() -> None:
    assert problems("anthropic", {"messages": GOOD["anthropic"], "stream": True, "system": "Be brief."}) == []
    assert problems("anthropic", {"messages": GOOD["anthropic"], "temperature": 1}) == [
        "temperature: Extra inputs are not permitted"
    ]
    assert problems("gemini", {"contents": GOOD["gemini"], "systemInstruction": "Be brief."}) == [
        "systemInstruction: Input should be an object"
    ]
    snake: JSONObject = {"role": "model", "parts": [{"function_call": {"name": "f"}, "thought_signature": "c2ln"}]}
    assert problems("gemini", [snake]) == []  # Vertex was sent, and took, both spellings
    mode = {"functionCallingConfig": {"mode": "SOMETIMES"}}
    assert problems("gemini", {"contents": GOOD["gemini"], "toolConfig": mode}) == [
        "SOMETIMES is not a valid FunctionCallingConfigMode"
    ]


def test_a_block_of_a_beta_is_accepted_where_only_the_beta_knows_it() -> None:
    block: JSONObject = {"type": "compaction", "content": "So far: nothing."}
    assert problems("anthropic", [{"role": "assistant", "content": [block]}]) == []
    assert problems("anthropic", [{"role": "assistant", "content": [block | {"colour": "red"}]}]) != []


@pytest.mark.parametrize(
    ("api", "vendor"),
    [("anthropic", "anthropic"), ("openai_chat", "openai"), ("openai_responses", "openai"), ("gemini", "google")],
)
def test_what_a_vendor_accepted_its_types_accept(api: str, vendor: str) -> None:
    """Recorded requests: the judge is no stricter than the service. Other vendors' requests have keys of their own."""
    requests = [exchange for exchange in accepted(api) if exchange.vendor == vendor]
    assert requests
    refused = {exchange.case: found for exchange in requests if (found := problems(api, exchange.request))}
    assert refused == {}
