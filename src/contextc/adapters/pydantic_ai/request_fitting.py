"""`PrepareRequests`: a capability that records the requests of a pydantic-ai agent and fits them into the window.

    agent = Agent("openai:gpt-5.5", capabilities=[PrepareRequests(store, window=128_000)])

Before each attempt at a model request, what is new in the history is recorded in the conversation, and the request is
compiled. The model gets pydantic-ai's own messages, except for those that contextc shortened, left out or inserted. The
agent's history is not changed. The reply is stored with the request when it arrives.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ModelResponse, SystemPromptPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.tools import RunContext, ToolDefinition

from contextc._worker_threads import run_blocking
from contextc.adapters.pydantic_ai.message_conversion import (
    change_part,
    change_response,
    convert_message,
    to_model_message,
    to_usage,
)
from contextc.adapters.request_preparation import PreparedRequest, RequestPreparer, merge_headers, refuse_headers
from contextc.compiler.draft import CompilerOptionArguments
from contextc.errors import InvalidInput, InvalidSetting
from contextc.messages import Message
from contextc.providers import Provider, provider
from contextc.store import Store
from contextc.store.message_log import DEFAULT_AGENT
from contextc.tools.definitions import Tool

PROVIDER_NAMES = {"google": "gemini", "google-cloud": "gemini", "azure": "openai"}
"""Names of contextc for systems of pydantic-ai, where they differ."""
CHAT_MODEL, CHAT_PROVIDERS = "OpenAIChatModel", {"openai": "openai-chat"}
UNKNOWN_PROVIDER = "openai-chat"
"""The format in which requests to a model of an unknown provider are counted."""


class HistoryItem(NamedTuple):
    """A message of contextc, and what it comes from: the position of a model message, and of its part (-1: all)."""

    message: Message
    at: int
    part: int


@dataclass
class PrepareRequests(AbstractCapability[Any]):
    """Records the requests of an agent in a store, and fits them into the model's window.

    `model` is a provider of contextc or "provider:model"; by default that of the model which serves the request.
    `window` replaces the window of the model. `conversation` is the name in the store, by default the id of
    pydantic-ai's conversation. `agent` is the name that replies have in the store. `options` are those of
    `MessageCompiler`.
    """

    store: Store
    model: Provider | str | None = None
    window: int | None = None
    conversation: str | None = None
    agent: str = DEFAULT_AGENT
    options: CompilerOptionArguments = field(default_factory=CompilerOptionArguments)
    _preparers: dict[str, RequestPreparer] = field(default_factory=dict[str, RequestPreparer], init=False, repr=False)
    _open: tuple[RequestPreparer, PreparedRequest] | None = field(default=None, init=False, repr=False)

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None  # a store cannot be part of a specification

    async def for_run(self, ctx: RunContext[Any]) -> "PrepareRequests":
        """Return an instance for one run, because a run has one open request at a time."""
        return replace(self)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Record what is new, and return the request within the window."""
        preparer = self._preparer(ctx, request_context.model)
        if "extra_headers" in getattr(_unwrap(request_context.model), "unsupported_settings", ()):
            refuse_headers(preparer.model)
        prepared, messages = await run_blocking(partial(_prepare, preparer, request_context))
        self._open = preparer, prepared
        request_context.messages = messages
        if prepared.headers:
            settings: Any = dict(request_context.model_settings or {})
            settings["extra_headers"] = merge_headers(settings.get("extra_headers"), prepared.headers)
            request_context.model_settings = settings
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Store the reply with its request."""
        opened, self._open = self._open, None
        if opened is not None:
            preparer, prepared = opened
            replies = [converted.message for converted in convert_message(response)]
            await run_blocking(partial(preparer.commit, prepared, replies, usage=to_usage(response.usage)))
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Close the request, and raise the error again."""
        opened, self._open = self._open, None
        if opened is not None:
            await run_blocking(opened[0].abort, opened[1], error)
        raise error

    def _preparer(self, ctx: RunContext[Any], model: Model) -> RequestPreparer:
        conversation = self.conversation or ctx.conversation_id or ctx.run_id
        if conversation is None:
            raise InvalidInput("conversation: the run has no id", fix="Pass conversation=… to PrepareRequests.")
        key = f"{model.system}:{model.model_name}"
        if key not in self._preparers:
            self._preparers[key] = RequestPreparer(
                self.store,
                conversation,
                self.model or find_provider(model, self.window),
                window=self.window,
                agent=self.agent,
                **self.options,
            )
        return self._preparers[key]


def find_provider(model: Model, window: int | None = None) -> Provider:
    """Return the provider of contextc for a model of pydantic-ai."""
    name = PROVIDER_NAMES.get(model.system, model.system)
    if any(each.__name__ == CHAT_MODEL for each in type(_unwrap(model)).__mro__):
        name = CHAT_PROVIDERS.get(name, name)
    try:
        return provider(f"{name}:{model.model_name}", window=window)
    except InvalidInput as error:
        window = window or model.context_window
        if window is None:
            raise InvalidSetting(
                f"window: the context window of {model.model_id} is not known",
                fix="Pass window=… to PrepareRequests, such as window=128_000.",
            ) from error
        return provider(f"{UNKNOWN_PROVIDER}:{model.model_name}", window=window)


