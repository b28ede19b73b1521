"""Recorded requests with the providers' token counts, and figures fitted to them with one model left out.

What is fitted are the frames (of a request, a message, a call, a result, the tools) and, for Claude, what its words are
against the estimate. Relative errors are minimised, large ones counting less the larger they are.
"""

import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.errors import ContextcError
from contextc.formats import format_names
from contextc.formats.base import Request
from contextc.formats.registry import formatter
from contextc.messages import Media, Message, ProviderBlock, ToolResult
from contextc.models import model as find_model
from contextc.models.tokens import OverheadProfile, TokenCounter, find_profile, get_counter
from contextc.tools.definitions import NativeTool, Tool
from tests.formats.traffic import Exchange, accepted, events

VENDORS = {
    "OpenAI": ("o200k_base", ("openai_chat", "openai_responses"), ("openai",), r"gpt-|o\d"),
    "Anthropic": ("claude", ("anthropic", "openai_chat"), ("anthropic", "openrouter", "other"), r"claude-"),
    "Gemini": ("gemini", ("gemini",), ("google", "other"), r"gemini-"),
}
"""The tokenizer of a vendor, over which interfaces and from whom its models were asked, and what they are called."""
HELD_ELSEWHERE = ("previous_response_id", "conversation", "context_management", "mcp_servers", "web_search_options")


PRIOR = 0.002
"""The weight of what was known before, as much as that of a message in a request of 500 tokens."""


class Frames(NamedTuple):
    """Counts of the frames that a vendor puts around the text of a request."""

    request: int
    messages: int
    calls: int
    results: int
    tools: int
    parameters: int
    choice: int
    thinking: int
    schema: int


PUBLISHED = Frames(request=3, messages=4, calls=0, results=4, tools=0, parameters=0, choice=0, thinking=0, schema=0)
"""Where a fit begins: what OpenAI has published of its frames. Of its tools, and by the others, nothing is."""


NAMES = ("tools", "thinking", "choice", "schema", "parameters", "calls", "results", "messages", "request")
ORDER = tuple(1 + Frames._fields.index(name) for name in NAMES)
"""What only some requests have comes first: the others have told what is common to all."""


class Sample(NamedTuple):
    """One request, and what its provider counted."""

    case: str
    model: str
    family: str
    real: int
    counted: int
    """With the figures in the code."""
    words: float
    frames: Frames
    request: Request
    reply: Message
    counter: TokenCounter


def samples(vendor: str) -> list[Sample]:
    """The text-only requests of a vendor, each once."""
    tokenizer, apis, vendors, names = VENDORS[vendor]
    found: dict[str, Sample] = {}
    for api in apis:
        for exchange in accepted(api):
            if exchange.vendor in vendors and not any(name in exchange.request for name in HELD_ELSEWHERE):
                sample = _sample(exchange, api, tokenizer)
                if sample is not None and re.match(names, sample.model):
                    found[sample.case] = sample
    return list(found.values())


def _sample(exchange: Exchange, api: str, tokenizer: str) -> Sample | None:
    speaks = formatter(api)
    try:
        request, reply = speaks.decode_request(exchange.request), _reply(api, exchange.reply)
    except ContextcError:
        return None
    usage = reply.usage
    if usage is None or not usage.input or not _text_only(request, exchange.request):
        return None
    model = _model(exchange)
    provider = "vertex" if (api, exchange.vendor) == ("gemini", "other") else speaks.provider
    counts = get_counter(tokenizer, provider=provider, model=model)
    figures = find_profile(tokenizer, provider, model)
    text, frames = _taken_apart(request, exchange.request, TokenCounter(tokenizer, provider, _bare(figures)), figures)
    return Sample(
        exchange.case,
        re.sub(r"^\w+/|-\d{8}$", "", model).replace(".", "-"),
        figures.name,
        usage.input,
        whole(request, exchange.request, counts),
        text,
        frames,
        request,
        reply,
        counts,
    )


def whole(request: Request, body: JSONObject, counts: TokenCounter) -> int:
    """Everything a request costs. Reasoning before the last input of a person costs nothing, where that is the rule."""
    texts = [place for place, message in enumerate(request.messages) if message.role == "user"]
    earlier = request.messages[: texts[-1]] if texts and counts.keeps_reasoning == "turn" else ()
    tools: JSON = body.get("tools") or cast(JSONObject, body.get("toolConfig") or {}).get("tools") or []
    return (
        counts.overhead
        + (counts.count_system(request.system.text) if request.system else 0)
        + sum(counts.count_message(message) for message in request.messages)
        + counts.count_tools(cast(list[JSONObject], tools))
        + counts.count_settings(body, has_tools=bool(tools))
        - sum(counts.count_reasoning(message) for message in earlier)
    )


