"""Read requests from any source, as tolerantly as possible, and files of requests."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode, find_json_problem, fix_surrogates_in_json, json_type_name
from contextc.errors import InvalidRequest, InvalidSetting
from contextc.formats import format_names, formatter
from contextc.formats.base import ConversionNote, Formatter, Request, note_for_repair
from contextc.formats.lint_engine import JSONPath, RuleSet
from contextc.messages import Message, PairingRepair, Reasoning, ToolCall, pair_tool_calls


class DecodableRequest(NamedTuple):
    """A request that can be decoded.

    `bare`: it came as a bare list. `malformed_count`: the number of malformed values.
    """

    body: JSONObject
    bare: bool
    malformed_count: int


def validate_json(body: JSON) -> JSON:
    """Return a body that JSON can represent; lone surrogates become U+FFFD. Raise `InvalidRequest` for other values."""
    if isinstance(body, dict | list):  # may be a subclass, such as the result of `convert`
        body = list(cast(list[JSON], body)) if isinstance(body, list) else dict(cast(JSONObject, body))
    if problem := find_json_problem(body):
        raise InvalidRequest(problem[1], path=problem[0])
    try:
        encode(body)
    except UnicodeEncodeError:
        return fix_surrogates_in_json(body)
    return body


def check_request(body: JSON) -> None:
    if not isinstance(body, dict | list):
        raise InvalidRequest(f"a request must be an object or a list of messages, got {json_type_name(body)}.")


def coerce_request(form: Formatter, body: JSON) -> DecodableRequest:
    """Return the request with every malformed value coerced to a valid one: the intended value if it is clear, else
    text.
    """
    return coerce_validated(form, validate_json(body))


def coerce_validated(form: Formatter, body: JSON) -> DecodableRequest:
    """Return `coerce_request` of a body that has passed `validate_json`."""
    check_request(body)
    bare, rules = isinstance(body, list), form.rules
    root: JSONObject = {"whole": {form.messages_key: body} if bare else body}
    _check_messages_key(form, root["whole"])
    count = len(rules.parse(root["whole"]).malformed)
    if not count:
        return DecodableRequest(root["whole"], bare, 0)
    root = {"whole": _convert_foreign_messages(form, deepcopy(root["whole"]))}
    for reshape in (rules.coerce, rules.as_text):
        _replace_malformed(rules, root, reshape)
    return DecodableRequest(root["whole"], bare, count)


def _replace_malformed(rules: RuleSet, root: JSONObject, reshape: Callable[[JSON, JSONPath], JSON]) -> None:
    """Replace every malformed value in `root["whole"]`, from the last to the first."""
    holder: list[JSON] = []  # the list from which the positions in `gone` are deleted at once
    gone: set[JSON] = set()
    for finding in reversed(rules.parse(root["whole"]).malformed):
        *before, last = ("whole", *finding.path)
        parent: JSON = root
        for step in before:
            parent = parent[step]
        if parent is not holder:
            _delete_positions(holder, gone)
        there = last in parent if isinstance(parent, dict) else True
        shaped = reshape(parent[last] if there else None, finding.path)
        if shaped is None and isinstance(parent, list):
            holder = cast(list[JSON], parent)
            gone.add(last)
        elif shaped is None and there:
            del parent[last]
        elif shaped is not None:
            parent[last] = shaped
    _delete_positions(holder, gone)


def _delete_positions(holder: list[JSON], gone: set[JSON]) -> None:
    """Delete these positions from a list."""
    if gone:
        holder[:] = [each for index, each in enumerate(holder) if index not in gone]
        gone.clear()


def _check_messages_key(form: Formatter, body: JSONObject) -> None:
    """Raise `InvalidRequest` if the messages are under another format's key: such a request would look empty."""
    if form.messages_key in body:
        return
    kinds: dict[str, list[str]] = {}
    for name in format_names():
        kinds.setdefault(formatter(name).messages_key, []).append(name)
    for key, names in kinds.items():
        if isinstance(body.get(key), list):
            raise InvalidRequest(
                f"a request in format {form.name} must have its messages in `{form.messages_key}`, got `{key}`",
                fix=f"Use the format of this request, one of {', '.join(names)}.",
            )


def _convert_foreign_messages(form: Formatter, body: JSONObject) -> JSONObject:
    """Return the request with messages in another provider's format converted to this one.

    Histories that passed through several frameworks often contain a few messages in another format.
    """
    key = form.messages_key
    if not isinstance(body.get(key), list):
        return body
    broken = {
        finding.path[1] for finding in form.rules.parse(body).malformed if finding.path[:1] == (key,) != finding.path
    }
    messages: list[JSON] = []
    for index, message in enumerate(cast(list[JSON], body[key])):
        messages += (_convert_message(form, message) if index in broken else None) or [message]
    return {**body, key: messages}


