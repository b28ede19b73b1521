"""Replies as Anthropic's stream: numbered blocks, each with a start, deltas and a stop."""

from contextc._json import JSON, JSONObject
from contextc.formats.reply_encoding import FINISH_REASONS, anthropic_usage
from contextc.formats.reply_stream import ReplyStream, server_sent_event
from contextc.messages import Message, Usage


class AnthropicReplyStream(ReplyStream):
    _index = 0

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
