"""The parser of Codex threads for lint rules: items with a valid shape, and their calls and results.

Items may be given directly, in notifications of the app-server, or in the lines of `codex exec --json`. Rollout files
are parsed line by line. Items without a valid shape are recorded as misshapen.
"""

from collections.abc import Iterator
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.base import text_of
from contextc.formats.codex import exec_lines, rollout
from contextc.formats.codex.encode import item_id
from contextc.formats.codex.event_collector import is_event
from contextc.formats.codex.items import (
    CALL_TYPES,
    COMPLETED,
    ITEM_TYPES,
    RESULT_BLOCKS,
    STATES,
    USER_BLOCKS,
    USER_ITEMS,
    is_running,
)
from contextc.formats.lint_engine import (
    FieldTypes,
    JSONPath,
    ParsedRequest,
    RequestMessage,
    RequestPart,
    RuleFinding,
    field_names,
    make_finding,
    schema_error,
    unknown_field_findings,
)

INSTRUCTIONS_FIELD, TOOLS_FIELD = "developerInstructions", "dynamicTools"
TEXT_LISTS = {"summary": str, "content": str}
CHANGE_FIELDS: FieldTypes = {"path": str, "diff": str, "kind": dict}
USER_ROLES = {"user": "userMessage", "human": "userMessage", "system": "userMessage", "developer": "userMessage"}
ASSISTANT_ROLES = {"assistant": "agentMessage", "model": "agentMessage", "ai": "agentMessage"}


def parse_request(body: JSON) -> ParsedRequest:
    """Parse any JSON as a request, or as the items of one."""
    reader = _Reader()
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    given: JSON = whole.get("items") if isinstance(body, dict) else body
    base: JSONPath = ("items",) if isinstance(body, dict) else ()
    turns: list[RequestMessage] = []
    if isinstance(given, list):
        turns = list(reader.turns(cast(list[JSON], given), base))
    elif given is not None or not base:
        reader.refuse(base, "", "items must be a list.")
    if whole.get(INSTRUCTIONS_FIELD) is not None and not isinstance(whole[INSTRUCTIONS_FIELD], str):
        reader.refuse((INSTRUCTIONS_FIELD,), "", f"{INSTRUCTIONS_FIELD} must be a string.")
    tools = tuple(reader.tools(whole.get(TOOLS_FIELD)))
    return ParsedRequest(messages=tuple(turns), body=whole, tools=tools, malformed=tuple(reader.misshapen))


