"""Read a Mistral stream: as in Chat Completions, but content may be a list that includes reasoning."""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSONObject
from contextc.formats.mistral.decode import named
from contextc.formats.mistral.encode import blocks, thought
from contextc.formats.openai_chat.reader import ChatReader
from contextc.formats.reading import Delta
from contextc.messages import Reasoning, Text


class MistralReader(ChatReader):
    def _added(self, delta: JSONObject) -> Iterable[Delta]:
        for block in blocks(delta.get("content")):
            if block.get("type") == "thinking" and (words := thought(block)):
                yield Reasoning(text=words, provider=self.formatter.provider, model=self._model)
            elif block.get("type") == "text" and block["text"]:
                yield Text(block["text"])
        calls = [named(piece) for piece in cast(list[JSONObject], delta.get("tool_calls") or [])]
        yield from super()._added({"tool_calls": calls})
