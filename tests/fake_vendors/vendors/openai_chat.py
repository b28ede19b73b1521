"""OpenAI's Chat Completions API. It returns no reasoning, only the number of its tokens."""

from collections.abc import Iterable, Iterator
from typing import ClassVar

from contextc._json import JSONObject
from tests.fake_vendors.json_access import as_object
from tests.fake_vendors.replies import ScriptedCall, pieces
from tests.fake_vendors.responses import Event, FakeError
from tests.fake_vendors.vendor import CREATED, AcceptedRequest, EncodedReply, Trouble
from tests.fake_vendors.vendors._openai import OpenAI, refusal

ENDS = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "filter": "content_filter"}
REASONERS = ("gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6")


class OpenAIChat(OpenAI):
    format: ClassVar[str] = "openai_chat"
    cache_rules: ClassVar[str] = "chat"
    ends: ClassVar[str] = "[DONE]"
    reasons: ClassVar[bool] = False

    def serves(self, path: str) -> bool:
        return path == "/v1/chat/completions"

    def too_long(self, ask: AcceptedRequest, tokens: int, window: int) -> FakeError:
        text = (
            f"This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages."
        )
        return refusal(400, text, "invalid_request_error", "context_length_exceeded", param="messages")

    def trouble_inside(self, kind: Trouble, ask: AcceptedRequest, number: int) -> list[Event]:
        return [Event(self.trouble(kind, 1).body)]

    def objections(self, ask: AcceptedRequest, replies: set[str]) -> Iterable[str | FakeError]:
        effort = ask.body.get("reasoning_effort") or "none"
        if effort != "none" and ask.body.get("tools") and ask.model.startswith(REASONERS):
            yield (
                f"Function tools with reasoning_effort are not supported for {ask.model} in /v1/chat/completions. To "
                "use function tools, use /v1/responses or set reasoning_effort to 'none'."
            )

    def reply_id(self, encoded: EncodedReply) -> str:
        return encoded.name("chatcmpl-", 0, 29)

    def call_ids(self, encoded: EncodedReply) -> list[ScriptedCall]:
        return encoded.calls("call_")

    def whole(self, encoded: EncodedReply) -> JSONObject:
        message: JSONObject = {"role": "assistant", "content": encoded.reply.text, "refusal": None, "annotations": []}
        calls = self.call_ids(encoded)
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": ENDS[encoded.reply.ended]}
        return {**self._frame(encoded, "chat.completion"), "choices": [choice], "usage": _usage(encoded)}

    def events(self, encoded: EncodedReply) -> Iterator[Event]:
        text = None if encoded.reply.text is None else ""
        yield self._chunk(encoded, {"role": "assistant", "content": text, "refusal": None})
        for piece in pieces(encoded.reply.text or ""):
            yield self._chunk(encoded, {"content": piece})
        for index, call in enumerate(self.call_ids(encoded)):
            begun = _call(ScriptedCall(call.name, "", call.id))
            yield self._chunk(encoded, {"tool_calls": [{"index": index, **begun}]})
            for piece in pieces(call.written):
                yield self._chunk(encoded, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield self._chunk(encoded, {}, ENDS[encoded.reply.ended])
        if _counts(encoded):
            yield Event({**self._frame(encoded, "chat.completion.chunk"), "choices": [], "usage": _usage(encoded)})

    def _chunk(self, encoded: EncodedReply, delta: JSONObject, ended: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": ended}
        usage = {"usage": None} if _counts(encoded) else {}
        return Event({**self._frame(encoded, "chat.completion.chunk"), "choices": [choice], **usage})

    def _frame(self, encoded: EncodedReply, kind: str) -> JSONObject:
        named = {"id": self.reply_id(encoded), "object": kind, "created": CREATED, "model": encoded.model}
        return {**named, "service_tier": "default", "system_fingerprint": "fp_standin"}


def _counts(encoded: EncodedReply) -> bool:
    return as_object(encoded.body.get("stream_options")).get("include_usage") is True


def _call(call: ScriptedCall) -> JSONObject:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.written}}


def _usage(encoded: EncodedReply) -> JSONObject:
    tokens = encoded.tokens
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {
            "cached_tokens": tokens.read,
            "audio_tokens": 0,
            **({"cache_write_tokens": tokens.written} if tokens.written else {}),
        },
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


VENDOR = OpenAIChat()
