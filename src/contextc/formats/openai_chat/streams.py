"""Streams of Chat Completions: the reader of chunks, and the writer of such a stream.

Endpoints send tool calls in different ways: with ids, with indexes or with neither; names whole or in fragments.
Fragments are assigned to calls as in `collect_events`. Reasoning arrives in a field, in blocks, or in both at once.
"""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSON, JSONObject, as_object
from contextc.formats.base import generated_id, text_of
from contextc.formats.openai_chat.codec import DETAILS, REASONING_FIELDS, details_text, merge_call_fragment
from contextc.formats.streams import (
    Delta,
    ReplyEncoder,
    StreamDecoder,
    StreamReader,
    ToolCallAccumulator,
    chat_usage,
    openai_tier,
    server_sent_event,
)
from contextc.messages import Message, Reasoning, Text, ToolCall, Usage, tool_call

OTHER_FIELDS = {"error", "type"}
CHOICE_FIELDS, PLAIN_FIELDS = {"index", "delta", "finish_reason", "logprobs"}, {"content", "role"}
"""Fields of a choice, and of its delta, that has text and nothing else. An event with other fields may be an error."""
ARGUMENT_FIELDS = {"function": "arguments", "custom": "input"}


def _plain_text(event: JSONObject) -> str | None:
    """Return the text of an event that has nothing else, as nearly all have; None for any other event."""
    choices: JSON = event.get("choices")
    if event.keys() & OTHER_FIELDS or event.get("object") == "error" or not isinstance(choices, list):
        return None
    choice, *others = cast(list[JSONObject], choices) or [{}]
    if others or not isinstance(cast(object, choice), dict) or choice.get("finish_reason"):
        return None
    delta: JSON = choice.get("delta")
    if choice.keys() <= CHOICE_FIELDS and choice.get("index") in (None, 0) and isinstance(delta, dict):
        content: JSON = cast(JSONObject, delta).get("content")
        return content if isinstance(content, str) and delta.keys() <= PLAIN_FIELDS else None
    return None


