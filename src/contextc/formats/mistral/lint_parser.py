"""Parse Mistral's requests for the rules: required and optional fields of messages and chunks, and their parts.

Mistral rejects every field it does not define. The fields of messages, chunks, calls and tools are all listed here. So
`unknown_field_names` finds the others, and decoding drops them.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.lint_engine import (
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    RequestMessage,
    RequestPart,
    RuleFinding,
    format_dotted_path,
    make_finding,
    schema_error,
)
from contextc.formats.mistral import error_texts
from contextc.formats.openai_chat import lint_parser as chat
from contextc.formats.openai_chat.lint_parser import find_function, text_block, text_message

__all__ = [
    "ALLOWED_CHUNKS",
    "CHUNKS",
    "coerce_value",
    "find_function",
    "parse_request",
    "text_block",
    "text_message",
    "unknown_field_names",
]

CONTENT_FIELDS: FieldTypes = {"content": (str, list), "tool_calls?": list}
ROLES: dict[str, FieldTypes] = {
    "system": CONTENT_FIELDS,
    "user": CONTENT_FIELDS,
    "assistant": {"content?": (str, list), "tool_calls?": list, "prefix?": bool},
    "tool": {"content": (str, list), "tool_call_id": str, "name?": str},
}
CHUNKS: dict[str, FieldTypes] = {
    "text": {"text": str},
    "image_url": {"image_url": (str, dict)},
    "document_url": {"document_url": str, "document_name?": str},
    "input_audio": {"input_audio": str},
    "file": {"file_id": str},
    "reference": {"reference_ids": list},
    "resource": {"uri": str, "content": dict},
    "resource_link": {"uri": str, "metadata?": dict},
    "thinking": {"thinking": list, "signature?": str, "closed?": bool},
}
THINKING_CHUNKS: dict[str, FieldTypes] = {
    "text": {"text": str},
    "reference": {"reference_ids": list},
    "tool_reference": {"tool": str, "title": str, "url?": str, "favicon?": str, "description?": str},
}
ALLOWED_CHUNKS: dict[str, tuple[str, ...]] = {
    "system": ("text", "thinking"),
    "user": tuple(kind for kind in CHUNKS if kind != "thinking"),
    "assistant": tuple(kind for kind in CHUNKS if kind not in ("image_url", "input_audio")),
    "tool": tuple(kind for kind in CHUNKS if kind != "thinking"),
}
"""Chunk types that a message of each role may hold. The newest models reject thinking chunks of the system."""
IMAGE_URL: FieldTypes = {"url": str, "detail?": str}
CALL: FieldTypes = {"id?": str, "type?": str, "index?": int, "function": dict}
FUNCTION: FieldTypes = {"name": str, "arguments": (str, dict)}
TOOL: FieldTypes = {"type?": str, "function": dict}
FUNCTION_DEFINITION: FieldTypes = {"name": str, "parameters": dict, "description?": str, "strict?": bool}
OTHER_TOOLS = ("connector", "document_library", "image_generation")
KINDS: dict[str, PartKind] = {
    "text": "text",
    "thinking": "reasoning",
    "reference": "other",
    "resource": "other",
    "resource_link": "other",
}
"""Chunk types that are not media."""
TYPE_NAMES: dict[type, str] = {str: "string", list: "list", dict: "dictionary", bool: "boolean", int: "integer"}
ROLE_ALIASES = {"developer": "system", "function": "user"}


def parse_request(body: JSON) -> ParsedRequest:
    """Parse any JSON value as a request, or as the messages of one."""
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    messages: JSON = whole.get("messages") if isinstance(body, dict) else body
    base: JSONPath = ("messages",) if isinstance(body, dict) else ()
    reader = _Reader()
    turns: list[RequestMessage] = []
    if isinstance(messages, list):
        for index, wire in enumerate(cast(list[JSON], messages)):
            turns += reader.turn(wire, (*base, index))
    elif isinstance(body, dict) and "messages" not in body:
        reader.refuse((), "messages", "`messages` is missing.", error_texts.MISSING)
    else:
        reader.refuse(base, "", "the messages must be a list.", error_texts.WRONG_TYPE, kind="list")
    tools = tuple(reader.tools(whole.get("tools")))
    return ParsedRequest(messages=tuple(turns), body=whole, tools=tools, malformed=tuple(reader.misshapen))


def vendor_path(path: JSONPath) -> str:
    """Return a path as Mistral's errors write it: `body.messages.2.content`."""
    return f"body.{format_dotted_path(path)}".removesuffix(".")


def unknown_field_names(wire: JSONObject, fields: FieldTypes, *more: str) -> Iterator[str]:
    """Yield the field names that are neither in `fields` nor in `more`."""
    known = {name.removesuffix("?") for name in (*fields, *more)}
    return (name for name in wire if name not in known)


