"""The reader of Google's stream. A chunk is a reply by itself, and its calls are complete."""

from collections.abc import Callable, Iterable
from typing import cast

from contextc._json import JSONObject
from contextc.formats.gemini.decode import part_decoder
from contextc.formats.stream import Delta, StreamDecoder, StreamReader
from contextc.messages import AnyPart, Reasoning, Text, ToolCall


class GeminiStreamReader(StreamReader):
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
