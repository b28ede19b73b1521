"""Adapter for OpenAI's SDK: responses.

The body is passed as extra fields, because the SDK checks named arguments slowly.
"""

from typing import Any, ClassVar

from contextc._json import JSONObject
from tests.fake_vendors.sdks import adapter
from tests.fake_vendors.sdks._openai import OpenAIClient
from tests.fake_vendors.vendor import KEY


class ResponsesClient(OpenAIClient):
    format: ClassVar[str] = "openai_responses"
    model: ClassVar[str] = "gpt-5.6"
    settings: ClassVar[JSONObject] = {"model": model, "store": False, "reasoning": {"summary": "auto"}}
    specs: ClassVar[tuple[str, ...]] = ("openai:gpt-5.6", "openai:gpt-5.4")
    orphan: ClassVar[tuple[JSONObject, str]] = (
        {"type": "function_call_output", "call_id": "call_x", "output": "1"},
        "No tool call found for function call output with call_id call_x.",
    )
    strange: ClassVar[JSONObject] = {"reasoning": {"colour": "red"}}
    too_long: ClassVar[str] = "Your input exceeds the context window of this model."
    inside: ClassVar[tuple[str, str] | None] = None

    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any:
        with self.client(url, key, timeout) as client:
            return client.responses.create(model=self.model, input="", extra_body=body)

    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        with self.client(url, key, timeout) as client, self._stream(client, body) as stream:
            return list(stream)

    def _stream(self, client: Any, body: JSONObject) -> Any:
        return client.responses.create(model=self.model, input="", extra_body=body, stream=True)

    def is_event(self, event: JSONObject) -> None:
        from openai.types.responses import ResponseStreamEvent

        adapter(ResponseStreamEvent).validate_python(event)


CLIENT = ResponsesClient()
