"""Questions of MCP servers: the result of a call that asks for input as a question of ours, and the answer to it.

Everything here comes from a server. Texts are cut and have no invisible characters. A form is flat and has a limited
size; a link leads to a web page. Whatever else a server asks for is refused.
"""

import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from contextc._json import JSON, JSONObject, as_object
from contextc.errors import InvalidInput
from contextc.mcp.results import visible_text
from contextc.tools.questions import Choice, FieldFormat, FieldKind, FormField, InputRequest, Question, QuestionAnswer

if TYPE_CHECKING:
    import mcp_types as types

MAX_REQUESTS, MAX_FIELDS, MAX_CHOICES = 10, 50, 200
"""The largest question: requests, fields of a form, values of a field."""
MAX_MESSAGE_CHARACTERS, MAX_TITLE_CHARACTERS, MAX_NAME_CHARACTERS = 4_000, 500, 200
MAX_URL_CHARACTERS, MAX_STATE_CHARACTERS = 4_000, 1_000_000
HOST = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
FORMATS: tuple[FieldFormat, ...] = ("email", "uri", "date", "date-time")


def read_question(server: str, result: "types.InputRequiredResult", round: int) -> Question:
    """Return what a server asks. Raises `InvalidInput` if that cannot be asked a person."""
    requests = result.input_requests or {}
    if len(requests) > MAX_REQUESTS:
        raise InvalidInput(f"it asks for more than {MAX_REQUESTS} things at once")
    if len(result.request_state or "") > MAX_STATE_CHARACTERS:
        raise InvalidInput(f"its state has more than {MAX_STATE_CHARACTERS:,} characters")
    found = tuple([_read_request(key, request) for key, request in requests.items()])
    return Question(server=server, requests=found, state=result.request_state, round=round)


def _read_request(key: str, request: "types.InputRequest") -> InputRequest:
    if len(key) > MAX_NAME_CHARACTERS:
        raise InvalidInput("the name of a request is too long")
    if request.method != "elicitation/create":
        raise InvalidInput(f"it asks for {request.method}, which is not supported")
    message = _short(request.params.message, MAX_MESSAGE_CHARACTERS)
    if request.params.mode == "url":
        return InputRequest(key=key, message=message, url=_read_url(request.params.url))
    return InputRequest(key=key, message=message, fields=_read_fields(request.params.requested_schema))


def _read_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or len(url) > MAX_URL_CHARACTERS:
        raise InvalidInput("its link is not the address of a web page")
    if url != visible_text(url) or any([each.isspace() for each in url]):
        raise InvalidInput("its link has characters that are not visible")
    if not HOST.fullmatch(parts.netloc) or not _is_host(parts.hostname):
        raise InvalidInput("its link has a user name, or a host that can be mistaken for another one")
    return url


def _is_host(name: str) -> bool:
    try:
        return bool(name.isascii() or name.encode("idna"))
    except UnicodeError:
        return False


def _read_fields(schema: JSONObject) -> tuple[FormField, ...]:
    properties, required = as_object(schema.get("properties")), _list(schema.get("required"))
    if schema.get("type") != "object":
        raise InvalidInput("its form is not the schema of an object")
    if len(properties) > MAX_FIELDS:
        raise InvalidInput(f"its form has more than {MAX_FIELDS} fields")
    if any([name not in properties for name in required]):
        raise InvalidInput("its form requires a field that it does not have")
    return tuple([_read_field(name, given, name in required) for name, given in properties.items()])


