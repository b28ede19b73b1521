"""Parse Mistral's requests for the rules: required and optional fields of messages and chunks, and their parts.

Mistral rejects every field it does not define. The fields of messages, chunks, calls and tools are all listed here. So
`unknown_field_names` finds the others, and decoding drops them.
"""

from collections.abc import Iterable, Iterator, Mapping

from contextc._json import JSON, JSONObject
from contextc.formats.coercion import text_block, text_message, without_fields, without_nulls, without_wrong_types
from contextc.formats.lint_engine import (
    Fault,
    FieldTypes,
    JSONPath,
    PartKind,
    Problem,
    RequestPart,
    field_names,
    format_dotted_path,
    schema_error,
)
from contextc.formats.mistral import error_texts
from contextc.formats.openai_chat import lint_parser as chat
from contextc.formats.openai_chat.lint_parser import CAMEL_CASE_NAMES, find_function
from contextc.formats.request_parser import TYPED, RequestReader, first_field
from contextc.formats.request_settings import is_object, list_or_empty, object_or_empty

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


def vendor_path(path: JSONPath) -> str:
    """Return a path as Mistral's errors write it: `body.messages.2.content`."""
    return f"body.{format_dotted_path(path)}".removesuffix(".")


def unknown_field_names(wire: JSONObject, fields: FieldTypes, *more: str) -> Iterator[str]:
    """Yield the field names that are neither in `fields` nor in `more`."""
    known = field_names(fields, *more)
    return (name for name in wire if name not in known)


