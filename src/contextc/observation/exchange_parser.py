"""A request and its reply as other software exchanged them, parsed before anything is stored."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from threading import Lock
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import (
    JSON,
    JSONObject,
    as_object,
    as_objects,
    decode,
    decode_json,
    encode,
    find_json_problem,
    fix_surrogates,
    fix_surrogates_in_json,
)
from contextc._sequence_comparison import count_common_prefix
from contextc.compiler.past_requests import (
    EncodedElement,
    comparable_bytes,
    head_without_marks,
    split_at_conversation,
    strip_marks,
)
from contextc.compiler.prompt_cache import NO_DIAGNOSIS, CacheDiagnosis
from contextc.errors import ContextcError, InvalidInput, UnknownModel
from contextc.formats import formatter
from contextc.formats.base import Formatter, Request, as_json
from contextc.linting.request_reading import coerce_request
from contextc.messages import Message, Text, Usage, validate_message
from contextc.observation.chain_writer import has_generated_ids
from contextc.observation.client_ids import ClientIds, host_and_path, read_ids
from contextc.observation.reply_decoding import (
    DECODE_ERRORS,
    DecodedReply,
    FormatDetector,
    decode_logged_reply,
    read_cache_diagnosis,
)
from contextc.providers import Provider, provider
from contextc.providers.registry import provider_formats

Status: TypeAlias = Literal["ok", "error", "unfinished", "unanswered", "unrecorded"]
UNKNOWN_MODEL, UNKNOWN_WINDOW = "unknown", 200_000
MODEL_FIELDS = ("modelVersion", "model")
MODEL_IN_TEXT = re.compile(r'"modelVersion"\s*:\s*"([^"]+)"')
MODEL_IN_URL = re.compile(r"/(?:models?|deployments)/([^/:?]+)")
MAX_RECENT, MAX_RECENT_BYTES = 32, 64 << 20
MOVING_MARKS = 8
SHORT_TAIL = 16
"""Elements at the end of a request whose bytes change with the next one, because cache breakpoints move."""
ERROR_LENGTH, ID_LENGTH = 2_000, 200
ERROR_FIELDS = {"message", "Message", "__type", "type", "code", "object", "request_id"}
FIRST_ERROR_STATUS = 400
RESPONSE_ID_FORMATS = ("openai_responses",)
TOKEN_COUNT_FIELDS = ({"input_tokens"}, {"totalTokens"}, {"inputTokens"})
TOKEN_COUNT_DETAILS = {"object", "totalBillableCharacters", "promptTokensDetails", "context_management"}


class ParsedElements(NamedTuple):
    """The elements of a conversation: as sent; without their cache breakpoints, which `marks` has by index; the hash of
    the comparable form of each; the hash of all up to it.
    """

    raw: list[bytes]
    bases: list[bytes]
    marks: dict[int, tuple[tuple[int, str], ...]]
    hashes: list[bytes]
    keys: list[bytes]


class ObservedReply(Struct, frozen=True, kw_only=True):
    """A reply: its answers, its usage, and how it ended. `response_id` is the provider's id of it. If it
    `has_generated_ids`, its calls came without ids. `diagnosis` is what it says about a cache miss. `error_type` and
    `request_id` are those that an error reply names.
    """

    status: Status = "unanswered"
    messages: tuple[Message, ...] = ()
    usage: Usage | None = None
    error: str = ""
    error_type: str = ""
    request_id: str = ""
    response_id: str = ""
    is_token_count: bool = False
    has_generated_ids: bool = False
    diagnosis: CacheDiagnosis = NO_DIAGNOSIS


class ObservedInput(Struct, frozen=True, kw_only=True):
    """A request as it was sent. `parts` is empty if the body could not be split; it is then stored whole."""

    body: bytes
    json: JSONObject
    """The head as JSON: everything but the conversation."""
    form: Formatter
    provider: Provider
    provider_name: str
    model: str
    ids: ClientIds
    head: bytes
    gaps: tuple[str, ...]
    parsed: ParsedElements
    is_split: bool
    is_plain: bool = False
    """True if the conversation is one text or object in place of a list."""
    previous_response: str = ""
    unreadable: str = ""
    """The reason why the body could not be split."""

    @property
    def is_partial(self) -> bool:
        """True if the provider has the rest of the conversation."""
        return bool(self.previous_response) or (
            self.form.name in RESPONSE_ID_FORMATS and self.json.get("conversation") is not None
        )


def parse_input(
    request: object, *, format: str | None, headers: Mapping[str, str], url: str, model: str, provider_name: str,
    reply: object = None, elements: "ElementCache | None" = None,
) -> ObservedInput:  # fmt: skip
    """Parse a request: bytes or text as it was sent, or its JSON. `elements` are those that were parsed before."""
    body = as_bytes(request)
    form = formatter(format or _detect(_decode_object(body), url, reply))
    parts = split_at_conversation(body, form.messages_key)
    found = _decode_object(parts.head if parts else body)
    named = model or _text(found.get("model") or found.get("modelId")) or _model_in_url(url)
    spec = named or _model_in_reply(reply) or UNKNOWN_MODEL
    who = provider_name or _provider_of(form.name, url)
    return ObservedInput(
        body=body,
        json=found,
        form=form,
        provider=resolve_provider(who, spec, form.name),
        provider_name=who,
        model=spec,
        ids=read_ids(headers, found, url),
        head=parts.head if parts else b"",
        gaps=parts.gaps if parts else (),
        parsed=parse_elements(parts.elements if parts else [], elements),
        is_split=parts is not None,
        is_plain=parts is not None and not isinstance(found.get(form.messages_key), list),
        previous_response=_text(found.get("previous_response_id")),
        unreadable="" if parts else _why_unreadable(body, form.messages_key),
    )


def _why_unreadable(body: bytes, messages_key: str) -> str:
    try:
        value: JSON = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"The body is not JSON: {error}"
    return f"The body has no field {messages_key!r}." if isinstance(value, dict) else "The body is not a JSON object."


_recent: list[ParsedElements] = []
_recent_lock = Lock()
"""Conversations that were parsed last. The next request of each has the same beginning, which is not parsed again."""


def _decode_object(body: bytes) -> JSONObject:
    try:
        value: JSON = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast(JSONObject, value) if isinstance(value, dict) else {}


class ElementCache:
    """Parsed elements, for requests that repeat those of many others. Limited in bytes."""

    def __init__(self) -> None:
        self._elements: dict[bytes, tuple[EncodedElement, bytes]] = {}
        self._requests: dict[tuple[bytes, ...], ParsedElements] = {}
        self._bytes = 0

    def parse(self, raw: bytes) -> tuple[EncodedElement, bytes]:
        """Return an element without its cache breakpoints, and its hash."""
        if (found := self._elements.get(raw)) is None:
            if self._bytes > MAX_RECENT_BYTES:
                self._elements, self._requests, self._bytes = {}, {}, 0
            found = self._elements[raw] = _parse_element(raw)
            self._bytes += len(raw)
        return found

    def find(self, raw: list[bytes]) -> tuple[ParsedElements | None, int]:
        """Return a request with the same first elements, and the number of common ones."""
        known = self._requests.get(tuple(raw[:2])) or self._requests.get(tuple(raw[:1]))
        return (known, count_common_prefix(known.raw, raw)) if known is not None else (None, 0)

    def keep(self, parsed: ParsedElements) -> None:
        for size in (1, 2):
            self._requests[tuple(parsed.raw[:size])] = parsed


def _parse_element(raw: bytes) -> tuple[EncodedElement, bytes]:
    element = strip_marks(raw)
    return element, blake2b(comparable_bytes(element.base), digest_size=16).digest()


def parse_elements(raw: list[bytes], cache: ElementCache | None = None) -> ParsedElements:
    """Parse the elements of a conversation. Only what no recent request began with, or no other one of the cache has,
    is parsed.
    """
    known, same = _find_recent(raw) if cache is None else cache.find(raw)
    parse = _parse_element if cache is None else cache.parse
    parsed = ParsedElements(raw, [], {}, [], [])
    if known is not None:
        marks = {index: each for index, each in known.marks.items() if index < same}
        parsed = ParsedElements(raw, known.bases[:same], marks, known.hashes[:same], known.keys[:same])
    for index, each in enumerate(raw[same:], same):
        element, digest = parse(each)
        before = parsed.keys[-1] if parsed.keys else b""
        parsed.bases.append(element.base)
        parsed.hashes.append(digest)
        parsed.keys.append(blake2b(before + digest, digest_size=16).digest())
        if element.marks:
            parsed.marks[index] = element.marks
    if cache is not None:
        cache.keep(parsed)
        return parsed
    with _recent_lock:
        _recent.append(parsed)
        while len(_recent) > MAX_RECENT or (len(_recent) > 1 and sum(map(_count_bytes, _recent)) > MAX_RECENT_BYTES):
            del _recent[0]
    return parsed


def _count_bytes(parsed: ParsedElements) -> int:
    return sum(map(len, parsed.raw))


def _find_recent(raw: list[bytes]) -> tuple[ParsedElements | None, int]:
    """Return the recent conversation with the longest common beginning, and its length. If this one continues it, it is
    no longer kept.
    """
    found, same = None, 0
    with _recent_lock:
        for known in reversed(_recent):
            common = count_common_prefix(known.raw, raw)
            if common > same:
                found, same = known, common
            if common and common + MOVING_MARKS >= len(known.raw):
                break
        if found is not None and same + MOVING_MARKS >= len(found.raw):
            _recent[:] = [each for each in _recent if each is not found]
    return found, same


@lru_cache(64)
def resolve_provider(name: str, model: str, format: str) -> Provider:
    """Return the provider of an observed request. An unknown model gets a common window."""
    try:
        return provider(f"{name}:{model}", format=format)
    except (UnknownModel, ContextcError):
        return provider(f"{name}:{model}", format=format, window=UNKNOWN_WINDOW, output=8_192)


def decode_elements(form: Formatter, elements: Sequence[bytes], *, is_plain: bool = False) -> tuple[Message, ...]:
    """Return the messages of some elements of a conversation. Raise an error of contextc if they cannot be decoded."""
    values = [decode_json(each) for each in elements]
    conversation: JSON = values[0] if is_plain and len(values) == 1 else values
    request = _decode(form, {form.messages_key: conversation})
    return (*((request.system,) if request.system is not None else ()), *request.messages)


class ElementDecoder:
    """Decodes the last elements of one request. What was decoded last is kept: it is needed twice."""

    def __init__(self, given: ObservedInput) -> None:
        self._given = given
        self._last: tuple[int, tuple[Message, ...]] | None = None

    def decode_from(self, start: int) -> tuple[Message, ...]:
        """Return the messages from an element on. Raise an error of contextc if they cannot be decoded."""
        if self._last is None or self._last[0] != start:
            tail = self._given.parsed.bases[start:]
            self._last = start, decode_elements(self._given.form, tail, is_plain=self._given.is_plain)
        return self._last[1]

    def decode_first(self, start: int, end: int) -> Message | None:
        """Return the first message of some elements; None if there is none."""
        if len(self._given.parsed.bases) - start <= SHORT_TAIL:
            try:
                return next(iter(self.decode_from(start)), None)
            except (ContextcError, *DECODE_ERRORS):
                pass  # of another element, perhaps
        return next(iter(decode_elements(self._given.form, self._given.parsed.bases[start:end])), None)


def is_blank(message: Message) -> bool:
    """Return True if a message has no content, so that it cannot be stored."""
    return all(isinstance(part, Text) and not part.text for part in message.parts)


def decode_head(form: Formatter, head: bytes) -> Request | None:
    """Return system prompt, tools and settings of a head, without cache breakpoints; None if it cannot be decoded."""
    try:
        return _decode(form, head_without_marks(cast(JSONObject, decode(head)), form.messages_key))
    except (ContextcError, *DECODE_ERRORS, msgspec.DecodeError):
        return None


def _decode(form: Formatter, body: JSONObject) -> Request:
    return form.decode_request(coerce_request(form, body).body)


def parse_reply(
    form: Formatter, reply: object, status: int | None, time: int, *, decoded: DecodedReply | None = None
) -> ObservedReply:
    """Parse a reply: whole or as events, as bytes, text or JSON; None if there was none."""
    if reply is None:
        return ObservedReply(status="error" if (status or 0) >= FIRST_ERROR_STATUS else "unanswered")
    value = reply_value(reply)
    if (special := parse_special_reply(value, status or 0)) is not None:
        return special
    try:
        messages = [replace(each, time=time) for each in (decoded or decode_logged_reply(form, value)).messages]
        for message in messages:
            validate_message(message)
    except (ContextcError, *DECODE_ERRORS) as problem:
        return ObservedReply(status="error", error=f"The reply could not be decoded ({problem})"[:ERROR_LENGTH])
    first = messages[0] if messages else None
    is_finished = first is not None and first.finish is not None and first.status == "sent"
    return ObservedReply(
        status="ok" if is_finished else "unfinished",
        messages=tuple([each for each in messages if each.parts]),
        usage=first.usage if first is not None else None,
        response_id=_response_id(value, first),
        has_generated_ids=any(each.tool_calls for each in messages) and has_generated_ids(messages, encode(value)),
        diagnosis=read_cache_diagnosis(value),
    )


def parse_special_reply(value: JSON, status: int) -> ObservedReply | None:
    """Return an error or a count of tokens; None if this is neither."""
    error = _error_text(value)
    if status >= FIRST_ERROR_STATUS or error:
        return ObservedReply(
            status="error",
            error=(error or _as_text(value))[:ERROR_LENGTH],
            error_type=_error_type(as_object(value))[:ID_LENGTH],
            request_id=_text(as_object(value).get("request_id"))[:ID_LENGTH],
        )
    fields = as_object(value).keys()
    if any(counts <= fields <= counts | TOKEN_COUNT_DETAILS for counts in TOKEN_COUNT_FIELDS):
        return ObservedReply(status="ok", is_token_count=True)
    return None


def reply_value(reply: object) -> JSON:
    """Return a reply that was passed as bytes, text, JSON or events: its JSON, or its text if it is none."""
    if isinstance(reply, bytes | bytearray):
        reply = bytes(reply).decode("utf-8", "replace")
    if isinstance(reply, str):
        try:
            return decode(reply.encode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return reply
    if isinstance(reply, Sequence):
        given = cast(Sequence[object], reply)
        return [_event_value(each) for each in given]
    try:
        value = as_json(reply)
    except InvalidInput:
        raise InvalidInput(
            "reply: expected bytes, text, a dict or a list of events",
            got=type(reply).__name__,
            fix="Pass it as it arrived.",
        ) from None
    return _encodable(value, "reply")


def _error_text(value: JSON) -> str:
    """Return the text of an error reply; "" if this is none."""
    fields = as_object(value)
    error: JSON = fields.get("error")
    if error:
        return _as_text(as_object(error).get("message") or error)
    is_error = fields.get("type") == "error" or fields.keys() <= ERROR_FIELDS
    return _as_text(fields.get("message") or fields.get("Message") or "") if is_error else ""


def _error_type(fields: JSONObject) -> str:
    """Return the type of an error reply, and its status or code if those are words."""
    error = as_object(fields.get("error")) or fields
    names = [_text(error.get(name)) for name in ("type", "__type", "status", "code")]
    return ", ".join(dict.fromkeys([each for each in names if each and each != "error"]))


def _response_id(value: JSON, message: Message | None) -> str:
    found: JSON = as_object(value).get("id")
    if isinstance(found, str):
        return found
    extra = (message.extra or {}).values() if message is not None else ()
    return next((facts["id"] for facts in extra if isinstance(facts.get("id"), str)), "")


def as_bytes(request: object) -> bytes:
    """Return the body of a request that was passed as bytes, text or JSON."""
    if isinstance(request, bytes | bytearray):
        return bytes(request)
    if isinstance(request, str):
        return fix_surrogates(request).encode()
    if isinstance(request, Mapping):
        return encode(_encodable(dict(cast(Mapping[str, JSON], request)), "request"))
    raise InvalidInput(
        "request: expected bytes, text or a dict", got=type(request).__name__, fix="Pass the body as it was sent."
    )


def _event_value(event: object) -> JSON:
    if isinstance(event, bytes):
        return event.decode("utf-8", "replace")
    return _encodable(cast(JSON, event), "reply") if isinstance(event, dict | str) else event


def _encodable(value: JSON, name: str) -> JSON:
    """Return a value that JSON and the store can hold: lone surrogates are replaced. Raise InvalidInput otherwise."""
    if (found := find_json_problem(value, name)) is not None:
        raise InvalidInput(f"{found[0]}: {found[1].rstrip('.')}")
    try:
        encode(value)
    except UnicodeEncodeError:
        return fix_surrogates_in_json(value)
    return value


_detector = FormatDetector()


def _detect(body: JSONObject, url: str, reply: object) -> str:
    value = reply_value(reply) if reply is not None else None
    return _detector.format_of(body, value, url)


def _provider_of(format: str, url: str) -> str:
    """Return the provider of a format, preferably the one whose name is in the address."""
    host = host_and_path(url)[0]
    formats = provider_formats()
    names = sorted(formats, key=lambda name: name.partition("-")[0] not in host)
    return next((name for name in names if formats[name] == format), format)


def _model_in_reply(reply: object) -> str:
    """Return the model that a reply names, where the request has it in its URL."""
    value = reply_value(reply) if reply is not None else None
    if isinstance(value, str):
        found = MODEL_IN_TEXT.search(value)
        return found[1] if found else ""
    events = as_objects(value) if isinstance(value, list) else [as_object(value)]
    return next((_text(each.get(name)) for each in events for name in MODEL_FIELDS if _text(each.get(name))), "")


def _model_in_url(url: str) -> str:
    found = MODEL_IN_URL.search(url)
    return found[1] if found else ""


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else ""


def _as_text(value: JSON) -> str:
    """Return a text as it is, and anything else as JSON."""
    if isinstance(value, str):
        return value
    problem = find_json_problem(value)
    return encode(value).decode() if problem is None else f"not JSON ({' '.join(problem).strip()})"
