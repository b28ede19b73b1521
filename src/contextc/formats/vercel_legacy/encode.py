"""Our messages in the older shape of the Vercel AI SDK, with `function_call` and role `function`.

A message holds one call. So each further call of a reply becomes an assistant message without content, and every call
is followed at once by its result. The shape has no ids: ours stand in `tool_call_id`, on the call and on its result,
and the messages of one reply share an `id`. Both are what decoding reads back, and nobody else needs.

    Ours                            On the wire
    assistant  "Hm." calls a, b     assistant  "Hm." function_call a
    tool       results of a, b      function   result of a
                                    assistant  null  function_call b
                                    function   result of b
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never, cast

from contextc._json import JSONObject, encode
from contextc.formats.base import (
    Encoded,
    Note,
    describe_media,
    describe_native,
    error_unsaid,
    is_foreign,
    kept,
    restored,
)
from contextc.formats.media import data_url
from contextc.formats.open_calls import OpenCalls
from contextc.messages import Extra, Media, Message, Native, Reasoning, Text, ToolCall, ToolResult
from contextc.messages.parts import Hint

MADE_UP = "made_up"
"""In the `extra` of a call: its id is ours, by order, and does not go on the wire."""
ATTACHMENTS = "experimental_attachments"


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> Encoded:
    encoder = _Encoder(provider, blobs)
    results = OpenCalls[ToolResult]()
    for part in [part for message in segment for part in message.tool_results]:
        results.add(part, part.call_id, id(part))
    wire: list[JSONObject] = []
    for message in segment:
        if message.role == "tool":
            wire += encoder.leftover(message, results)
        elif calls := message.tool_calls:
            wire += encoder.calls(message, calls, results)
        else:
            wire += encoder.message(message)
    return Encoded(tuple(wire), tuple(encoder.notes))


class _Encoder:
    def __init__(self, provider: str, blobs: Mapping[str, bytes]) -> None:
        self.provider, self.blobs = provider, blobs
        self.notes: list[Note] = []
        self.shown: list[Media] = []

    def message(self, message: Message) -> list[JSONObject]:
        """A message without calls; nothing where nothing of it can be sent."""
        if whole := _whole(message, self.provider):
            return whole
        wire: JSONObject = {"role": message.role, "content": self.words(message), **self.reasoning(message)}
        if message.role == "user":
            wire |= self.attachments(part for part in message.parts if isinstance(part, Media))
        if not wire["content"] and ATTACHMENTS not in wire and "content" not in kept(message.extra, self.provider):
            return []
        return [restored(wire, message.extra, self.provider)]

    def calls(self, message: Message, calls: Sequence[ToolCall], results: OpenCalls[ToolResult]) -> list[JSONObject]:
        """A reply that asks for tools: a message per call, each followed by its result."""
        wire: list[JSONObject] = []
        group = cast(JSONObject, {"id": kept(message.extra, self.provider).get("id") or calls[0].id})
        for number, call in enumerate(calls):
            asked: JSONObject = {"role": "assistant", "content": None, "function_call": self.call(call)}
            if not kept(call.extra, self.provider).get(MADE_UP):
                asked["tool_call_id"] = call.id
            if number == 0:
                asked |= {"content": self.words(message) or None, **self.reasoning(message)}
                asked = restored(asked, message.extra, self.provider)
                asked.setdefault("content", None)
            wire.append(asked | group if len(calls) > 1 else asked)
            if (answer := results.take(call.id)) is not None:
                wire.append(self.result(answer, named="tool_call_id" in asked))
        return [*wire, *self.media_shown()]

    def call(self, part: ToolCall) -> JSONObject:
        written = part.raw if part.raw is not None else encode(part.arguments).decode()
        rest: Extra = {self.provider: {**kept(part.extra, self.provider)}}
        rest[self.provider].pop(MADE_UP, None)
        return restored({"name": part.name, "arguments": written}, rest, self.provider)

    def result(self, part: ToolResult, *, named: bool) -> JSONObject:
        if part.is_error:
            self.notes.append(error_unsaid(part))
        if not isinstance(part.content, str):
            media = [each for each in part.content if isinstance(each, Media)]
            if media:
                self.notes.append(Note("moved", f"media of {part.name}, into a user message after the results"))
            self.shown += media
        answer: JSONObject = {"role": "function", "name": part.name, "content": part.text}
        if named:
            answer["tool_call_id"] = part.call_id
        return restored(answer, part.extra, self.provider)

    def leftover(self, message: Message, results: OpenCalls[ToolResult]) -> list[JSONObject]:
        """What of a tool message did not go with its calls."""
        wire: list[JSONObject] = []
        for result in message.tool_results:
            if results.take(id(result)) is not None:
                wire.append(self.result(result, named=True))
        others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        return [*wire, *self.media_shown(), *(self.message(Message(role="user", parts=others)) if others else [])]

    def media_shown(self) -> list[JSONObject]:
        """A user message with what tools returned beside text, if they did."""
        media, self.shown = self.shown, []
        if not media:
            return []
        return self.message(Message(role="user", parts=(Text("[media returned by tools]"), *media)))

    def words(self, message: Message) -> str:
        """What a message says. A reply is one text in pieces; what others say is several texts."""
        texts: list[str] = []
        for part in message.parts:
            match part:
                case Text():
                    texts.append(part.text)
                case Media():
                    if message.role != "user" or self.url(part) is None:
                        self.notes.append(Note("described", f"{part.kind} of type {part.mime_type}"))
                        texts.append(describe_media(part))
                case Native() if part.provider == self.provider and _is_source(part):
                    self.notes.append(Note("left out", "source, which only a user interface is shown"))
                case Native():
                    self.notes.append(Note("described", f"a block of {part.provider}"))
                    texts.append(describe_native(part))
                case Reasoning() | ToolCall() | ToolResult() | Hint():
                    pass
                case _:
                    assert_never(part)
        return ("" if message.role == "assistant" else "\n\n").join(text for text in texts if text)

    def reasoning(self, message: Message) -> JSONObject:
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        ours = "".join(part.text for part in thoughts if not is_foreign(part, self.provider))
        if any(is_foreign(part, self.provider) for part in thoughts):
            self.notes.append(Note("left out", "reasoning of another provider"))
        return {"reasoning": ours} if ours else {}

    def attachments(self, media: Iterable[Media]) -> JSONObject:
        found: list[JSONObject] = []
        for part in media:
            if (url := self.url(part)) is not None:
                name = {"name": part.name} if part.name else {}
                found.append(restored({**name, "contentType": part.mime_type, "url": url}, part.extra, self.provider))
        return {ATTACHMENTS: found} if found else {}

    def url(self, part: Media) -> str | None:
        return data_url(part, self.blobs) or part.url


def _is_source(part: Native) -> bool:
    return isinstance(part.data, dict) and cast(JSONObject, part.data).get("type") == "source"


def _whole(message: Message, provider: str) -> list[JSONObject]:
    """Messages of that time that we have no role for, such as `data`, where a message of ours keeps nothing else."""
    natives = [part for part in message.parts if isinstance(part, Native) and part.provider == provider]
    found = [cast(JSONObject, part.data) for part in natives if isinstance(part.data, dict)]
    return found if len(found) == len(message.parts) and all("role" in data for data in found) else []
