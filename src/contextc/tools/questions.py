"""Questions that a tool asks a person while it runs, and the check of an answer.

A question comes from the server of a tool. It has forms, which are flat, and links. Its texts are another party's: they
are shown as text, with the name of the server, and a link is opened only by a person. The call that asked is made again
with the answer.
"""

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Literal, TypeAlias, cast
from urllib.parse import urlsplit

from msgspec import Struct

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidInput

FieldKind: TypeAlias = Literal["string", "number", "integer", "boolean", "choice", "choices"]
FieldFormat: TypeAlias = Literal["", "email", "uri", "date", "date-time"]
AnswerAction: TypeAlias = Literal["accept", "decline", "cancel"]
EMAIL = re.compile(r"[^@\s]{1,200}@[^@\s]{1,200}")
MAX_ANSWER_CHARACTERS = 100_000
"""The longest text of an answer."""


class Choice(Struct, frozen=True, omit_defaults=True):
    """One value of a field with fixed values, and its title."""

    value: str
    title: str = ""


class FormField(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A field of a form. `minimum` and `maximum` are of the number, of the length of a text, or of how many choices."""

    name: str
    kind: FieldKind
    title: str = ""
    description: str = ""
    required: bool = False
    format: FieldFormat = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Choice, ...] = ()
    default: str | float | bool | tuple[str, ...] | None = None


class InputRequest(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that a server asks for: a form with `fields`, or a visit to `url`. `key` is the server's name of it."""

    key: str
    message: str
    fields: tuple[FormField, ...] = ()
    url: str = ""

    @property
    def host(self) -> str:
        """The host of `url`. Letters that are not ASCII are encoded, because some look like others."""
        host = urlsplit(self.url).hostname or ""
        return host if host.isascii() else host.encode("idna").decode()


class Question(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A question that the server of a tool asks while a call runs. `round` counts the questions of this call.

    `state` is the server's own, which it gets back unchanged.
    """

    server: str
    requests: tuple[InputRequest, ...]
    state: str | None = None
    round: int = 1

    @property
    def text(self) -> str:
        """The question as one text, without its fields."""
        asked = [f"{each.message} {each.url}".strip() for each in self.requests]
        return f"The server {self.server} asks: {' '.join(asked)}"

    @property
    def forms(self) -> tuple[InputRequest, ...]:
        """The requests with a form."""
        return tuple([each for each in self.requests if not each.url])


class QuestionAnswer(Struct, frozen=True, kw_only=True):
    """An answer: the `content` of each form by the key of its request, if the person accepts."""

    question: Question
    action: AnswerAction
    content: Mapping[str, JSONObject]


class QuestionExchange:
    """The questions of one call: the answer to the last one, and the next one, if the tool asks."""

    def __init__(self, answered: QuestionAnswer | None = None) -> None:
        self.answered, self.asked = answered, cast(Question | None, None)


def check_answer(question: Question, content: Mapping[str, object] | None) -> dict[str, JSONObject]:
    """Return the content of an answer by the key of each form. Raises `InvalidInput` if a value does not fit.

    `content` has the values of the form, or if there are several, the values of each by its key.
    """
    forms = question.forms
    given: Mapping[str, object] = {} if content is None else content
    if not isinstance(cast(object, given), Mapping):
        raise InvalidInput(f"content must be an object, got {type(given).__name__}", fix="Pass the values by field.")
    if len(forms) == 1:
        return {forms[0].key: _check_form(forms[0], given)}
    if unknown := sorted({str(each) for each in given} - {each.key for each in forms}):
        names = ", ".join([each.key for each in forms]) or "none"
        raise InvalidInput(f"content: no form {unknown[0]!r}", fix=f"The forms are: {names}.")
    found: dict[str, JSONObject] = {}
    for each in forms:
        values = given.get(each.key, {})
        if not isinstance(values, Mapping):
            raise InvalidInput(
                f"content: {each.key!r} must be an object", fix="Pass the values of each form by its key."
            )
        found[each.key] = _check_form(each, cast(Mapping[str, object], values))
    return found


def _check_form(form: InputRequest, given: Mapping[str, object]) -> JSONObject:
    known = {each.name: each for each in form.fields}
    if unknown := sorted({str(each) for each in given} - {*known}):
        names = ", ".join(known) or "none"
        raise InvalidInput(f"content: no field {unknown[0]!r}", fix=f"The fields are: {names}.")
    found: JSONObject = {}
    for name, field in known.items():
        value = given.get(name)
        if value is None:
            if field.required:
                raise InvalidInput(f"content: the field {name!r} is missing", fix=f"Pass {describe_values(field)}.")
            continue
        if problem := find_problem(field, value):
            raise InvalidInput(f"content: the field {name!r} {problem}", fix=f"Pass {describe_values(field)}.")
        found[name] = cast(JSON, value)
    return found


def find_problem(field: FormField, value: object) -> str:
    """Return why a value does not fit its field, or ""."""
    return _find_kind_problem(field, value) or _find_range_problem(field, value)


def _find_kind_problem(field: FormField, value: object) -> str:
    match field.kind:
        case "boolean":
            return "" if isinstance(value, bool) else "must be true or false"
        case "number" | "integer":
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not is_number or (field.kind == "integer" and value != int(cast(float, value))):
                return f"must be {'an integer' if field.kind == 'integer' else 'a number'}"
            return ""
        case "choices":
            values = {each.value for each in field.choices}
            items = cast(list[object], value) if isinstance(value, list | tuple) else None
            if items is None or not all([isinstance(each, str) and each in values for each in items]):
                return "must be a list of its values"
            return "has a value twice" if len({*items}) < len(items) else ""
        case "choice":
            return "" if value in [each.value for each in field.choices] else "must be one of its values"
        case "string":
            if not isinstance(value, str) or len(value) > MAX_ANSWER_CHARACTERS:
                return f"must be a text of at most {MAX_ANSWER_CHARACTERS:,} characters"
            return "" if _has_format(field.format, value) else f"must have the format {field.format!r}"


def _find_range_problem(field: FormField, value: object) -> str:
    low, high = field.minimum, field.maximum
    size = len(cast(str, value)) if field.kind in ("string", "choices") else cast(float, value)
    if field.kind in ("boolean", "choice") or ((low is None or size >= low) and (high is None or size <= high)):
        return ""
    return "is outside of its limits"


def _has_format(name: FieldFormat, value: str) -> bool:
    try:
        match name:
            case "email":
                return EMAIL.fullmatch(value) is not None
            case "uri":
                return bool(urlsplit(value).scheme)
            case "date":
                return len(value) == len("2026-07-28") and bool(date.fromisoformat(value))
            case "date-time":
                return "T" in value.upper() and bool(datetime.fromisoformat(value))
            case "":
                return True
    except ValueError:
        return False


def describe_values(field: FormField) -> str:
    """Return what a field takes, as text for a person."""
    low, high = field.minimum, field.maximum
    bounds = [f"at least {low:g}"] if low is not None else []
    bounds += [f"at most {high:g}"] if high is not None else []
    within = f" of {' and '.join(bounds)}" if bounds else ""
    match field.kind:
        case "boolean":
            return "true or false"
        case "choice" | "choices":
            values = ", ".join([each.value for each in field.choices][:20])
            return f"a list{within} of: {values}" if field.kind == "choices" else f"one of: {values}"
        case "string":
            what = f"a text in the format {field.format}" if field.format else "a text"
            return f"{what}{within} characters" if within else what
        case "number" | "integer":
            what = "an integer" if field.kind == "integer" else "a number"
            return f"{what}{within}"


# ── the form as others show it ────────────────────────────────────────────────────────────────────────────────────────


def form_schema(form: InputRequest) -> JSONObject:
    """Return the JSON schema of a form, for a client that shows it."""
    return {
        "type": "object",
        "properties": {each.name: _field_schema(each) for each in form.fields},
        "required": [each.name for each in form.fields if each.required],
    }


def _field_schema(field: FormField) -> JSONObject:
    values: list[JSON] = [
        {"const": each.value, "title": each.title} if each.title else {"const": each.value} for each in field.choices
    ]
    schema: JSONObject
    match field.kind:
        case "choice":
            schema = {"type": "string", "oneOf": values}
        case "choices":
            schema = {"type": "array", "items": {"anyOf": values}, "uniqueItems": True}
        case _:
            schema = {"type": field.kind}
    low, high = {"string": ("minLength", "maxLength"), "choices": ("minItems", "maxItems")}.get(
        field.kind, ("minimum", "maximum")
    )
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    more: JSONObject = {low: field.minimum, high: field.maximum, "default": default}
    texts: JSONObject = {"title": field.title, "description": field.description, "format": field.format}
    found = {name: value for name, value in texts.items() if value}
    return {**schema, **found, **{name: value for name, value in more.items() if value is not None}}


TYPED_BOOLEANS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


def read_typed(field: FormField, text: str) -> JSON:
    """Return the value of a field that a person has typed. It may not fit: `find_problem` says so."""
    match field.kind:
        case "boolean":
            return {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}.get(
                text.lower(), text
            )
        case "number" | "integer":
            try:
                return int(text) if text.lstrip("+-").isdecimal() else float(text)
            except ValueError:
                return text
        case "choices":
            return [_find_value(field, each.strip()) for each in text.split(",")]
        case "choice":
            return _find_value(field, text)
        case "string":
            return text


def _find_value(field: FormField, text: str) -> str:
    """Return the value with this title, unless the text is a value."""
    titled = {each.title: each.value for each in field.choices if each.title}
    return text if any(each.value == text for each in field.choices) else titled.get(text, text)
