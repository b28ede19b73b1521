"""Replies as a stream of the Responses API: items, each with its beginning, deltas and its whole content at the end."""

from itertools import count

from contextc._json import JSON, JSONObject
from contextc.formats.reply_encoding import responses_usage
from contextc.formats.reply_stream import ReplyStream, server_sent_event
from contextc.messages import Message, Usage

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesReplyStream(ReplyStream):
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
            **responses_usage(used),
            "input_tokens_details": {"cached_tokens": used.cache_read},
            "total_tokens": used.input + used.output,
        }
        return {**response, "usage": usage}

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
