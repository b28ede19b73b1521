"""Mapping of provider errors to the kinds of `ProviderFailed`, by HTTP status, error code and message.

The rules for all providers are here. Rules for one client are in that client's table, and rules for one provider in
`providers.toml`. Specific codes are checked first, then patterns in the message, then generic types, then the status.
Messages precede types because Anthropic reports missing credit as `invalid_request_error`. An unknown error may pass,
so it is `transient`.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from contextc._credential_mask import mask_secrets
from contextc._json import JSON, JSONObject, encode, fix_surrogates
from contextc.errors import FailureKind, ProviderFailed
from contextc.formats.request_settings import object_or_empty
from contextc.providers.registry import Provider, client_of_format, program_tables

STATUSES: dict[int, FailureKind] = {
    400: "invalid",
    401: "auth",
    402: "quota",
    403: "auth",
    404: "invalid",
    405: "invalid",
    406: "invalid",
    408: "transient",
    409: "transient",
    410: "invalid",
    411: "invalid",
    413: "context",
    415: "invalid",
    421: "transient",
    422: "invalid",
    425: "transient",
    429: "rate",
    431: "invalid",
}
NOT_FOUND_FIX = "The model or the URL was not found: check the model's name and the URL."
MAX_MESSAGE_LENGTH, MAX_ID_LENGTH = 1_000, 200
REQUEST_ID_HEADERS = ("request-id", "x-request-id", "x-amzn-requestid")
TAGS = re.compile(r"<(?:style|script)\b[^<>]*+>.*?(?:</(?:style|script)>|\Z)|<[^<>]*+>", re.DOTALL)


class ErrorTable(Struct, frozen=True, kw_only=True):
    """Error rules of one client: specific codes, patterns in the message (`patterns`), and generic types."""

    codes: Mapping[str, FailureKind] = {}
    patterns: tuple[tuple[str, FailureKind], ...] = ()
    types: Mapping[str, FailureKind] = {}


def with_provider_rules(table: ErrorTable, provider: Provider) -> ErrorTable:
    """Return the table, preceded by the rules of this provider."""
    return ErrorTable(
        codes={**table.codes, **provider.refusal_codes},
        patterns=(*provider.refusal_words.items(), *table.patterns),
        types=table.types,
    )


def find_error_table(provider: Provider) -> ErrorTable:
    """Return the rules of the client that sends requests in the provider's format."""
    client = client_of_format(provider.format)
    return import_module(f"contextc.providers.{client}").TABLE if client else ErrorTable()


def event_failure(provider: Provider, event: JSONObject) -> ProviderFailed:
    """Return the `ProviderFailed` for an event that reports the failure of a reply, in the provider's format."""
    if provider.format in program_tables():  # the format of a CLI agent, whose client has the same name
        return import_module(f"contextc.providers.{provider.format}").event_failure(provider.name, event)
    return map_error(provider.name, with_provider_rules(find_error_table(provider), provider), event)


class ErrorResponse(NamedTuple):
    """An error as a provider sent it. `message` is its message."""

    codes: tuple[str, ...]
    message: str
    status: int | None
    retry_after: float | None


def map_error(
    provider: str,
    table: ErrorTable,
    body: JSON,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
) -> ProviderFailed:
    """Return the `ProviderFailed` for a response body, a text, or an event of a stream."""
    refusal = parse_error(body, status, headers or {})
    kind = failure_kind(table, refusal)
    failed = ProviderFailed(
        provider,
        kind,
        mask_secrets(refusal.message, secrets),
        way_out=NOT_FOUND_FIX if kind == "invalid" and refusal.status in (404, 405) else "",
        status=refusal.status,
        code=refusal.codes[0] if refusal.codes else "",
        retry_after=refusal.retry_after,
    )
    failed.request_id = mask_secrets(_request_id(body, headers or {}), secrets)
    return failed


def _request_id(body: JSON, headers: Mapping[str, str]) -> str:
    """Return the provider's id of a refused request; "" if it names none."""
    found = next((headers[name] for name in REQUEST_ID_HEADERS if headers.get(name)), "")
    named = cast(JSONObject, body).get("request_id") if isinstance(body, dict) and not found else found
    return named[:MAX_ID_LENGTH] if isinstance(named, str) else ""


def failure_kind(table: ErrorTable, refusal: ErrorResponse) -> FailureKind:
    for code in refusal.codes:
        if code in table.codes:
            return table.codes[code]
    for pattern, kind in table.patterns:
        if re.search(pattern, refusal.message, re.IGNORECASE):
            return kind
    for code in refusal.codes:
        if code in table.types:
            return table.types[code]
    return STATUSES.get(refusal.status or 0, "transient")


