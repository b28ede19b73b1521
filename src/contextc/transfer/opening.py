"""Input of any kind, opened for inspection: a request of any provider, messages, a log, a session of a program.

The kind is recognised by the content. Nothing is stored. Nothing that the input names is opened, run or fetched; a
`curl` command is parsed as text. Of several requests, the last one is opened, since it contains the history before it,
or the one with the requested number.
"""

import re
from contextlib import suppress
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, check, decode, encode, parse_object
from contextc.errors import ContextcError, InvalidRequest, InvalidSetting
from contextc.formats import format_names, formatter
from contextc.formats.base import Request
from contextc.messages import Message, from_json, to_json
from contextc.store import open_store
from contextc.transfer.dialects import Dialects, format_of_messages
from contextc.transfer.exchanges import Exchange, exchange_in, is_body
from contextc.transfer.files import file_source, is_own
from contextc.transfer.found import ODD, object_in, objects_in
from contextc.transfer.given import File, Given
from contextc.transfer.literals import as_json
from contextc.transfer.sources import Recorded, source
from contextc.transfer.take import import_lines
from contextc.transfer.transcripts import parsed
from contextc.wire.files import session_format
from contextc.wire.reading import readable

Kind: TypeAlias = Literal["request", "messages", "transcript"]
OWN = "contextc"
NOT_SEEN = (
    "the kind of input cannot be recognised. Pass the body of a request, a list of messages, a log of requests, a HAR "
    "recording, a curl command, a session of Claude Code or Codex, or a file that contextc exported."
)
LONGEST_COMMAND = 1_000_000
COMMANDS = ("curl ", "printf ")
WORD = re.compile(r"""(?:[^ \t\r\n'"\\]+|'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*"|\\.)+|[^ \t\r\n]""", re.DOTALL)
"""A word of a shell command, or a quote or backslash that is never closed."""
PIECE = re.compile(r"""'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)|([^'"\\]+)""", re.DOTALL)
"""A part of a word: in single quotes, in double quotes, one escaped character, or plain text."""


class Listed(Struct, frozen=True, kw_only=True):
    """One of several requests in a file: its number from 1, its address and model, its number of messages, and whether
    it failed.
    """

    number: int
    address: str
    model: str
    messages: int
    failed: bool


class Opened(Struct, frozen=True, kw_only=True):
    """An opened input: the format of `body` ("contextc" is our own), and the decoded request. `notes` describe other
    content. `requests` lists all requests of a log; `chosen` is the number of this one, 0 if there is no log.
    """

    format: str
    kind: Kind
    body: JSON
    request: Request
    model: str = ""
    """The last model of a session, if it is recorded."""
    notes: tuple[str, ...] = ()
    requests: tuple[Listed, ...] = ()
    chosen: int = 0


def opened(text: str, format: str | None = None, *, request: int | None = None) -> Opened:
    """Open a text. `format` overrides the recognised format. `request` is the number of one of several requests.

    Raise `InvalidRequest` if the text cannot be recognised.
    """
    if not text.strip():
        raise InvalidRequest("the input is empty.")
    try:
        found = _recognised(text, format, request)
        if (problem := check(found.body)) is not None:
            raise InvalidRequest(problem[1], path=problem[0])
        return found
    except ContextcError:
        raise
    except (*ODD, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"the input cannot be read: {type(error).__name__}: {error}.") from error


def format_of(body: JSON) -> str:
    """Return the format of a request, or of a bare list of messages. Raise `InvalidRequest` if there is none."""
    if (problem := check(body)) is not None:
        raise InvalidRequest(problem[1], path=problem[0])
    found = ""
    if isinstance(body, dict) and is_body(cast(JSONObject, body)):
        found = Dialects().format_of(Exchange(body=cast(JSONObject, body)))
    else:
        held = object_in(body)
        messages = objects_in(held.get("messages", [held] if "role" in held else []) if held else body)
        found = format_of_messages(messages) if messages else ""
    if not found:
        raise InvalidRequest("the format cannot be recognised", fix=f"Pass format, one of {', '.join(format_names())}.")
    return found