def _unwrap(model: Any) -> Any:  # Any: wrappers have no common public type
    while (inner := getattr(model, "wrapped", None)) is not None:
        model = inner
    return model


# ── one request ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _prepare(
    preparer: RequestPreparer, request_context: ModelRequestContext
) -> tuple[PreparedRequest, list[ModelMessage]]:
    messages, parameters = request_context.messages, request_context.model_request_parameters
    prompts = _leading_prompts(messages)
    items = list_items(messages, len(prompts))
    instructions = [part.content for part in parameters.instruction_parts or ()]
    settings = request_context.model_settings or {}
    prepared = preparer.prepare(
        [item.message for item in items],
        system_prompt="\n\n".join([text for text in [*prompts, *instructions] if text]) or None,
        tools=[_tool(tool) for tool in [*parameters.function_tools, *parameters.output_tools]],
        output=settings.get("max_tokens"),  # pyright: ignore[reportUnknownMemberType]
    )
    return prepared, messages if prepared.is_unchanged else rebuild_messages(prepared, messages, items)


def _leading_prompts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the system prompts at the start of the history: they are always sent."""
    found: list[str] = []
    for part in messages[0].parts if messages and isinstance(messages[0], ModelRequest) else ():
        if not isinstance(part, SystemPromptPart):
            break
        found.append(part.content)
    return found


def list_items(messages: Sequence[ModelMessage], leading: int = 0) -> list[HistoryItem]:
    """Return the history in contextc's messages, without the `leading` system prompts of the first request."""
    return [
        HistoryItem(converted.message, index, converted.part)
        for index, message in enumerate(messages)
        for converted in convert_message(message)
        if index or converted.part >= leading or converted.part < 0
    ]


def _tool(tool: ToolDefinition) -> Tool:
    return Tool(name=tool.name, description=tool.description or "", parameters=tool.parameters_json_schema)


def rebuild_messages(
    prepared: PreparedRequest, messages: Sequence[ModelMessage], items: Sequence[HistoryItem]
) -> list[ModelMessage]:
    """Return what is sent: pydantic-ai's messages where nothing changed, and new ones for the rest."""
    converted = {(item.at, item.part) for item in items}
    built = RequestBuilder(messages)
    for index, message in enumerate(messages):  # what no model reads must stay: it records tools and settings
        if isinstance(message, ModelRequest):
            built.hidden[index] = [part for at, part in enumerate(message.parts) if (index, at) not in converted]
    for indexes, changed in prepared.messages:
        sources = [items[index] for index in indexes]
        if changed is None:
            for source in sources:
                built.keep(source)
        elif len(sources) == 1:
            built.change(sources[0], changed)
        else:
            built.insert(to_model_message(changed))
    return built.build()


class RequestBuilder:
    """Collects the messages of a request. Parts of one `ModelRequest` that follow one another stay together."""

    def __init__(self, messages: Sequence[ModelMessage]) -> None:
        self._messages = messages
        self._built: list[tuple[int, list[ModelRequestPart]] | ModelMessage] = []
        self.hidden: dict[int, list[ModelRequestPart]] = {}

    def insert(self, message: ModelMessage) -> None:
        self._built.append(message)

    def keep(self, source: HistoryItem) -> None:
        message = self._messages[source.at]
        if isinstance(message, ModelResponse):
            self._built.append(message)
        else:
            self._add(source.at, [message.parts[source.part]])

    def change(self, source: HistoryItem, changed: Message) -> None:
        message = self._messages[source.at]
        if isinstance(message, ModelResponse):
            self._built.append(change_response(message, changed))
        else:
            self._add(source.at, change_part(message.parts[source.part], changed))

    def _add(self, index: int, parts: Iterable[ModelRequestPart]) -> None:
        last = self._built[-1] if self._built else None
        if isinstance(last, tuple) and last[0] == index:
            last[1].extend(parts)
        else:
            self._built.append((index, [*parts]))

    def build(self) -> list[ModelMessage]:
        hidden = dict(self.hidden)
        pending: list[ModelRequestPart] = []
        found: list[ModelMessage] = []
        first = self._built[0] if self._built else None
        if hidden.get(0) and not (isinstance(first, tuple) and first[0] == 0):
            found.append(ModelRequest(parts=hidden.pop(0)))  # system prompts come before everything else
        for each in self._built:
            if not isinstance(each, tuple):
                found.append(each)
                continue
            index, parts = each
            for earlier in sorted(key for key in hidden if key <= index):
                pending += hidden.pop(earlier)
            request = self._messages[index]
            assert isinstance(request, ModelRequest)
            sent = [*pending, *parts]
            found.append(request if sent == list(request.parts) else replace(request, parts=sent))
            pending = []
        return found
