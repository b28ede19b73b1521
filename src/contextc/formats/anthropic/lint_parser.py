"""The parser of Anthropic's requests for lint rules: the required fields of each block, and its path."""

from collections.abc import Iterator
from typing import cast

from contextc._json import JSON, JSONObject, encode, json_type_name
from contextc.formats.lint_engine import (
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    RequestMessage,
    RequestPart,
    RuleFinding,
    field_names,
    make_finding,
    schema_error,
    unknown_field_findings,
)
from contextc.messages import tool_call

ROLES = ("user", "assistant", "system")
FOREIGN_FIELDS = ("tool_calls", "function_call", "tool_call_id", "parts", "toolCalls", "toolCallId")
"""Fields in which other providers send content that would be lost here."""
ROLE_ALIASES = {"developer": "system", "human": "user", "model": "assistant", "ai": "assistant"}
BLOCK_TYPES: dict[str, FieldTypes] = {
    "text": {"text": str, "citations?": list, "cache_control?": dict},
    "image": {"source": dict, "cache_control?": dict},
    "document": {"source": dict, "cache_control?": dict},
    "search_result": {"content": list, "source": str, "title": str},
    "thinking": {"thinking": str, "signature?": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"id": str, "name": str, "input": dict, "cache_control?": dict},
    "tool_result": {"tool_use_id": str, "content?": (str, list), "is_error?": bool, "cache_control?": dict},
    "server_tool_use": {"id": str, "name": str, "input": dict},
    "web_search_tool_result": {"tool_use_id": str, "content": (list, dict)},
    "web_fetch_tool_result": {"tool_use_id": str, "content": dict},
    "advisor_tool_result": {"tool_use_id": str, "content": dict},
    "code_execution_tool_result": {"tool_use_id": str, "content": dict},
    "bash_code_execution_tool_result": {"tool_use_id": str, "content": dict},
    "text_editor_code_execution_tool_result": {"tool_use_id": str, "content": dict},
    "tool_search_tool_result": {"tool_use_id": str, "content": dict},
    "mcp_tool_use": {"id": str, "name": str, "server_name": str, "input": dict},
    "mcp_tool_result": {"tool_use_id": str, "content?": (str, list)},
    "container_upload": {"file_id": str},
    "compaction": {"content?": str},
    "tool_addition": {"tool": dict},
    "tool_removal": {"tool": dict},
    "mcp_tool_listing": {"tools": list},
    "fallback": {},
}
SERVER_TOOL_SUFFIXES: dict[str, FieldTypes] = {
    "_tool_use": {"id": str, "name": str, "input": dict},
    "_tool_result": {"tool_use_id": str},
}
"""Suffixes of block types for tools that the API runs itself, with the required fields of such a block."""
RESULT_BLOCKS: dict[str, FieldTypes] = {
    **{kind: BLOCK_TYPES[kind] for kind in ("text", "image", "document", "search_result")},
    "tool_reference": {"tool_name": str},
    "browser_state": {},
}
OPTIONAL_FIELDS: dict[str, tuple[str, ...]] = {
    "image": ("transformations",),
    "document": ("citations", "context", "title"),
    "search_result": ("citations",),
    "tool_use": ("caller", "toolset_name"),
    "tool_result": ("toolset_name",),
    "server_tool_use": ("caller",),
    "web_search_tool_result": ("caller",),
    "web_fetch_tool_result": ("caller",),
    "mcp_tool_result": ("is_error",),
    "compaction": ("encrypted_content", "signature", "tool_changes"),
    "mcp_tool_listing": ("mcp_server_name",),
    "fallback": ("from", "to", "trigger"),
    "browser_state": ("state_changes", "tabs"),
}
"""Optional fields of a block that are not checked above."""
MESSAGE_FIELDS = frozenset(("role", "content", "output_config", "clear_at"))
BLOCK_FIELDS = {
    kind: field_names(fields, "type", "cache_control", *OPTIONAL_FIELDS.get(kind, ()))
    for kind, fields in {**BLOCK_TYPES, **RESULT_BLOCKS}.items()
}
SOURCE_TYPES: dict[str, FieldTypes] = {
    "base64": {"media_type": str, "data": str},
    "text": {"media_type": str, "data": str},
    "url": {"url": str},
    "file": {"file_id": str},
    "content": {"content": (str, list)},
}
PART_KINDS: dict[str, PartKind] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "call",
    "tool_result": "result",
    "image": "media",
    "document": "media",
}