def recorded(data: bytes, format: str | None = None) -> list[tuple[str, JSONObject, str]] | None:
    """Return the requests in a recording of a browser or a proxy: label, body and format of each.

    Return None if the bytes are not such a recording.
    """
    if b'"entries"' not in data:
        return None
    file = File(data=data)
    kind = file_source(file)
    if kind is None or not isinstance(found := source(kind), Recorded):
        return None
    dialects = Dialects()
    asked = _asked([exchange for placed in file.values() for exchange in found.exchanges(placed.value)])
    return [
        (f"request {number} of {len(asked)}", cast(JSONObject, each.body), format or dialects.format_of(each))
        for number, each in enumerate(asked, 1)
    ]


def _recognised(text: str, format: str | None, request: int | None) -> Opened:
    command = "\n".join([line for line in text.split("\n") if not line.startswith("#")]).lstrip()
    if command.startswith(COMMANDS):
        return _request(_exchange_of(command), format)
    file = File(data=text.encode("utf-8", "replace"))
    sample = file.sample()
    if not sample.values and (written := as_json(text)) is not None:
        return _recognised(written, format, request)
    if sample.shape == "none":
        raise InvalidRequest(NOT_SEEN)
    if format is None and is_own(file):
        return _own(file)
    if sample.shape == "object" and is_body(sample.values[0]):
        return _request(cast(Exchange, exchange_in(sample.values[0])), format)
    if sample.shape == "list" and exchange_in(next(iter(sample.values), None)) is None:
        return _messages([placed.value for placed in file.values()], format)
    kind = file_source(file)
    if kind is not None and kind.replace("-", "_") in format_names() and sample.shape == "lines":
        return _session(kind.replace("-", "_"), file, is_chat=sample.objects[0].get("role") is not None)
    if kind is not None and sample.shape != "database":
        return _of_source(kind, file, format, request)
    if sample.objects and all("role" in each for each in sample.objects):
        return _messages([placed.value for placed in file.values()], format)
    with suppress(InvalidSetting):  # the output of a program
        return _session(session_format(file.read()), file, is_chat=False)
    raise InvalidRequest(NOT_SEEN)


def _request(exchange: Exchange, format: str | None, notes: tuple[str, ...] = ()) -> Opened:
    if exchange.body is None:
        raise InvalidRequest(NOT_SEEN)
    name = format or Dialects().format_of(exchange)
    return Opened(format=name, kind="request", body=exchange.body, request=_read(name, exchange.body), notes=notes)


def _messages(values: list[JSON], format: str | None) -> Opened:
    """Open a bare list of messages of any format."""
    name = format or format_of_messages(objects_in(values))
    if not name or not objects_in(values):
        raise InvalidRequest(NOT_SEEN)
    return Opened(format=name, kind="messages", body=values, request=_read(name, values))


def _session(format: str, file: File, *, is_chat: bool) -> Opened:
    """Open the session of a program, or a chat in lines."""
    lines, broken = parsed(file.read())
    notes = (f"{broken} lines cannot be read",) if broken else ()
    kind: Kind = "messages" if is_chat else "transcript"
    model = next((found for line in reversed(lines) if (found := _model_in(line))), "")
    return Opened(format=format, kind=kind, body=lines, request=_read(format, lines), model=model, notes=notes)


def _model_in(line: JSONObject) -> str:
    """Return the model that a line of a session names; "" if none."""
    named = (object_in(each).get("model") for each in (line, *line.values()))
    return next((each for each in named if isinstance(each, str) and not each.startswith("<")), "")


def _of_source(kind: str, file: File, format: str | None, request: int | None) -> Opened:
    """Open a file of another program: one of its requests, or else its last conversation."""
    read = source(kind)
    held = read.exchanges if isinstance(read, Recorded) else _exchanges
    if asked := _asked([exchange for placed in file.values() for exchange in held(placed.value)]):
        return _one_of(asked, format, request)
    value = object_in(file.sample().values[0])
    if kind in format_names() and objects_in(value.get("messages")):
        return _messages(objects_in(value["messages"]), format or kind)
    found = [each for each in read.conversations(Given([file], format)) if each.lines]
    if not found:
        raise InvalidRequest(NOT_SEEN)
    notes = (f"the last of {len(found):,} conversations",) if len(found) > 1 else ()
    return _ours(list(found[-1].lines[-1]), notes)


