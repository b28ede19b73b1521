"""Error texts for invalid arguments of a tool call, for the model: the field, the value, the expected type."""

import difflib
import re
from collections.abc import Collection
from typing import cast

import msgspec

from contextc._json import JSON, JSONObject, fix_surrogates_in_json

PATH_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
MAX_SHOWN_CHARACTERS = 120
TYPE_NAMES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def unknown_field_error(name: str, known: Collection[str], inside: str = "") -> str:
    alike = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean `{alike[0]}`?" if alike else ""
    return f"There is no {'field' if inside else 'parameter'} `{inside}{name}`.{hint}"


def nested_field_errors(schema: JSONObject, value: JSON, place: str = "") -> list[str]:
    """Return errors for unknown fields in nested objects, which msgspec ignores in dataclasses and TypedDicts."""
    objects = [
        arm for arm in cast(list[JSONObject], schema.get("anyOf", ())) if arm.get("type") == json_type_name(value)
    ]
    schema = objects[0] if len(objects) == 1 else schema
    if isinstance(value, list):
        items = cast(JSONObject, schema.get("items", {}))
        return [
            each
            for n, item in enumerate(cast(list[JSON], value))
            for each in nested_field_errors(items, item, f"{place}[{n}]")
        ]
    properties = cast(JSONObject, schema.get("properties", {}))
    if not isinstance(value, dict) or not properties:
        return []
    fields = cast(JSONObject, value)
    closed = place and schema.get("additionalProperties") is False
    found = [
        unknown_field_error(name, list(properties), f"{place}.") for name in fields if closed and name not in properties
    ]
    for name, each in fields.items():
        if name in properties:
            found += nested_field_errors(properties[name], each, f"{place}.{name}".lstrip("."))
    return found


def conversion_error(error: Exception, given: JSONObject) -> str:
    """Return the error of msgspec with the value that it refers to."""
    problem, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    value: JSON = given
    try:
        for name, index in PATH_STEP.findall(path):
            value = value[name] if name else value[int(index)]
    except (KeyError, IndexError, TypeError):
        return f"`{path.lstrip('.')}`: {problem}."
    shown = msgspec.json.encode(fix_surrogates_in_json(value)).decode()
    return f"`{path.lstrip('.')}`: {problem}: {shown if len(shown) <= MAX_SHOWN_CHARACTERS else shown[:MAX_SHOWN_CHARACTERS] + '…'}."


def json_type_name(value: object) -> str:
    """Return the JSON Schema name of a value's type."""
    return TYPE_NAMES.get(type(value), "null")


def tool_signature(name: str, schema: JSONObject) -> str:
    """Return the signature of a tool as one line: `read_file(path: string, limit?: integer)`."""
    required = cast(list[str], schema.get("required", []))
    properties = cast(JSONObject, schema.get("properties", {}))
    told = [f"{each}{'' if each in required else '?'}: {_schema_type(inner)}" for each, inner in properties.items()]
    return f"{name}({', '.join(told)})"


def _schema_type(schema: JSON) -> str:
    if not isinstance(schema, dict):
        return "any"
    known = cast(JSONObject, schema)
    if "enum" in known:
        return " | ".join(msgspec.json.encode(each).decode() for each in known["enum"])
    if "anyOf" in known:
        return " | ".join(_schema_type(arm) for arm in known["anyOf"])
    if known.get("type") == "array":
        return f"array of {_schema_type(known.get('items', {}))}"
    if known.get("properties"):
        return "{" + tool_signature("", known)[1:-1] + "}"
    kind: JSON = known.get("type", "any")
    return " | ".join(cast(list[str], kind)) if isinstance(kind, list) else str(kind)
