"""Adapter for OpenAI's SDK: chat completions."""

from typing import Any, ClassVar

from contextc._json import JSONObject
from tests.fake_vendors.sdks import adapter
from tests.fake_vendors.sdks._openai import OpenAIClient
from tests.fake_vendors.vendor import KEY


class ChatClient(OpenAIClient):
    format: ClassVar[str] = "openai_chat"
    model: ClassVar[str] = "gpt-4.1"
    settings: ClassVar[JSONObject] = {"model": model}
    specs: ClassVar[tuple[str, ...]] = ("openai-chat:gpt-4.1", "openai-chat:gpt-5.5")
    orphan: ClassVar[tuple[JSONObject, str]] = (
        {"role": "tool", "tool_call_id": "call_x", "content": "1"},
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
    )
    strange: ClassVar[JSONObject] = {
        "tool_choice": {"type": "function", "function": {"name": "look", "colour": "red"}},
    }
    too_long: ClassVar[str] = "This model's maximum context length is 100 tokens. However, your messages resulted in "
    inside: ClassVar[tuple[str, str] | None] = ("overloaded", "The server had an error")

    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any:
        with self.client(url, key, timeout) as client:
            return client.chat.completions.create(**body)

    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        with self.client(url, key, timeout) as client, client.chat.completions.create(**body, **options) as stream:
            return list(stream)

    def is_event(self, event: JSONObject) -> None:
        from openai.types.chat import ChatCompletionChunk

        adapter(ChatCompletionChunk).validate_python(event)


CLIENT = ChatClient()