class _Reader(RequestReader):
    messages_required = True
    part_kinds, default_kind = KINDS, "media"

    def message_error(self, wire: JSON) -> Fault | None:
        if wrong := _error(wire, {"role": str}):
            return wrong
        if (role := wire["role"]) not in ROLES:
            message = f"invalid role {role!r}: expected system, user, assistant or tool."
            return Fault("role", message, detail=_wrong_tag_message("role", role, ROLES))
        if role != "tool" and wire.get("tool_call_id") is not None:
            return Fault("tool_call_id", "only a tool message may have a `tool_call_id`.", detail=error_texts.EXTRA)
        if role == "tool" and wire.get("tool_calls"):
            return Fault("tool_calls", "a tool message cannot contain tool calls.", detail=error_texts.EXTRA)
        if camel := first_field(wire, CAMEL_CASE_NAMES):
            return Fault(camel, f"`{camel}` must be written `{CAMEL_CASE_NAMES[camel]}`.", detail=error_texts.EXTRA)
        if wrong := _error(wire, ROLES[role]):
            return wrong
        if (index := chat.find_unnamed_call(wire)) is None:
            return None
        message = f"`tool_calls[{index}]` does not name the tool to call."
        return Fault(f"tool_calls.{index}.function.name", message, detail=error_texts.MISSING)

    def parts(self, wire: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
        if wire["role"] == "tool":
            yield RequestPart(kind="result", path=path, wire=wire, id=wire["tool_call_id"])
        yield from self.blocks(wire.get("content"), (*path, "content"))
        for index, call in enumerate(wire.get("tool_calls") or []):
            here = (*path, "tool_calls", index)
            if wrong := _error(call, CALL) or _error(call["function"], FUNCTION, "function."):
                self.refuse(here, wrong)
            else:
                name = call["function"]["name"]
                yield RequestPart(kind="call", path=here, wire=call, id=call.get("id") or "", name=name)

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        if wrong := _chunk_error(block, CHUNKS):
            return wrong
        if is_object(block.get("image_url")) and (wrong := _error(block["image_url"], IMAGE_URL, "image_url.")):
            return wrong
        thoughts = enumerate(block["thinking"] if block["type"] == "thinking" else ())
        errors = (_chunk_error(each, THINKING_CHUNKS, f"thinking.{index}.") for index, each in thoughts)
        return next(filter(None, errors), None)

    def tool_error(self, tool: JSON) -> Fault | None:
        if _runs_at_provider(object_or_empty(tool)):
            return None
        return _error(tool, TOOL) or _error(tool["function"], FUNCTION_DEFINITION, "function.")

    def tool_name(self, tool: JSONObject) -> str | None:
        return None if _runs_at_provider(tool) else tool["function"]["name"]

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        where = vendor_path((*path, *fault.field.removesuffix(".").split(".")) if fault.field else path)
        if fault.problem is Problem.TYPE:
            return error_texts.WRONG_TYPE.format(where=where, kind=TYPE_NAMES[fault.expected[0]])
        return (fault.detail or error_texts.MISSING).format(where=where)


parse_request = _Reader.parse


def _runs_at_provider(tool: JSONObject) -> bool:
    return tool.get("type") in OTHER_TOOLS and "function" not in tool


def _chunk_error(chunk: JSON, kinds: Mapping[str, FieldTypes], before: str = "") -> Fault | None:
    """Return the fault of a chunk if its type is unknown or a field of that type is missing."""
    if wrong := _error(chunk, TYPED, before):
        return wrong
    if (kind := chunk["type"]) in kinds:
        return _error(chunk, kinds[kind], before)
    return Fault(f"{before}type", f"unknown chunk type {kind!r}.", detail=_wrong_tag_message("type", kind, kinds))


def _error(value: object, fields: FieldTypes, before: str = "") -> Fault | None:
    """Return the fault of a value that is not an object with these fields."""
    wrong = schema_error(value, fields)
    return wrong._replace(field=before + wrong.field) if wrong else None


def _wrong_tag_message(field: str, value: str, known: Iterable[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in known)
    shown = value.replace("{", "{{").replace("}", "}}")
    return error_texts.WRONG_TAG.format(where="{where}", value=shown, field=field, known=listed)


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Coerce an almost valid message, chunk, call or tool, as OpenAI and others write them."""
    shaped: JSON = chat.coerce_value(value, path)
    if not is_object(shaped):
        return shaped
    match path:
        case ("messages", _):
            return _reshaped_message(shaped)
        case ("messages", _, "tool_calls", _):
            return _reshaped_call(shaped)
        case ("messages", _, *_):
            return _reshaped_chunk(shaped)
        case ("tools", _) if is_object(shaped.get("function")):
            return _reshaped_tool(shaped)
        case _:
            return shaped


def _reshaped_message(wire: JSONObject) -> JSONObject:
    role = ROLE_ALIASES.get(str(wire.get("role")), wire.get("role"))
    if not isinstance(role, str) or role not in ROLES or "content" not in wire:
        return wire
    calls = [
        *list_or_empty(wire.get("tool_calls")),
        *([wire["function_call"]] if find_function(wire.get("function_call")) else []),
    ]
    kept = {**without_fields(wire, list(unknown_field_names(wire, ROLES[role], "role"))), "role": role}
    if calls:
        kept["tool_calls"] = [
            _reshaped_call(chat.coerce_value(call, ("messages", 0, "tool_calls", 0))) for call in calls
        ]
    kept = without_wrong_types(kept, {"prefix": bool, "name": str})
    refusal: JSON = wire.get("refusal")
    if isinstance(refusal, str) and refusal and not kept.get("content"):
        kept["content"] = refusal
    return kept


def _reshaped_call(call: JSONObject) -> JSONObject:
    """Return a function call, also for a call of a custom tool, whose input is a text."""
    custom: JSON = call.get("custom")
    function = {"name": custom["name"], "arguments": custom["input"]} if custom else call.get("function")
    kept = {name: each for name, each in call.items() if name in ("id", "type") and isinstance(each, str)}
    return {**kept, "type": "function", "function": function}


def _reshaped_chunk(wire: JSONObject) -> JSONObject:
    if wire.get("type") == "thinking" and isinstance(wire.get("thinking"), str):
        return {**wire, "thinking": [text_block(wire["thinking"])]}
    if wire.get("type") == "refusal" and isinstance(wire.get("refusal"), str):
        return text_block(wire["refusal"])
    return without_nulls(wire)


def _reshaped_tool(wire: JSONObject) -> JSONObject:
    function = without_wrong_types(wire["function"], {"description": str, "strict": bool})
    return {**wire, "function": {**function, "parameters": object_or_empty(function.get("parameters"))}}
