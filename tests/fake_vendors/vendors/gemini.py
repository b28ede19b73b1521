"""Google's generateContent API, with streaming. A signature belongs to one part and covers its call.

Models from Gemini 3 on require signed calls. Only the later of them return ids of calls.
"""

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

from contextc._json import JSONObject, encode_canonical
from contextc.formats.gemini.rules import RULES
from tests.fake_vendors.json_access import as_list, as_object
from tests.fake_vendors.replies import ScriptedCall, pieces
from tests.fake_vendors.responses import Event, FakeError, RequestHead
from tests.fake_vendors.signatures import digest, message_seal, read_message_seal
from tests.fake_vendors.vendor import AcceptedRequest, EncodedReply, Trouble, Vendor

SIGNATURE = RULES.get("GEM011").provider_message
PATH = re.compile(r"/v1(?:beta)?/models/([^/:]+):(generateContent|streamGenerateContent)")
ENDS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"}
UNSIGNED = ("gemini-1", "gemini-2")
UNNAMED = (*UNSIGNED, "gemini-3-")
STATUSES = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
SAID: dict[Trouble, tuple[int, str, str]] = {
    "rate": (
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: "
        "generativelanguage.googleapis.com/generate_content_requests, limit: 150\nPlease retry in {0}s.",
    ),
    "quota": (
        429,
        "RESOURCE_EXHAUSTED",
        "Your prepayment credits are depleted. Please go to AI Studio to manage your project and billing.",
    ),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "internal": (500, "INTERNAL", "An internal error has occurred. Please retry or report the issue."),
    "unavailable": (503, "UNAVAILABLE", "The service is currently unavailable."),
}


