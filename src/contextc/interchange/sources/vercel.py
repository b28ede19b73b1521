"""Stored chats of the Vercel AI SDK: a list of `UIMessage`s, a chat `{id, messages}`, or lines of either."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects
from contextc.formats import formatter
from contextc.interchange.found_conversation import FoundConversation, parse_time, read_or_error
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.linting.request_reading import coerce_request
from contextc.messages import Message

ABOUT = "chats of the Vercel AI SDK (`UIMessage`)"
ROLES = ("system", "user", "assistant", "data", "tool")
TIME_FIELDS = ("createdAt", "created_at")


def matches(sample: FileSample) -> bool:
    return any(_is_chat(value) or _is_message(value) for value in sample.values)


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    for file in given.files:
        file.check_lines()
    for file in given.files:
        alone: list[JSONObject] = []
        strange = 0
        for placed in file.values():
            value: JSON = placed.value
            if _is_message(value):
                alone.append(value)
            elif _is_chat(value):
                name = f"{file.stem}-{placed.line}"
                yield read_or_error(
                    str(as_object(value).get("id") or name), lambda value=value, name=name: _found(value, name)
                )
            else:
                strange += 1
        left_out = ["a value that is not a chat"] * strange
        if alone:
            made = read_or_error(file.stem, lambda alone=alone, file=file: _found({"messages": alone}, file.stem))
            yield replace(made, left_out=left_out)
        else:
            file.notes += left_out


def _is_message(value: JSON) -> bool:
    held = as_object(value)
    return held.get("role") in ROLES and isinstance(held.get("parts"), list)


def _is_chat(value: JSON) -> bool:
    return any(map(_is_message, as_objects(value if isinstance(value, list) else as_object(value).get("messages"))))


def _found(value: JSON, name: str) -> FoundConversation:
    chat = as_object(value) or {"messages": value}
    wire = as_objects(chat["messages"])
    form = formatter("vercel")
    request = form.decode_request(coerce_request(form, {"messages": wire}).body)
    messages = [*([request.system] if request.system is not None else []), *request.messages]
    title: JSON = chat.get("title") or chat.get("name")
    return FoundConversation(
        id=str(chat.get("id") or name),
        is_derived_id=not chat.get("id"),
        title=title if isinstance(title, str) else "",
        lines=[list(_timed(messages, wire, _when(chat)))],
    )


def _timed(messages: Iterable[Message], wire: list[JSONObject], begun: int) -> Iterator[Message]:
    """Return the messages with the time of their `UIMessage`, which may become several messages."""
    times = {str(each.get("id")): _when(each) for each in wire if each.get("id")}
    latest = begun
    for message in messages:
        latest = times.get(message.uid, 0) or latest
        yield replace(message, time=latest) if latest else message


def _when(value: JSONObject) -> int:
    """Return the creation time of a chat or a message, also from its metadata."""
    holders = [value, as_object(value.get("metadata"))]
    return next((found for holder in holders for name in TIME_FIELDS if (found := parse_time(holder.get(name)))), 0)
