"""Read a Mistral stream: as in Chat Completions, but content may be a list that includes reasoning."""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSONObject
from contextc.formats.mistral.decode import without_placeholder_id
from contextc.formats.mistral.encode import as_chunks, thinking_text
from contextc.formats.openai_chat.streams import ChatStreamReader
from contextc.formats.stream import Delta
from contextc.messages import Reasoning, Text


class MistralStreamReader(ChatStreamReader):
    def _added(self, delta: JSONObject) -> Iterable[Delta]:
        for block in as_chunks(delta.get("content")):
            if block.get("type") == "thinking" and (words := thinking_text(block)):
                yield Reasoning(text=words, provider=self.formatter.provider, model=self._model)
            elif block.get("type") == "text" and block["text"]:
                yield Text(block["text"])
        calls = [without_placeholder_id(piece) for piece in cast(list[JSONObject], delta.get("tool_calls") or [])]
        yield from super()._added({"tool_calls": calls})
