"""OpenRouter's chat completions: OpenAI's API with the reasoning of every vendor's models, signed, and cache points.

A reasoning signature of Claude covers its text and, for models that require it, everything before it. GPT's reasoning
is a summary and encrypted content. A block that is split, unsigned, or from another vendor is rejected, as the upstream
vendor would do. A request is also checked against the types of OpenRouter's SDK.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, cast

from contextc._json import JSON, JSONObject, encode, encode_canonical
from contextc.formats.base import Formatter
from contextc.formats.openai_chat import OpenAIFormatter
from tests.fake_vendors.json_access import as_list, as_object
from tests.fake_vendors.replies import pieces
from tests.fake_vendors.responses import Event, FakeError
from tests.fake_vendors.signatures import digest, message_seal, read_message_seal, read_token_seal, token_seal
from tests.fake_vendors.vendor import AcceptedRequest, EncodedReply, Trouble
from tests.fake_vendors.vendors.openai_chat import OpenAIChat

CLAUDE, GPT = FORMATS = ("anthropic-claude-v1", "openai-responses-v1")
DETAILS, MARK, MOST_MARKS = "reasoning_details", "cache_control", 4
PROCESSING = b": OPENROUTER PROCESSING\n\n"
COST = 0.00125
SPOKEN = OpenAIFormatter(provider="openrouter", cache_marks=True, media_in_results=True)
SAID: dict[Trouble, tuple[int, str, str, str]] = {
    "rate": (429, "Provider returned error", "rate_limit_exceeded", "it is temporarily rate-limited upstream"),
    "quota": (402, "Insufficient credits. Add more using https://openrouter.ai/settings/credits", "", ""),
    "overloaded": (503, "Provider returned error", "provider_overloaded", '{"type":"error","message":"Overloaded"}'),
    "internal": (500, "Internal Server Error", "server", ""),
    "unavailable": (502, "Provider returned error", "provider_unavailable", "upstream connect error"),
}


class OpenRouter(OpenAIChat):
    name: ClassVar[str] = "openrouter"
    root: ClassVar[str] = "/api/v1"
    reasons: ClassVar[bool] = True
    cache_mark: ClassVar[bytes] = b'"cache_control"'
    cache_rules: ClassVar[str] = ""
    cache_step: ClassVar[int] = 1

    @property
    def formatter(self) -> Formatter:
        return SPOKEN

    def serves(self, path: str) -> bool:
        return path == "/api/v1/chat/completions"

    def unauthorized(self, key: str | None) -> FakeError:
        return _error(401, "User not found." if key else "No auth credentials found")

    def invalid(self, message: str, *, path: str = "", status: int = 400) -> FakeError:
        return _error(status, message)

    def too_long(self, ask: AcceptedRequest, tokens: int, window: int) -> FakeError:
        return _error(
            400,
            f"This endpoint's maximum context length is {window} tokens. However, you requested about {tokens} tokens. "
            "Please reduce the length of either one.",
        )

    def trouble(self, kind: Trouble, seconds: float) -> FakeError:
        status, message, type, raw = SAID[kind]
        waiting = (("retry-after", f"{seconds:g}"),) if kind == "rate" else ()
        return _error(status, message, raw, type, headers=waiting)

    def trouble_inside(self, kind: Trouble, ask: AcceptedRequest, number: int) -> list[Event]:
        choice: JSONObject = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
        error = self.trouble(kind, 1).body["error"]
        return [Event({"id": "gen-standin", "model": ask.model, "error": error, "choices": [choice]})]

    def typed(self, ask: AcceptedRequest) -> JSONObject:
        """Return the fields of OpenAI's types. `objections` checks the whole body against OpenRouter's types."""
        messages = [_without(message, DETAILS, "reasoning") for message in as_list(ask.body.get("messages"))]
        tools = [_without(tool, MARK) for tool in as_list(ask.body.get("tools"))]
        plain = [{**message, "content": _plain(message["content"], message["role"])} for message in messages]
        return {**ask.body, "messages": plain, **({"tools": tools} if tools else {})}

    def objections(self, ask: AcceptedRequest, replies: set[str]) -> Iterable[str | FakeError]:
        yield from foreign_to_types(ask.body)
        messages, tools = as_list(ask.body.get("messages")), as_list(ask.body.get("tools"))
        parts = [part for message in messages for part in _parts(message.get("content"))]
        marks = sum(MARK in each for each in (*parts, *tools, ask.body))
        if marks > MOST_MARKS:
            yield _passed_on(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
        for number, message in enumerate(messages):
            before = _seen(ask.body, messages[:number])
            for index, detail in enumerate(as_list(message.get(DETAILS))):
                if not self._is_sound(ask, detail, before):
                    yield _passed_on(f"messages.{number}.content.{index}: Invalid `signature` in `thinking` block")

    def _is_sound(self, ask: AcceptedRequest, detail: JSONObject, before: bytes) -> bool:
        if detail.get("format") != format_of(ask.model):
            return False
        if detail["type"] == "reasoning.encrypted":
            return read_token_seal(detail["data"]) != b""
        if detail["type"] != "reasoning.text":
            return True
        seals = read_message_seal(detail.get("signature"))
        binds = ask.facts is not None and ask.facts.binds_reasoning
        text = digest(str(detail.get("text")).encode())
        return seals is not None and seals[0] == text and (not binds or seals[1] == before)

    def reply_id(self, encoded: EncodedReply) -> str:
        return encoded.name("gen-", 0, 20)

    def whole(self, encoded: EncodedReply) -> JSONObject:
        reply = super().whole(encoded)
        if encoded.reply.reasoning:
            thought = {"reasoning": encoded.reply.reasoning, DETAILS: _details(encoded)}
            reply["choices"][0]["message"] |= thought
        return {**reply, "usage": _usage(encoded, reply["usage"])}

    def events(self, encoded: EncodedReply) -> Iterator[Event]:
        *text, last = _streamed(encoded)
        for detail in text:
            thought = detail.get("text") or detail.get("summary") or ""
            yield self._chunk(encoded, {"role": "assistant", "content": "", "reasoning": thought, DETAILS: [detail]})
        if last:
            yield self._chunk(encoded, {"role": "assistant", "content": "", "reasoning": None, DETAILS: [last]})
        for event in super().events(encoded):
            data = as_object(event.data)
            yield Event({**data, "usage": _usage(encoded, data["usage"])}) if data.get("usage") else event

    def framed(self, event: Event) -> bytes:
        return PROCESSING + super().framed(event)

    def _frame(self, encoded: EncodedReply, kind: str) -> JSONObject:
        return {**super()._frame(encoded, kind), "provider": "Anthropic"}


def format_of(model: str) -> str:
    return CLAUDE if model.startswith("anthropic/") else GPT


def foreign_to_types(body: JSONObject) -> Iterator[str]:
    """Return the problems that OpenRouter's SDK finds in a body. It ignores unknown fields, so its output is compared
    with its input."""
    try:
        known = types().model_validate(body).model_dump(mode="json", by_alias=True, exclude_unset=True)
    except ValueError as error:
        yield str(error)
    else:
        if encode_canonical(known) != encode_canonical(body):
            names = [name for name in body if encode_canonical(known.get(name)) != encode_canonical(body[name])]
            yield f"Unknown to OpenRouter's types: {', '.join(names)}"


@cache
def types() -> Any:  # Any: a class of a package that takes a second to load
    """Return OpenRouter's types. Import them before any request: OpenAI's SDK fails while httpx is being imported."""
    return import_module("openrouter.components").ChatRequest


def _details(encoded: EncodedReply) -> list[JSONObject]:
    """Return the reasoning of a reply that is not streamed."""
    thought, own = encoded.reply.reasoning, format_of(encoded.model)
    if own == GPT:
        secret = token_seal(thought.encode())
        return [
            {"type": "reasoning.summary", "summary": thought, "format": own, "index": 0},
            {"type": "reasoning.encrypted", "data": secret, "id": encoded.name("rs_"), "format": own, "index": 0},
        ]
    body = encoded.body
    seal = message_seal(digest(thought.encode()), _seen(body, as_list(body.get("messages"))))
    return [{"type": "reasoning.text", "text": thought, "signature": seal, "format": own, "index": 0}]


def _streamed(encoded: EncodedReply) -> list[JSONObject]:
    """Return the reasoning in chunks, all with index 0: text first, then the signature."""
    if not encoded.reply.reasoning:
        return [{}]
    first, *others = _details(encoded)
    text = "text" if "text" in first else "summary"
    texts = [{**_without(first, "signature"), text: piece} for piece in pieces(encoded.reply.reasoning)]
    return [*texts, *(others or [_without(first, text)])]


def _usage(encoded: EncodedReply, usage: JSONObject) -> JSONObject:
    read = {**usage["prompt_tokens_details"], "cache_write_tokens": encoded.tokens.written}
    return {**usage, "prompt_tokens_details": read, "cost": COST, "is_byok": False}


def _seen(body: JSONObject, messages: list[JSONObject]) -> bytes:
    """Return what a signature covers: tools and messages, without parts that may change."""
    tools = sorted(encode_canonical(_without(tool, MARK)) for tool in as_list(body.get("tools")))
    texts = [_without({**each, "content": _parts(each.get("content"), plain=True)}, DETAILS) for each in messages]
    return digest(*tools, *map(encode_canonical, texts))


def _parts(content: JSON, *, plain: bool = False) -> list[JSONObject]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) and content else as_list(content)
    return [_without(part, MARK) for part in parts] if plain else parts


def _plain(content: JSON, role: str) -> JSON:
    """Return content without cache breakpoints, and without images where OpenAI's types allow none."""
    if not isinstance(content, list):
        return content
    shown = _parts(cast(JSON, content), plain=True)
    return [part if role == "user" or part["type"] == "text" else {"type": "text", "text": "?"} for part in shown]


def _without(value: JSONObject, *names: str) -> JSONObject:
    return {name: each for name, each in value.items() if name not in names}


def _passed_on(text: str) -> FakeError:
    """Return the upstream vendor's error."""
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
    return _error(400, "Provider returned error", encode(body).decode(), "invalid_request")


def _error(
    status: int, message: str, raw: str = "", type: str = "", *, headers: tuple[tuple[str, str], ...] = ()
) -> FakeError:
    error: JSONObject = {"message": message, "code": status}
    if raw or type:
        error["metadata"] = {"raw": raw, "provider_name": "Anthropic", "error_type": type}
    return FakeError(status, {"error": error, "user_id": "user_standin"}, headers)


VENDOR = OpenRouter()
