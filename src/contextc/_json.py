"""JSON encoding, canonical JSON, hashes and validation of JSON values.

Stored JSON keeps the order of keys, because a provider may have signed it. Canonical JSON sorts keys, so that equal
content has one hash. `find_json_problem` rejects what JSON cannot represent (NaN, keys that are not strings, other
types). It also limits the nesting depth, because decoders recurse and fail at a depth that depends on the caller.
"""

import json
import math
from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeAlias, cast

import msgspec

JSON: TypeAlias = (
    Any  # msgspec cannot follow a recursive alias; `find_json_problem` enforces the shape at run time instead
)
JSONObject: TypeAlias = dict[str, JSON]

MAX_DEPTH = 100
MAX_DIGITS = 4_300
"""Maximum number of digits of an integer, which is Python's default limit."""
MAX_INT = 10**MAX_DIGITS

JSON_TYPE_NAMES = {
    "NoneType": "null",
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
    "str": "a string",
    "list": "a list",
    "dict": "an object",
    "bytes": "bytes",
}
"""JSON names of Python types."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
encode_canonical = msgspec.json.Encoder(order="sorted").encode


def json_type_name(value: object) -> str:
    """Return the JSON name of the type of a decoded value."""
    return JSON_TYPE_NAMES.get(type(value).__name__, f"a {type(value).__name__}")


def id_text(value: JSON) -> str:
    """Return an id or a position as text. Services write them as strings or as numbers; everything else is ""."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_INT
    return fix_surrogates(str(value)) if is_number or isinstance(value, str) else ""


def hash_blob(data: bytes) -> str:
    return sha256(data).hexdigest()


def find_json_problem(value: JSON, path: str = "") -> tuple[str, str] | None:
    """Return path and problem of the first invalid value, or None for valid JSON. Iterative, for any depth."""
    if is_valid_json(value):
        return None
    open_values: list[tuple[object, str, int]] = [(value, path, 0)]
    while open_values:
        item, here, depth = open_values.pop()
        kind = type(item)
        if kind is str or kind is bool or item is None:
            continue
        if kind is int:
            if not -MAX_INT < cast(int, item) < MAX_INT:
                return here, f"an integer has more than {MAX_DIGITS:,} digits. Give it as text instead."
            continue
        if kind is float:
            if not math.isfinite(cast(float, item)):
                return here, f"{item} is not a number JSON can hold."
        elif kind is dict or kind is list:
            if depth >= MAX_DEPTH:
                return path, f"nested deeper than {MAX_DEPTH} levels. Give it as text instead."
            if kind is list:
                open_values += [(each, f"{here}[{n}]", depth + 1) for n, each in enumerate(cast(list[object], item))]
                continue
            for key, each in cast(dict[object, object], item).items():
                if type(key) is not str:
                    return here, f"the key {key!r} is not a string."
                open_values.append((each, f"{here}.{key}", depth + 1))
        else:
            return here, f"a {kind.__name__} is not JSON. Use dict, list, str, int, float, bool or None."
    return None


def is_valid_json(value: JSON) -> bool:
    """Return True if the value is certainly valid. `find_json_problem` searches for the path only otherwise."""
    level: list[JSON] = [value]
    for _ in range(MAX_DEPTH):
        inside: list[JSON] = []
        for item in level:
            kind: object = type(item)  # pyright: ignore[reportUnknownVariableType]
            if kind is str or item is None or kind is bool:
                continue
            if kind is dict:
                for key in item:
                    if type(key) is not str:  # pyright: ignore[reportUnnecessaryComparison]
                        return False
                inside += item.values()
            elif kind is list:
                inside += item
            elif kind is int:
                if not -MAX_INT < item < MAX_INT:
                    return False
            elif kind is not float or not math.isfinite(item):
                return False
        if not inside:
            return True
        level = inside
    return False


def parse_object(text: str) -> JSONObject | None:
    """Parse a JSON object. Return None if the text is not one, or if it is nested too deep."""
    try:
        value = decode(text)
    except msgspec.DecodeError:
        value = _parse_with_lone_surrogates(text)
    except (RecursionError, UnicodeEncodeError):
        return None
    return cast(JSONObject, value) if type(value) is dict and find_json_problem(value) is None else None


def _parse_with_lone_surrogates(text: str) -> JSON:
    r"""Parse JSON with lone surrogates, as in `{"mood": "\ud83d"}`, where a model cut an emoji in two."""
    if "\\ud" not in text.lower():
        return None
    try:
        return fix_surrogates_in_json(json.loads(text))
    except (ValueError, RecursionError):
        return None


def fix_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined, and lone surrogates, which cannot be encoded, as U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_valid_text(value: object) -> bool:
    """Return True for a string that can be stored, because it has no surrogates."""
    return isinstance(value, str) and fix_surrogates(value) == value


def fix_surrogates_in_json(value: JSON) -> JSON:
    """Apply `fix_surrogates` to every string in a JSON value, keys included."""
    return map_strings(value, fix_surrogates)


def map_strings(value: JSON, change: Callable[[str], str]) -> JSON:
    """Apply a function to every string in a JSON value, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [map_strings(each, change) for each in cast(list[JSON], value)]
    if isinstance(value, dict):
        return {change(key): map_strings(each, change) for key, each in cast(JSONObject, value).items()}
    return value


def as_object(value: JSON) -> JSONObject:
    """Return the value if it is an object; else an empty one."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def as_objects(value: JSON) -> list[JSONObject]:
    """Return the objects in a list; none if the value is not a list."""
    held = cast(list[JSON], value) if isinstance(value, list) else []
    return [cast(JSONObject, each) for each in held if isinstance(each, dict)]


def decode_json(data: bytes) -> JSON:
    """Decode JSON, also with a split surrogate pair or invalid UTF-8. Raise ValueError."""
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise ValueError("the value is nested too deep") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = parse_object(data.decode("utf-8", "replace"))
        if found is None:
            raise ValueError(str(error)) from error
        return found
