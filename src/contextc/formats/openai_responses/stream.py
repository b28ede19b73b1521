"""Read a Responses stream event by event.

Each item is repeated whole at its end, and some endpoints send nothing else. So content that the deltas of an item did
not include is emitted with the whole item. The session is the conversation of a response, or else the response itself;
there is none if it is not stored.
"""

from collections.abc import Iterable
from typing import cast

from contextc._json import JSONObject, encode
from contextc.formats.openai_responses.decode import (
    SESSION_FIELDS,
    TEXTS,
    TOOL_SEARCH,
    find_session,
    is_client_search,
)
from contextc.formats.stream import Delta, StreamDecoder, StreamReader
from contextc.messages import Reasoning, Text, ToolCall, tool_call

FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")
REASONING_DELTAS = {
    "response.reasoning_summary_text.delta": ("summary", "summary_index"),
    "response.reasoning_text.delta": ("content", "content_index"),
}
SEPARATOR = "\n\n"


class _Item:
    """An output item, and how much of it has been emitted."""

    def __init__(self, item: JSONObject) -> None:
        self.kind, self.id = item.get("type"), cast(str | None, item.get("id"))
        self.call = (cast(str, item.get("call_id") or ""), cast(str, item.get("name") or ""))
        self.given = 0
        self.thinks: str | None = None
        self.thought = 0
        self.announced = False


class ResponsesStreamReader(StreamReader):
    session_fields = SESSION_FIELDS

    def __init__(self, formatter: StreamDecoder) -> None:
        super().__init__(formatter)
        self._model: str | None = None
        self._items: dict[int, _Item] = {}

    def read(self, event: JSONObject) -> list[Delta]:
        response = event if self._is_whole(event) else event.get("response")
        if isinstance(response, dict):
            said = cast(JSONObject, response)
            self.session = find_session(said, "conversation" if said.get("conversation") else "")
        return super().read(event)

    def _is_whole(self, event: JSONObject) -> bool:
        return "type" not in event and isinstance(event.get("output"), list)

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        kind = cast(str, event.get("type") or "")
        if isinstance(response := event.get("response"), dict):
            yield from self._answered(kind, cast(JSONObject, response))
            return
        index = cast(int, event.get("output_index", len(self._items)))
        if isinstance(item := event.get("item"), dict):
            yield from self._whole_item(index, cast(JSONObject, item))
        elif index in self._items:
            yield from self._grown(self._items[index], kind, event)

    def _answered(self, kind: str, response: JSONObject) -> Iterable[Delta]:
        self._model = response.get("model") or self._model
        if kind not in FINAL_EVENTS:
            return
        self.finished = True
        for index, item in enumerate(cast(list[JSONObject], response.get("output") or [])):
            yield from self._whole_item(index, item)

    def _whole_item(self, index: int, item: JSONObject) -> Iterable[Delta]:
        """Emit the content of a whole item that has not been emitted yet."""
        known = self._items.setdefault(index, _Item(item))
        match item.get("type"):
            case "message":
                blocks = cast(list[JSONObject], item.get("content") or [])
                text = "".join(block.get("text") or "" for block in blocks if block.get("type") in TEXTS)
                if rest := text[known.given :]:
                    known.given = len(text)
                    yield Text(rest)
            case "reasoning":
                thoughts = cast(list[JSONObject], item.get("summary") or item.get("content") or [])
                text = SEPARATOR.join(thought.get("text") or "" for thought in thoughts)
                if rest := text[known.given :]:
                    yield self._thought(known, rest)
            case "function_call":
                yield from self._written(known, cast(str, item.get("arguments") or "")[known.given :])
            case "tool_search_call" if is_client_search(item) and item.get("status") == "completed":
                known.call = (item["call_id"], TOOL_SEARCH)
                yield from self._written(known, encode(item.get("arguments") or {}).decode()[known.given :])
            case _:
                pass

    def _grown(self, item: _Item, kind: str, event: JSONObject) -> Iterable[Delta]:
        if kind == "response.output_text.delta":
            item.given += len(event["delta"])
            yield Text(event["delta"])
        elif kind == "response.function_call_arguments.delta":
            yield from self._written(item, event["delta"])
        elif kind in REASONING_DELTAS:
            place, name = REASONING_DELTAS[kind]
            item.thinks = item.thinks or place
            if item.thinks == place:
                number = cast(int, event.get(name, 0))
                gap = SEPARATOR * max(0, number - item.thought)
                item.thought = max(item.thought, number)
                yield self._thought(item, gap + event["delta"])

    def _thought(self, item: _Item, text: str) -> Reasoning:
        item.given += len(text)
        return Reasoning(text=text, id=item.id, provider=self.formatter.provider, model=self._model)

    def _written(self, item: _Item, piece: str) -> Iterable[ToolCall]:
        if all(item.call) and (piece or not item.announced):
            item.given, item.announced = item.given + len(piece), True
            yield tool_call(*item.call, piece)
