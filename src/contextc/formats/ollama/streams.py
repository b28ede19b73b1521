"""Read an Ollama stream line by line. A complete reply has the form of the last line, and is read as one."""

from collections.abc import Iterable

from contextc._json import JSONObject
from contextc.formats.base import text_of
from contextc.formats.ollama.call_matching import CallMatcher
from contextc.formats.ollama.decode import with_call_ids
from contextc.formats.request_settings import object_or_empty
from contextc.formats.stream import Delta, StreamDecoder, StreamReader
from contextc.messages import Reasoning, Text, tool_call


class OllamaStreamReader(StreamReader):
    def __init__(self, formatter: StreamDecoder) -> None:
        super().__init__(formatter)
        self._calls = CallMatcher()

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        message = object_or_empty(event.get("message"))
        if thought := text_of(message.get("thinking")):
            yield Reasoning(text=thought, provider=self.formatter.provider, model=event.get("model"))
        if text := text_of(message.get("content")):
            yield Text(text)
        for call in with_call_ids(message.get("tool_calls"), self._calls):
            function = object_or_empty(call.get("function"))
            yield tool_call(call["id"], function.get("name") or "", function.get("arguments") or {})
        self.finished = self.finished or event.get("done") is True
