"""Small requests in shapes that providers have been seen to accept, or that their own types allow.

Each is the least that shows its shape. No rule may be broken by one, `fix` leaves it as it is, and decoding and
encoding it for the same provider gives it back.
"""

import base64
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats import formatter
from tests.formats.accepted_anthropic import (
    ANTHROPIC,
    ANTHROPIC_BODIES,
    HI,
    MARK,
    OTHER_SIGNATURE,
    PNG,
    SIGNATURE,
    assistant,
    message,
    text,
    user,
)


def _model(*parts: JSONObject) -> JSONObject:
    return {"role": "model", "parts": list(parts)}


def _asked(*parts: JSONObject) -> JSONObject:
    return {"role": "user", "parts": list(parts)}


def _call(name: str, call_id: str = "", **more: JSON) -> JSONObject:
    return {"functionCall": {"name": name, "args": {}, **({"id": call_id} if call_id else {})}, **more}


def _back(name: str, call_id: str = "", output: JSON = "1") -> JSONObject:
    return {"functionResponse": {"name": name, "response": {"output": output}, **({"id": call_id} if call_id else {})}}


def _signed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


ASKED = _asked({"text": "hi"})
CIPHERTEXT = base64.urlsafe_b64encode(bytes([1, *range(120, 251)])).decode().rstrip("=")
GEMINI: dict[str, JSON] = {
    "two replies in a row, answered together": [
        ASKED,
        _model(_call("look", thoughtSignature=SIGNATURE)),
        _model(_call("find")),
        _asked(_back("look"), _back("find")),
    ],
    "two replies in a row, with ids, answered in two contents": [
        ASKED,
        _model(_call("look", "a", thoughtSignature=SIGNATURE)),
        _model(_call("look", "b")),
        _asked(_back("look", "a")),
        _asked(_back("look", "b")),
    ],
    "results of one reply in two contents": [
        ASKED,
        _model(_call("look", thoughtSignature=SIGNATURE), _call("find")),
        _asked(_back("find")),
        _asked(_back("look")),
    ],
    "text before calls, in a reply of its own": [
        ASKED,
        _model({"text": "Let me see."}),
        _model(_call("look", thoughtSignature=SIGNATURE)),
        _asked(_back("look")),
        _asked({"text": "Well?"}),
    ],
    "the model speaks first": [_model({"text": "Hello."}), ASKED],
    "stand-ins for signatures, in base64": [
        ASKED,
        _model(_call("look", thoughtSignature=_signed("skip_thought_signature_validator"))),
        _asked(_back("look")),
        _model(_call("look", thoughtSignature="skip_thought_signature_validator")),
        _asked(_back("look")),
        _model({"text": "x", "thoughtSignature": _signed("vertex_server_tool:google_search:" + 60 * "0")}),
        ASKED,
    ],
    "a signature that is a bare ciphertext, URL-safe and without padding": [
        ASKED,
        _model(_call("look", thoughtSignature=CIPHERTEXT)),
        _asked(_back("look")),
        _model({"text": "x", "thoughtSignature": CIPHERTEXT.replace("-", "+").replace("_", "/") + "="}),
        ASKED,
    ],
    "one content without its list, and one part": cast(JSON, {"role": "user", "parts": {"text": "hi"}}),
    "no role": [{"parts": [{"text": "hi"}]}],
    "results of the function": [
        ASKED,
        _model(_call("look", thoughtSignature=SIGNATURE)),
        {"role": "function", "parts": [_back("look")]},
    ],
    "what Google runs itself": [
        ASKED,
        _model(
            {"executableCode": {"language": "PYTHON", "code": "1", "id": "x"}, "thoughtSignature": SIGNATURE},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1", "id": "x"}},
            {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x"]}, "id": "y"}},
            {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {"a": 1}, "id": "y"}},
            {"text": "1"},
        ),
        ASKED,
    ],
    "a signature of another kind on what Google runs itself": [
        ASKED,
        _model(
            {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": OTHER_SIGNATURE},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
            {"text": "1"},
        ),
        ASKED,
    ],
    "an empty text and a thought": [
        ASKED,
        _model({"text": "Hm.", "thought": True}, {"text": "", "thoughtSignature": SIGNATURE}),
        ASKED,
    ],
    "names in the other spelling, beside null ones": [
        ASKED,
        _model({"function_call": {"name": "look", "args": {}}, "functionCall": None, "thought_signature": SIGNATURE}),
        _asked({"function_response": {"name": "look", "response": {"output": "1"}}, "functionResponse": None}),
    ],
    "names in the other spelling": [
        ASKED,
        _model({"function_call": {"name": "look", "args": {}, "id": None}, "thought_signature": SIGNATURE}),
        _asked({"function_response": {"name": "look", "response": {"result": [1]}, "will_continue": False}}),
        _asked({"file_data": {"file_uri": "gs://a/b.png", "mime_type": "image/png", "display_name": "b"}}),
    ],
}
GEMINI_BODIES: dict[str, JSONObject] = {
    "tools as one object": {
        "contents": [ASKED],
        "tools": {"functionDeclarations": [{"name": "look", "parameters": {"type": "OBJECT", "properties": {}}}]},
    },
    "tools as one object, of Google's": {"contents": [ASKED], "tools": {"googleSearch": {}}},
    "tools as one object with functions and others": {
        "contents": [ASKED],
        "tools": {"function_declarations": {"name": "look"}, "code_execution": {}},
    },
    "tools of Google's in one entry": {
        "contents": [ASKED],
        "tools": [{"googleSearch": {}, "codeExecution": {}}, {"urlContext": {}}, {"functionDeclarations": []}],
    },
    "a system prompt of one part": {
        "contents": [ASKED],
        "systemInstruction": {"role": "user", "parts": {"text": "Be brief."}},
    },
    "unsigned calls in the same step as a signed one": {
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}},
        "contents": [
            ASKED,
            _model(_call("look", thoughtSignature=SIGNATURE)),
            _model(_call("find")),
            _asked(_back("look"), _back("find")),
        ],
    },
    "labels and safety settings": {
        "contents": [ASKED],
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "labels": {"team": "x"},
        "cachedContent": "cachedContents/1",
        "toolConfig": {"includeServerSideToolInvocations": True, "retrievalConfig": {"languageCode": "de"}},
    },
}