def parse_request(body: JSON) -> ParsedRequest:
    """Parse any JSON as a request, or as the messages of one."""
    reader = _Reader()
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    messages: JSON = whole.get("messages") if isinstance(body, dict) else body
    base: JSONPath = ("messages",) if isinstance(body, dict) else ()
    turns: list[RequestMessage] = []
    if isinstance(messages, list):
        turns = [
            turn for index, wire in enumerate(cast(list[JSON], messages)) for turn in reader.turn(wire, (*base, index))
        ]
    else:
        reader.misshapen.append(make_finding(base, "messages must be a list.", what="Input should be a valid list"))
    system: JSON = whole.get("system")
    prompt: tuple[RequestPart, ...] = ()
    if isinstance(system, list):
        prompt = tuple(reader.pieces(cast(JSON, system), ("system",), {"text": BLOCK_TYPES["text"]}))
    elif system is not None and not isinstance(system, str):
        reader.misshapen.append(
            make_finding(
                ("system",), "system must be a string or a list of text blocks.", what="Input should be a valid string"
            )
        )
    return ParsedRequest(
        messages=tuple(turns),
        body=whole,
        system=prompt,
        tools=tuple(reader.tools(whole.get("tools"))),
        malformed=tuple(reader.misshapen),
    )


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages and blocks that Anthropic does not have."""
    for turn in sketch.messages:
        yield from unknown_field_findings(turn.wire, MESSAGE_FIELDS, turn.path)
        for piece in turn.parts:
            yield from find_unknown_block_fields(piece.wire, piece.path)


def find_unknown_block_fields(block: JSONObject, path: JSONPath) -> Iterator[RuleFinding]:
    if (fields := BLOCK_FIELDS.get(str(block.get("type")))) is None:
        return
    yield from unknown_field_findings(block, fields, path)
    if block["type"] == "tool_result" and isinstance(block.get("content"), list):
        for index, inner in enumerate(cast(list[JSON], block["content"])):
            if isinstance(inner, dict):
                yield from find_unknown_block_fields(cast(JSONObject, inner), (*path, "content", index))


class _Reader:
    def __init__(self) -> None:
        self.misshapen: list[RuleFinding] = []

    def turn(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if wrong := schema_error(wire, {"role": str, "content": (str, list)}):
            self.refuse(path, *wrong)
            return
        given = cast(JSONObject, wire)
        if given["role"] not in ROLES:
            self.refuse(path, "role", f'invalid role {given["role"]!r}: expected "user" or "assistant".')
            return
        if foreign := next((name for name in FOREIGN_FIELDS if given.get(name)), None):
            self.refuse(path, foreign, f"`{foreign}` is not a known field of a message.")
            return
        pieces = self.pieces(given["content"], (*path, "content"), BLOCK_TYPES)
        yield RequestMessage(role=given["role"], path=path, wire=given, parts=tuple(pieces))

    def pieces(self, content: JSON, path: JSONPath, shapes: dict[str, FieldTypes]) -> list[RequestPart]:
        if isinstance(content, str):
            return [RequestPart(kind="text", path=path, wire={}, text=content)]
        found: list[RequestPart] = []
        for index, block in enumerate(cast(list[JSON], content)):
            here = (*path, index)
            if wrong := schema_error(block, {"type": str}) or _schema_error(cast(JSONObject, block), shapes):
                self.refuse(here, *wrong)
                continue
            found.append(_piece(cast(JSONObject, block), here))
            if block["type"] == "tool_result" and isinstance(block.get("content"), list):
                self.pieces(block["content"], (*here, "content"), RESULT_BLOCKS)
        return found

    def tools(self, tools: JSON) -> Iterator[RequestPart]:
        if not isinstance(tools, list):
            if tools is not None:
                self.refuse(("tools",), "", f"tools must be a list, got {json_type_name(tools)}.")
            return
        for index, tool in enumerate(cast(list[JSON], tools)):
            path: JSONPath = ("tools", index)
            wire = cast(JSONObject, tool if isinstance(tool, dict) else {})
            custom = wire.get("type") in (None, "custom", "function")  # "function" is another provider's
            if wrong := schema_error(
                cast(object, tool), {"name": str, "input_schema": dict} if custom else {"type": str}
            ):
                self.refuse(path, *wrong)
            elif custom:
                yield RequestPart(kind="other", path=path, wire=wire, id=wire["name"])

    def refuse(self, path: JSONPath, field: str, message: str) -> None:
        what = "Field required" if message.endswith("missing.") else message
        self.misshapen.append(make_finding(path, message, what=f"{field}: {what}" if field else what))


def _schema_error(block: JSONObject, shapes: dict[str, FieldTypes]) -> tuple[str, str] | None:
    kind = cast(str, block["type"])
    fields = shapes.get(kind)
    if fields is None and shapes is BLOCK_TYPES:
        fields = next((each for end, each in SERVER_TOOL_SUFFIXES.items() if kind.endswith(end)), None)
    if fields is None:
        return "type", f"unknown block type {kind!r}."
    wrong = schema_error(block, fields)
    if wrong or kind not in ("image", "document"):
        return wrong
    source = cast(JSONObject, block["source"])
    fields = SOURCE_TYPES.get(str(source.get("type")))
    wrong = ("type", "`source` must have a known `type`.") if fields is None else schema_error(source, fields)
    return (f"source.{wrong[0]}", wrong[1]) if wrong else None


def _piece(block: JSONObject, path: JSONPath) -> RequestPart:
    kind = PART_KINDS.get(block["type"], "other")
    call_id = {"call": block.get("id"), "result": block.get("tool_use_id")}.get(kind)
    text = block["text"] if kind == "text" else ""
    return RequestPart(kind=kind, path=path, wire=block, id=call_id or "", name=block.get("name") or "", text=text)


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return an almost valid message or block in a valid shape, such as one with text arguments or a foreign role."""
    if isinstance(value, str):
        return text_block(value) if "content" in path or path[0] == "system" else text_message(value)
    if not isinstance(value, dict):
        return value
    wire = cast(JSONObject, value)
    given: JSON = wire.get("input")
    if path[0] == "tools":
        return _tool(wire)
    if wire.get("type") == "tool_result" and not isinstance(wire.get("content"), str | list):
        return {**wire, "content": encode(wire.get("content")).decode()}
    if wire.get("type") == "tool_use" and not isinstance(given, dict):
        call = tool_call("-", "-", given if isinstance(given, str) else "")
        return {**wire, "input": {"malformed_arguments": call.raw} if call.malformed else call.arguments}
    if "role" in wire and isinstance(wire.get("content"), str | list):
        return {**wire, "role": ROLE_ALIASES.get(str(wire["role"]).lower(), "user")}
    if wire.get("role") in ROLES and wire.get("content") is None:
        return {**wire, "content": []}
    return wire


def _tool(wire: JSONObject) -> JSONObject:
    """Return a tool without a schema, or in another provider's shape, as a valid tool."""
    given = cast(JSONObject, wire["function"] if isinstance(wire.get("function"), dict) else wire)
    if not isinstance(given.get("name"), str):
        return wire
    made: JSONObject = {"name": given["name"], "input_schema": {"type": "object"}}
    for name in ("input_schema", "parameters", "inputSchema"):
        if isinstance(given.get(name), dict):
            made["input_schema"] = given[name]
    return {**made, "description": given["description"]} if isinstance(given.get("description"), str) else made


def text_message(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def text_block(text: str) -> JSONObject:
    return {"type": "text", "text": text}