class Gemini(Vendor):
    format: ClassVar[str] = "gemini"
    key_headers: ClassVar[tuple[str, ...]] = ("x-goog-api-key",)
    line_end: ClassVar[str] = "\r\n"

    def serves(self, path: str) -> bool:
        return PATH.fullmatch(path) is not None

    def model(self, head: RequestHead, body: JSONObject) -> str:
        found = PATH.fullmatch(head.path)
        return found[1] if found else ""

    def streams(self, head: RequestHead, body: JSONObject) -> bool:
        return head.path.endswith(":streamGenerateContent")

    def key(self, head: RequestHead) -> str | None:
        """Return the key of a request, which may also be in its query."""
        return super().key(head) or head.query.get("key")

    def unauthorized(self, key: str | None) -> FakeError:
        if not key:
            text = (
                "Method doesn't allow unregistered callers (callers without established identity). Please use API Key "
                "or other form of API consumer identity to call this API."
            )
            return _error(403, "PERMISSION_DENIED", text)
        reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        reason["domain"] = "googleapis.com"
        return _error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", [reason])

    def unwelcome(self, head: RequestHead) -> FakeError | None:
        if head.path.endswith(":streamGenerateContent") and head.query.get("alt") != "sse":
            return self.invalid("This stand-in streams with ?alt=sse only.")
        return None

    def invalid(self, message: str, *, path: str = "", status: int = 400) -> FakeError:
        return _error(status, STATUSES.get(status, "INVALID_ARGUMENT"), message)

    def too_long(self, ask: AcceptedRequest, tokens: int, window: int) -> FakeError:
        return self.invalid(
            f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."
        )

    def trouble(self, kind: Trouble, seconds: float) -> FakeError:
        status, name, message = SAID[kind]
        wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds:g}s"}
        return _error(status, name, message.format(f"{seconds:g}"), [wait] if kind == "rate" else [])

    def trouble_inside(self, kind: Trouble, ask: AcceptedRequest, number: int) -> list[Event]:
        return [Event(self.trouble(kind, 1).body)]

    def judged(self, ask: AcceptedRequest) -> JSONObject:
        """Return the body with a thinking level, by which our lint rules recognize models that require signed calls."""
        if ask.model.startswith(UNSIGNED):
            return ask.body
        settings = as_object(ask.body.get("generationConfig"))
        level = {"thinkingConfig": {"thinkingLevel": "LOW", **as_object(settings.get("thinkingConfig"))}}
        return {**ask.body, "generationConfig": {**settings, **level}}

    def objections(self, ask: AcceptedRequest, replies: set[str]) -> Iterable[str | FakeError]:
        for content in as_list(ask.body["contents"]):
            for part in as_list(content["parts"]):
                seals = read_message_seal(part.get("thoughtSignature"))
                call = as_object(part.get("functionCall"))
                if seals and call and seals[0] != _sealed(call["name"], as_object(call.get("args"))):
                    yield SIGNATURE

    def reply_id(self, encoded: EncodedReply) -> str:
        return encoded.name("", 0, 23)

    def call_ids(self, encoded: EncodedReply) -> list[ScriptedCall]:
        if encoded.model.startswith(UNNAMED):
            return [ScriptedCall(call.name, call.arguments) for call in encoded.reply.calls]
        return encoded.calls("", 8)

    def whole(self, encoded: EncodedReply) -> JSONObject:
        text = [{"text": encoded.reply.text}] if encoded.reply.text else []
        parts = [*self._thoughts(encoded, [encoded.reply.reasoning]), *text, *self._calls(encoded)]
        signature = self._text_signature(encoded)
        if signature:
            parts = [*(parts or [{"text": ""}])]
            parts[-1] = {**parts[-1], **signature}
        return self._chunk(encoded, parts, ended=True)

    def events(self, encoded: EncodedReply) -> Iterator[Event]:
        for part in self._thoughts(encoded, pieces(encoded.reply.reasoning)):
            yield Event(self._chunk(encoded, [part]))
        for piece in pieces(encoded.reply.text or ""):
            yield Event(self._chunk(encoded, [{"text": piece}]))
        for part in self._calls(encoded):
            yield Event(self._chunk(encoded, [part]))
        yield Event(self._chunk(encoded, [{"text": "", **self._text_signature(encoded)}], ended=True))

    def _thoughts(self, encoded: EncodedReply, texts: list[str]) -> list[JSONObject]:
        settings = as_object(encoded.body.get("generationConfig"))
        shown = as_object(settings.get("thinkingConfig"))
        return [{"text": text, "thought": True} for text in texts if text and shown.get("includeThoughts")]

    def _calls(self, encoded: EncodedReply) -> Iterator[JSONObject]:
        for number, call in enumerate(self.call_ids(encoded)):
            made: JSONObject = {"name": call.name, "args": call.arguments if isinstance(call.arguments, dict) else {}}
            part: JSONObject = {"functionCall": {"id": call.id, **made} if call.id else made}
            if number == 0 and not encoded.model.startswith(UNSIGNED):
                part["thoughtSignature"] = message_seal(_sealed(call.name, made["args"]))
            yield part

    def _text_signature(self, encoded: EncodedReply) -> JSONObject:
        signed = encoded.reply.reasoning and not encoded.reply.calls and not encoded.model.startswith(UNSIGNED)
        return {"thoughtSignature": message_seal(digest(b"text"))} if signed else {}

    def _chunk(self, encoded: EncodedReply, parts: list[JSONObject], ended: bool = False) -> JSONObject:
        candidate: JSONObject = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if ended:
            candidate["finishReason"] = ENDS[encoded.reply.ended]
        named = {"modelVersion": encoded.model, "responseId": self.reply_id(encoded)}
        return {"candidates": [candidate], "usageMetadata": _usage(encoded, ended), **named}


def _sealed(name: str, arguments: JSONObject) -> bytes:
    return digest(name.encode(), encode_canonical(arguments))


def _usage(encoded: EncodedReply, ended: bool) -> JSONObject:
    tokens = encoded.tokens
    usage: JSONObject = {"promptTokenCount": tokens.input, "totalTokenCount": tokens.input}
    usage["promptTokensDetails"] = [{"modality": "TEXT", "tokenCount": tokens.input}]
    if tokens.read:
        usage["cachedContentTokenCount"] = tokens.read
    if ended:
        usage["candidatesTokenCount"] = tokens.output - tokens.reasoning
        usage["totalTokenCount"] = tokens.input + tokens.output
        if tokens.reasoning:
            usage["thoughtsTokenCount"] = tokens.reasoning
    return usage


def _error(status: int, name: str, message: str, details: list[JSONObject] | None = None) -> FakeError:
    error: JSONObject = {"code": status, "message": message, "status": name}
    return FakeError(status, {"error": {**error, "details": details} if details else error})


VENDOR = Gemini()
