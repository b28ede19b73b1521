"""Fixes that decoding and encoding a request do not make: cache breakpoints, settings, tools."""

from collections.abc import Iterator
from copy import deepcopy
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic.lint_parser import find_unknown_fields, parse_request
from contextc.formats.encoder_decoder_base import tag_system_blocks
from contextc.formats.fix_builders import keep_messages, messages_of, without_fields
from contextc.formats.lint_engine import JSONPath, remove_fields
from contextc.formats.signature_check import is_valid_signature

MAX_BREAKPOINTS = 4
DEFAULT_MAX_TOKENS = 8_192
CONTINUE_TEXT = "Go on."


def with_last_user_message(body: JSONObject) -> JSONObject:
    return {**body, "messages": [*body["messages"], {"role": "user", "content": CONTINUE_TEXT}]}


def without_empty_messages(body: JSONObject) -> JSONObject:
    """Return the body without messages that are empty except for unknown fields."""
    return keep_messages(body, lambda message: bool(message["content"]))


def is_claude(body: JSONObject) -> bool:
    """Return True if a request is for a model of Anthropic, or does not name its model."""
    return "claude" in str(body.get("model", "claude")).lower()


def without_unknown_fields(body: JSONObject) -> JSONObject:
    return remove_fields(body, find_unknown_fields(parse_request(body)))


def with_last_breakpoints(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    for _, block in list(find_breakpoints(copy))[:-MAX_BREAKPOINTS]:
        del block["cache_control"]
    return copy


def without_thinking_breakpoints(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    for _, block in list(find_breakpoints(copy)):
        if block.get("type") in ("thinking", "redacted_thinking"):
            del block["cache_control"]
    return copy


def with_valid_thinking(body: JSONObject) -> JSONObject:
    """Return the body without thinking that the API could not verify.

    A message that contained nothing else is left out.
    """
    messages: list[JSONObject] = []
    for message in messages_of(body):
        if not isinstance(message["content"], list):
            messages.append(message)
            continue
        blocks = cast(list[JSONObject], message["content"])
        kinds = ("thinking", "redacted_thinking")
        left = [b for b in blocks if b["type"] not in kinds or is_valid_signature(b.get("signature", b.get("data")))]
        messages += [{**message, "content": left}] if left else []
    return {**body, "messages": messages}


def with_tagged_system(body: JSONObject) -> JSONObject:
    """Return the body with the text of each system message as tagged text of the user."""
    messages: list[JSONObject] = []
    for message in messages_of(body):
        if message["role"] != "system":
            messages.append(message)
            continue
        content = message["content"]
        blocks: list[JSONObject] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if messages and messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], list):
            messages[-1] = {**messages[-1], "content": [*messages[-1]["content"], *tag_system_blocks(blocks)]}
        elif blocks:
            messages.append({"role": "user", "content": tag_system_blocks(blocks)})
    return {**body, "messages": messages}


def with_unique_tools(body: JSONObject) -> JSONObject:
    tools = {tool.get("name"): tool for tool in reversed(cast(list[JSONObject], body["tools"]))}
    return {**body, "tools": list(tools.values())[::-1]}


def tool_choice(body: JSONObject) -> JSONObject:
    return cast(JSONObject, body["tool_choice"]) if isinstance(body.get("tool_choice"), dict) else {}


def with_auto_tool_choice(body: JSONObject) -> JSONObject:
    rest = without_fields(tool_choice(body), "type", "name")
    return {**body, "tool_choice": {"type": "auto", **rest}}


def without_server_orphans(body: JSONObject) -> JSONObject:
    found = [
        block
        for message in messages_of(body)
        if message["role"] == "assistant" and isinstance(message["content"], list)
        for block in cast(list[JSONObject], message["content"])
    ]
    orphans = {id(block) for block in find_server_orphans(found)}
    messages: list[JSONObject] = []
    for message in messages_of(body):
        blocks = cast(list[JSONObject], message["content"]) if isinstance(message["content"], list) else []
        left = [block for block in blocks if id(block) not in orphans]
        if len(left) == len(blocks):
            messages.append(message)
        elif left:
            messages.append({**message, "content": left})
    return {**body, "messages": messages}


def find_server_orphans(blocks: list[JSONObject]) -> Iterator[JSONObject]:
    called: set[str] = set()
    for block in blocks:
        kind = cast(str, block.get("type") or "")
        if kind in ("server_tool_use", "mcp_tool_use"):
            called.add(block["id"])
        elif kind.endswith("_tool_result") and block["tool_use_id"] not in called:
            yield block


def find_breakpoints(value: JSON, path: JSONPath = ()) -> Iterator[tuple[JSONPath, JSONObject]]:
    """Yield all blocks with a cache breakpoint, in the order of the prompt: tools, system, messages."""
    if isinstance(value, dict):
        block = cast(JSONObject, value)
        if block.get("cache_control"):
            yield path, block
        first = [name for name in ("tools", "system", "messages") if not path and name in block]
        for name in first or (["content"] if "content" in block else []):
            yield from find_breakpoints(block[name], (*path, name))
    elif isinstance(value, list):
        for index, each in enumerate(cast(list[JSON], value)):
            yield from find_breakpoints(each, (*path, index))
