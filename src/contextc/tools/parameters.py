"""The parameters of a function: their schema, and the conversion of a model's arguments to values.

A parameter that cannot be described in a schema (without a type, `*args`) raises when the tool is defined. Wrong
arguments of a call are described to the model: the parameter, the value, the expected type. An omitted argument takes
the function's default.
"""

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import is_dataclass
from pathlib import PurePath
from typing import Annotated, Any, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, UnsetType
from msgspec import inspect as kinds

from contextc._json import JSON, JSONObject, decode, encode, find_json_problem, fix_surrogates_in_json
from contextc.errors import InvalidInput
from contextc.tools.context import ToolContext
from contextc.tools.definitions import Tool

# ── types as JSON Schema ──────────────────────────────────────────────────────────────────────────────────────────────
# Convert type hints to JSON Schema, and parse descriptions of parameters from docstrings.
#
# Only keywords that every provider accepts are used: type, properties, required, additionalProperties, items, enum,
# anyOf, description, default. There are no references, because some providers reject `$ref`: classes are written
# inline, and a recursive class is an error. Other constraints (a minimum, a pattern, a date) are part of the
# description, and are checked when a call is read.
#
# `strict` writes the form that OpenAI and Anthropic enforce: every property is required, and no object is open.
#
# The first paragraph of a docstring describes the function. Descriptions of parameters may be an `Args:` section,
# `:param path:` lines, NumPy's underlined section, or plain `path: …` lines. Only names of parameters are matched, so
# a sentence with a colon is not taken for a description.


NULL: JSONObject = {"type": "null"}
JSON_TYPES: Mapping[type[kinds.Type], tuple[str, str]] = {
    kinds.BoolType: ("boolean", ""),
    kinds.IntType: ("integer", ""),
    kinds.FloatType: ("number", ""),
    kinds.StrType: ("string", ""),
    kinds.NoneType: ("null", ""),
    kinds.BytesType: ("string", "Base64."),
    kinds.DateTimeType: ("string", "A moment, such as 2026-01-31T08:30:00Z."),
    kinds.DateType: ("string", "A date, such as 2026-01-31."),
    kinds.TimeType: ("string", "A time, such as 08:30:00."),
    kinds.TimeDeltaType: ("string", "A duration, such as PT90S."),
    kinds.UUIDType: ("string", "A UUID."),
    kinds.DecimalType: ("string", "A decimal number."),
}
CONSTRAINT_TEXTS = {
    "gt": "More than {}.",
    "ge": "At least {}.",
    "lt": "Less than {}.",
    "le": "At most {}.",
    "multiple_of": "A multiple of {}.",
    "min_length": "Not shorter than {}.",
    "max_length": "Not longer than {}.",
    "pattern": "Matches {}.",
}


class SchemaField(Struct, frozen=True, kw_only=True):
    """One property of an object: a parameter of a function, or a field of a class."""

    name: str
    kind: kinds.Type | JSONObject
    """Its type; of a type that pydantic reads, the schema."""
    description: str = ""
    required: bool = True
    default: object = UNSET


def msgspec_type(hint: object, place: str) -> kinds.Type:
    """Return the msgspec type of a type hint. Raises `InvalidInput` if msgspec does not support it."""
    try:
        return kinds.type_info(hint)
    except (TypeError, NameError) as error:
        raise InvalidInput(f"{place}: {error}. {SUPPORTED_TYPES}") from error


def accepts_none(kind: kinds.Type) -> bool:
    match kind:
        case kinds.NoneType() | kinds.AnyType():
            return True
        case kinds.UnionType(types=arms):
            return any(accepts_none(arm) for arm in arms)
        case kinds.LiteralType(values=values):
            return None in values
        case kinds.Metadata(type=inner):
            return accepts_none(inner)
        case _:
            return False


def _takes_none(hint: object) -> bool:
    arms = get_args(hint)
    if get_origin(hint) is Annotated:
        return _takes_none(arms[0])
    return hint is None or hint is Any or type(None) in arms


