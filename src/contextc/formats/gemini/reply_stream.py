"""Replies as Google's stream: each chunk is a reply by itself. Calls are complete."""

from contextc._json import JSON, JSONObject, parse_object
from contextc.formats.reply_encoding import FINISH_REASONS, gemini_usage
from contextc.formats.reply_stream import ReplyStream, server_sent_event
from contextc.messages import Message, Usage

LINE_END = b"\r\n"


class GeminiReplyStream(ReplyStream):
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