def parse_error(body: JSON, status: int | None, headers: Mapping[str, str]) -> ErrorResponse:
    """Parse the error in an object, an object in a list, an event, or the web page of a proxy."""
    if isinstance(body, list):
        body = cast(list[JSON], body)[0] if body else None
    if not isinstance(body, dict):
        return ErrorResponse((), _without_html(str(body or "")), status, _retry_after(headers, {}))
    whole = cast(JSONObject, body)
    whole = cast(JSONObject, whole["response"]) if isinstance(whole.get("response"), dict) else whole
    choices: JSON = whole.get("choices")  # a gateway puts the upstream error here
    inside = [each.get("error") for each in cast(list[JSONObject], choices)] if isinstance(choices, list) else []
    error: JSON = whole.get("error") or next(filter(None, inside), None) or whole
    inner = cast(JSONObject, error) if isinstance(error, dict) else {"message": error}
    codes = [inner.get(name) for name in ("code", "status", "type")]
    for detail in _details(inner):
        codes.append(detail.get("reason"))
    numbers = [code for code in codes if isinstance(code, int) and 400 <= code < 600]
    message = inner.get("message") or inner.get("detail") or ""
    metadata = cast(JSONObject, inner["metadata"]) if isinstance(inner.get("metadata"), dict) else {}
    codes.append(metadata.get("error_type"))
    if raw := metadata.get("raw"):  # the upstream error behind a gateway
        message = f"{_message_text(message)}: {raw}"
    return ErrorResponse(
        tuple(code for code in codes if isinstance(code, str) and code not in ("error", "response.failed")),
        _without_html(_message_text(message)),
        status or (numbers[0] if numbers else None),
        _retry_after(headers, inner),
    )


def _message_text(message: JSON) -> str:
    """Return an error message as text. Servers that validate requests send a list of problems and their locations."""
    if isinstance(message, list):
        return "; ".join(map(_message_text, cast(list[JSON], message)))
    if not isinstance(message, dict):
        return str(message)
    detail = cast(JSONObject, message)
    text: JSON = next((detail[name] for name in ("msg", "message", "detail") if detail.get(name)), None)
    if text is None:
        return encode(detail).decode()
    steps = cast(list[JSON], detail["loc"]) if isinstance(detail.get("loc"), list) else []
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
    return f"{place}: {_message_text(text)}" if place else _message_text(text)


def _without_html(text: str) -> str:
    text = fix_surrogates(text)
    return (
        " ".join(TAGS.sub(" ", text).split())[:MAX_MESSAGE_LENGTH] if "<" in text else text.strip()[:MAX_MESSAGE_LENGTH]
    )


def _details(error: JSONObject) -> list[JSONObject]:
    details: JSON = error.get("details")
    return [each for each in cast(list[JSON], details) if isinstance(each, dict)] if isinstance(details, list) else []


def _retry_after(headers: Mapping[str, str], error: JSONObject) -> float | None:
    """Return the seconds to wait that the provider requests, in a header or, as Google does, in the error."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (seconds := _seconds(headers.get(name) or "")) is not None:
            return seconds * unit
    for detail in _details(error):
        if (seconds := _seconds(str(detail.get("retryDelay") or "").removesuffix("s"))) is not None:
            return seconds
    return None


def _seconds(text: str) -> float | None:
    """Parse a number of seconds or an HTTP date. Return the seconds from now."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d*)?", text):
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, round(moment.timestamp() - time.time(), 3))


# ── timeouts ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Timeouts: detect which timeout ended a call, and describe it with its limit.
#
# Every HTTP client has its own timeout exceptions. The innermost is often useless ("Cancelled via cancel scope …").
# They are detected by class name, so that no client is imported here. A timeout of the operating system has an `errno`
# and is not one of our limits.


TimeoutKind: TypeAlias = Literal["connect", "pool", "write", "read"]
CONNECT_SECONDS, READ_SECONDS = 10.0, 600.0
"""Timeouts to connect, and between two chunks of a response. Used for SDKs without suitable defaults."""
TIMEOUT_KINDS: dict[str, TimeoutKind] = {
    "ConnectTimeout": "connect",
    "ConnectTimeoutError": "connect",
    "PoolTimeout": "pool",
    "WriteTimeout": "write",
    "ReadTimeout": "read",
    "ReadTimeoutError": "read",
}
TIMEOUT_TEXTS: dict[TimeoutKind, str] = {
    "connect": "no connection within",
    "pool": "no free connection within",
    "write": "no data accepted for",
    "read": "no data received for",
}
URLLIB3_TIMEOUT = re.compile(r"\((?:connect|read) timeout=([\d.]+)\)")
"""Timeout in the message of urllib3."""


def describe_timeout(error: BaseException, limit: float | None, *, use_default: bool) -> str:
    """Return a description of the timeout that an exception reports, or "" if it reports none.

    The limit is that of the exception, else `limit`, else the default if `use_default` is True.
    """
    kind = _kind(error)
    if kind is None:
        return ""
    seconds = _limit_of(error, kind) or limit
    if seconds is None and use_default:
        seconds = READ_SECONDS if kind in ("read", "write") else CONNECT_SECONDS
    return f"{TIMEOUT_TEXTS[kind]} {f'{seconds:g} s' if seconds else 'too long'}"


def exception_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, then its causes."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _kind(error: BaseException) -> TimeoutKind | None:
    for each in exception_chain(error):
        if (kind := TIMEOUT_KINDS.get(type(each).__name__)) is not None:
            return kind
    late = any(isinstance(each, TimeoutError) and each.errno is None for each in exception_chain(error))
    return "read" if late else None


def _limit_of(error: BaseException, kind: TimeoutKind) -> float | None:
    """Return the limit that httpx stores in the request, or that urllib3 states in its message."""
    for each in exception_chain(error):
        limits = object_or_empty(object_or_empty(getattr(_request(each), "extensions", None)).get("timeout"))
        if isinstance(limits.get(kind), int | float):
            return limits[kind]
        if figure := URLLIB3_TIMEOUT.search(str(each)):
            return float(figure[1])
    return None


def _request(error: BaseException) -> JSON:
    try:
        return cast(JSON, getattr(error, "request", None))
    except RuntimeError:  # an httpx exception without a request
        return None
