"""OpenAI Agents: a `Session` on any store, and requests that fit the window.

    session = Session("user-1", "chat.db")
    fitter = session.fitter(window=128_000)
    result = await Runner.run(
        agent, "Hello", session=session, hooks=fitter, run_config=RunConfig(call_model_input_filter=fitter)
    )

`Session` implements the SDK's session protocol. Nothing is deleted: `pop_item` and `clear_session` begin a branch.

`RequestFitter` is an input filter and run hooks in one object. As a filter, it records the request and cuts it to the
window. As hooks, it gets the reported usage. Without a session, it records the conversation itself:
`RequestFitter(store, "conversation", "openai:gpt-5.4")`.

A request whose input is not the recorded history is compiled in a fork of the conversation: a handoff filter removed
items, or another run added some. The session itself then stays as it is.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack, cast

from contextc._installed_packages import importing
from contextc._json import JSONObject
from contextc._worker_threads import run_blocking
from contextc.adapters.request_preparation import (
    HistoryRewritten,
    PreparedRequest,
    RequestPreparer,
    refuse_headers,
)
from contextc.adapters.responses_items import decode_items, encode_items, load_items
from contextc.compiler.draft import CompilerOptionArguments
from contextc.errors import UnknownConversation, UnknownModel
from contextc.formats.base import as_json
from contextc.messages import Message, Usage
from contextc.providers import Provider, provider
from contextc.store import Store, message_log, open_store
from contextc.store.branches import create_branch
from contextc.store.message_log import find_tip, load_context_start
from contextc.store.message_matching import list_part_keys
from contextc.store.transaction_engine import Transaction
from contextc.tools.definitions import Tool

with importing("openai-agents", at_least="0.23"):
    from agents import FunctionTool, ModelResponse, RunHooks, TResponseInputItem
    from agents.memory import SessionSettings
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
    from agents.models import get_default_model
    from agents.run import CallModelData, ModelInputData

if TYPE_CHECKING:
    from agents import Agent, RunContextWrapper

NOT_SAVED = "the reply was not added to the session"


class Session:
    """A conversation of a store as a session of the SDK. Several processes may use it at a time."""

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: Store | str | os.PathLike[str] = "memory:",
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """Create a session. `session_id` is the name of the conversation; `store` is a store or its address."""
        self.session_id = session_id
        self.session_settings = (
            SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        )
        self._owns_store = isinstance(store, str | os.PathLike)
        self.store: Store = open_store(store) if isinstance(store, str | os.PathLike) else store
        self._tool_names: dict[str, str] = {}

    def fitter(
        self,
        model: Provider | str | None = None,
        *,
        window: int | None = None,
        **options: Unpack[CompilerOptionArguments],
    ) -> "RequestFitter":
        """Return an input filter with hooks for runs with this session. `model` is by default that of the agent."""
        return RequestFitter(self.store, self.session_id, model, window=window, session=self, **options)

    def close(self) -> None:
        """Close the store if the session opened it."""
        if self._owns_store:
            self.store.close()

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items in order; with a `limit`, the latest ones."""
        self._enter_run()
        count = resolve_session_limit(limit, self.session_settings)
        return cast(list[TResponseInputItem], await run_blocking(self._load_items, count))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items, all or none. A reply to a fitted request is stored with that request."""
        await run_blocking(self._add_items, [as_json(item) for item in items], self._enter_run())

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item, and return it. In the store, it stays on its branch."""
        return cast(TResponseInputItem | None, await run_blocking(self._pop_item))

    async def clear_session(self) -> None:
        """Remove all items. In the store, they stay on their branch."""
        await run_blocking(self._clear)

    def _enter_run(self) -> "_Run":
        """Return the run of this task. The SDK makes requests in this task, or in tasks that it starts from it."""
        run = _current_run.get()
        if run is None or run.session is not self or run.task is not asyncio.current_task():
            run = _Run(self)
            _current_run.set(run)
        return run

    # ── the store ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _load_items(self, limit: int | None) -> list[JSONObject]:
        if limit == 0:
            return []
        last = limit if limit is not None and limit > 0 else None  # a negative limit is none, as in SQLite
        try:
            start = self.store.conversation(self.session_id).context_start
            messages = self.store.load(self.session_id, after=start, last=last)
        except UnknownConversation:
            return []
        found = [item for message in messages if _is_visible(message) for item in load_items(message, self.store.blob)]
        return found if last is None else found[-last:]

    def _add_items(self, items: Sequence[JSONObject], run: "_Run") -> None:
        messages = [each.message for each in decode_items(items, self._tool_names)]
        self.store.extend(self.session_id, run.take_messages(messages))

    def _pop_item(self) -> JSONObject | None:
        def work(tx: Transaction) -> JSONObject | None:
            here = find_tip(tx, self.session_id, True)
            if here is None:
                return None
            start = load_context_start(tx, here.branch, here.seq)
            for seq in range(here.seq, start, -1):
                (message,) = message_log.load_between(tx, here.branch, seq - 1, seq)
                items = load_items(message, partial(_load_blob, tx)) if _is_visible(message) else []
                if not items:
                    continue
                tip = create_branch(tx, self.session_id, here, seq - 1, is_current=True)
                rest = [
                    message_log.prepare_entry(message_log.validate_for(each.message, self.session_id))
                    for each in decode_items(items[:-1])
                ]
                message_log.insert_messages(tx, self.session_id, tip, rest)
                return items[-1]
            return None

        return self.store.write(work)

    def _clear(self) -> None:
        with suppress(UnknownConversation):
            self.store.rewind(self.session_id, 0)


