"""Input of any kind, opened for inspection: a request of any provider, messages, a log, a session of a program.

The kind is recognised by the content. Nothing is stored. Nothing that the input names is opened, run or fetched; a
`curl` command is parsed as text. Of several requests, the last one is opened, since it contains the history before it,
or the one with the requested number.
"""

import ast
import re
from contextlib import suppress
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects, decode, encode, find_json_problem, parse_object
from contextc.errors import ContextcError, InvalidImport, InvalidRequest, InvalidSetting
from contextc.formats import format_names, formatter
from contextc.formats.base import Request
from contextc.interchange.contextc_jsonl import import_lines
from contextc.interchange.file_import import detect_source, is_own_format
from contextc.interchange.found_conversation import DATA_ERRORS, parse_lines
from contextc.interchange.input_files import ImportInput, InputFile
from contextc.interchange.log_import import LoggedExchange, is_request_body, parse_exchange
from contextc.interchange.sources import ExchangeSource, LogSource, load_source
from contextc.linting.request_reading import coerce_request, detect_session_format, read_requests
from contextc.messages import Message, decode_message, encode_message
from contextc.observation.reply_decoding import FormatDetector, detect_message_format
from contextc.store import open_store

InputKind: TypeAlias = Literal["request", "messages", "transcript"]
OWN_FORMAT = "contextc"
REQUEST_LOG = "request-log"
NOT_RECOGNISED = (
    "the kind of input cannot be recognised. Pass the body of a request, a list of messages, a log of requests, a HAR "
    "recording, a curl command, a session of Claude Code or Codex, or a file that contextc exported."
)
MAX_COMMAND_LENGTH = 1_000_000
COMMANDS = ("curl ", "printf ")
WORD = re.compile(r"""(?:[^ \t\r\n'"\\]+|'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*"|\\.)+|[^ \t\r\n]""", re.DOTALL)
"""A word of a shell command, or a quote or backslash that is never closed."""
PIECE = re.compile(r"""'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)|([^'"\\]+)""", re.DOTALL)
"""A part of a word: in single quotes, in double quotes, one escaped character, or plain text."""


class RequestEntry(Struct, frozen=True, kw_only=True):
    """One of several requests in a file: its number from 1, its address and model, its number of messages, and whether
    it failed.
    """

    number: int
    address: str
    model: str
    messages: int
    failed: bool


class OpenedInput(Struct, frozen=True, kw_only=True):
    """An opened input: the format of `body` ("contextc" is our own), and the decoded request. `notes` describe other
    content. `requests` lists all requests of a log; `chosen` is the number of this one, 0 if there is no log.
    `answered`: the provider answered it.
    """

    format: str
    kind: InputKind
    body: JSON
    request: Request
    model: str = ""
    """The last model of a session, if it is recorded."""
    notes: tuple[str, ...] = ()
    requests: tuple[RequestEntry, ...] = ()
    chosen: int = 0
    answered: bool = False


class LabelledRequest(NamedTuple):
    """A request in a recording or a log, its position as text, and whether it was answered."""

    label: str
    body: JSONObject
    format: str
    answered: bool


class RecordedInput(NamedTuple):
    """The requests in a recording or a log. `kind` describes the file.

    `left_out` are the positions of entries without a chat request.
    """

    kind: str
    requests: list[LabelledRequest]
    left_out: tuple[str, ...] = ()


def open_text(text: str, format: str | None = None, *, request: int | None = None) -> OpenedInput:
    """Open a text. `format` overrides the recognised format. `request` is the number of one of several requests.

    Raise `InvalidRequest` if the text cannot be recognised.
    """
    if not text.strip():
        raise InvalidRequest("the input is empty.")
    try:
        found = _open_recognised(text, format, request)
        if (problem := find_json_problem(found.body)) is not None:
            raise InvalidRequest(problem[1], path=problem[0])
        return found
    except InvalidRequest as error:
        if str(error) == NOT_RECOGNISED and (broken := _find_json_error(text)) is not None:
            raise broken from None
        raise
    except ContextcError:
        raise
    except (*DATA_ERRORS, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"the input cannot be read: {type(error).__name__}: {error}.") from error


def is_single_request(file: InputFile) -> bool:
    """Return True if a file is not a recording or a conversation: it is one request, or messages, or not recognised."""
    sample = file.sample()
    if sample.shape == "database":
        return False
    first: JSON = next(iter(sample.values), None)
    is_request = sample.shape == "object" and is_request_body(first)
    is_list = sample.shape == "list" and parse_exchange(first) is None
    if sample.shape == "none" or is_request or is_list:
        return True
    if is_own_format(file):
        return False
    kind = detect_source(file)
    return kind is None or (kind.replace("-", "_") in format_names() and "role" in (as_object(first) or {}))