def _read_field(name: str, given: JSON, required: bool) -> FormField:
    """Return a field. Patterns are not checked: that is left to the server."""
    if not name or len(name) > MAX_NAME_CHARACTERS or name != visible_text(name):
        raise InvalidInput("a field of its form has no valid name")
    schema = _without_null(given)
    kind, choices = _read_kind(name, schema)
    low, high = {
        "string": ("minLength", "maxLength"),
        "choices": ("minItems", "maxItems"),
        "number": ("minimum", "maximum"),
        "integer": ("minimum", "maximum"),
    }.get(kind, ("", ""))
    wanted = schema.get("format")
    return FormField(
        name=name,
        kind=kind,
        title=_short(schema.get("title"), MAX_TITLE_CHARACTERS),
        description=_short(schema.get("description"), MAX_MESSAGE_CHARACTERS),
        required=required,
        format=wanted if kind == "string" and wanted in FORMATS else "",
        minimum=_number(schema.get(low)),
        maximum=_number(schema.get(high)),
        choices=choices,
        default=_read_default(kind, schema.get("default")),
    )


def _read_default(kind: FieldKind, value: JSON) -> str | float | bool | tuple[str, ...] | None:
    """Return the value that a form begins with, if it is of the kind of its field."""
    match kind:
        case "boolean":
            return value if isinstance(value, bool) else None
        case "number" | "integer":
            return _number(value)
        case "string" | "choice":
            return _short(value, MAX_MESSAGE_CHARACTERS) or None
        case "choices":
            return tuple([each for each in _list(value) if isinstance(each, str)]) or None


def _read_kind(name: str, schema: JSONObject) -> tuple[FieldKind, tuple[Choice, ...]]:
    kind, items = schema.get("type"), as_object(schema.get("items"))
    if kind == "boolean" or kind == "number" or kind == "integer":
        return kind, ()
    if kind == "string" and "enum" in schema:
        return "choice", _read_choices(name, _list(schema["enum"]), _list(schema.get("enumNames")))
    if kind == "string" and "oneOf" in schema:
        return "choice", _read_titled(name, _list(schema["oneOf"]))
    if kind == "string":
        return "string", ()
    if kind == "array" and "enum" in items:
        return "choices", _read_choices(name, _list(items["enum"]), [])
    if kind == "array" and "anyOf" in items:
        return "choices", _read_titled(name, _list(items["anyOf"]))
    raise InvalidInput(f"the field {name!r} of its form is not a text, a number, a boolean or a choice")


def _read_titled(name: str, values: list[JSON]) -> tuple[Choice, ...]:
    items = [as_object(each) for each in values]
    return _read_choices(name, [each.get("const") for each in items], [each.get("title") for each in items])


def _read_choices(name: str, values: list[JSON], titles: list[JSON]) -> tuple[Choice, ...]:
    if not values or len(values) > MAX_CHOICES:
        raise InvalidInput(f"the field {name!r} of its form must have 1 to {MAX_CHOICES} values")
    titles = [*titles, *[None] * len(values)]
    found: list[Choice] = []
    for value, title in zip(values, titles, strict=False):
        if not isinstance(value, str) or len(value) > MAX_TITLE_CHARACTERS:
            raise InvalidInput(f"a value of the field {name!r} of its form is not a short text")
        found.append(Choice(value, _short(title, MAX_TITLE_CHARACTERS)))
    return tuple(found)


def _without_null(given: JSON) -> JSONObject:
    """Return the schema of a field. That of one which may also be null is the other one."""
    schema = as_object(given)
    options = _list(schema.get("anyOf"))
    others = [each for each in options if each != {"type": "null"}]
    return {**schema, **as_object(others[0])} if len(others) == 1 and len(options) == 2 else schema


def _list(value: JSON) -> list[JSON]:
    return cast(list[JSON], value) if isinstance(value, list) else []


def _number(value: JSON) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _short(text: JSON, limit: int) -> str:
    seen = visible_text(text) if isinstance(text, str) else ""
    return seen if len(seen) <= limit else f"{seen[:limit]}…"


def input_responses(answer: QuestionAnswer) -> "types.InputResponses":
    """Return an answer as the server expects it."""
    from mcp_types import ElicitResult

    found: dict[str, Any] = {}
    for each in answer.question.requests:
        has_content = answer.action == "accept" and not each.url
        content: Any = dict(answer.content.get(each.key, {})) if has_content else None
        found[each.key] = ElicitResult(action=answer.action, content=content)
    return found
