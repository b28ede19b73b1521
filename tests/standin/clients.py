"""The vendors' own SDKs, pointed at a stand-in: one small way to ask each of them for the same thing.

What they return is their own types; what they raise is left as it is. Nothing is retried.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import httpx2

from contextc._json import JSONObject
from contextc.formats.base import Request
from contextc.formats.named import formatter
from contextc.messages import Message, system
from contextc.tools import Tool
from tests.standin.vendor import KEY

LOOK = Tool(
    name="look",
    description="Look at a thing.",
    parameters={
        "type": "object",
        "properties": {"thing": {"type": "string"}, "times": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["thing"],
        "additionalProperties": False,
    },
)


class Client(ABC):
    """One SDK. Any: what it takes and gives has a type for every vendor, and here they are used alike."""

    format: ClassVar[str]
    model: ClassVar[str]
    settings: ClassVar[JSONObject] = {}

    def body(self, messages: Sequence[Message], *, prompt: str = "Be brief.", tools: Sequence[Tool] = ()) -> JSONObject:
        """A request as our formatter writes it."""
        request = Request(
            messages=tuple(messages), system=system(prompt), tools=tuple(tools), settings={**self.settings}
        )
        return formatter(self.format).encode_request(request)

    @abstractmethod
    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any: ...

    @abstractmethod
    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        """All events of a stream."""

    @abstractmethod
    def is_event(self, event: JSONObject) -> None:
        """Hold an event against the SDK's own type, strictly; the SDK itself takes almost anything."""


class AnthropicClient(Client):
    format = "anthropic"
    model = "claude-opus-5-5"
    settings: ClassVar[JSONObject] = {"model": model, "max_tokens": 1000}

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

        if event != {"type": "ping"}:  # which the SDK drops before it looks
            _adapter(RawMessageStreamEvent).validate_python(event)


class OpenAIClient(Client):
    def client(self, url: str, key: str, timeout: float) -> Any:
        import openai

        return openai.OpenAI(base_url=url, api_key=key, max_retries=0, http_client=http(timeout))


class ChatClient(OpenAIClient):
    format = "openai_chat"
    model = "gpt-4.1"
    settings: ClassVar[JSONObject] = {"model": model}

    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any:
        with self.client(url, key, timeout) as client:
            return client.chat.completions.create(**body)

    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        with self.client(url, key, timeout) as client, client.chat.completions.create(**body, **options) as stream:
            return list(stream)

    def is_event(self, event: JSONObject) -> None:
        from openai.types.chat import ChatCompletionChunk

        _adapter(ChatCompletionChunk).validate_python(event)


class ResponsesClient(OpenAIClient):
    """The body goes beside the arguments: the SDK looks at each of those for long."""

    format = "openai_responses"
    model = "gpt-5.6"
    settings: ClassVar[JSONObject] = {"model": model, "store": False, "reasoning": {"summary": "auto"}}

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

        _adapter(ResponseStreamEvent).validate_python(event)


class GeminiClient(Client):
    format = "gemini"
    model = "gemini-3.6-flash"
    settings: ClassVar[JSONObject] = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}

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
            return client.models.generate_content(**formatter(self.format).arguments(body, self.model))

    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        with self.client(url, key, timeout) as client:
            return list(client.models.generate_content_stream(**formatter(self.format).arguments(body, self.model)))

    def is_event(self, event: JSONObject) -> None:
        from google.genai.types import GenerateContentResponse

        GenerateContentResponse.model_validate(event)


def http(timeout: float) -> httpx2.Client:
    """A client that does not read certificates, which takes most of the time that an SDK needs to begin."""
    return httpx2.Client(verify=False, timeout=timeout)


CLIENTS = (AnthropicClient(), ChatClient(), ResponsesClient(), GeminiClient())


@cache
def _adapter(form: Any) -> Any:  # Any: an adapter of whatever type it is given
    from pydantic import TypeAdapter

    return TypeAdapter(form)
