"""The lint rules of a Codex thread: the reader of its items, the fixes, and the rules.

Items may be given directly, in notifications of the app-server, or in the lines of `codex exec --json`. Rollout files
are parsed line by line. Items without a valid shape are recorded as misshapen.

The app-server refuses some violations with an error. It accepts others silently and does something else than intended.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of
from contextc.formats.codex import codec
from contextc.formats.codex.codec import (
    CALL_TYPES,
    COMPLETED,
    ITEM_TYPES,
    NAMES,
    RESULT_BLOCKS,
    STATES,
    USER_BLOCKS,
    USER_ITEMS,
    is_event,
    is_running,
    item_id,
)
from contextc.formats.lint_engine import (
    Fault,
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    Problem,
    RequestMessage,
    RequestPart,
    RequestReader,
    RuleFinding,
    RuleSet,
    field_names,
    make_finding,
    missing_field,
    schema_error,
    tagged_error,
    unknown_field_findings,
)
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    as_list,
    as_text,
    duplicate_tools,
    inner_tool,
    malformed_values,
    remove_settings,
    tool_schema,
    without_fields,
    without_wrong_types,
)

INSTRUCTIONS_FIELD, TOOLS_FIELD = "developerInstructions", "dynamicTools"
REASONING_TEXTS = ("summary", "content")
PART_KINDS: dict[str, PartKind] = {"text": "text", "image": "media", "audio": "media"}
CHANGE_FIELDS: FieldTypes = {"path": str, "diff": str, "kind": dict}
USER_ROLES = ("user", "human", "system", "developer")
ITEM_FIELDS: dict[str, FieldTypes] = {kind: {"id?": str, **fields} for kind, fields in ITEM_TYPES.items()}
ASSISTANT_ROLES = ("assistant", "model", "ai")


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


class _Reader(RequestReader):
    messages_key, messages_error = "items", "items must be a list."
    tools_key, tools_error = TOOLS_FIELD, f"{TOOLS_FIELD} must be a list."

    def messages(self, given: JSON, base: JSONPath) -> Iterator[RequestMessage]:
        """Yield the items. Of an item in several events, only the last state."""
        if not is_list(given) and (given is not None or not base):
            self.refuse(base, Fault("", self.messages_error, Problem.TYPE, (list,), given))
        items = list_or_empty(given)
        inner = [_item_in_event(wire) for wire in items]
        last = {str(item["id"]): index for index, item in enumerate(inner) if item is not None and "id" in item}
        for index, (wire, item) in enumerate(zip(items, inner, strict=True)):
            path = (*base, index)
            if is_object(wire) and codec.is_rollout_line(wire):
                yield RequestMessage(role="record", path=path, wire=wire)
            elif not is_event(object_or_empty(wire)):
                yield from self.message(wire, path)
            elif item is None or last.get(str(item.get("id"))) != index or item.get("type") == codec.WARNING_TYPE:
                continue
            elif isinstance(item.get("type"), str) and item["type"] not in ITEM_TYPES:  # a type that only Codex knows
                yield RequestMessage(role="record", path=path, wire=item)
            else:
                yield from self.message(item, path)
        if self.body.get(INSTRUCTIONS_FIELD) is not None and not isinstance(self.body[INSTRUCTIONS_FIELD], str):
            self.refuse((INSTRUCTIONS_FIELD,), Fault("", f"{INSTRUCTIONS_FIELD} must be a string."))

    def message(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if wrong := tagged_error(wire, ITEM_FIELDS, "item") or _item_error(wire, wire["type"]):
            self.refuse(path, wrong)
            return
        user = wire["type"] in USER_ITEMS
        parts = (
            self.blocks(list_or_empty(wire.get("content")), (*path, "content"))
            if user
            else _pieces(wire, wire["type"], path)
        )
        yield RequestMessage(role="user" if user else "assistant", path=path, wire=wire, parts=tuple(parts))

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        return _block_error(block, USER_BLOCKS)

    def part(self, block: JSONObject, path: JSONPath) -> RequestPart:
        kind = PART_KINDS.get(block["type"], "other")
        return RequestPart(kind=kind, path=path, wire=block, text=text_of(block.get("text")))

    def tools(self, given: JSON) -> Iterator[RequestPart]:
        return (replace(tool, name=tool.id) for tool in super().tools(given))

    def tool_error(self, tool: JSON) -> Fault | None:
        return schema_error(tool, {"name": str, "description": str, "type?": str}) or _tool_error(tool)

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        is_missing = fault.problem is Problem.MISSING
        return f"missing field `{fault.field}`" if is_missing else fault.message.rstrip(".")


parse_request = _Reader.parse


def _pieces(item: JSONObject, kind: str, path: JSONPath) -> Iterator[RequestPart]:
    if kind in ("agentMessage", "plan"):
        yield RequestPart(kind="text", path=(*path, "text"), wire=item, text=item["text"])
    elif kind == "reasoning":
        yield RequestPart(kind="reasoning", path=path, wire=item)
    elif (call := CALL_TYPES.get(kind)) is not None:
        named, name = text_of(item.get("id")), call.name(item)
        asked = without_fields(item, "status", "success", call.field)
        yield RequestPart(kind="call", path=(*path, "id"), wire=asked, id=named, name=name)
        if not is_running(item):
            yield RequestPart(kind="result", path=(*path, call.field or "status"), wire=item, id=named, name=name)


def _item_in_event(wire: JSON) -> JSONObject | None:
    """Return the item in an event, or None."""
    event = object_or_empty(wire)
    if not is_event(event) or not text_of(event.get("method", event.get("type"))).startswith("item"):
        return None
    item: JSON = (object_or_empty(event.get("params")) if "method" in event else event).get("item")
    return codec.to_thread_item(item) if is_object(item) else None


def _block_error(block: JSON, shapes: Mapping[str, FieldTypes]) -> Fault | None:
    wire = object_or_empty(block)
    if wire.get("type") == "image" and "image" in shapes and wire.get("url") is None and wire.get("fileId") is None:
        return missing_field("url")
    return tagged_error(block, shapes)


def _item_error(item: JSONObject, kind: str) -> Fault | None:
    """Return the field and message of a fault inside an item with all its fields, or None."""
    if "status" in ITEM_TYPES[kind] and kind != "imageGeneration" and item["status"] not in STATES:
        return Fault("status", f"`status` must be one of {', '.join(STATES)}, got {item['status']!r}.")
    if kind in ("dynamicToolCall", "mcpToolCall") and "arguments" not in item:
        return missing_field("arguments")
    for name in REASONING_TEXTS if kind == "reasoning" else ():
        if any(not isinstance(each, str) for each in list_or_empty(item.get(name))):
            return Fault(name, f"`{name}` must be a list of strings.")
    for block in _list_field(item, kind, "contentItems"):
        if wrong := _block_error(block, RESULT_BLOCKS):
            return Fault("contentItems", f"`contentItems` has an invalid block: {wrong.message}")
    for change in _list_field(item, kind, "changes"):
        if wrong := schema_error(change, CHANGE_FIELDS):
            return Fault("changes", f"`changes` has an invalid change: {wrong.message}")
    for name in ("fragments", "commandActions"):
        if any(not is_object(each) for each in _list_field(item, kind, name)):
            return Fault(name, f"`{name}` must be a list of objects.")
    result: JSON = item.get("result")
    if kind == "mcpToolCall" and result is not None and not is_list(result.get("content")):
        return Fault("result", "`result` must have a list as its `content`.")
    return None


def _list_field(item: JSONObject, kind: str, name: str) -> list[JSON]:
    """Return a list that items of this type have. A field of the same name in another type is not read."""
    return item.get(name) or [] if {name, f"{name}?"} & ITEM_TYPES[kind].keys() else []


def _tool_error(tool: JSONObject) -> Fault | None:
    match tool.get("type", "function"):
        case "function":
            return schema_error(tool, {"inputSchema": dict})
        case "namespace":
            return schema_error(tool, {"tools": list})
        case kind:
            return Fault("type", f"unknown tool type {kind!r}.")


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return an almost valid item, block or tool in a valid shape, such as a text or a message with a role."""
    if path == ("items",):
        return [] if value is None else [value]
    if path[0] == INSTRUCTIONS_FIELD:
        return as_text(value)
    if path[0] == TOOLS_FIELD:
        return _tool(value) if is_object(value) else value
    if isinstance(value, str):
        return text_block(value) if len(path) > 2 else text_message(value)
    if not is_object(value):
        return value
    if len(path) > 2:
        return text_block(value["text"]) if isinstance(value.get("text"), str) else value
    return _item(value)