class ChatStreamReader(StreamReader):
    interleaves_calls = True

    def __init__(self, formatter: StreamDecoder) -> None:
        super().__init__(formatter)
        self._model: str | None = None
        self._thinks: str | None = None
        self._calls: list[JSONObject] = []
        self._growing: list[ToolCallAccumulator] = []
        self._old_name, self._old = "", ToolCallAccumulator()

    def find_session(self, field: str, resumed: str = "") -> str:
        return super().find_session(field, resumed) or (self._find_text("id") if field else "")

    def _is_whole(self, event: JSONObject) -> bool:
        choices = cast(list[JSONObject], event.get("choices") or [])
        return any("message" in choice for choice in choices) and not any(choice.get("error") for choice in choices)

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        self._model = event.get("model") or self._model
        choices = cast(list[JSONObject], event.get("choices") or [])
        for choice in choices:
            if choice.get("index") in (None, 0):
                yield from self._added(cast(JSONObject, choice.get("delta") or {}))
                if choice.get("error"):
                    self.error = event
                elif choice.get("finish_reason"):
                    self.finished = True
                    yield from self._without_id()
        if (
            event.get("usage") and not choices and self.error is None
        ):  # the last chunk of an endpoint that sends no finish reason
            self.finished = True

    def read(self, event: JSONObject) -> list[Delta]:
        text = _plain_text(event)
        if text is None or self._unstreamed is not None:
            return super().read(event)
        self.events.append(event)
        self._model = event.get("model") or self._model
        return [Text(text)] if text else []

    def _added(self, delta: JSONObject) -> Iterable[Delta]:
        thoughts = {DETAILS: details_text(delta.get(DETAILS))}
        thoughts |= {name: text_of(delta.get(name)) for name in REASONING_FIELDS}
        self._thinks = self._thinks or next((name for name, text in thoughts.items() if text), None)
        if self._thinks and (thought := thoughts[self._thinks]):
            yield Reasoning(text=thought, provider=self.formatter.provider, model=self._model)
        content: JSON = delta.get("content")
        if isinstance(content, list):
            for block in cast(list[JSONObject], content):
                if block.get("type") == "text" and (text := text_of(block.get("text"))):
                    yield Text(text)
        elif text := text_of(content):
            yield Text(text)
        for piece in cast(list[JSONObject], delta.get("tool_calls") or []):
            yield from self._called(piece)
        if isinstance(old := delta.get("function_call"), dict):
            yield from self._called_of_old(cast(JSONObject, old))

    def _called(self, piece: JSONObject) -> Iterable[ToolCall]:
        kind = "custom" if isinstance(piece.get("custom"), dict) else "function"
        named: JSONObject = dict(piece.get(kind) or {})
        written: JSON = named.pop(ARGUMENT_FIELDS[kind], None)
        call = merge_call_fragment(self._calls, {**piece, kind: named})
        number = next(number for number, each in enumerate(self._calls) if each is call)
        if number == len(self._growing):
            self._growing.append(ToolCallAccumulator())
        name = cast(JSONObject, call.get(kind) or {}).get("name") or ""
        if isinstance(written, dict) and call["id"] and name:
            yield tool_call(call["id"], name, cast(JSONObject, written))
            return
        self._growing[number].add(text_of(written))
        yield from self._growing[number].take_new(call["id"], name)

    def _without_id(self) -> Iterable[ToolCall]:
        """Emit the calls that never received an id."""
        for number, (call, growing) in enumerate(zip(self._calls, self._growing, strict=True)):
            if not call["id"]:
                kind = "custom" if "custom" in call else "function"
                yield from growing.take_new(
                    generated_id(number), cast(JSONObject, call.get(kind) or {}).get("name") or ""
                )

    def _called_of_old(self, piece: JSONObject) -> Iterable[ToolCall]:
        """Read a legacy `function_call`, which has no id; it is numbered after the calls that have one."""
        self._old_name += text_of(piece.get("name"))
        self._old.add(text_of(piece.get("arguments")))
        yield from self._old.take_new(f"function_{len(self._calls)}", self._old_name)


DONE = b"data: [DONE]\n\n"


class ChatReplyStream(ReplyEncoder):
    id_prefix = "chatcmpl-"
    _calls = 0

    @property
    def reply_fields(self) -> JSONObject:
        return {"created": self.created}

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def fail(self, error: JSONObject) -> bytes:
        return server_sent_event(error)

    def _begin_text(self) -> bytes:
        return b""

    def _add_text(self, piece: str) -> bytes:
        return self._chunk({"content": piece})

    def _end_text(self, whole: str) -> bytes:
        return b""

    def _begin_call(self, id: str, name: str) -> bytes:
        function: JSONObject = {"name": name, "arguments": ""}
        call: JSONObject = {"index": self._calls, "id": id, "type": "function", "function": function}
        return self._chunk({"tool_calls": [call]})

    def _add_arguments(self, piece: str) -> bytes:
        return self._chunk({"tool_calls": [{"index": self._calls, "function": {"arguments": piece}}]})

    def _end_call(self, id: str, name: str, whole: str) -> bytes:
        self._calls += 1
        return b""

    def _end(self, message: Message) -> bytes:
        made = self._chunk({}, message.finish or "stop")
        if as_object(self.request.get("stream_options")).get("include_usage"):
            used = message.usage or Usage()
            made += server_sent_event({**self._head(), **openai_tier(used), "choices": [], "usage": chat_usage(used)})
        return made + DONE

    def _chunk(self, delta: JSONObject, finish: str | None = None) -> bytes:
        choice: JSON = {"index": 0, "delta": delta, "finish_reason": finish}
        return server_sent_event({**self._head(), "choices": [choice]})

    def _head(self) -> JSONObject:
        return {"id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model}
