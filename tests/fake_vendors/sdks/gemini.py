"""Adapter for Google's SDK, which checks a body against its own types before sending."""

from collections.abc import Mapping
from typing import Any, ClassVar

from contextc._json import JSONObject
from contextc.formats.registry import formatter
from tests.fake_vendors.sdks import Raised, SDKClient
from tests.fake_vendors.vendor import KEY, Trouble


class GeminiClient(SDKClient):
    format: ClassVar[str] = "gemini"
    model: ClassVar[str] = "gemini-3.6-flash"
    settings: ClassVar[JSONObject] = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
    specs: ClassVar[tuple[str, ...]] = ("gemini:gemini-3.6-flash", "gemini:gemini-2.5-flash")
    unknown_key: ClassVar[Raised | None] = Raised("ClientError", "API key not valid. Please pass a valid API key.")
    refused: ClassVar[str] = "ClientError"
    orphan: ClassVar[tuple[JSONObject, str]] = (
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "1"}}}]},
        "Please ensure that function response turn comes immediately after a function call turn.",
    )
    too_long: ClassVar[str] = "exceeds the maximum number of tokens allowed (100)."
    troubles: ClassVar[Mapping[Trouble, tuple[int, str]]] = {
        "overloaded": (503, "ServerError"),
        "internal": (500, "ServerError"),
        "unavailable": (503, "ServerError"),
        "rate": (429, "ClientError"),
    }
    quota: ClassVar[tuple[int, str]] = (429, "RESOURCE_EXHAUSTED")
    inside: ClassVar[tuple[str, str] | None] = ("The model is overloaded", "An internal error has occurred")

    def client(self, url: str, key: str, timeout: float) -> Any:
        from google import genai

        plain = {"verify": False}
        options: Any = {
            "base_url": url,
            "timeout": int(timeout * 1000),
            "client_args": plain,
            "async_client_args": plain,
        }
        return genai.Client(api_key=key, vertexai=False, http_options=options)

    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any:
        with self.client(url, key, timeout) as client:
            return client.models.generate_content(**formatter(self.format).sdk_arguments(body, self.model))

    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        with self.client(url, key, timeout) as client:
            return list(client.models.generate_content_stream(**formatter(self.format).sdk_arguments(body, self.model)))

    def is_event(self, event: JSONObject) -> None:
        from google.genai.types import GenerateContentResponse

        GenerateContentResponse.model_validate(event)

    def status(self, error: Any) -> int:
        return error.code


CLIENT = GeminiClient()
