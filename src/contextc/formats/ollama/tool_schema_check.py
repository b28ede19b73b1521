"""Check tool schemas against Ollama's Go types.

The template of a model prints the schema, so the server decodes all of it: the parameters, their properties, and nested
ones. It ignores unknown keys.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import NamedTuple, cast

from contextc._json import JSON, JSONObject
from contextc.formats.lint_engine import JSONPath
from contextc.formats.ollama import error_texts

PROPERTIES, ALTERNATIVES = "properties", "anyOf"
PARAMETERS = "struct field ChatRequest.tools.function.parameters.{name}"
PROPERTY = "struct field ToolProperty.{name}"
VALUE = "value"


class TypeMismatch(NamedTuple):
    """A value of a wrong type: its path, Go's error message, and a valid replacement; None to remove it."""

    path: JSONPath
    error: str
    replacement: JSON


class FieldType(NamedTuple):
    """The type of a field: a test, Go's name of the type, and `place`, Go's name of the field."""

    fits: Callable[[JSON], bool]
    expected: str
    place: str = PROPERTY


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def _is_list(value: JSON) -> bool:
    return isinstance(value, list)


def _is_object(value: JSON) -> bool:
    return isinstance(value, dict)


def _are_texts(value: JSON) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast(list[JSON], value)))


def _is_kind(value: JSON) -> bool:
    return _is_text(value) or _are_texts(value)


PARAMETER_FIELDS: Mapping[str, FieldType] = {
    "type": FieldType(_is_text, "string", PARAMETERS),
    "required": FieldType(_are_texts, "[]string", PARAMETERS),
    PROPERTIES: FieldType(_is_object, "map[string]api.ToolProperty", PARAMETERS),
}
PROPERTY_FIELDS: Mapping[str, FieldType] = {
    "type": FieldType(_is_kind, "[]string", VALUE),
    "description": FieldType(_is_text, "string"),
    "enum": FieldType(_is_list, "[]interface {}"),
    "required": FieldType(_are_texts, "[]string"),
    PROPERTIES: FieldType(_is_object, "map[string]api.ToolProperty"),
    ALTERNATIVES: FieldType(_is_list, "[]api.ToolProperty"),
}


def find_type_mismatches(
    schema: JSONObject, path: JSONPath = (), fields: Mapping[str, FieldType] = PARAMETER_FIELDS
) -> Iterator[TypeMismatch]:
    """Yield the values in a tool's parameters that the server cannot decode."""
    for name, field in fields.items():
        value: JSON = schema.get(name)
        if value is not None and not field.fits(value):
            error = _go_error(value, field.place.format(name=name), field.expected)
            yield TypeMismatch((*path, name), error, _valid_names(value) if name == "required" else None)
        elif value is not None and name in (PROPERTIES, ALTERNATIVES):
            held = cast(JSONObject, value).items() if isinstance(value, dict) else enumerate(cast(list[JSON], value))
            for key, each in held:
                yield from _property_mismatches(each, (*path, name, key))


def remove_type_mismatches(schema: JSONObject) -> JSONObject:
    """Return the schema without the values that the server cannot decode."""
    if not (found := list(find_type_mismatches(schema))):
        return schema
    made = deepcopy(schema)
    for wrong in found:
        *outer, last = wrong.path
        holder: JSON = made
        for step in outer:
            holder = holder[step]
        if wrong.replacement is None:
            del holder[last]
        else:
            holder[last] = wrong.replacement
    return made


def _property_mismatches(value: JSON, path: JSONPath) -> Iterator[TypeMismatch]:
    if isinstance(value, dict):
        yield from find_type_mismatches(cast(JSONObject, value), path, PROPERTY_FIELDS)
    elif value is not None:
        yield TypeMismatch(path, _go_error(value, VALUE, "api.ToolProperty"), {})


def _valid_names(value: JSON) -> list[JSON]:
    """Return the names in a value that should be a list of names."""
    return [each for each in (cast(list[JSON], value) if isinstance(value, list) else [value]) if _is_text(each)]


def _go_error(value: JSON, place: str, expected: str) -> str:
    if isinstance(value, list) and expected == "[]string":  # a list with an entry that is not a string
        value, expected = next(each for each in cast(list[JSON], value) if not _is_text(each)), "string"
    return error_texts.WRONG_TYPE.format(
        given=error_texts.GO_KINDS.get(type(cast(object, value)), "null"), place=place, expected=expected
    )
