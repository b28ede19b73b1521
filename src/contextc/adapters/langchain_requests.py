"""Requests of LangChain's chat models: recorded in a conversation, and fitted into the window.

    requests = ModelRequests(store)
    with ModelCall(requests, chat_model, messages, system_prompt=text, tools=tools) as call:
        call.reply = [chat_model.invoke(call.messages)]

`async with` does the same, with the store on worker threads. The request is prepared when the block begins. It is
committed with its reply when the block ends, or aborted with the error that ends the block.

A conversation is a thread of LangGraph. A graph inside a node or a tool of another one continues the conversation of
that one if it has its messages, and is a conversation of its own otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeAlias, Unpack, cast

from contextc._json import JSONObject
from contextc._worker_threads import run_blocking
from contextc.adapters.request_preparation import (
    NO_REPLY,
    PreparedRequest,
    PreparerPool,
    RequestPreparer,
    load_messages,
    merge_headers,
    refuse_headers,
    require_package,
)
from contextc.compiler.draft import CompilerOptionArguments
from contextc.errors import InvalidSetting, UnknownModel
from contextc.formats.base import as_json
from contextc.interchange.read_langchain import CALL_BLOCK_TYPES, to_message
from contextc.messages import Message, Text
from contextc.providers import Provider, provider, provider_names
from contextc.store import Store
from contextc.store.message_log import DEFAULT_AGENT
from contextc.store.message_matching import align_histories, align_last_messages

require_package("langgraph.config", "langgraph", "1.0")

from langchain_core.language_models import BaseChatModel  # noqa: E402
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage  # noqa: E402
from langchain_core.messages import ToolCall as ToolCallDict  # noqa: E402
from langchain_core.runnables import RunnableConfig  # noqa: E402
from langchain_core.utils.function_calling import convert_to_openai_tool  # noqa: E402
from langgraph.config import get_config  # noqa: E402

# Any: LangChain's own types have it for content blocks, tools and settings.

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
CHANGED_FIELDS = ("reasoning", "reasoning_content", "tool_calls", "function_call")
"""Fields beside the content that would be sent in place of what is left of a reply."""
MAX_NESTED = 1_024
"""The number of nested graphs whose conversation is remembered."""
ENDED_EARLY = "the stream ended early"


HeaderSettings: TypeAlias = Callable[[BaseChatModel, Mapping[str, Any], Mapping[str, str]], dict[str, Any]]
"""Adds headers to the settings of a call."""
ANTHROPIC_BETA = "anthropic-beta"


class ModelRequests:
    """The requests of LangChain's models to one store, and the options for them."""

    def __init__(
        self,
        store: Store,
        *,
        model: Provider | str | None = None,
        window: int | None = None,
        output: int | None = None,
        agent: str = DEFAULT_AGENT,
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        self.store, self.output = store, output
        self.pool = PreparerPool(store, agent=agent, **options)
        self._model, self._window = model, window
        self._nested: dict[str, str] = {}

    def find_provider(self, chat_model: BaseChatModel) -> Provider:
        if isinstance(self._model, Provider):
            return self._model
        return _known_provider(self._model or _describe(chat_model), self._window, chat_model)

    def find_conversation(self, config: RunnableConfig, first: BaseMessage, history: Sequence[Message]) -> str:
        """Return the conversation of the running graph. `first` is the first message of its history."""
        configurable = config.get("configurable", {})
        if (thread := configurable.get("thread_id")) is None:
            if not first.id:
                raise InvalidSetting(
                    "conversation: the model was called without a thread, with messages that have no id",
                    fix='Run the graph with {"configurable": {"thread_id": …}}, or name the conversation.',
                )
            return f"langchain-{first.id}"  # the graph gives every message an id
        graphs = str(configurable.get("checkpoint_ns") or "").split("|")[:-1]  # the last name is that of the node
        if not graphs:
            return str(thread)
        outer = [str(thread), *[f"{thread}/{'|'.join(graphs[:depth])}" for depth in range(1, len(graphs))]]
        own = f"{thread}/{'|'.join(graphs)}"
        if own not in self._nested:
            if len(self._nested) >= MAX_NESTED:
                self._nested.clear()
            self._nested[own] = next((name for name in outer if self._has_part_of(name, history)), own)
        return self._nested[own]

    def _has_part_of(self, conversation: str, history: Sequence[Message]) -> bool:
        """Return True if a conversation has messages of a history, or none at all."""
        stored = load_messages(self.store, conversation)
        return not stored or align_histories(stored, history).given > 0 or bool(align_last_messages(stored, history))


class ModelCall:
    """One request. `messages` are what is sent in it; `reply` is set by the caller.

    It is prepared when the block begins, and committed or aborted when the block ends.
    """

    def __init__(
        self,
        requests: ModelRequests,
        chat_model: BaseChatModel,
        messages: Sequence[BaseMessage],
        *,
        conversation: str | None = None,
        system_prompt: str | None = None,
        tools: Sequence[Any] = (),
        output: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.messages: Sequence[BaseMessage] = messages
        self.settings: Mapping[str, Any] = settings or {}
        self.reply: Sequence[BaseMessage] = ()
        self._requests, self._chat_model, self._conversation = requests, chat_model, conversation
        self._system_prompt, self._tools, self._output = system_prompt, tools, output
        self._preparer: RequestPreparer | None = None
        self._prepared: PreparedRequest | None = None

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException as error:
            self._end(error)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end(error)

    async def __aenter__(self) -> Self:
        try:
            await run_blocking(self._begin)
        except BaseException as error:  # also a cancellation after it began
            await run_blocking(partial(self._end, error))
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await run_blocking(partial(self._end, error))

    def _begin(self) -> None:
        requests, history = self._requests, _convert(self.messages)
        conversation = self._conversation or requests.find_conversation(find_config(), self.messages[0], history)
        model = requests.find_provider(self._chat_model)
        pass_headers = _find_header_settings(self._chat_model)
        if pass_headers is None:
            refuse_headers(model, "Set default_headers of the chat model, and pass a model without them to contextc.")
        self._preparer = requests.pool.take(conversation, model)
        self._prepared = self._preparer.prepare(
            history,
            system_prompt=self._system_prompt,
            tools=[as_json(convert_to_openai_tool(tool)) for tool in self._tools],
            output=requests.output or self._output,
        )
        if not self._prepared.is_unchanged:
            self.messages = self._prepared.apply(self.messages, _build, _change)
        if pass_headers is not None and (headers := self._prepared.headers):
            self.settings = pass_headers(self._chat_model, self.settings, headers)

    def _end(self, error: BaseException | None) -> None:
        preparer, prepared = self._preparer, self._prepared
        if preparer is None:
            return
        try:
            if prepared is not None and error is None and self.reply:
                preparer.commit(prepared, _convert(self.reply))
            elif prepared is not None:
                preparer.abort(prepared, ENDED_EARLY if isinstance(error, GeneratorExit) else error or NO_REPLY)
        finally:
            self._requests.pool.give_back(preparer)


def _find_header_settings(chat_model: BaseChatModel) -> HeaderSettings | None:
    """Return the function that adds headers to the settings of a call; None if the model sends none."""
    names = [each.__name__ for each in type(chat_model).__mro__]
    return next((HEADER_SETTINGS[name] for name in names if name in HEADER_SETTINGS), None)


def _add_headers(chat_model: BaseChatModel, settings: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """Return settings for a model whose SDK is OpenAI's."""
    return {**settings, "extra_headers": merge_headers(settings.get("extra_headers"), headers)}


def _add_betas(chat_model: BaseChatModel, settings: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """Return settings for `ChatAnthropic`, which has a setting for flags, and adds some that its tools need."""
    others = {name: value for name, value in headers.items() if name != ANTHROPIC_BETA}
    found = _add_headers(chat_model, settings, others) if others else dict(settings)
    if flags := headers.get(ANTHROPIC_BETA):
        given = settings.get("betas") or getattr(chat_model, "betas", None) or ()
        found["betas"] = [*dict.fromkeys([*given, *flags.split(",")])]
    return found


HEADER_SETTINGS: dict[str, HeaderSettings] = {"BaseChatOpenAI": _add_headers, "ChatAnthropic": _add_betas}
"""Classes of chat models whose calls may have headers, each with the way to pass them."""


def max_tokens(chat_model: BaseChatModel, settings: Mapping[str, Any]) -> int | None:
    """Return how many tokens the answer may have, if the settings of a request or the model state it."""
    facts: Mapping[str, Any] = chat_model._get_ls_params()  # pyright: ignore[reportPrivateUsage]
    found = settings.get("max_tokens") or facts.get("ls_max_tokens")
    return found if isinstance(found, int) and found > 0 else None


def find_config() -> RunnableConfig:
    try:
        return get_config()
    except RuntimeError:  # outside of a graph
        return {}


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


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _convert(messages: Sequence[BaseMessage]) -> list[Message]:
    """Return one of our messages for each of LangChain's."""
    names: dict[str, str] = {}
    return [to_message(_as_data(message), names) for message in messages]


def _as_data(message: BaseMessage) -> JSONObject:
    """Return the fields of a message that a model reads, and its usage. An artifact of a tool may be any object."""
    fields = vars(message)  # a field that a message lacks takes pydantic long to look for
    data = {name: fields.get(name) for name in FIELDS}
    if message.type == "human":
        data["name"] = None  # sent by LangChain; as an author it would change the text
    extra, about = message.additional_kwargs, message.response_metadata
    data["additional_kwargs"] = {"reasoning_content": extra.get("reasoning_content")}
    data["response_metadata"] = {name: about.get(name) for name in METADATA}
    data["usage_metadata"] = fields.get("usage_metadata")
    return as_json(data)


def _change(original: BaseMessage, message: Message) -> BaseMessage:
    """Return a copy of a message with the content that contextc changed: fewer or shorter calls and results."""
    if isinstance(original, AIMessage):
        return _change_reply(original, message)
    parts: Sequence[object] = message.parts
    if isinstance(original, ToolMessage):
        found = message.tool_results[0].content
        parts = [Text(found)] if isinstance(found, str) else found
    return original.model_copy(update={"content": _content(parts, original.content)})


def _change_reply(original: AIMessage, message: Message) -> AIMessage:
    """Return a copy of a reply without reasoning, and with the calls that are left. Models add these to the content."""
    malformed = {call.id for call in message.tool_calls if call.malformed}  # one that was shortened is so no longer
    content = original.content
    changes = {
        "content": content if isinstance(content, str) else _without_reasoning_and_calls(content),
        "tool_calls": _calls(message),
        "invalid_tool_calls": [each for each in original.invalid_tool_calls if each["id"] in malformed],
        "additional_kwargs": {
            name: each for name, each in original.additional_kwargs.items() if name not in CHANGED_FIELDS
        },
    }
    return original.model_copy(update=changes)


def _calls(message: Message) -> list[ToolCallDict]:
    return [
        ToolCallDict(name=call.name, args=dict(call.arguments), id=call.id, type="tool_call")
        for call in message.tool_calls
        if not call.malformed
    ]


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


def _without_reasoning_and_calls(content: list[Any]) -> list[Any]:
    """Return blocks without reasoning and calls. OpenAI refuses ids of items whose reasoning is missing."""
    found: list[Any] = []
    for each in content:
        if not isinstance(each, dict):
            found.append(each)
            continue
        block = cast(JSONObject, each)
        if block.get("type") not in (*REASONING_BLOCKS, *CALL_BLOCK_TYPES):
            has_id = block.get("type") == "text"
            found.append({name: value for name, value in block.items() if not (has_id and name == "id")})
    return found


def _build(message: Message) -> Iterator[BaseMessage]:
    """Return messages for one that contextc inserted: a note, or a result for a call that has none."""
    for result in message.tool_results:
        status = "error" if result.is_error else "success"
        yield ToolMessage(result.text, tool_call_id=result.call_id, name=result.name, status=status)
    if message.role == "assistant":
        yield AIMessage(message.text, tool_calls=_calls(message))
    elif message.role != "tool":
        yield HumanMessage(message.text)  # not every provider has a place for system messages here
