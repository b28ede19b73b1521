"""Common parts of OpenAI's two APIs: key, errors and rate-limit headers."""

from typing import ClassVar

from contextc._json import JSON, JSONObject
from tests.fake_vendors.responses import FakeError, RequestHead
from tests.fake_vendors.vendor import Trouble, Vendor

SAID: dict[Trouble, tuple[int, str, str | None, str]] = {
    "rate": (
        429,
        "requests",
        "rate_limit_exceeded",
        "Rate limit reached for requests per min (RPM): Limit 500, Used 500, Requested 1. Please try again in {0}s.",
    ),
    "quota": (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details. For more information on this "
        "error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
    ),
    "overloaded": (
        503,
        "service_unavailable_error",
        "server_is_overloaded",
        "Our servers are currently overloaded. Please try again later.",
    ),
    "internal": (
        500,
        "server_error",
        "server_error",
        "The server had an error while processing your request. Sorry about that!",
    ),
    "unavailable": (
        503,
        "server_error",
        None,
        "The server is currently unable to handle the request. Please try again later.",
    ),
}


class OpenAI(Vendor):
    root: ClassVar[str] = "/v1"
    free_arguments: ClassVar[bool] = True
    cache_step: ClassVar[int] = 128

    def model(self, head: RequestHead, body: JSONObject) -> str:
        return str(body.get("model"))

    def streams(self, head: RequestHead, body: JSONObject) -> bool:
        return body.get("stream") is True

    def unauthorized(self, key: str | None) -> FakeError:
        if not key:
            headers = "You didn't provide an API key. You need to provide your API key in an Authorization header."
            return refusal(401, headers, "invalid_request_error", None)
        shown = f"{key[:4]}{'*' * max(len(key) - 8, 0)}{key[-4:]}" if len(key) > 8 else "***"
        headers = (
            f"Incorrect API key provided: {shown}. You can find your API key at "
            "https://platform.openai.com/account/api-keys."
        )
        return refusal(401, headers, "invalid_request_error", "invalid_api_key")

    def invalid(self, message: str, *, path: str = "", status: int = 400) -> FakeError:
        return refusal(status, message, "invalid_request_error", None, param=path or None)

    def trouble(self, kind: Trouble, seconds: float) -> FakeError:
        status, type, code, message = SAID[kind]
        limits = (
            ("retry-after", f"{max(round(seconds), 1)}"),
            ("retry-after-ms", f"{seconds * 1000:.0f}"),
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", f"{seconds * 1000:.0f}ms"),
        )
        return refusal(status, message.format(f"{seconds:g}"), type, code, limits if kind == "rate" else ())


def refusal(
    status: int,
    message: str,
    type: str,
    code: str | None,
    headers: tuple[tuple[str, str], ...] = (),
    *,
    param: JSON = None,
) -> FakeError:
    error: JSONObject = {"message": message, "type": type, "param": param, "code": code}
    return FakeError(status, {"error": error}, (("x-request-id", "req_standin"), *headers))
