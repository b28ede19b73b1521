"""Requests that Anthropic's Messages API accepts, and samples that other formats use too."""

import base64

from contextc._json import JSON, JSONObject

PNG = "iVBORw0KGgo="
SIGNATURE = "c2lnbmVk"
OTHER_SIGNATURE = base64.b64encode(bytes(range(128, 255))).decode()


def message(text: str, role: str = "user") -> JSONObject:
    return {"role": role, "content": text}


def _use(call_id: str, **more: JSON) -> JSONObject:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}, **more}


def _answer(call_id: str, content: JSON = "1", **more: JSON) -> JSONObject:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def assistant(*blocks: JSONObject) -> JSONObject:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: JSONObject) -> JSONObject:
    return {"role": "user", "content": list(blocks)}


def text(text: str, **more: JSON) -> JSONObject:
    return {"type": "text", "text": text, **more}


MARK: JSONObject = {"type": "ephemeral"}
HI = message("hi")
ANTHROPIC: dict[str, list[JSONObject]] = {
    "two replies in a row, answered together": [
        HI,
        assistant(_use("a")),
        assistant(_use("b")),
        user(_answer("a"), _answer("b")),
    ],
    "three replies in a row, one of them only text": [
        HI,
        assistant(text("Let me see.")),
        assistant(_use("a")),
        assistant(_use("b")),
        user(_answer("b"), _answer("a"), text("Go on.")),
    ],
    "text in a reply after the one that calls": [
        HI,
        assistant(_use("a")),
        assistant(text("Looking.")),
        user(_answer("a")),
    ],
    "results in two messages": [
        HI,
        assistant(_use("a"), _use("b")),
        user(_answer("a")),
        user(_answer("b")),
    ],
    "results in two messages, the later call first": [
        HI,
        assistant(_use("a"), _use("b")),
        user(_answer("b")),
        user(_answer("a"), text("Both.")),
    ],
    "results and then the user in another message": [
        HI,
        assistant(_use("a")),
        user(_answer("a")),
        message("Well?"),
    ],
    "the assistant speaks first": [
        message("Hello, how can I help?", "assistant"),
        message("I need a ticket."),
    ],
    "the assistant speaks first, twice": [
        message("Hello.", "assistant"),
        message("How can I help?", "assistant"),
        message("I need a ticket."),
    ],
    "an id that was answered is used again": [
        HI,
        assistant(_use("a")),
        user(_answer("a")),
        assistant(_use("a")),
        user(_answer("a", "2")),
        assistant(_use("a"), _use("b")),
        user(_answer("a", "3"), _answer("b", "4")),
    ],
    "cache marks and citations": [
        user(
            {
                "type": "document",
                "source": {"type": "content", "content": [text("The grass is green.")]},
                "title": "Facts",
                "context": "Nature",
                "citations": {"enabled": True},
                "cache_control": {"type": "ephemeral", "ttl": "1h"},
            },
            text("What colour?", cache_control=MARK),
        ),
        assistant(
            text(
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
        user(text("Sure?", cache_control=None, citations=None)),
    ],
    "a result with nothing in it, null fields and a caller": [
        HI,
        assistant(_use("a", caller={"type": "direct"}, cache_control=MARK), _use("b")),
        user(
            {"type": "tool_result", "tool_use_id": "a", "cache_control": None},
            _answer("b", [], is_error=False, cache_control=MARK),
        ),
    ],
    "a result of pictures, references and search results": [
        HI,
        assistant(_use("a")),
        user(
            _answer(
                "a",
                [
                    text("x"),
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                    {"type": "tool_reference", "tool_name": "find"},
                    {"type": "search_result", "source": "s", "title": "t", "content": [text("x")]},
                ],
                is_error=True,
            )
        ),
    ],
    "what Anthropic runs itself, with a result and an error": [
        HI,
        assistant(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {"url": "https://a.b"}},
            {
                "type": "web_fetch_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {"type": "web_fetch_tool_result_error", "error_code": "unavailable"},
            },
            {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "server_name": "s", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": [text("x")]},
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
            text("Done."),
        ),
        message("Thanks."),
    ],
    "a tool of tomorrow that Anthropic runs": [
        HI,
        assistant(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "telescope", "input": {}},
            {"type": "telescope_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "star"}]},
            text("Done."),
        ),
        message("Thanks."),
    ],
    "thinking without words, and redacted": [
        HI,
        assistant(
            {"type": "thinking", "thinking": "", "signature": SIGNATURE},
            {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
            text("Hello!"),
        ),
        message("Go on."),
    ],
    "a file for the container": [user({"type": "container_upload", "file_id": "file_1"}, text("See."))],
}


ANTHROPIC_BODIES: dict[str, JSONObject] = {
    "tools of every kind, and a container": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "container": {"id": "container_1", "skills": [{"type": "anthropic", "skill_id": "pdf", "version": "latest"}]},
        "mcp_servers": [{"type": "url", "url": "https://a.b", "name": "s"}],
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "system": [{**text("Be brief."), "cache_control": MARK}],
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
