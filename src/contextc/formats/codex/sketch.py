"""The parser of Codex threads for lint rules: items with a valid shape, and their calls and results.

Items may be given directly, in notifications of the app-server, or in the lines of `codex exec --json`. Rollout files
are parsed line by line. Items without a valid shape are recorded as misshapen.
"""

from collections.abc import Iterator
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.base import text_of
from contextc.formats.checking import Fields, Finding, Path, Piece, Sketch, Turn, at, known, misfit, strangers
from contextc.formats.codex import lines, rollout
from contextc.formats.codex.encode import item_id
from contextc.formats.codex.events import is_event
from contextc.formats.codex.kinds import BLOCKS, CALLS, COMPLETED, ITEMS, RETURNED, STATES, USERS, is_running

INSTRUCTIONS, TOOLS = "developerInstructions", "dynamicTools"
LISTS = {"summary": str, "content": str}
CHANGE: Fields = {"path": str, "diff": str, "kind": dict}
SPOKEN = {"user": "userMessage", "human": "userMessage", "system": "userMessage", "developer": "userMessage"}
ANSWERED = {"assistant": "agentMessage", "model": "agentMessage", "ai": "agentMessage"}


def read(body: JSON) -> Sketch:
    """Parse any JSON as a request, or as the items of one."""
    reader = _Reader()
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    given: JSON = whole.get("items") if isinstance(body, dict) else body
    base: Path = ("items",) if isinstance(body, dict) else ()
    turns: list[Turn] = []
    if isinstance(given, list):
        turns = list(reader.turns(cast(list[JSON], given), base))
    elif given is not None or not base:
        reader.refuse(base, "", "items must be a list.")
    if whole.get(INSTRUCTIONS) is not None and not isinstance(whole[INSTRUCTIONS], str):
        reader.refuse((INSTRUCTIONS,), "", f"{INSTRUCTIONS} must be a string.")
    tools = tuple(reader.tools(whole.get(TOOLS)))
    return Sketch(turns=tuple(turns), body=whole, tools=tools, misshapen=tuple(reader.misshapen))


WRITTEN = {
    "userMessage": (),
    "agentMessage": ("memoryCitation",),
    "plan": (),
    "reasoning": (),
    "dynamicToolCall": ("arguments", "durationMs"),
    "functionCallOutput": ("callId",),
}
"""The items that a client writes, with their optional fields."""


def unknown(sketch: Sketch) -> Iterator[Finding]:
    """Yield the fields of items and blocks that Codex does not have. Items of Codex itself are not checked."""
    for turn in sketch.turns:
        kind = str(turn.wire.get("type"))
        if (more := WRITTEN.get(kind)) is not None:
            yield from strangers(turn.wire, known(ITEMS[kind], "id", "type", *more), turn.path)
        for piece in turn.pieces if kind == "userMessage" else ():
            yield from strangers(piece.wire, known(BLOCKS[piece.wire["type"]], "type"), piece.path)


