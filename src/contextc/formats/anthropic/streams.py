"""Anthropic's streams of replies: the reply from its events, the reader of deltas, and the writer of such a stream.

A stream has numbered blocks, each with a start, deltas and a stop. A signature ends its block of thinking, and is also
sent as a delta.
"""

from collections.abc import Iterable, Mapping
from typing import cast

from contextc._json import JSON, JSONObject, as_object
from contextc.errors import FailureKind
from contextc.formats.block_table import BlockDelta, apply_delta
from contextc.formats.streams import (
    FINISH_REASONS,
    Delta,
    ReplyEncoder,
    StreamDecoder,
    StreamReader,
    anthropic_usage,
    server_sent_event,
)
from contextc.messages import Message, Reasoning, Text, ToolCall, Usage, tool_call

DELTAS = {
    "text_delta": BlockDelta("text", "text", part=Text),
    "thinking_delta": BlockDelta("thinking", "thinking", part=Reasoning),
    "signature_delta": BlockDelta("signature", "signature", "replace", part=Reasoning, attribute="signature"),
    "input_json_delta": BlockDelta("partial_json", "input_text", part=ToolCall),
    "citations_delta": BlockDelta("citation", "citations", "append"),
    "compaction_delta": BlockDelta("", "", "merge"),
}


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Return a reply from the events of its stream."""
    reply: JSONObject = {}
    blocks: dict[int, JSONObject] = {}
    for event in events:
        match event.get("type"):
            case "message_start":
                reply = {**event["message"]}
            case "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                apply_delta(blocks.setdefault(event["index"], {"type": "text"}), event["delta"], DELTAS)
            case "content_block_stop":
                _parse_input(blocks.get(event["index"], {}))
            case "message_delta":
                reply |= {name: value for name, value in event["delta"].items() if value is not None}
                used = as_object(event.get("usage"))
                counts = {name: count for name, count in used.items() if count is not None}
                reply["usage"] = {**reply.get("usage", {}), **counts}
                reply |= {"context_management": event["context_management"]} if event.get("context_management") else {}
            case "error":
                reply["error"] = event.get("error")
            case _:  # ping, message_stop, and event types of the future
                pass
    for block in blocks.values():
        _parse_input(block)  # blocks of an incomplete stream
    return {**reply, "content": [blocks[index] for index in sorted(blocks)]}


def _parse_input(block: JSONObject) -> None:
    """Replace the text of a call's arguments by the arguments. Malformed text stays text."""
    if (text := block.pop("input_text", None)) is not None:
        call = tool_call("-", "-", text)
        block["input"] = text if call.malformed else call.arguments


class AnthropicStreamReader(StreamReader):
    def __init__(self, formatter: StreamDecoder) -> None:
        super().__init__(formatter)
        self._model: str | None = None
        self._calls: dict[int, tuple[str, str]] = {}
        self._unwritten: set[int] = set()
        """Calls without any arguments so far."""

    def _is_whole(self, event: JSONObject) -> bool:
        return event.get("type") == "message"

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        match event.get("type"):
            case "message_start":
                self._model = cast(JSONObject, event["message"]).get("model")
            case "content_block_start":
                yield from self._start(event["index"], event["content_block"])
            case "content_block_delta":
                yield from self._delta(event["index"], event["delta"])
            case "content_block_stop" if event["index"] in self._unwritten:
                self._unwritten.discard(event["index"])
                yield tool_call(*self._calls[event["index"]], "{}")  # the block is complete: the call has no arguments
            case "message_delta":
                self.finished = self.finished or bool(event["delta"].get("stop_reason"))
            case "message_stop":
                self.finished = True
            case _:
                pass

    def _start(self, index: int, block: JSONObject) -> Iterable[Delta]:
        """Yield the initial content of a block. It is usually empty, but the API does not guarantee it."""
        match block.get("type"):
            case "text" if block.get("text"):
                yield Text(block["text"])
            case "thinking" if block.get("thinking") or block.get("signature"):
                yield self._reasoning(text=block.get("thinking") or "", signature=block.get("signature") or None)
            case "redacted_thinking":
                yield self._reasoning(data=block["data"])
            case "tool_use":
                self._calls[index] = block["id"], block["name"]
                if not block.get("input"):
                    self._unwritten.add(index)
                yield tool_call(block["id"], block["name"], block.get("input") or "")
            case _:
                pass

    def _delta(self, index: int, delta: JSONObject) -> Iterable[Delta]:
        kind: JSON = delta.get("type")
        row = DELTAS.get(kind) if isinstance(kind, str) else None
        if row is None or row.part is None or (row.part is ToolCall and index not in self._calls):
            return
        value = delta[row.field]
        if not value and row.how == "extend":
            return
        if row.part is ToolCall:
            self._unwritten.discard(index)
            yield tool_call(*self._calls[index], value)
        else:
            yield Text(value) if row.part is Text else self._reasoning(**{row.attribute: value})

    def _reasoning(self, **content: str | None) -> Reasoning:
        whole: JSONObject = {**content, "provider": self.formatter.provider, "model": self._model}
        return Reasoning(**whole)


ERROR_TYPES: Mapping[FailureKind, str] = {
    "rate": "rate_limit_error", "quota": "billing_error", "auth": "permission_error", "transient": "overloaded_error",
}  # fmt: skip


class AnthropicReplyStream(ReplyEncoder):
    id_prefix = "msg_"
    refusal = "refusal"
    _index = 0

    @property
    def reply_fields(self) -> JSONObject:
        return {"stop_sequence": None}

    @classmethod
    def encode_error(cls, kind: FailureKind, status: int, text: str) -> tuple[int, JSONObject]:
        error: JSONObject = {"type": ERROR_TYPES.get(kind, "invalid_request_error"), "message": text}
        return 529 if kind == "transient" else status, {"type": "error", "error": error}

    def begin(self) -> bytes:
        message: JSONObject = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": anthropic_usage(Usage()),
        }
        return _event("message_start", message=message) + _event("ping")

    def keep_alive(self) -> bytes:
        return _event("ping")

    def fail(self, error: JSONObject) -> bytes:
        return server_sent_event(error, "error")

    def _begin_text(self) -> bytes:
        return _event("content_block_start", index=self._index, content_block={"type": "text", "text": ""})

    def _add_text(self, piece: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": "text_delta", "text": piece})

    def _end_text(self, whole: str) -> bytes:
        return self._stop()

    def _begin_call(self, id: str, name: str) -> bytes:
        block: JSONObject = {"type": "tool_use", "id": id, "name": name, "input": {}}
        return _event("content_block_start", index=self._index, content_block=block)

    def _add_arguments(self, piece: str) -> bytes:
        return _event(
            "content_block_delta", index=self._index, delta={"type": "input_json_delta", "partial_json": piece}
        )

    def _end_call(self, id: str, name: str, whole: str) -> bytes:
        return self._stop()

    def _stop(self) -> bytes:
        made = _event("content_block_stop", index=self._index)
        self._index += 1
        return made

    def _end(self, message: Message) -> bytes:
        finish = message.finish or "stop"
        delta: JSONObject = {"stop_reason": FINISH_REASONS["anthropic"].get(finish, finish), "stop_sequence": None}
        usage = anthropic_usage(message.usage or Usage())
        return _event("message_delta", delta=delta, usage=usage) + _event("message_stop")


def _event(type: str, **fields: JSON) -> bytes:
    return server_sent_event({"type": type, **fields}, type)
