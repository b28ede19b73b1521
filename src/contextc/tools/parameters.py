"""The parameters of a function: their schema, and the conversion of a model's arguments to values.

A parameter that cannot be described in a schema (without a type, `*args`) raises when the tool is defined. Wrong
arguments of a call are described to the model: the parameter, the value, the expected type. An omitted argument takes
the function's default.
"""

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePath
from typing import Any, TypeAlias, cast, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType

from contextc._json import JSON, JSONObject, fix_surrogates_in_json
from contextc.errors import InvalidInput
from contextc.tools.context import ToolContext
from contextc.tools.schemas import (
    ParsedDocstring,
    SchemaField,
    accepts_none,
    annotation_text,
    msgspec_type,
    object_schema,
    parse_docstring,
)
from contextc.tools.spec import Tool

Function: TypeAlias = Callable[..., object]


class FunctionParameters(Struct, frozen=True, kw_only=True):
    """The parameters of a function.

    Arguments are converted to the class `argument_class`; `schema` is sent to the model.
    """

    schema: JSONObject
    description: str
    argument_class: type[Struct]
    names: tuple[str, ...]
    optional: frozenset[str]
    not_nullable: frozenset[str]
    positional: tuple[inspect.Parameter, ...]
    context_parameters: tuple[str, ...]
    has_keyword_rest: bool = False

    def read_arguments(self, arguments: JSONObject) -> dict[str, object]:
        """Return the values of the function's parameters. Raises `InvalidInput` with a text for the model."""
        given = {
            name: value
            for name, value in arguments.items()
            if not (value is None and name in self.not_nullable and name in self.optional)
        }
        problems = [*self._unknown_errors(given), *self._missing_errors(given)]
        problems += nested_field_errors(self.schema, given)
        if problems:
            raise InvalidInput(" ".join(problems))
        known = {name: value for name, value in given.items() if name in self.names}
        values = self._convert(known)
        found = {name: value for name in self.names if (value := getattr(values, name)) is not UNSET}
        return {**found, **{name: value for name, value in given.items() if name not in self.names}}

    def call(self, function: Function, values: dict[str, object], context: ToolContext) -> object:
        values = {**values, **dict.fromkeys(self.context_parameters, context)}
        first: list[object] = [values.pop(each.name, each.default) for each in self.positional]
        return function(*first, **values)

    def _unknown_errors(self, given: JSONObject) -> list[str]:
        properties: JSONObject = self.schema.get("properties", {})
        if self.has_keyword_rest and self.schema.get("additionalProperties") is not False:
            return []
        known = tuple(properties) if self.has_keyword_rest else self.names
        return [unknown_field_error(name, known) for name in given if name not in known]

    def _missing_errors(self, given: JSONObject) -> list[str]:
        needed = [name for name in self.names if name not in self.optional]
        needed += [name for name in self.schema.get("required", ()) if name not in self.names]
        return [f"The parameter `{name}` is missing." for name in needed if name not in given]

    def _convert(self, given: JSONObject) -> Struct:
        try:
            return msgspec.convert(given, self.argument_class, dec_hook=decode_hook)
        except (msgspec.ValidationError, RecursionError) as first:
            try:  # accept numbers and booleans written as strings
                return msgspec.convert(given, self.argument_class, strict=False, dec_hook=decode_hook)
            except (msgspec.ValidationError, RecursionError):
                raise InvalidInput(conversion_error(first, given)) from first


def parameters_from_hints(function: Function, name: str, *, strict: bool, method: bool) -> FunctionParameters:
    """Return the parameters of a function, with a schema from its type hints and docstring."""
    hints, parameters = _hints(function, name), _signature(function, name)[1 if method else 0 :]
    for each in parameters:
        _check_describable(each, hints, name)
    documented = parse_docstring(docstring_of(function), [each.name for each in parameters])
    contexts = tuple(each.name for each in parameters if _is_context(hints[each.name]))
    described = [each for each in parameters if each.name not in contexts]
    fields = [_schema_field(each, hints[each.name], documented, name) for each in described]
    schema = object_schema(fields, strict=strict, place=name)
    return _build_parameters(parameters, hints, contexts, schema, documented.text, name)


def parameters_from_schema(function: Function, tool: Tool, *, method: bool) -> FunctionParameters:
    """Return the parameters of a function with a given schema. Type hints, if any, convert the arguments."""
    hints, parameters = _hints(function, tool.name), _signature(function, tool.name)[1 if method else 0 :]
    contexts = tuple(each.name for each in parameters if _is_context(hints.get(each.name)))
    return _build_parameters(parameters, hints, contexts, tool.parameters, tool.description, tool.name)


