"""Mistral's chat completions. Reasoning is a signed chunk of the content. A stream always reports usage.

It has its own base path here, because OpenAI's API has the same path. A signature covers the text of its reasoning.
Mistral's error for a changed one is unknown, so the message here is invented.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar

from contextc._json import JSONObject
from contextc.formats.mistral.codec import as_chunks, thinking_text
from tests.fake_vendors.json_access import as_list
from tests.fake_vendors.replies import ScriptedCall, pieces
from tests.fake_vendors.responses import Event, FakeError, RequestHead
from tests.fake_vendors.signatures import digest, message_seal, read_message_seal
from tests.fake_vendors.vendor import CREATED, AcceptedRequest, EncodedReply, Trouble, Vendor

ENDS = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "filter": "stop"}
SHAPE = "body."  # prefix of pydantic's errors
SAID: dict[Trouble, tuple[int, str, str | None, str]] = {
    "rate": (429, "rate_limited", "1300", "Rate limit exceeded"),
    "overloaded": (503, "service_unavailable", None, "Service tier capacity exceeded for this model."),
    "internal": (500, "internal_server_error", None, "Internal server error"),
    "unavailable": (503, "service_unavailable", None, "Service unavailable."),
}


class Mistral(Vendor):
    format: ClassVar[str] = "mistral"
    root: ClassVar[str] = "/mistral/v1"
    ends: ClassVar[str] = "[DONE]"
    free_arguments: ClassVar[bool] = True
    cache_step: ClassVar[int] = 64

    def serves(self, path: str) -> bool:
        return path == f"{self.root}/chat/completions"

    def model(self, head: RequestHead, body: JSONObject) -> str:
        return str(body.get("model"))

    def streams(self, head: RequestHead, body: JSONObject) -> bool:
        return body.get("stream") is True

    def unauthorized(self, key: str | None) -> FakeError:
        return FakeError(401, {"detail": "Unauthorized"})

    def invalid(self, message: str, *, path: str = "", status: int = 400) -> FakeError:
        if not message.startswith(SHAPE):
            return _error(status, message, "invalid_request_error", None)
        place, _, text = message.partition(": ")
        detail = {"type": "value_error", "loc": place.split("."), "msg": text}
        return _error(422, {"detail": [detail]}, "invalid_request_error", None)

    def too_long(self, ask: AcceptedRequest, tokens: int, window: int) -> FakeError:
        text = (
            f"Prompt contains {tokens} tokens and 0 draft tokens, too large for model with {window} maximum context "
            "length"
        )
        return _error(400, text, "invalid_request_error", None)

    def trouble(self, kind: Trouble, seconds: float) -> FakeError:
        if kind == "quota":
            return self.unauthorized(None)
        status, type, code, message = SAID[kind]
        waiting = (("retry-after", f"{seconds:g}"),) if kind == "rate" else ()
        return _error(status, message, type, code, waiting)

    def trouble_inside(self, kind: Trouble, ask: AcceptedRequest, number: int) -> list[Event]:
        return [Event(self.trouble(kind, 1).body)]

    def objections(self, ask: AcceptedRequest, replies: set[str]) -> Iterable[str | FakeError]:
        for message in as_list(ask.body["messages"]):
            for chunk in as_chunks(message.get("content")):
                seals = read_message_seal(chunk.get("signature"))
                if seals and seals[0] != _sealed(thinking_text(chunk)):
                    yield "Invalid signature in thinking chunk."

    def reply_id(self, encoded: EncodedReply) -> str:
        return encoded.name("", 0, 32)

    def call_ids(self, encoded: EncodedReply) -> list[ScriptedCall]:
        return encoded.calls("", 9)

    def whole(self, encoded: EncodedReply) -> JSONObject:
        text = encoded.reply.text or ""
        thoughts = [_thought(encoded.reply.reasoning, encoded.reply.reasoning)] if encoded.reply.reasoning else []
        content = [*thoughts, *([{"type": "text", "text": text}] if text else [])] if thoughts else text
        calls = [_call(call, number) for number, call in enumerate(self.call_ids(encoded))]
        message: JSONObject = {"role": "assistant", "content": content, "tool_calls": calls or None, "prefix": False}
        choice = {"index": 0, "message": message, "finish_reason": ENDS[encoded.reply.ended]}
        return {**self._frame(encoded, "chat.completion"), "choices": [choice], "usage": _usage(encoded)}

    def events(self, encoded: EncodedReply) -> Iterator[Event]:
        yield self._chunk(encoded, {"role": "assistant", "content": ""})
        thoughts = pieces(encoded.reply.reasoning)
        for number, piece in enumerate(thoughts):
            last = number == len(thoughts) - 1
            yield self._chunk(encoded, {"content": [_thought(piece, encoded.reply.reasoning if last else None)]})
        for piece in pieces(encoded.reply.text or ""):
            yield self._chunk(encoded, {"content": piece})
        for number, call in enumerate(self.call_ids(encoded)):
            yield self._chunk(encoded, {"content": "", "tool_calls": [_call(call, number)]})
        yield self._chunk(encoded, {"content": ""}, ENDS[encoded.reply.ended])

    def _chunk(self, encoded: EncodedReply, delta: JSONObject, ended: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": ended}
        usage = {"usage": _usage(encoded)} if ended else {}
        return Event({**self._frame(encoded, "chat.completion.chunk"), "choices": [choice], **usage})

    def _frame(self, encoded: EncodedReply, kind: str) -> JSONObject:
        return {"id": self.reply_id(encoded), "object": kind, "created": CREATED, "model": encoded.model}


def _thought(text: str, signed: str | None) -> JSONObject:
    """Return a reasoning chunk. The last one of a stream has the signature of the whole."""
    chunk: JSONObject = {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
    return chunk if signed is None else {**chunk, "signature": message_seal(_sealed(signed)), "closed": True}


def _sealed(text: str) -> bytes:
    return digest(b"mistral", text.encode())


def _call(call: ScriptedCall, number: int) -> JSONObject:
    function = {"name": call.name, "arguments": call.written}
    return {"id": call.id, "type": "function", "function": function, "index": number}


def _usage(encoded: EncodedReply) -> JSONObject:
    tokens = encoded.tokens
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.read},
    }


def _error(
    status: int, message: object, type: str, code: str | None, headers: tuple[tuple[str, str], ...] = ()
) -> FakeError:
    body: JSONObject = {"object": "error", "message": message, "type": type, "param": None, "code": code}
    return FakeError(status, {**body, "raw_status_code": status}, headers)


VENDOR = Mistral()
