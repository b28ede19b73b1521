"""What each event of Converse's stream adds. A text begins without a word; a call says at once what it is called."""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSONObject
from contextc.formats.bedrock.decode import packed
from contextc.formats.bedrock.sketch import is_ours
from contextc.formats.reading import Decodes, Delta, Reader
from contextc.messages import Reasoning, Text, tool_call


class BedrockReader(Reader):
    def __init__(self, formatter: Decodes) -> None:
        super().__init__(formatter)
        self._calls: dict[int, tuple[str, str]] = {}

    def _is_whole(self, event: JSONObject) -> bool:
        return "output" in event

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        if start := event.get("contentBlockStart"):
            yield from self._begun(start["contentBlockIndex"], start.get("start") or {})
        elif delta := event.get("contentBlockDelta"):
            yield from self._grown(delta["contentBlockIndex"], delta["delta"])
        elif "messageStop" in event:
            self.finished = True

    def _begun(self, index: int, start: JSONObject) -> Iterable[Delta]:
        use = cast(JSONObject, start.get("toolUse") or {})
        if use and is_ours(use):
            self._calls[index] = use["toolUseId"], use["name"]
            yield tool_call(use["toolUseId"], use["name"], "")

    def _grown(self, index: int, delta: JSONObject) -> Iterable[Delta]:
        if delta.get("text"):
            yield Text(delta["text"])
        elif (thought := delta.get("reasoningContent")) is not None:
            said = cast(JSONObject, packed(thought))
            if any(said.values()):
                yield Reasoning(
                    text=said.get("text") or "",
                    signature=said.get("signature"),
                    data=said.get("redactedContent"),
                    provider=self.formatter.provider,
                )
        elif index in self._calls and (piece := cast(JSONObject, delta.get("toolUse") or {}).get("input")):
            yield tool_call(*self._calls[index], piece)
