"""Strands: a plugin that records an agent's conversation and fits its requests into the window.

    from contextc.adapters.strands import ContextcPlugin

    agent = Agent(model=model, tools=tools, plugins=[ContextcPlugin(store, "conversation")])

The messages of the agent are not changed: only the request to the model is. Another process continues with
`Agent(…, messages=plugin.load())`.
"""

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, Unpack

from contextc._json import JSONObject
from contextc._worker_threads import run_blocking
from contextc.adapters.request_preparation import (
    WireRequestPreparer,
    choose_model,
    find_provider,
    refuse_headers,
    require_package,
)
from contextc.compiler.draft import CompilerOptionArguments
from contextc.errors import InvalidSetting
from contextc.messages import Usage
from contextc.providers import Provider
from contextc.store import Store
from contextc.store.message_log import DEFAULT_AGENT

require_package("strands.middleware", "strands-agents", "1.60")

from strands import Agent  # noqa: E402
from strands.middleware import InvokeModelContext, InvokeModelStage  # noqa: E402
from strands.models import Model  # noqa: E402
from strands.plugins import Plugin  # noqa: E402
from strands.types.content import Messages  # noqa: E402
from strands.types.events import ModelStopReason, TypedEvent  # noqa: E402

# Any: the configuration of a model is a dict of its own for each provider.

__all__ = ["ContextcPlugin"]

PROVIDERS = {"OpenAIModel": "openai-chat", "OpenAIResponsesModel": "openai"}
"""Providers by the class of the model, where the class is not named after them."""
WITHOUT_CACHED = ("anthropic", "bedrock")
"""Formats in which the input tokens that are reported do not include those of the cache."""
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Names of the setting that limits an answer."""


class ContextcPlugin(Plugin):
    """Records the conversation of an agent in a store, and fits each of its requests into the model's window."""

    def __init__(
        self,
        store: Store,
        conversation: str | None = None,
        *,
        model: Provider | str | None = None,
        window: int | None = None,
        output: int | None = None,
        agent: str = DEFAULT_AGENT,
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        """Create the plugin.

        `conversation` is the agent's id by default. `model` is "provider:model", if the class of the agent's model does
        not tell. `window` replaces the model's own window. `output` is how many tokens are kept free for an answer; by
        default the model's `max_tokens`. `options` are those of `cc.MessageCompiler`.
        """
        super().__init__()
        self._requests = WireRequestPreparer(store, "bedrock", agent=agent, **options)
        self._model = choose_model(model, window) if model is not None else None
        self._conversation, self._window, self._output = conversation, window, output

    @property
    def name(self) -> str:
        return "contextc"

    def init_agent(self, agent: Agent) -> None:
        agent.add_middleware(InvokeModelStage, self._invoke)

    def load(self, conversation: str | None = None) -> Messages:
        """Return the recorded messages of a conversation, by default of the one that the plugin was created with."""
        if (name := conversation or self._conversation) is None:
            raise InvalidSetting("conversation must be a name", got=None, fix="Pass one to load.")
        found: Any = self._requests.load(name)
        return found

    async def _invoke(
        self, context: InvokeModelContext, next_fn: Callable[[InvokeModelContext], AsyncGenerator[TypedEvent, None]]
    ) -> AsyncGenerator[TypedEvent, None]:
        model = self._model or _find_provider(context.model, self._window)
        refuse_headers(model, 'Pass client_args={"default_headers": …} to the model of Strands, and none to contextc.')
        begin = partial(
            self._requests.begin,
            self._conversation or context.agent.agent_id,
            model,
            [{"role": each["role"], "content": each["content"]} for each in context.messages],
            system_prompt=_text(context.system_prompt),
            tools=[_tool(each) for each in context.tool_specs],
            output=self._output or _max_tokens(context.model),
        )
        request = await run_blocking(begin)
        stop: ModelStopReason | None = None
        try:
            if request.messages is not None:
                messages: Any = request.messages
                context = context.replace(messages=messages)
            async for event in next_fn(context):
                stop = event if isinstance(event, ModelStopReason) else stop
                yield event
        except BaseException as error:
            await run_blocking(partial(self._requests.abort, request, error))
            raise
        if stop is None or not stop.message["content"]:
            await run_blocking(partial(self._requests.abort, request, "the reply is empty"))
            return
        reply = self._requests.decode_message({"role": "assistant", "content": stop.message["content"]})
        await run_blocking(partial(self._requests.commit, request, reply, _usage(stop.usage, model)))


def _find_provider(model: Model, window: int | None) -> Provider:
    own = [each.__name__ for each in type(model).__mro__ if each.__module__.startswith("strands.")]
    kind = next((name for name in own if name != Model.__name__), type(model).__name__)  # also of a subclass
    name = PROVIDERS.get(kind, kind.removesuffix("Model").lower())
    return find_provider(name, str(_config(model).get("model_id") or "unknown"), window, model.context_window_limit)


def _max_tokens(model: Model) -> int | None:
    """Return how many tokens the answer may have, if the model states it."""
    config = _config(model)
    found = [each.get(name) for each in (config, config.get("params") or {}) for name in LIMITS]
    return next((limit for limit in found if isinstance(limit, int) and limit > 0), None)


def _config(model: Model) -> dict[str, Any]:
    return getattr(model, "config", {})


def _text(prompt: Any) -> str | None:
    return prompt if isinstance(prompt, str) or not prompt else "".join([each.get("text", "") for each in prompt])


def _tool(spec: Any) -> JSONObject:
    schema = spec["inputSchema"].get("json", spec["inputSchema"])
    function = {"name": spec["name"], "description": spec["description"], "parameters": schema}
    return {"type": "function", "function": function}


def _usage(counts: Any, model: Provider) -> Usage:
    read, written = counts.get("cacheReadInputTokens") or 0, counts.get("cacheWriteInputTokens") or 0
    input = counts["inputTokens"] + (read + written if model.formatter.name in WITHOUT_CACHED else 0)
    return Usage(input=input, output=counts["outputTokens"], cache_read=read, cache_write=written)
