"""Client for Anthropic's Messages API and compatible endpoints, through Anthropic's SDK. Sends the body unchanged."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import quote

from contextc._installed_packages import importing
from contextc._json import JSONObject
from contextc.errors import ProviderFailed
from contextc.providers.client import ProviderCall
from contextc.providers.error_mapping import ErrorTable
from contextc.providers.http_client import HTTPEndpoint, HTTPResponse, error_body
from contextc.providers.registry import Provider

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

PATH = "/v1/messages"
MODELS_PATH = "/v1/models"
KEY_VARIABLES = "ANTHROPIC_API_KEY"
TABLE = ErrorTable(
    codes={
        "overloaded_error": "transient",
        "billing_error": "quota",
        "authentication_error": "auth",
        "request_too_large": "context",
    },
    patterns=(
        (
            r"prompt is too long|input length and `?max_tokens`? exceed|exceeds? (the )?context (limit|window)",
            "context",
        ),
        (r"credit balance is too low|reached your specified .{0,200}usage limits|purchase credits", "quota"),
    ),
    types={
        "permission_error": "auth",
        "rate_limit_error": "rate",
        "timeout_error": "transient",
        "api_error": "transient",
        "not_found_error": "invalid",
        "invalid_request_error": "invalid",
    },
)


def open(provider: Provider, **options: object) -> "AnthropicEndpoint":
    return AnthropicEndpoint(provider, **options)


class AnthropicEndpoint(HTTPEndpoint):
    table: ClassVar[ErrorTable] = TABLE
    _client: "AsyncAnthropic | None" = None
    _stream_class: Any = None  # the SDK's class for a response whose body is unread

    async def _post(self, call: ProviderCall) -> HTTPResponse:
        return await self._sent(self._opened(), PATH, call, self._stream_class)

    async def _get_model(self, call: ProviderCall) -> JSONObject:
        return await self._got(self._opened(), f"{MODELS_PATH}/{quote(self.provider.model_id, safe='')}", call)

    def _opened(self) -> "AsyncAnthropic":
        if self._client is not None:
            return self._client
        with importing("anthropic", extra="anthropic"):
            from anthropic import AsyncAnthropic, AsyncStream, Omit, not_given
        key, self._stream_class = self._key(), AsyncStream[object]
        self._omitted = {"Authorization": Omit()} if key == "" else {}
        self._client = AsyncAnthropic(
            api_key=key or ("none" if key == "" else None),
            base_url=self.provider.url or None,
            timeout=not_given if self.timeout is None else cast(float, self.timeout),
            max_retries=0,
            http_client=cast(Any, self.http_client),  # httpx2's, or httpx's before version 1: the SDK checks it
        )
        return self._client

    def _failure(self, error: Exception) -> ProviderFailed | None:
        import anthropic

        if isinstance(error, anthropic.APIStatusError):
            return self._refused(error_body(error), error.status_code, error.response.headers)
        if isinstance(error, anthropic.APIConnectionError):
            return self._unreached(error)
        if isinstance(error, TypeError) and "authentication method" in str(error):
            return self._keyless("no key was found", KEY_VARIABLES)
        return None

    def _secrets(self) -> tuple[str, ...]:
        key = (self._client.api_key or self._client.auth_token) if self._client is not None else ""
        return (key,) if key and key != "none" else super()._secrets()

    def _forget(self) -> Callable[[], Awaitable[object]] | None:
        client, self._client = self._client, None
        return None if client is None or self.http_client is not None else client.close
