"""What a vendor's own types have against a request body: the second judge of what our encoders write.

The SDKs of Anthropic and OpenAI describe bodies as TypedDicts, which pydantic takes lightly: it does not look into an
`Iterable`, and lets pass what nobody knows. `Strict` copies them into types that are taken at their word. Google's are
pydantic models and strict already, but for what only their documentation states. The AI SDK has a zod schema,
kept as JSON Schema in `tests/data`; its older shape has a schema here, after the last TypeScript types it had.

A union complains in the name of all its members. So its member is chosen by `type` and `role`; where that leaves
several, the one with the least to say speaks. Hence "messages.2.content.0.tool_use: input: Field required".
"""

import json
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
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
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from jsonschema import Draft202012Validator, ValidationError
from pydantic import ConfigDict, Discriminator, Tag, TypeAdapter, create_model
from pydantic import ValidationError as Refusal
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict, is_typeddict  # below Python 3.12 pydantic takes no other

from contextc._json import JSON, JSONObject

Form: TypeAlias = Any  # a type as a value: a class, a union, an Annotated. Typing has no common name for them.
Place: TypeAlias = tuple[int | str, ...]
Problem: TypeAlias = tuple[Place, str]

PARAMETERS = {
    "anthropic": "anthropic.types.message_create_params.MessageCreateParamsNonStreaming",
    "anthropic_beta": "anthropic.types.beta.message_create_params.MessageCreateParamsNonStreaming",
    "openai_chat": "openai.types.chat.completion_create_params.CompletionCreateParamsNonStreaming",
    "openai_responses": "openai.types.responses.response_create_params.ResponseCreateParamsNonStreaming",
}
LISTS = (list, Iterable, Sequence)
MODEL_MESSAGE = Path(__file__).parent.parent / "data" / "vercel-model-message.schema.json"
GOOGLE_CALLS = {"functionCall", "functionResponse", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"}
GOOGLE_DATA = {"text", "inlineData", "fileData", *GOOGLE_CALLS}
MESSAGES = {"openai_responses": "input", "gemini": "contents", "codex": "items"}
"""Where a body has its messages, if not in `messages`."""
OTHER = ""
"""A type or role that no member of a union names."""
CHOSEN, CANDIDATE = "=", "?"
"""How the name of a union's member begins: one that `type` and `role` chose, one of several that they left."""


def problems(format: str, body: JSONObject | Sequence[JSONObject]) -> list[str]:
    """What the vendor's types have against a body, or against bare messages. Empty where they accept it."""
    given = body if isinstance(body, dict) else {MESSAGES.get(format, "messages"): list(body)}
    match format:
        case "anthropic":
            # The beta's types know blocks that the others do not. They are asked second: not everybody may send them.
            found = _typed(format, {"max_tokens": 1, **given})
            found = found and min(found, _typed("anthropic_beta", {"max_tokens": 1, **given}), key=len)
        case "openai_chat":
            found = _typed(format, given)
        case "openai_responses":
            found = _typed(format, given) or _without_call(given.get("input"))
        case "gemini":
            found = _google(given)
        case "claude_code":
            found = _claude_code(given)
        case "codex":
            found = _codex(given)
        case "vercel" | "vercel_legacy":
            # jsonschema's stubs leave a parameter of this method without a type
            errors = _schema(format).iter_errors(given.get("messages"))  # pyright: ignore[reportUnknownMemberType]
            found = _refused(errors, ("messages",))
        case _:
            raise ValueError(f"No vendor has types for the format {format!r}.")
    return [_sentence(place, text) for place, text in found]


def _sentence(place: Place, text: str) -> str:
    """Where, in which kind of block, which field, and what of it."""
    said = ""
    for step in place:
        kind = str(step).removeprefix(CHOSEN).partition(CANDIDATE)[0] if str(step).startswith(CHOSEN) else None
        if kind is None:
            said += f"{step}."
        elif kind:
            said = f"{said.replace(': ', '.')}{kind}: "
    return f"{said.removesuffix('.').removesuffix(': ')}: {text}" if said else text


def _unexpected(value: JSON) -> str:
    keys = {key: each for key, each in value.items() if key in ("type", "role")} if _is_object(value) else None
    return f"Not expected here: {str(value if keys is None else keys)[:80]}"


def _is_object(value: JSON) -> TypeGuard[JSONObject]:
    return isinstance(value, dict)


# Anthropic and OpenAI: TypedDicts.


def _typed(name: str, body: JSONObject) -> list[Problem]:
    # The types for streaming differ in this key alone, which is not worth another second to build them.
    request = {"model": "m", **{key: value for key, value in body.items() if key != "stream"}}
    try:
        _adapter(name).validate_python(request)
    except Refusal as refusal:
        return _least(
            (each["loc"], _unexpected(each["input"]) if each["type"] == "union_tag_not_found" else each["msg"])
            for each in refusal.errors()
        )
    return []


def _without_call(items: JSON) -> list[Problem]:
    """Results that belong to no call: our own rule. OpenAI's types let `call_id` be missing, but then a call stays
    without its result, and that the service refuses (WIRE 3)."""
    listed = cast(list[JSONObject], items) if isinstance(items, list) else []
    return [
        (("input", number, f"{CHOSEN}function_call_output", "call_id"), "Missing, though the type allows it")
        for number, item in enumerate(listed)
        if item.get("type") == "function_call_output" and not item.get("call_id")
    ]


@cache
def _adapter(name: str) -> TypeAdapter[Any]:  # Any: what it validates is not used
    module, _, form = PARAMETERS[name].rpartition(".")
    return TypeAdapter(Strict().strictify(getattr(import_module(module), form)))  # only now: an SDK takes a second


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
    """Copies a vendor's types so that pydantic takes them at their word."""

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
            keys = value if _is_object(value) else {}
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
    """What a TypedDict holds, and whether that is required. Its own word on this is not to be trusted: it cannot read
    annotations that are strings, as the SDKs' are."""
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


# Google: pydantic models, which forbid what they do not know.


def _google(body: JSONObject) -> list[Problem]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a word that an enum does not know is only warned of
            _content_request().validate_json(json.dumps(body), strict=True)  # as JSON: base64 is base64
    except Refusal as refusal:
        return [(error["loc"], error["msg"]) for error in refusal.errors()]
    except UserWarning as warning:
        return [((), str(warning))]
    found = _one_datum_each(body.get("systemInstruction") or {}, ("systemInstruction",))
    for number, content in enumerate(cast(list[JSONObject], body["contents"])):
        place = ("contents", number)
        if content.get("role") not in ("user", "model"):
            found.append(((*place, "role"), f"Must be user or model, not {content.get('role')!r}"))
        if not content.get("parts"):
            found.append(((*place, "parts"), "Must not be empty"))
        found += _one_datum_each(content, place)
    return found


def _one_datum_each(content: JSONObject, place: Place) -> list[Problem]:
    parts = cast(list[JSONObject], content.get("parts") or [])
    data = [[key for key in part if to_camel(key) in GOOGLE_DATA] for part in parts]  # Google takes function_call too
    return [
        ((*place, "parts", number), f"Must have exactly one data field, not {keys}")
        for number, keys in enumerate(data)
        if len(keys) != 1
    ]


@cache
def _content_request() -> TypeAdapter[Any]:  # Any: what it validates is not used
    """The body of generateContent, which the SDK puts together from its models without having one of it."""
    from google.genai import types as google

    fields: dict[str, Any] = {  # Any: create_model takes types as values
        "contents": (list[google.Content], ...),
        "systemInstruction": (google.Content, None),
        "tools": (list[google.Tool], None),
        "toolConfig": (google.ToolConfig, None),
        "safetySettings": (list[google.SafetySetting], None),
        "generationConfig": (google.GenerationConfig, None),
        "cachedContent": (str, None),
        "labels": (dict[str, str], None),
        "serviceTier": (google.ServiceTier, None),
    }
    return TypeAdapter(create_model("Body", __config__=ConfigDict(extra="forbid"), **fields))


# Claude Code: its SDK parses lines, and what is in them is Anthropic's.


def _claude_code(body: JSONObject) -> list[Problem]:
    parser = import_module("claude_agent_sdk._internal.message_parser")
    lines = cast(list[JSONObject], body.get("messages") or [])
    found: list[Problem] = []
    for index, line in enumerate(lines):
        try:
            parser.parse_message({**line, "message": {"model": "claude", **line["message"]}})
        except Exception as error:  # whatever it raises is its objection
            found.append((("messages", index), str(error)))
    messages = [line["message"] for line in lines]
    asked = {"model": "claude", "max_tokens": 1, "messages": messages}
    return found or min(_typed("anthropic", asked), _typed("anthropic_beta", asked), key=len)


# Codex: pydantic models, one for each kind of item.


def _codex(body: JSONObject) -> list[Problem]:
    items, tools = _codex_types()
    found: list[Problem] = []
    for key, adapter in (("items", items), ("dynamicTools", tools)):
        for index, item in enumerate(cast(list[JSON], body.get(key) or [])):
            try:
                adapter.validate_python(item)
            except Refusal as refusal:
                found += [((key, index, *error["loc"][1:]), error["msg"]) for error in refusal.errors()[:1]]
    return found


@cache
def _codex_types() -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:  # Any: what they validate is not used
    types = import_module("openai_codex.generated.v2_all")
    return TypeAdapter(types.ThreadItem), TypeAdapter(types.DynamicToolSpec)


# The AI SDK: JSON Schema.


@cache
def _schema(format: str) -> Draft202012Validator:
    """The schema of a list of messages."""
    message = _closed(json.loads(MODEL_MESSAGE.read_text())) if format == "vercel" else _legacy()
    # References inside it are to its root, so its definitions move there.
    definitions = cast(JSONObject, message).pop("$defs", {})
    return Draft202012Validator({"type": "array", "items": message, "$defs": definitions})


def _closed(node: JSON) -> JSON:
    """The schema without what zod lets pass: keys it would strip, and what is no JSON (bytes, a URL), which its export
    writes as `{}`, anything at all."""
    if isinstance(node, list):
        return [_closed(each) for each in cast(list[JSON], node)]
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in cast(JSONObject, node).items()}
    if "anyOf" in closed:
        closed["anyOf"] = [each for each in closed["anyOf"] if each != {}]
    return {**closed, "additionalProperties": False} if isinstance(closed.get("properties"), dict) else closed


