"""The reader of Anthropic's stream. A signature ends its block of thinking, and is also sent as a delta."""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSONObject
from contextc.formats.stream import Delta, StreamDecoder, StreamReader
from contextc.messages import Reasoning, Text, tool_call


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
                yield from self._begun(event["index"], event["content_block"])
            case "content_block_delta":
                yield from self._grown(event["index"], event["delta"])
            case "content_block_stop" if event["index"] in self._unwritten:
                self._unwritten.discard(event["index"])
                yield tool_call(*self._calls[event["index"]], "{}")  # the block is complete: the call has no arguments
            case "message_delta":
                self.finished = self.finished or bool(event["delta"].get("stop_reason"))
            case "message_stop":
                self.finished = True
            case _:
                pass

    def _begun(self, index: int, block: JSONObject) -> Iterable[Delta]:
        """Yield the initial content of a block. It is usually empty, but the API does not guarantee it."""
        match block.get("type"):
            case "text" if block.get("text"):
                yield Text(block["text"])
            case "thinking" if block.get("thinking") or block.get("signature"):
                yield self._thought(block.get("thinking") or "", block.get("signature") or None)
            case "redacted_thinking":
                yield Reasoning(data=block["data"], provider=self.formatter.provider, model=self._model)
            case "tool_use":
                self._calls[index] = block["id"], block["name"]
                if not block.get("input"):
                    self._unwritten.add(index)
                yield tool_call(block["id"], block["name"], block.get("input") or "")
            case _:
                pass

    def _grown(self, index: int, delta: JSONObject) -> Iterable[Delta]:
        match delta.get("type"):
            case "text_delta" if delta["text"]:
                yield Text(delta["text"])
            case "thinking_delta" if delta["thinking"]:
                yield self._thought(delta["thinking"])
            case "signature_delta":
                yield self._thought("", delta["signature"])
            case "input_json_delta" if index in self._calls and delta["partial_json"]:
                self._unwritten.discard(index)
                yield tool_call(*self._calls[index], delta["partial_json"])
            case _:
                pass

    def _thought(self, text: str, signature: str | None = None) -> Reasoning:
        return Reasoning(text=text, signature=signature, provider=self.formatter.provider, model=self._model)
