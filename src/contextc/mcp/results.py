"""The result of a call of an MCP tool as text and media, and the definition of a tool as ours.

Everything here comes from a server, and is data. A definition that no provider accepts is left out: with it, every
request would be refused.
"""

import base64
import binascii
import json
import re
import unicodedata
from typing import TYPE_CHECKING, cast

from contextc._json import JSON, JSONObject
from contextc.messages import Media, Text
from contextc.tools.definitions import Tool

if TYPE_CHECKING:
    import mcp_types as types

NAME = re.compile(r"\S{1,128}")
MAX_DESCRIPTION_CHARACTERS = 4_000
MAX_SCHEMA_BYTES = 100_000
MAX_SCHEMA_DEPTH = 50
MAX_SCHEMA_PARTS = 2_000
"""Objects and lists in a schema. To check one takes up to a second, and more for each further one."""
MAX_MEDIA_BYTES = 20_000_000
IMAGE_SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
"""First bytes of the image types that models read. Other images become a line of text: a provider would refuse the
request."""
TEXTS = ("title", "description", "$comment")
EMPTY_SCHEMA: JSONObject = {"type": "object", "properties": {}}


def read_definition(name: str, found: "types.Tool") -> Tool | str:
    """Return a server's tool under the name that models get, or the reason why it cannot be offered."""
    if not NAME.fullmatch(found.name):
        return "its name has spaces, or more than 128 characters"
    schema: JSONObject = {**EMPTY_SCHEMA, **found.input_schema}
    if problem := find_schema_problem(schema):
        return problem
    parameters = cast(JSONObject, _clean_texts(schema))
    return Tool(name=name, description=_clean(found.description or found.title or ""), parameters=parameters)


def find_schema_problem(schema: JSONObject) -> str:
    """Return the reason why a schema cannot be sent, or ""."""
    from jsonschema import Draft202012Validator  # it comes with the package mcp
    from jsonschema.exceptions import SchemaError

    if schema.get("type") != "object":
        return "its schema is not that of an object"
    depth, parts = _measure(schema)
    if depth > MAX_SCHEMA_DEPTH:
        return f"its schema is nested more than {MAX_SCHEMA_DEPTH} times"
    if parts > MAX_SCHEMA_PARTS:
        return f"its schema has more than {MAX_SCHEMA_PARTS:,} parts"
    try:
        if len(json.dumps(schema)) > MAX_SCHEMA_BYTES:
            return f"its schema has more than {MAX_SCHEMA_BYTES:,} characters"
        Draft202012Validator.check_schema(schema)
    except (SchemaError, ValueError, RecursionError, TypeError) as error:
        return f"its schema is invalid: {getattr(error, 'message', None) or error}"[:300]
    return ""


def _measure(value: JSON) -> tuple[int, int]:
    """Return how deep a value is nested, and how many objects and lists it has, without recursion."""
    deepest, parts, left = 0, 0, [(value, 1)]
    while left:
        each, depth = left.pop()
        deepest = max(deepest, depth)
        parts += isinstance(each, dict | list)
        if isinstance(each, dict | list) and depth <= MAX_SCHEMA_DEPTH:
            inside = cast(JSONObject, each).values() if isinstance(each, dict) else cast(list[JSON], each)
            left += [(inner, depth + 1) for inner in inside]
    return deepest, parts


def _clean_texts(value: JSON) -> JSON:
    """Return a schema with cleaned titles and descriptions. Names and values stay: calls have them."""
    if isinstance(value, dict):
        return {
            name: visible_text(each) if name in TEXTS and isinstance(each, str) else _clean_texts(each)
            for name, each in cast(JSONObject, value).items()
        }
    return [_clean_texts(each) for each in cast(list[JSON], value)] if isinstance(value, list) else value


def visible_text(text: str) -> str:
    """Return a text without characters that people do not see."""
    return "".join([each for each in text if each in "\n\t" or unicodedata.category(each) not in ("Cc", "Cf", "Co")])


def _clean(text: str) -> str:
    """Return a description without characters that people do not see, and not longer than a description should be."""
    seen = visible_text(text)
    left_out = len(seen) - MAX_DESCRIPTION_CHARACTERS
    return seen if left_out <= 0 else f"{seen[:MAX_DESCRIPTION_CHARACTERS]}… [{left_out:,} characters more]"


def read_content(result: "types.CallToolResult") -> str | list[Text | Media]:
    """Return what a tool returned. Structured content is added as JSON, unless a text has it already."""
    parts = [_read_block(block) for block in result.content]
    structured: JSON = result.structured_content
    if structured is not None and not any(
        [isinstance(each, Text) and _is_json(each.text, structured) for each in parts]
    ):
        parts.append(Text(json.dumps(structured, ensure_ascii=False)))
    if all([isinstance(each, Text) for each in parts]):
        return "\n".join([each.text for each in parts if isinstance(each, Text)])
    return parts


def _is_json(text: str, value: JSON) -> bool:
    try:
        found: JSON = json.loads(text)
    except (ValueError, RecursionError):
        return isinstance(value, dict) and value == {"result": text}
    return found == value or (isinstance(value, dict) and value == {"result": found})


def _read_block(block: "types.ContentBlock") -> Text | Media:
    match block.type:
        case "text":
            return Text(block.text)
        case "image" | "audio":
            return _read_media(block.mime_type, block.data, "")
        case "resource_link":
            note = f": {block.description}" if block.description else ""
            return Text(f"[resource {block.name}, {block.uri}{note}]")
        case "resource":
            resource = block.resource
            text = getattr(resource, "text", None)
            if isinstance(text, str):
                return Text(text)
            return _read_media(
                resource.mime_type or "application/octet-stream", getattr(resource, "blob", ""), str(resource.uri)
            )


def _read_media(mime_type: str, encoded: str, uri: str) -> Text | Media:
    """Return media that models read, or a line that describes others."""
    mime_type, where = mime_type.partition(";")[0].strip().lower(), f" {uri}" if uri else ""
    if len(encoded) * 3 // 4 > MAX_MEDIA_BYTES:
        return Text(f"[{mime_type}{where}: larger than {MAX_MEDIA_BYTES:,} bytes, not shown]")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{mime_type}{where}: not valid base64, not shown]")
    signatures = IMAGE_SIGNATURES.get(mime_type)
    is_readable = data.startswith(signatures) if signatures else mime_type.startswith("audio/") and bool(data)
    if mime_type == "application/pdf":
        is_readable = data.startswith(b"%PDF-")
    return (
        Media(mime_type=mime_type, data=data)
        if is_readable
        else Text(f"[{mime_type}{where}: {len(data):,} bytes, not shown]")
    )
