"""Repairs that decoding and encoding does not make: images, settings and tool schemas."""

import re
from collections.abc import Mapping
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.media import unpacked
from contextc.formats.ollama.schemas import sound
from contextc.formats.ollama.settings import ALL_LEVELS
from contextc.formats.ollama.sketch import message
from contextc.formats.settings import inner

NOTHING_SAID = "(Nothing has been said yet.)"
MOST_LOGPROBS, LONGEST_NAME = 20, 200
STRANGE = re.compile(r"[^A-Za-z0-9+/]")
INTEGERS = ("num_ctx", "num_predict", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "seed", "top_k")
FLOATS = ("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
OPTIONS: Mapping[str, str] = {
    **dict.fromkeys((*INTEGERS, "repeat_last_n"), "type integer"),
    **dict.fromkeys(FLOATS, "type float32"),
    "use_mmap": "type boolean",
    "stop": "type array",
}
"""Ollama's names for the types of its options. A fraction is truncated where an integer is expected."""


def with_a_message(body: JSONObject) -> JSONObject:
    return {**body, "messages": [message(NOTHING_SAID)]}


def with_plain_pictures(body: JSONObject) -> JSONObject:
    """Reduce images to plain base64; replace those without data by a line of text."""
    return {**body, "messages": [_with_plain_pictures(each) for each in cast(list[JSONObject], body["messages"])]}


def _with_plain_pictures(wire: JSONObject) -> JSONObject:
    given = cast(list[str], wire.get("images") or [])
    if all(wrong_byte(image) is None for image in given):
        return wire
    shown = [image for image in map(bare, given) if wrong_byte(image) is None]
    lost = [f"[image: {_short(image)}; not shown]" for image in map(bare, given) if wrong_byte(image) is not None]
    words = "\n\n".join(filter(None, [wire.get("content") or "", *lost]))
    rest: JSONObject = {name: value for name, value in wire.items() if name != "images"}
    return {**rest, "content": words, **({"images": shown} if shown else {})}


def _short(image: str) -> str:
    return image if len(image) <= LONGEST_NAME else f"{image[:LONGEST_NAME]}…"


def bare(image: str) -> str:
    """Return an image without the prefix of a data URL."""
    head, comma, data = image.partition(",")
    return data if comma and head.startswith("data:") and head.endswith(";base64") else image


def wrong_byte(image: str) -> int | None:
    """Return the position of the first byte that is not base64, as Go counts; None if all are valid."""
    plain = image.replace("\r", "").replace("\n", "")
    if unpacked(plain) is not None:
        return None
    strange = STRANGE.search(plain)
    return strange.start() if strange else len(plain) // 4 * 4


def without_think(body: JSONObject) -> JSONObject:
    return {name: value for name, value in body.items() if name != "think"}


def without_format(body: JSONObject) -> JSONObject:
    return {name: value for name, value in body.items() if name != "format"}


def with_sound_options(body: JSONObject) -> JSONObject:
    wrong = wrong_options(body)
    return {**body, "options": {name: value for name, value in inner(body["options"]).items() if name not in wrong}}


def with_few_logprobs(body: JSONObject) -> JSONObject:
    return {**body, "top_logprobs": min(max(body["top_logprobs"], 0), MOST_LOGPROBS)}


def with_sound_schemas(body: JSONObject) -> JSONObject:
    return {**body, "tools": [_with_sound_schema(tool) for tool in cast(list[JSONObject], body["tools"])]}


def _with_sound_schema(tool: JSONObject) -> JSONObject:
    function = inner(tool.get("function"))
    schema = inner(function.get("parameters"))
    return {**tool, "function": {**function, "parameters": sound(schema)}} if schema else tool


def wrong_options(body: JSONObject) -> dict[str, str]:
    """Yield the options of a wrong type, with the type that is expected."""
    given = inner(body.get("options"))
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


def thinks(value: JSON) -> bool:
    """Return True if `think` may have this value."""
    return value is None or isinstance(value, bool) or value in ("", *ALL_LEVELS)


def forms(value: JSON) -> bool:
    """Return True if `format` may have this value."""
    return value in (None, "", "json") or isinstance(value, dict)
