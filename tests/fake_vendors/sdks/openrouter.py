"""Adapter for OpenAI's SDK with OpenRouter's base URL. Events are also checked against OpenRouter's types."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

from contextc._json import JSONObject
from tests.fake_vendors.sdks import Raised
from tests.fake_vendors.sdks.openai_chat import ChatClient
from tests.fake_vendors.vendor import Trouble, vendor
from tests.fake_vendors.vendors.openrouter import types


class OpenRouterClient(ChatClient):
    name: ClassVar[str] = "openrouter"
    model: ClassVar[str] = "anthropic/claude-opus-5.5"
    settings: ClassVar[JSONObject] = {"model": model}
    specs: ClassVar[tuple[str, ...]] = (
        "openrouter:anthropic/claude-opus-5.5",
        "openrouter:anthropic/claude-sonnet-4.5",
        "openrouter:openai/gpt-5",
    )
    overhead: ClassVar[int] = 1_000
    unknown_key: ClassVar[Raised | None] = Raised("AuthenticationError", "User not found.")
    too_long: ClassVar[str] = "This endpoint's maximum context length is 100 tokens. However, you requested about "
    troubles: ClassVar[Mapping[Trouble, tuple[int, str]]] = {
        "overloaded": (503, "InternalServerError"),
        "internal": (500, "InternalServerError"),
        "unavailable": (502, "InternalServerError"),
        "rate": (429, "RateLimitError"),
    }
    quota: ClassVar[tuple[int, str]] = (402, "Insufficient credits")
    waits: ClassVar[Mapping[str, str]] = {"retry-after": "2.5"}
    inside: ClassVar[tuple[str, str] | None] = ("Provider returned error", "Internal Server Error")

    def cached(self, body: JSONObject) -> JSONObject:
        return vendor(self.name).formatter.with_head_breakpoint(body)

    def client(self, url: str, key: str, timeout: float) -> Any:
        types()  # import before anything is sent
        return super().client(url, key, timeout)

    def is_event(self, event: JSONObject) -> None:
        super().is_event(event)
        import_module("openrouter.components").ChatStreamChunk.model_validate(event)


CLIENT = OpenRouterClient()
