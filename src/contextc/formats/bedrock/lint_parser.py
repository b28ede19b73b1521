"""The parser of Converse requests for lint rules.

A block is an object with one member. `shapes` defines the types of blocks and their required fields. Every block with a
valid shape becomes a part, whatever its values are.
"""

from collections.abc import Iterable, Iterator

from contextc._json import JSON, JSONObject
from contextc.formats.bedrock.schema import (
    BLOCK,
    BODY,
    MESSAGE,
    RESULT_CONTENT,
    SYSTEM_CONTENT,
    TOOL,
    Schema,
    SchemaFault,
    find_schema_faults,
)
from contextc.formats.coercion import ROLE_ALIASES, as_arguments, as_text, inner_tool, tool_schema, without_nulls
from contextc.formats.lint_engine import (
    Fault,
    JSONPath,
    ParsedRequest,
    PartKind,
    RequestPart,
    schema_error,
)
from contextc.formats.request_parser import ROLES, RequestReader, block_message_error
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty

PART_KINDS: dict[str, PartKind] = {
    "text": "text",
    "reasoningContent": "reasoning",
    "toolUse": "call",
    "toolResult": "result",
    "image": "media",
    "document": "media",
    "video": "media",
    "audio": "media",
}


class _Reader(RequestReader):
    messages_error = tools_error = "expected a list."
    tools_key = "toolConfig"

    def message_error(self, wire: JSON) -> Fault | None:
        return block_message_error(wire, list)

    def parts(self, wire: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
        return self.pieces(wire["content"], (*path, "content"), BLOCK)

    def pieces(self, content: JSON, path: JSONPath, shape: Schema) -> Iterator[RequestPart]:
        if not is_list(content):
            self.refuse(path, Fault("", "expected a list."))
        for index, block in enumerate(list_or_empty(content)):
            here = (*path, index)
            if wrong := _schema_error(block, shape):
                self.refuse(here, wrong)
                continue
            yield _piece(block, here)
            if "toolResult" in block:
                list(self.pieces(block["toolResult"]["content"], (*here, "toolResult", "content"), RESULT_CONTENT))

    def system(self) -> Iterable[RequestPart]:
        return self.pieces(self.body["system"], ("system",), SYSTEM_CONTENT) if "system" in self.body else ()

    def tools(self, given: JSON) -> Iterator[RequestPart]:
        if "toolConfig" in self.body and (wrong := schema_error(given, {"tools": list})):
            self.refuse(("toolConfig",), wrong)
        elif "toolConfig" in self.body:
            yield from self.listed_tools(given["tools"], ("toolConfig", "tools"))
        self.settings()

    def tool_error(self, tool: JSON) -> Fault | None:
        return _schema_error(tool, TOOL)

    def tool_name(self, tool: JSONObject) -> str | None:
        return None if "cachePoint" in tool else next(iter(tool.values()))["name"]

    def settings(self) -> None:
        """Check all fields other than messages. A fault deep inside a setting is reported for its member."""
        places: set[JSONPath] = {finding.path for finding in self.misshapen}
        for each in find_schema_faults(self.body, BODY):
            if each.fault == "shape" and each.path[:2] not in places and each.path[:1] not in places:
                places.add(each.path[:2])
                self.refuse(each.path[:2], Fault(".".join(map(str, each.path[2:])), each.message))


parse_request = _Reader.parse


def _schema_error(block: JSON, shape: Schema) -> Fault | None:
    """Return the path and message of the first shape fault in a block, or None."""
    found = next((each for each in find_schema_faults(block, shape) if each.fault == "shape"), None)
    return None if found is None else Fault(".".join(map(str, found.path)), found.message)


def find_faults(request: ParsedRequest) -> Iterator[SchemaFault]:
    """Yield invalid names and values in everything that has a valid shape."""
    yield from _name_and_value_faults(request.body, BODY, ())
    tools = list_or_empty(object_or_empty(request.body.get("toolConfig")).get("tools"))
    for index, tool in enumerate(tools):
        yield from _name_and_value_faults(tool, TOOL, ("toolConfig", "tools", index))
    for piece in request.system:
        yield from _name_and_value_faults(piece.wire, SYSTEM_CONTENT, piece.path)
    for turn in request.messages:
        yield from _name_and_value_faults(turn.wire, MESSAGE, turn.path)
        for piece in turn.parts:
            yield from _name_and_value_faults(piece.wire, BLOCK, piece.path)
            for index, each in enumerate(piece.wire["toolResult"]["content"] if "toolResult" in piece.wire else []):
                yield from _name_and_value_faults(each, RESULT_CONTENT, (*piece.path, "toolResult", "content", index))


def _name_and_value_faults(value: JSON, shape: Schema, path: JSONPath) -> Iterator[SchemaFault]:
    found = list(find_schema_faults(value, shape, path))
    if shape is BODY or all(each.fault != "shape" for each in found):
        yield from (each for each in found if each.fault != "shape")


def _piece(block: JSONObject, path: JSONPath) -> RequestPart:
    name = next(iter(block))
    inside: JSON = block[name]
    kind = PART_KINDS.get(name, "other")
    if kind in ("call", "result") and not is_client_tool(inside):
        kind = "other"
    if kind in ("call", "result"):
        return RequestPart(kind=kind, path=path, wire=block, id=inside["toolUseId"], name=inside.get("name") or "")
    return RequestPart(kind=kind, path=path, wire=block, text=inside if kind == "text" else "")


def is_client_tool(use: JSONObject) -> bool:
    """Return True if a call or a result is for a client tool. Bedrock runs some tools itself."""
    return use.get("type") in (None, "tool_use", "tool_result")


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return an almost valid message or block in a valid shape, such as text arguments or a foreign role or tool."""
    if path == ("inferenceConfig", "stopSequences") and isinstance(value, str):
        return [value]
    if path[:1] not in ((), ("messages",), ("system",), ("toolConfig",)) or path == ("toolConfig", "toolChoice"):
        return value
    if path == ("system",):
        return [text_block(as_text(value))] if value else []
    if isinstance(value, str):
        return text_block(value) if "content" in path or path[0] == "system" else text_message(value)
    if not is_object(value):
        return value
    if path[0] == "toolConfig":
        return _config(value) if len(path) == 1 else _tool(value)
    if isinstance(value.get("role"), str) and "content" not in path:
        return _message(value)
    if is_object(use := value.get("toolUse")):
        return {"toolUse": {**use, "input": as_arguments(use.get("input"))}}
    if is_object(value.get("toolResult")):
        return {"toolResult": _result(value["toolResult"])}
    if isinstance(value.get("text"), str) and value.get("type") in (None, "text"):
        return text_block(value["text"])
    return value


def _message(wire: JSONObject) -> JSONObject:
    role, content = wire["role"], wire.get("content")
    blocks = content if is_list(content) else [text_block(content)] if isinstance(content, str) else []
    return {**wire, "role": role if role in ROLES else ROLE_ALIASES.get(role.lower(), "user"), "content": blocks}


def _result(result: JSONObject) -> JSONObject:
    said: JSON = result.get("content")
    return without_nulls(result) if is_list(said) else {**result, "content": [text_block(as_text(said))]}


def _config(wire: JSONObject) -> JSONObject:
    """Return a tool configuration with only its usable fields."""
    choice = {"toolChoice": wire["toolChoice"]} if is_object(wire.get("toolChoice")) else {}
    return {"tools": list_or_empty(wire.get("tools")), **choice}


def _tool(wire: JSONObject) -> JSONObject:
    """Return a tool without a schema, or in another provider's shape, as a valid tool."""
    if (given := inner_tool(wire, ("toolSpec", "function"))) is None:
        return wire
    schema = tool_schema(given, {"type": "object"})
    plain = schema["json"] if is_object(schema.get("json")) else schema
    made: JSONObject = {"name": given["name"], "inputSchema": {"json": plain}}
    described = given.get("description")
    return {"toolSpec": {**made, "description": described} if isinstance(described, str) and described else made}


def text_message(text: str) -> JSONObject:
    return {"role": "user", "content": [text_block(text)]}


def text_block(text: str) -> JSONObject:
    return {"text": text}
