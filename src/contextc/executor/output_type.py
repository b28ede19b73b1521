"""The type of an agent's answers: its JSON schema, and the conversion of an answer into a value of the type.

A type is a msgspec Struct, a dataclass, a TypedDict, a pydantic model, or anything else that a JSON schema can
describe, such as `list[str]`. pydantic is not imported: its models have the methods for both.

Providers enforce a schema only in a strict form: an object at the top, every property required, and no open object.
A type that is not an object is wrapped in one. A type without a strict form has only a schema for the instructions.
"""

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from contextc._json import JSON, JSONObject, decode, encode
from contextc.errors import InvalidInput, InvalidSetting
from contextc.tools.parameters import decode_hook, type_schema

T = TypeVar("T")
PLACE = "output_type"
WRAPPED_FIELD = "value"
CODE_BLOCK = re.compile(r"```[\w-]*+[^\S\n]*+\n(.*?)```", re.DOTALL)
MAX_NAME_CHARACTERS = 64
STRICT_KEYWORDS = ("type", "enum", "description")
DESCRIBED_KEYWORDS = (
    *("default", "format", "pattern", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
)
"""Keywords that strict schemas do not have. They are part of the description, and are checked in the answer."""
JSON_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
INSTRUCTIONS = "Your final answer must be one JSON value that follows this JSON schema, without any other text:"


class NoStrictForm(Exception):
    """The schema has no strict form: it has an open object, a recursive type, or a keyword without equivalent."""


class OutputType(Generic[T]):
    """The type of an agent's answers. `strict_schema` is None if no provider can enforce it."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self.is_pydantic = is_pydantic_model(kind)
        schema, strict = _pydantic_schemas(kind) if self.is_pydantic else _schemas(kind)
        self.is_wrapped = schema.get("type") != "object"
        self.schema = _wrap(schema) if self.is_wrapped else schema
        self.strict_schema = _wrap(strict) if self.is_wrapped and strict is not None else strict

    @property
    def name(self) -> str:
        """The name of the schema in requests."""
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", getattr(self.kind, "__name__", ""))
        return name[:MAX_NAME_CHARACTERS] or "answer"

    @property
    def instructions(self) -> str:
        """The text that asks for such an answer, where the provider cannot enforce it."""
        return f"{INSTRUCTIONS}\n{encode(self.schema).decode()}"

    def parse(self, text: str) -> T:
        """Return the value of an answer. Raise ValueError with a text for the model if it is not one of the type."""
        value = _read_json(text)
        if self.is_wrapped and isinstance(value, dict) and [*cast(JSONObject, value)] == [WRAPPED_FIELD]:
            value = cast(JSONObject, value)[WRAPPED_FIELD]
        try:
            if self.is_pydantic:
                return cast(Any, self.kind).model_validate_json(encode(value))
            return msgspec.convert(value, self.kind, dec_hook=decode_hook, str_keys=True)
        except (TypeError, *JSON_ERRORS) as error:  # a type may have checks of its own
            raise ValueError(_error_text(error)) from error


def output_type_of(kind: type[T] | None) -> OutputType[T] | None:
    """Return the type of an agent's answers, or None for plain text. Raise `InvalidSetting` if it is not supported."""
    if kind is None or kind is str:
        return None
    try:
        return OutputType(kind)
    except InvalidInput as error:
        raise InvalidSetting(error.problem, fix=error.fix) from error


def is_pydantic_model(kind: object) -> bool:
    """Return True for a class with the methods of pydantic's models."""
    names = ("model_json_schema", "model_validate_json")
    return isinstance(kind, type) and all(callable(getattr(kind, name, None)) for name in names)


def strict_form(schema: JSONObject) -> JSONObject:
    """Return a schema of pydantic in strict form, without references. Raise `NoStrictForm` if it has none."""
    return _strict(schema, cast(Mapping[str, JSONObject], schema.get("$defs", {})), ())


def _schemas(kind: object) -> tuple[JSONObject, JSONObject | None]:
    schema = type_schema(kind, strict=False, place=PLACE)
    try:
        return schema, type_schema(kind, strict=True, place=PLACE)
    except InvalidInput:  # an open type
        return schema, None


def _pydantic_schemas(kind: object) -> tuple[JSONObject, JSONObject | None]:
    schema = cast(JSONObject, cast(Any, kind).model_json_schema())
    try:
        return schema, strict_form(schema)
    except NoStrictForm:
        return schema, None


def _wrap(schema: JSONObject) -> JSONObject:
    """Return the schema of an object with one field of this schema."""
    outer = {name: schema[name] for name in ("$defs",) if name in schema}
    inner = {name: value for name, value in schema.items() if name not in outer}
    properties: JSONObject = {WRAPPED_FIELD: inner}
    return {
        "type": "object",
        "properties": properties,
        "required": [WRAPPED_FIELD],
        "additionalProperties": False,
        **outer,
    }


def _read_json(text: str) -> JSON:
    """Return the JSON of an answer, which may be in a code block."""
    errors: list[Exception] = []
    for candidate in (text, *CODE_BLOCK.findall(text)):
        try:
            return decode(candidate.encode())
        except JSON_ERRORS as error:
            errors.append(error)
    raise ValueError(f"it is not JSON: {errors[0]}") from errors[0]


def _error_text(error: Exception) -> str:
    """Return the text of a validation error, of pydantic without the links to its pages."""
    found = getattr(error, "errors", None)
    if not callable(found):
        return str(error)
    listed = cast(list[dict[str, Any]], found())
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the value'}: {each['msg']}" for each in listed)


def _strict(schema: JSONObject, definitions: Mapping[str, JSONObject], inside: tuple[str, ...]) -> JSONObject:
    if "$ref" in schema:
        name = cast(str, schema["$ref"]).rpartition("/")[2]
        if name in inside or name not in definitions:
            raise NoStrictForm(name)
        found = _strict(definitions[name], definitions, (*inside, name))
        return {**found, "description": schema["description"]} if "description" in schema else found
    if "allOf" in schema or "prefixItems" in schema:
        raise NoStrictForm("allOf or prefixItems")
    found: JSONObject = {name: schema[name] for name in STRICT_KEYWORDS if name in schema}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    if arms := schema.get("anyOf") or schema.get("oneOf"):
        found["anyOf"] = [_strict(arm, definitions, inside) for arm in cast(list[JSONObject], arms)]
    if found.get("type") == "array":
        found["items"] = _strict(cast(JSONObject, schema.get("items", {})), definitions, inside)
    if found.get("type") == "object":
        properties = cast(Mapping[str, JSONObject], schema.get("properties", {}))
        if not properties or schema.get("additionalProperties"):
            raise NoStrictForm("an open object")
        found["properties"] = {name: _strict(each, definitions, inside) for name, each in properties.items()}
        found |= {"required": [*properties], "additionalProperties": False}
    if not {"type", "enum", "anyOf"} & found.keys():
        raise NoStrictForm("any value")
    notes = [f"{name}: {encode(schema[name]).decode()}." for name in DESCRIBED_KEYWORDS if name in schema]
    if text := " ".join([*filter(None, [schema.get("description")]), *notes]):
        found["description"] = text
    return found