def _find_json_error(text: str) -> InvalidRequest | None:
    """Return the place of the error in a text that is meant to be JSON; None if it is not, or has none."""
    if not text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        return None
    try:
        read_requests(text.encode(errors="replace"))
    except InvalidRequest as error:
        return error if error.path.startswith("line ") else None
    except ContextcError:
        return None
    return None


def detect_format(body: JSON) -> str:
    """Return the format of a request, or of a bare list of messages. Raise `InvalidRequest` if there is none."""
    if (problem := find_json_problem(body)) is not None:
        raise InvalidRequest(problem[1], path=problem[0])
    found = ""
    if isinstance(body, dict) and is_request_body(cast(JSONObject, body)):
        found = FormatDetector().format_of(cast(JSONObject, body))
    else:
        held = as_object(body)
        messages = as_objects(held.get("messages", [held] if "role" in held else []) if held else body)
        found = detect_message_format(messages) if messages else ""
    if not found:
        raise InvalidRequest("the format cannot be recognised", fix=f"Pass format, one of {', '.join(format_names())}.")
    return found


def recorded_requests(data: bytes, format: str | None = None) -> RecordedInput | None:
    """Return the requests in a recording of a browser or a proxy, or in a request log.

    Return None if the bytes are neither of them.
    """
    if is_request_log(data):
        return _logged_requests(InputFile(data=data), format)
    if b'"entries"' not in data:
        return None
    file = InputFile(data=data)
    kind = detect_source(file)
    if kind is None or not isinstance(found := load_source(kind), ExchangeSource):
        return None
    detector = FormatDetector()
    asked = _chat_exchanges([exchange for placed in file.values() for exchange in found.read_exchanges(placed.value)])
    labelled = [
        _label_request(f"request {number} of {len(asked)}", each, format, detector)
        for number, each in enumerate(asked, 1)
    ]
    return RecordedInput("HAR recording", labelled)


def is_request_log(data: bytes) -> bool:
    """Return True for a log whose entries have requests inside of envelopes, as `contextc import` reads it."""
    file = InputFile(data=data)
    try:
        values = file.sample().objects
        if not values or any(map(is_request_body, values)) or not any(map(_exchanges, values)):
            return False
        return detect_source(file) == REQUEST_LOG
    except (ValueError, RecursionError):  # also input that is not JSON, which the reader of requests reports
        return False


def _logged_requests(file: InputFile, format: str | None) -> RecordedInput:
    detector = FormatDetector()
    labelled: list[LabelledRequest] = []
    left_out: list[str] = []
    try:
        for placed in file.values():
            if asked := _chat_exchanges(_exchanges(placed.value)):
                labelled.append(_label_request(placed.position, asked[0], format, detector))
            else:
                left_out.append(placed.position)
    except InvalidImport as error:
        raise InvalidRequest(
            "this is not JSON", path=f"line {error.line}", fix="Remove or correct the line."
        ) from error
    return RecordedInput("request log", labelled, tuple([*left_out, *file.notes]))


def _label_request(
    label: str, exchange: LoggedExchange, format: str | None, detector: FormatDetector
) -> LabelledRequest:
    body = exchange.body or {}
    name = format or detector.format_of(body, exchange.reply, exchange.address)
    return LabelledRequest(label, body, name, exchange.is_answered)


def _open_recognised(text: str, format: str | None, request: int | None) -> OpenedInput:
    command = "\n".join([line for line in text.split("\n") if not line.startswith("#")]).lstrip()
    if command.startswith(COMMANDS):
        return _open_request(_exchange_of(command), format)
    file = InputFile(data=text.encode("utf-8", "replace"))
    sample = file.sample()
    if not sample.values and (written := repr_to_json(text)) is not None:
        return _open_recognised(written, format, request)
    if sample.shape == "none":
        raise InvalidRequest(NOT_RECOGNISED)
    if format is None and is_own_format(file):
        return _open_own(file)
    if sample.shape == "object" and is_request_body(sample.values[0]):
        return _open_request(cast(LoggedExchange, parse_exchange(sample.values[0])), format)
    if sample.shape == "list" and parse_exchange(next(iter(sample.values), None)) is None:
        return _open_messages([placed.value for placed in file.values()], format)
    kind = detect_source(file)
    if kind is not None and kind.replace("-", "_") in format_names() and sample.shape == "lines":
        return _open_session(kind.replace("-", "_"), file, is_chat=sample.objects[0].get("role") is not None)
    if kind is not None and sample.shape != "database":
        return _open_with_source(kind, file, format, request)
    if sample.objects and all("role" in each for each in sample.objects):
        return _open_messages([placed.value for placed in file.values()], format)
    with suppress(InvalidSetting):  # the output of a program
        return _open_session(detect_session_format(file.read()), file, is_chat=False)
    raise InvalidRequest(NOT_RECOGNISED)


