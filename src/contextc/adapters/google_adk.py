"""Google's ADK: a plugin that records an agent's conversations and fits its requests into the window.

    from contextc.adapters.google_adk import ContextcPlugin

    runner = InMemoryRunner(agent=agent, plugins=[ContextcPlugin(store)])

The events of the session are not changed: only the request to the model is.
"""

from functools import partial
from typing import Any, Unpack

from contextc._worker_threads import run_blocking
from contextc.adapters.request_preparation import require_package
from contextc.adapters.wire_requests import WireRequest, WireRequests, find_provider
from contextc.compiler.options import CompilerOptionArguments
from contextc.messages import Usage
from contextc.providers import Provider
from contextc.store import Store
from contextc.store.conversation_types import DEFAULT_AGENT

require_package("google.adk.plugins.base_plugin", "google-adk", "2.0")

from google.adk.agents.callback_context import CallbackContext  # noqa: E402
from google.adk.models.llm_request import LlmRequest  # noqa: E402
from google.adk.models.llm_response import LlmResponse  # noqa: E402
from google.adk.plugins.base_plugin import BasePlugin  # noqa: E402
from google.genai import types  # noqa: E402

# Any: JSON of google-genai's types.

__all__ = ["ContextcPlugin"]

NEVER_ENDED = "no reply was reported"


class ContextcPlugin(BasePlugin):
    """Records the conversations of a runner in a store, and fits each request into the model's window."""

    def __init__(
        self,
        store: Store,
        *,
        model: Provider | None = None,
        window: int | None = None,
        output: int | None = None,
        agent: str = DEFAULT_AGENT,
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        """Create the plugin. A conversation is a session and an agent: `SESSION/AGENT` for agents below the root."""
        super().__init__(name="contextc")
        self._requests = WireRequests(store, "gemini", agent=agent, **options)
        self._model, self._window, self._output = model, window, output
        self._open: dict[tuple[str, str], WireRequest] = {}

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Record what is new, and replace the contents of the request if they had to be cut."""
        key = callback_context.invocation_id, callback_context.agent_name
        if (left := self._open.pop(key, None)) is not None:
            await run_blocking(partial(self._requests.abort, left, NEVER_ENDED))
        config = llm_request.config
        begin = partial(
            self._requests.begin,
            _find_conversation(callback_context),
            self._model or find_provider("gemini", llm_request.model or "unknown", self._window),
            [_as_json(content) for content in llm_request.contents],
            system_prompt=_text(config.system_instruction),
            tools=[tool for each in config.tools or () for tool in _list_tools(each)],
            output=self._output or config.max_output_tokens,
        )
        request = self._open[key] = await run_blocking(begin)
        if request.messages is not None:
            llm_request.contents = [types.Content.model_validate(each) for each in request.messages]

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """Store the reply when it is complete."""
        if llm_response.partial:
            return
        request = self._open.pop((callback_context.invocation_id, callback_context.agent_name), None)
        if request is None:
            return
        content = llm_response.content
        if content is None or not content.parts:
            why = llm_response.error_message or llm_response.error_code or "the reply is empty"
            await run_blocking(partial(self._requests.abort, request, str(why)))
            return
        reply = self._requests.decode_message(_as_json(content))
        await run_blocking(partial(self._requests.commit, request, reply, _usage(llm_response.usage_metadata)))

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        """Store that the request got no reply. The error is raised as it is."""
        request = self._open.pop((callback_context.invocation_id, callback_context.agent_name), None)
        if request is not None:
            await run_blocking(partial(self._requests.abort, request, error))


def _find_conversation(context: CallbackContext) -> str:
    session, root = context.session.id, context._invocation_context.agent.root_agent.name  # pyright: ignore[reportPrivateUsage]
    return session if context.agent_name == root else f"{session}/{context.agent_name}"


def _as_json(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def _text(instruction: Any) -> str | None:
    if instruction is None or isinstance(instruction, str):
        return instruction
    parts = getattr(instruction, "parts", None) or [instruction]
    return "".join([getattr(part, "text", "") or "" for part in parts]) or None


def _list_tools(tool: Any) -> list[Any]:
    found: list[Any] = []
    for each in getattr(tool, "function_declarations", None) or ():
        plain = _as_json(each)
        schema = plain.get("parametersJsonSchema") or plain.get("parameters") or {"type": "object", "properties": {}}
        function = {"name": plain["name"], "description": plain.get("description", ""), "parameters": schema}
        found.append({"type": "function", "function": function})
    return found


def _usage(counts: types.GenerateContentResponseUsageMetadata | None) -> Usage | None:
    if counts is None:
        return None
    thoughts = counts.thoughts_token_count or 0
    return Usage(
        input=counts.prompt_token_count or 0,
        output=(counts.candidates_token_count or 0) + thoughts,
        cache_read=counts.cached_content_token_count or 0,
        reasoning=thoughts,
    )
