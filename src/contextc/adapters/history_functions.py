"""`search_history` and `fetch_result` as plain functions, for the agents of any framework.

    search, fetch = history_functions(store, "conversation")
    agent = create_agent(model, tools=[read_page, search, fetch], middleware=[ContextcMiddleware(store)])

A framework runs only functions that it was given. Adapters therefore add no tools by themselves: a request that fits is
the framework's own. If `fetch_result` is among its tools, what an adapter leaves out names the id to fetch it by.
"""

from collections.abc import Callable
from typing import NamedTuple

from contextc.compiler import MessageCompiler
from contextc.messages import ToolCall
from contextc.providers import Provider
from contextc.store import Store
from contextc.store.conversation_types import DEFAULT_AGENT


class HistoryFunctions(NamedTuple):
    """The two functions, with the names, parameters and descriptions that a model gets."""

    search_history: Callable[[str], str]
    fetch_result: Callable[..., str]


def history_functions(
    store: Store,
    conversation: str | Callable[[], str],
    *,
    model: Provider | str = "anthropic:claude-opus-5-5",
    agent: str = DEFAULT_AGENT,
) -> HistoryFunctions:
    """Return functions that search a recorded conversation, and read a message of it by its id.

    `conversation` is a name, or a function that returns the name when one of them is called. `model` is the one whose
    tokens limit an answer. `agent` is the name that the replies of the adapter have. Both return what that agent may
    see.
    """
    compiler = MessageCompiler(store, model)

    def answer(name: str, **arguments: str | int) -> str:
        where = conversation if isinstance(conversation, str) else conversation()
        return compiler.fetch(where, ToolCall(id="", name=name, arguments=dict(arguments)), agent=agent)

    def search_history(query: str) -> str:
        """Searches all of this conversation, also what is no longer shown."""
        return answer("search_history", query=query)

    def fetch_result(id: str, offset: int = 0) -> str:
        """Reads a message or result by its id."""
        return answer("fetch_result", id=id, offset=offset)

    return HistoryFunctions(search_history, fetch_result)