def _has_recognized_calls(form: Formatter, message: JSON) -> bool:
    """Return True if the format itself finds the calls and results in a malformed message."""
    root: JSONObject = {"whole": {form.messages_key: [deepcopy(message)]}}
    _replace_malformed(form.rules, root, form.rules.coerce)
    sketch = form.rules.parse(root["whole"])
    kinds = {piece.kind for turn in sketch.messages for piece in turn.parts}
    return not sketch.malformed and bool(kinds & {"call", "result"})


def _convert_message(form: Formatter, message: JSON) -> list[JSONObject] | None:
    """Return a message converted to this format if another format can parse it; else None."""
    if _has_recognized_calls(form, message):
        return None
    for name in format_names():
        other = formatter(name)
        sketch = other.rules.parse([message])
        kinds = {piece.kind for turn in sketch.messages for piece in turn.parts}
        if other is not form and not sketch.malformed and kinds & {"call", "result", "media"}:
            request = other.decode_request({other.messages_key: [message]})
            return list(form.encode(request.messages).messages)
    return None


class DecodedRequest(NamedTuple):
    request: Request
    notes: list[ConversionNote]


def decode_and_pair(form: Formatter, body: JSONObject, *, same_provider: bool) -> DecodedRequest:
    """Decode the request: pair results with calls, assign calls and reasoning to the assistant, turn strays into text.

    With `same_provider`, the request goes back to the same provider. A result whose call the provider stores is then
    not a stray.
    """
    request = form.decode_request(body)
    if request.system is not None and _is_assistant_only(request.system):
        request = replace(request, messages=(request.system, *request.messages), system=None)
    messages = form.with_session_results(request) if same_provider else request.messages
    paired = pair_tool_calls(
        list(_with_assistant_roles(messages)),
        orphans_as_text=True,
        placement=form.result_placement,
        placed_by=form.extra_key if same_provider else "",
    )
    notes = [note for repair in paired.repairs if (note := _pairing_note(repair)) is not None]
    return DecodedRequest(replace(request, messages=tuple(paired.messages)), notes)


def _pairing_note(repair: PairingRepair) -> ConversionNote | None:
    if repair.kind in ("orphan", "duplicate"):
        return ConversionNote("changed", f"a result for {repair.call_id} that no call asked for, into text")
    return note_for_repair(repair)