def _refused(errors: Iterable[ValidationError], place: Place) -> list[Problem]:
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
            found.append((here, _unexpected(error.instance)))
        else:
            kind = error.instance.get("type", "") if _is_object(error.instance) else ""
            found += min((_refused(each, (*here, f"{CHOSEN}{kind}")) for each in named), key=len)
    return found


def _misnamed(error: ValidationError) -> bool:
    """The member of a union is for another type or role, or for no objects at all."""
    keys = list(error.relative_path)
    return (keys in (["type"], ["role"]) and error.validator in ("const", "enum")) or (
        not keys and error.validator == "type"
    )


def _legacy() -> JSONObject:
    """`CreateMessage` of @ai-sdk/ui-utils 0.0.50, and what of it is for which role, as its comments say. Beyond it: the
    `reasoning` of version 1, and null for a call's content, which the type forbids and seed C sends."""
    text = {"type": "string"}
    call = _object("name arguments", name=text, arguments=text)
    listed = _object("id type function", id=text, type=text, function=call)
    state = {"enum": ["partial-call", "call", "result"]}
    named = {"toolCallId": text, "toolName": text, "args": {}, "result": {}}
    invocation = _object("state toolCallId toolName args", state=state, **named)
    attachment = _object("url", name=text, contentType=text, url=text)
    asked = {
        "content": {"type": ["string", "null"]},
        "reasoning": text,
        "function_call": call,
        "tool_calls": {"type": "array", "items": listed},
        "tool_call_id": text,
        "toolInvocations": {"type": "array", "items": invocation},
    }
    attached = {"content": text, "experimental_attachments": {"type": "array", "items": attachment}}
    answered = {"content": text, "name": text, "tool_call_id": text}
    common = {"id": text, "createdAt": text, "data": {}, "annotations": {"type": "array"}}
    roles = [
        _object("role content", role={"enum": ["system", "user", "data"]}, **attached, **common),
        _object("role content", role={"const": "assistant"}, **asked, **common),
        _object("role content name", role={"const": "function"}, **answered, **common),
        _object("role content tool_call_id", role={"const": "tool"}, **answered, **common),
    ]
    return {"anyOf": roles}


def _object(required: str, **properties: JSON) -> JSONObject:
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}