class _Reader:
    def __init__(self) -> None:
        self.misshapen: list[Finding] = []

    def turns(self, items: list[JSON], base: Path) -> Iterator[Turn]:
        """Yield the items. Of an item in several events, only the last state."""
        last: dict[str, int] = {}
        for index, wire in enumerate(items):
            if (item := _inside(wire)) is not None and "id" in item:
                last[str(item["id"])] = index
        for index, wire in enumerate(items):
            path = (*base, index)
            if isinstance(wire, dict) and rollout.is_line(cast(JSONObject, wire)):
                yield Turn(role="record", path=path, wire=cast(JSONObject, wire))
            elif isinstance(wire, dict) and is_event(cast(JSONObject, wire)):
                item = _inside(wire)
                if item is None or last.get(str(item.get("id"))) != index or item.get("type") == lines.WARNING:
                    continue
                if isinstance(item.get("type"), str) and item["type"] not in ITEMS:  # a type that only Codex knows
                    yield Turn(role="record", path=path, wire=item)
                else:
                    yield from self.turn(item, path)
            else:
                yield from self.turn(wire, path)

    def turn(self, wire: JSON, path: Path) -> Iterator[Turn]:
        if wrong := misfit(wire, {"type": str}):
            self.refuse(path, *wrong)
            return
        item = cast(JSONObject, wire)
        kind = item["type"]
        if kind not in ITEMS:
            self.refuse(path, "type", f"unknown item type {kind!r}.")
        elif wrong := misfit(item, {"id?": str, **ITEMS[kind]}) or _unfit(item, kind):
            self.refuse(path, *wrong)
        elif kind in USERS:
            yield Turn(role="user", path=path, wire=item, pieces=tuple(self.blocks(item, path)))
        else:
            yield Turn(role="assistant", path=path, wire=item, pieces=tuple(self.pieces(item, kind, path)))

    def blocks(self, item: JSONObject, path: Path) -> Iterator[Piece]:
        for index, block in enumerate(cast(list[JSON], item.get("content") or [])):
            here = (*path, "content", index)
            if wrong := _misblock(block, BLOCKS):
                self.refuse(here, *wrong)
                continue
            wire = cast(JSONObject, block)
            kind = "text" if wire["type"] == "text" else "media" if wire["type"] in ("image", "audio") else "other"
            yield Piece(kind=kind, path=here, wire=wire, text=text_of(wire.get("text")))

    def pieces(self, item: JSONObject, kind: str, path: Path) -> Iterator[Piece]:
        if kind in ("agentMessage", "plan"):
            yield Piece(kind="text", path=(*path, "text"), wire=item, text=item["text"])
        elif kind == "reasoning":
            yield Piece(kind="reasoning", path=path, wire=item)
        elif (call := CALLS.get(kind)) is not None:
            named, name = text_of(item.get("id")), call.name(item)
            asked = {field: value for field, value in item.items() if field not in ("status", "success", call.field)}
            yield Piece(kind="call", path=(*path, "id"), wire=asked, id=named, name=name)
            if not is_running(item):
                yield Piece(kind="result", path=(*path, call.field or "status"), wire=item, id=named, name=name)

    def tools(self, tools: JSON) -> Iterator[Piece]:
        if tools is not None and not isinstance(tools, list):
            self.refuse((TOOLS,), "", f"{TOOLS} must be a list.")
        for index, tool in enumerate(cast(list[JSON], tools) if isinstance(tools, list) else []):
            path: Path = (TOOLS, index)
            if wrong := misfit(tool, {"name": str, "description": str, "type?": str}) or _unfit_tool(tool):
                self.refuse(path, *wrong)
            else:
                wire = cast(JSONObject, tool)
                yield Piece(kind="other", path=path, wire=wire, id=wire["name"], name=wire["name"])

    def refuse(self, path: Path, field: str, message: str) -> None:
        missing = message.endswith("missing.")
        self.misshapen.append(at(path, message, what=f"missing field `{field}`" if missing else message.rstrip(".")))


def _inside(wire: JSON) -> JSONObject | None:
    """Return the item in an event, or None."""
    event = cast(JSONObject, wire) if isinstance(wire, dict) else {}
    if not is_event(event) or not text_of(event.get("method", event.get("type"))).startswith("item"):
        return None
    params: JSON = event.get("params") if "method" in event else event
    item: JSON = cast(JSONObject, params).get("item") if isinstance(params, dict) else None
    return lines.camel(cast(JSONObject, item)) if isinstance(item, dict) else None


def _misblock(block: JSON, shapes: dict[str, Fields]) -> tuple[str, str] | None:
    if wrong := misfit(block, {"type": str}):
        return wrong
    wire = cast(JSONObject, block)
    if wire["type"] not in shapes:
        return "type", f"unknown block type {wire['type']!r}."
    if wire["type"] == "image" and wire.get("url") is None and wire.get("fileId") is None:
        return "url", "`url` is missing."
    return misfit(wire, shapes[wire["type"]])


def _unfit(item: JSONObject, kind: str) -> tuple[str, str] | None:
    """Return the field and message of a fault inside an item with all its fields, or None."""
    if "status" in ITEMS[kind] and kind != "imageGeneration" and item["status"] not in STATES:
        return "status", f"`status` must be one of {', '.join(STATES)}, got {item['status']!r}."
    if kind in ("dynamicToolCall", "mcpToolCall") and "arguments" not in item:
        return "arguments", "`arguments` is missing."
    if kind == "reasoning":
        for name, wanted in LISTS.items():
            if any(not isinstance(each, wanted) for each in cast(list[JSON], item.get(name) or [])):
                return name, f"`{name}` must be a list of strings."
    for block in _own(item, kind, "contentItems"):
        if wrong := _misblock(block, RETURNED):
            return "contentItems", f"`contentItems` has an invalid block: {wrong[1]}"
    for change in _own(item, kind, "changes"):
        if wrong := misfit(change, CHANGE):
            return "changes", f"`changes` has an invalid change: {wrong[1]}"
    for name in ("fragments", "commandActions"):
        if any(not isinstance(each, dict) for each in _own(item, kind, name)):
            return name, f"`{name}` must be a list of objects."
    result: JSON = item.get("result")
    if kind == "mcpToolCall" and result is not None and not isinstance(cast(JSONObject, result).get("content"), list):
        return "result", "`result` must have a list as its `content`."
    return None


