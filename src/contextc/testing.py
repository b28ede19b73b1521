"""A fake model for tests of agents: it answers from texts, calls, errors or functions, and keeps what was sent.

Everything but the call of the provider is real: the store, the compiler, the tools, limits and events. A test sees what
a model would have seen.

    model = FakeModel(cc.tool_call("c1", "add", {"a": 1, "b": 2}), "It is 3.")
    agent = cc.Agent(model, tools=[add])
    assert agent.run_sync("1 + 2?").text == "It is 3."
    assert model.requests[1].messages[-1].tool_results[0].text == "3"
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias, cast

from msgspec.structs import replace

from contextc._json import JSONObject, encode
from contextc.errors import InvalidReply, InvalidSetting, ProviderFailed
from contextc.formats.base import Request
from contextc.formats.streams import encode_reply
from contextc.messages import Message, Text, ToolCall, Usage
from contextc.models.tokens import iter_loaded_tools
from contextc.providers import Provider
from contextc.providers import provider as provider_named
from contextc.providers.client import Endpoint, ProviderCall

Reply: TypeAlias = str | ToolCall | Message | Sequence[str | ToolCall] | Exception
Answer: TypeAlias = Reply | Callable[[Request], Reply]
WINDOW, OUTPUT, CHARACTERS_PER_TOKEN = 128_000, 8_000, 4


class FakeModel(Endpoint):
    """A model that gives these answers, one for each request.

    An answer is a text, a tool call, a list of both, a whole assistant message, an error to raise, or a function of the
    request that returns one of these. A function that is the only answer is called for every request. `provider` is
    whose requests it gets: by default those of a model of 128,000 tokens in OpenAI's chat format.

    `requests` has what was sent: `messages`, `system`, `tools` and `settings` of each request.
    """

    def __init__(self, *answers: Answer, provider: Provider | str | None = None) -> None:
        if provider is None:
            provider = provider_named("fake:model", window=WINDOW, output=OUTPUT)
        self.answers_for = self.provider = provider_named(provider) if isinstance(provider, str) else provider
        self.requests: list[Request] = []
        self._answers = list(answers)
        for number, answer in enumerate(answers, 1):
            if not callable(answer) and not isinstance(answer, Exception):
                self._encode(number, answer, Usage())

    @property
    def unused(self) -> int:
        """The number of answers that no request has asked for yet."""
        return 0 if self._is_function else len(self._answers)

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        body, formatter = call.full_request(), call.provider.formatter
        request = formatter.decode_request(body)
        self.requests.append(request)
        number = len(self.requests)
        if not self._answers:
            raise ProviderFailed(
                self.provider.name,
                "invalid",
                f"FakeModel has no answer to request {number}: {number - 1} were given",
                way_out="Pass one more answer, or one function that answers every request.",
            )
        answer = self._answers[0] if self._is_function else self._answers.pop(0)
        reply = answer(request) if callable(answer) else answer
        if isinstance(reply, Exception):
            raise reply
        characters = len(call.body)
        if b'"defer_loading"' in call.body:  # such definitions are sent, and the model does not see them
            tools = formatter.tools_of(body)
            characters += len(encode(list(iter_loaded_tools(tools)))) - len(encode(tools))
        yield self._encode(number, reply, Usage(input=characters // CHARACTERS_PER_TOKEN))

    @property
    def _is_function(self) -> bool:
        return len(self._answers) == 1 and callable(self._answers[0])

    def _encode(self, number: int, reply: Reply, usage: Usage) -> JSONObject:
        message = _as_message(number, reply)
        usage = replace(usage, output=max(1, len(message.text) // CHARACTERS_PER_TOKEN))
        form = self.provider.formatter
        body = encode_reply(form, self.provider.model_id, [message], usage, {})
        try:
            form.decode_reply(body)
        except InvalidReply:
            raise InvalidSetting(
                f"FakeModel: replies of {self.provider.name!r} cannot be made",
                fix="Pass the provider of a model that is called directly, or none.",
            ) from None
        return body


def _as_message(number: int, reply: object) -> Message:
    if isinstance(reply, str | ToolCall):
        reply = [reply]
    if isinstance(reply, Sequence) and all(
        [isinstance(part, str | ToolCall) for part in cast(Sequence[object], reply)]
    ):
        parts = [Text(part) if isinstance(part, str) else part for part in cast(Sequence[str | ToolCall], reply)]
        reply = Message(role="assistant", parts=tuple(parts))
    if not isinstance(reply, Message) or reply.role != "assistant":
        raise InvalidSetting(
            f"FakeModel: answer {number} must be a text, a tool call, a list of both, or an assistant message",
            got=cast(object, reply),
            fix='Pass "Hello.", cc.tool_call("c1", "add", {"a": 1}), or cc.assistant(…).',
        )
    return reply if reply.finish else replace(reply, finish="tool_calls" if reply.tool_calls else "stop")
