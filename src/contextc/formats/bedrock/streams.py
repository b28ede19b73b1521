"""The reader of Converse's stream. A text has no start event; a call starts with its name."""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSONObject
from contextc.formats.base import text_of
from contextc.formats.bedrock.codec import block_index, bytes_to_base64, complete_tool_use, is_client_tool
from contextc.formats.request_settings import object_or_empty
from contextc.formats.streams import Delta, StreamDecoder, StreamReader
from contextc.messages import Reasoning, Text, tool_call


class BedrockStreamReader(StreamReader):
    """Reads one reply. `model` is the requested model, which no event names."""

    def __init__(self, formatter: StreamDecoder, model: str | None = None) -> None:
        super().__init__(formatter)
        self._model = model
        self._calls: dict[int, tuple[str, str]] = {}
        self._others: set[int] = set()
        """Calls of tools that Bedrock runs itself."""

    def _is_whole(self, event: JSONObject) -> bool:
        return "output" in event

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        if start := object_or_empty(event.get("contentBlockStart")):
            yield from self._begun(block_index(start), object_or_empty(start.get("start")))
        elif delta := object_or_empty(event.get("contentBlockDelta")):
            yield from self._grown(block_index(delta), object_or_empty(delta.get("delta")))
        elif "messageStop" in event:
            self.finished = True

    def _begun(self, index: int, start: JSONObject) -> Iterable[Delta]:
        use = start.get("toolUse")
        if isinstance(use, dict) and is_client_tool(cast(JSONObject, use)):
            named = complete_tool_use(cast(JSONObject, use), index)
            self._calls[index] = named["toolUseId"], named["name"]
            yield tool_call(*self._calls[index], "")
        elif isinstance(use, dict):
            self._others.add(index)

    def _grown(self, index: int, delta: JSONObject) -> Iterable[Delta]:
        if text := text_of(delta.get("text")):
            yield Text(text)
        elif thought := object_or_empty(delta.get("reasoningContent")):
            said = cast(JSONObject, bytes_to_base64(thought))
            if any(said.values()):
                yield Reasoning(
                    text=said.get("text") or "",
                    signature=said.get("signature"),
                    data=said.get("redactedContent"),
                    provider=self.formatter.provider,
                    model=self._model,
                )
        elif (use := object_or_empty(delta.get("toolUse"))) and index not in self._others:
            if index not in self._calls:  # there was no start event
                yield from self._begun(index, {"toolUse": {}})
            if piece := text_of(use.get("input")):
                yield tool_call(*self._calls[index], piece)
