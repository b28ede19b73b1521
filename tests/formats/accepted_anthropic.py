"""Requests that Anthropic's Messages API accepts, and samples that other formats use too."""

import base64

from contextc._json import JSON, JSONObject

PNG = "iVBORw0KGgo="


SIGNATURE = "c2lnbmVk"


OTHER_SIGNATURE = base64.b64encode(bytes(range(128, 255))).decode()


def text_message(text: str, role: str = "user") -> JSONObject:
    return {"role": role, "content": text}


def _use(call_id: str, **more: JSON) -> JSONObject:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}, **more}


def _answer(call_id: str, content: JSON = "1", **more: JSON) -> JSONObject:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def assistant_message(*blocks: JSONObject) -> JSONObject:
    return {"role": "assistant", "content": list(blocks)}


def user_message(*blocks: JSONObject) -> JSONObject:
    return {"role": "user", "content": list(blocks)}


def text_block(text: str, **more: JSON) -> JSONObject:
    return {"type": "text", "text": text, **more}


MARK: JSONObject = {"type": "ephemeral"}


HI = text_message("hi")


ANTHROPIC: dict[str, list[JSONObject]] = {
    "two replies in a row, answered together": [
        HI,
        assistant_message(_use("a")),
        assistant_message(_use("b")),
        user_message(_answer("a"), _answer("b")),
    ],
    "three replies in a row, one of them only text": [
        HI,
        assistant_message(text_block("Let me see.")),
        assistant_message(_use("a")),
        assistant_message(_use("b")),
        user_message(_answer("b"), _answer("a"), text_block("Go on.")),
    ],
    "text in a reply after the one that calls": [
        HI,
        assistant_message(_use("a")),
        assistant_message(text_block("Looking.")),
        user_message(_answer("a")),
    ],
    "results in two messages": [
        HI,
        assistant_message(_use("a"), _use("b")),
        user_message(_answer("a")),
        user_message(_answer("b")),
    ],
    "results in two messages, the later call first": [
        HI,
        assistant_message(_use("a"), _use("b")),
        user_message(_answer("b")),
        user_message(_answer("a"), text_block("Both.")),
    ],
    "results and then the user in another message": [
        HI,
        assistant_message(_use("a")),
        user_message(_answer("a")),
        text_message("Well?"),
    ],
    "the assistant speaks first": [
        text_message("Hello, how can I help?", "assistant"),
        text_message("I need a ticket."),
    ],
    "the assistant speaks first, twice": [
        text_message("Hello.", "assistant"),
        text_message("How can I help?", "assistant"),
        text_message("I need a ticket."),
    ],
    "an id that was answered is used again": [
        HI,
        assistant_message(_use("a")),
        user_message(_answer("a")),
        assistant_message(_use("a")),
        user_message(_answer("a", "2")),
        assistant_message(_use("a"), _use("b")),
        user_message(_answer("a", "3"), _answer("b", "4")),
    ],
    "cache marks and citations": [
        user_message(
            {
                "type": "document",
                "source": {"type": "content", "content": [text_block("The grass is green.")]},
                "title": "Facts",
                "context": "Nature",
                "citations": {"enabled": True},
                "cache_control": {"type": "ephemeral", "ttl": "1h"},
            },
            text_block("What colour?", cache_control=MARK),
        ),
        assistant_message(
            text_block(
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
        user_message(text_block("Sure?", cache_control=None, citations=None)),
    ],
    "a result with nothing in it, null fields and a caller": [
        HI,
        assistant_message(_use("a", caller={"type": "direct"}, cache_control=MARK), _use("b")),
        user_message(
            {"type": "tool_result", "tool_use_id": "a", "cache_control": None},
            _answer("b", [], is_error=False, cache_control=MARK),
        ),
    ],
    "a result of pictures, references and search results": [
        HI,
        assistant_message(_use("a")),
        user_message(
            _answer(
                "a",
                [
                    text_block("x"),
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                    {"type": "tool_reference", "tool_name": "find"},
                    {"type": "search_result", "source": "s", "title": "t", "content": [text_block("x")]},
                ],
                is_error=True,
            )
        ),
    ],
    "what Anthropic runs itself, with a result and an error": [
        HI,
        assistant_message(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {"url": "https://a.b"}},
            {
                "type": "web_fetch_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {"type": "web_fetch_tool_result_error", "error_code": "unavailable"},
            },
            {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "server_name": "s", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": [text_block("x")]},
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
            text_block("Done."),
        ),
        text_message("Thanks."),
    ],
    "a tool of tomorrow that Anthropic runs": [
        HI,
        assistant_message(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "telescope", "input": {}},
            {"type": "telescope_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "star"}]},
            text_block("Done."),
        ),
        text_message("Thanks."),
    ],
    "thinking without words, and redacted": [
        HI,
        assistant_message(
            {"type": "thinking", "thinking": "", "signature": SIGNATURE},
            {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
            text_block("Hello!"),
        ),
        text_message("Go on."),
    ],
    "a file for the container": [user_message({"type": "container_upload", "file_id": "file_1"}, text_block("See."))],
}


ANTHROPIC_BODIES: dict[str, JSONObject] = {
    "tools of every kind, and a container": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "container": {"id": "container_1", "skills": [{"type": "anthropic", "skill_id": "pdf", "version": "latest"}]},
        "mcp_servers": [{"type": "url", "url": "https://a.b", "name": "s"}],
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "system": [{**text_block("Be brief."), "cache_control": MARK}],
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
