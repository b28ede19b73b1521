"""Small requests in shapes that providers have been seen to accept, or that their own types allow.

Each is the least that shows its shape. No rule may be broken by one, `fix` leaves it as it is, and decoding and
encoding it for the same provider gives it back.
"""

import base64
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats import formatter

PNG = "iVBORw0KGgo="
SIGNATURE = "c2lnbmVk"
OTHER_SIGNATURE = base64.b64encode(bytes(range(128, 255))).decode()


def _said(text: str, role: str = "user") -> JSONObject:
    return {"role": role, "content": text}


def _use(call_id: str, **more: JSON) -> JSONObject:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}, **more}


def _answer(call_id: str, content: JSON = "1", **more: JSON) -> JSONObject:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def _assistant(*blocks: JSONObject) -> JSONObject:
    return {"role": "assistant", "content": list(blocks)}


def _user(*blocks: JSONObject) -> JSONObject:
    return {"role": "user", "content": list(blocks)}


def _text(text: str, **more: JSON) -> JSONObject:
    return {"type": "text", "text": text, **more}


MARK: JSONObject = {"type": "ephemeral"}
HI = _said("hi")
ANTHROPIC: dict[str, list[JSONObject]] = {
    "two replies in a row, answered together": [
        HI,
        _assistant(_use("a")),
        _assistant(_use("b")),
        _user(_answer("a"), _answer("b")),
    ],
    "three replies in a row, one of them only text": [
        HI,
        _assistant(_text("Let me see.")),
        _assistant(_use("a")),
        _assistant(_use("b")),
        _user(_answer("b"), _answer("a"), _text("Go on.")),
    ],
    "text in a reply after the one that calls": [
        HI,
        _assistant(_use("a")),
        _assistant(_text("Looking.")),
        _user(_answer("a")),
    ],
    "results in two messages": [HI, _assistant(_use("a"), _use("b")), _user(_answer("a")), _user(_answer("b"))],
    "results in two messages, the later call first": [
        HI,
        _assistant(_use("a"), _use("b")),
        _user(_answer("b")),
        _user(_answer("a"), _text("Both.")),
    ],
    "results and then the user in another message": [HI, _assistant(_use("a")), _user(_answer("a")), _said("Well?")],
    "the assistant speaks first": [_said("Hello, how can I help?", "assistant"), _said("I need a ticket.")],
    "the assistant speaks first, twice": [
        _said("Hello.", "assistant"),
        _said("How can I help?", "assistant"),
        _said("I need a ticket."),
    ],
    "an id that was answered is used again": [
        HI,
        _assistant(_use("a")),
        _user(_answer("a")),
        _assistant(_use("a")),
        _user(_answer("a", "2")),
        _assistant(_use("a"), _use("b")),
        _user(_answer("a", "3"), _answer("b", "4")),
    ],
    "cache marks and citations": [
        _user(
            {
                "type": "document",
                "source": {"type": "content", "content": [_text("The grass is green.")]},
                "title": "Facts",
                "context": "Nature",
                "citations": {"enabled": True},
                "cache_control": {"type": "ephemeral", "ttl": "1h"},
            },
            _text("What colour?", cache_control=MARK),
        ),
        _assistant(
            _text(
                "Green.",
                citations=[
                    {
                        "type": "content_block_location",
                        "cited_text": "The grass is green.",
                        "document_index": 0,
                        "document_title": "Facts",
                        "start_block_index": 0,
                        "end_block_index": 1,
                    }
                ],
            )
        ),
        _user(_text("Sure?", cache_control=None, citations=None)),
    ],
    "a result with nothing in it, null fields and a caller": [
        HI,
        _assistant(_use("a", caller={"type": "direct"}, cache_control=MARK), _use("b")),
        _user(
            {"type": "tool_result", "tool_use_id": "a", "cache_control": None},
            _answer("b", [], is_error=False, cache_control=MARK),
        ),
    ],
    "a result of pictures, references and search results": [
        HI,
        _assistant(_use("a")),
        _user(
            _answer(
                "a",
                [
                    _text("x"),
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                    {"type": "tool_reference", "tool_name": "find"},
                    {"type": "search_result", "source": "s", "title": "t", "content": [_text("x")]},
                ],
                is_error=True,
            )
        ),
    ],
    "what Anthropic runs itself, with a result and an error": [
        HI,
        _assistant(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {"url": "https://a.b"}},
            {
                "type": "web_fetch_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {"type": "web_fetch_tool_result_error", "error_code": "unavailable"},
            },
            {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "server_name": "s", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": [_text("x")]},
            {"type": "server_tool_use", "id": "srvtoolu_2", "name": "code_execution", "input": {"code": "1"}},
            {
                "type": "code_execution_tool_result",
                "tool_use_id": "srvtoolu_2",
                "content": {
                    "type": "code_execution_result",
                    "stdout": "",
                    "stderr": "",
                    "return_code": 0,
                    "content": [],
                },
            },
            _text("Done."),
        ),
        _said("Thanks."),
    ],
    "a tool of tomorrow that Anthropic runs": [
        HI,
        _assistant(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "telescope", "input": {}},
            {"type": "telescope_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "star"}]},
            _text("Done."),
        ),
        _said("Thanks."),
    ],
    "thinking without words, and redacted": [
        HI,
        _assistant(
            {"type": "thinking", "thinking": "", "signature": SIGNATURE},
            {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
            _text("Hello!"),
        ),
        _said("Go on."),
    ],
    "a file for the container": [_user({"type": "container_upload", "file_id": "file_1"}, _text("See."))],
}
ANTHROPIC_BODIES: dict[str, JSONObject] = {
    "tools of every kind, and a container": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "container": {"id": "container_1", "skills": [{"type": "anthropic", "skill_id": "pdf", "version": "latest"}]},
        "mcp_servers": [{"type": "url", "url": "https://a.b", "name": "s"}],
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "system": [{**_text("Be brief."), "cache_control": MARK}],
        "tools": [
            {"name": "look", "input_schema": {"type": "object"}, "cache_control": MARK, "defer_loading": True},
            {"type": "custom", "name": "find", "description": "", "input_schema": {"type": "object", "properties": {}}},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
            {"type": "mcp_toolset", "mcp_server_name": "s"},
        ],
        "tool_choice": {"type": "tool", "name": "web_search"},
        "messages": [HI],
    },
    "a system prompt with nothing in it": {"max_tokens": 100, "system": [], "tools": [], "messages": [HI]},
    "a count": {"model": "claude-sonnet-4-5", "messages": [HI]},
}


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
        _said("Well?"),
    ],
    "readable reasoning of another vendor": [
        HI,
        {"type": "reasoning", "id": UUID, "summary": [], "content": [THOUGHT]},
        _said("Hello!", "assistant"),
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
        _said("Hello!", "assistant"),
        HI,
    ],
    "readable reasoning at the end of a turn": [
        HI,
        {"type": "reasoning", "id": UUID, "summary": [], "content": [THOUGHT]},
        _said("and?"),
    ],
    "a result that stands behind what the user said": [HI, _function("a"), _said("Hurry."), _output("a")],
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
        _said("Be brief.", "system"),
        HI,
        _spoken("Let me see.", id="msg_1", status="completed", phase="commentary"),
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        _said("Be kind.", "developer"),
        _user(
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
            _said("Hello!", "assistant"),
            HI,
        ],
    },
    "a model of another vendor with its own ids": {
        "model": "deepseek-chat",
        "store": False,
        "input": [
            HI,
            {"type": "reasoning", "id": UUID, "summary": [], "content": [THOUGHT]},
            _said("Hello!", "assistant"),
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
                    {"type": "thinking", "thinking": [_text("Hm.")], "closed": True},
                    _text("Hello!"),
                ],
                "prefix": False,
            },
            HI,
        ],
    },
    "cache marks and parts in every role": {
        "model": "anthropic/claude-sonnet-4.5",
        "messages": [
            {"role": "system", "content": [_text("Be brief.", cache_control=MARK)]},
            {"role": "user", "content": [_text("hi", cache_control=MARK)], "name": "Ada"},
            _calls(_tool_call("a"), content=[_text("Let me see.")]),
            _result("a", [_text("x", cache_control=MARK)]),
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
    "the assistant speaks first": {"messages": [_assistant({"text": "Hello."}), _user({"text": "hi"})]},
    "an id that was answered is used again": _looking(
        _user({"text": "hi"}),
        _assistant(_bedrock_use("a")),
        _user(_bedrock_result("a")),
        _assistant(_bedrock_use("a")),
        _user(_bedrock_result("a", "2", status="success")),
    ),
    "results in another order than their calls": _looking(
        _user({"text": "hi"}),
        _assistant({"text": "See."}, _bedrock_use("a"), _bedrock_use("b")),
        _user(_bedrock_result("b"), _bedrock_result("a"), {"cachePoint": {"type": "default"}}, {"text": "Well?"}),
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
