"""Common parts of the two adapters for OpenAI's SDK."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tests.fake_vendors.sdks import Raised, SDKClient, http
from tests.fake_vendors.vendor import Trouble


class OpenAIClient(SDKClient):
    unknown_key: ClassVar[Raised | None] = Raised("AuthenticationError", "Incorrect API key provided: sk-w****")
    troubles: ClassVar[Mapping[Trouble, tuple[int, str]]] = {
        "overloaded": (503, "InternalServerError"),
        "internal": (500, "InternalServerError"),
        "unavailable": (503, "InternalServerError"),
        "rate": (429, "RateLimitError"),
    }
    quota: ClassVar[tuple[int, str]] = (429, "insufficient_quota")
    waits: ClassVar[Mapping[str, str]] = {"retry-after": "2", "retry-after-ms": "2500"}

    def client(self, url: str, key: str, timeout: float) -> Any:
        import openai

        return openai.OpenAI(base_url=url, api_key=key, max_retries=0, http_client=http(timeout))
