"""The parser of Converse requests for lint rules.

A block is an object with one member. `shapes` defines the types of blocks and their required fields. Every block with a
valid shape becomes a part, whatever its values are.
"""

from collections.abc import Iterator
from typing import cast

from contextc._json import JSON, JSONObject, encode
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
from contextc.formats.lint_engine import (
    JSONPath,
    ParsedRequest,
    PartKind,
    RequestMessage,
    RequestPart,
    RuleFinding,
    make_finding,
    schema_error,
)
from contextc.messages import tool_call

ROLES = ("user", "assistant", "system")
FOREIGN_FIELDS = ("tool_calls", "function_call", "tool_call_id", "parts", "toolCalls", "toolCallId")
"""Fields in which other providers send content that would be lost here."""
ROLE_ALIASES = {"developer": "system", "human": "user", "model": "assistant", "ai": "assistant"}
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


def parse_request(body: JSON) -> ParsedRequest:
    """Parse any JSON as a request, or as the messages of one."""
    reader = _Reader()
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    messages: JSON = whole.get("messages") if isinstance(body, dict) else body
    base: JSONPath = ("messages",) if isinstance(body, dict) else ()
    turns = [turn for index, wire in reader.listed(messages, base) for turn in reader.turn(wire, (*base, index))]
    system, config = whole.get("system"), whole.get("toolConfig")
    prompt = reader.pieces(system, ("system",), SYSTEM_CONTENT) if "system" in whole else []
    tools: list[RequestPart] = []
    if "toolConfig" in whole and (wrong := schema_error(config, {"tools": list})):
        reader.refuse(("toolConfig",), *wrong)
    elif "toolConfig" in whole:
        tools = list(reader.tools(cast(JSONObject, config)))
    reader.settings(whole)
    return ParsedRequest(
        messages=tuple(turns), body=whole, system=tuple(prompt), tools=tuple(tools), malformed=tuple(reader.misshapen)
    )


