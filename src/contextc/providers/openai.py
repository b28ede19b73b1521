"""Client for OpenAI's Responses and Chat Completions APIs and for compatible endpoints, through OpenAI's SDK.

The body is sent unchanged. A custom URL gets neither OpenAI's key nor the organization and project headers that the SDK
takes from the environment.

For sessions that are OpenAI conversations, this client creates the conversation. A request without one gets the id of a
new conversation, inserted before the compiled fields. A call without a stored conversation, such as a summary, creates
none.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import quote

import msgspec

from contextc._installed_packages import importing
from contextc._json import JSON, JSONObject, encode
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers.client import ProviderCall
from contextc.providers.error_mapping import ErrorTable
from contextc.providers.http_client import HTTPEndpoint, HTTPResponse, error_body
from contextc.providers.registry import Provider, extra_of_format

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CONVERSATION = "conversation"
TABLE = ErrorTable(
    codes={
        "insufficient_quota": "quota",
        "billing_hard_limit_reached": "quota",
        "billing_not_active": "quota",
        "invalid_api_key": "auth",
        "account_deactivated": "auth",
        "context_length_exceeded": "context",
        "exceed_context_size_error": "context",  # llama.cpp
        "previous_response_not_found": "session",
        "conversation_locked": "transient",  # by another response; its status is 400
        "server_is_overloaded": "transient",
        "slow_down": "transient",
    },
    patterns=(
        (
            r"maximum context length|exceeds? the (model's )?(available )?context"
            r"|context (window|length|size).{0,200}exceed",
            "context",
        ),
        (r"input tokens exceed|maximum prompt length|prompt is too long|exceeded model token limit", "context"),
        (r"request too large for .{0,200} tokens per min", "context"),  # waiting would not help
        (
            r"insufficient (balance|credits|funds)|exceeded your current quota|credit balance|requires more credits",
            "quota",
        ),
        (r"incorrect api key|invalid api key|no auth credentials", "auth"),
        (r"^conversation with id '[^']*' not found", "session"),  # it has no code
    ),
    types={
        "server_error": "transient",
        "rate_limit_exceeded": "rate",
        "rate_limit_error": "rate",
        "requests": "rate",
        "tokens": "rate",
        "authentication_error": "auth",
        "permission_error": "auth",
        "invalid_prompt": "invalid",
        "invalid_request_error": "invalid",
        "model_not_found": "invalid",
    },
)


class _ConversationField(msgspec.Struct):
    """The one field of a body that is read here."""

    conversation: JSON = None


def open(provider: Provider, **options: object) -> "OpenAIEndpoint":
    if not provider.path:
        raise InvalidSetting(
            f"provider {provider.name!r}: the client `openai` has no URL path for its format", got=provider.format
        )
    return OpenAIEndpoint(provider, **options)


class OpenAIEndpoint(HTTPEndpoint):
    table: ClassVar[ErrorTable] = TABLE
    _client: "AsyncOpenAI | None" = None
    _stream_class: Any = None  # the SDK's class for a response whose body is unread

    async def _post(self, call: ProviderCall) -> HTTPResponse:
        client = self._opened()
        if call.provider.session_field == CONVERSATION and call.conversation:
            call = await self._in_a_conversation(client, call)
        return await self._sent(client, call.provider.path, call, self._stream_class)

    async def _in_a_conversation(self, client: "AsyncOpenAI", call: ProviderCall) -> ProviderCall:
        """Return the call, with the id of a new conversation if it names none."""
        if msgspec.json.decode(call.body, type=_ConversationField).conversation is not None:
            return call
        from openai.types.conversations import Conversation

        made = await client.post("/conversations", cast_to=Conversation, body={}, options=self._options(call))
        name = encode({CONVERSATION: made.id})
        return msgspec.structs.replace(call, body=name[:-1] + b"," + call.body.lstrip()[1:])

    async def _get_model(self, call: ProviderCall) -> JSONObject:
        return await self._got(self._opened(), f"/models/{quote(self.provider.model_id)}", call)

    def _opened(self) -> "AsyncOpenAI":
        if self._client is not None:
            return self._client
        with importing("openai", extra=extra_of_format(self.provider.format) or "openai"):
            from openai import AsyncOpenAI, AsyncStream, Omit, OpenAIError, not_given
        with suppress(ImportError):  # the SDK fails if another thread is importing httpx
            import_module("httpx")
        key, self._stream_class = self._key(), AsyncStream[object]
        if self.provider.url:
            self._omitted = {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
        if key == "":
            self._omitted["Authorization"] = Omit()
        try:
            self._client = AsyncOpenAI(
                api_key=key or ("none" if key == "" else None),
                base_url=self.provider.url or not_given,
                timeout=not_given if self.timeout is None else cast(float, self.timeout),
                max_retries=0,
                http_client=cast(Any, self.http_client),  # httpx's or httpx2's: the SDK checks it
            )
        except OpenAIError as error:
            raise self._keyless(str(error).split(".")[0], "OPENAI_API_KEY") from None
        return self._client

    def _failure(self, error: Exception) -> ProviderFailed | None:
        import openai

        if isinstance(error, openai.APIStatusError):
            return self._refused(error_body(error), error.status_code, error.response.headers)
        if isinstance(error, openai.APIConnectionError):
            return self._unreached(error)
        return None

    def _secrets(self) -> tuple[str, ...]:
        key = self._client.api_key if self._client is not None else ""
        return (key,) if key and key != "none" else super()._secrets()

    def _forget(self) -> Callable[[], Awaitable[object]] | None:
        client, self._client = self._client, None
        return None if client is None or self.http_client is not None else client.close
