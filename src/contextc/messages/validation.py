"""Validation of messages before they are stored.

The rules, each with a test:
  unknown role, wrong type, unknown field      rejected
  blank user or system message                 rejected; blank text beside other parts is kept
  empty assistant message                      rejected, except with a finish reason or an error status
  call without id or name                      rejected; malformed arguments are kept raw and marked (`ToolCall`)
  result without its call's id or name         rejected
  NaN, infinity, keys that are not strings     rejected, because JSON cannot represent them
  nesting beyond 100 levels                    rejected; inside text (call arguments, results) it is kept
  a message beyond 256 MiB                     rejected
  NUL                                          kept
  surrogate pairs                              joined; lone surrogates, which cannot be encoded, become U+FFFD
"""

from collections.abc import Iterator
from typing import assert_never

import msgspec
from msgspec.structs import replace

from contextc._json import find_json_problem, fix_surrogates_in_json, hash_blob
from contextc.errors import InvalidMessage
from contextc.messages.message import (
    AnyPart,
    Media,
    Message,
    Part,
    ProviderBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    UserNotice,
    canonical_content,
    decode_message,
    encode_message,
)

MAX_BYTES = 256 * 1024 * 1024
TEXT_MESSAGE_END = b'"}]}'
ALLOWED_VALUES = {
    "status": " Use sent, error or cancelled.",
    "as_role": " Use system, user, assistant or tool.",
}


class ValidatedMessage(msgspec.Struct, frozen=True, gc=False):
    """A validated message: a private copy, its canonical content, and its media.

    `blobs` has the name of every blob that the message uses, with its bytes if the message contained them.
    """

    message: Message
    content: bytes
    blobs: dict[str, bytes | None]


def validate_message(message: Message) -> ValidatedMessage:
    """Validate a message and prepare it for a chain, or raise `InvalidMessage`."""
    if type(message) is not Message:
        raise InvalidMessage(
            f"expected a Message, got {type(message).__name__}",
            fix="Create one with contextc.user, assistant, system or tool_result.",
        )
    parts = message.parts
    if not isinstance(parts, tuple | list):
        raise InvalidMessage(f"must be a tuple of parts, got {type(parts).__name__}.", field="parts")
    blobs: dict[str, bytes | None] = {}
    for part in parts:
        if type(part) is not Text and _has_media(part):
            message = replace(message, parts=tuple([_detach_media(part, blobs) for part in parts]))
            break
    if problem := _find_problem(message):
        raise InvalidMessage(problem[1], field=problem[0])
    message = _copy(message)
    return ValidatedMessage(message, canonical_content(message), blobs)


def _copy(message: Message) -> Message:
    """Copy a message through JSON, which checks its types and detaches it from the caller's dicts."""
    try:
        try:
            body = encode_message(message)
        except UnicodeEncodeError:
            body = encode_message(fix_surrogates_in_json(msgspec.to_builtins(message)))
            message = decode_message(body)
        if len(body) > MAX_BYTES:
            raise InvalidMessage(
                f"the message has {len(body):,} bytes, the limit is {MAX_BYTES:,}",
                fix="Pass large content as Media with `data`, or store it elsewhere and pass its URL.",
            )
        return message if _is_one_text(message, body) else decode_message(body)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        allowed = ALLOWED_VALUES.get(path.rstrip("`"), "")
        raise InvalidMessage(f"{problem}.{allowed}", field=path.rstrip("`")) from error
    except TypeError as error:
        raise InvalidMessage(f"{error}.") from error


def _is_one_text(message: Message, body: bytes) -> bool:
    """Return True for a message with one text and no other fields: nothing in it is mutable or of a wrong type.

    Its JSON ends with its only part, because any other field would follow it.
    """
    parts = message.parts
    return body.endswith(TEXT_MESSAGE_END) and type(parts) is tuple and len(parts) == 1 and type(parts[0]) is Text


