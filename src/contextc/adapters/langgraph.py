"""LangGraph: a chat model whose calls are recorded and fitted into the window, for graphs with nodes of your own.

    from contextc.adapters.langgraph import fit

    llm = fit(init_chat_model("openai:gpt-4.1"), store)

The nodes of the graph use it as before. The state of the graph and its checkpoints are not changed: only the request
to the model is.

The result is a copy of the model. Its class overrides the four methods that each integration of LangChain implements,
so that bindings, streams, callbacks, caches and retries are those of the model itself.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, Unpack, cast

from contextc.adapters.langchain_requests import ModelCall, ModelRequests, find_config, max_tokens
from contextc.compiler.draft import CompilerOptionArguments
from contextc.errors import InvalidSetting
from contextc.providers import Provider
from contextc.store import Store
from contextc.store.message_log import DEFAULT_AGENT

# isort: split
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.outputs.chat_generation import merge_chat_generation_chunks
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from pydantic import PrivateAttr

# Any: bindings pass any settings, and the class of a model is known only when it is given.

__all__ = ["fit"]

ModelT = TypeVar("ModelT", bound=Runnable[Any, Any])


def fit(
    chat_model: ModelT,
    store: Store,
    *,
    conversation: str | Callable[[RunnableConfig], str] | None = None,
    model: Provider | str | None = None,
    window: int | None = None,
    output: int | None = None,
    agent: str = DEFAULT_AGENT,
    **options: Unpack[CompilerOptionArguments],
) -> ModelT:
    """Return a copy of a chat model that records its calls in a store, and fits them into its window.

    `chat_model` may have bound tools and settings. `conversation` is a name, or a function of the config of the
    running node; by default it is the graph's `thread_id`. `model` is "provider:model", if LangChain's model does not
    name a known one. `window` replaces the model's own window. `output` is how many tokens are kept free for an answer;
    by default the model's `max_tokens`. `agent` is the name that replies have in the store. `options` are those of
    `cc.MessageCompiler`.
    """
    requests = ModelRequests(store, model=model, window=window, output=output, agent=agent, **options)
    return cast(ModelT, _fit(chat_model, _Fitting(requests, conversation)))


class _Fitting(NamedTuple):
    requests: ModelRequests
    conversation: str | Callable[[RunnableConfig], str] | None


def _fit(chat_model: object, fitting: _Fitting) -> Runnable[Any, Any]:
    if isinstance(chat_model, RunnableBinding):
        binding = cast("RunnableBinding[Any, Any]", chat_model)
        return binding.model_copy(update={"bound": _fit(binding.bound, fitting)})
    if not isinstance(chat_model, BaseChatModel):
        raise InvalidSetting(
            "chat_model: expected a chat model of LangChain",
            got=type(chat_model).__name__,
            fix="Fit each model before you combine it: fit(one, store).with_fallbacks([fit(another, store)]).",
        )
    found = chat_model.model_copy()
    found.__class__ = _fitted_class(type(chat_model))
    private = {**(chat_model.__pydantic_private__ or {}), "_fitting": fitting}
    object.__setattr__(found, "__pydantic_private__", private)
    return found


@cache
def _fitted_class(kind: type[BaseChatModel]) -> type[BaseChatModel]:
    """Return a class of chat models whose calls are prepared. Its name is that of the given one, for traces."""

    class Fitted(kind):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
        _fitting: _Fitting = PrivateAttr()

        def _generate(
            self,
            messages: list[BaseMessage],
            stop: list[str] | None = None,
            run_manager: CallbackManagerForLLMRun | None = None,
            **settings: Any,
        ) -> ChatResult:
            with _open(self, self._fitting, messages, settings) as call:
                result = super()._generate(call.messages, stop=stop, run_manager=run_manager, **call.settings)
                call.reply = _list_reply(result.generations[:1], result.llm_output)
                return result

        async def _agenerate(
            self,
            messages: list[BaseMessage],
            stop: list[str] | None = None,
            run_manager: AsyncCallbackManagerForLLMRun | None = None,
            **settings: Any,
        ) -> ChatResult:
            async with _open(self, self._fitting, messages, settings) as call:
                result = await super()._agenerate(call.messages, stop=stop, run_manager=run_manager, **call.settings)
                call.reply = _list_reply(result.generations[:1], result.llm_output)
                return result

        def _stream(
            self,
            messages: list[BaseMessage],
            stop: list[str] | None = None,
            run_manager: CallbackManagerForLLMRun | None = None,
            **settings: Any,
        ) -> Iterator[ChatGenerationChunk]:
            with _open(self, self._fitting, messages, settings) as call:
                chunks: list[ChatGenerationChunk] = []
                for chunk in super()._stream(call.messages, stop=stop, run_manager=run_manager, **call.settings):
                    chunks.append(chunk)
                    yield chunk
                call.reply = _list_reply([merge_chat_generation_chunks(chunks)])

        async def _astream(
            self,
            messages: list[BaseMessage],
            stop: list[str] | None = None,
            run_manager: AsyncCallbackManagerForLLMRun | None = None,
            **settings: Any,
        ) -> AsyncIterator[ChatGenerationChunk]:
            async with _open(self, self._fitting, messages, settings) as call:
                chunks: list[ChatGenerationChunk] = []
                async for chunk in super()._astream(call.messages, stop=stop, run_manager=run_manager, **call.settings):
                    chunks.append(chunk)
                    yield chunk
                call.reply = _list_reply([merge_chat_generation_chunks(chunks)])

    found: Any = Fitted
    found.__name__, found.__qualname__, found.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    for name in ("_stream", "_astream"):
        if getattr(kind, name) is getattr(BaseChatModel, name):
            setattr(found, name, getattr(BaseChatModel, name))  # LangChain asks by identity if a model streams
    for name in ("_stream_chat_model_events", "_astream_chat_model_events"):
        setattr(found, name, None)  # a model's own event stream; LangChain makes one of `_stream` then
    return found


# ── one call ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Prepared(list[BaseMessage]):
    """The messages of a request that is prepared. Models implement some of the four methods by calling another one."""


class _Call(ModelCall):
    """A request whose system messages are at the beginning of its messages."""

    def __init__(
        self, fitting: _Fitting, chat_model: BaseChatModel, messages: Sequence[BaseMessage], settings: Mapping[str, Any]
    ) -> None:
        count = next((at for at, each in enumerate(messages) if not isinstance(each, SystemMessage)), 0)
        self._system, named = messages[:count], fitting.conversation
        super().__init__(
            fitting.requests,
            chat_model,
            messages[count:],
            conversation=named(find_config()) if callable(named) else named,
            system_prompt="\n\n".join([each.text for each in self._system]) or None,
            tools=settings.get("tools") or (),
            output=max_tokens(chat_model, settings),
            settings=settings,
        )

    def _begin(self) -> None:
        super()._begin()
        self.messages = _Prepared([*self._system, *self.messages])


def _open(
    chat_model: BaseChatModel, fitting: _Fitting, messages: list[BaseMessage], settings: Mapping[str, Any]
) -> Any:
    if isinstance(messages, _Prepared):
        return nullcontext(SimpleNamespace(messages=messages, settings=settings))
    return _Call(fitting, chat_model, messages, settings)


def _list_reply(
    generations: Sequence[ChatGeneration | None], facts: Mapping[str, Any] | None = None
) -> list[BaseMessage]:
    """Return the message of a reply, with what LangChain adds to it afterwards."""
    return [
        each.message.model_copy(
            update={
                "response_metadata": {
                    **(facts or {}),
                    **(each.generation_info or {}),
                    **each.message.response_metadata,
                }
            }
        )
        for each in generations
        if each is not None
    ]