def _own(item: JSONObject, kind: str, name: str) -> list[JSON]:
    """Return a list that items of this type have. A field of the same name in another type is not read."""
    return cast(list[JSON], item.get(name) or []) if {name, f"{name}?"} & ITEMS[kind].keys() else []


def _unfit_tool(tool: JSON) -> tuple[str, str] | None:
    wire = cast(JSONObject, tool)
    match wire.get("type", "function"):
        case "function":
            return misfit(wire, {"inputSchema": dict})
        case "namespace":
            return misfit(wire, {"tools": list})
        case kind:
            return "type", f"unknown tool type {kind!r}."


def reshape(value: JSON, path: Path) -> JSON:
    """Return an almost valid item, block or tool in a valid shape, such as a text or a message with a role."""
    if path == ("items",):
        return [] if value is None else [value]
    if path[0] == INSTRUCTIONS:
        return _as_text(value)
    if path[0] == TOOLS:
        return _tool(cast(JSONObject, value)) if isinstance(value, dict) else value
    if isinstance(value, str):
        return block(value) if len(path) > 2 else message(value)
    if not isinstance(value, dict):
        return value
    wire = cast(JSONObject, value)
    if len(path) > 2:
        return block(wire["text"]) if isinstance(wire.get("text"), str) else wire
    return _item(wire)


def _item(wire: JSONObject) -> JSONObject:
    wire = lines.camel(wire)
    kind, role = text_of(wire.get("type")), str(wire.get("role")).lower()
    if kind not in ITEMS and role in SPOKEN | ANSWERED:
        text = _words(wire.get("content"))
        return message(text) if role in SPOKEN else _named({"type": "agentMessage", "text": text})
    if kind in ("agentMessage", "plan"):
        return _named({**wire, "text": _words(wire.get("text", wire.get("content")))})
    if kind == "userMessage":
        content: JSON = wire.get("content")
        return _named({**wire, "content": [block(each) if isinstance(each, str) else each for each in _list(content)]})
    if kind == "dynamicToolCall" and isinstance(wire.get("tool"), str):
        return _named(_call(wire))
    if kind == "reasoning":
        texts = {name: [_words(each) for each in _list(wire.get(name))] for name in ("summary", "content")}
        return _named({**wire, **texts})
    return wire


def _call(wire: JSONObject) -> JSONObject:
    """Return a client tool call with missing fields filled in."""
    returned: JSON = wire.get("contentItems")
    given = [{"type": "inputText", "text": returned}] if isinstance(returned, str) else _list(returned)
    blocks = [each if _misblock(each, RETURNED) is None else _returned(each) for each in given]
    state = wire.get("status") if wire.get("status") in STATES else COMPLETED
    made: JSONObject = {"arguments": {}, **wire, "status": state, "contentItems": blocks}
    for name, kind in (("success", bool), ("namespace", str)):
        if not isinstance(made.get(name), kind):
            made.pop(name, None)
    return made


def _returned(value: JSON) -> JSONObject:
    return {"type": "inputText", "text": _words(value)}


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


def _named(item: JSONObject) -> JSONObject:
    return item if isinstance(item.get("id"), str) else {**item, "id": item_id(item)}


def _list(value: JSON) -> list[JSON]:
    return cast(list[JSON], value) if isinstance(value, list) else [] if value is None else [value]


def _words(value: JSON) -> str:
    """Return the text of a string, a block or a list of blocks."""
    if isinstance(value, list):
        return "\n\n".join(words for each in cast(list[JSON], value) if (words := _words(each)))
    text: JSON = cast(JSONObject, value).get("text") if isinstance(value, dict) else value
    return text if isinstance(text, str) else "" if value is None else _as_text(value)


def _as_text(value: JSON) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def message(text: str) -> JSONObject:
    item: JSONObject = {"type": "userMessage", "content": [block(text)]}
    return {**item, "id": item_id(item)}


def block(text: str) -> JSONObject:
    return {"type": "text", "text": text, "text_elements": []}
