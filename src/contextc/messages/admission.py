"""The door of a conversation: every message passes here before it is stored, and nothing half-right gets through.

What it decides, each with a test:
  unknown role, wrong type, unknown field      refused
  blank user or system message                 refused; blank text beside other parts stays
  empty assistant message                      refused, unless a finish reason or a failure explains it
  call without id or name                      refused; malformed arguments are kept raw and marked (`ToolCall`)
  result without its call's id or name         refused
  NaN, infinity, keys that are not text        refused, because JSON cannot hold them
  nesting beyond 100 levels                    refused; as text (call arguments, results) it is kept
  a message beyond 256 MiB                     refused
  NUL                                          kept
  surrogate pairs                              joined; lone surrogates, which no encoding carries, become U+FFFD
"""

from collections.abc import Iterator
from typing import assert_never

import msgspec
from msgspec.structs import replace

from contextc._json import blob_name, check, well_formed_json
from contextc.errors import InvalidMessage
from contextc.messages.message import Message, content_of, from_json, to_json
from contextc.messages.parts import AnyPart, Hint, Media, Native, Part, Reasoning, Text, ToolCall, ToolResult

MAX_BYTES = 256 * 1024 * 1024
ENDS_WITH_TEXT = b'"}]}'
ALLOWED = {
    "status": " Use sent, error or cancelled.",
    "as_role": " Use system, user, assistant or tool.",
}


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """A message that may be stored: a copy nobody else holds, its canonical content, and its media.

    `blobs` names every blob the message uses; its bytes stand beside it where the message brought them.
    """

    message: Message
    content: bytes
    blobs: dict[str, bytes | None]


def admit(message: Message) -> Admitted:
    """Check a message and make it ready for a chain, or raise `InvalidMessage`."""
    if type(message) is not Message:
        raise InvalidMessage(
            f"a {type(message).__name__} is not a message. Make one with contextc.user and its siblings."
        )
    parts = message.parts
    if not isinstance(parts, tuple | list):
        raise InvalidMessage(f"a {type(parts).__name__} is not a tuple of parts.", field="parts")
    blobs: dict[str, bytes | None] = {}
    for part in parts:
        if type(part) is not Text and _has_media(part):
            message = replace(message, parts=tuple([_detach(part, blobs) for part in parts]))
            break
    if problem := _problem(message):
        raise InvalidMessage(problem[1], field=problem[0])
    message = _copy(message)
    return Admitted(message, content_of(message), blobs)


def _copy(message: Message) -> Message:
    """There and back through JSON: the types are checked, and later changes to a caller's dict change nothing here."""
    try:
        try:
            body = to_json(message)
        except UnicodeEncodeError:
            body = to_json(well_formed_json(msgspec.to_builtins(message)))
            message = from_json(body)
        if len(body) > MAX_BYTES:
            raise InvalidMessage(
                f"the message takes {len(body):,} bytes and the limit is {MAX_BYTES:,}. Give large content as Media "
                "with `data`, or store it elsewhere and say where."
            )
        return message if _is_one_text(message, body) else from_json(body)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        allowed = ALLOWED.get(path.rstrip("`"), "")
        raise InvalidMessage(f"{problem}.{allowed}", field=path.rstrip("`")) from error
    except TypeError as error:
        raise InvalidMessage(f"{error}.") from error


def _is_one_text(message: Message, body: bytes) -> bool:
    """Whether a message is a text and nothing else: what most are, and nothing in it could be changed or of a wrong
    type.

    Its JSON ends with its only part; any other field would stand behind that.
    """
    parts = message.parts
    return body.endswith(ENDS_WITH_TEXT) and type(parts) is tuple and len(parts) == 1 and type(parts[0]) is Text


