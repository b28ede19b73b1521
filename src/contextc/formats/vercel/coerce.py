"""Coerce almost valid messages, parts and tools of the AI SDK: older versions, and those of OpenAI."""

from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.coercion import (
    ROLE_ALIASES,
    as_arguments,
    as_role,
    as_text,
    text_block,
    text_message,
    without_fields,
    without_wrong_types,
)
from contextc.formats.lint_engine import JSONPath
from contextc.formats.request_settings import is_object
from contextc.formats.vercel.schema import CONTENT, REMOVED_FIELDS, STATE_FIELDS
from contextc.formats.vercel.ui_messages import is_ui_message

ALIASES = {**ROLE_ALIASES, "function": "tool"}
STATES = {"partial-call": "input-streaming", "call": "input-available", "result": "output-available"}
UNKNOWN_TOOL = "unknown"
UNKNOWN_TYPE = "application/octet-stream"


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return the value in a valid form of the same meaning; unchanged if there is none."""
    if path[0] in ("instructions", "system"):
        return _prompt(value, listed=len(path) > 1)
    if path[0] == "tools":
        return _tool(value)
    if path == ("messages",):
        return [] if value is None else [_message(value)]
    return _message(value) if len(path) == 2 else _part(value)


def _prompt(value: JSON, *, listed: bool) -> JSON:
    content: JSON = cast(JSONObject, value).get("content") if isinstance(value, dict) else value
    text = as_text(content if content is not None else value)
    return {"role": "system", "content": text} if listed else text


def _tool(value: JSON) -> JSON:
    if not isinstance(value, dict):
        return None
    tool = cast(JSONObject, value)
    if tool.get("inputSchema") is None and isinstance(tool.get("parameters"), dict):
        return {**without_fields(tool, ("parameters",)), "inputSchema": tool["parameters"]}
    return tool


def _message(value: JSON) -> JSON:
    if not isinstance(value, dict):
        return text_message(as_text(value))
    wire = without_wrong_types(cast(JSONObject, value), {"providerOptions": dict})
    role = as_role(wire.get("role"), CONTENT, ALIASES)
    content: JSON = wire.get("content")
    if is_ui_message(wire):
        named = {"id": wire["id"]} if isinstance(wire.get("id"), str) else {}
        return {**without_fields(wire, ("id",)), **named, "role": "assistant" if role == "tool" else role}
    if calls := _legacy_calls(wire):
        said = (
            cast(list[JSON], content)
            if isinstance(content, list)
            else [text_block(as_text(content))]
            if content
            else []
        )
        return {"role": "assistant", "content": [*said, *calls]}
    if "content" not in wire and wire.keys() - {"role"}:
        return cast(JSONObject, value)
    if role == "tool" and not isinstance(content, list):
        return _legacy_result(wire) or text_message(as_text(content))
    if role == "system":
        parts = cast(list[JSON], content) if isinstance(content, list) else [content or ""]
        content = "\n\n".join(as_text(_text(part)) for part in parts)
    elif not isinstance(content, str | list):
        part: JSON = content if is_object(content) else text_block(as_text(content))
        content = [] if content is None else [part]
    return {**without_fields(wire, REMOVED_FIELDS), "role": role, "content": cast(JSON, content)}


def _legacy_calls(wire: JSONObject) -> list[JSONObject]:
    """Return the calls and results that older versions kept in fields beside the content."""
    found: list[JSONObject] = []
    if is_object(function := wire.get("function_call")):
        name = str(function.get("name") or UNKNOWN_TOOL)
        found.append(_call(str(wire.get("tool_call_id") or f"call_{name}"), name, function.get("arguments")))
    for call in list_objects(wire.get("tool_calls")):
        function = cast(JSONObject, call["function"] if is_object(call.get("function")) else call)
        name = str(function.get("name") or UNKNOWN_TOOL)
        found.append(_call(str(call.get("id") or f"call_{name}"), name, function.get("arguments")))
    for each in list_objects(wire.get("toolInvocations")):
        name = str(each.get("toolName") or UNKNOWN_TOOL)
        names = {"toolCallId": str(each.get("toolCallId") or f"call_{name}"), "toolName": name}
        found.append({"type": "tool-call", **names, "input": each.get("args", {})})
        if "result" in each:
            found.append({"type": "tool-result", **names, "output": _output(each["result"])})
    return found


def _legacy_result(wire: JSONObject) -> JSONObject | None:
    name = str(wire.get("name") or UNKNOWN_TOOL)
    call_id = wire.get("tool_call_id") or (f"call_{name}" if wire.get("name") else None)
    if call_id is None:
        return None
    names = {"toolCallId": str(call_id), "toolName": name}
    output = {"type": "text", "value": as_text(wire.get("content") or "")}
    return {"role": "tool", "content": [{"type": "tool-result", **names, "output": output}]}


def _call(call_id: str, name: str, arguments: JSON) -> JSONObject:
    given = arguments if is_object(arguments) else as_arguments(as_text(arguments or ""))
    return {"type": "tool-call", "toolCallId": call_id, "toolName": name, "input": given}


def _part(value: JSON) -> JSON:
    if isinstance(value, str):
        return text_block(value)
    if not isinstance(value, dict):
        return value
    part = without_wrong_types(cast(JSONObject, value), {"providerOptions": dict, "providerMetadata": dict})
    kind = str(part.get("type"))
    if kind == "tool-invocation" and is_object(old := part.get("toolInvocation")):
        output = {"output": old["result"]} if "result" in old else {}
        return {
            "type": f"tool-{old.get('toolName') or UNKNOWN_TOOL}",
            "toolCallId": str(old.get("toolCallId")),
            "state": STATES.get(str(old.get("state")), "input-available"),
            "input": old.get("args", {}),
            **output,
        }
    if kind == "tool-result":
        rest = without_fields(part, ("result",))
        given: JSON = part.get("output", part.get("result"))
        return {"toolName": UNKNOWN_TOOL, **rest, "output": _output(given)}
    if kind == "tool-call" or "state" in part:
        rest = without_fields(part, ("args",))
        known = [state for name, state in STATE_FIELDS.items() if "state" in part and part.get(name) is not None]
        return {**rest, **({"state": known[0]} if known else {}), "input": part.get("input", part.get("args", {}))}
    return _file(part) if kind in ("file", "image", "reasoning-file") else part


def _file(part: JSONObject) -> JSONObject:
    data: JSON = part.get("data", part.get("image", part.get("url")))
    inline: JSON = cast(JSONObject, data).get("data") if isinstance(data, dict) else None
    if isinstance(inline, str) and inline.startswith("data:"):
        return {**part, "image" if "image" in part else "data": inline}
    if data is None or part["type"] == "image":
        return part
    head = data.partition(";")[0].removeprefix("data:") if isinstance(data, str) and data.startswith("data:") else ""
    mime_type = part.get("mediaType") or part.get("mimeType") or head or UNKNOWN_TYPE
    place = "url" if "url" in part else "data"
    rest = without_fields(part, ("mimeType",))
    return {**rest, place: data, "mediaType": mime_type} if isinstance(mime_type, str) else part


def _output(value: JSON) -> JSONObject:
    if isinstance(value, str):
        return {"type": "text", "value": value}
    return {"type": "json", "value": value}


def list_objects(value: JSON) -> list[JSONObject]:
    """Return the objects in a list; none if the value is not a list."""
    return [each for each in cast(list[JSON], value) if is_object(each)] if isinstance(value, list) else []


def _text(part: JSON) -> JSON:
    """Return the text of a text part; any other value unchanged."""
    return part["text"] if is_object(part) and isinstance(part.get("text"), str) else part
