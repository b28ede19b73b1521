"""The configuration of an agent, as its turns read it: validated, immutable, and without the executor that made it.

Also the types of an agent's callbacks, and its clients.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from contextc._json import JSONObject
from contextc.compiler import MessageCompiler
from contextc.compiler.arguments import AgentArguments
from contextc.executor.turn_totals import Limits
from contextc.messages import Message, ToolCall
from contextc.providers import Provider
from contextc.providers.client import Endpoint, endpoint
from contextc.store import Store
from contextc.tools import FunctionTool
from contextc.triggers import ResourceUsage, Trigger

ApprovalAnswer: TypeAlias = bool | str | None
Approve: TypeAlias = Callable[[ToolCall, FunctionTool], ApprovalAnswer | Awaitable[ApprovalAnswer]]
"""Callback before a tool with `approval` runs. True approves. A string declines with a reason, which the model gets if
its provider supports that."""
Summarize: TypeAlias = Callable[[Sequence[Message], str | None], str | Awaitable[str]]
PrepareMessages: TypeAlias = Callable[[JSONObject, int], JSONObject | Awaitable[JSONObject | None] | None]
ShouldContinue: TypeAlias = Callable[[Message, Sequence[Message]], bool]


class PendingApprovals(ABC):
    """An `approve` callback that is answered by approval id. An approval is pending before its event is stored."""

    @abstractmethod
    def pending(self, approval: str, call: ToolCall) -> AbstractContextManager[Awaitable[ApprovalAnswer]]:
        """Keep an approval pending for the duration of the block. The awaitable resolves to the answer."""

    async def __call__(self, call: ToolCall, tool: FunctionTool) -> ApprovalAnswer:
        with self.pending(secrets.token_urlsafe(16), call) as answered:
            return await answered


class ClientCache:
    """The clients of a provider: the given one, or one for each event loop."""

    def __init__(self, provider: Provider, store: Store, given: Endpoint | None) -> None:
        self._provider, self._store, self._given = provider, store, given
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Endpoint] = WeakKeyDictionary()

    def get(self) -> Endpoint:
        """Return the client for the running event loop."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = endpoint(self._provider, store=self._store)
        return self._clients[loop]

    async def close(self) -> None:
        """Close the client of the running event loop. A given client stays open."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """An agent's options after validation. The parameters of `AgentExecutor` describe them."""

    store: Store
    agent: str
    provider: Provider
    compiler: MessageCompiler
    compile_arguments: AgentArguments
    """Arguments of every `compile` call, without the budget."""
    budget: int | None
    run: str | None
    directory: str
    limits: Limits
    tools: Mapping[str, FunctionTool]
    step_triggers: Sequence[Trigger]
    mid_step_triggers: Sequence[Trigger]
    channel_trigger_names: frozenset[str]
    """Names of the trigger states that belong to a channel, not to the agent."""
    approve: Approve | None
    should_continue: ShouldContinue | None
    on_prepare_messages: PrepareMessages | None
    summarize: Summarize | Literal["model"] | None
    resources: Callable[[], ResourceUsage]
    clients: ClientCache
    lease_seconds: float
    session_gap: float