def annotation_text(hint: object) -> str:
    """Return the description in `Annotated[str, "description"]`, also in a member of a union."""
    if get_origin(hint) is Annotated:
        for note in get_args(hint)[1:]:
            texts = note if isinstance(note, str) else getattr(note, "description", None)
            texts = texts or getattr(note, "documentation", None)
            if isinstance(texts, str):
                return texts
        return annotation_text(get_args(hint)[0])
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        texts = [annotation_text(arm) for arm in cast(tuple[object, ...], get_args(hint))]
        return next((text for text in texts if text), "")
    return ""


def object_schema(fields: Iterable[SchemaField], *, strict: bool, place: str) -> JSONObject:
    """Return the schema of an object with exactly these properties."""
    return _SchemaWriter(strict).object_of(fields, place, ())


def type_schema(hint: object, *, strict: bool, place: str) -> JSONObject:
    """Return the schema of a type."""
    if (adapter := pydantic_adapter(hint, place)) is not None:
        return _SchemaWriter(strict).of_pydantic(adapter.json_schema(), place)
    return _SchemaWriter(strict).write(msgspec_type(hint, place), place, ())


SUPPORTED_TYPES = (
    "Use str, int, float, bool, None, Literal, Enum, list, dict, tuple, a dataclass, a TypedDict or a msgspec Struct, "
    "or unions of them."
)


# ── types of pydantic ─────────────────────────────────────────────────────────────────────────────────────────────────
# Types that only pydantic can read: its models, its own types such as that of a URL, types with its constraints
# (`Annotated[int, Field(ge=0)]`), and everything that contains one. It is imported only where such a type is used. Its
# schemas are rewritten with the keywords that every provider accepts.


