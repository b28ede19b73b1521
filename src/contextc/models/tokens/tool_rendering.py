"""Tool definitions in the form that a model reads, which differs from the form that is sent.

OpenAI renders a TypeScript namespace, Anthropic the JSON itself, and Gemini counts names, descriptions and parameters.
All vendors' definitions have a name, a description and a JSON Schema.
"""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from contextc._json import JSON, JSONObject

MAX_DEPTH = 20
HEAD = "# Tools\n\n## functions\n\nnamespace functions {\n\n"
TAIL = "} // namespace functions"
SCHEMA_PLACES = ("parameters", "input_schema", "parametersJsonSchema", "parameters_json_schema", "inputSchema")


class ToolFunction(NamedTuple):
    name: str
    description: str
    parameters: JSONObject


def split_functions(tools: Sequence[JSONObject]) -> tuple[list[ToolFunction], list[JSONObject]]:
    """Return the functions among tool definitions of any vendor, and the others, which the provider runs itself."""
    found: list[ToolFunction] = []
    others: list[JSONObject] = []
    for tool in tools:
        inside = list(_inside(tool))
        found += [_function(each) for each in inside]
        if not inside:
            others.append(tool)
    return found, others


def _inside(tool: JSONObject) -> Iterator[JSONObject]:
    for place in ("functionDeclarations", "function_declarations"):
        if isinstance(tool.get(place), list):
            yield from (each for each in cast(list[JSON], tool[place]) if isinstance(each, dict))
            return
    for place in ("function", "toolSpec"):
        if isinstance(tool.get(place), dict):
            yield cast(JSONObject, tool[place])
            return
    if isinstance(tool.get("name"), str) and (
        tool.get("type") in (None, "function", "custom") or any(place in tool for place in SCHEMA_PLACES)
    ):
        yield tool


def _function(tool: JSONObject) -> ToolFunction:
    found = [cast(JSONObject, tool[place]) for place in SCHEMA_PLACES if isinstance(tool.get(place), dict)]
    schema = found[0] if found else {}
    if isinstance(schema.get("json"), dict) and "type" not in schema:
        schema = schema["json"]  # Bedrock's wrapping
    return ToolFunction(str(tool.get("name") or ""), str(tool.get("description") or ""), schema)


def dump_json(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)


def get_properties(schema: JSONObject) -> JSONObject:
    found = schema.get("properties")
    return cast(JSONObject, found) if isinstance(found, dict) else {}


def render_typescript(found: Sequence[ToolFunction]) -> str:
    """Return the TypeScript namespace that OpenAI's models read."""
    return HEAD + "".join([_declaration(each) for each in found]) + TAIL


def _declaration(function: ToolFunction) -> str:
    comment = f"// {function.description}\n" if function.description else ""
    fields = _fields(function.parameters, function.parameters.get("$defs"), 0)
    takes = f"(_: {{\n{fields}}})" if fields else "()"
    return f"{comment}type {function.name} = {takes} => any;\n\n"


def _fields(schema: JSONObject, definitions: JSON, depth: int) -> str:
    needed = schema.get("required")
    needed = cast(list[JSON], needed) if isinstance(needed, list) else []
    lines: list[str] = []
    for name, field in get_properties(schema).items():
        field = cast(JSONObject, field) if isinstance(field, dict) else {}
        if description := field.get("description"):
            lines.append(f"// {description}\n")
        default = f" // default: {dump_json(field['default'])}" if "default" in field else ""
        lines.append(f"{name}{'' if name in needed else '?'}: {_type(field, definitions, depth + 1)},{default}\n")
    return "".join(lines)


def _type(schema: JSON, definitions: JSON, depth: int) -> str:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return "any"
    schema = cast(JSONObject, schema)
    if isinstance(reference := schema.get("$ref"), str) and isinstance(definitions, dict):
        return _type(cast(JSONObject, definitions).get(reference.rpartition("/")[2]), definitions, depth + 1)
    if isinstance(schema.get("enum"), list):
        return " | ".join([dump_json(each) for each in schema["enum"]])
    if "const" in schema:
        return dump_json(schema["const"])
    for place in ("anyOf", "oneOf"):
        if isinstance(schema.get(place), list):
            return " | ".join([_type(each, definitions, depth + 1) for each in schema[place]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join([_type({**schema, "type": each}, definitions, depth + 1) for each in cast(list[JSON], kind)])
    match kind:
        case "integer" | "number":
            return "number"
        case "array":
            return _type(schema.get("items"), definitions, depth + 1) + "[]"
        case "object":
            fields = _fields(schema, definitions, depth)
            return f"{{\n{fields}}}" if fields else "object"
        case _:
            return str(kind or "any")