def _function(call_id: str, **more: JSON) -> JSONObject:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **more}


def _output(call_id: str, output: JSON = "1", **more: JSON) -> JSONObject:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **more}


def _spoken(text: str, **more: JSON) -> JSONObject:
    blocks: list[JSON] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": blocks, **more}


THOUGHT: JSONObject = {"type": "reasoning_text", "text": "Hm."}
UUID = "0bb3a7a4-4f2c-4d7e-9a58-1d2f9f0b6c11"
RESPONSES: dict[str, list[JSONObject]] = {
    "a tool search that the server runs": [
        HI,
        {
            "type": "tool_search_call",
            "id": "tsc_1",
            "call_id": "c1",
            "execution": "server",
            "arguments": {"query": "x"},
            "status": "completed",
        },
        {
            "type": "tool_search_output",
            "id": "tso_1",
            "call_id": "c1",
            "execution": "server",
            "tools": [],
            "status": "completed",
        },
        _function("a"),
        _output("a"),
    ],
    "a tool search that the server runs, without its output": [
        HI,
        {"type": "tool_search_call", "id": "tsc_1", "call_id": "c1", "execution": "server", "arguments": {}},
        _function("a"),
        _output("a"),
    ],
    "a tool search of the client, answered as a function": [
        HI,
        {"type": "tool_search_call", "id": "tsc_1", "call_id": "c1", "execution": "client", "arguments": {}},
        _output("c1", "Found: look"),
        _function("a"),
        _output("a"),
    ],
    "a tool search of the client, answered by its own output": [
        HI,
        {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"query": "x"}},
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [{"type": "function"}]},
        message("Well?"),
    ],
    "two tool searches of the client beside a call": [
        HI,
        {"type": "tool_search_call", "id": "tsc_1", "call_id": "c1", "execution": "client", "arguments": None},
        {"type": "tool_search_call", "id": "tsc_2", "call_id": "c2", "execution": "client", "arguments": '{"q": 1}'},
        _function("a"),
        _output("a"),
        _output("c2", [{"type": "input_text", "text": "Found: look"}]),
        {"type": "tool_search_output", "call_id": "c1", "tools": [], "status": "completed"},
    ],
    "readable reasoning of another vendor": [
        HI,
        {"type": "reasoning", "id": UUID, "summary": [], "content": [THOUGHT]},
        message("Hello!", "assistant"),
        HI,
        {"type": "reasoning", "id": UUID.replace("0bb3", "1bb3"), "summary": [], "content": [THOUGHT], "status": None},
        _function("a", id=UUID.replace("0bb3", "2bb3")),
        _output("a"),
    ],
    "readable reasoning of another vendor, before a message in parts": [
        HI,
        {"type": "reasoning", "id": UUID, "summary": [], "content": [THOUGHT], "encrypted_content": None},
        _spoken("Hello!"),
        HI,
    ],
    "readable reasoning of another vendor with OpenAI's ids": [
        HI,
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [THOUGHT]},
        _spoken("Hello!"),
        HI,
    ],
    "readable reasoning without an id": [
        HI,
        {"type": "reasoning", "summary": [], "content": [THOUGHT]},
        message("Hello!", "assistant"),
        HI,
    ],
    "readable reasoning at the end of a turn": [
        HI,
        {"type": "reasoning", "id": UUID, "summary": [], "content": [THOUGHT]},
        message("and?"),
    ],
    "a result that stands behind what the user said": [HI, _function("a"), message("Hurry."), _output("a")],
    "an id that was answered is used again": [
        HI,
        _function("a"),
        _output("a"),
        _function("a"),
        _output("a", "2"),
    ],
    "results in another order than their calls": [
        HI,
        _function("a"),
        _function("b"),
        _output("b"),
        _output("a", [{"type": "input_text", "text": "x"}]),
    ],
    "what OpenAI runs itself": [
        HI,
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["x"], "results": None},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "cntr_1", "outputs": None},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PNG},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": [], "error": None},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "f", "arguments": "{}", "output": "x"},
        _spoken("Done.", id="msg_1", status="completed"),
        HI,
    ],
    "an approval": [
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "f", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    ],
    "an item of tomorrow": [
        HI,
        {"type": "telescope_call", "id": "tc_1", "status": "completed", "stars": 3},
        _spoken("Three stars.", id="msg_1", status="completed"),
        HI,
    ],
    "custom tools": [
        HI,
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "a", "name": "f", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "1"},
    ],
    "an instruction in between, with a phase and a refusal": [
        message("Be brief.", "system"),
        HI,
        _spoken("Let me see.", id="msg_1", status="completed", phase="commentary"),
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        message("Be kind.", "developer"),
        user(
            {"type": "input_image", "image_url": "https://a.b/c.png", "detail": "auto"},
            {"type": "input_file", "file_id": "file-1"},
            {"type": "input_text", "text": "x"},
        ),
    ],
}
RESPONSES_BODIES: dict[str, JSONObject] = {
    "tools of every kind": {
        "model": "gpt-5.6",
        "input": "hi",
        "instructions": "",
        "tools": [
            {"type": "function", "name": "look", "parameters": None, "strict": None},
            {"type": "web_search", "search_context_size": "low"},
            {"type": "mcp", "server_label": "s", "server_url": "https://a.b", "require_approval": "never"},
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "f"}]},
            {"type": "tool_search"},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
        "include": ["reasoning.encrypted_content"],
        "store": None,
    },
    "a thought of tomorrow, of another vendor": {
        "model": "deepseek-chat",
        "input": [
            HI,
            {"type": "reasoning", "id": UUID, "summary": [{"type": "sketch", "text": "Hm."}]},
            message("Hello!", "assistant"),
            HI,
        ],
    },
    "a model of another vendor with its own ids": {
        "model": "deepseek-chat",
        "store": False,
        "input": [
            HI,
            {"type": "reasoning", "id": UUID, "summary": [], "content": [THOUGHT]},
            message("Hello!", "assistant"),
            HI,
        ],
    },
    "an item of OpenRouter's": {
        "model": "openai/gpt-5.6",
        "input": [{"type": "openrouter:web_search", "id": "x", "status": "completed"}, HI],
        "tools": [{"type": "openrouter:datetime"}],
    },
}


