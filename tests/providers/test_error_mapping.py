"""Mapping of provider errors: their own messages, and the table of each client."""

from asyncio import CancelledError
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import botocore.exceptions  # pyright: ignore[reportMissingTypeStubs]
import httpx
import pytest
import urllib3

from contextc._credential_mask import mask_secrets
from contextc._json import JSON, JSONObject
from contextc.errors import DEFAULT_FIXES, FailureKind, ProviderFailed
from contextc.providers import anthropic, gemini, openai
from contextc.providers.error_mapping import NOT_FOUND_FIX, ErrorTable, describe_timeout, map_error
from contextc.providers.http_client import error_reason


def error_body(message: str, **fields: JSON) -> JSONObject:
    return {"error": {"message": message, **fields}}


def google(status: str, message: str, *details: JSONObject) -> JSONObject:
    return error_body(message, status=status, details=list(details))


ANTHROPIC: list[tuple[int | None, JSON, FailureKind]] = [
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "transient"),
    (None, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "transient"),
    (None, {"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}, "transient"),
    (None, {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}}, "rate"),
    (429, error_body("This request would exceed your organization's rate limit", type="rate_limit_error"), "rate"),
    (401, error_body("invalid x-api-key", type="authentication_error"), "auth"),
    (403, error_body("Your key may not use this model", type="permission_error"), "auth"),
    (400, error_body("prompt is too long: 208310 tokens > 200000 maximum", type="invalid_request_error"), "context"),
    (
        400,
        error_body("input length and `max_tokens` exceed context limit: 199000 + 9000", type="invalid_request_error"),
        "context",
    ),
    (413, error_body("Request exceeds the maximum size", type="request_too_large"), "context"),
    (400, error_body("Your credit balance is too low to access the API.", type="invalid_request_error"), "quota"),
    (402, error_body("Payment required", type="billing_error"), "quota"),
    (400, error_body("messages: text content blocks must be non-empty", type="invalid_request_error"), "invalid"),
    (404, error_body("model: claude-nothing", type="not_found_error"), "invalid"),
    (500, "<html><h1>Bad</h1> gateway</html>", "transient"),
]
OPENAI: list[tuple[int | None, JSON, FailureKind]] = [
    (429, error_body("You exceeded your current quota", type="insufficient_quota", code="insufficient_quota"), "quota"),
    (429, error_body("Rate limit reached for gpt-6", type="tokens", code="rate_limit_exceeded"), "rate"),
    (
        429,
        error_body("Request too large for gpt-6 on tokens per min (TPM): Limit 30000, Requested 43000.", type="tokens"),
        "context",
    ),
    (401, error_body("Incorrect API key provided: sk-x", type="invalid_request_error", code="invalid_api_key"), "auth"),
    (
        400,
        error_body("Your input exceeds the context window of this model.", code="context_length_exceeded"),
        "context",
    ),
    (400, error_body("This model's maximum context length is 8192 tokens, however", type="BadRequestError"), "context"),
    (400, error_body("the request exceeds the available context size", type="exceed_context_size_error"), "context"),
    (400, error_body("No tool output found for function call call_1.", type="invalid_request_error"), "invalid"),
    (400, error_body("Previous response not found", code="previous_response_not_found"), "session"),
    (404, error_body("Conversation with id 'conv_1' not found.", type="invalid_request_error", code=None), "session"),
    (404, error_body("Prompt with id 'pmpt_1' not found.", type="invalid_request_error", code=None), "invalid"),
    (
        400,
        error_body("Another process is currently operating on this conversation.", code="conversation_locked"),
        "transient",
    ),
    (402, error_body("Insufficient credits", code=402), "quota"),
    (503, error_body("The server is overloaded", code="server_is_overloaded"), "transient"),
    (None, {"type": "error", "code": "server_error", "message": "Oops"}, "transient"),
    (
        None,
        {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "Slow"}}},
        "rate",
    ),
    (None, {"error": {"code": 502, "message": "Upstream"}, "choices": []}, "transient"),
    (None, {"error": {"code": 429, "message": "Slow"}}, "rate"),
    (422, {"detail": "max_tokens must be positive"}, "invalid"),
    (400, {"error": "model is loading"}, "invalid"),
]
GEMINI: list[tuple[int | None, JSON, FailureKind]] = [
    (400, google("INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), "auth"),
    (
        400,
        google("INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed"),
        "context",
    ),
    (400, google("INVALID_ARGUMENT", "Please ensure that function call turn comes immediately after"), "invalid"),
    (403, google("PERMISSION_DENIED", "Denied"), "auth"),
    (429, google("RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."), "rate"),
    (429, google("RESOURCE_EXHAUSTED", "Quota exceeded: GenerateRequestsPerDayPerProject"), "quota"),
    (503, google("UNAVAILABLE", "The model is overloaded."), "transient"),
    (None, google("UNAVAILABLE", "The model is overloaded.", {"@type": "x"}), "transient"),
    (500, [google("INTERNAL", "An internal error has occurred.")], "transient"),
]
CASES = [
    *[(anthropic.TABLE, *case) for case in ANTHROPIC],
    *[(openai.TABLE, *case) for case in OPENAI],
    *[(gemini.TABLE, *case) for case in GEMINI],
]


@pytest.mark.parametrize(("table", "status", "body", "kind"), CASES, ids=lambda each: str(each)[:48])
def test_a_refusal_is_one_of_eight_kinds(table: ErrorTable, status: int | None, body: JSON, kind: FailureKind) -> None:
    """Guarantee 11.11: what is tried again, and what never is."""
    failed = map_error("somebody", table, body, status=status)
    assert failed.kind == kind
    assert failed.said
    assert str(failed).startswith(f"somebody failed ({kind}")
    assert (NOT_FOUND_FIX if status == 404 and kind == "invalid" else DEFAULT_FIXES[kind]) in str(failed)


def test_the_message_reports_what_happened_and_the_way_out() -> None:
    """Guarantee 15.1."""
    body = error_body("Slow down.", type="rate_limit_error")
    headers = {"retry-after": "12", "request-id": "req_1"}
    failed = map_error("anthropic", anthropic.TABLE, body, status=429, headers=headers)
    assert str(failed) == (
        "anthropic failed (rate: status 429 rate_limit_error): Slow down. It requested a wait of 12 s. "
        "Too many requests in a short time. Wait, then retry."
    )
    assert (failed.status, failed.code, failed.retry_after, failed.may_retry) == (429, "rate_limit_error", 12.0, True)
    assert failed.request_id == "req_1"
    assert not ProviderFailed("x", "auth").may_retry


def test_how_long_to_wait_is_reported_in_many_ways() -> None:
    """Guarantee 11.11: Retry-After is honoured."""
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    info: JSONObject = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}

    def wait(body: JSON = None, **headers: str) -> float | None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return map_error("x", gemini.TABLE, body, status=429, headers=named).retry_after

    assert wait(retry_after="7") == 7.0
    assert wait(retry_after="0.5") == 0.5
    assert wait(retry_after_ms="1500", retry_after="9") == 1.5
    assert 55 < (wait(retry_after=later) or 0) <= 60
    assert wait(retry_after="Sun, 06 Nov 1994 08:49:37 GMT") == 0.0
    assert wait(google("RESOURCE_EXHAUSTED", "Wait", info)) == 34.5
    assert wait(retry_after="soon") is None
    assert wait() is None


@pytest.mark.parametrize(
    "secret",
    ["sk-ant-api03-abcdef123456", "sk-proj-abc_def-123456", "AIzaSyA1234567890abcdef", "Bearer abc.def-123456"],
)
def test_what_looks_like_a_key_is_masked(secret: str) -> None:
    """Guarantee 13.3: keys never."""
    assert mask_secrets(f"Bad key: {secret}!") == "Bad key: [key]!"
    assert mask_secrets("my-own-secret is bad", ["my-own-secret"]) == "[key] is bad"
    assert mask_secrets("a sk-etch, a key, 12 tokens") == "a sk-etch, a key, 12 tokens"


def test_a_login_is_masked_as_it_is_in_a_header() -> None:
    """Guarantee 13.3: joe:secret@ in a URL is sent as a header, and some servers repeat what they were sent."""
    packed = b64encode(b"joe:pw-s3cret").decode()
    for login in (packed, packed.rstrip("=")):
        assert mask_secrets(f"No: Basic {login}.") == "No: [key]."
        assert mask_secrets(f'{{"authorization":"basic {login}"}}') == '{"authorization":"[key]"}'
    text = "Basic authentication is needed; basic information, basic auth"
    assert mask_secrets(text) == text


def test_a_page_of_some_proxy_is_reported_without_its_tags() -> None:
    body = "<html><style>b{}</style><body>\n<h1>502 Bad Gateway</h1></body></html>"
    assert map_error("x", openai.TABLE, body, status=502).said == "502 Bad Gateway"


def test_the_reason_of_a_broken_line_is_the_innermost() -> None:
    """Guarantee 15.1: an HTTP client's own exceptions often say nothing, or less than the socket's."""
    inner = ConnectionResetError(104, "Connection reset by peer")
    for expected, text in (("", ""), ("Connection error.", "Connection error: ")):
        error = RuntimeError(expected)
        error.__cause__ = inner
        assert error_reason(error) == f"{text}[Errno 104] Connection reset by peer"
    assert error_reason(TimeoutError()) == "TimeoutError"


def after(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


REQUEST = httpx.Request("POST", "http://there", extensions={"timeout": {"connect": 5.0, "read": 600, "pool": 600}})
BLOCKED = CancelledError("Cancelled via cancel scope ffff92e59800; reason: deadline exceeded")
LATE: list[tuple[BaseException, float | None, str]] = [
    (after(httpx.ReadTimeout("", request=REQUEST), after(TimeoutError(), BLOCKED)), None, "no data received for 600 s"),
    (after(RuntimeError("timed out"), httpx.ConnectTimeout("", request=REQUEST)), 9, "no connection within 5 s"),
    (httpx.PoolTimeout("", request=REQUEST), None, "no free connection within 600 s"),
    (httpx.ReadTimeout(""), 30, "no data received for 30 s"),
    (httpx.ReadTimeout(""), None, "no data received for 600 s"),
    (
        urllib3.exceptions.ReadTimeoutError(urllib3.HTTPConnectionPool("x"), "", "Read timed out. (read timeout=1.5)"),
        2,
        "no data received for 1.5 s",
    ),
    (after(botocore.exceptions.ReadTimeoutError(endpoint_url="x"), TimeoutError()), 3, "no data received for 3 s"),
    (botocore.exceptions.ConnectTimeoutError(endpoint_url="x"), None, "no connection within 10 s"),
    (TimeoutError(), None, "no data received for 600 s"),
    (httpx.ConnectError("refused", request=REQUEST), 9, ""),
    (after(httpx.ConnectError(""), TimeoutError(110, "Connection timed out")), 9, ""),  # the system's own limit
    (ConnectionResetError(104, "Connection reset by peer"), 9, ""),
]


@pytest.mark.parametrize(("error", "given", "expected"), LATE, ids=[repr(error) for error, _, _ in LATE])
def test_a_call_that_waited_in_vain_reports_for_what_and_how_long(
    error: BaseException, given: float | None, expected: str
) -> None:
    """Guarantee 15.1: with the limit in force, for every type of exception."""
    assert describe_timeout(error, given, use_default=True) == expected


def test_an_unknown_limit_is_not_made_up() -> None:
    """A client of the caller's own has its own limits."""
    assert describe_timeout(TimeoutError(), None, use_default=False) == "no data received for too long"


FORBIDDEN: JSONObject = {"type": "extra_forbidden", "loc": ["body", "user"], "msg": "Extra inputs are not permitted"}
NO_ROLE: JSONObject = {"type": "missing", "loc": ["body", "messages", 0, "role"], "msg": "Field required"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"detail": [FORBIDDEN]}, "body.user: Extra inputs are not permitted"),
        (
            {"object": "error", "message": {"detail": [FORBIDDEN, NO_ROLE]}, "type": "invalid_request_error"},
            "body.user: Extra inputs are not permitted; body.messages[0].role: Field required",
        ),
        ({"detail": {"reason": 1}}, '{"reason":1}'),
    ],
)
def test_a_list_of_what_is_wrong_is_reported_as_text(body: JSONObject, expected: str) -> None:
    """Guarantee 15.1: as Mistral's API and others list validation errors."""
    failed = map_error("mistral", openai.TABLE, body, status=422)
    assert (failed.kind, failed.said) == ("invalid", expected)