def _problem(message: Message) -> tuple[str, str] | None:
    """The first rule the message breaks: where, and what and the way out."""
    role, says_something = message.role, False
    for index, part in enumerate(message.parts):
        if type(part) is Text and part.extra is None:
            if type(part.text) is not str:
                return f"parts[{index}].text", f"a {type(part.text).__name__} is not text."
            says_something = says_something or not (part.text == "" or part.text.isspace())
            continue
        if not isinstance(part, Part):
            return f"parts[{index}]", f"a {type(part).__name__} is not a part. Use Text, ToolCall and their siblings."
        for field, problem in _part_problems(part, role):
            return f"parts[{index}]{field}", problem
        says_something = says_something or _says_something(part)
    if message.status == "pending":
        return "status", "a pending message is in no chain yet. Open a stream for it, or append it when it is complete."
    if type(message.time) is not int or not 0 <= message.time < 1 << 53:
        return "time", f"{message.time!r} is no moment: give milliseconds since 1970."
    if message.redacted:
        return "redacted", "a message is redacted where it is stored, with store.redact; it cannot be appended so."
    if message.meta is not None and (found := check(message.meta, "meta")):
        return found
    if message.extra is not None and (found := check(message.extra, "extra")):
        return found
    if role == "user" or role == "system":
        if not says_something:
            return "parts", f"a {role} message needs text that is not blank, or media."
    elif role == "assistant":
        if not says_something and message.finish is None and message.status == "sent":
            return (
                "parts",
                "an assistant message needs text, reasoning, media or a call. A provider's empty reply is stored with "
                "its finish reason: assistant(finish=…).",
            )
    elif role == "tool":
        if not message.tool_results:
            return "parts", "a tool message needs a result: contextc.tool_result(call_id, name, content)."
    else:
        return "role", f"{role!r} is no role. Use system, user, assistant or tool."
    return None


def _part_problems(part: AnyPart, role: str) -> Iterator[tuple[str, str]]:
    if part.extra is not None and (found := check(part.extra, ".extra")):
        yield found
    match part:
        case ToolCall():
            if role != "assistant":
                yield "", f"a tool call stands in an assistant message, not in a {role} message."
            yield from _needs_names(("id", part.id), ("name", part.name))
            if not isinstance(part.arguments, dict):
                kind = type(part.arguments).__name__
                yield ".arguments", f"a {kind} is not an object. Give a dict, or the text the model wrote."
            elif found := check(part.arguments, ".arguments"):
                yield found
        case ToolResult():
            if role != "tool":
                yield "", f"a tool result stands in a tool message, not in a {role} message."
            yield from _needs_names(("call_id", part.call_id), ("name", part.name))
            if not isinstance(part.content, str):
                for index, inner in enumerate(part.content):
                    if isinstance(inner, Media):
                        yield from ((f".content[{index}]{field}", text) for field, text in _part_problems(inner, role))
        case Reasoning():
            if role != "assistant":
                yield "", f"reasoning stands in an assistant message, not in a {role} message."
        case Media():
            if part.data is not None:
                yield ".data", f"a {type(part.data).__name__} is not bytes. Decode base64 first."
            if not isinstance(part.mime_type, str) or "/" not in part.mime_type:
                yield ".mime_type", f"{part.mime_type!r} is no media type. Write it like image/png."
            if [part.blob, part.url, part.file_id].count(None) != 2:
                yield "", "media needs exactly one of data, blob, url and file_id."
        case Native():
            yield from _needs_names(("provider", part.provider))
            if found := check(part.data, ".data"):
                yield found
        case Text() | Hint():
            if type(part.text) is not str:
                yield ".text", f"a {type(part.text).__name__} is not text."
        case _:
            assert_never(part)


def _needs_names(*names: tuple[str, object]) -> Iterator[tuple[str, str]]:
    for field, value in names:
        if not isinstance(value, str) or not value.strip():
            yield f".{field}", f"{field} must be a text that is not blank, not {value!r}."


def _says_something(part: AnyPart) -> bool:
    match part:
        case Reasoning():
            return bool(part.text or part.data)
        case Hint():
            return False
        case Text():
            return not (part.text == "" or part.text.isspace())
        case ToolCall() | ToolResult() | Media() | Native():
            return True
        case _:
            assert_never(part)


def _has_media(part: AnyPart) -> bool:
    return isinstance(part, Media) or (isinstance(part, ToolResult) and not isinstance(part.content, str))


def _detach(part: AnyPart, blobs: dict[str, bytes | None]) -> AnyPart:
    """The part with its bytes put aside under their hash."""
    if isinstance(part, Media):
        if isinstance(part.data, bytes):
            name = blob_name(part.data)
            blobs[name] = part.data
            return replace(part, data=None, blob=name, size=len(part.data))
        if part.blob:
            blobs.setdefault(part.blob, None)
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        content = tuple(_detach(inner, blobs) for inner in part.content)
        return replace(part, content=content)  # pyright: ignore[reportArgumentType]
    return part
