"""Client for Google's generateContent API, through Google's SDK.

The SDK's public methods accept no bytes: they would rebuild the request from their own classes. So the request is made
by the layer below them, which adds key, version and URL, and sends our bytes. If Vertex AI is configured, the SDK finds
project, location and token as usual. Versions before 3 use httpx, later ones httpx2.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

from contextc._installed_packages import importing
from contextc._json import JSON, JSONObject
from contextc.errors import ProviderFailed
from contextc.providers.client import ProviderCall
from contextc.providers.error_mapping import CONNECT_SECONDS, READ_SECONDS, ErrorTable
from contextc.providers.http_client import HTTPEndpoint, HTTPResponse
from contextc.providers.registry import Provider

if TYPE_CHECKING:
    from google.genai import Client

KEY_VARIABLES = "GEMINI_API_KEY or GOOGLE_API_KEY"
TABLE = ErrorTable(
    codes={"API_KEY_INVALID": "auth", "UNAUTHENTICATED": "auth", "BILLING_DISABLED": "quota"},
    patterns=(
        (r"input token count .{0,200}exceeds|exceeds the maximum number of tokens", "context"),
        (r"api key (not valid|expired|not found)|pass a valid api key", "auth"),
        (r"PerDay|enable billing|billing account|prepayment credits", "quota"),
    ),
    types={
        "RESOURCE_EXHAUSTED": "rate",
        "PERMISSION_DENIED": "auth",
        "FAILED_PRECONDITION": "invalid",
        "INVALID_ARGUMENT": "invalid",
        "NOT_FOUND": "invalid",
        "INTERNAL": "transient",
        "UNAVAILABLE": "transient",
        "DEADLINE_EXCEEDED": "transient",
        "CANCELLED": "transient",
    },
)


def open(provider: Provider, **options: object) -> "GeminiEndpoint":
    return GeminiEndpoint(provider, **options)


class GeminiEndpoint(HTTPEndpoint):
    table: ClassVar[ErrorTable] = TABLE
    _client: "Client | None" = None
    _own: Any = None  # our client of httpx2 or httpx; its types cannot be imported at module level

    async def _post(self, call: ProviderCall) -> HTTPResponse:
        sdk = cast(Any, self._opened())._api_client  # the layer below the public methods is private
        from google.genai import _transformers as transformers

        model = transformers.t_model(sdk, call.provider.model_id)
        path = f"{model}:streamGenerateContent?alt=sse" if call.stream else f"{model}:generateContent"
        request = sdk._build_request("post", path, {}, {"headers": dict(call.headers)} if call.headers else None)
        request.data = call.body
        seconds = call.timeout or self.timeout
        request.timeout = seconds or _http_library().Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        # Versions before 2.33 have no such parameter. They retry only with aiohttp, which is not used here.
        once = {"implicit_retry": False} if "implicit_retry" in signature(sdk._async_request_once).parameters else {}
        found = await sdk._async_request_once(request, stream=True, **once)
        return cast(HTTPResponse, found.response_stream)

    async def _get_model(self, call: ProviderCall) -> JSONObject:
        found = await self._opened().aio.models.get(model=self.provider.model_id)
        return found.model_dump(mode="json", by_alias=True, exclude_none=True)

    def _opened(self) -> "Client":
        if self._client is not None:
            return self._client
        with importing("google-genai", extra="gemini"):
            from google.genai import Client

            library = _http_library()
        key = self._key()
        if self.http_client is None:
            self._own = library.AsyncClient()  # follows no redirects, which would receive the key
        options: dict[str, Any] = {"httpx_async_client": self.http_client or self._own}
        if self.provider.url:
            options["base_url"] = self.provider.url
        try:
            self._client = Client(api_key=key or ("none" if key == "" else None), http_options=cast(Any, options))
        except ValueError as error:
            raise self._keyless(str(error).split(".")[0], KEY_VARIABLES) from None
        return self._client

    def _failure(self, error: Exception) -> ProviderFailed | None:
        from google.genai import errors

        if isinstance(error, errors.APIError):
            body = cast(JSON, error.details)
            answer = cast(JSON, error.response)
            return self._refused(body, error.code, answer.headers if answer is not None else {})
        return None

    def _secrets(self) -> tuple[str, ...]:
        key = cast(Any, self._client)._api_client.api_key if self._client is not None else None
        return (key,) if key and key != "none" else super()._secrets()

    def _forget(self) -> Callable[[], Awaitable[object]] | None:
        self._client, own, self._own = None, self._own, None
        return None if own is None else own.aclose


def _http_library() -> Any:
    """Return the module httpx2 or httpx: the one whose clients the SDK accepts, and httpx2 if it accepts both."""
    from google.genai import types

    accepted = cast(Any, types).HttpxAsyncClient
    return import_module((get_args(accepted) or (accepted,))[-1].__module__.partition(".")[0])
