"""The tools of MCP servers that a step of a turn offers: all of them, or a search for them if they are many.

The search is that of the provider where it is known to have one: then requests define all tools, deferred. Else it is
ours. Which tools a search has found is in the conversation, and which ones a model already has is in the ledger of its
channel. So the tools of a step are the same in any process, and after a crash.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from contextc._worker_threads import run_blocking
from contextc.compiler.head_changes import list_available
from contextc.compiler.ledger import load_parent_state, load_state
from contextc.executor.agent_config import AgentConfig, with_server_tools
from contextc.formats.base import HeadChange
from contextc.mcp.search import CALL_TOOL, SEARCH_TOOL, call_tool, read_found, search_tool
from contextc.messages import Message
from contextc.store.ledger_schema import Channel
from contextc.store.message_log import find_tip
from contextc.store.transaction_engine import Transaction
from contextc.tools import FunctionTool
from contextc.tools.definitions import NativeTool, Tool, get_tool_name


class OfferedTools(NamedTuple):
    """The tools of a step: those that may be called, by name, and the names of those that the request defines. With
    `search`, the provider's own tool, their definitions are deferred.
    """

    callable: Mapping[str, FunctionTool]
    declared: tuple[str, ...]
    search: NativeTool | None = None


class ServerTools:
    """The tools of MCP servers in one turn."""

    def __init__(self) -> None:
        self._tools: Mapping[str, FunctionTool] = {}
        self._found: set[str] = set()
        """The tools that searches of this turn have found."""
        self._known: tuple[Channel, frozenset[str]] | None = None
        """The tools that the model had on its channel when the turn began to use it."""
        self._generic: dict[bool, dict[str, FunctionTool]] = {}
        """The tools that stand for others, for providers that can append tools and for those that cannot."""
        self._offered = OfferedTools({}, ())
        self._counted, self._tokens = list[FunctionTool](), 0
        """The tools whose definitions were counted, and their tokens."""

    async def configure(self, config: AgentConfig, channel: Channel, messages: Sequence[Message]) -> AgentConfig | None:
        """Return the configuration with the tools as they are now; None if they are the same as before.

        `messages` are the last ones of the turn.
        """
        assert config.servers is not None, "the agent has servers"
        loaded = await config.servers.load_tools(takes_questions=config.takes_questions)
        self._tools = {name: each for name, each in loaded.items() if name not in config.tools}
        self._found |= read_found(messages)
        if self._known is None or self._known[0] != channel:
            self._known = channel, await run_blocking(config.store.read, partial(_load_known, channel))
            self._offered = OfferedTools({}, ())
        offered = self._offer(config, self._known[1])
        if offered == self._offered:
            return None
        self._offered = offered
        return with_server_tools(config, offered.callable, offered.declared, offered.search)

    def _offer(self, config: AgentConfig, known: frozenset[str]) -> OfferedTools:
        tools, names = self._tools, sorted(self._tools)
        search = _provider_search(config)
        is_known = search is not None and get_tool_name(search) in known
        if not (is_known or SEARCH_TOOL in known or self._are_many(config, [tools[name] for name in names])):
            return OfferedTools(tools, tuple(names))
        if is_known or (search is not None and known.isdisjoint((SEARCH_TOOL, *names))):
            return OfferedTools(tools, tuple(names), search)
        appends = _can_append(config)
        if appends not in self._generic:
            assert config.servers is not None, "the tools are those of servers"
            servers = [each.name for each in config.servers.servers]
            made = [search_tool(lambda: self._tools, servers, appends=appends)]
            made += [] if appends else [call_tool(lambda: self._tools)]
            self._generic[appends] = {each.name: each for each in made}
        generic = self._generic[appends]
        had = known | self._found if appends else known
        return OfferedTools({**tools, **generic}, (*generic, *[name for name in names if name in had]))

    def _are_many(self, config: AgentConfig, tools: list[FunctionTool]) -> bool:
        """Return True if the definitions of tools need more than their share of the window."""
        share = config.defer_tools_above
        if share is None or not tools:
            return False
        if tools != self._counted:
            definitions = config.provider.formatter.encode_tools([each.tool for each in tools])
            self._counted, self._tokens = tools, config.compiler.counter.count_tools(definitions)
        return self._tokens > share * config.provider.model.window


def _provider_search(config: AgentConfig) -> NativeTool | None:
    """Return the tool with which the provider searches; None if contextc does, or if the agent has that tool itself."""
    provider, chosen = config.provider, config.tool_search
    is_sure = "tool_search" in provider.features and provider.has_own_address
    if chosen == "contextc" or not provider.tool_search or not (is_sure or chosen == "provider"):
        return None
    search = NativeTool(provider=provider.formatter.provider, data=provider.tool_search)
    given = [each for each in config.compile_arguments.get("tools") or () if isinstance(each, NativeTool)]
    return None if get_tool_name(search) in map(get_tool_name, given) else search


def _can_append(config: AgentConfig) -> bool:
    """Return True if a tool can be added in the middle of a conversation without a new epoch."""
    provider = config.provider
    example = Tool(name="example", parameters={"type": "object", "properties": {}})
    change = HeadChange(added=tuple(provider.formatter.encode_tools([example])))
    return not provider.runs_tools and provider.formatter.encode_change(change, provider.features) is not None


def _load_known(channel: Channel, tx: Transaction) -> frozenset[str]:
    """Return the names of the tools that the model has on a channel, or on that of the conversation it forked from."""
    tip = find_tip(tx, channel.conversation, False)
    if tip is None:
        return frozenset()
    state = load_state(tx, channel)
    if state is None or not state.requests:
        state = load_parent_state(tx, channel, tip)
    return frozenset() if state is None else frozenset(list_available(state))


RESERVED_NAMES = (SEARCH_TOOL, CALL_TOOL)
