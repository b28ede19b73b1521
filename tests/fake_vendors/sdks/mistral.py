"""Adapter for Mistral's SDK, which parses a body before sending and drops unknown fields."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from contextc._json import JSONObject
from contextc.formats.mistral.rules import UNEXPECTED_ROLE_TEXT
from tests.fake_vendors.sdks import WORDS, Happened, Raised, SDKClient, http
from tests.fake_vendors.vendor import KEY, Trouble
from tests.formats.known.mistral import ID, misread


class MistralClient(SDKClient):
    format: ClassVar[str] = "mistral"
    model: ClassVar[str] = "mistral-large-latest"
    settings: ClassVar[JSONObject] = {"model": model}
    specs: ClassVar[tuple[str, ...]] = ("mistral:mistral-large-latest", "mistral:mistral-medium-latest")
    counts_reasoning: ClassVar[bool] = False
    unknown_key: ClassVar[Raised | None] = Raised("SDKError", "Unauthorized")
    refused: ClassVar[str] = "SDKError"
    orphan: ClassVar[tuple[JSONObject, str]] = (
        {"role": "tool", "tool_call_id": ID, "content": "1"},
        UNEXPECTED_ROLE_TEXT.format(role="tool", before="user"),
    )
    too_long: ClassVar[str] = "too large for model with 100 maximum context length"
    troubles: ClassVar[Mapping[Trouble, tuple[int, str]]] = {
        "overloaded": (503, "SDKError"),
        "internal": (500, "SDKError"),
        "unavailable": (503, "SDKError"),
        "rate": (429, "SDKError"),
    }
    quota: ClassVar[tuple[int, str]] = (401, "Unauthorized")
    waits: ClassVar[Mapping[str, str]] = {"retry-after": "2.5"}
    inside: ClassVar[tuple[str, str] | None] = ("'raw_status_code': 503", "'raw_status_code': 500")
    words: ClassVar[Mapping[Happened, str]] = {**WORDS, "garbled": "Input should be"}

    @contextmanager
    def client(self, url: str, key: str, timeout: float) -> Generator[Any]:
        """Close the HTTP client, because the SDK does not close one that was passed to it."""
        from mistralai.client import Mistral

        with http(timeout) as line:
            limit = int(timeout * 1000)
            yield Mistral(api_key=key, server_url=url.removesuffix("/v1"), client=line, timeout_ms=limit)

    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any:
        with self.client(url, key, timeout) as client:
            return client.chat.complete(**body)

    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        with self.client(url, key, timeout) as client, client.chat.stream(**body) as stream:
            return list(stream)

    def is_event(self, event: JSONObject) -> None:
        from mistralai.client.models import CompletionChunk

        assert misread(CompletionChunk, event) == []

    def headers(self, error: Any) -> Mapping[str, str]:
        return error.headers


CLIENT = MistralClient()
