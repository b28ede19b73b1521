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
    ends: ClassVar[str] = "[DONE]"
    reasons: ClassVar[bool] = False

    def serves(self, path: str) -> bool:
        return path == "/v1/chat/completions"

    def too_long(self, ask: AcceptedRequest, tokens: int, window: int) -> FakeError:
        said = (
            f"This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages."
        )
        return refusal(400, said, "invalid_request_error", "context_length_exceeded", param="messages")

    def trouble_inside(self, kind: Trouble, ask: AcceptedRequest, number: int) -> list[Event]:
        return [Event(self.trouble(kind, 1).body)]

    def objections(self, ask: AcceptedRequest, replies: set[str]) -> Iterable[str | FakeError]:
        effort = ask.body.get("reasoning_effort") or "none"
        if effort != "none" and ask.body.get("tools") and ask.model.startswith(REASONERS):
            yield (
                f"Function tools with reasoning_effort are not supported for {ask.model} in /v1/chat/completions. To "
                "use function tools, use /v1/responses or set reasoning_effort to 'none'."
            )

    def reply_id(self, told: EncodedReply) -> str:
        return told.name("chatcmpl-", 0, 29)

    def call_ids(self, told: EncodedReply) -> list[ScriptedCall]:
        return told.calls("call_")

    def whole(self, told: EncodedReply) -> JSONObject:
        message: JSONObject = {"role": "assistant", "content": told.reply.text, "refusal": None, "annotations": []}
        calls = self.call_ids(told)
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": ENDS[told.reply.ended]}
        return {**self._frame(told, "chat.completion"), "choices": [choice], "usage": _usage(told)}

    def events(self, told: EncodedReply) -> Iterator[Event]:
        text = None if told.reply.text is None else ""
        yield self._chunk(told, {"role": "assistant", "content": text, "refusal": None})
        for piece in pieces(told.reply.text or ""):
            yield self._chunk(told, {"content": piece})
        for index, call in enumerate(self.call_ids(told)):
            begun = _call(ScriptedCall(call.name, "", call.id))
            yield self._chunk(told, {"tool_calls": [{"index": index, **begun}]})
            for piece in pieces(call.written):
                yield self._chunk(told, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield self._chunk(told, {}, ENDS[told.reply.ended])
        if _counts(told):
            yield Event({**self._frame(told, "chat.completion.chunk"), "choices": [], "usage": _usage(told)})

    def _chunk(self, told: EncodedReply, delta: JSONObject, ended: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": ended}
        usage = {"usage": None} if _counts(told) else {}
        return Event({**self._frame(told, "chat.completion.chunk"), "choices": [choice], **usage})

    def _frame(self, told: EncodedReply, kind: str) -> JSONObject:
        named = {"id": self.reply_id(told), "object": kind, "created": CREATED, "model": told.model}
        return {**named, "service_tier": "default", "system_fingerprint": "fp_standin"}


def _counts(told: EncodedReply) -> bool:
    return as_object(told.body.get("stream_options")).get("include_usage") is True


def _call(call: ScriptedCall) -> JSONObject:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.written}}


def _usage(told: EncodedReply) -> JSONObject:
    tokens = told.tokens
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


VENDOR = OpenAIChat()