def _tool_call(call_id: str, **more: JSON) -> JSONObject:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}, **more}


def _calls(*calls: JSONObject, **more: JSON) -> JSONObject:
    return {"role": "assistant", "tool_calls": list(calls), **more}


def _result(call_id: str, content: JSON = "1", **more: JSON) -> JSONObject:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


CHAT: dict[str, JSONObject] = {
    "an id that was answered is used again": {
        "messages": [HI, _calls(_tool_call("a")), _result("a"), _calls(_tool_call("a")), _result("a", "2")]
    },
    "results in another order than their calls": {
        "messages": [HI, _calls(_tool_call("a"), _tool_call("b"), content=None), _result("b"), _result("a")]
    },
    "null fields of a reply that is sent back whole": {
        "messages": [
            HI,
            {
                "role": "assistant",
                "content": "Hello!",
                "refusal": None,
                "annotations": [],
                "audio": None,
                "function_call": None,
                "tool_calls": None,
            },
            HI,
        ]
    },
    "reasoning of a vendor in its own field": {
        "model": "deepseek-reasoner",
        "messages": [
            HI,
            _calls(_tool_call("a", index=0), content="", reasoning_content="Hm."),
            _result("a", name="look"),
            {"role": "assistant", "content": "Hello!", "reasoning": "Hm."},
            HI,
        ],
    },
    "thinking in parts": {
        "model": "magistral-medium-latest",
        "messages": [
            HI,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": [text("Hm.")], "closed": True},
                    text("Hello!"),
                ],
                "prefix": False,
            },
            HI,
        ],
    },
    "cache marks and parts in every role": {
        "model": "anthropic/claude-sonnet-4.5",
        "messages": [
            {"role": "system", "content": [text("Be brief.", cache_control=MARK)]},
            {"role": "user", "content": [text("hi", cache_control=MARK)], "name": "Ada"},
            _calls(_tool_call("a"), content=[text("Let me see.")]),
            _result("a", [text("x", cache_control=MARK)]),
        ],
    },
    "a part of tomorrow, for another vendor": {
        "model": "x/y",
        "messages": [{"role": "user", "content": [{"type": "hologram", "hologram": {"url": "https://a.b"}}]}],
        "tools": [{"type": "telescope"}, {"type": "function", "function": {"name": "look"}}],
        "plugins": [{"id": "web"}],
    },
    "arguments as an object, for another vendor": {
        "model": "mistral-large-latest",
        "messages": [
            HI,
            _calls({"id": "abcdefghi", "function": {"name": "look", "arguments": {"at": 1}}}, content=""),
            _result("abcdefghi", name="look"),
        ],
    },
    "an empty answer": {"messages": [HI, {"role": "assistant", "content": ""}, HI]},
    "tools with null fields": {
        "model": "gpt-4o",
        "messages": [HI],
        "tools": [{"type": "function", "function": {"name": "look", "description": "", "strict": None}}],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
    },
    "reasoning details that nobody signed": {
        "model": "x/y",
        "messages": [
            HI,
            {
                "role": "assistant",
                "content": "Hello!",
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "Hm.", "format": "unknown", "index": 0, "signature": None},
                    {"type": "reasoning.summary", "summary": "Hm.", "format": "unknown", "index": 1},
                ],
            },
            HI,
        ],
    },
}