def _bare(figures: OverheadProfile) -> OverheadProfile:
    return replace(
        figures,
        request=0,
        message=0,
        system=0,
        reply=0,
        call=0,
        parallel=0,
        result=0,
        tools=0,
        tool=0,
        tool_with_parameters=0,
        choice=0,
        thinking=0,
        schema=0,
    )


def _taken_apart(
    request: Request, body: JSONObject, bare: TokenCounter, figures: OverheadProfile
) -> tuple[float, Frames]:
    """Return the text of a request, and the counts of each frame."""
    parts = [part for message in request.messages for part in message.parts]
    calls = sum(len(message.tool_calls) for message in request.messages)
    results = sum(isinstance(part, ToolResult) for part in parts)
    replies = sum(message.role != "tool" for message in request.messages) + (request.system is not None)
    tools = len(request.tools) if figures.tool_form != "names" else 0
    return whole(request, body, bare), Frames(
        request=1,
        messages=replies,
        calls=calls,
        results=results,
        tools=tools if figures.tool_form == "properties" else min(tools, 1),
        parameters=_with_parameters(request) if figures.tool_form == "properties" else 0,
        choice=_has(figures, body, "choice"),
        thinking=_has(figures, body, "thinking"),
        schema=_has(figures, body, "schema"),
    )


def _with_parameters(request: Request) -> int:
    return sum(bool(tool.parameters.get("properties")) for tool in request.tools if isinstance(tool, Tool))


def _has(figures: OverheadProfile, body: JSONObject, name: Literal["choice", "thinking", "schema"]) -> int:
    """Whether a setting that costs something is on."""
    marked = replace(_bare(figures), **{name: 100_000})
    return int(TokenCounter("", "", marked).count_settings(body) >= 100_000)


def _text_only(request: Request, body: JSONObject) -> bool:
    if any(isinstance(tool, NativeTool) for tool in request.tools):
        return False
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Media | ProviderBlock):
                return False
            if isinstance(part, ToolResult) and not isinstance(part.content, str):
                return False
    written = json.dumps(body)
    return not any(name in written for name in ("inlineData", "inline_data", "fileData", "file_data"))


def _reply(api: str, reply: JSON) -> Message:
    if isinstance(reply, str):
        return formatter(api).decode_stream(events(reply))
    if isinstance(reply, list):
        return formatter(api).decode_stream(cast(list[JSON], reply))
    return formatter(api).decode_reply(reply)


def _model(exchange: Exchange) -> str:
    if exchange.request.get("model"):
        return str(exchange.request["model"])
    stored = events(exchange.reply) if isinstance(exchange.reply, str) else exchange.reply
    chunks = cast(list[JSONObject], stored if isinstance(stored, list) else [stored])
    return str(chunks[0].get("modelVersion", ""))


def left_out(found: Sequence[Sample], *, words: bool) -> list[tuple[Sample, float]]:
    """Each request with its error, counted with figures fitted to the other models alone.

    First to those of the same generation (to the whole vendor where it has no other), then to those of its family.
    """
    errors: list[tuple[Sample, float]] = []
    for model, family in sorted({(sample.model, sample.family) for sample in found}):
        others = [sample for sample in found if sample.model != model]
        kin = [sample for sample in others if generation(sample.family) == generation(family)] or others
        own = [sample for sample in kin if sample.family == family]
        figures = fitted(own, words=words, prior=fitted(kin, words=words))
        errors += [
            (sample, abs(_predicted(sample, figures) / sample.real - 1))
            for sample in found
            if (sample.model, sample.family) == (model, family)
        ]
    return errors


def halved(found: Sequence[Sample], *, words: bool) -> list[tuple[Sample, float]]:
    """Each request with its error, counted with figures fitted to the half of the tests that it does not belong to."""
    errors: list[tuple[Sample, float]] = []
    for half in (0, 1):
        others = [sample for sample in found if _half(sample) != half]
        for family in sorted({sample.family for sample in found}):
            kin = [sample for sample in others if generation(sample.family) == generation(family)] or others
            own = [sample for sample in kin if sample.family == family]
            figures = fitted(own, words=words, prior=fitted(kin, words=words))
            errors += [
                (sample, abs(_predicted(sample, figures) / sample.real - 1))
                for sample in found
                if _half(sample) == half and sample.family == family
            ]
    return errors


