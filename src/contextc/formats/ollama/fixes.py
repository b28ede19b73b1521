"""Repairs that decoding and encoding does not make: images, settings and tool schemas."""

import re
from collections.abc import Mapping
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.fix_builders import change_messages, without_fields
from contextc.formats.media_encoding import decode_base64
from contextc.formats.ollama.request_settings import THINK_LEVELS
from contextc.formats.ollama.tool_schema_check import remove_type_mismatches
from contextc.formats.request_settings import object_or_empty

MAX_LOGPROBS, MAX_NAME_LENGTH = 20, 200
NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
INTEGERS = ("num_ctx", "num_predict", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "seed", "top_k")
FLOATS = ("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
OPTIONS: Mapping[str, str] = {
    **dict.fromkeys((*INTEGERS, "repeat_last_n"), "type integer"),
    **dict.fromkeys(FLOATS, "type float32"),
    "use_mmap": "type boolean",
    "stop": "type array",
}
"""Ollama's names for the types of its options. A fraction is truncated where an integer is expected."""


def with_plain_images(body: JSONObject) -> JSONObject:
    """Reduce images to plain base64; replace those without data by a line of text."""
    return change_messages(body, _with_plain_images)


def _with_plain_images(wire: JSONObject) -> JSONObject:
    given = cast(list[str], wire.get("images") or [])
    if all(first_invalid_byte(image) is None for image in given):
        return wire
    shown = [image for image in map(strip_data_url, given) if first_invalid_byte(image) is None]
    lost = [
        f"[image: {_shorten(image)}; not shown]"
        for image in map(strip_data_url, given)
        if first_invalid_byte(image) is not None
    ]
    words = "\n\n".join([text for text in (wire.get("content"), *lost) if text])
    return {**without_fields(wire, "images"), "content": words, **({"images": shown} if shown else {})}


def _shorten(image: str) -> str:
    return image if len(image) <= MAX_NAME_LENGTH else f"{image[:MAX_NAME_LENGTH]}…"


def strip_data_url(image: str) -> str:
    """Return an image without the prefix of a data URL."""
    head, comma, data = image.partition(",")
    return data if comma and head.startswith("data:") and head.endswith(";base64") else image


def first_invalid_byte(image: str) -> int | None:
    """Return the position of the first byte that is not base64, as Go counts; None if all are valid."""
    plain = image.replace("\r", "").replace("\n", "")
    if decode_base64(plain) is not None:
        return None
    strange = NOT_BASE64.search(plain)
    return strange.start() if strange else len(plain) // 4 * 4


def with_valid_options(body: JSONObject) -> JSONObject:
    return {**body, "options": without_fields(object_or_empty(body["options"]), *invalid_options(body))}


def with_allowed_logprobs(body: JSONObject) -> JSONObject:
    return {**body, "top_logprobs": min(max(body["top_logprobs"], 0), MAX_LOGPROBS)}


def with_valid_schemas(body: JSONObject) -> JSONObject:
    return {**body, "tools": [_with_valid_schema(tool) for tool in cast(list[JSONObject], body["tools"])]}


def _with_valid_schema(tool: JSONObject) -> JSONObject:
    function = object_or_empty(tool.get("function"))
    schema = object_or_empty(function.get("parameters"))
    return {**tool, "function": {**function, "parameters": remove_type_mismatches(schema)}} if schema else tool


def invalid_options(body: JSONObject) -> dict[str, str]:
    """Yield the options of a wrong type, with the type that is expected."""
    given = object_or_empty(body.get("options"))
    found = {name: OPTIONS[name] for name, value in given.items() if name in OPTIONS and not _fits(name, value)}
    if "stop" in found and isinstance(given["stop"], list):
        found["stop"] = "an array of strings"
    return found


def _fits(name: str, value: JSON) -> bool:
    if value is None:
        return True
    if name == "stop":
        return isinstance(value, list) and all(isinstance(each, str) for each in cast(list[JSON], value))
    if OPTIONS[name] == "type boolean":
        return isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_valid_think(value: JSON) -> bool:
    """Return True if `think` may have this value."""
    return value is None or isinstance(value, bool) or value in ("", *THINK_LEVELS)


def is_valid_format(value: JSON) -> bool:
    """Return True if `format` may have this value."""
    return value in (None, "", "json") or isinstance(value, dict)
