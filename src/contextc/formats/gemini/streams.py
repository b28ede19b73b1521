"""Google's streams of replies: the reader, and the writer. A chunk is a reply by itself, and its calls are complete."""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from contextc._json import JSON, JSONObject, parse_object
from contextc.errors import FailureKind
from contextc.formats.gemini.codec import part_decoder
from contextc.formats.streams import (
    FINISH_REASONS,
    Delta,
    ReplyEncoder,
    StreamDecoder,
    StreamReader,
    gemini_usage,
    server_sent_event,
)
from contextc.messages import AnyPart, Message, Reasoning, Text, ToolCall, Usage


class GeminiStreamReader(StreamReader):
    has_call_ids = False

    def __init__(self, formatter: StreamDecoder) -> None:
        super().__init__(formatter)
        self._part: Callable[[JSONObject], AnyPart] | None = None

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        if self._part is None:
            self._part = part_decoder(self.formatter.provider, event.get("modelVersion"))
        if cast(JSONObject, event.get("promptFeedback") or {}).get("blockReason"):
            self.finished = True
        for choice in cast(list[JSONObject], event.get("candidates") or []):
            if choice.get("index", 0) != 0:
                continue
            self.finished = self.finished or bool(choice.get("finishReason"))
            content = cast(JSONObject, choice.get("content") or {})
            for wire in cast(list[JSONObject], content.get("parts") or []):
                part = self._part(wire)
                if isinstance(part, Text | Reasoning | ToolCall) and wire != {"text": ""}:
                    yield part


LINE_END = b"\r\n"
ERROR_STATUSES: Mapping[FailureKind, str] = {
    "rate": "RESOURCE_EXHAUSTED", "quota": "RESOURCE_EXHAUSTED", "auth": "PERMISSION_DENIED",
    "transient": "UNAVAILABLE",
}  # fmt: skip


class GeminiReplyStream(ReplyEncoder):
    count_field = "totalTokens"

    @classmethod
    def is_requested(cls, request: JSONObject, url: str) -> bool:
        return url.endswith(":streamGenerateContent")

    @classmethod
    def encode_error(cls, kind: FailureKind, status: int, text: str) -> tuple[int, JSONObject]:
        name = ERROR_STATUSES.get(kind, "INVALID_ARGUMENT")
        return status, {"error": {"code": status, "message": text, "status": name}}

    def begin(self) -> bytes:
        return b""

    def keep_alive(self) -> bytes:
        return b""  # Google's SDK accepts no comments

    def fail(self, error: JSONObject) -> bytes:
        return server_sent_event(error, line_end=LINE_END)

    def _begin_text(self) -> bytes:
        return b""

    def _add_text(self, piece: str) -> bytes:
        return self._chunk([{"text": piece}])

    def _end_text(self, whole: str) -> bytes:
        return b""

    def _begin_call(self, id: str, name: str) -> bytes:
        return b""

    def _add_arguments(self, piece: str) -> bytes:
        return b""

    def _end_call(self, id: str, name: str, whole: str) -> bytes:
        return self._chunk([{"functionCall": {"id": id, "name": name, "args": parse_object(whole) or {}}}])

    def _end(self, message: Message) -> bytes:
        finish = message.finish or "stop"
        reason = FINISH_REASONS["gemini"].get(finish, "OTHER")
        return self._chunk([{"text": ""}], finishReason=reason, usage=gemini_usage(message.usage or Usage()))

    def _chunk(self, parts: list[JSON], *, finishReason: str = "", usage: JSONObject | None = None) -> bytes:
        candidate: JSONObject = {"index": 0, "content": {"role": "model", "parts": parts}}
        if finishReason:
            candidate["finishReason"] = finishReason
        chunk: JSONObject = {"candidates": [candidate], "modelVersion": self.model, "responseId": self.id}
        return server_sent_event({**chunk, **({"usageMetadata": usage} if usage else {})}, line_end=LINE_END)
