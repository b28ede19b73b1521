"""Coercion of almost valid values: what several formats share."""

from collections.abc import Collection, Iterable, Mapping

from contextc._json import JSON, JSONObject, encode
from contextc.formats.lint_engine import JSONPath
from contextc.formats.request_settings import is_list, is_object, object_or_empty
from contextc.messages import tool_call

ROLE_ALIASES = {"developer": "system", "human": "user", "model": "assistant", "ai": "assistant"}
"""Roles of other providers."""
ARGUMENT_NAMES = ("arguments", "input", "args")
"""Names under which providers send the arguments of a call."""


def text_message(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def text_block(text: str) -> JSONObject:
    return {"type": "text", "text": text}


def coerce_messages(value: JSON, path: JSONPath) -> JSON:
    """Return a body with messages, for the path `()`, or a list of them."""
    if is_object(value):
        return [value] if path else {**value, "messages": []}
    return [text_message(value)] if path and isinstance(value, str) else value


def as_text(value: JSON) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else encode(value).decode()


def as_list(value: JSON) -> list[JSON]:
    """Return a list unchanged, and any other value but null as its only item."""
    return value if is_list(value) else [] if value is None else [value]


def as_arguments(value: JSON) -> JSONObject:
    """Return the arguments of a call, which may be given as text."""
    if is_object(value):
        return value
    call = tool_call("-", "-", value if isinstance(value, str) else "")
    return {"malformed_arguments": call.raw} if call.malformed else call.arguments


def as_role(role: JSON, roles: Collection[str], aliases: Mapping[str, str] = ROLE_ALIASES) -> str:
    """Return a role that the format has, "user" for an unknown one."""
    lower = str(role).lower()
    return lower if lower in roles else aliases.get(lower, "user")


def first_given(wire: JSONObject, names: Iterable[str], default: JSON) -> JSON:
    """Return the value of the first of these fields that is not null."""
    return next((wire[name] for name in names if wire.get(name) is not None), default)


def without_nulls(wire: JSONObject) -> JSONObject:
    return {name: value for name, value in wire.items() if value is not None}


def without_fields(wire: JSONObject, names: Collection[str]) -> JSONObject:
    return {name: value for name, value in wire.items() if name not in names}


def without_wrong_types(wire: JSONObject, types: Mapping[str, type]) -> JSONObject:
    """Return an object without the fields that have another type than the one stated."""
    return {name: value for name, value in wire.items() if name not in types or isinstance(value, types[name])}


def inner_tool(tool: JSONObject, holders: Iterable[str] = ("function",)) -> JSONObject | None:
    """Return the object that has the name of a tool: one in a field of `holders`, or the tool; None without a name."""
    inner: JSONObject = next((tool[name] for name in holders if is_object(tool.get(name))), tool)
    return inner if isinstance(inner.get("name"), str) else None


def tool_schema(tool: JSONObject, default: JSONObject) -> JSONObject:
    """Return the schema of a tool's parameters, under the name that any provider gives it."""
    for name in ("inputSchema", "parameters", "input_schema"):
        if is_object(tool.get(name)):
            return tool[name]
    return default


def as_function_tool(tool: JSONObject) -> JSONObject:
    """Return a tool of the Responses API or of Anthropic as one of Chat Completions."""
    schema: JSON = tool.get("parameters") or tool.get("input_schema")
    described = {"description": tool["description"]} if isinstance(tool.get("description"), str) else {}
    function = {"name": tool["name"], **described, "parameters": object_or_empty(schema)}
    return {"type": "function", "function": function}
