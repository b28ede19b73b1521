"""Helpers for validators of request bodies, which use a vendor's own types.

Our rules are the first judge of what our encoders write, the vendor's types the second. SDKs that describe bodies as
TypedDicts have them taken lightly by pydantic: it does not look into an `Iterable`, and lets pass what nobody knows.
`Strict` copies them into types that are taken at their word; `typed` asks them. `refused` reads the errors of a JSON
Schema. How each format is judged stands in its own file in `known/`.

A union complains in the name of all its members. So its member is chosen by `type` and `role`; where that leaves
several, the one with the least to say speaks. Hence "messages.2.content.0.tool_use: input: Field required".
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from itertools import product
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    TypeAlias,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from jsonschema import Draft202012Validator, ValidationError
from pydantic import ConfigDict, Discriminator, Tag, TypeAdapter
from pydantic import ValidationError as Refusal
from typing_extensions import TypedDict, is_typeddict  # below Python 3.12 pydantic takes no other

from contextc._json import JSON, JSONObject

Form: TypeAlias = Any  # a type as a value: a class, a union, an Annotated. Typing has no common name for them.
Place: TypeAlias = tuple[int | str, ...]
Problem: TypeAlias = tuple[Place, str]
"""Where something is wrong, and what of it. In a place, a step that begins with CHOSEN names the kind of a block."""

LISTS = (list, Iterable, Sequence)
OTHER = ""
"""A type or role that no member of a union names."""
CHOSEN, CANDIDATE = "=", "?"
"""How the name of a union's member begins: one that `type` and `role` chose, one of several that they left."""


def sentence(place: Place, text: str) -> str:
    """Where, in which kind of block, which field, and what of it."""
    said = ""
    for step in place:
        kind = str(step).removeprefix(CHOSEN).partition(CANDIDATE)[0] if str(step).startswith(CHOSEN) else None
        if kind is None:
            said += f"{step}."
        elif kind:
            said = f"{said.replace(': ', '.')}{kind}: "
    return f"{said.removesuffix('.').removesuffix(': ')}: {text}" if said else text


def unexpected(value: JSON) -> str:
    keys = {key: each for key, each in value.items() if key in ("type", "role")} if is_object(value) else None
    return f"Not expected here: {str(value if keys is None else keys)[:80]}"


def is_object(value: JSON) -> TypeGuard[JSONObject]:
    return isinstance(value, dict)


def typed(form: str, body: JSONObject) -> list[Problem]:
    """What a TypedDict of a vendor's SDK, named with its module, has against a body. It need not name a model."""
    # The types for streaming differ in this key alone, which is not worth another second to build them.
    request = {"model": "m", **{key: value for key, value in body.items() if key != "stream"}}
    try:
        _adapter(form).validate_python(request)
    except Refusal as refusal:
        return _least(
            (each["loc"], unexpected(each["input"]) if each["type"] == "union_tag_not_found" else each["msg"])
            for each in refusal.errors()
        )
    return []


@cache
def _adapter(form: str) -> TypeAdapter[Any]:  # Any: what it validates is not used
    module, _, name = form.rpartition(".")
    return TypeAdapter(Strict().strictify(getattr(import_module(module), name)))  # only now: an SDK takes a second


def _least(found: Iterable[Problem]) -> list[Problem]:
    """Of candidates that all refuse a value, what the one with the fewest problems has against it."""
    plain: list[Problem] = []
    groups: dict[Place, dict[str, list[Problem]]] = defaultdict(lambda: defaultdict(list))
    for place, text in found:
        at = next((number for number, step in enumerate(place) if str(step).startswith(CANDIDATE)), None)
        if at is None:
            plain.append((place, text))
        else:
            groups[place[:at]][str(place[at])].append((place[:at] + place[at + 1 :], text))
    closest = (min((_least(each) for each in group.values()), key=len) for group in groups.values())
    return [*plain, *(problem for each in closest for problem in each)]


class Seen(NamedTuple):
    """What of a value chooses between the members of a union."""

    kind: type
    type: str | None
    role: str | None


class Shape(NamedTuple):
    """Which values a member of a union is for."""

    kind: type
    types: frozenset[str | None] | None = None  # None: whatever its type is. None among them: it may have none.
    roles: frozenset[str | None] | None = None

    def fits(self, seen: Seen) -> bool:
        if seen.kind is not self.kind and not (seen.kind is int and self.kind is float):
            return False
        return (self.types is None or seen.type in self.types) and (self.roles is None or seen.role in self.roles)


