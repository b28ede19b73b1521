"""Streams of the Responses API: the reader of events, and the writer of such a stream.

A stream has items, each with its beginning, deltas and its whole content at the end; some endpoints send nothing else.
So content that the deltas of an item did not include is emitted with the whole item. The session is the conversation of
a response, or else the response itself; there is none if it is not stored.
"""

from collections.abc import Iterable
from itertools import count
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.openai_responses.codec import SESSION_FIELDS, TEXTS, TOOL_SEARCH, find_session, is_client_search
from contextc.formats.streams import (
    Delta,
    ReplyEncoder,
    StreamDecoder,
    StreamReader,
    openai_tier,
    responses_usage,
    server_sent_event,
)
from contextc.messages import Message, Reasoning, Text, ToolCall, Usage, tool_call

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


INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesReplyStream(ReplyEncoder):
    id_prefix = "resp_"

    def __init__(
        self, request: JSONObject, model: str, id: str, *, created: int = 0, interleaved: bool = False
    ) -> None:
        super().__init__(request, model, id, created=created, interleaved=interleaved)
        self._numbers = count()
        self._output: list[JSON] = []

    def begin(self) -> bytes:
        response = self._response("in_progress")
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def fail(self, error: JSONObject) -> bytes:
        return self._event("response.failed", response={**self._response("failed"), **error})

    def _begin_text(self) -> bytes:
        item: JSONObject = {**self._message(), "status": "in_progress", "content": []}
        return self._event("response.output_item.added", item=item, **self._index()) + self._event(
            "response.content_part.added", part=_part(""), **self._place()
        )

    def _add_text(self, piece: str) -> bytes:
        return self._event("response.output_text.delta", delta=piece, logprobs=[], **self._place())

    def _end_text(self, whole: str) -> bytes:
        made = self._event("response.output_text.done", text=whole, logprobs=[], **self._place())
        made += self._event("response.content_part.done", part=_part(whole), **self._place())
        return made + self._item_done({**self._message(), "status": "completed", "content": [_part(whole)]})

    def _begin_call(self, id: str, name: str) -> bytes:
        item: JSONObject = {**self._call(id, name), "status": "in_progress", "arguments": ""}
        return self._event("response.output_item.added", item=item, **self._index())

    def _add_arguments(self, piece: str) -> bytes:
        return self._event(
            "response.function_call_arguments.delta", delta=piece, item_id=self._id("fc"), **self._index()
        )

    def _end_call(self, id: str, name: str, whole: str) -> bytes:
        whole = whole or "{}"
        made = self._event(
            "response.function_call_arguments.done", arguments=whole, name=name, item_id=self._id("fc"), **self._index()
        )
        return made + self._item_done({**self._call(id, name), "status": "completed", "arguments": whole})

    def whole(self, message: Message) -> JSONObject:
        reason = INCOMPLETE.get(message.finish or "")
        response = self._response("incomplete" if reason else "completed")
        response |= {"incomplete_details": {"reason": reason}} if reason else {}
        used = message.usage or Usage()
        usage: JSONObject = {
            **(counts := responses_usage(used)),
            "input_tokens_details": {"cached_tokens": 0, **counts["input_tokens_details"]},
            "total_tokens": used.input + used.output,
        }
        return {**response, **openai_tier(used), "usage": usage}

    def _end(self, message: Message) -> bytes:
        response = self.whole(message)
        return self._event(f"response.{response['status']}", response=response)

    def _event(self, type: str, **fields: JSON) -> bytes:
        return server_sent_event({"type": type, "sequence_number": next(self._numbers), **fields}, type)

    def _item_done(self, item: JSONObject) -> bytes:
        made = self._event("response.output_item.done", item=item, **self._index())
        self._output.append(item)
        return made

    def _response(self, status: str) -> JSONObject:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": list(self._output),
            "parallel_tool_calls": True,
            "tool_choice": self.request.get("tool_choice") or "auto",
            "tools": self.request.get("tools") or [],
            "usage": None,
        }

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self.id.removeprefix('resp_')}_{len(self._output)}"

    def _index(self) -> dict[str, JSON]:
        return {"output_index": len(self._output)}

    def _place(self) -> dict[str, JSON]:
        return {"item_id": self._id("msg"), "content_index": 0, **self._index()}

    def _message(self) -> JSONObject:
        return {"id": self._id("msg"), "type": "message", "role": "assistant"}

    def _call(self, id: str, name: str) -> JSONObject:
        return {"id": self._id("fc"), "type": "function_call", "call_id": id, "name": name}


def _part(text: str) -> JSONObject:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
