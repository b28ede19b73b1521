"""The parser of Anthropic's requests for lint rules: the required fields of each block, and its path."""

from collections.abc import Iterable, Iterator, Mapping

from contextc._json import JSON, JSONObject, encode
from contextc.formats.anthropic import predicted_errors
from contextc.formats.coercion import ROLE_ALIASES, as_arguments, inner_tool, text_block, text_message, tool_schema
from contextc.formats.lint_engine import (
    Fault,
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    Problem,
    RequestPart,
    RuleFinding,
    field_names,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.request_parser import ROLES, TYPED, RequestReader, block_message_error, nested_error, tagged_error
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty

CACHE: FieldTypes = {"cache_control?": dict}
BLOCK_TYPES: dict[str, FieldTypes] = {
    "text": {"text": str, "citations?": list, **CACHE},
    "image": {"source": dict, **CACHE, "transformations?": object},
    "document": {"source": dict, **CACHE, "citations?": object, "context?": object, "title?": object},
    "search_result": {"content": list, "source": str, "title": str, "citations?": object},
    "thinking": {"thinking": str, "signature?": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"id": str, "name": str, "input": dict, **CACHE, "caller?": object, "toolset_name?": object},
    "tool_result": {"tool_use_id": str, "content?": (str, list), "is_error?": bool, **CACHE, "toolset_name?": object},
    "server_tool_use": {"id": str, "name": str, "input": dict, "caller?": object},
    "web_search_tool_result": {"tool_use_id": str, "content": (list, dict), "caller?": object},
    "web_fetch_tool_result": {"tool_use_id": str, "content": dict, "caller?": object},
    "advisor_tool_result": {"tool_use_id": str, "content": dict},
    "code_execution_tool_result": {"tool_use_id": str, "content": dict},
    "bash_code_execution_tool_result": {"tool_use_id": str, "content": dict},
    "text_editor_code_execution_tool_result": {"tool_use_id": str, "content": dict},
    "tool_search_tool_result": {"tool_use_id": str, "content": dict},
    "mcp_tool_use": {"id": str, "name": str, "server_name": str, "input": dict},
    "mcp_tool_result": {"tool_use_id": str, "content?": (str, list), "is_error?": object},
    "container_upload": {"file_id": str},
    "compaction": {"content?": str, "encrypted_content?": object, "signature?": object, "tool_changes?": object},
    "tool_addition": {"tool": dict},
    "tool_removal": {"tool": dict},
    "mcp_tool_listing": {"tools": list, "mcp_server_name?": object},
    "fallback": {"from?": object, "to?": object, "trigger?": object},
}
SERVER_TOOL_SUFFIXES: dict[str, FieldTypes] = {
    "_tool_use": {"id": str, "name": str, "input": dict},
    "_tool_result": {"tool_use_id": str},
}
"""Suffixes of block types for tools that the API runs itself, with the required fields of such a block."""
RESULT_BLOCKS: dict[str, FieldTypes] = {
    **{kind: BLOCK_TYPES[kind] for kind in ("text", "image", "document", "search_result")},
    "tool_reference": {"tool_name": str},
    "browser_state": {"state_changes?": object, "tabs?": object},
}
MESSAGE_FIELDS = frozenset(("role", "content", "output_config", "clear_at"))
BLOCK_FIELDS = {
    kind: field_names(fields, "type", "cache_control") for kind, fields in {**BLOCK_TYPES, **RESULT_BLOCKS}.items()
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
TYPES = {str: "string", list: "list", dict: "dictionary", bool: "boolean", int: "integer", float: "number"}
"""Anthropic's names of types."""


class _Reader(RequestReader):
    messages_error = "messages must be a list."
    tools_error = "tools must be a list, got {given}."
    part_kinds = PART_KINDS

    def message_error(self, wire: JSON) -> Fault | None:
        return block_message_error(wire, (str, list))

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        if shapes is None:
            shapes, kind = BLOCK_TYPES, object_or_empty(block).get("type")
            if isinstance(kind, str) and kind not in shapes:
                suffix = next((end for end in SERVER_TOOL_SUFFIXES if kind.endswith(end)), "")
                shapes = {kind: SERVER_TOOL_SUFFIXES[suffix]} if suffix else shapes
        wrong = tagged_error(block, shapes)
        if wrong or block["type"] not in ("image", "document"):
            return wrong
        if (fields := SOURCE_TYPES.get(str(block["source"].get("type")))) is None:
            return Fault("source.type", "`source` must have a known `type`.")
        return nested_error("source", block["source"], fields)

    def part(self, block: JSONObject, path: JSONPath) -> RequestPart:
        kind = PART_KINDS.get(block["type"], "other")
        call_id = {"call": block.get("id"), "result": block.get("tool_use_id")}.get(kind)
        text = block["text"] if kind == "text" else ""
        if kind == "result" and is_list(block.get("content")):
            list(self.blocks(block["content"], (*path, "content"), RESULT_BLOCKS))
        return RequestPart(kind=kind, path=path, wire=block, id=call_id or "", name=block.get("name") or "", text=text)

    def system(self) -> Iterable[RequestPart]:
        system: JSON = self.body.get("system")
        if system is not None and not isinstance(system, str) and not is_list(system):
            message = "system must be a string or a list of text blocks."
            self.refuse(("system",), Fault("", message, Problem.TYPE, (str, list), system))
        return self.blocks(list_or_empty(system), ("system",), {"text": BLOCK_TYPES["text"]})

    def tool_error(self, tool: JSON) -> Fault | None:
        return schema_error(tool, {"name": str, "input_schema": dict} if _is_custom(tool) else TYPED)

    def tool_name(self, tool: JSONObject) -> str | None:
        return tool["name"] if _is_custom(tool) else None

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        if fault.problem is Problem.TYPE:
            return predicted_errors.WRONG_TYPE.format(kind=TYPES[fault.expected[0]])
        return predicted_errors.MISSING if fault.problem is Problem.MISSING else fault.message


parse_request = _Reader.parse


def _is_custom(tool: JSON) -> bool:
    return object_or_empty(tool).get("type") in (None, "custom", "function")  # "function" is another provider's


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
    for index, inner in enumerate(list_or_empty(block.get("content")) if block["type"] == "tool_result" else []):
        if is_object(inner):
            yield from find_unknown_block_fields(inner, (*path, "content", index))


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return an almost valid message or block in a valid shape, such as one with text arguments or a foreign role."""
    if isinstance(value, str):
        return text_block(value) if "content" in path or path[0] == "system" else text_message(value)
    if not is_object(value):
        return value
    if path[0] == "tools":
        return _tool(value)
    if value.get("type") == "tool_result" and not isinstance(value.get("content"), str | list):
        return {**value, "content": encode(value.get("content")).decode()}
    if value.get("type") == "tool_use" and not is_object(value.get("input")):
        return {**value, "input": as_arguments(value.get("input"))}
    if "role" in value and isinstance(value.get("content"), str | list):
        return {**value, "role": ROLE_ALIASES.get(str(value["role"]).lower(), "user")}
    if value.get("role") in ROLES and value.get("content") is None:
        return {**value, "content": []}
    return value


def _tool(wire: JSONObject) -> JSONObject:
    """Return a tool without a schema, or in another provider's shape, as a valid tool."""
    if (given := inner_tool(wire)) is None:
        return wire
    made: JSONObject = {"name": given["name"], "input_schema": tool_schema(given, {"type": "object"})}
    return {**made, "description": given["description"]} if isinstance(given.get("description"), str) else made
