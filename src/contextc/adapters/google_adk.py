"""Google's ADK: a plugin that records an agent's conversations and fits its requests into the window.

    from contextc.adapters.google_adk import ContextcPlugin

    runner = InMemoryRunner(agent=agent, plugins=[ContextcPlugin(store)])

The events of the session are not changed: only the request to the model is.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Unpack
from weakref import ReferenceType, ref

from msgspec.structs import replace

from contextc._worker_threads import run_blocking
from contextc.adapters.request_preparation import (
    NO_REPLY,
    WireRequest,
    WireRequestPreparer,
    choose_model,
    find_provider,
    merge_headers,
    refuse_headers,
    require_package,
)
from contextc.compiler.draft import CompilerOptionArguments
from contextc.errors import UnknownModel
from contextc.messages import Message, Usage
from contextc.models import model as find_model
from contextc.providers import Provider, provider_names
from contextc.store import Store
from contextc.store.message_log import DEFAULT_AGENT
from contextc.tools.definitions import Tool

require_package("google.adk.plugins.base_plugin", "google-adk", "2.0")

from google.adk.agents.callback_context import CallbackContext  # noqa: E402
from google.adk.agents.invocation_context import InvocationContext  # noqa: E402
from google.adk.events.event import Event  # noqa: E402
from google.adk.models.google_llm import Gemini  # noqa: E402
from google.adk.models.llm_request import LlmRequest  # noqa: E402
from google.adk.models.llm_response import LlmResponse  # noqa: E402
from google.adk.plugins.base_plugin import BasePlugin  # noqa: E402
from google.genai import types  # noqa: E402
from pydantic import BaseModel  # noqa: E402

# Any: JSON of google-genai's types, and attributes that only some of ADK's models have.

__all__ = ["ContextcPlugin"]

PROVIDERS = {"google": "gemini", "vertex_ai": "gemini"}
"""Names of vendors and of litellm's providers that are others here."""
OWN_ID = "adk-"
"""The beginning of ids that ADK gives to calls without one. It does not send them to Gemini."""
MARKS = ("<<<BEGIN_SYSTEM_INSTRUCTION>>>", "<PAST_CONVERSATIONS>")
"""Contained in what ADK adds to a request: the instruction, if there is a static one too, and preloaded memory."""
BYTES_PER_TOKEN = 3
MAX_CONVERSATIONS = 10_000
"""Maximum number of conversations whose added tokens are remembered."""
EMPTY_REPLY = "the reply is empty"


class OpenRequest(NamedTuple):
    """A request without a reply so far, and the run of an agent that sends it. `added` are tokens that ADK added."""

    request: WireRequest
    added: int
    invocation_id: str
    context: ReferenceType[InvocationContext]