class _Reader:
    def __init__(self) -> None:
        self.misshapen: list[RuleFinding] = []

    def listed(self, value: JSON, path: JSONPath) -> list[tuple[int, JSON]]:
        if isinstance(value, list):
            return list(enumerate(cast(list[JSON], value)))
        self.refuse(path, "", "expected a list.")
        return []

    def turn(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if wrong := schema_error(wire, {"role": str, "content": list}):
            self.refuse(path, *wrong)
            return
        given = cast(JSONObject, wire)
        if given["role"] not in ROLES:
            self.refuse(path, "role", f'invalid role {given["role"]!r}: expected "user" or "assistant".')
        elif foreign := next((name for name in FOREIGN_FIELDS if given.get(name)), None):
            self.refuse(path, foreign, f"`{foreign}` is not a known field of a message.")
        else:
            pieces = self.pieces(given["content"], (*path, "content"), BLOCK)
            yield RequestMessage(role=given["role"], path=path, wire=given, parts=tuple(pieces))

    def settings(self, body: JSONObject) -> None:
        """Check all fields other than messages. A fault deep inside a setting is reported for its member."""
        places: set[JSONPath] = {finding.path for finding in self.misshapen}
        for each in find_schema_faults(body, BODY):
            if each.fault == "shape" and each.path[:2] not in places and each.path[:1] not in places:
                places.add(each.path[:2])
                self.refuse(each.path[:2], ".".join(map(str, each.path[2:])), each.message)

    def pieces(self, content: JSON, path: JSONPath, shape: Schema) -> list[RequestPart]:
        found: list[RequestPart] = []
        for index, block in self.listed(content, path):
            here = (*path, index)
            if wrong := _schema_error(block, shape):
                self.refuse(here, *wrong)
                continue
            found.append(_piece(cast(JSONObject, block), here))
            if "toolResult" in block:
                self.pieces(block["toolResult"]["content"], (*here, "toolResult", "content"), RESULT_CONTENT)
        return found

    def tools(self, config: JSONObject) -> Iterator[RequestPart]:
        for index, tool in self.listed(config["tools"], ("toolConfig", "tools")):
            path: JSONPath = ("toolConfig", "tools", index)
            if wrong := _schema_error(tool, TOOL):
                self.refuse(path, *wrong)
            elif "cachePoint" not in tool:
                name = cast(JSONObject, next(iter(tool.values())))["name"]
                yield RequestPart(kind="other", path=path, wire=tool, id=name)

    def refuse(self, path: JSONPath, field: str, message: str) -> None:
        self.misshapen.append(make_finding(path, message, what=f"{field}: {message}" if field else message))


def _schema_error(block: JSON, shape: Schema) -> tuple[str, str] | None:
    """Return the path and message of the first shape fault in a block, or None."""
    found = next((each for each in find_schema_faults(block, shape) if each.fault == "shape"), None)
    return None if found is None else (".".join(map(str, found.path)), found.message)


def find_faults(request: ParsedRequest) -> Iterator[SchemaFault]:
    """Yield invalid names and values in everything that has a valid shape."""
    yield from _name_and_value_faults(request.body, BODY, ())
    config: JSON = request.body.get("toolConfig")
    tools: JSON = cast(JSONObject, config).get("tools") if isinstance(config, dict) else None
    for index, tool in enumerate(cast(list[JSON], tools) if isinstance(tools, list) else []):
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
        return [text_block(value if isinstance(value, str) else encode(value).decode())] if value else []
    if isinstance(value, str):
        return text_block(value) if "content" in path or path[0] == "system" else text_message(value)
    if not isinstance(value, dict):
        return value
    wire = cast(JSONObject, value)
    if path[0] == "toolConfig":
        return _config(wire) if len(path) == 1 else _tool(wire)
    if isinstance(wire.get("role"), str) and "content" not in path:
        return _message(wire)
    for kind, change in (("toolUse", _use), ("toolResult", _result)):
        if isinstance(wire.get(kind), dict):
            return {kind: change(cast(JSONObject, wire[kind]))}
    if isinstance(wire.get("text"), str) and wire.get("type") in (None, "text"):
        return text_block(wire["text"])
    return wire


def _message(wire: JSONObject) -> JSONObject:
    role, content = cast(str, wire["role"]), cast(object, wire.get("content"))
    known = role if role in ROLES else ROLE_ALIASES.get(role.lower(), "user")
    if isinstance(content, list):
        return {**wire, "role": known}
    return {**wire, "role": known, "content": [text_block(content)] if isinstance(content, str) else []}


def _use(use: JSONObject) -> JSONObject:
    given: object = use.get("input")
    if isinstance(given, dict):
        return use
    call = tool_call("-", "-", given if isinstance(given, str) else "")
    return {**use, "input": {"malformed_arguments": call.raw} if call.malformed else call.arguments}


def _result(result: JSONObject) -> JSONObject:
    said: object = result.get("content")
    if isinstance(said, list):
        return {name: value for name, value in result.items() if value is not None}
    return {**result, "content": [text_block(said if isinstance(said, str) else encode(said).decode())]}


def _config(wire: JSONObject) -> JSONObject:
    """Return a tool configuration with only its usable fields."""
    tools = wire.get("tools")
    choice = {"toolChoice": wire["toolChoice"]} if isinstance(wire.get("toolChoice"), dict) else {}
    return {"tools": tools if isinstance(tools, list) else [], **choice}


def _tool(wire: JSONObject) -> JSONObject:
    """Return a tool without a schema, or in another provider's shape, as a valid tool."""
    inner = next((wire[name] for name in ("toolSpec", "function") if isinstance(wire.get(name), dict)), wire)
    given = cast(JSONObject, inner)
    if not isinstance(given.get("name"), str):
        return wire
    made: JSONObject = {"name": given["name"], "inputSchema": {"json": {"type": "object"}}}
    for name in ("input_schema", "parameters", "inputSchema"):
        if isinstance(schema := given.get(name), dict):
            plain = cast(JSONObject, schema)
            made["inputSchema"] = {"json": plain["json"] if isinstance(plain.get("json"), dict) else plain}
    described = given.get("description")
    return {"toolSpec": {**made, "description": described} if isinstance(described, str) and described else made}


def text_message(text: str) -> JSONObject:
    return {"role": "user", "content": [text_block(text)]}


def text_block(text: str) -> JSONObject:
    return {"text": text}
