"""Replies as a stream of Chat Completions: chunks with one delta each."""

from contextc._json import JSON, JSONObject, as_object
from contextc.formats.reply_encoding import chat_usage
from contextc.formats.reply_stream import ReplyStream, server_sent_event
from contextc.messages import Message, Usage

DONE = b"data: [DONE]\n\n"


class ChatReplyStream(ReplyStream):
    _calls = 0

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
            made += server_sent_event({**self._head(), "choices": [], "usage": chat_usage(message.usage or Usage())})
        return made + DONE

    def _chunk(self, delta: JSONObject, finish: str | None = None) -> bytes:
        choice: JSON = {"index": 0, "delta": delta, "finish_reason": finish}
        return server_sent_event({**self._head(), "choices": [choice]})

    def _head(self) -> JSONObject:
        return {"id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model}