CLIENT_ITEMS = {
    "userMessage": (),
    "agentMessage": ("memoryCitation",),
    "plan": (),
    "reasoning": (),
    "dynamicToolCall": ("arguments", "durationMs"),
    "functionCallOutput": ("callId",),
}
"""The items that a client writes, with their optional fields."""


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of items and blocks that Codex does not have. Items of Codex itself are not checked."""
    for turn in sketch.messages:
        kind = str(turn.wire.get("type"))
        if (more := CLIENT_ITEMS.get(kind)) is not None:
            yield from unknown_field_findings(turn.wire, field_names(ITEM_TYPES[kind], "id", "type", *more), turn.path)
        for piece in turn.parts if kind == "userMessage" else ():
            yield from unknown_field_findings(
                piece.wire, field_names(USER_BLOCKS[piece.wire["type"]], "type"), piece.path
            )


class _Reader:
    def __init__(self) -> None:
        self.misshapen: list[RuleFinding] = []

    def turns(self, items: list[JSON], base: JSONPath) -> Iterator[RequestMessage]:
        """Yield the items. Of an item in several events, only the last state."""
        last: dict[str, int] = {}
        for index, wire in enumerate(items):
            if (item := _item_in_event(wire)) is not None and "id" in item:
                last[str(item["id"])] = index
        for index, wire in enumerate(items):
            path = (*base, index)
            if isinstance(wire, dict) and rollout.is_rollout_line(cast(JSONObject, wire)):
                yield RequestMessage(role="record", path=path, wire=cast(JSONObject, wire))
            elif isinstance(wire, dict) and is_event(cast(JSONObject, wire)):
                item = _item_in_event(wire)
                if (
                    item is None
                    or last.get(str(item.get("id"))) != index
                    or item.get("type") == exec_lines.WARNING_TYPE
                ):
                    continue
                if isinstance(item.get("type"), str) and item["type"] not in ITEM_TYPES:  # a type that only Codex knows
                    yield RequestMessage(role="record", path=path, wire=item)
                else:
                    yield from self.turn(item, path)
            else:
                yield from self.turn(wire, path)

    def turn(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if wrong := schema_error(wire, {"type": str}):
            self.refuse(path, *wrong)
            return
        item = cast(JSONObject, wire)
        kind = item["type"]
        if kind not in ITEM_TYPES:
            self.refuse(path, "type", f"unknown item type {kind!r}.")
        elif wrong := schema_error(item, {"id?": str, **ITEM_TYPES[kind]}) or _item_error(item, kind):
            self.refuse(path, *wrong)
        elif kind in USER_ITEMS:
            yield RequestMessage(role="user", path=path, wire=item, parts=tuple(self.blocks(item, path)))
        else:
            yield RequestMessage(role="assistant", path=path, wire=item, parts=tuple(self.pieces(item, kind, path)))

    def blocks(self, item: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
        for index, block in enumerate(cast(list[JSON], item.get("content") or [])):
            here = (*path, "content", index)
            if wrong := _block_error(block, USER_BLOCKS):
                self.refuse(here, *wrong)
                continue
            wire = cast(JSONObject, block)
            kind = "text" if wire["type"] == "text" else "media" if wire["type"] in ("image", "audio") else "other"
            yield RequestPart(kind=kind, path=here, wire=wire, text=text_of(wire.get("text")))

    def pieces(self, item: JSONObject, kind: str, path: JSONPath) -> Iterator[RequestPart]:
        if kind in ("agentMessage", "plan"):
            yield RequestPart(kind="text", path=(*path, "text"), wire=item, text=item["text"])
        elif kind == "reasoning":
            yield RequestPart(kind="reasoning", path=path, wire=item)
        elif (call := CALL_TYPES.get(kind)) is not None:
            named, name = text_of(item.get("id")), call.name(item)
            asked = {field: value for field, value in item.items() if field not in ("status", "success", call.field)}
            yield RequestPart(kind="call", path=(*path, "id"), wire=asked, id=named, name=name)
            if not is_running(item):
                yield RequestPart(kind="result", path=(*path, call.field or "status"), wire=item, id=named, name=name)

    def tools(self, tools: JSON) -> Iterator[RequestPart]:
        if tools is not None and not isinstance(tools, list):
            self.refuse((TOOLS_FIELD,), "", f"{TOOLS_FIELD} must be a list.")
        for index, tool in enumerate(cast(list[JSON], tools) if isinstance(tools, list) else []):
            path: JSONPath = (TOOLS_FIELD, index)
            if wrong := schema_error(tool, {"name": str, "description": str, "type?": str}) or _tool_error(tool):
                self.refuse(path, *wrong)
            else:
                wire = cast(JSONObject, tool)
                yield RequestPart(kind="other", path=path, wire=wire, id=wire["name"], name=wire["name"])

    def refuse(self, path: JSONPath, field: str, message: str) -> None:
        missing = message.endswith("missing.")
        self.misshapen.append(
            make_finding(path, message, what=f"missing field `{field}`" if missing else message.rstrip("."))
        )


def _item_in_event(wire: JSON) -> JSONObject | None:
    """Return the item in an event, or None."""
    event = cast(JSONObject, wire) if isinstance(wire, dict) else {}
    if not is_event(event) or not text_of(event.get("method", event.get("type"))).startswith("item"):
        return None
    params: JSON = event.get("params") if "method" in event else event
    item: JSON = cast(JSONObject, params).get("item") if isinstance(params, dict) else None
    return exec_lines.to_thread_item(cast(JSONObject, item)) if isinstance(item, dict) else None


def _block_error(block: JSON, shapes: dict[str, FieldTypes]) -> tuple[str, str] | None:
    if wrong := schema_error(block, {"type": str}):
        return wrong
    wire = cast(JSONObject, block)
    if wire["type"] not in shapes:
        return "type", f"unknown block type {wire['type']!r}."
    if wire["type"] == "image" and wire.get("url") is None and wire.get("fileId") is None:
        return "url", "`url` is missing."
    return schema_error(wire, shapes[wire["type"]])


def _item_error(item: JSONObject, kind: str) -> tuple[str, str] | None:
    """Return the field and message of a fault inside an item with all its fields, or None."""
    if "status" in ITEM_TYPES[kind] and kind != "imageGeneration" and item["status"] not in STATES:
        return "status", f"`status` must be one of {', '.join(STATES)}, got {item['status']!r}."
    if kind in ("dynamicToolCall", "mcpToolCall") and "arguments" not in item:
        return "arguments", "`arguments` is missing."
    if kind == "reasoning":
        for name, wanted in TEXT_LISTS.items():
            if any(not isinstance(each, wanted) for each in cast(list[JSON], item.get(name) or [])):
                return name, f"`{name}` must be a list of strings."
    for block in _list_field(item, kind, "contentItems"):
        if wrong := _block_error(block, RESULT_BLOCKS):
            return "contentItems", f"`contentItems` has an invalid block: {wrong[1]}"
    for change in _list_field(item, kind, "changes"):
        if wrong := schema_error(change, CHANGE_FIELDS):
            return "changes", f"`changes` has an invalid change: {wrong[1]}"
    for name in ("fragments", "commandActions"):
        if any(not isinstance(each, dict) for each in _list_field(item, kind, name)):
            return name, f"`{name}` must be a list of objects."
    result: JSON = item.get("result")
    if kind == "mcpToolCall" and result is not None and not isinstance(cast(JSONObject, result).get("content"), list):
        return "result", "`result` must have a list as its `content`."
    return None


def _list_field(item: JSONObject, kind: str, name: str) -> list[JSON]:
    """Return a list that items of this type have. A field of the same name in another type is not read."""
    return cast(list[JSON], item.get(name) or []) if {name, f"{name}?"} & ITEM_TYPES[kind].keys() else []


def _tool_error(tool: JSON) -> tuple[str, str] | None:
    wire = cast(JSONObject, tool)
    match wire.get("type", "function"):
        case "function":
            return schema_error(wire, {"inputSchema": dict})
        case "namespace":
            return schema_error(wire, {"tools": list})
        case kind:
            return "type", f"unknown tool type {kind!r}."


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return an almost valid item, block or tool in a valid shape, such as a text or a message with a role."""
    if path == ("items",):
        return [] if value is None else [value]
    if path[0] == INSTRUCTIONS_FIELD:
        return _as_text(value)
    if path[0] == TOOLS_FIELD:
        return _tool(cast(JSONObject, value)) if isinstance(value, dict) else value
    if isinstance(value, str):
        return text_block(value) if len(path) > 2 else text_message(value)
    if not isinstance(value, dict):
        return value
    wire = cast(JSONObject, value)
    if len(path) > 2:
        return text_block(wire["text"]) if isinstance(wire.get("text"), str) else wire
    return _item(wire)


