"""OpenAI's Responses API. Its reasoning is encrypted, and bound to the item that holds it."""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import ClassVar, cast

from contextc._json import JSON, JSONObject
from contextc.formats.openai_responses.rules import RULES
from tests.fake_vendors.json_access import as_list, as_object
from tests.fake_vendors.replies import ScriptedCall, pieces
from tests.fake_vendors.responses import Event, FakeError, Outcome
from tests.fake_vendors.signatures import read_token_seal, token_seal
from tests.fake_vendors.vendor import CREATED, AcceptedRequest, EncodedReply, Memory, Trouble
from tests.fake_vendors.vendors._openai import SAID, OpenAI, refusal
from tests.fake_vendors.vendors._openai_state import CONVERSATIONS, RESPONSES, Kept, conversation_of, given

ENCRYPTED = RULES.get("OAR010").provider_message
HISTORIES = ("previous_response_id", "conversation")
LIMITS = {"length": "max_output_tokens", "filter": "content_filter"}
ECHOED: JSONObject = {
    "conversation": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""Request settings that a response repeats, with their defaults."""


class OpenAIResponses(OpenAI):
    format: ClassVar[str] = "openai_responses"
    cache_rules: ClassVar[str] = "responses"

    def serves(self, path: str) -> bool:
        return path == "/v1/responses" or path.startswith((f"{RESPONSES}resp_", CONVERSATIONS))

    def too_long(self, ask: AcceptedRequest, tokens: int, window: int) -> FakeError:
        text = "Your input exceeds the context window of this model. Please adjust your input and try again."
        return refusal(400, text, "invalid_request_error", "context_length_exceeded", param="input")

    def trouble_inside(self, kind: Trouble, ask: AcceptedRequest, number: int) -> list[Event]:
        """Return an `error` event for a service failure, or `response.failed` for a model failure."""
        _, _, code, message = SAID[kind]
        content = {"code": code, "message": message.format("1")}
        if kind != "internal":
            return [_event("error", **content, param=None, sequence_number=number)]
        response: JSONObject = {
            **_echo(ask),
            "id": "resp_standin_failed",
            "status": "failed",
            "output": [],
            "error": content,
        }
        return [_event("response.failed", response=response, sequence_number=number)]

    def typed(self, ask: AcceptedRequest) -> JSONObject:
        """Return the body without Codex's metadata and fields that the SDK does not have. The API accepts them.

        A function without `strict` is accepted, too, although the SDK's type requires the field.
        """
        body = dict(ask.body)
        if isinstance(body.get("tools"), list):
            body["tools"] = [
                {"strict": None, **tool} if tool.get("type") == "function" else tool for tool in as_list(body["tools"])
            ]
        result = as_object(body.get("client_metadata"))
        if result and all(isinstance(each, str) for each in result.values()):
            del body["client_metadata"]
        if isinstance(body.get("input"), list):
            body["input"] = [_as_known(item) for item in as_list(body["input"])]
        return body

    def memory(self) -> Memory:
        return Kept()

    def seen(self, ask: AcceptedRequest, body: JSONObject) -> JSONObject:
        history = _kept(ask).history(ask)
        if history is None or sum(body.get(name) is not None for name in HISTORIES) != 1:
            return body
        rest = {name: value for name, value in body.items() if name not in HISTORIES}
        return {**rest, "input": [*history, *given(body)]}

    def judged(self, ask: AcceptedRequest) -> JSONObject:
        """Return everything that the model sees, for our lint rules."""
        return self.seen(ask, ask.body)

    def keeps(self, encoded: EncodedReply) -> Callable[[Outcome], None]:
        return _kept(encoded.ask).begins(encoded, self.whole(encoded))

    def objections(self, ask: AcceptedRequest, replies: set[str]) -> Iterable[str | FakeError]:
        if (lacking := _kept(ask).lacks(ask)) is not None:
            yield lacking
        yield from _changes_beyond_the_model(ask)
        for item in as_list(ask.body.get("input")):
            content: JSON = item.get("encrypted_content")
            sealed = read_token_seal(content)
            if sealed == b"" or (sealed and item.get("id") and sealed != str(item["id"]).encode()):
                yield ENCRYPTED.format(content=f"{content[:4]}...")

    def reply_id(self, encoded: EncodedReply) -> str:
        return encoded.name("resp_", 0, 48)

    def call_ids(self, encoded: EncodedReply) -> list[ScriptedCall]:
        return encoded.calls("call_")

    def whole(self, encoded: EncodedReply) -> JSONObject:
        return self._response(encoded, [item for item, _ in self._items(encoded)], done=True)

    def events(self, encoded: EncodedReply) -> Iterator[Event]:
        numbers = count()
        items = list(self._items(encoded))
        begun = self._response(encoded, [])
        yield _event("response.created", response=begun, sequence_number=next(numbers))
        yield _event("response.in_progress", response=begun, sequence_number=next(numbers))
        for index, (item, inner) in enumerate(items):
            place = {"output_index": index, "sequence_number": next(numbers)}
            yield _event("response.output_item.added", item=_begun(item), **place)
            for event in inner:
                named = {"item_id": item["id"], "output_index": index, "sequence_number": next(numbers)}
                yield Event({**event.data, **named}, event.name)
            place = {"output_index": index, "sequence_number": next(numbers)}
            yield _event("response.output_item.done", item=item, **place)
        ended = self._response(encoded, [item for item, _ in items], done=True)
        yield _event(f"response.{ended['status']}", response=ended, sequence_number=next(numbers))

    def _response(self, encoded: EncodedReply, output: list[JSONObject], done: bool = False) -> JSONObject:
        limit = LIMITS.get(encoded.reply.ended)
        status = ("incomplete" if limit else "completed") if done else "in_progress"
        return {
            **_echo(encoded.ask),
            "id": self.reply_id(encoded),
            "status": status,
            "completed_at": CREATED + 1 if status == "completed" else None,
            "incomplete_details": {"reason": limit} if done and limit else None,
            "output": output,
            "usage": _usage(encoded) if done else None,
        }

    def _items(self, encoded: EncodedReply) -> Iterator[tuple[JSONObject, list[Event]]]:
        """Return the items with the events between their start and end."""
        reply = encoded.reply
        calls = self.call_ids(encoded)
        if reply.reasoning:
            yield _reasoning(encoded)
        if reply.text is not None or (reply.reasoning and not calls):
            yield _message(encoded, reply.text or "", "commentary" if calls else "final_answer")
        for number, call in enumerate(calls):
            item: JSONObject = {"id": encoded.name("fc_", number, 48), "type": "function_call", "status": "completed"}
            item |= {"arguments": call.written, "call_id": call.id, "name": call.name}
            deltas = [_event("response.function_call_arguments.delta", delta=piece) for piece in pieces(call.written)]
            yield item, [*deltas, _event("response.function_call_arguments.done", arguments=call.written)]


def _reasoning(encoded: EncodedReply) -> tuple[JSONObject, list[Event]]:
    name, text = encoded.name("rs_", 0, 48), encoded.reply.reasoning
    shown = as_object(encoded.body.get("reasoning")).get("summary") is not None
    summary = [{"type": "summary_text", "text": text}] if shown else []
    item: JSONObject = {"id": name, "type": "reasoning", "summary": summary}
    item["encrypted_content"] = token_seal(name.encode())
    if not shown:
        return item, []
    part, place = {"type": "summary_text"}, {"summary_index": 0}
    return item, [
        _event("response.reasoning_summary_part.added", part={**part, "text": ""}, **place),
        *(_event("response.reasoning_summary_text.delta", delta=piece, **place) for piece in pieces(text)),
        _event("response.reasoning_summary_text.done", text=text, **place),
        _event("response.reasoning_summary_part.done", part={**part, "text": text}, **place),
    ]


def _message(encoded: EncodedReply, text: str, phase: str) -> tuple[JSONObject, list[Event]]:
    part: JSONObject = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    item: JSONObject = {
        "id": encoded.name("msg_", 0, 48),
        "type": "message",
        "status": "completed",
        "role": "assistant",
    }
    place = {"content_index": 0}
    return {**item, "content": [part], "phase": phase}, [
        _event("response.content_part.added", part={**part, "text": ""}, **place),
        *(_event("response.output_text.delta", delta=piece, logprobs=[], **place) for piece in pieces(text)),
        _event("response.output_text.done", text=text, logprobs=[], **place),
        _event("response.content_part.done", part=part, **place),
    ]


def _as_known(item: JSONObject) -> JSONObject:
    """Return an item of a client in the form of the SDK.

    Codex sends user messages with ids, and reasoning with empty content. LangChain sends replies without their ids.
    """
    if item.get("type") == "message" and item.get("role") == "assistant" and isinstance(item.get("content"), list):
        item = {"id": "msg_standin", "status": "completed", **item}
    unknown = "id" if item.get("type") == "message" and item.get("role") in ("user", "developer") else ""
    if item.get("type") == "reasoning" and item.get("content", "") is None:
        unknown = "content"
    return {key: value for key, value in item.items() if key != unknown}


def _changes_beyond_the_model(ask: AcceptedRequest) -> Iterator[str]:
    """Return changes of tools and effort that this model does not take."""
    features = ask.facts.features if ask.facts is not None else ("additional_tools", "effort_changes")
    mode = as_object(ask.body.get("reasoning")).get("mode")
    for item in as_list(ask.body.get("input")):
        kind = item.get("type")
        if kind == "additional_tools" and "additional_tools" not in features:
            yield f"The 'additional_tools' item type is not supported with {ask.model}."
        if kind == "configuration_update" and "effort_changes" not in features:
            yield f"The 'configuration_update' item type is not supported with {ask.model}."
        if kind == "configuration_update" and mode == "pro":
            yield "The 'configuration_update' item type is not supported with pro or tournament models."


def _begun(item: JSONObject) -> JSONObject:
    """Return an item in its initial state, without content."""
    empty: JSONObject = {"status": "in_progress", "content": [], "summary": [], "arguments": ""}
    return {key: empty.get(key, value) for key, value in item.items()}


def _kept(ask: AcceptedRequest) -> Kept:
    return cast(Kept, ask.memory) if ask.memory is not None else Kept()


def _event(type: str, **fields: JSON) -> Event:
    return Event({"type": type, **fields}, type)


def _echo(ask: AcceptedRequest) -> JSONObject:
    answer = {key: ask.body[key] for key in ECHOED if ask.body.get(key) is not None}
    tools = [
        {"description": None, "parameters": None, "strict": True, **tool} if tool.get("type") == "function" else tool
        for tool in as_list(ask.body.get("tools"))
    ]
    frame: JSONObject = {"object": "response", "created_at": CREATED, "model": ask.model, "background": False}
    echo = {**frame, "error": None, "incomplete_details": None, **ECHOED, **answer, "tools": tools, "usage": None}
    if (name := conversation_of(ask.body)) is not None:
        echo["conversation"] = {"id": name}
    return {**echo, "store": False} if _kept(ask).forgets and _kept(ask).owns_up else echo


def _usage(encoded: EncodedReply) -> JSONObject:
    tokens = encoded.tokens
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {
            "cached_tokens": tokens.read,
            "cache_write_tokens": tokens.written,
            "cache_write_tokens_details": {
                "ttl_30m_tokens": tokens.written - tokens.written_long,
                "ttl_12h_tokens": tokens.written_long,
            },
        },
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


VENDOR = OpenAIResponses()
