"""litellm: its `completion` and `acompletion`, recorded in a store and within the model's window.

    from contextc.adapters.litellm import Completions

    completions = Completions(store)
    response = completions.completion(conversation="demo", model="anthropic/claude-opus-5-5", messages=messages)

The list of messages stays the caller's own, and is not changed. In another process, `completions.load("demo")` returns
it.
"""

from collections.abc import AsyncGenerator, Generator
from functools import partial
from typing import Any, Unpack, cast

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc._worker_threads import run_blocking
from contextc.adapters.request_preparation import (
    WireRequest,
    WireRequestPreparer,
    find_provider,
    merge_headers,
    require_package,
)
from contextc.compiler.draft import CompilerOptionArguments
from contextc.providers import Provider
from contextc.store import Store
from contextc.store.message_log import DEFAULT_AGENT

require_package("litellm", "litellm", "1.80")

import litellm  # noqa: E402

# Any: litellm's functions take and return untyped values.

__all__ = ["Completions"]

PROVIDERS = {"openai": "openai-chat", "azure": "openai-chat", "vertex_ai": "gemini"}
"""Names of providers that are others here."""
SYSTEM_ROLES = ("system", "developer")
REPLY_FIELDS = ("annotations", "provider_specific_fields")
"""Fields of litellm's replies that a request does not have."""
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
        self._requests, self._window = WireRequestPreparer(store, "openai_chat", agent=agent, **options), window

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
        given = [_plain(each) for each in messages]
        count = next((at for at, each in enumerate(given) if each.get("role") not in SYSTEM_ROLES), len(given))
        request = self._requests.begin(
            conversation,
            _find_provider(model, self._window, arguments),
            given[count:],
            system_prompt="\n\n".join([_text(each.get("content")) for each in given[:count]]) or None,
            tools=arguments.get("tools") or (),
            output=arguments.get("max_completion_tokens") or arguments.get("max_tokens"),
        )
        if headers := request.prepared.headers:
            arguments["extra_headers"] = merge_headers(arguments.get("extra_headers"), headers)
        return request, messages if request.messages is None else [*messages[:count], *request.messages]

    def load(self, conversation: str) -> list[JSONObject]:
        """Return the recorded messages of a conversation as litellm takes them, without the system prompt."""
        return self._requests.load(conversation)

    def _commit(self, request: WireRequest, response: Any, *, has_usage: bool = True) -> None:
        whole = response.model_dump(mode="json", exclude_none=True)
        reply = self._requests.formatter.decode_reply(whole)
        # The message as the caller sends it back: with fields of other vendors, such as `thinking_blocks`.
        sent_back = self._requests.decode_message(_plain(whole["choices"][0]["message"]))
        reply = replace(reply, parts=sent_back.parts, extra={**(reply.extra or {}), **(sent_back.extra or {})} or None)
        self._requests.commit(request, reply if has_usage else replace(reply, usage=None))

    def _stream(self, request: WireRequest, response: Any) -> Generator[Any]:
        chunks: list[Any] = []
        try:
            for chunk in response:
                chunks.append(chunk)
                yield chunk
        except BaseException as error:
            self._requests.abort(request, _reason(error))
            raise
        self._commit_stream(request, chunks)

    async def _astream(self, request: WireRequest, response: Any) -> AsyncGenerator[Any]:
        chunks: list[Any] = []
        try:
            async for chunk in response:
                chunks.append(chunk)
                yield chunk
        except BaseException as error:
            await run_blocking(partial(self._requests.abort, request, _reason(error)))
            raise
        await run_blocking(partial(self._commit_stream, request, chunks))

    def _commit_stream(self, request: WireRequest, chunks: list[Any]) -> None:
        whole: Any = litellm.stream_chunk_builder(chunks)  # pyright: ignore[reportUnknownMemberType]
        if whole is None:
            self._requests.abort(request, NO_REPLY)
        else:  # without usage in the stream, litellm estimates it
            self._commit(request, whole, has_usage=any(getattr(chunk, "usage", None) for chunk in chunks))


def _reason(error: BaseException) -> BaseException | str:
    return NO_REPLY if isinstance(error, GeneratorExit) else error


def _plain(message: Any) -> JSONObject:
    """Return a message as a dict, without fields that only a reply has."""
    given = cast(JSONObject, message) if isinstance(message, dict) else message.model_dump(exclude_none=True)
    return {name: value for name, value in given.items() if name not in REPLY_FIELDS}


def _find_provider(model: str, window: int | None, arguments: dict[str, Any]) -> Provider:
    given = {name: arguments.get(name) for name in ("custom_llm_provider", "api_base", "api_key")}
    name, vendor, _, _ = litellm.get_llm_provider(model, **given)
    try:
        known = litellm.get_model_info(model).get("max_input_tokens")
    except Exception:  # litellm raises a plain Exception for a model that it does not know
        known = None
    return find_provider(PROVIDERS.get(vendor, vendor.replace("_", "-")), name, window, known)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join([each.get("text", "") for each in content or ()])
