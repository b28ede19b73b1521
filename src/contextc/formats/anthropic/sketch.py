"""The parser of Anthropic's requests for lint rules: the required fields of each block, and its path."""

from collections.abc import Iterator
from typing import cast

from contextc._json import JSON, JSONObject, encode, json_type
from contextc.formats.checking import Fields, Finding, Kind, Path, Piece, Sketch, Turn, at, known, misfit, strangers
from contextc.messages import tool_call

ROLES = ("user", "assistant", "system")
FOREIGN = ("tool_calls", "function_call", "tool_call_id", "parts", "toolCalls", "toolCallId")
"""Fields in which other providers send content that would be lost here."""
ALIASES = {"developer": "system", "human": "user", "model": "assistant", "ai": "assistant"}
SHAPES: dict[str, Fields] = {
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
RUN_ELSEWHERE: dict[str, Fields] = {
    "_tool_use": {"id": str, "name": str, "input": dict},
    "_tool_result": {"tool_use_id": str},
}
"""Suffixes of block types for tools that the API runs itself, with the required fields of such a block."""
IN_RESULTS: dict[str, Fields] = {
    **{kind: SHAPES[kind] for kind in ("text", "image", "document", "search_result")},
    "tool_reference": {"tool_name": str},
    "browser_state": {},
}
MORE: dict[str, tuple[str, ...]] = {
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
FIELDS = frozenset(("role", "content", "output_config", "clear_at"))
BLOCK_FIELDS = {
    kind: known(fields, "type", "cache_control", *MORE.get(kind, ()))
    for kind, fields in {**SHAPES, **IN_RESULTS}.items()
}
SOURCES: dict[str, Fields] = {
    "base64": {"media_type": str, "data": str},
    "text": {"media_type": str, "data": str},
    "url": {"url": str},
    "file": {"file_id": str},
    "content": {"content": (str, list)},
}
KINDS: dict[str, Kind] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "call",
    "tool_result": "result",
    "image": "media",
    "document": "media",
}


def read(body: JSON) -> Sketch:
    """Parse any JSON as a request, or as the messages of one."""
    reader = _Reader()
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    messages: JSON = whole.get("messages") if isinstance(body, dict) else body
    base: Path = ("messages",) if isinstance(body, dict) else ()
    turns: list[Turn] = []
    if isinstance(messages, list):
        turns = [
            turn for index, wire in enumerate(cast(list[JSON], messages)) for turn in reader.turn(wire, (*base, index))
        ]
    else:
        reader.misshapen.append(at(base, "messages must be a list.", what="Input should be a valid list"))
    system: JSON = whole.get("system")
    prompt: tuple[Piece, ...] = ()
    if isinstance(system, list):
        prompt = tuple(reader.pieces(cast(JSON, system), ("system",), {"text": SHAPES["text"]}))
    elif system is not None and not isinstance(system, str):
        reader.misshapen.append(
            at(("system",), "system must be a string or a list of text blocks.", what="Input should be a valid string")
        )
    return Sketch(
        turns=tuple(turns),
        body=whole,
        prompt=prompt,
        tools=tuple(reader.tools(whole.get("tools"))),
        misshapen=tuple(reader.misshapen),
    )


def unknown(sketch: Sketch) -> Iterator[Finding]:
    """Yield the fields of messages and blocks that Anthropic does not have."""
    for turn in sketch.turns:
        yield from strangers(turn.wire, FIELDS, turn.path)
        for piece in turn.pieces:
            yield from unknown_in_block(piece.wire, piece.path)


def unknown_in_block(block: JSONObject, path: Path) -> Iterator[Finding]:
    if (fields := BLOCK_FIELDS.get(str(block.get("type")))) is None:
        return
    yield from strangers(block, fields, path)
    if block["type"] == "tool_result" and isinstance(block.get("content"), list):
        for index, inner in enumerate(cast(list[JSON], block["content"])):
            if isinstance(inner, dict):
                yield from unknown_in_block(cast(JSONObject, inner), (*path, "content", index))


class _Reader:
    def __init__(self) -> None:
        self.misshapen: list[Finding] = []

    def turn(self, wire: JSON, path: Path) -> Iterator[Turn]:
        if wrong := misfit(wire, {"role": str, "content": (str, list)}):
            self.refuse(path, *wrong)
            return
        given = cast(JSONObject, wire)
        if given["role"] not in ROLES:
            self.refuse(path, "role", f'invalid role {given["role"]!r}: expected "user" or "assistant".')
            return
        if foreign := next((name for name in FOREIGN if given.get(name)), None):
            self.refuse(path, foreign, f"`{foreign}` is not a known field of a message.")
            return
        pieces = self.pieces(given["content"], (*path, "content"), SHAPES)
        yield Turn(role=given["role"], path=path, wire=given, pieces=tuple(pieces))

    def pieces(self, content: JSON, path: Path, shapes: dict[str, Fields]) -> list[Piece]:
        if isinstance(content, str):
            return [Piece(kind="text", path=path, wire={}, text=content)]
        found: list[Piece] = []
        for index, block in enumerate(cast(list[JSON], content)):
            here = (*path, index)
            if wrong := misfit(block, {"type": str}) or _misfit(cast(JSONObject, block), shapes):
                self.refuse(here, *wrong)
                continue
            found.append(_piece(cast(JSONObject, block), here))
            if block["type"] == "tool_result" and isinstance(block.get("content"), list):
                self.pieces(block["content"], (*here, "content"), IN_RESULTS)
        return found

    def tools(self, tools: JSON) -> Iterator[Piece]:
        if not isinstance(tools, list):
            if tools is not None:
                self.refuse(("tools",), "", f"tools must be a list, got {json_type(tools)}.")
            return
        for index, tool in enumerate(cast(list[JSON], tools)):
            path: Path = ("tools", index)
            wire = cast(JSONObject, tool if isinstance(tool, dict) else {})
            custom = wire.get("type") in (None, "custom", "function")  # "function" is another provider's
            if wrong := misfit(cast(object, tool), {"name": str, "input_schema": dict} if custom else {"type": str}):
                self.refuse(path, *wrong)
            elif custom:
                yield Piece(kind="other", path=path, wire=wire, id=wire["name"])

    def refuse(self, path: Path, field: str, message: str) -> None:
        what = "Field required" if message.endswith("missing.") else message
        self.misshapen.append(at(path, message, what=f"{field}: {what}" if field else what))


def _misfit(block: JSONObject, shapes: dict[str, Fields]) -> tuple[str, str] | None:
    kind = cast(str, block["type"])
    fields = shapes.get(kind)
    if fields is None and shapes is SHAPES:
        fields = next((each for end, each in RUN_ELSEWHERE.items() if kind.endswith(end)), None)
    if fields is None:
        return "type", f"unknown block type {kind!r}."
    wrong = misfit(block, fields)
    if wrong or kind not in ("image", "document"):
        return wrong
    source = cast(JSONObject, block["source"])
    fields = SOURCES.get(str(source.get("type")))
    wrong = ("type", "`source` must have a known `type`.") if fields is None else misfit(source, fields)
    return (f"source.{wrong[0]}", wrong[1]) if wrong else None


def _piece(block: JSONObject, path: Path) -> Piece:
    kind = KINDS.get(block["type"], "other")
    call_id = {"call": block.get("id"), "result": block.get("tool_use_id")}.get(kind)
    text = block["text"] if kind == "text" else ""
    return Piece(kind=kind, path=path, wire=block, id=call_id or "", name=block.get("name") or "", text=text)


def reshape(value: JSON, path: Path) -> JSON:
    """Return an almost valid message or block in a valid shape, such as one with text arguments or a foreign role."""
    if isinstance(value, str):
        return block(value) if "content" in path or path[0] == "system" else message(value)
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
        return {**wire, "role": ALIASES.get(str(wire["role"]).lower(), "user")}
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


def message(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def block(text: str) -> JSONObject:
    return {"type": "text", "text": text}