def _build_parameters(
    parameters: list[inspect.Parameter],
    hints: Mapping[str, object],
    contexts: tuple[str, ...],
    schema: JSONObject,
    description: str,
    name: str,
) -> FunctionParameters:
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [each for each in parameters if each.kind not in starred]
    read = [each for each in named if each.name not in contexts]
    types = {each.name: hints.get(each.name, Any) for each in read}
    return FunctionParameters(
        schema=schema,
        description=description,
        argument_class=_argument_class(types, name),
        names=tuple(types),
        optional=frozenset(each.name for each in read if each.default is not each.empty),
        not_nullable=frozenset(
            each for each, hint in types.items() if not accepts_none(msgspec_type(hint, f"{name}.{each}"))
        ),
        positional=tuple(each for each in named if each.kind is each.POSITIONAL_ONLY),
        context_parameters=contexts,
        has_keyword_rest=any(each.kind is each.VAR_KEYWORD for each in parameters),
    )


def _argument_class(types: Mapping[str, object], name: str) -> type[Struct]:
    # A hint is a value here, and its union with another is created at run time, which type checkers cannot follow.
    fields: list[tuple[str, Any, Any]] = [(each, cast(Any, hint) | UnsetType, UNSET) for each, hint in types.items()]
    try:
        return msgspec.defstruct("Arguments", fields, kw_only=True)
    except (TypeError, ValueError, NameError) as error:
        raise InvalidInput(f"Tool {name}: {error}.") from error


def _schema_field(each: inspect.Parameter, hint: object, documented: ParsedDocstring, name: str) -> SchemaField:
    return SchemaField(
        name=each.name,
        kind=msgspec_type(hint, f"{name}.{each.name}"),
        description=annotation_text(hint) or documented.parameters.get(each.name, ""),
        required=each.default is each.empty,
        default=UNSET if each.default is each.empty else each.default,
    )


def _signature(function: Function, name: str) -> list[inspect.Parameter]:
    """Return the parameters without those that a `functools.partial` has set."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            f"Tool {name}: {function!r} has no signature", fix="Wrap it in a function with type hints."
        ) from error
    fixed = function.keywords if isinstance(function, functools.partial) else {}
    return [each for each in found if each.name not in fixed]


def _hints(function: Function, name: str) -> dict[str, object]:
    try:
        return get_type_hints(underlying_function(function), include_extras=True)
    except NameError as error:
        raise InvalidInput(
            f"Tool {name}: type hints cannot be resolved ({error})",
            fix="Import the class at run time too, and define it at the top level of a module.",
        ) from error
    except TypeError:
        return {}


def underlying_function(function: Function) -> Function:
    """Return the underlying function of a partial, a class or a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isclass(function):
        return function.__init__
    if inspect.isroutine(function):
        return function
    return type(function).__call__


def docstring_of(function: Function) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return (
        (function if inspect.isroutine(function) else underlying_function(function)).__doc__ or function.__doc__ or ""
    )


def _check_describable(each: inspect.Parameter, hints: Mapping[str, object], name: str) -> None:
    if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**"
        raise InvalidInput(
            f"Tool {name}: {stars}{each.name} cannot be described in a JSON schema",
            fix="Name each parameter, or take one list or dict, or pass the schema: "
            f"cc.tool(cc.Tool(name={name!r}, parameters=…), function).",
        )
    if each.name not in hints:
        raise InvalidInput(
            f"Tool {name}: parameter {each.name!r} has no type hint", fix=f"Add one, such as `{each.name}: str`."
        )


def _is_context(hint: object) -> bool:
    return hint is ToolContext or ToolContext in get_args(hint)


def decode_hook(kind: type, value: object) -> object:
    """Convert a value for a type that msgspec does not know: a path, or any object."""
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    if kind is object:
        return value
    raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


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


def conversion_error(error: Exception, arguments: JSONObject) -> str:
    """Return the error of msgspec with the value that it refers to."""
    problem, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    value: JSON = arguments
    try:
        for name, index in PATH_STEP.findall(path):
            value = value[name] if name else value[int(index)]
    except (KeyError, IndexError, TypeError):
        return f"`{path.lstrip('.')}`: {problem}."
    shown = msgspec.json.encode(fix_surrogates_in_json(value)).decode()
    return (
        f"`{path.lstrip('.')}`: {problem}: "
        f"{shown if len(shown) <= MAX_SHOWN_CHARACTERS else shown[:MAX_SHOWN_CHARACTERS] + '…'}."
    )


def json_type_name(value: object) -> str:
    """Return the JSON Schema name of a value's type."""
    return TYPE_NAMES.get(type(value), "null")


def tool_signature(name: str, schema: JSONObject) -> str:
    """Return the signature of a tool as one line: `read_file(path: string, limit?: integer)`."""
    required = cast(list[str], schema.get("required", []))
    properties = cast(JSONObject, schema.get("properties", {}))
    fields = [f"{each}{'' if each in required else '?'}: {_schema_type(inner)}" for each, inner in properties.items()]
    return f"{name}({', '.join(fields)})"


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