PYDANTIC_PACKAGES = ("pydantic", "pydantic_core", "annotated_types")
PLAIN_KEYWORDS = ("type", "enum", "description")
DESCRIBED_KEYWORDS = (
    *("format", "pattern", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
)
"""Keywords that not every provider accepts. They are part of the description, and are checked when a value is read."""


class NoPlainForm(Exception):
    """A schema of pydantic has a recursive type, a keyword without equivalent, or an open object in strict form."""


def pydantic_adapter(hint: object, place: str) -> Any | None:
    """Return pydantic's `TypeAdapter` of a type that only pydantic can read; None for other types."""
    if not _needs_pydantic(hint, ()):
        return None
    try:
        from pydantic import TypeAdapter
    except ImportError as error:
        raise InvalidInput(
            f"{place}: {hint} has constraints of pydantic", fix="Install it: pip install pydantic"
        ) from error
    try:
        adapter = TypeAdapter(cast(Any, hint))
        adapter.json_schema()
    except Exception as error:  # a class of the user takes part
        problem = str(error).partition("\n")[0].rstrip(".")  # the rest is a link
        raise InvalidInput(f"{place}: pydantic cannot describe the type: {problem}", fix=SUPPORTED_TYPES) from error
    return adapter


def validate_with_pydantic(adapter: Any, data: object) -> Any:
    """Return the value of a type that pydantic reads. `bytes` are JSON. Raise ValueError.

    Fields that a class does not have are refused. Otherwise an object that breaks a constraint of one class of a union
    could be read as another class, and would lose its fields. A type that accepts any field is read as pydantic does.
    """
    validate = adapter.validate_json if isinstance(data, bytes) else adapter.validate_python
    if "extra" not in inspect.signature(validate).parameters:  # pydantic before 2.12
        return validate(data)
    try:
        return validate(data, extra="forbid")
    except ValueError:
        if not _has_open_class(adapter.json_schema()):
            raise
        return validate(data)


def _has_open_class(schema: JSON) -> bool:
    """Return True if a schema of pydantic has a class that accepts any field."""
    if isinstance(schema, list):
        return any([_has_open_class(each) for each in cast(list[JSON], schema)])
    if not isinstance(schema, dict):
        return False
    found = cast(JSONObject, schema)
    is_open = "properties" in found and found.get("additionalProperties", False) is not False
    return is_open or any([_has_open_class(each) for each in found.values()])


def _needs_pydantic(hint: object, inside: tuple[object, ...]) -> bool:
    if hint in inside:
        return False
    arms = get_args(hint)
    if get_origin(hint) is Annotated:
        return any([_is_of_pydantic(cast(object, note).__class__) for note in arms[1:]]) or _needs_pydantic(
            arms[0], inside
        )
    kind = cast("type[Any]", hint) if isinstance(hint, type) else None
    if kind is not None and (_is_of_pydantic(kind) or hasattr(kind, "__pydantic_core_schema__")):
        return True
    if kind is not None and (is_dataclass(kind) or hasattr(kind, "__total__")):
        try:
            fields: dict[str, Any] = get_type_hints(kind, include_extras=True)
        except NameError:  # reported where the schema is written
            return False
        return any([_needs_pydantic(each, (*inside, kind)) for each in fields.values()])
    return any([_needs_pydantic(each, inside) for each in arms])


def _is_of_pydantic(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in PYDANTIC_PACKAGES


def plain_schema(schema: JSONObject, *, strict: bool) -> JSONObject:
    """Return a schema of pydantic with the keywords that every provider accepts, and without references."""
    return _plain(schema, cast(Mapping[str, JSONObject], schema.get("$defs", {})), (), strict)


def _plain(
    schema: JSONObject, definitions: Mapping[str, JSONObject], inside: tuple[str, ...], strict: bool
) -> JSONObject:
    if "$ref" in schema:
        name = cast(str, schema["$ref"]).rpartition("/")[2]
        if name in inside or name not in definitions:
            raise NoPlainForm(f"{name} is recursive, and not every provider accepts such a schema")
        found = _plain(definitions[name], definitions, (*inside, name), strict)
        return {**found, **{key: schema[key] for key in ("description", "default") if key in schema and not strict}}
    arms = cast(list[JSONObject], schema.get("allOf", ()))
    if len(arms) == 1:
        return _plain(
            {**arms[0], **{key: value for key, value in schema.items() if key != "allOf"}}, definitions, inside, strict
        )
    if arms or (strict and "prefixItems" in schema):
        raise NoPlainForm("the type has no simple JSON schema")
    found: JSONObject = {name: schema[name] for name in PLAIN_KEYWORDS if name in schema}
    notes = [f"{name}: {encode(schema[name]).decode()}." for name in DESCRIBED_KEYWORDS if name in schema]
    if "const" in schema:
        found |= _enum_schema([schema["const"]])
    if arms := cast(list[JSONObject], schema.get("anyOf") or schema.get("oneOf") or ()):
        found["anyOf"] = [_plain(arm, definitions, inside, strict) for arm in arms]
    if found.get("type") == "array":
        several = cast(list[JSONObject], schema.get("prefixItems", ()))
        items = [_plain(item, definitions, inside, strict) for item in several]
        distinct = [item for at, item in enumerate(items) if item not in items[:at]]
        rest = cast(JSONObject, schema.get("items", {}))
        found["items"] = _union_schema(distinct) if distinct else _plain(rest, definitions, inside, strict)
    if found.get("type") == "object":
        found |= _plain_object(schema, definitions, inside, strict)
    if strict and not {"type", "enum", "anyOf"} & found.keys():
        raise NoPlainForm("strict does not allow open types, such as Any or dict")
    if "default" in schema:
        if strict:
            notes.append(f"default: {encode(schema['default']).decode()}.")
        elif schema["default"] is not None:
            found["default"] = schema["default"]
    if text := _join_sentences(cast(str, schema.get("description", "")), *notes):
        found["description"] = text
    return found


def _plain_object(
    schema: JSONObject, definitions: Mapping[str, JSONObject], inside: tuple[str, ...], strict: bool
) -> JSONObject:
    is_class = "properties" in schema  # also without fields: a union often has a class that says "none"
    given = cast(Mapping[str, JSONObject], schema.get("properties", {}))
    others = schema.get("additionalProperties", not is_class)
    if strict and (others or not is_class):
        raise NoPlainForm("strict does not allow open types, such as Any or dict")
    properties = {name: _plain(each, definitions, inside, strict) for name, each in given.items()}
    required = [*given] if strict else [*cast(list[str], schema.get("required", ()))]
    found: JSONObject = {"properties": properties, "required": required} if is_class else {}
    if isinstance(others, dict):
        return {**found, "additionalProperties": _plain(cast(JSONObject, others), definitions, inside, strict)}
    return found if others else {**found, "additionalProperties": False}


def validation_text(error: Exception, parameter: str = "") -> str:
    """Return the text of a validation error, of pydantic without the links to its pages."""
    found = getattr(error, "errors", None)
    if not callable(found):
        return f"`{parameter}`: {error}" if parameter else str(error)
    texts: list[str] = []
    for each in cast(list[dict[str, Any]], found()):
        path = ".".join(filter(None, [parameter, *map(str, each["loc"])]))
        texts.append(f"{f'`{path}`' if path else 'the value'}: {each['msg']}")
    return "; ".join(texts)


class _SchemaWriter:
    def __init__(self, strict: bool) -> None:
        self.strict = strict

    def object_of(self, fields: Iterable[SchemaField], place: str, inside: tuple[type, ...]) -> JSONObject:
        properties: JSONObject = {}
        required: list[str] = []
        for field in fields:
            here = f"{place}.{field.name}"
            _check_name(field.name, here)
            properties[field.name] = self.property_of(field, here, inside)
            if field.required or self.strict:
                required.append(field.name)
        found: JSONObject = {"type": "object", "properties": properties}
        if required or self.strict:
            found["required"] = required
        return {**found, "additionalProperties": False}

    def property_of(self, field: SchemaField, place: str, inside: tuple[type, ...]) -> JSONObject:
        kind = field.kind
        schema = self.write(kind, place, inside) if isinstance(kind, kinds.Type) else self.of_pydantic(kind, place)
        if field.default is None and not self.strict:
            schema = _without_null(schema)
        default = _json_default(field.default)
        description = "" if str(schema.get("description", "")).startswith(field.description) else field.description
        if default is not None and self.strict:
            description = _join_sentences(description, f"Default: {msgspec.json.encode(default).decode()}.")
        schema = _with_description(schema, description)
        return schema if default is None or self.strict else {**schema, "default": default}

    def of_pydantic(self, schema: JSONObject, place: str) -> JSONObject:
        try:
            return plain_schema(schema, strict=self.strict)
        except NoPlainForm as error:
            raise InvalidInput(f"{place}: {error}", fix="Define the fields in a class.") from error

    def write(self, kind: kinds.Type, place: str, inside: tuple[type, ...]) -> JSONObject:
        match kind:
            case kinds.Metadata():
                description = cast(dict[str, str], kind.extra_json_schema or {}).get("description", "")
                return _with_description(self.write(kind.type, place, inside), description)
            case kinds.AnyType():
                return self.open_type(place, {})
            case kinds.EnumType(cls=cls):
                return _enum_schema([member.value for member in cls])
            case kinds.LiteralType(values=values):
                return _enum_schema(values)
            case kinds.UnionType(types=arms):
                return _union_schema([self.write(arm, place, inside) for arm in arms])
            case kinds.ListType() | kinds.SetType() | kinds.FrozenSetType() | kinds.VarTupleType():
                items = self.write(kind.item_type, f"{place}[]", inside)
                return _with_description({"type": "array", "items": items}, _constraints_text(kind, " items"))
            case kinds.TupleType(item_types=types):
                return self.tuple_of(types, place, inside)
            case kinds.NamedTupleType(fields=fields):
                names = ", ".join(field.name for field in fields)
                return _with_description(
                    self.tuple_of([field.type for field in fields], place, inside), f"In order: {names}."
                )
            case kinds.DictType():
                return self.dict_of(kind, place, inside)
            case kinds.StructType() | kinds.DataclassType() | kinds.TypedDictType():
                return self.class_of(kind, place, inside)
            case kinds.CustomType(cls=cls) if issubclass(cls, PurePath):
                return {"type": "string"}
            case kinds.CustomType(cls=cls) if cls is object:
                return self.open_type(place, {})
            case _ if type(kind) in JSON_TYPES:
                name, text = JSON_TYPES[type(kind)]
                unit = " characters" if name == "string" else ""
                return _with_description({"type": name}, f"{text} {_constraints_text(kind, unit)}".strip())
            case _:
                named = kind.cls.__name__ if isinstance(kind, kinds.CustomType) else type(kind).__name__
                raise InvalidInput(f"{place}: type {named} cannot be described in a JSON schema", fix=SUPPORTED_TYPES)

    def open_type(self, place: str, schema: JSONObject) -> JSONObject:
        if self.strict:
            raise InvalidInput(
                f"{place}: strict does not allow open types, such as Any or dict", fix="Define the fields in a class."
            )
        return schema

    def tuple_of(self, types: Iterable[kinds.Type], place: str, inside: tuple[type, ...]) -> JSONObject:
        items: list[JSONObject] = []
        count = 0
        for count, each in enumerate(types, 1):
            schema = self.write(each, f"{place}[{count - 1}]", inside)
            items += [] if schema in items else [schema]
        return _with_description(
            {"type": "array", "items": _union_schema(items) if items else {}}, f"Exactly {count} items."
        )

    def dict_of(self, kind: kinds.DictType, place: str, inside: tuple[type, ...]) -> JSONObject:
        if not isinstance(kind.key_type, kinds.StrType | kinds.AnyType):
            raise InvalidInput(f"{place}: keys of a JSON object must be strings", fix="Use dict[str, …].")
        if isinstance(kind.value_type, kinds.AnyType):
            return self.open_type(place, {"type": "object"})
        values = self.write(kind.value_type, f"{place}[…]", inside)
        return self.open_type(place, {"type": "object", "additionalProperties": values})

    def class_of(
        self,
        kind: kinds.StructType | kinds.DataclassType | kinds.TypedDictType,
        place: str,
        inside: tuple[type, ...],
    ) -> JSONObject:
        cls = cast(type, kind.cls)
        if cls in inside:
            raise InvalidInput(
                f"{place}: {cls.__name__} is recursive, and not every provider accepts such a schema",
                fix="Use a flat list, with ids that refer to each other.",
            )
        if isinstance(kind, kinds.StructType) and kind.array_like:
            raise InvalidInput(
                f"{place}: {cls.__name__} must not be array_like", fix="Use a Struct with field names, or a tuple."
            )
        names = [field.encode_name for field in kind.fields]
        written = cls.__doc__ or ""
        documented = parse_docstring("" if written.startswith(f"{cls.__name__}(") else written, names)
        hints = get_type_hints(cls, include_extras=True)
        fields = [
            SchemaField(
                name=field.encode_name,
                kind=field.type,
                description=annotation_text(hints.get(field.name)) or documented.parameters.get(field.encode_name, ""),
                required=field.required,
                default=field.default,
            )
            for field in kind.fields
        ]
        tag = ()
        if isinstance(kind, kinds.StructType) and kind.tag_field is not None:
            tag = (SchemaField(name=kind.tag_field, kind=kinds.LiteralType((cast(str | int, kind.tag),))),)
        return _with_description(self.object_of((*tag, *fields), place, (*inside, cls)), documented.text)


def _check_name(name: str, place: str) -> None:
    if len(name) > 64 or not name.isascii() or not name.replace("-", "_").replace(".", "_").isidentifier():
        raise InvalidInput(
            f"{place}: name must have up to 64 letters, digits, `_`, `-` and `.`", got=name, fix="Rename it."
        )


def _with_description(schema: JSONObject, prefix: str) -> JSONObject:
    """Return the schema with a text added in front of its description."""
    text = _join_sentences(prefix, cast(str, schema.get("description", "")))
    return {**schema, "description": text} if text else schema


def _join_sentences(*texts: str) -> str:
    """Return texts one after another. Each but the last ends with a punctuation mark."""
    *others, last = [text.strip() for text in texts if text.strip()] or [""]
    return " ".join([*[text if text[-1] in ".!?:;,…" else f"{text}." for text in others], last])


def _constraints_text(kind: kinds.Type, unit: str) -> str:
    found: list[str] = []
    for name, text in CONSTRAINT_TEXTS.items():
        limit = getattr(kind, name, None)
        if limit is not None:
            found.append(text.format(f"{limit}{unit if name.endswith('_length') else ''}"))
    return " ".join(found)


def _enum_schema(values: Iterable[JSON]) -> JSONObject:
    arms: dict[str, list[JSON]] = {}
    for value in values:
        arms.setdefault(LITERAL_TYPES[type(value)], []).append(value)
    return _union_schema([NULL if name == "null" else {"type": name, "enum": found} for name, found in arms.items()])


LITERAL_TYPES: Mapping[type, str] = {str: "string", int: "integer", bool: "boolean", type(None): "null"}


def _union_schema(arms: list[JSONObject]) -> JSONObject:
    return arms[0] if len(arms) == 1 else {"anyOf": arms}


def _without_null(schema: JSONObject) -> JSONObject:
    """Return the schema without null: an omitted parameter means None, and a simpler schema suits more models."""
    arms = cast(list[JSONObject] | None, schema.get("anyOf"))
    if arms is None:
        return schema
    rest = _union_schema([arm for arm in arms if arm != NULL])
    return _with_description(rest, cast(str, schema.get("description", "")))


def _json_default(default: object) -> JSON:
    """Return a default value as JSON; None if there is none, or if it cannot be encoded."""
    if default is NODEFAULT or default is UNSET or default is None:
        return None
    try:
        plain: JSON = decode(encode(default))
        return plain if find_json_problem(plain) is None else None
    except (TypeError, RecursionError):
        return None


PARAMETER_LINE = re.compile(
    r"(?P<indent>\s*)(?::param\s+(?:[^:\s]+\s+)?|[-*]\s+)?`?(?P<name>\w+)`?(?:\s*\([^)]*\))?\s*:\s*(?P<text>.*)"
)
SECTION_HEADING = re.compile(
    r"(args|arguments|parameters|params|attributes|returns?|raises|yields?|examples?|notes?)(:|\s*$)", re.I
)
FIELD_LINE = re.compile(r":(param|type|returns?|rtype|raises?)\b")


class ParsedDocstring(Struct, frozen=True):
    """A parsed docstring."""

    text: str = ""
    parameters: Mapping[str, str] = {}


def parse_docstring(docstring: str | None, names: Collection[str]) -> ParsedDocstring:
    """Return the first paragraph and the descriptions of the parameters `names`."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    found: list[str] = []
    for line in lines:
        if not line.strip() or FIELD_LINE.match(line) or _is_section(line) or _match_parameter(line, names):
            break
        found.append(line.strip())
    return ParsedDocstring(" ".join(found), _parse_parameters(lines, names))


def _is_section(line: str) -> bool:
    match = SECTION_HEADING.match(line)
    return match is not None and not line[match.end() :].strip()


def _match_parameter(line: str, names: Collection[str]) -> re.Match[str] | None:
    match = PARAMETER_LINE.fullmatch(line)
    return match if match is not None and match["name"] in names else None


def _parse_parameters(lines: list[str], names: Collection[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current, indent, underlined = "", 0, False
    for number, line in enumerate(lines):
        if set(line.strip()) == {"-"} and number and _is_section(lines[number - 1]):
            underlined = True
        match = _match_parameter(line, names)
        if match is not None and match["name"] not in found:
            current, indent = match["name"], len(match["indent"])
            found[current] = [] if underlined else [match["text"]]
        elif current and line.strip() and len(line) - len(line.lstrip()) > indent:
            found[current].append(line.strip())
        else:
            current = ""
    return {name: " ".join(filter(None, texts)) for name, texts in found.items() if any(texts)}


# ── parameters of a function ──────────────────────────────────────────────────────────────────────────────────────────


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
    adapters: Mapping[str, Any] = {}
    """pydantic's adapters of the parameters that only pydantic can read."""
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
        for name in self.adapters.keys() & found.keys():
            try:
                found[name] = validate_with_pydantic(self.adapters[name], found[name])
            except ValueError as error:
                raise InvalidInput(f"{validation_text(error, name)}.") from error
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


def parameters_with_schema(function: Function, tool: Tool, *, method: bool) -> FunctionParameters:
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
    found = {each: pydantic_adapter(hint, f"{name}.{each}") for each, hint in types.items()}
    adapters = {each: adapter for each, adapter in found.items() if adapter is not None}
    types |= {each: Any if _takes_none(types[each]) else cast(Any, object) for each in adapters}
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
        adapters=adapters,
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
    place = f"{name}.{each.name}"
    adapter = pydantic_adapter(hint, place)
    return SchemaField(
        name=each.name,
        kind=msgspec_type(hint, place) if adapter is None else cast(JSONObject, adapter.json_schema()),
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
        hint = "cc.ToolContext" if each.name in ("context", "ctx") else "str"
        raise InvalidInput(
            f"Tool {name}: parameter {each.name!r} has no type hint", fix=f"Add one, such as `{each.name}: {hint}`."
        )


def _is_context(hint: object) -> bool:
    arms = (hint, *get_args(hint))
    return any(arm is ToolContext or get_origin(arm) is ToolContext for arm in arms)


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


def unknown_field_error(name: str, known: Collection[str], kind: str = "parameter", inside: str = "") -> str:
    alike = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean `{alike[0]}`?" if alike else ""
    return f"There is no {kind} `{inside}{name}`.{hint}"


def nested_field_errors(schema: JSONObject, value: JSON, place: str = "", *, top: bool = False) -> list[str]:
    """Return errors for unknown fields in nested objects, which msgspec and pydantic ignore; with `top`, of all fields.

    One arm of a union must fit: otherwise an object with wrong fields could be read as one without fields.
    """
    if not isinstance(schema, dict):  # True and False are schemas, too
        return []
    arms = [
        arm
        for arm in cast(list[JSONObject], schema.get("anyOf", ()))
        if isinstance(arm, dict) and arm.get("type") == json_type_name(value)
    ]
    if isinstance(value, list):
        items = cast(JSONObject, (arms[0] if len(arms) == 1 else schema).get("items", {}))
        return [
            each
            for n, item in enumerate(cast(list[JSON], value))
            for each in nested_field_errors(items, item, f"{place}[{n}]")
        ]
    if not isinstance(value, dict):
        return []
    fields = cast(JSONObject, value)
    fitting = [arm for arm in arms if _has_fields(arm, fields)]
    if len(fitting) > 1:
        return []
    schema = max(fitting or arms or [schema], key=lambda arm: _likeness(arm, fields))
    properties = cast(JSONObject, schema.get("properties", {}))
    inside = f"{place}." if place else ""
    found: list[str] = []
    if (place or top) and schema.get("additionalProperties") is False:
        known = list(properties)
        found = [unknown_field_error(name, known, "field", inside) for name in fields if name not in properties]
    if len(arms) > 1:
        found += [
            f"The field `{inside}{name}` is missing." for name in schema.get("required", ()) if name not in fields
        ]
    for name, each in fields.items():
        if name in properties:
            found += nested_field_errors(properties[name], each, f"{inside}{name}")
    return found


def _has_fields(schema: JSONObject, fields: JSONObject) -> bool:
    """Return True if an object has all fields that it must have, and no others."""
    required = set(cast(list[str], schema.get("required", ())))
    is_open = schema.get("additionalProperties") is not False
    return required <= fields.keys() and (is_open or fields.keys() <= schema.get("properties", {}).keys())


def _likeness(schema: JSONObject, fields: JSONObject) -> tuple[int, int]:
    """Return how much an object is like one of a schema: its known fields, then those that it lacks."""
    lacking = set(cast(list[str], schema.get("required", ()))) - fields.keys()
    return len(schema.get("properties", {}).keys() & fields.keys()), -len(lacking)


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
