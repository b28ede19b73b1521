"""Adapter for Anthropic's SDK."""

from collections.abc import Mapping
from typing import Any, ClassVar

from contextc._json import JSONObject
from tests.fake_vendors.sdks import Raised, SDKClient, adapter, http
from tests.fake_vendors.vendor import KEY, Trouble


class AnthropicClient(SDKClient):
    format: ClassVar[str] = "anthropic"
    model: ClassVar[str] = "claude-opus-5-5"
    settings: ClassVar[JSONObject] = {"model": model, "max_tokens": 1000}
    specs: ClassVar[tuple[str, ...]] = ("anthropic:claude-opus-5-5", "anthropic:claude-sonnet-4-5")
    overhead: ClassVar[int] = 1_000
    unknown_key: ClassVar[Raised | None] = Raised("AuthenticationError", "invalid x-api-key")
    orphan: ClassVar[tuple[JSONObject, str]] = (
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_x", "content": "1"}]},
        "unexpected `tool_use_id` found in `tool_result` blocks: toolu_x.",
    )
    strange: ClassVar[JSONObject] = {"tool_choice": {"type": "auto", "colour": "red"}}
    too_long: ClassVar[str] = "prompt is too long: "
    troubles: ClassVar[Mapping[Trouble, tuple[int, str]]] = {
        "overloaded": (529, "OverloadedError"),
        "internal": (500, "InternalServerError"),
        "unavailable": (503, "ServiceUnavailableError"),
        "rate": (429, "RateLimitError"),
    }
    quota: ClassVar[tuple[int, str]] = (400, "Your credit balance is too low")
    waits: ClassVar[Mapping[str, str]] = {"retry-after": "2.5"}
    inside: ClassVar[tuple[str, str] | None] = ("overloaded_error", "api_error")

    def cached(self, body: JSONObject) -> JSONObject:
        return {**body, "system": "Be brief.", "cache_control": {"type": "ephemeral"}}

    def client(self, url: str, key: str, timeout: float) -> Any:
        import anthropic

        return anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, http_client=http(timeout))

    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any:
        with self.client(url, key, timeout) as client:
            return client.messages.create(**body)

    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        with self.client(url, key, timeout) as client, client.messages.create(**body, stream=True) as stream:
            return list(stream)

    def is_event(self, event: JSONObject) -> None:
        from anthropic.types import RawMessageStreamEvent

        if event != {"type": "ping"}:  # the SDK drops it without a check
            adapter(RawMessageStreamEvent).validate_python(event)


CLIENT = AnthropicClient()
