"""Codecs of tool definitions. All formats have a name, a description and a schema, under different names."""

from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import merge_extra, own_extra
from contextc.messages import Extra
from contextc.tools.spec import Tool

NO_PARAMETERS: JSONObject = {"type": "object", "properties": {}}


def encode_definition(tool: Tool, schema_key: str, schema: JSON = None, *, strict: bool = True) -> JSONObject:
    """Return the fields of a tool. `schema` is the tool's own by default, and `strict` is False if there is no flag."""
    definition: JSONObject = {"name": tool.name}
    if tool.description:
        definition["description"] = tool.description
    definition[schema_key] = (tool.parameters or {"type": "object"}) if schema is None else schema
    if strict and tool.strict is not None:
        definition["strict"] = tool.strict
    return definition


def decode_definition(wire: JSONObject, schema_key: str, *, strict: bool = True) -> Tool:
    """Return a tool from its fields. This reverses `encode_definition`."""
    return Tool(
        name=wire["name"],
        description=wire.get("description") or "",
        parameters=wire.get(schema_key) or {},
        strict=wire.get("strict") if strict else None,
    )


def merge_function_extra(ours: JSONObject, extra: Extra | None, provider: str) -> JSONObject:
    """Return our encoding of a tool or call with the provider's own data restored, also inside its `function`."""
    rest = dict(own_extra(extra, provider))
    inside = cast(JSONObject, rest.pop("function", {}))
    whole = merge_extra(ours, {provider: rest}, provider)
    return {**whole, "function": merge_extra(ours["function"], {provider: inside}, provider)} if inside else whole
