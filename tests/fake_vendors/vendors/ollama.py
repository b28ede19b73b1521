"""Ollama's `/api/chat` as on ollama.com: as a local server, and with a key.

A stream is newline-delimited JSON. The server's types are Go types. The error for a long prompt is that of the model
runner, as text inside the server's error.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import ClassVar

from contextc._json import JSONObject
from tests.fake_vendors.replies import ScriptedCall, pieces
from tests.fake_vendors.responses import Event, FakeError, RequestHead
from tests.fake_vendors.vendor import CREATED, AcceptedRequest, EncodedReply, Trouble, Vendor

PATH = "/api/chat"
ENDS = {"stop": "stop", "tool_calls": "stop", "length": "length", "filter": "stop"}
MADE = datetime.fromtimestamp(CREATED, UTC).isoformat().replace("+00:00", "Z")
SAID: dict[Trouble, tuple[int, str]] = {
    "rate": (429, "timed out waiting for a concurrent request slot"),
    "quota": (429, "you (standin) have reached your session usage limit, upgrade for higher limits"),
    "overloaded": (503, "server busy, please try again.  maximum pending requests exceeded"),
    "internal": (500, "llama runner process has terminated: exit status 2"),
    "unavailable": (503, "Service Temporarily Unavailable"),
}


class Ollama(Vendor):
    format: ClassVar[str] = "ollama"
    stream_kind: ClassVar[str] = "application/x-ndjson"
    cache_step: ClassVar[int] = 64

    def serves(self, path: str) -> bool:
        return path == PATH

    def model(self, head: RequestHead, body: JSONObject) -> str:
        return str(body.get("model"))

    def streams(self, head: RequestHead, body: JSONObject) -> bool:
        return body.get("stream") is not False

    def unauthorized(self, key: str | None) -> FakeError:
        return FakeError(401, {"error": "unauthorized"})

    def invalid(self, message: str, *, path: str = "", status: int = 400) -> FakeError:
        return FakeError(status, {"error": message})

    def too_long(self, ask: AcceptedRequest, tokens: int, window: int) -> FakeError:
        text = f"request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
        error = {"code": 400, "message": text, "type": "exceed_context_size_error"}
        return self.invalid(json.dumps({"error": {**error, "n_prompt_tokens": tokens, "n_ctx": window}}))

    def trouble(self, kind: Trouble, seconds: float) -> FakeError:
        status, text = SAID[kind]
        return FakeError(status, {"error": text}, (("retry-after", f"{seconds:g}"),) if kind == "rate" else ())

    def trouble_inside(self, kind: Trouble, ask: AcceptedRequest, number: int) -> list[Event]:
        return [Event(self.trouble(kind, 1).body)]

    def objections(self, ask: AcceptedRequest, replies: set[str]) -> Iterable[str | FakeError]:
        if not ask.body.get("model"):
            yield "model is required"
        if ask.body.get("think") and ask.facts is not None and not ask.facts.reasoning:
            yield f'"{ask.model}" does not support thinking'

    def reply_id(self, encoded: EncodedReply) -> str:
        return encoded.name("")

    def call_ids(self, encoded: EncodedReply) -> list[ScriptedCall]:
        return encoded.calls("call_", 8)

    def whole(self, encoded: EncodedReply) -> JSONObject:
        calls: JSONObject = {"tool_calls": _calls(self.call_ids(encoded))} if encoded.reply.calls else {}
        return {**_line(encoded, encoded.reply.text or "", self._thought(encoded), **calls), **_end(encoded)}

    def events(self, encoded: EncodedReply) -> Iterator[Event]:
        for piece in pieces(self._thought(encoded)):
            yield Event(_line(encoded, "", piece))
        for piece in pieces(encoded.reply.text or ""):
            yield Event(_line(encoded, piece))
        for call in _calls(self.call_ids(encoded)):
            yield Event(_line(encoded, "", tool_calls=[call]))
        yield Event({**_line(encoded, ""), **_end(encoded)})

    def framed(self, event: Event) -> bytes:
        return event.written + b"\n"

    def _thought(self, encoded: EncodedReply) -> str:
        return encoded.reply.reasoning if encoded.body.get("think", True) else ""


def _line(encoded: EncodedReply, text: str, thought: str = "", **beside: object) -> JSONObject:
    thinking: JSONObject = {"thinking": thought} if thought else {}
    message: JSONObject = {"role": "assistant", "content": text, **thinking, **beside}
    return {"model": encoded.model, "created_at": MADE, "message": message, "done": False}


def _end(encoded: EncodedReply) -> JSONObject:
    return {
        "done": True,
        "done_reason": ENDS[encoded.reply.ended],
        "total_duration": 10706818083,
        "load_duration": 6338219291,
        "prompt_eval_count": encoded.tokens.input,
        "prompt_eval_duration": 130079000,
        "eval_count": encoded.tokens.output,
        "eval_duration": 4232710000,
    }


def _calls(calls: list[ScriptedCall]) -> list[JSONObject]:
    return [
        {
            "id": call.id,
            "function": {
                "index": number,
                "name": call.name,
                "arguments": call.arguments if isinstance(call.arguments, dict) else {},
            },
        }
        for number, call in enumerate(calls)
    ]


VENDOR = Ollama()