class _Reader:
    def __init__(self) -> None:
        self.misshapen: list[RuleFinding] = []

    def turn(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if self.is_wrong(path, wire, {"role": str}):
            return
        given = cast(JSONObject, wire)
        role = given["role"]
        if role not in ROLES:
            self.refuse(
                path,
                "role",
                f"invalid role {role!r}: expected system, user, assistant or tool.",
                _wrong_tag_message("role", role, ROLES),
            )
        elif role != "tool" and given.get("tool_call_id") is not None:
            self.refuse(path, "tool_call_id", "only a tool message may have a `tool_call_id`.", error_texts.EXTRA)
        elif role == "tool" and given.get("tool_calls"):
            self.refuse(path, "tool_calls", "a tool message cannot contain tool calls.", error_texts.EXTRA)
        elif camel := next((name for name in chat.CAMEL_CASE_NAMES if given.get(name)), None):
            self.refuse(path, camel, f"`{camel}` must be written `{chat.CAMEL_CASE_NAMES[camel]}`.", error_texts.EXTRA)
        elif not self.is_wrong(path, given, ROLES[role]) and not self.is_unnamed(given, path):
            pieces = (
                [RequestPart(kind="result", path=path, wire=given, id=given["tool_call_id"])] if role == "tool" else []
            )
            pieces += self.chunks(given.get("content"), (*path, "content"))
            pieces += self.calls(given.get("tool_calls"), (*path, "tool_calls"))
            yield RequestMessage(role=role, path=path, wire=given, parts=tuple(pieces))

    def is_unnamed(self, given: JSONObject, path: JSONPath) -> bool:
        """Refuse a message with a tool call that has no tool name; return True if there is one."""
        for index, call in enumerate(cast(list[JSON], given.get("tool_calls") or [])):
            if find_function(call) is None:
                place = f"tool_calls.{index}.function.name"
                self.refuse(path, place, f"`tool_calls[{index}]` does not name the tool to call.", error_texts.MISSING)
                return True
        return False

    def chunks(self, content: JSON, path: JSONPath) -> Iterator[RequestPart]:
        if isinstance(content, str):
            yield RequestPart(kind="text", path=path, wire={}, text=content)
        for index, chunk in enumerate(cast(list[JSON], content if isinstance(content, list) else [])):
            here = (*path, index)
            if self.is_wrong(here, chunk, {"type": str}) or self.is_strange(here, cast(JSONObject, chunk), CHUNKS):
                continue
            wire = cast(JSONObject, chunk)
            picture: object = wire.get("image_url")
            if isinstance(picture, dict) and self.is_wrong(here, cast(object, picture), IMAGE_URL, "image_url."):
                continue
            if wire["type"] == "thinking" and not self.is_thought(wire["thinking"], here):
                continue
            text = wire["text"] if wire["type"] == "text" else ""
            yield RequestPart(kind=KINDS.get(wire["type"], "media"), path=here, wire=wire, text=text)

    def is_thought(self, thinking: list[JSON], path: JSONPath) -> bool:
        for index, each in enumerate(thinking):
            before = f"thinking.{index}."
            if self.is_wrong(path, each, {"type": str}, before) or self.is_strange(path, each, THINKING_CHUNKS, before):
                return False
        return True

    def calls(self, calls: JSON, path: JSONPath) -> Iterator[RequestPart]:
        for index, call in enumerate(cast(list[JSONObject], calls or [])):
            here = (*path, index)
            if not (self.is_wrong(here, call, CALL) or self.is_wrong(here, call["function"], FUNCTION, "function.")):
                yield RequestPart(
                    kind="call", path=here, wire=call, id=call.get("id") or "", name=call["function"]["name"]
                )

    def tools(self, tools: JSON) -> Iterator[RequestPart]:
        if tools is not None and not isinstance(tools, list):
            self.refuse(("tools",), "", "the tools must be a list.", error_texts.WRONG_TYPE, kind="list")
        for index, tool in enumerate(cast(list[JSON], tools if isinstance(tools, list) else [])):
            path: JSONPath = ("tools", index)
            wire = cast(JSONObject, tool if isinstance(tool, dict) else {})
            if wire.get("type") in OTHER_TOOLS and "function" not in wire:
                continue
            if not (
                self.is_wrong(path, cast(object, tool), TOOL)
                or self.is_wrong(path, wire["function"], FUNCTION_DEFINITION, "function.")
            ):
                yield RequestPart(kind="other", path=path, wire=wire, id=wire["function"]["name"])

    def is_strange(self, path: JSONPath, wire: JSONObject, kinds: dict[str, FieldTypes], before: str = "") -> bool:
        """Return True, and refuse the chunk, if its type is unknown or a field of that type is missing."""
        kind = wire["type"]
        if kind in kinds:
            return self.is_wrong(path, wire, kinds[kind], before)
        self.refuse(path, f"{before}type", f"unknown chunk type {kind!r}.", _wrong_tag_message("type", kind, kinds))
        return True

    def is_wrong(self, path: JSONPath, value: object, fields: FieldTypes, before: str = "") -> bool:
        """Return True, and refuse the value, if it is not an object with these fields."""
        if (wrong := schema_error(value, fields)) is None:
            return False
        name, said = wrong
        kinds = fields.get(name, fields.get(f"{name}?", dict)) if name else dict
        kind = TYPE_NAMES[kinds[0] if isinstance(kinds, tuple) else kinds]
        self.refuse(
            path,
            before + name,
            said,
            error_texts.MISSING if "missing" in said else error_texts.WRONG_TYPE,
            kind=kind,
        )
        return True

    def refuse(self, path: JSONPath, field: str, message: str, says: str, **facts: str) -> None:
        where = vendor_path((*path, *field.removesuffix(".").split(".")) if field else path)
        self.misshapen.append(make_finding(path, message, what=says.format(where=where, **facts)))


def _wrong_tag_message(field: str, value: str, known: Iterable[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in known)
    shown = value.replace("{", "{{").replace("}", "}}")
    return error_texts.WRONG_TAG.format(where="{where}", value=shown, field=field, known=listed)


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Coerce an almost valid message, chunk, call or tool, as OpenAI and others write them."""
    shaped = chat.coerce_value(value, path)
    match path:
        case ("messages", _) if isinstance(shaped, dict):
            return _reshaped_message(cast(JSONObject, shaped))
        case ("messages", _, "tool_calls", _) if isinstance(shaped, dict):
            return _reshaped_call(cast(JSONObject, shaped))
        case ("messages", *_) if isinstance(shaped, dict):
            return _reshaped_chunk(cast(JSONObject, shaped))
        case ("tools", _) if isinstance(shaped, dict) and isinstance(cast(JSONObject, shaped).get("function"), dict):
            return _reshaped_tool(cast(JSONObject, shaped))
        case _:
            return cast(JSON, shaped)


def _reshaped_message(wire: JSONObject) -> JSONObject:
    role = ROLE_ALIASES.get(str(wire.get("role")), wire.get("role"))
    if not isinstance(role, str) or role not in ROLES or "content" not in wire:
        return wire
    function = find_function(wire.get("function_call"))
    calls = [*cast(list[JSON], wire.get("tool_calls") or []), *([wire["function_call"]] if function else [])]
    kept = {name: each for name, each in wire.items() if name not in unknown_field_names(wire, ROLES[role], "role")}
    kept = {**kept, "role": role}
    if calls:
        kept["tool_calls"] = [
            _reshaped_call(chat.coerce_value(call, ("messages", 0, "tool_calls", 0))) for call in calls
        ]
    for name, kind in (("prefix", bool), ("name", str)):
        if name in kept and not isinstance(kept[name], kind):
            del kept[name]
    refusal: JSON = wire.get("refusal")
    if isinstance(refusal, str) and refusal and not kept.get("content"):
        kept["content"] = refusal
    return kept


def _reshaped_call(call: JSONObject) -> JSONObject:
    """Return a function call, also for a call of a custom tool, whose input is a text."""
    custom = cast(JSONObject | None, call.get("custom"))
    function = {"name": custom["name"], "arguments": custom["input"]} if custom else call.get("function")
    kept = {name: each for name, each in call.items() if name in ("id", "type") and isinstance(each, str)}
    return {**kept, "type": "function", "function": function}


def _reshaped_chunk(wire: JSONObject) -> JSONObject:
    if wire.get("type") == "thinking" and isinstance(wire.get("thinking"), str):
        return {**wire, "thinking": [text_block(wire["thinking"])]}
    if wire.get("type") == "refusal" and isinstance(wire.get("refusal"), str):
        return text_block(wire["refusal"])
    return {name: each for name, each in wire.items() if each is not None}


def _reshaped_tool(wire: JSONObject) -> JSONObject:
    function = cast(JSONObject, wire["function"])
    parameters: JSON = function.get("parameters")
    sound = {
        name: each for name, each in function.items() if f"{name}?" not in FUNCTION_DEFINITION or _is(each, f"{name}?")
    }
    return {**wire, "function": {**sound, "parameters": parameters if isinstance(parameters, dict) else {}}}


def _is(value: JSON, name: str) -> bool:
    return isinstance(value, FUNCTION_DEFINITION[name])