def _find_problem(message: Message) -> tuple[str, str] | None:
    """Return the first violated rule: the field, and the problem with its fix."""
    role, has_content = message.role, False
    for index, part in enumerate(message.parts):
        if type(part) is Text and part.extra is None:
            if type(part.text) is not str:
                return f"parts[{index}].text", f"must be text, got {type(part.text).__name__}."
            has_content = has_content or not (part.text == "" or part.text.isspace())
            continue
        if not isinstance(part, Part):
            return f"parts[{index}]", f"must be a part such as Text or ToolCall, got {type(part).__name__}."
        for field, problem in _find_part_problems(part, role):
            return f"parts[{index}]{field}", problem
        has_content = has_content or _has_content(part)
    if message.status == "pending":
        return "status", "must not be pending. Open a stream for the message, or append it when it is complete."
    if type(message.time) is not int or not 0 <= message.time < 1 << 53:
        return "time", f"must be an integer Unix timestamp in milliseconds, got {message.time!r}."
    if message.redacted:
        return "redacted", "must be False. Append the message, then redact it with store.redact."
    if message.meta is not None and (found := find_json_problem(message.meta, "meta")):
        return found
    if message.extra is not None and (found := find_json_problem(message.extra, "extra")):
        return found
    if role == "user" or role == "system":
        if not has_content:
            return "parts", f"a {role} message needs text that is not blank, or media."
    elif role == "assistant":
        if not has_content and message.finish is None and message.status == "sent":
            return (
                "parts",
                "an assistant message needs text, reasoning, media or a call. A provider's empty reply is stored with "
                "its finish reason: assistant(finish=…).",
            )
    elif role == "tool":
        if not message.tool_results:
            return "parts", "a tool message needs a result: contextc.tool_result(call_id, name, content)."
    else:
        return "role", f"must be system, user, assistant or tool, got {role!r}."
    return None


def _find_part_problems(part: AnyPart, role: str) -> Iterator[tuple[str, str]]:
    if part.extra is not None and (found := find_json_problem(part.extra, ".extra")):
        yield found
    match part:
        case ToolCall():
            if role != "assistant":
                yield "", f"a tool call must be in an assistant message, not in a {role} message."
            yield from _check_not_blank(("id", part.id), ("name", part.name))
            if not isinstance(part.arguments, dict):
                kind = type(part.arguments).__name__
                yield ".arguments", f"must be an object, got {kind}. Pass a dict, or the text that the model wrote."
            elif found := find_json_problem(part.arguments, ".arguments"):
                yield found
        case ToolResult():
            if role != "tool":
                yield "", f"a tool result must be in a tool message, not in a {role} message."
            yield from _check_not_blank(("call_id", part.call_id), ("name", part.name))
            if not isinstance(part.content, str):
                for index, inner in enumerate(part.content):
                    if isinstance(inner, Media):
                        yield from (
                            (f".content[{index}]{field}", text) for field, text in _find_part_problems(inner, role)
                        )
        case Reasoning():
            if role != "assistant":
                yield "", f"reasoning must be in an assistant message, not in a {role} message."
        case Media():
            if part.data is not None:
                yield ".data", f"must be bytes, got {type(part.data).__name__}. Decode base64 first."
            if not isinstance(part.mime_type, str) or "/" not in part.mime_type:
                yield ".mime_type", f"must be a media type such as image/png, got {part.mime_type!r}."
            if [part.blob, part.url, part.file_id].count(None) != 2:
                yield "", "media needs exactly one of data, blob, url and file_id."
        case ProviderBlock():
            yield from _check_not_blank(("provider", part.provider))
            if found := find_json_problem(part.data, ".data"):
                yield found
        case Text() | UserNotice():
            if type(part.text) is not str:
                yield ".text", f"must be text, got {type(part.text).__name__}."
        case _:
            assert_never(part)


def _check_not_blank(*names: tuple[str, object]) -> Iterator[tuple[str, str]]:
    for field, value in names:
        if not isinstance(value, str) or not value.strip():
            yield f".{field}", f"must be text that is not blank, got {value!r}."


def _has_content(part: AnyPart) -> bool:
    match part:
        case Reasoning():
            return bool(part.text or part.data)
        case UserNotice():
            return False
        case Text():
            return not (part.text == "" or part.text.isspace())
        case ToolCall() | ToolResult() | Media() | ProviderBlock():
            return True
        case _:
            assert_never(part)


def _has_media(part: AnyPart) -> bool:
    return isinstance(part, Media) or (isinstance(part, ToolResult) and not isinstance(part.content, str))


def _detach_media(part: AnyPart, blobs: dict[str, bytes | None]) -> AnyPart:
    """Return the part without its bytes, which are added to `blobs` under their hash."""
    if isinstance(part, Media):
        if isinstance(part.data, bytes):
            name = hash_blob(part.data)
            blobs[name] = part.data
            return replace(part, data=None, blob=name, size=len(part.data))
        if part.blob:
            blobs.setdefault(part.blob, None)
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        content = tuple(_detach_media(inner, blobs) for inner in part.content)
        return replace(part, content=content)  # pyright: ignore[reportArgumentType]
    return part
