"""Client for Ollama, local or remote, through Ollama's SDK.

The SDK's public methods accept no bytes. They would rebuild the request from their own classes and lose fields such as
the ids of calls and `truncate`. So the request goes through the SDK's inner HTTP client, which has the URL
(`OLLAMA_HOST`), the headers and the key (`OLLAMA_API_KEY`).
"""

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from contextc._credential_mask import mask_secrets
from contextc._installed_packages import importing
from contextc._json import JSON, JSONObject, parse_object
from contextc.errors import ProviderFailed
from contextc.formats.request_settings import object_or_empty
from contextc.providers.client import ProviderCall
from contextc.providers.error_mapping import CONNECT_SECONDS, READ_SECONDS, ErrorTable
from contextc.providers.http_client import (
    HTTPEndpoint,
    HTTPResponse,
    MalformedEvent,
    NDJSONParser,
    StreamParser,
    error_reason,
    parse_json_object,
)
from contextc.providers.registry import Provider

if TYPE_CHECKING:
    from ollama import AsyncClient

PATH = "/api/chat"
TABLE = ErrorTable(
    codes={"exceed_context_size_error": "context"},
    patterns=(
        (
            r"exceed(s|ed)? (the )?(available |max(imum)? )?context (size|length)|longer than the context length",
            "context",
        ),
        (
            r"does not support|is not supported (by|for) this model|must be of (type|an array)|invalid (think|format)",
            "invalid",
        ),
        (r"more system memory|model .{0,200}not found|try pulling it", "invalid"),
        (r"reached your .{0,200}usage limit", "quota"),
        (r"unauthorized", "auth"),
        (r"server busy|maximum pending requests", "transient"),
    ),
)
FIXES = (
    (r"model .{0,200}not found", "Pull the model (`ollama pull {model}`), or check its name with `ollama list`."),
    (r"does not support thinking", 'Disable thinking: settings={{"think": False}}.'),
    (r"does not support tools", "Use a model that supports tools, or pass no tools."),
    (r"more system memory", "Set a smaller window, cc.provider(…, window=8_192), or use a smaller model."),
)
"""Fixes by patterns in Ollama's error messages."""
START_FIX = (
    "If Ollama is not running, start it (`ollama serve`), or set its URL: OLLAMA_HOST, or cc.provider(…, url=…)."
)


def open(provider: Provider, **options: object) -> "OllamaEndpoint":
    return OllamaEndpoint(provider, **options)


class OllamaEndpoint(HTTPEndpoint):
    table: ClassVar[ErrorTable] = TABLE
    frames: ClassVar[type[StreamParser]] = NDJSONParser
    _client: "AsyncClient | None" = None

    async def _post(self, call: ProviderCall) -> HTTPResponse:
        http = self._http()
        request = http.build_request(
            "POST", PATH, content=call.body, headers=dict(call.headers), timeout=call.timeout or self._limits()
        )
        answer = await (cast(Any, self.http_client) or http).send(request, stream=True)
        if answer.is_success:
            return cast(HTTPResponse, answer)
        try:
            raise self._helped(_refusal(await answer.aread()), answer.status_code, answer.headers, call)
        finally:
            await answer.aclose()

    def _helped(self, body: JSON, status: int, headers: Any, call: ProviderCall) -> ProviderFailed:
        """Return the failure, with a fix if Ollama's message is a known one."""
        failed = self._refused(body, status, headers)
        helps = (way_out for pattern, way_out in FIXES if re.search(pattern, failed.said, re.IGNORECASE))
        if (way_out := next(helps, None)) is None:
            return failed
        way_out = way_out.format(model=call.provider.model_id)
        return ProviderFailed(
            failed.provider,
            failed.kind,
            failed.said,
            status=status,
            code=failed.code,
            retry_after=failed.retry_after,
            way_out=way_out,
        )

    def _http(self) -> Any:  # an httpx client; its types cannot be imported at module level
        return cast(Any, self._opened())._client

    def _limits(self) -> Any:
        from httpx import Timeout

        return self.timeout or Timeout(READ_SECONDS, connect=CONNECT_SECONDS)

    def _opened(self) -> "AsyncClient":
        if self._client is not None:
            return self._client
        with importing("ollama", extra="ollama"):
            from ollama import AsyncClient
        key = self._key()
        headers = {"Authorization": f"Bearer {key}"} if key else None
        # A redirect would receive the key.
        self._client = AsyncClient(self.provider.url or None, headers=headers, follow_redirects=False)
        if key == "":
            cast(Any, self._client)._client.headers.pop("authorization", None)
        return self._client

    def _failure(self, error: Exception) -> ProviderFailed | None:
        from httpx import ConnectError, ConnectTimeout

        if not isinstance(error, ConnectError | ConnectTimeout):
            return None
        message = mask_secrets(error_reason(error), self._hidden())[:300]
        way_out = f"Check the URL ({self._address()}) and the network. {START_FIX}"
        return ProviderFailed(self.provider.name, "transient", message, way_out=way_out)

    def _address(self) -> str:
        if self.provider.url or not self._client:
            return super()._address()
        return mask_secrets(str(self._http().base_url).rstrip("/"))

    def _secrets(self) -> tuple[str, ...]:
        sent = str(self._http().headers.get("authorization", "")) if self._client is not None else ""
        return (sent.removeprefix("Bearer "),) if sent else super()._secrets()

    def _forget(self) -> Callable[[], Awaitable[object]] | None:
        client, self._client = self._client, None
        return None if client is None else cast(Any, client)._client.aclose  # before 0.6.1 it has no method `close`


def _refusal(body: bytes) -> JSON:
    """Return the error of a response. An error of the model runner is JSON inside the text of Ollama's error."""
    try:
        content: JSONObject = parse_json_object(body)
    except MalformedEvent:
        return body.decode("utf-8", "replace")
    error: JSON = content.get("error")
    within = parse_object(error) if isinstance(error, str) and error.startswith("{") else None
    return within if within is not None and object_or_empty(within.get("error")) else content
