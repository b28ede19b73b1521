"""Bedrock's Converse and ConverseStream APIs, for Claude and other models.

A stream consists of frames with checksums, which contain JSON with padding. Requests are authenticated by a signature
or a token. Of a signature, the key id, the form and the scope are checked. As in Anthropic's API, a reasoning
signature of Claude covers the text and everything before it: system prompt, the set of tools, every earlier block,
without cache points and other reasoning.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, ClassVar, cast
from urllib.parse import unquote
from zlib import crc32

from contextc._json import JSONObject, encode, encode_canonical
from contextc.formats.anthropic import rules as anthropic_rules
from contextc.formats.bedrock.rules import RULES
from tests.fake_vendors.json_access import as_list, as_object
from tests.fake_vendors.replies import ScriptedCall, pieces
from tests.fake_vendors.responses import Event, FakeError, RequestHead
from tests.fake_vendors.signatures import SIZE, digest, message_seal, read_message_seal
from tests.fake_vendors.vendor import AcceptedRequest, EncodedReply, Trouble, Vendor

MODEL_ERROR_PREFIX = "The model returned the following errors: "
SIGNATURE, NO_SIGNATURES = RULES.get("BED023").provider_message, RULES.get("BED027").provider_message
NO_PREFILL = anthropic_rules.RULES.get("ANT024").provider_message
PATH = re.compile(r"/model/([^/]+)/(converse|converse-stream)")
SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/[a-z0-9-]+/bedrock/aws4_request, SignedHeaders=([a-z0-9;-]+), "
    r"Signature=[0-9a-f]{64}"
)
PADDING = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "filter": "content_filtered"}
CODES = {404: "ResourceNotFoundException", 405: "UnsupportedOperationException", 415: "ValidationException"}
SAID: dict[Trouble, tuple[int, str, str]] = {
    "rate": (429, "ThrottlingException", "Too many requests, please wait before trying again."),
    "quota": (400, "ServiceQuotaExceededException", "Your request exceeds the service quota for your account."),
    "overloaded": (503, "ServiceUnavailableException", "Bedrock is unable to process your request."),
    "internal": (
        500,
        "InternalServerException",
        "The system encountered an unexpected error during processing. Try your request again.",
    ),
    "unavailable": (503, "ServiceUnavailableException", "Service is temporarily unavailable."),
}


class Bedrock(Vendor):
    format: ClassVar[str] = "bedrock"
    stream_kind: ClassVar[str] = "application/vnd.amazon.eventstream"
    cache_mark: ClassVar[bytes] = b'"cachePoint"'
    cache_rules: ClassVar[str] = "bedrock"

    def serves(self, path: str) -> bool:
        return PATH.fullmatch(path) is not None

    def model(self, head: RequestHead, body: JSONObject) -> str:
        found = PATH.fullmatch(head.path)
        return unquote(found[1]) if found else ""

    def streams(self, head: RequestHead, body: JSONObject) -> bool:
        return head.path.endswith("/converse-stream")

    def key(self, head: RequestHead) -> str | None:
        given = head.headers.get("authorization", "")
        signed = SIGNED.fullmatch(given)
        if signed is not None and {"host", "x-amz-date"} <= set(signed[2].split(";")):
            return signed[1]
        return super().key(head)

    def unauthorized(self, key: str | None) -> FakeError:
        if key is None:
            return _error(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
        return _error(403, "UnrecognizedClientException", "The security token included in the request is invalid.")

    def invalid(self, message: str, *, path: str = "", status: int = 400) -> FakeError:
        return _error(status, CODES.get(status, "ValidationException"), message)

    def too_long(self, ask: AcceptedRequest, tokens: int, window: int) -> FakeError:
        if _is_claude(ask):
            return self.invalid(f"{MODEL_ERROR_PREFIX}prompt is too long: {tokens} tokens > {window} maximum")
        return self.invalid("Input is too long for requested model.")

    def trouble(self, kind: Trouble, seconds: float) -> FakeError:
        status, body, headers = _error(*SAID[kind])
        wait = (("retry-after", f"{seconds:g}"),) if kind == "rate" else ()  # which it says seldom, and here always
        return FakeError(status, body, (*headers, *wait))

    def trouble_inside(self, kind: Trouble, ask: AcceptedRequest, number: int) -> list[Event]:
        _, name, message = SAID[kind]
        return [_event(name[:1].lower() + name[1:], message=message)]

    def objections(self, ask: AcceptedRequest, replies: set[str]) -> Iterable[str | FakeError]:
        yield from _beyond_the_model(ask)
        seen = _head(ask.body)
        binds = ask.facts is None or ask.facts.binds_reasoning
        for place, role, block in _blocks(ask.body):
            thought = as_object(as_object(block.get("reasoningContent")).get("reasoningText"))
            if "reasoningContent" not in block:
                seen.update(encode_canonical([role, _plain(block)]))
                continue
            seals = read_message_seal(thought.get("signature"))
            if seals is None:
                continue
            if seals[0] != digest(str(thought.get("text")).encode()):
                yield SIGNATURE.format(where=place)
            elif binds and seals[1] != seen.digest():
                yield (
                    f"{SIGNATURE.format(where=place)}. The block is bound to a different conversation than the one "
                    "in this request."
                )

    def reply_id(self, encoded: EncodedReply) -> str:
        return encoded.name("")

    def call_ids(self, encoded: EncodedReply) -> list[ScriptedCall]:
        return encoded.calls("tooluse_", 22)

    def whole(self, encoded: EncodedReply) -> JSONObject:
        content = [block for block, _ in self._content(encoded)]
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": STOPS[encoded.reply.ended],
            "usage": _usage(encoded),
            "metrics": {"latencyMs": 400},
        }

    def events(self, encoded: EncodedReply) -> Iterator[Event]:
        yield _event("messageStart", role="assistant")
        for index, (block, deltas) in enumerate(self._content(encoded)):
            if "toolUse" in block:
                use = {name: value for name, value in block["toolUse"].items() if name != "input"}
                yield _event("contentBlockStart", contentBlockIndex=index, start={"toolUse": use})
            for delta in deltas:
                yield _event("contentBlockDelta", contentBlockIndex=index, delta=delta)
            yield _event("contentBlockStop", contentBlockIndex=index)
        yield _event("messageStop", stopReason=STOPS[encoded.reply.ended])
        yield _event("metadata", usage=_usage(encoded), metrics={"latencyMs": 400})

    def framed(self, event: Event) -> bytes:
        if isinstance(event.data, dict):
            text = as_object(cast(JSONObject, event.data)[event.name])
            payload = encode({**text, "p": PADDING[: 4 + len(text) * 7 % 50]})
        else:
            payload = event.written
        kind = "exception" if event.name.endswith("Exception") else "event"
        named = {f":{kind}-type": event.name, ":content-type": "application/json", ":message-type": kind}
        return framed(named, payload)

    def _content(self, encoded: EncodedReply) -> Iterator[tuple[JSONObject, list[JSONObject]]]:
        """Return the blocks with the deltas of their streams."""
        reply = encoded.reply
        if reply.reasoning:
            thought: JSONObject = {"text": reply.reasoning}
            deltas: list[JSONObject] = [{"reasoningContent": {"text": piece}} for piece in pieces(reply.reasoning)]
            if _is_claude(encoded.ask):
                thought["signature"] = _signature(encoded.ask.body, reply.reasoning)
                deltas.append({"reasoningContent": {"signature": thought["signature"]}})
            yield {"reasoningContent": {"reasoningText": thought}}, deltas
        if reply.text is not None:
            yield {"text": reply.text}, [{"text": piece} for piece in pieces(reply.text)]
        for call in self.call_ids(encoded):
            given = call.arguments if isinstance(call.arguments, dict) else {}
            written = ["", *pieces(call.written if given or isinstance(call.arguments, str) else "")]
            yield (
                {"toolUse": {"toolUseId": call.id, "name": call.name, "input": given}},
                [{"toolUse": {"input": piece}} for piece in written],
            )


def framed(headers: dict[str, str], payload: bytes) -> bytes:
    """Encode one frame: lengths with a checksum, headers, payload, and a checksum of all."""
    message = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    lengths = struct.pack(">II", 16 + len(message) + len(payload), len(message))
    whole = lengths + struct.pack(">I", crc32(lengths)) + message + payload
    return whole + struct.pack(">I", crc32(whole))


def _event(name: str, **fields: object) -> Event:
    return Event({name: fields}, name)


def _error(status: int, code: str, message: str) -> FakeError:
    headers = (("x-amzn-errortype", f"{code}:http://internal.amazon.com/coral/com.amazon.bedrock/"),)
    return FakeError(status, {"message": message}, (("x-amzn-requestid", "0f1e-stand-in"), *headers))


def _usage(encoded: EncodedReply) -> JSONObject:
    tokens = encoded.tokens
    return {
        "inputTokens": tokens.input - tokens.read - tokens.written,
        "outputTokens": tokens.output,
        "totalTokens": tokens.input + tokens.output,
        "cacheReadInputTokens": tokens.read,
        "cacheWriteInputTokens": tokens.written,
        "cacheDetails": [
            {"ttl": ttl, "inputTokens": written}
            for ttl, written in (("1h", tokens.written_long), ("5m", tokens.written - tokens.written_long))
            if written
        ],
    }


def _is_claude(ask: AcceptedRequest) -> bool:
    return "anthropic" in ask.model


def _beyond_the_model(ask: AcceptedRequest) -> Iterator[str]:
    """Return the problems of a request for this model."""
    facts, body = ask.facts, ask.body
    messages = cast(list[JSONObject], body["messages"])
    if messages[0]["role"] != "user" and not _is_claude(ask):
        yield (
            "A conversation must start with a user message. Try again with a conversation that starts with a user "
            "message."
        )
    if facts is None:
        return
    limit = as_object(body.get("inferenceConfig")).get("maxTokens") or 0
    if limit > facts.output:
        yield (
            f"The maximum tokens you requested exceeds the model limit of {facts.output}. Try again with a maximum "
            f"tokens value that is lower than {facts.output}."
        )
    if not facts.system_between and any(message["role"] == "system" for message in messages):
        yield f"{MODEL_ERROR_PREFIX}role 'system' is not supported on this model"
    if not facts.prefill and messages[-1]["role"] == "assistant":
        yield MODEL_ERROR_PREFIX + NO_PREFILL
    changes = [place for place, _, block in _blocks(body) if "toolAddition" in block or "toolRemoval" in block]
    if "tool_changes" not in facts.features and changes:
        yield f"{MODEL_ERROR_PREFIX}{changes[0]}: not supported on this model"
    tools = as_list(as_object(body.get("toolConfig")).get("tools"))
    if not _is_claude(ask) and any("cachePoint" in tool for tool in tools):
        yield (
            f"{MODEL_ERROR_PREFIX}Malformed input request: #/toolConfig/tools/{len(tools) - 1}: extraneous key "
            "[cachePoint] is "
            "not permitted, please reformat your input and try again."
        )
    thoughts = [as_object(block["reasoningContent"]) for _, _, block in _blocks(body) if "reasoningContent" in block]
    if not _is_claude(ask) and any("signature" in as_object(each.get("reasoningText")) for each in thoughts):
        yield NO_SIGNATURES
    elif not _is_claude(ask) and thoughts:
        yield "reasoningContent is not supported for this model in messages."


Seen = Any  # hashlib's type has a name only in its stubs


def _signature(body: JSONObject, thought: str) -> str:
    seen = _head(body)
    for _, role, block in _blocks(body):
        if "reasoningContent" not in block:
            seen.update(encode_canonical([role, _plain(block)]))
    return message_seal(digest(thought.encode()), seen.digest())


def _head(body: JSONObject) -> Seen:
    system = [_plain(block) for block in as_list(body.get("system")) if "cachePoint" not in block]
    tools = [tool for tool in as_list(as_object(body.get("toolConfig")).get("tools")) if "cachePoint" not in tool]
    return blake2b(encode_canonical(system) + b"".join(sorted(map(encode_canonical, tools))), digest_size=SIZE)


def _blocks(body: JSONObject) -> Iterator[tuple[str, str, JSONObject]]:
    """Return every block except cache points, with position and role, independent of the split into messages."""
    for number, message in enumerate(as_list(body.get("messages"))):
        for index, block in enumerate(as_list(message["content"])):
            if "cachePoint" not in block:
                yield f"messages.{number}.content.{index}", message["role"], block


def _plain(block: JSONObject) -> JSONObject:
    return {**block, "text": block["text"].rstrip()} if isinstance(block.get("text"), str) else block


VENDOR = Bedrock()