def _item(wire: JSONObject) -> JSONObject:
    wire = codec.to_thread_item(wire)
    kind, role = text_of(wire.get("type")), str(wire.get("role")).lower()
    if kind not in ITEM_TYPES and role in USER_ROLES + ASSISTANT_ROLES:
        text = _text_in(wire.get("content"))
        return text_message(text) if role in USER_ROLES else _with_id({"type": "agentMessage", "text": text})
    if kind in ("agentMessage", "plan"):
        return _with_id({**wire, "text": _text_in(wire.get("text", wire.get("content")))})
    if kind == "userMessage":
        content = as_list(wire.get("content"))
        return _with_id({**wire, "content": [text_block(each) if isinstance(each, str) else each for each in content]})
    if kind == "dynamicToolCall" and isinstance(wire.get("tool"), str):
        blocks = [
            {"type": "inputText", "text": _text_in(each)} if _block_error(each, RESULT_BLOCKS) else each
            for each in as_list(wire.get("contentItems"))
        ]
        state = wire.get("status") if wire.get("status") in STATES else COMPLETED
        made: JSONObject = {"arguments": {}, **wire, "status": state, "contentItems": blocks}
        return _with_id(without_wrong_types(made, {"success": bool, "namespace": str}))
    if kind == "reasoning":
        texts = {name: [_text_in(each) for each in as_list(wire.get(name))] for name in REASONING_TEXTS}
        return _with_id({**wire, **texts})
    return wire


