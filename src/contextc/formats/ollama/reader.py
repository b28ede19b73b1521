"""Read an Ollama stream line by line. A complete reply has the form of the last line, and is read as one."""

from collections.abc import Iterable

from contextc._json import JSONObject
from contextc.formats.base import text_of
from contextc.formats.ollama.calls import Calls
from contextc.formats.ollama.decode import named
from contextc.formats.reading import Decodes, Delta, Reader
from contextc.formats.settings import inner
from contextc.messages import Reasoning, Text, tool_call


class OllamaReader(Reader):
    def __init__(self, formatter: Decodes) -> None:
        super().__init__(formatter)
        self._calls = Calls()

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        message = inner(event.get("message"))
        if thought := text_of(message.get("thinking")):
            yield Reasoning(text=thought, provider=self.formatter.provider, model=event.get("model"))
        if text := text_of(message.get("content")):
            yield Text(text)
        for call in named(message.get("tool_calls"), self._calls):
            function = inner(call.get("function"))
            yield tool_call(call["id"], function.get("name") or "", function.get("arguments") or {})
        self.finished = self.finished or event.get("done") is True