def _with_assistant_roles(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages; those with calls or reasoning get the role `assistant`."""
    for message in messages:
        yield (
            replace(message, role="assistant")
            if message.role != "assistant" and _is_assistant_only(message)
            else message
        )


def _is_assistant_only(message: Message) -> bool:
    """Return True if only the assistant can have written a message."""
    return any(isinstance(part, ToolCall | Reasoning) for part in message.parts)


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Read and write files of requests: one JSON request, a bare list of messages, or JSON Lines.
#
# Each line of JSON Lines is a request, a list of messages or a message. In session files of programs such as Claude
# Code, all lines are one conversation. The program may have been killed while writing a line, so lines that are not
# JSON are skipped, and their numbers are returned.


NEWLINE = b"\n"
MAX_NAMED_LINES = 5
FileLayout: TypeAlias = Literal["whole", "lines", "messages", "session"]


class RequestFile(NamedTuple):
    """The requests in a file, and the layout of the file.

    `layout` is "whole" (one JSON value), "lines" (one request per line), "messages" (one message per line) or
    "session".
    `unreadable_lines` are the numbers of the lines that are not JSON.
    """

    bodies: list[JSONObject]  # or lists of messages
    layout: FileLayout
    unreadable_lines: tuple[int, ...] = ()

    def position_label(self, index: int) -> str:
        """Return the position of a request in its file; empty if it is the only one."""
        return f"line {index + 1}" if self.layout == "lines" else ""

    def by_name(self, name: str) -> dict[str, JSONObject]:
        """Return the requests by names derived from `name`."""
        if len(self.bodies) == 1:
            return {name: self.bodies[0]}
        return {f"{name}-{number}": body for number, body in enumerate(self.bodies, 1)}


def read_requests(data: bytes, format: str | None = None) -> RequestFile:
    """Return the requests in the bytes of a file. If the lines of `format` form a session, return that one session.

    Raise `InvalidRequest` if the bytes are neither JSON nor JSON Lines, or hold neither an object nor a list.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    form = formatter(format) if format else None
    if not data.strip():
        raise InvalidRequest("the file is empty", fix="Give JSON or JSON Lines.")
    try:
        whole = _decode_json(data)
    except InvalidRequest:
        raise
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
        problem = error
    else:
        check_request(whole)
        one_line = form is not None and _is_session_line(form, whole)
        return RequestFile([cast(JSONObject, [whole])], "session") if one_line else RequestFile([whole], "whole")
    if form is not None and form.session_line_fields and (found := _as_session(lines, form)) is not None:
        return found
    if len(lines) < 2 or not (_is_json(lines[0][1]) or _is_json(lines[1][1])):  # so these are not JSON Lines
        raise _json_error(data, problem) from problem
    values = [_decode_line(number, line) for number, line in lines]
    if all(isinstance(value, dict) and "role" in value for value in values):
        return RequestFile([cast(JSONObject, values)], "messages")
    return RequestFile(values, "lines")


def detect_session_format(data: bytes) -> str:
    """Return the format of a program's session file. Raise `InvalidSetting` if it cannot be detected."""
    values = [value for line in data.splitlines() if (value := _object_or_none(line)) is not None]
    forms = [form for form in map(formatter, format_names()) if any(_is_session_line(form, value) for value in values)]
    strange = {form.name: len(form.rules.parse(values).malformed) for form in forms}
    least = min(strange.values(), default=0)
    fitting = [name for name, count in strange.items() if count == least and 2 * count < len(values)]
    if len(fitting) != 1:
        raise InvalidSetting("the format cannot be detected", fix=f"Give one of {', '.join(format_names())}.")
    return fitting[0]


def describe_unreadable_lines(numbers: Sequence[int]) -> str:
    """Return the note for lines that are left out, with the numbers of the first ones."""
    if len(numbers) == 1:
        return f"1 line that cannot be read: line {numbers[0]}"
    more = f" and {len(numbers) - MAX_NAMED_LINES:,} more" if len(numbers) > MAX_NAMED_LINES else ""
    named = ", ".join(map(str, numbers[:MAX_NAMED_LINES]))
    return f"{len(numbers):,} lines that cannot be read: lines {named}{more}"


def layout_for(layout: FileLayout, format: str) -> FileLayout:
    """Return the layout for writing in another format: a session stays lines only if that format has sessions too."""
    return "whole" if layout == "session" and not formatter(format).session_line_fields else layout


def _as_session(lines: list[tuple[int, bytes]], form: Formatter) -> RequestFile | None:
    """Return the lines as one conversation; None if each line is a request of its own."""
    found = [(number, _object_or_none(line)) for number, line in lines]
    values = [value for _, value in found if value is not None]
    if not any(_is_session_line(form, value) for value in values):
        return None
    unreadable = tuple([number for number, value in found if value is None])
    return RequestFile([cast(JSONObject, values)], "session", unreadable)


def _is_session_line(form: Formatter, value: JSON) -> bool:
    return (
        isinstance(value, dict)
        and form.messages_key not in value
        and any(mark in value for mark in form.session_line_fields)
    )


def write_requests(bodies: Sequence[JSON], layout: FileLayout) -> bytes:
    """Return the bytes of a file that holds these requests in this layout."""
    if layout == "whole":
        return msgspec.json.format(encode(bodies[0]), indent=2) + b"\n"
    given: JSON = bodies[0]
    one = layout in ("messages", "session") and isinstance(given, list)
    lines = cast(Sequence[JSON], given if one else bodies)
    return b"".join(encode(line) + b"\n" for line in lines)


def _decode_json(data: bytes) -> JSON:
    """Decode JSON, including lone surrogates, which the json module accepts and msgspec does not. Raise ValueError."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as problem:
        if b"\\ud" not in data.lower():
            raise ValueError(str(problem)) from problem
        return fix_surrogates_in_json(json.loads(data))
    except RecursionError:
        raise InvalidRequest("the JSON is nested too deeply.") from None


BYTE_POSITION = re.compile(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)")


def _json_error(data: bytes, error: ValueError, line: int = 1) -> InvalidRequest:
    """Return the error for bytes that are not JSON, with the reason and the position. `line` is their first line."""
    problem, at = str(error), len(data)
    if (found := BYTE_POSITION.fullmatch(problem)) is not None:
        problem, at = found[1], int(found[2])
    elif isinstance(error, json.JSONDecodeError):
        problem, at = error.msg, len(error.doc[: error.pos].encode(errors="replace"))
    elif isinstance(error, UnicodeDecodeError):
        problem, at = "not UTF-8 text", _first_undecodable(data)
    elif "truncated" in problem:
        problem = "it is truncated"
    before = data[:at]
    column = len(before) - before.rfind(b"\n")
    return InvalidRequest(f"this is not JSON: {problem}.", path=f"line {line + before.count(NEWLINE)}, column {column}")


def _first_undecodable(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


def _is_json(line: bytes) -> bool:
    try:
        _decode_json(line)
    except ValueError as error:
        return isinstance(error, InvalidRequest)
    return True


def _object_or_none(line: bytes) -> JSON:
    """Return the JSON object in a line; None if the line holds none."""
    try:
        value = _decode_json(line)
    except ValueError:
        return None
    return cast(JSONObject, value) if isinstance(value, dict) else None


def _decode_line(number: int, line: bytes) -> JSONObject:
    try:
        value = _decode_json(line)
    except InvalidRequest as error:
        raise InvalidRequest(error.problem, path=f"line {number}", fix=error.fix) from error
    except ValueError as error:
        raise _json_error(line, error, number) from error
    if isinstance(value, dict | list):
        return cast(JSONObject, value)
    raise InvalidRequest(
        f"expected a request, a list of messages or a message, got {json_type_name(value)}.", path=f"line {number}"
    )