class Strict:
    """Converter of a vendor's types to copies that pydantic validates strictly."""

    def __init__(self) -> None:
        self.copies: dict[Form, Form] = {}

    def strictify(self, form: Form) -> Form:
        origin, arguments = get_origin(form), get_args(form)
        if is_typeddict(form):
            return self.typed_dict(form)
        if origin in (Annotated, Required, NotRequired):
            return self.strictify(arguments[0])
        if origin is Union:
            return self.union(_members(form))
        if origin in (None, Literal):
            return form
        if origin is dict:
            return dict[arguments[0], self.strictify(arguments[1])]
        if origin in LISTS:
            return list[self.strictify(arguments[0])]
        raise TypeError(f"A type that no SDK had when this was written: {form}")

    def typed_dict(self, form: Form) -> Form:
        if form not in self.copies:
            copy: Form = TypedDict(form.__name__, {})  # pyright: ignore[reportArgumentType]
            self.copies[form] = copy  # before its fields, since a type may hold itself
            copy.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
            copy.__annotations__ = {
                key: (Required if required else NotRequired)[self.strictify(hint)]
                for key, (hint, required) in _fields(form).items()
            }
        return self.copies[form]

    def union(self, members: Sequence[Form]) -> Form:
        """A union that chooses by what a value is, and by its `type` and `role`."""
        if object in members:
            return object
        shapes = [_shape(member) for member in members]
        types = {None, OTHER, *(each for shape in shapes for each in shape.types or ())}
        roles = {None, OTHER, *(each for shape in shapes for each in shape.roles or ())}
        tags: dict[Seen, str] = {}
        choices: dict[str, Form] = {}
        for seen in map(Seen._make, product({int, *(shape.kind for shape in shapes)}, types, roles)):
            fitting = [number for number, shape in enumerate(shapes) if shape.fits(seen)]
            if fitting:
                tags[seen] = tag = f"{CHOSEN}{seen.type or ''}{CANDIDATE}{fitting}"
                choices[tag] = Annotated[self.one_of([members[number] for number in fitting]), Tag(tag)]

        def choose(value: JSON) -> str | None:
            keys = value if is_object(value) else {}
            named, role = keys.get("type"), keys.get("role")
            return tags.get(
                Seen(type(value), named if named in list(types) else OTHER, role if role in list(roles) else OTHER)
            )

        if len(choices) == 1:  # pydantic has no union of one
            return self.one_of(members)
        return Annotated[Union[tuple(choices.values())], Discriminator(choose)]  # noqa: UP007

    def one_of(self, members: Sequence[Form]) -> Form:
        if len(members) == 1:
            return self.strictify(members[0])
        named = [Annotated[self.strictify(each), Tag(f"{CANDIDATE}{number}")] for number, each in enumerate(members)]
        return Union[tuple(named)]  # noqa: UP007


def _members(form: Form) -> list[Form]:
    """The members of a union that JSON can hold: neither models of responses nor files."""
    if get_origin(form) in (Annotated, Required, NotRequired):
        return _members(get_args(form)[0])
    if get_origin(form) is Union:
        return [each for member in get_args(form) for each in _members(member)]
    plain = form in (str, int, float, bool, NoneType, object)
    return [form] if plain or is_typeddict(form) or get_origin(form) in (Literal, dict, *LISTS) else []


@cache
def _fields(form: Form) -> dict[str, tuple[Form, bool]]:
    """Return the fields of a TypedDict, and whether each is required. Its own attributes are not reliable: they ignore
    annotations that are strings, as the SDKs' are.
    """
    hints: dict[str, Form] = get_type_hints(form, include_extras=True)
    marked = {key: get_origin(hint) for key, hint in hints.items()}
    return {
        key: (hint, marked[key] is Required or (form.__total__ and marked[key] is not NotRequired))
        for key, hint in hints.items()
    }


def _shape(form: Form) -> Shape:
    if is_typeddict(form):
        return Shape(dict, _literals(form, "type"), _literals(form, "role"))
    if get_origin(form) is Literal:
        return Shape(type(get_args(form)[0]))
    return Shape(form if get_origin(form) is None else dict if get_origin(form) is dict else list)


def _literals(form: Form, key: str) -> frozenset[str | None] | None:
    hint, required = _fields(form).get(key, (str, False))
    inner = get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
    members = _members(inner)
    if any(get_origin(each) is not Literal for each in members if each is not NoneType):
        return None
    found = {value for each in members for value in get_args(each)}
    return frozenset(found if required else {*found, None})


def refused(schema: Draft202012Validator, value: JSON, place: Place) -> list[Problem]:
    """Return the errors of a JSON Schema for a value at this position."""
    # jsonschema's stubs leave a parameter of this method without a type
    return _told(schema.iter_errors(value), place)  # pyright: ignore[reportUnknownMemberType]


def _told(errors: Iterable[ValidationError], place: Place) -> list[Problem]:
    """Errors of a schema; those of a union as the errors of its closest member."""
    found: list[Problem] = []
    for error in errors:
        here = (*place, *error.relative_path)
        members: dict[JSON, list[ValidationError]] = defaultdict(list)
        for inner in error.context or []:
            members[inner.relative_schema_path[0]].append(inner)
        named = [each for each in members.values() if not any(_misnamed(inner) for inner in each)]
        if not members:
            found.append((here, error.message[:160]))
        elif not named:
            found.append((here, unexpected(error.instance)))
        else:
            kind = error.instance.get("type", "") if is_object(error.instance) else ""
            found += min((_told(each, (*here, f"{CHOSEN}{kind}")) for each in named), key=len)
    return found


def _misnamed(error: ValidationError) -> bool:
    """The member of a union is for another type or role, or for no objects at all."""
    keys = list(error.relative_path)
    return (keys in (["type"], ["role"]) and error.validator in ("const", "enum")) or (
        not keys and error.validator == "type"
    )


def object_schema(required: str, **properties: JSON) -> JSONObject:
    """The schema of an object that has these keys and no others; `required` names some of them."""
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}