def _tool(wire: JSONObject) -> JSON:
    """Return a tool in another provider's shape as a valid tool."""
    if (given := inner_tool(wire)) is None:
        return wire
    schema, described = tool_schema(given, {"type": "object", "properties": {}}), text_of(given.get("description"))
    return {"type": "function", "name": given["name"], "description": described, "inputSchema": schema}


def _with_id(item: JSONObject) -> JSONObject:
    return item if isinstance(item.get("id"), str) else {**item, "id": item_id(item)}


def _text_in(value: JSON) -> str:
    """Return the text of a string, a block or a list of blocks."""
    if is_list(value):
        return "\n\n".join(words for each in value if (words := _text_in(each)))
    text: JSON = value.get("text") if is_object(value) else value
    return text if isinstance(text, str) else "" if value is None else as_text(value)


def text_message(text: str) -> JSONObject:
    item: JSONObject = {"type": "userMessage", "content": [text_block(text)]}
    return {**item, "id": item_id(item)}


def text_block(text: str) -> JSONObject:
    return {"type": "text", "text": text, "text_elements": []}


UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")


def find_unfinished_calls(turns: Sequence[RequestMessage]) -> list[RequestMessage]:
    """Return calls that are still running although later items exist. Parallel calls are exempt."""
    found: list[RequestMessage] = []
    gone_on = False
    for turn in reversed(turns):
        if turn.wire.get("type") not in CALL_TYPES:
            gone_on = gone_on or turn.role != "record"
        elif is_running(turn.wire) and gone_on:
            found.append(turn)
    return found[::-1]


def with_item_ids(body: JSONObject) -> JSONObject:
    def named(item: JSONObject) -> JSONObject:
        return item if item.get("id") else {**item, "id": item_id(item)}

    return {**body, "items": [named(item) for item in cast(list[JSONObject], body["items"])]}


def with_encoded_names(body: JSONObject) -> JSONObject:
    return _with_tools(body, lambda tool: {**tool, "name": NAMES.encode(tool["name"])})


def with_unique_names(body: JSONObject) -> JSONObject:
    seen: set[str] = set()

    def once(tool: JSONObject) -> JSONObject | None:
        if tool["name"] in seen:
            return None
        seen.add(tool["name"])
        return tool

    return _with_tools(body, once)


def _with_tools(body: JSONObject, change: Callable[[JSONObject], JSONObject | None]) -> JSONObject:
    tools = [change(tool) for tool in cast(list[JSONObject], body["dynamicTools"])]
    return {**body, "dynamicTools": [tool for tool in tools if tool is not None]}


RULES = RuleSet(
    "COD",
    "codex",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_block,
    messages_key="items",
    unknown_fields=find_unknown_fields,
)
rule = RULES.register


rule(1)(malformed_values)


@rule(2, fix=with_item_ids)
def check_item_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        if turn.role != "record" and not turn.wire.get("id"):
            yield make_finding(turn.path, f"this {turn.wire['type']} has no `id`.")


@rule(3, fix=remove_settings("threadId"))
def check_thread_id(request: ParsedRequest) -> Iterable[RuleFinding]:
    name = request.body.get("threadId")
    if name is not None and not (isinstance(name, str) and UUID.fullmatch(name) is not None):
        yield make_finding(("threadId",), "`threadId` must be a UUID.", problem=repr(name))


@rule(4)
def check_calls_finished(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in find_unfinished_calls(request.messages):
        yield make_finding(turn.path, f"call {turn.wire.get('id')} is still running, although other items follow.")


@rule(5, fix=with_encoded_names)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    for tool in request.tools:
        if not NAMES.accepts(tool.name) or tool.name.startswith(NAMES.reserved):
            message = f"invalid or reserved tool name {tool.name!r}: expected 1 to 128 letters, digits, `_` and `-`."
            yield make_finding(tool.path, message, name=tool.name)


rule(6, fix=with_unique_names)(duplicate_tools)