def _item(wire: JSONObject) -> JSONObject:
    wire = exec_lines.to_thread_item(wire)
    kind, role = text_of(wire.get("type")), str(wire.get("role")).lower()
    if kind not in ITEM_TYPES and role in USER_ROLES | ASSISTANT_ROLES:
        text = _text_in(wire.get("content"))
        return text_message(text) if role in USER_ROLES else _with_id({"type": "agentMessage", "text": text})
    if kind in ("agentMessage", "plan"):
        return _with_id({**wire, "text": _text_in(wire.get("text", wire.get("content")))})
    if kind == "userMessage":
        content: JSON = wire.get("content")
        return _with_id(
            {**wire, "content": [text_block(each) if isinstance(each, str) else each for each in _list(content)]}
        )
    if kind == "dynamicToolCall" and isinstance(wire.get("tool"), str):
        return _with_id(_complete_call(wire))
    if kind == "reasoning":
        texts = {name: [_text_in(each) for each in _list(wire.get(name))] for name in ("summary", "content")}
        return _with_id({**wire, **texts})
    return wire


def _complete_call(wire: JSONObject) -> JSONObject:
    """Return a client tool call with missing fields filled in."""
    returned: JSON = wire.get("contentItems")
    given = [{"type": "inputText", "text": returned}] if isinstance(returned, str) else _list(returned)
    blocks = [each if _block_error(each, RESULT_BLOCKS) is None else _returned(each) for each in given]
    state = wire.get("status") if wire.get("status") in STATES else COMPLETED
    made: JSONObject = {"arguments": {}, **wire, "status": state, "contentItems": blocks}
    for name, kind in (("success", bool), ("namespace", str)):
        if not isinstance(made.get(name), kind):
            made.pop(name, None)
    return made


def _returned(value: JSON) -> JSONObject:
    return {"type": "inputText", "text": _text_in(value)}


def _tool(wire: JSONObject) -> JSON:
    """Return a tool in another provider's shape as a valid tool."""
    inner: JSON = wire.get("function")
    given = cast(JSONObject, inner) if isinstance(inner, dict) else wire
    if not isinstance(given.get("name"), str):
        return wire
    schema: JSONObject = {"type": "object", "properties": {}}
    for name in ("input_schema", "parameters", "inputSchema"):
        schema = cast(JSONObject, given[name]) if isinstance(given.get(name), dict) else schema
    described = text_of(given.get("description"))
    return {"type": "function", "name": given["name"], "description": described, "inputSchema": schema}


def _with_id(item: JSONObject) -> JSONObject:
    return item if isinstance(item.get("id"), str) else {**item, "id": item_id(item)}


def _list(value: JSON) -> list[JSON]:
    return cast(list[JSON], value) if isinstance(value, list) else [] if value is None else [value]


def _text_in(value: JSON) -> str:
    """Return the text of a string, a block or a list of blocks."""
    if isinstance(value, list):
        return "\n\n".join(words for each in cast(list[JSON], value) if (words := _text_in(each)))
    text: JSON = cast(JSONObject, value).get("text") if isinstance(value, dict) else value
    return text if isinstance(text, str) else "" if value is None else _as_text(value)


def _as_text(value: JSON) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def text_message(text: str) -> JSONObject:
    item: JSONObject = {"type": "userMessage", "content": [text_block(text)]}
    return {**item, "id": item_id(item)}


def text_block(text: str) -> JSONObject:
    return {"type": "text", "text": text, "text_elements": []}
