"""Adapter for Ollama's SDK, which does not send ids of calls or `truncate`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from contextc._json import JSONObject
from contextc.formats.ollama.rules import RULES
from contextc.formats.registry import formatter
from tests.fake_vendors.sdks import Raised, SDKClient
from tests.fake_vendors.vendor import KEY, Trouble
from tests.formats.known.ollama import message_model, strict

ORPHAN = RULES.get("OLL004").provider_message


class OllamaClient(SDKClient):
    format: ClassVar[str] = "ollama"
    model: ClassVar[str] = "qwen3:8b"
    settings: ClassVar[JSONObject] = {"model": model, "think": True}
    specs: ClassVar[tuple[str, ...]] = ("ollama:qwen3:8b", "ollama:gpt-oss:20b")
    keeps_ids: ClassVar[bool] = False
    counts_reasoning: ClassVar[bool] = False
    unknown_key: ClassVar[Raised | None] = Raised("ResponseError", "unauthorized")
    refused: ClassVar[str] = "ResponseError"
    orphan: ClassVar[tuple[JSONObject, str]] = ({"role": "tool", "tool_name": "look", "content": "1"}, ORPHAN)
    strange: ClassVar[JSONObject] = {"options": {"colour": "red"}}
    too_long: ClassVar[str] = "exceeds the available context size (100 tokens)"
    troubles: ClassVar[Mapping[Trouble, tuple[int, str]]] = {
        "overloaded": (503, "ResponseError"),
        "internal": (500, "ResponseError"),
        "unavailable": (503, "ResponseError"),
        "rate": (429, "ResponseError"),
    }
    quota: ClassVar[tuple[int, str]] = (429, "have reached your session usage limit")
    waits: ClassVar[Mapping[str, str]] = {"retry-after": "2.5"}
    inside: ClassVar[tuple[str, str] | None] = ("server busy", "runner process has terminated")

    def client(self, url: str, key: str, timeout: float) -> Any:
        from ollama import Client as Ollama

        return Ollama(url, headers={"Authorization": f"Bearer {key}"}, timeout=timeout, verify=False)

    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any:
        with self.client(url, key, timeout) as client:
            return client.chat(**formatter(self.format).sdk_arguments(body, self.model))

    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        with self.client(url, key, timeout) as client:
            return list(client.chat(**formatter(self.format).sdk_arguments(body, self.model), stream=True))

    def is_event(self, event: JSONObject) -> None:
        from ollama import ChatResponse

        strict(ChatResponse, message=(message_model(), ...)).model_validate(event)

    def headers(self, error: Any) -> Mapping[str, str]:
        """Return the headers of the HTTP client's error, because the SDK's own error has none."""
        return error.__context__.response.headers


CLIENT = OllamaClient()