def _open_request(exchange: LoggedExchange, format: str | None, notes: tuple[str, ...] = ()) -> OpenedInput:
    if exchange.body is None:
        raise InvalidRequest(NOT_RECOGNISED)
    name = format or FormatDetector().format_of(exchange.body or {}, exchange.reply, exchange.address)
    return OpenedInput(
        format=name,
        kind="request",
        body=exchange.body,
        request=_decode_request(name, exchange.body),
        notes=notes,
        answered=exchange.is_answered,
    )


def _open_messages(values: list[JSON], format: str | None) -> OpenedInput:
    """Open a bare list of messages of any format."""
    name = format or detect_message_format(as_objects(values))
    if not name or not as_objects(values):
        raise InvalidRequest(NOT_RECOGNISED)
    return OpenedInput(format=name, kind="messages", body=values, request=_decode_request(name, values))


def _open_session(format: str, file: InputFile, *, is_chat: bool) -> OpenedInput:
    """Open the session of a program, or a chat in lines."""
    lines, broken = parse_lines(file.read())
    notes = (f"{len(broken)} lines cannot be read",) if broken else ()
    kind: InputKind = "messages" if is_chat else "transcript"
    model = next((found for line in reversed(lines) if (found := _model_in(line))), "")
    return OpenedInput(
        format=format, kind=kind, body=lines, request=_decode_request(format, lines), model=model, notes=notes
    )


def _model_in(line: JSONObject) -> str:
    """Return the model that a line of a session names; "" if none."""
    named = (as_object(each).get("model") for each in (line, *line.values()))
    return next((each for each in named if isinstance(each, str) and not each.startswith("<")), "")


def _open_with_source(kind: str, file: InputFile, format: str | None, request: int | None) -> OpenedInput:
    """Open a file of another program: one of its requests, or else its last conversation."""
    read = load_source(kind)
    held = read.read_exchanges if isinstance(read, ExchangeSource) else _exchanges
    if asked := _chat_exchanges([exchange for placed in file.values() for exchange in held(placed.value)]):
        return _open_one(asked, format, request)
    value = as_object(file.sample().values[0])
    if kind in format_names() and as_objects(value.get("messages")):
        return _open_messages(as_objects(value["messages"]), format or kind)
    if isinstance(read, LogSource):
        raise InvalidRequest(NOT_RECOGNISED)
    found = [each for each in read.read_conversations(ImportInput([file], format)) if each.lines]
    found = [each for each in found if each.agent is None] or found  # a session, and not its sub-agents
    if not found:
        raise InvalidRequest(NOT_RECOGNISED)
    notes = (f"the last of {len(found):,} conversations",) if len(found) > 1 else ()
    return _opened_messages(list(found[-1].lines[-1]), notes)


def _exchanges(value: JSON) -> list[LoggedExchange]:
    found = parse_exchange(value)
    return [found] if found is not None else []


def _chat_exchanges(exchanges: list[LoggedExchange]) -> list[LoggedExchange]:
    """Return the exchanges that are chat requests."""
    return [each for each in exchanges if each.body is not None and each.is_chat]


def _open_one(asked: list[LoggedExchange], format: str | None, request: int | None) -> OpenedInput:
    """Open the last request, or the one with the requested number."""
    number = len(asked) if request is None else request
    if not 1 <= number <= len(asked):
        raise InvalidRequest(f"request {number} not found", fix=f"Pass a number from 1 to {len(asked):,}.")
    chosen = asked[number - 1]
    which = "the last" if request is None else f"number {number:,}"
    notes = [f"{which} of {len(asked):,} requests"] if len(asked) > 1 else []
    if chosen.failed:
        notes.append("the provider returned an error")
    listed = [_list_entry(each, index) for index, each in enumerate(asked, 1)]
    return replace(_open_request(chosen, format, tuple(notes)), requests=tuple(listed), chosen=number)


def _list_entry(exchange: LoggedExchange, number: int) -> RequestEntry:
    body = exchange.body or {}
    lengths = (
        len(as_objects(body[key])) for key in ("messages", "contents", "input") if isinstance(body.get(key), list)
    )
    model: JSON = body.get("model") or body.get("modelId")
    return RequestEntry(
        number=number,
        address=exchange.address.partition("?")[0],
        model=model if isinstance(model, str) else "",
        messages=next(lengths, 1),
        failed=exchange.failed,
    )


