"""litellm: its `completion` and `acompletion`, recorded in a store and within the model's window.

    from contextc.adapters.litellm import Completions

    completions = Completions(store)
    response = completions.completion(conversation="demo", model="anthropic/claude-opus-5-5", messages=messages)

The list of messages stays the caller's own, and is not changed.
"""

from collections.abc import AsyncGenerator, Generator
from functools import partial
from typing import Any, Unpack

from contextc._worker_threads import run_blocking
from contextc.adapters.request_preparation import require_package
from contextc.adapters.wire_requests import WireRequest, WireRequests, find_provider
from contextc.compiler.options import CompilerOptionArguments
from contextc.providers import Provider
from contextc.store import Store
from contextc.store.conversation_types import DEFAULT_AGENT

require_package("litellm", "litellm", "1.80")

import litellm  # noqa: E402

# Any: litellm's functions take and return untyped values.

__all__ = ["Completions"]

PROVIDERS = {"openai": "openai-chat", "azure": "openai-chat", "vertex_ai": "gemini"}
"""Names of providers that are others here."""
SYSTEM_ROLES = ("system", "developer")
OWN_FIELD = "provider_specific_fields"
"""A field of litellm's replies that OpenAI refuses."""
NO_REPLY = "the stream ended early"


class Completions:
    """Calls litellm. Each call names its conversation, and passes all other arguments on."""

    def __init__(
        self,
        store: Store,
        *,
        window: int | None = None,
        agent: str = DEFAULT_AGENT,
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        self._requests, self._window = WireRequests(store, "openai_chat", agent=agent, **options), window

    def completion(self, *, conversation: str, model: str, messages: list[Any], **arguments: Any) -> Any:
        """Call `litellm.completion`. With `stream=True`, the reply is stored when its stream has ended."""
        request, sent = self._begin(conversation, model, messages, arguments)
        try:
            response: Any = litellm.completion(model=model, messages=sent, **arguments)
        except BaseException as error:
            self._requests.abort(request, error)
            raise
        if arguments.get("stream"):
            return self._stream(request, response)
        self._commit(request, response)
        return response

    async def acompletion(self, *, conversation: str, model: str, messages: list[Any], **arguments: Any) -> Any:
        """Call `litellm.acompletion`, in the same way. The store is called on worker threads."""
        request, sent = await run_blocking(partial(self._begin, conversation, model, messages, arguments))
        try:
            response: Any = await litellm.acompletion(model=model, messages=sent, **arguments)
        except BaseException as error:
            await run_blocking(partial(self._requests.abort, request, error))
            raise
        if arguments.get("stream"):
            return self._astream(request, response)
        await run_blocking(partial(self._commit, request, response))
        return response

    def _begin(
        self, conversation: str, model: str, messages: list[Any], arguments: dict[str, Any]
    ) -> tuple[WireRequest, list[Any]]:
        given = [each if isinstance(each, dict) else each.model_dump(exclude_none=True) for each in messages]
        given = [{name: value for name, value in each.items() if name != OWN_FIELD} for each in given]
        count = next((at for at, each in enumerate(given) if each.get("role") not in SYSTEM_ROLES), len(given))
        request = self._requests.begin(
            conversation,
            _find_provider(model, self._window),
            given[count:],
            system_prompt="\n\n".join([_text(each.get("content")) for each in given[:count]]) or None,
            tools=arguments.get("tools") or (),
            output=arguments.get("max_completion_tokens") or arguments.get("max_tokens"),
        )
        return request, messages if request.messages is None else [*messages[:count], *request.messages]

    def _commit(self, request: WireRequest, response: Any) -> None:
        reply = self._requests.formatter.decode_reply(response.model_dump(mode="json", exclude_none=True))
        self._requests.commit(request, reply)

    def _stream(self, request: WireRequest, response: Any) -> Generator[Any]:
        chunks: list[Any] = []
        is_complete = False
        try:
            for chunk in response:
                chunks.append(chunk)
                yield chunk
            is_complete = True
        finally:
            self._end(request, chunks, is_complete)

    async def _astream(self, request: WireRequest, response: Any) -> AsyncGenerator[Any]:
        chunks: list[Any] = []
        is_complete = False
        try:
            async for chunk in response:
                chunks.append(chunk)
                yield chunk
            is_complete = True
        finally:
            await run_blocking(partial(self._end, request, chunks, is_complete))

    def _end(self, request: WireRequest, chunks: list[Any], is_complete: bool) -> None:
        whole: Any = litellm.stream_chunk_builder(chunks) if is_complete else None
        if whole is None:
            self._requests.abort(request, NO_REPLY)
        else:
            self._commit(request, whole)


def _find_provider(model: str, window: int | None) -> Provider:
    name, vendor, _, _ = litellm.get_llm_provider(model)
    try:
        known = litellm.get_model_info(model).get("max_input_tokens")
    except Exception:  # litellm raises a plain Exception for a model that it does not know
        known = None
    return find_provider(PROVIDERS.get(vendor, vendor.replace("_", "-")), name, window, known)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join([each.get("text", "") for each in content or ()])