def _exchanges(value: JSON) -> list[Exchange]:
    found = exchange_in(value)
    return [found] if found is not None else []


def _asked(exchanges: list[Exchange]) -> list[Exchange]:
    """Return the exchanges that are chat requests."""
    return [each for each in exchanges if each.body is not None and each.is_talk]


def _one_of(asked: list[Exchange], format: str | None, request: int | None) -> Opened:
    """Open the last request, or the one with the requested number."""
    number = len(asked) if request is None else request
    if not 1 <= number <= len(asked):
        raise InvalidRequest(f"request {number} not found", fix=f"Pass a number from 1 to {len(asked):,}.")
    chosen = asked[number - 1]
    which = "the last" if request is None else f"number {number:,}"
    notes = [f"{which} of {len(asked):,} requests"] if len(asked) > 1 else []
    if chosen.failed:
        notes.append("the provider returned an error")
    listed = [_listed(each, index) for index, each in enumerate(asked, 1)]
    return replace(_request(chosen, format, tuple(notes)), requests=tuple(listed), chosen=number)


def _listed(exchange: Exchange, number: int) -> Listed:
    body = exchange.body or {}
    said = (len(objects_in(body[key])) for key in ("messages", "contents", "input") if isinstance(body.get(key), list))
    model: JSON = body.get("model") or body.get("modelId")
    return Listed(
        number=number,
        address=exchange.address.partition("?")[0],
        model=model if isinstance(model, str) else "",
        messages=next(said, 1),
        failed=exchange.failed,
    )


def _own(file: File) -> Opened:
    """Open an export of contextc, whose chain is verified, or plain messages in our format."""
    values = [encode(placed.value) for placed in file.values()]
    if file.sample().shape == "list":
        return _ours([from_json(value) for value in values])
    with open_store("memory:") as store:
        return _ours(store.load(import_lines(store, values, "opened").name))


def _ours(messages: list[Message], notes: tuple[str, ...] = ()) -> Opened:
    body = [decode(to_json(message)) for message in messages]
    return Opened(format=OWN, kind="messages", body=body, request=Request(messages=tuple(messages)), notes=notes)


def _read(format: str, body: JSON) -> Request:
    form = formatter(format)
    return form.decode_request(readable(form, body).body)


def _exchange_of(command: str) -> Exchange:
    """Return the request that a `curl` command sends: the first argument that is one."""
    if len(command) > LONGEST_COMMAND:
        raise InvalidRequest("the command is too long", fix="Pass only the body that it sends.")
    words = words_of(command.replace("\\\n", " "))
    url = next((word for word in words if word.startswith(("http://", "https://"))), "")
    for word in words:
        body = parse_object(word[word.find("{") :]) if "{" in word and word[0] in "{-" else None
        if body is not None and is_body(body):
            return Exchange(body=body, address=url)
    raise InvalidRequest("the command does not contain the body of a provider request.")


def words_of(command: str) -> list[str]:
    """Return the words of a shell command without their quotes, as `shlex.split` does.

    A body is one word of up to a megabyte. `shlex` takes a step for each character, and copies the word at each.
    """
    words: list[str] = []
    for match in WORD.finditer(command):
        if match[0] in ("'", '"', "\\"):
            raise InvalidRequest(
                "the command cannot be parsed: a quote is not closed, or it ends with a backslash",
                fix="Complete the command, or pass only the body that it sends.",
            )
        words.append("".join([_unquoted(piece) for piece in PIECE.finditer(match[0])]))
    return words


def _unquoted(piece: re.Match[str]) -> str:
    single, double, escaped, plain = piece.groups()
    if double is not None:
        return re.sub(r'\\(["\\])', r"\1", double)
    return next(each for each in (single, escaped, plain) if each is not None)
