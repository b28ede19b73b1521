"""LangChain: middleware that records an agent's conversation and fits its requests into the window.

    from contextc.adapters.langchain import ContextcMiddleware

    agent = create_agent(model, tools=tools, middleware=[ContextcMiddleware(store)], checkpointer=checkpointer)

The state of the graph and its checkpoints are not changed: only the request to the model is.
"""

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, NamedTuple, Unpack, cast

from contextc._json import JSONObject
from contextc._worker_threads import run_blocking
from contextc.adapters.request_preparation import PreparedRequest, PreparerPool, RequestPreparer, require_package
from contextc.compiler.draft import CompilerOptionArguments
from contextc.errors import UnknownModel
from contextc.formats.base import as_json
from contextc.interchange.read_langchain import to_message
from contextc.messages import Message, Text
from contextc.providers import Provider, provider, provider_names
from contextc.store import Store
from contextc.store.message_log import DEFAULT_AGENT

require_package("langchain.agents.middleware", "langchain", "1.1")

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse  # noqa: E402
from langchain.agents.middleware.types import ContextT, ResponseT  # noqa: E402
from langchain.agents.structured_output import ToolStrategy  # noqa: E402
from langchain_core.language_models import BaseChatModel  # noqa: E402
from langchain_core.messages import (  # noqa: E402
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.utils.function_calling import convert_to_openai_tool  # noqa: E402
from langgraph.config import get_config  # noqa: E402

# Any: LangChain's own types have it for content blocks, tools and settings.

__all__ = ["ContextcMiddleware"]

PROVIDERS = {
    "amazon_bedrock": "bedrock",
    "anthropic_bedrock": "bedrock",
    "azure": "openai-chat",
    "google_anthropic_vertex": "anthropic",
    "google_genai": "gemini",
    "google_vertexai": "gemini",
    "mistralai": "mistral",
}
"""Names of providers that are others here."""
FIELDS = ("type", "role", "content", "name", "tool_calls", "invalid_tool_calls", "tool_call_id", "status")
METADATA = ("model_provider", "model_name", "stop_reason", "finish_reason")
REASONING_BLOCKS = ("thinking", "redacted_thinking", "reasoning")
REASONING_FIELDS = ("reasoning", "reasoning_content")
ITEM_BLOCKS = ("text", "function_call")


class _Call(NamedTuple):
    """A request on its way: what LangChain sends, and what is committed."""

    request: ModelRequest[Any]
    prepared: PreparedRequest


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
        "provider:model", if LangChain's model does not tell. `window` replaces the model's own window. `output` is how
        many tokens are kept free for an answer; by default the model's `max_tokens`. `agent` is the name that replies
        have in the store. `options` are those of `cc.MessageCompiler`.
        """
        super().__init__()
        self.store, self.agent = store, agent
        self._conversation, self._model, self._window, self._output = conversation, model, window, output
        self._pool = PreparerPool(store, agent=agent, **options)

    def wrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], ModelResponse[ResponseT]],
    ) -> ModelResponse[ResponseT]:
        """Prepare the request, send it, and store the reply. An error of the model is raised as it is."""
        with self._preparer(request) as preparer:
            call = self._prepare(preparer, request)
            try:
                response = handler(call.request)
            except BaseException as error:
                preparer.abort(call.prepared, error)
                raise
            preparer.commit(call.prepared, _convert(response.result))
            return response

    async def awrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse[ResponseT]]],
    ) -> ModelResponse[ResponseT]:
        """Do the same on an event loop. The store is called on worker threads."""
        with self._preparer(request) as preparer:
            call = await run_blocking(partial(self._prepare, preparer, request))
            try:
                response = await handler(call.request)
            except BaseException as error:
                await run_blocking(partial(preparer.abort, call.prepared, error))
                raise
            await run_blocking(partial(preparer.commit, call.prepared, _convert(response.result)))
            return response

    def _prepare(self, preparer: RequestPreparer, request: ModelRequest[Any]) -> _Call:
        prepared = preparer.prepare(
            _convert(request.messages),
            system_prompt=request.system_prompt,
            tools=_list_tools(request),
            output=self._output or _max_tokens(request),
        )
        if prepared.is_unchanged:
            return _Call(request, prepared)
        messages = [*_sent_messages(prepared, request.messages)]
        return _Call(request.override(messages=messages), prepared)

    @contextmanager
    def _preparer(self, request: ModelRequest[Any]) -> Generator[RequestPreparer]:
        """Give a preparer to one call."""
        preparer = self._pool.take(self._find_conversation(request), self._find_provider(request.model))
        try:
            yield preparer
        finally:
            self._pool.give_back(preparer)

    def _find_conversation(self, request: ModelRequest[Any]) -> str:
        if self._conversation is not None:
            return self._conversation if isinstance(self._conversation, str) else self._conversation(request)
        configurable = get_config().get("configurable", {})
        if (thread := configurable.get("thread_id")) is None:
            return f"langchain-{request.messages[0].id}"  # the graph gives every message an id
        outer, nested, _ = str(configurable.get("checkpoint_ns") or "").rpartition("|")
        return f"{thread}/{outer}" if nested else str(thread)  # an agent inside a tool of another one

    def _find_provider(self, model: BaseChatModel) -> Provider:
        if isinstance(self._model, Provider):
            return self._model
        return _known_provider(self._model or _describe(model), self._window, model)


# ── models ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _describe(model: BaseChatModel) -> str:
    """Return "provider:model" for a model of LangChain."""
    facts: Mapping[str, Any] = model._get_ls_params()  # pyright: ignore[reportPrivateUsage] # what it tells tracers
    named = str(facts.get("ls_provider") or "unknown")
    name = PROVIDERS.get(named, named.replace("_", "-"))
    if name == "openai" and not getattr(model, "use_responses_api", False):
        name = "openai-chat"
    return f"{name}:{facts.get('ls_model_name') or 'unknown'}"


def _known_provider(spec: str, window: int | None, model: BaseChatModel) -> Provider:
    """Return the provider. A window that is unknown here is taken from LangChain's profile of the model."""
    name = spec.partition(":")[0]
    format = None if name in provider_names() else "openai_chat"
    try:
        return provider(spec, window=window, format=format)
    except UnknownModel:
        profile = model.profile or {}
        window, output = window or profile.get("max_input_tokens"), profile.get("max_output_tokens")
        if not window:
            raise
        return provider(spec, window=window, output=output, format=format)


def _max_tokens(request: ModelRequest[Any]) -> int | None:
    """Return how many tokens the answer may have, if the model or the request states it."""
    facts: Mapping[str, Any] = request.model._get_ls_params()  # pyright: ignore[reportPrivateUsage]
    found = request.model_settings.get("max_tokens") or facts.get("ls_max_tokens")
    return found if isinstance(found, int) and found > 0 else None


def _list_tools(request: ModelRequest[Any]) -> list[JSONObject]:
    """Return the tools of a request in OpenAI's format, and those that a provider runs itself as they are."""
    tools: list[Any] = [*request.tools]
    if isinstance(request.response_format, ToolStrategy):
        specs = cast(Sequence[Any], request.response_format.schema_specs)
        tools += [{"title": each.name, "description": each.description, **each.json_schema} for each in specs]
    return [as_json(convert_to_openai_tool(tool)) for tool in tools]


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _convert(messages: Sequence[BaseMessage]) -> list[Message]:
    """Return one of our messages for each of LangChain's."""
    names: dict[str, str] = {}
    return [to_message(_as_data(message), names) for message in messages]


def _as_data(message: BaseMessage) -> JSONObject:
    """Return the fields of a message that a model reads, and its usage. An artifact of a tool may be any object."""
    data = {name: getattr(message, name, None) for name in FIELDS}
    if message.type == "human":
        data["name"] = None  # sent by LangChain; as an author it would change the text
    extra, about = message.additional_kwargs, message.response_metadata
    data["additional_kwargs"] = {"reasoning_content": extra.get("reasoning_content")}
    data["response_metadata"] = {name: about.get(name) for name in METADATA}
    data["usage_metadata"] = getattr(message, "usage_metadata", None)
    return as_json(data)


def _sent_messages(prepared: PreparedRequest, own: Sequence[AnyMessage]) -> Iterator[AnyMessage]:
    """Return the messages that are sent: LangChain's own, and new ones for what was changed or inserted."""
    for indexes, message in prepared.messages:
        if message is None:
            yield from [own[index] for index in indexes]
        elif len(indexes) == 1:
            yield _change(own[indexes[0]], message)
        else:
            yield from _build(message)


def _change(original: AnyMessage, message: Message) -> AnyMessage:
    """Return a copy of a message with the content that contextc changed: shorter results, no reasoning."""
    if isinstance(original, AIMessage):
        content = _without_reasoning(original.content) if isinstance(original.content, list) else original.content
        extra = {name: each for name, each in original.additional_kwargs.items() if name not in REASONING_FIELDS}
        return original.model_copy(update={"content": content, "additional_kwargs": extra})
    parts: Sequence[object] = message.parts
    if isinstance(original, ToolMessage):
        found = message.tool_results[0].content
        parts = [Text(found)] if isinstance(found, str) else found
    return original.model_copy(update={"content": _content(parts, original.content)})


def _content(parts: Sequence[object], original: str | list[Any]) -> str | list[Any]:
    """Return changed texts, and the original blocks of everything else."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts):
        return "".join(texts) if len(texts) < 2 else [{"type": "text", "text": each} for each in texts]
    if len(original) != len(parts):
        return original
    return [
        {"type": "text", "text": part.text} if isinstance(part, Text) else block
        for part, block in zip(parts, original, strict=True)
    ]


def _without_reasoning(content: list[Any]) -> list[Any]:
    """Return blocks without reasoning. OpenAI refuses ids of items whose reasoning is missing."""
    found: list[Any] = []
    for each in content:
        if not isinstance(each, dict):
            found.append(each)
            continue
        block = cast(JSONObject, each)
        if block.get("type") not in REASONING_BLOCKS:
            has_id = block.get("type") in ITEM_BLOCKS
            found.append({name: value for name, value in block.items() if not (has_id and name == "id")})
    return found


def _build(message: Message) -> Iterator[AnyMessage]:
    """Return messages for one that contextc inserted: a note, or a result for a call that has none."""
    for result in message.tool_results:
        status = "error" if result.is_error else "success"
        yield ToolMessage(result.text, tool_call_id=result.call_id, name=result.name, status=status)
    if message.role == "assistant":
        yield AIMessage(message.text)
    elif message.role != "tool":
        yield HumanMessage(message.text)  # not every provider has a place for system messages here