def _half(sample: Sample) -> int:
    return sha256(sample.case.partition("#")[0].encode()).digest()[0] % 2


def generation(family: str) -> str:
    return family.replace("-mini", "").removesuffix("-responses")


# ── all recorded requests ─────────────────────────────────────────────────────────────────────────────────────────────


class Count(NamedTuple):
    """A recorded request of any kind: what its provider counted, and our count."""

    case: str
    vendor: str
    model: str
    real: int
    counted: int
    unknown: str
    """Why its count does not follow from the request; empty if it does."""

    @property
    def is_near(self) -> bool:
        return abs(self.counted - self.real) <= max(40, self.real / 10)


SERVICES = {"bedrock": "Bedrock", "gemini": "Gemini", "anthropic": "Anthropic", "openai_responses": "OpenAI"}
CounterSource = Callable[[str, str, str], TokenCounter]
"""Returns a counter for a tokenizer, a provider and a model."""


def find_counter(tokenizer: str, provider: str, model: str) -> TokenCounter:
    return get_counter(tokenizer, provider=provider, model=model)


def all_counts(find: CounterSource = find_counter) -> list[Count]:
    """Every recorded request for which its provider reported input tokens, also with media and its own tools."""
    found: dict[str, Count] = {}
    for api in format_names():
        for exchange in accepted(api):
            speaks = formatter(api)
            try:
                request, reply = speaks.decode_request(exchange.request), _reply(api, exchange.reply)
            except ContextcError:
                continue
            if reply.usage is None or not reply.usage.input:
                continue
            name = _named_model(exchange, api)
            provider = "vertex" if (api, exchange.vendor) == ("gemini", "other") else speaks.provider
            counter = find(_tokenizer(name), provider, name)
            vendor = "OpenAI" if exchange.vendor == "openai" else SERVICES.get(api, exchange.vendor)
            found[exchange.case] = Count(
                exchange.case,
                vendor,
                name,
                reply.usage.input,
                whole(request, exchange.request, counter),
                _why_unknown(request, exchange.request, reply),
            )
    return list(found.values())


def _named_model(exchange: Exchange, api: str) -> str:
    """The model of a request. Bedrock has it in the address, which is not recorded, but some tests are named for it."""
    if api != "bedrock":
        return _model(exchange)
    if "claude" in exchange.case or "anthropic" in exchange.case:
        return "claude-sonnet-4-5"
    return "amazon.nova-pro-v1:0" if "nova" in exchange.case else ""


def _tokenizer(name: str) -> str:
    try:
        return find_model(name).tokenizer
    except ContextcError:
        return "unknown"


def _why_unknown(request: Request, body: JSONObject, reply: Message) -> str:
    """Return why the provider's count cannot be known from a request: what it holds, did, or had to fetch."""
    if any(name in body for name in HELD_ELSEWHERE) or "cachedContent" in body:
        return "held by the provider"
    if any(isinstance(tool, NativeTool) for tool in request.tools) and any(
        isinstance(part, ProviderBlock) for part in reply.parts
    ):
        return "server tools ran"
    if any(_is_link(part) for message in request.messages for part in message.parts):
        return "linked file"
    return ""


def _is_link(part: object) -> bool:
    if isinstance(part, ToolResult) and isinstance(part.content, tuple):
        return any(_is_link(each) for each in part.content)
    return isinstance(part, Media) and part.data is None


def fitted(found: Sequence[Sample], *, words: bool, prior: Sequence[float] = ()) -> list[float]:
    """Return the values of a text token and of each frame that minimize the sum of relative errors, one after another.

    For one figure the best value is a weighted median over the requests; `prior` has a weight as well.
    """
    figures = list(prior) or [1.0, *PUBLISHED]
    held = list(figures)
    for _ in range(8):
        for place in (*ORDER, 0) if words else ORDER:
            votes = [(held[place], PRIOR)]
            for sample in found:
                values = (sample.words, *sample.frames)
                if values[place]:
                    missing = sample.real - _predicted(sample, figures) + values[place] * figures[place]
                    votes.append((missing / values[place], values[place] / sample.real))
            if votes:
                figures[place] = max(_weighted_median(votes), 0.0)
    return figures


def _weighted_median(votes: list[tuple[float, float]]) -> float:
    half, seen = sum(weight for _, weight in votes) / 2, 0.0
    for value, weight in sorted(votes):
        seen += weight
        if seen >= half:
            return value
    return 0.0


def _predicted(sample: Sample, figures: Sequence[float]) -> float:
    return sum(value * each for value, each in zip([sample.words, *sample.frames], figures, strict=True))
