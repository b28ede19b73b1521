"""LangChain: middleware that records an agent's conversation and fits its requests into the window.

    from contextc.adapters.langchain import ContextcMiddleware

    agent = create_agent(model, tools=tools, middleware=[ContextcMiddleware(store)], checkpointer=checkpointer)

The state of the graph and its checkpoints are not changed: only the request to the model is.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Unpack, cast

from contextc.adapters.langchain_requests import ModelCall, ModelRequests, max_tokens
from contextc.adapters.request_preparation import require_package
from contextc.compiler.draft import CompilerOptionArguments
from contextc.providers import Provider
from contextc.store import Store
from contextc.store.message_log import DEFAULT_AGENT

require_package("langchain.agents.middleware", "langchain", "1.1")

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse  # noqa: E402
from langchain.agents.middleware.types import ContextT, ResponseT  # noqa: E402
from langchain.agents.structured_output import ToolStrategy  # noqa: E402

# Any: LangChain's own types have it for tools and settings.

__all__ = ["ContextcMiddleware"]


class ContextcMiddleware(AgentMiddleware[AgentState[ResponseT], ContextT, ResponseT], Generic[ContextT, ResponseT]):
    """Records the conversation of an agent in a store, and fits each of its requests into the model's window.

    Put it last in the list of middleware, so that it gets the request as it is sent.
    """

    def __init__(
        self,
        store: Store,
        *,
        conversation: str | Callable[[ModelRequest[Any]], str] | None = None,
        model: Provider | str | None = None,
        window: int | None = None,
        output: int | None = None,
        agent: str = DEFAULT_AGENT,
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        """Create the middleware.

        `conversation` is a name, or a function of the request; by default it is the graph's `thread_id`. `model` is
        "provider:model", if LangChain's model does not name a known one. `window` replaces the model's own window.
        `output` is how many tokens are kept free for an answer; by default the model's `max_tokens`. `agent` is the
        name that replies have in the store. `options` are those of `cc.MessageCompiler`.
        """
        super().__init__()
        self.store, self.agent, self._conversation = store, agent, conversation
        self._requests = ModelRequests(store, model=model, window=window, output=output, agent=agent, **options)

    def wrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], ModelResponse[ResponseT]],
    ) -> ModelResponse[ResponseT]:
        """Prepare the request, send it, and store the reply. An error of the model is raised as it is."""
        with self._call(request) as call:
            response = handler(_override(request, call))
            call.reply = response.result
            return response

    async def awrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse[ResponseT]]],
    ) -> ModelResponse[ResponseT]:
        """Do the same on an event loop. The store is called on worker threads."""
        async with self._call(request) as call:
            response = await handler(_override(request, call))
            call.reply = response.result
            return response

    def _call(self, request: ModelRequest[Any]) -> ModelCall:
        named = self._conversation
        tools: list[Any] = [*request.tools]
        if isinstance(request.response_format, ToolStrategy):
            specs = cast(Sequence[Any], request.response_format.schema_specs)
            tools += [{"title": each.name, "description": each.description, **each.json_schema} for each in specs]
        return ModelCall(
            self._requests,
            request.model,
            request.messages,
            conversation=named if named is None or isinstance(named, str) else named(request),
            system_prompt=request.system_prompt,
            tools=tools,
            output=max_tokens(request.model, request.model_settings),
            settings=request.model_settings,
        )


def _override(request: ModelRequest[Any], call: ModelCall) -> ModelRequest[Any]:
    return request.override(messages=cast(list[Any], call.messages), model_settings=dict(call.settings))