def _open_own(file: InputFile) -> OpenedInput:
    """Open an export of contextc, whose chain is verified, or plain messages in our format."""
    values = [encode(placed.value) for placed in file.values()]
    if file.sample().shape == "list":
        return _opened_messages([decode_message(value) for value in values])
    with open_store("memory:") as store:
        return _opened_messages(store.load(import_lines(store, values, "opened").name))


def _opened_messages(messages: list[Message], notes: tuple[str, ...] = ()) -> OpenedInput:
    body = [decode(encode_message(message)) for message in messages]
    return OpenedInput(
        format=OWN_FORMAT, kind="messages", body=body, request=Request(messages=tuple(messages)), notes=notes
    )


def _decode_request(format: str, body: JSON) -> Request:
    form = formatter(format)
    return form.decode_request(coerce_request(form, body).body)


def _exchange_of(command: str) -> LoggedExchange:
    """Return the request that a `curl` command sends: the first argument that is one."""
    if len(command) > MAX_COMMAND_LENGTH:
        raise InvalidRequest("the command is too long", fix="Pass only the body that it sends.")
    arguments = split_command(command.replace("\\\n", " "))
    url = next((argument for argument in arguments if argument.startswith(("http://", "https://"))), "")
    for argument in arguments:
        body = parse_object(argument[argument.find("{") :]) if "{" in argument and argument[0] in "{-" else None
        if body is not None and is_request_body(body):
            return LoggedExchange(body=body, address=url)
    raise InvalidRequest("the command does not contain the body of a provider request.")


def split_command(command: str) -> list[str]:
    """Return the words of a shell command without their quotes, as `shlex.split` does.

    A body is one word of up to a megabyte. `shlex` takes a step for each character, and copies the word at each.
    """
    arguments: list[str] = []
    for match in WORD.finditer(command):
        if match[0] in ("'", '"', "\\"):
            raise InvalidRequest(
                "the command cannot be parsed: a quote is not closed, or it ends with a backslash",
                fix="Complete the command, or pass only the body that it sends.",
            )
        arguments.append("".join([_unquote(piece) for piece in PIECE.finditer(match[0])]))
    return arguments


def _unquote(piece: re.Match[str]) -> str:
    single, double, escaped, plain = piece.groups()
    if double is not None:
        return re.sub(r'\\(["\\])', r"\1", double)
    return next(each for each in (single, escaped, plain) if each is not None)


# ── the Python repr of messages ───────────────────────────────────────────────────────────────────────────────────────
# Python's printed form of a list of messages, converted to JSON: text copied from a terminal, with single quotes.
#
# It is parsed as a literal and never run. Its length, depth and characters are limited first, because deep nesting and
# long chains of operators can exhaust a parser.


MAX_LENGTH = 4_000_000
MAX_DEPTH = 60
STRING = re.compile(r"""'(?:\\.|[^'\\\n])*+'|"(?:\\.|[^"\\\n])*+"|(['"]).*""", re.DOTALL)
"""A string, or all after a single quote that starts none."""
PLAIN = re.compile(r"(?:[\[\]{}(),:\s]|True\b|False\b|None\b|-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)*+")
OPERATOR = re.compile(r"[\w\])}]\s*[-\[({]")
"""A call, a subscript or a subtraction, which no printed value contains."""


def repr_to_json(text: str) -> str | None:
    """Return the JSON of a list or an object that Python printed; None for any other text."""
    text = text.strip()
    if text[:1] not in ("[", "{") or len(text) > MAX_LENGTH:
        return None
    around = _without_strings(text)
    if around is None or PLAIN.fullmatch(around) is None or OPERATOR.search(around) or _count_depth(around) > MAX_DEPTH:
        return None
    try:
        return encode(_to_json_value(ast.literal_eval(text))).decode()
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _without_strings(text: str) -> str | None:
    """Return the text with a 0 in place of each string; None if a quote is left."""
    pieces: list[str] = []
    at = 0
    for found in STRING.finditer(text):
        if found[1]:
            return None
        pieces += [text[at : found.start()], "0"]
        at = found.end()
    return "".join([*pieces, text[at:]])


def _count_depth(around: str) -> int:
    deepest = depth = 0
    for letter in re.findall(r"[\[{()}\]]", around):
        depth += (letter in "[{(") - (letter in "]})")
        deepest = max(deepest, depth)
    return deepest


def _to_json_value(value: object) -> JSON:
    """Return the JSON form of a value. Raise ValueError if it has none."""
    if isinstance(value, dict):
        held = cast(dict[object, object], value)
        if not all(isinstance(name, str) for name in held):
            raise ValueError("a key must be text")
        return {str(name): _to_json_value(each) for name, each in held.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(each) for each in cast(list[object], value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"{type(value).__name__} has no JSON equivalent")