class ContextcPlugin(BasePlugin):
    """Records the conversations of a runner in a store, and fits each request into the model's window.

    Put it last in the list of plugins, so that it gets the request as it is sent.
    """

    def __init__(
        self,
        store: Store,
        *,
        conversation: Callable[[CallbackContext], str] | None = None,
        model: Provider | str | None = None,
        window: int | None = None,
        output: int | None = None,
        agent: str = DEFAULT_AGENT,
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        """Create the plugin.

        `conversation` returns the name of a conversation; by default it is the id of the session, `SESSION/AGENT` for
        agents below the root, and `SESSION/AGENT@CALL` for those that are called like tools. `model` is
        "provider:model", if ADK's name of the model is not a known one. `window` replaces the model's own window.
        `output` is how many tokens are kept free for an answer; by default the `max_output_tokens` of the request.
        `agent` is the name that replies have in the store. `options` are those of `cc.MessageCompiler`.
        """
        super().__init__(name="contextc")
        self._requests = WireRequestPreparer(store, "gemini", agent=agent, **options)
        self._conversation = conversation or _name_conversation
        self._model = choose_model(model, window) if model is not None else None
        self._window, self._output = window, output
        self._open: dict[int, OpenRequest] = {}
        self._added: dict[str, int] = {}
        """The tokens that ADK added to the last request of a conversation. The provider's count includes them."""

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Record what is new, and replace the contents of the request if they had to be cut."""
        context = callback_context._invocation_context  # pyright: ignore[reportPrivateUsage]
        await self._abort(lambda each: (run := each.context()) is None or run is context, NO_REPLY)
        config: Any = llm_request.config  # its fields have types that google-genai does not name
        start, end = _find_transient(llm_request.contents, callback_context.session.events)
        transient, following = llm_request.contents[start:end], llm_request.contents[end:]
        name, added = self._conversation(callback_context), _estimate_tokens(transient)
        model = self._model or _find_provider(llm_request.model or "unknown", self._window)
        takes_headers = isinstance(getattr(context.agent, "canonical_model", None), Gemini)
        if not takes_headers:
            refuse_headers(model)
        begin = partial(
            self._requests.begin,
            name,
            _leave_room(model, added - self._added.get(name, 0)),
            [_as_json(content) for content in (*llm_request.contents[:start], *following)],
            system_prompt=_text(config.system_instruction),
            tools=self._list_tools(config.tools or ()),
            output=self._output or _find_output(context, llm_request),
        )
        request = await run_blocking(begin)
        self._open[id(context)] = OpenRequest(request, added, context.invocation_id, ref(context))
        if takes_headers and (headers := request.prepared.headers):
            options = config.http_options or types.HttpOptions()
            sent = merge_headers(options.headers, headers)
            config.http_options = options.model_copy(update={"headers": sent})
        if request.messages is not None:
            contents = [types.Content.model_validate(each) for each in request.messages]
            at = max(len(contents) - len(following), _start_of_user_contents(contents))
            llm_request.contents = [*contents[:at], *transient, *contents[at:]]

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """Store the reply when it is complete."""
        if llm_response.partial or (found := self._take(callback_context)) is None:
            return
        request = found.request
        if llm_response.content is None or not llm_response.content.parts:
            why = llm_response.error_message or llm_response.error_code or EMPTY_REPLY
            await run_blocking(partial(self._requests.abort, request, str(why)))
            return
        agent = callback_context._invocation_context.agent  # pyright: ignore[reportPrivateUsage]
        reply = self._decode_reply(llm_response, getattr(agent, "canonical_model", None))
        self._added.pop(request.preparer.conversation, None)
        if found.added:
            self._added[request.preparer.conversation] = found.added
            if len(self._added) > MAX_CONVERSATIONS:
                del self._added[next(iter(self._added))]
        await run_blocking(partial(self._requests.commit, request, reply))

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        """Store that the request got no reply. The error is raised as it is."""
        if (found := self._take(callback_context)) is not None:
            await run_blocking(partial(self._requests.abort, found.request, error))

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Store that requests got no reply, if the run was ended before."""
        await self._abort(lambda each: each.invocation_id == invocation_context.invocation_id, NO_REPLY)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        """Store that requests got no reply, if the run failed before they were sent."""
        await self._abort(lambda each: each.invocation_id == invocation_context.invocation_id, error)

    async def close(self) -> None:
        """Store that requests of cancelled runs got no reply. Other runners may use the plugin: it stays open."""
        await self._abort(lambda each: each.context() is None, NO_REPLY)

    def _take(self, callback_context: CallbackContext) -> OpenRequest | None:
        """Remove the open request of an agent's run, and return it; None if there is none."""
        context = callback_context._invocation_context  # pyright: ignore[reportPrivateUsage]
        found = self._open.get(id(context))
        if found is None or found.context() is not context:
            return None
        return self._open.pop(id(context))

    async def _abort(self, condition: Callable[[OpenRequest], bool], error: BaseException | str) -> None:
        """Abort open requests. Those of a cancelled run are found by its context, which exists no longer."""
        found = [self._open.pop(key) for key, each in list(self._open.items()) if condition(each)]
        for each in found:
            await run_blocking(partial(self._requests.abort, each.request, error))

    def _list_tools(self, tools: Sequence[Any]) -> list[Tool]:
        declared = [_as_json(each) for each in tools if isinstance(each, types.Tool)]
        request = self._requests.formatter.decode_request({"contents": [], "tools": declared})
        return [each for each in request.tools if isinstance(each, Tool)]

    def _decode_reply(self, response: LlmResponse, model: object) -> Message:
        content = _as_json(response.content)
        if isinstance(model, Gemini) and not model.use_interactions_api:
            for part in content.get("parts") or ():
                if str(part.get("functionCall", {}).get("id")).startswith(OWN_ID):
                    del part["functionCall"]["id"]
        candidate = {"content": content}
        if response.finish_reason is not None:
            candidate["finishReason"] = response.finish_reason.value
        reply = {"candidates": [candidate], "modelVersion": response.model_version}
        return replace(self._requests.formatter.decode_reply(reply), usage=_usage(response.usage_metadata))


def _name_conversation(context: CallbackContext) -> str:
    run, name = context._invocation_context, context.agent_name  # pyright: ignore[reportPrivateUsage]
    if getattr(run.agent, "root_agent", run.agent) is run.agent and "/" not in (run.node_path or ""):
        return context.session.id
    last = (run.branch or "").rpartition(".")[2]  # AGENT@CALL, if the agent is a tool of another one
    return f"{context.session.id}/{last if last.startswith(f'{name}@') else name}"


def _find_transient(contents: Sequence[types.Content], events: Sequence[Event]) -> tuple[int, int]:
    """Return where contents are that ADK adds to this request only: they are no part of the history.

    They come before what the user wrote last, or after the last results. The next request has them in another place.
    """
    start = end = _start_of_user_contents(contents)
    while end < len(contents) and _is_marked(contents[end]):
        if any(event.content and event.content.parts == contents[end].parts for event in events):
            break  # the user wrote it
        end += 1
    return start, end


def _is_marked(content: types.Content) -> bool:
    return any(mark in (part.text or "") for part in content.parts or () for mark in MARKS)


def _start_of_user_contents(contents: Sequence[types.Content]) -> int:
    """Return the index after the last content of the model, and after the last results."""
    for at in range(len(contents), 0, -1):
        last = contents[at - 1]
        if last.role != "user" or any(part.function_response for part in last.parts or ()):
            return at
    return 0


def _estimate_tokens(contents: Sequence[types.Content]) -> int:
    return sum(len((part.text or "").encode()) // BYTES_PER_TOKEN for each in contents for part in each.parts or ())


def _leave_room(model: Provider, tokens: int) -> Provider:
    """Return a model with a smaller window, down to half of it."""
    if tokens <= 0:
        return model
    window = model.model.window
    return replace(model, model=replace(model.model, window=max(window - tokens, window // 2)))


def _find_provider(name: str, window: int | None) -> Provider:
    """Return the provider of a model by its name: of a vendor, `PROVIDER/MODEL` of litellm, or a path of Vertex AI."""
    *path, model = name.split("/")
    vendor = path[0] if path and path[0] != "projects" else _find_vendor(model)
    known = PROVIDERS.get(vendor, vendor.replace("_", "-"))
    return find_provider(known if path or known in provider_names() else "gemini", model, window)


def _find_vendor(model: str) -> str:
    try:
        return find_model(model).vendor
    except UnknownModel:
        return "google"


def _find_output(context: InvocationContext, request: LlmRequest) -> int | None:
    model = getattr(context.agent, "canonical_model", None)
    return request.config.max_output_tokens or getattr(model, "max_tokens", None)


def _as_json(value: BaseModel | None) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True) if value is not None else {}


def _text(instruction: Any) -> str | None:
    if instruction is None or isinstance(instruction, str):
        return instruction
    parts = getattr(instruction, "parts", None) or [instruction]
    return "".join([getattr(part, "text", "") or "" for part in parts]) or None


def _usage(counts: types.GenerateContentResponseUsageMetadata | None) -> Usage | None:
    if counts is None:
        return None
    input = (counts.prompt_token_count or 0) + (counts.tool_use_prompt_token_count or 0)
    thoughts = counts.thoughts_token_count or 0
    output = (counts.candidates_token_count or 0) + thoughts
    return Usage(
        input=input,
        output=counts.total_token_count - input if counts.total_token_count else output,  # OpenAI counts thoughts twice
        cache_read=counts.cached_content_token_count or 0,
        cache_write=getattr(counts, "cache_creation_input_tokens", None) or 0,  # ADK sets it for Anthropic
        reasoning=thoughts,
    )
