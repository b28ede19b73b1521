"""Convert type hints to JSON Schema, and parse descriptions of parameters from docstrings.

Only keywords that every provider accepts are used: type, properties, required, additionalProperties, items, enum,
anyOf, description, default. There are no references, because some providers reject `$ref`: classes are written inline,
and a recursive class is an error. Other constraints (a minimum, a pattern, a date) are part of the description, and are
checked when a call is read.

`strict` writes the form that OpenAI and Anthropic enforce: every property is required, and no object is open.

The first paragraph of a docstring describes the function. Descriptions of parameters may be an `Args:` section, `:param
path:` lines, NumPy's underlined section, or plain `path: …` lines. Only names of parameters are matched, so a sentence
with a colon is not taken for a description.
"""

import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePath
from typing import Annotated, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Struct
from msgspec import inspect as kinds

from contextc._json import JSON, JSONObject, decode, encode, find_json_problem
from contextc.errors import InvalidInput

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
    kind: kinds.Type
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
    return _SchemaWriter(strict).write(msgspec_type(hint, place), place, ())


SUPPORTED_TYPES = (
    "Use str, int, float, bool, None, Literal, Enum, list, dict, tuple, a dataclass, a TypedDict or a msgspec Struct, "
    "or unions of them."
)


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
        schema = self.write(field.kind, place, inside)
        if field.default is None and not self.strict:
            schema = _without_null(schema)
        default = _json_default(field.default)
        description = field.description
        if default is not None and self.strict:
            description = f"{description} Default: {msgspec.json.encode(default).decode()}.".strip()
        schema = _with_description(schema, description)
        return schema if default is None or self.strict else {**schema, "default": default}

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
    text = f"{prefix} {schema.get('description', '')}".strip()
    return {**schema, "description": text} if text else schema


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
    return ParsedDocstring(_first_paragraph(lines, names), _parameters(lines, names))


def _first_paragraph(lines: list[str], names: Collection[str]) -> str:
    found: list[str] = []
    for line in lines:
        if not line.strip() or FIELD_LINE.match(line) or _is_section(line) or _named(line, names):
            break
        found.append(line.strip())
    return " ".join(found)


def _is_section(line: str) -> bool:
    match = SECTION_HEADING.match(line)
    return match is not None and not line[match.end() :].strip()


def _named(line: str, names: Collection[str]) -> re.Match[str] | None:
    match = PARAMETER_LINE.fullmatch(line)
    return match if match is not None and match["name"] in names else None


def _parameters(lines: list[str], names: Collection[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current, indent, underlined = "", 0, False
    for number, line in enumerate(lines):
        if set(line.strip()) == {"-"} and number and _is_section(lines[number - 1]):
            underlined = True
        match = _named(line, names)
        if match is not None and match["name"] not in found:
            current, indent = match["name"], len(match["indent"])
            found[current] = [] if underlined else [match["text"]]
        elif current and line.strip() and len(line) - len(line.lstrip()) > indent:
            found[current].append(line.strip())
        else:
            current = ""
    return {name: " ".join(filter(None, texts)) for name, texts in found.items() if any(texts)}