def _load_blob(tx: Transaction, name: str) -> bytes:
    row = tx.row("SELECT data FROM main.blob WHERE name = ?", name)
    return bytes(row[0]) if row is not None else b""


def _is_visible(message: Message) -> bool:
    return message.status == "sent" and not message.redacted


class RequestFitter(RunHooks[Any]):
    """Fits the requests of runs to the window, and records them with their usage.

    Pass it as `call_model_input_filter` and as `hooks`. Without `hooks`, usage and costs are unknown.
    """

    def __init__(
        self,
        store: Store,
        conversation: str,
        model: Provider | str | None = None,
        *,
        window: int | None = None,
        session: Session | None = None,
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        """Create a filter. With `session`, runs must use that session; otherwise the filter records the messages."""
        self.store, self.conversation, self.session = store, conversation, session
        self._model, self._window, self._options = model, window, options
        self._run = _Run(session)

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Record the request, and return the input that fits."""
        given = data.model_data
        items = await run_blocking(partial(self._find_run().fit, self, given.input, given.instructions, data.agent))
        return ModelInputData(input=items, instructions=given.instructions)

    async def on_llm_end(self, context: "RunContextWrapper[Any]", agent: "Agent[Any]", response: ModelResponse) -> None:
        """Take the usage of a reply. Without a session, store the reply."""
        await run_blocking(self._find_run().end_request, response)

    def _find_run(self) -> "_Run":
        run = _current_run.get()
        return run if run is not None and run.session is not None and run.session is self.session else self._run

    def find_model(self, agent: "Agent[Any]") -> Provider:
        """Return the model that requests are fitted for."""
        if self._model is None:
            return _find_model(agent, self._window)
        if isinstance(self._model, str):
            return provider(self._model, window=self._window, format="openai_responses")
        return self._model

    def make_preparer(self, conversation: str, model: Provider) -> RequestPreparer:
        return RequestPreparer(self.store, conversation, model, window=self._window, **self._options)


class _Run:
    """The requests of one run, from its filter, its hooks and its session. Each task has a run of its own."""

    def __init__(self, session: Session | None) -> None:
        self.session, self.task = session, _current_task()
        self._preparers: dict[tuple[str, str], RequestPreparer] = {}
        self._fork = ""
        self._open: tuple[RequestPreparer, PreparedRequest] | None = None
        self._usage: Usage | None = None
        self._ahead: list[Message] = []
        """Messages that the filter recorded before the SDK added them to the session."""

    def fit(
        self,
        fitter: RequestFitter,
        items: Sequence[TResponseInputItem],
        instructions: str | None,
        agent: "Agent[Any]",
    ) -> list[TResponseInputItem]:
        """Record a request, and return the items that fit. Items that are not changed are the same objects."""
        if self._open is not None and self.session is not None:
            preparer, prepared = self._open
            preparer.abort(prepared, NOT_SAVED, usage=self._usage)
        self._open = self._usage = None
        decoded = decode_items([as_json(item) for item in items])
        messages = [each.message for each in decoded]
        self._open = preparer, prepared = self._prepare(fitter, messages, instructions, agent)
        is_fork = preparer.conversation != fitter.conversation
        self._ahead = [] if is_fork else messages[len(messages) - prepared.new_count :]
        left = iter(items)
        own = [[*islice(left, len(each.items))] for each in decoded]
        made = prepared.apply(own, lambda message: [cast(Any, encode_items(message, fitter.store.blob))])
        return [item for group in made for item in group]

    def _prepare(
        self, fitter: RequestFitter, messages: Sequence[Message], instructions: str | None, agent: "Agent[Any]"
    ) -> tuple[RequestPreparer, PreparedRequest]:
        """Prepare a request in the conversation; in a fork, if its history is not that of the session."""
        model = fitter.find_model(agent)
        sent = {name.lower() for name in agent.model_settings.extra_headers or {}}
        if not sent.issuperset([name.lower() for name in model.headers_with(model.betas)]):
            refuse_headers(model, "An input filter only changes messages: set ModelSettings(extra_headers={…}).")

        def prepare(name: str, may_branch: bool) -> tuple[RequestPreparer, PreparedRequest]:
            key = name, model.model_id
            preparer = self._preparers.get(key) or fitter.make_preparer(name, model)
            self._preparers[key] = preparer
            prepared = preparer.prepare(
                messages,
                system_prompt=instructions,
                tools=_list_tools(agent),
                output=agent.model_settings.max_tokens,
                may_branch=may_branch,
            )
            return preparer, prepared

        if self.session is None:
            return prepare(fitter.conversation, True)
        at = 0
        for name in filter(None, (fitter.conversation, self._fork)):
            try:
                return prepare(name, False)
            except HistoryRewritten as rewritten:
                if name == fitter.conversation:
                    at = rewritten.seq
        self._fork = f"{fitter.conversation[:150]}~{os.urandom(6).hex()}"
        fitter.store.fork(fitter.conversation, self._fork, at=at)
        return prepare(self._fork, True)

    def end_request(self, response: ModelResponse) -> None:
        """Keep the usage of a reply. Without a session, store the reply with its request."""
        self._usage = _usage_of(response)
        if self.session is None and self._open is not None:
            items = [as_json(item) for item in response.to_input_items()]
            (preparer, prepared), self._open = self._open, None
            preparer.commit(prepared, [each.message for each in decode_items(items)], usage=self._usage)

    def take_messages(self, messages: list[Message]) -> list[Message]:
        """Store the reply to the open request with it, and what follows the reply. Return what is left to add."""
        if self.session is None:
            return messages
        messages = [message for message in messages if not self._was_recorded(message)]
        if self._open is None or not messages or messages[0].role != "assistant":
            return messages
        (preparer, prepared), self._open = self._open, None
        is_fork = preparer.conversation != self.session.session_id
        following = [] if is_fork else messages[1:]
        stored = preparer.commit(prepared, messages[:1], usage=self._usage, following=following, is_recorded=True)
        return [] if stored and not is_fork else messages

    def _was_recorded(self, message: Message) -> bool:
        keys = list_part_keys(message)
        for index, known in enumerate(self._ahead):
            if (known.role, list_part_keys(known)) == (message.role, keys):
                del self._ahead[index]
                return True
        return False


_current_run: ContextVar[_Run | None] = ContextVar("contextc_openai_agents_run", default=None)


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return None


def _find_model(agent: "Agent[Any]", window: int | None) -> Provider:
    """Return the model of an agent. A name of the form `litellm/anthropic/claude…` is the provider and its model."""
    named = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", None)
    name = str(named or get_default_model())
    parts = name.removeprefix("litellm/").removeprefix("any-llm/").split("/", 1)
    spec = ":".join(parts) if len(parts) > 1 else f"openai:{name}"
    try:
        return provider(spec, window=window, format="openai_responses")
    except UnknownModel as error:
        how = 'Name the model: session.fitter("openai:gpt-5.4"), or pass window=….'
        raise UnknownModel(error.model, close=error.close, problem=error.problem, fix=how) from None


def _list_tools(agent: "Agent[Any]") -> list[Tool]:
    """Return the function tools of an agent. Tools of MCP servers and handoffs are not known before the request."""
    return [
        Tool(name=each.name, description=each.description, parameters=each.params_json_schema)
        for each in agent.tools
        if isinstance(each, FunctionTool)
    ]


def _usage_of(response: ModelResponse) -> Usage:
    used = response.usage
    return Usage(
        input=used.input_tokens,
        output=used.output_tokens,
        cache_read=used.input_tokens_details.cached_tokens or 0,
        cache_write=getattr(used.input_tokens_details, "cache_write_tokens", 0) or 0,
        reasoning=used.output_tokens_details.reasoning_tokens or 0,
    )
