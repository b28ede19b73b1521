"""Anthropic's Messages API, version 2026-10-21.

A signature covers the reasoning text and everything before it: system prompt, the set of tools, every earlier block.
Changes that the vendor allows are allowed here too: cache breakpoints, the order of tools and keys, a string in place
of a text block, trailing space, other reasoning.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, ClassVar, cast

from contextc._json import JSON, JSONObject, encode_canonical
from contextc.formats.anthropic.rules import RULES
from tests.fake_vendors.json_access import as_list, as_object
from tests.fake_vendors.replies import ScriptedCall, pieces
from tests.fake_vendors.responses import Event, FakeError, RequestHead
from tests.fake_vendors.signatures import SIZE, digest, message_seal, read_message_seal
from tests.fake_vendors.vendor import AcceptedRequest, EncodedReply, Trouble, Vendor

SIGNATURE = RULES.get("ANT014").provider_message
TOOL_CHANGES, INLINE_TOOLS = "mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15"
OUTPUT_CONFIG = "mid-conversation-output-config-2026-07-01", "per-turn-control-2026-07-01"
VERSIONS = ("2023-06-01", "2026-10-21")
TYPES = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error"}
STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "filter": "refusal"}
THINKING = ("thinking", "redacted_thinking")
SAID: dict[Trouble, tuple[int, str, str]] = {
    "rate": (
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of 50 requests per minute. Please try again later.",
    ),
    "quota": (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or "
        "purchase credits.",
    ),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "internal": (500, "api_error", "Internal server error"),
    "unavailable": (503, "api_error", "Service temporarily unavailable"),
}


class Anthropic(Vendor):
    format: ClassVar[str] = "anthropic"
    key_headers: ClassVar[tuple[str, ...]] = ("x-api-key", "authorization")
    cache_mark: ClassVar[bytes] = b'"cache_control"'
    cache_rules: ClassVar[str] = "anthropic"

    def serves(self, path: str) -> bool:
        return path == "/v1/messages"

    def model(self, head: RequestHead, body: JSONObject) -> str:
        return str(body.get("model"))

    def streams(self, head: RequestHead, body: JSONObject) -> bool:
        return body.get("stream") is True

    def unauthorized(self, key: str | None) -> FakeError:
        return _error(401, "authentication_error", "invalid x-api-key" if key else "x-api-key header is required")

    def unwelcome(self, head: RequestHead) -> FakeError | None:
        version = head.headers.get("anthropic-version")
        if version is None:
            return self.invalid("anthropic-version: header is required")
        if version not in VERSIONS:
            return self.invalid(f'anthropic-version: "{version}" is not a valid version')
        return None

    def invalid(self, message: str, *, path: str = "", status: int = 400) -> FakeError:
        return _error(status, TYPES.get(status, "invalid_request_error"), message)

    def too_long(self, ask: AcceptedRequest, tokens: int, window: int) -> FakeError:
        return self.invalid(f"prompt is too long: {tokens} tokens > {window} maximum")

    def trouble(self, kind: Trouble, seconds: float) -> FakeError:
        status, type, message = SAID[kind]
        limits = (
            ("retry-after", f"{seconds:g}"),
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-15T12:00:00Z"),
        )
        return _error(status, type, message, limits if kind == "rate" else ())

    def trouble_inside(self, kind: Trouble, ask: AcceptedRequest, number: int) -> list[Event]:
        _, type, message = SAID[kind]
        return [Event({"type": "error", "error": {"type": type, "message": message}}, "error")]

    def must_reason(self, ask: AcceptedRequest) -> bool:
        return as_object(ask.body.get("thinking")).get("type") == "enabled"

    def objections(self, ask: AcceptedRequest, replies: set[str]) -> Iterable[str | FakeError]:
        yield from _beyond_the_model(ask)
        yield from _deferred_tools(ask.body)
        yield from _changes_without_leave(ask)
        seen = _head(ask.body)
        binds = ask.facts is None or ask.facts.binds_reasoning
        for place, role, block in _blocks(ask.body):
            if block.get("type") not in THINKING:
                _take(seen, role, block)
                continue
            seals = read_message_seal(block.get("signature", block.get("data")))
            if seals is None:
                continue
            if seals[0] != digest(str(block.get("thinking")).encode()):
                yield SIGNATURE.format(where=place)
            elif binds and seals[1] != seen.digest():
                yield (
                    f"{SIGNATURE.format(where=place)}. The block is bound to a different conversation than the one "
                    "in this request."
                )

    def reply_id(self, encoded: EncodedReply) -> str:
        return encoded.name("msg_01", 0, 22)

    def call_ids(self, encoded: EncodedReply) -> list[ScriptedCall]:
        return encoded.calls("toolu_01", 22)

    def whole(self, encoded: EncodedReply) -> JSONObject:
        content = [block for block, _ in self._content(encoded)]
        return {**self._message(encoded), "content": content, "usage": _usage(encoded), **_stopped(encoded)}

    def events(self, encoded: EncodedReply) -> Iterator[Event]:
        usage = {**_usage(encoded), "output_tokens": 1}
        yield _event("message_start", message={**self._message(encoded), "usage": usage})
        yield _event("ping")
        for index, (block, deltas) in enumerate(self._content(encoded)):
            empty: JSONObject = {"thinking": "", "signature": "", "text": "", "input": {}}
            began = {key: empty.get(key, value) for key, value in block.items()}
            yield _event("content_block_start", index=index, content_block=began)
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta=_stopped(encoded), usage=_usage(encoded))
        yield _event("message_stop")

    def _message(self, encoded: EncodedReply) -> JSONObject:
        return {
            "id": self.reply_id(encoded),
            "type": "message",
            "role": "assistant",
            "model": encoded.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _content(self, encoded: EncodedReply) -> Iterator[tuple[JSONObject, list[JSONObject]]]:
        """Return the blocks with the deltas of their streams."""
        reply = encoded.reply
        if reply.reasoning:
            signature = _signature(encoded.ask.body, reply.reasoning)
            thought = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(reply.reasoning)]
            yield (
                {"type": "thinking", "thinking": reply.reasoning, "signature": signature},
                [*thought, {"type": "signature_delta", "signature": signature}],
            )
        if reply.text is not None:
            deltas: list[JSONObject] = [{"type": "text_delta", "text": piece} for piece in pieces(reply.text)]
            yield {"type": "text", "text": reply.text}, deltas
        for call in self.call_ids(encoded):
            given = call.arguments if isinstance(call.arguments, dict) else {}
            written = ["", *pieces(call.written if given or isinstance(call.arguments, str) else "")]
            yield (
                {"type": "tool_use", "id": call.id, "name": call.name, "input": given},
                [{"type": "input_json_delta", "partial_json": piece} for piece in written],
            )


def _event(type: str, **fields: JSON) -> Event:
    return Event({"type": type, **fields}, type)


def _stopped(encoded: EncodedReply) -> JSONObject:
    return {"stop_reason": STOPS[encoded.reply.ended], "stop_sequence": None}


def _usage(encoded: EncodedReply) -> JSONObject:
    tokens = encoded.tokens
    return {
        "input_tokens": tokens.input - tokens.read - tokens.written,
        "cache_creation_input_tokens": tokens.written,
        "cache_read_input_tokens": tokens.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": tokens.written - tokens.written_long,
            "ephemeral_1h_input_tokens": tokens.written_long,
        },
        "output_tokens": tokens.output,
        "output_tokens_details": {"thinking_tokens": tokens.reasoning},
        "service_tier": "standard",
    }


def _error(status: int, type: str, message: str, headers: tuple[tuple[str, str], ...] = ()) -> FakeError:
    name = "req_011StandIn"
    body: JSONObject = {"type": "error", "error": {"type": type, "message": message}, "request_id": name}
    return FakeError(status, body, (("request-id", name), *headers))


def _beyond_the_model(ask: AcceptedRequest) -> Iterator[str]:
    """Return the problems of a request for this model."""
    facts, body = ask.facts, ask.body
    messages = cast(list[JSONObject], body["messages"])
    if facts is None:
        return
    if body["max_tokens"] > facts.output:
        yield (
            f"max_tokens: {body['max_tokens']} > {facts.output}, which is the maximum allowed number of output tokens "
            f"for {ask.model}"
        )
    if not facts.system_between and any(message["role"] == "system" for message in messages):
        yield "role 'system' is not supported on this model"
    if not facts.prefill and messages[-1]["role"] == "assistant":
        yield ("This model does not support assistant message prefill. The conversation must end with a user message.")
    if not facts.forced_tool_choice and as_object(body.get("tool_choice")).get("type") in ("any", "tool"):
        yield 'tool_choice: type "tool" and "any" are not supported for this model.'


def _deferred_tools(body: JSONObject) -> Iterator[str]:
    """Return deferred tools with a cache breakpoint."""
    for tool in as_list(body.get("tools")):
        if tool.get("defer_loading") and tool.get("cache_control"):
            yield (
                f"Tool '{tool.get('name')}' cannot have both defer_loading=true and cache_control set. "
                "Tools with defer_loading cannot use prompt caching."
            )


def _changes_without_leave(ask: AcceptedRequest) -> Iterator[str]:
    """Return changes of tools and effort that need a flag which was not sent, or another model.

    The first tools have to be beside the messages. Tools that are defined in a message need a flag of their own, which
    is enough for references, too.
    """
    flags = set(ask.headers.get("anthropic-beta", "").replace(" ", "").split(","))
    has_tools = any(not tool.get("defer_loading") for tool in as_list(ask.body.get("tools")))
    wanted: list[tuple[str, str, tuple[str, ...]]] = []
    for place, _, block in _blocks(ask.body):
        if block.get("type") not in ("tool_addition", "tool_removal"):
            continue
        if as_object(block["tool"]).get("type") == "tool_definition":
            wanted.append((place, "inline_tools", (INLINE_TOOLS,)))
            if not has_tools:
                yield f"{place}: a tool can be defined in a message only if `tools` has one that is not deferred"
        else:
            wanted.append((place, "tool_changes", (TOOL_CHANGES, INLINE_TOOLS)))
    for number, message in enumerate(as_list(ask.body.get("messages"))):
        if "output_config" in message:
            wanted.append((f"messages.{number}.output_config", "effort_changes", OUTPUT_CONFIG))
    for place, feature, allowed in wanted:
        if flags.isdisjoint(allowed):
            yield f"{place}: Extra inputs are not permitted"
        if ask.facts is not None and feature not in ask.facts.features:
            yield f"{place}: not supported on this model"


Seen = Any  # what hashlib returns has no name outside of its stubs


def _signature(body: JSONObject, thought: str) -> str:
    seen = _head(body)
    for _, role, block in _blocks(body):
        if block.get("type") not in THINKING:
            _take(seen, role, block)
    return message_seal(digest(thought.encode()), seen.digest())


def _head(body: JSONObject) -> Seen:
    system = [_plain(block) for block in _listed(body.get("system") or [])]
    tools = sorted(encode_canonical(_plain(tool)) for tool in as_list(body.get("tools")))
    return blake2b(encode_canonical(system) + b"".join(tools), digest_size=SIZE)


def _take(seen: Seen, role: str, block: JSONObject) -> None:
    seen.update(encode_canonical([role, _plain(block)]))


def _blocks(body: JSONObject) -> Iterator[tuple[str, str, JSONObject]]:
    """Return every block with its position and role, independent of the split into messages."""
    for number, message in enumerate(as_list(body.get("messages"))):
        for index, block in enumerate(_listed(message["content"])):
            yield f"messages.{number}.content.{index}", message["role"], block


def _listed(content: JSON) -> list[JSONObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else cast(list[JSONObject], content)


def _plain(block: JSONObject) -> JSONObject:
    found = {key: value for key, value in block.items() if key != "cache_control" and value is not None}
    if isinstance(found.get("text"), str):
        found["text"] = found["text"].rstrip()
    if block.get("type") == "tool_result" and "content" in found:
        found["content"] = [_plain(each) for each in _listed(found["content"])]
    return found


VENDOR = Anthropic()