def _bedrock_use(call_id: str) -> JSONObject:
    return {"toolUse": {"toolUseId": call_id, "name": "look", "input": {}}}


def _bedrock_result(call_id: str, text: str = "1", **more: JSON) -> JSONObject:
    return {"toolResult": {"toolUseId": call_id, "content": [{"text": text}], **more}}


def _looking(*messages: JSONObject) -> JSONObject:
    tools: list[JSON] = [{"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}]
    return {"toolConfig": {"tools": tools}, "messages": list(messages)}


BEDROCK: dict[str, JSONObject] = {
    "the assistant speaks first": {"messages": [assistant({"text": "Hello."}), user({"text": "hi"})]},
    "an id that was answered is used again": _looking(
        user({"text": "hi"}),
        assistant(_bedrock_use("a")),
        user(_bedrock_result("a")),
        assistant(_bedrock_use("a")),
        user(_bedrock_result("a", "2", status="success")),
    ),
    "results in another order than their calls": _looking(
        user({"text": "hi"}),
        assistant({"text": "See."}, _bedrock_use("a"), _bedrock_use("b")),
        user(_bedrock_result("b"), _bedrock_result("a"), {"cachePoint": {"type": "default"}}, {"text": "Well?"}),
    ),
}

SAMPLES: dict[str, dict[str, JSONObject]] = {
    "anthropic": {**{name: {"messages": each} for name, each in ANTHROPIC.items()}, **ANTHROPIC_BODIES},
    "gemini": {**{name: {"contents": each} for name, each in GEMINI.items()}, **GEMINI_BODIES},
    "openai_responses": {**{name: {"input": each} for name, each in RESPONSES.items()}, **RESPONSES_BODIES},
    "openai_chat": CHAT,
    "bedrock": BEDROCK,
}


def again(name: str, body: JSONObject) -> JSONObject:
    """A request after it was decoded and encoded for the same provider."""
    form = formatter(name)
    return form.encode_request(form.decode_request(body))
