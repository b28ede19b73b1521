"""`search_history` and `fetch_result` as plain functions, for the agents of any framework.

    search, fetch = history_functions(store, "conversation")
    agent = create_agent(model, tools=[read_page, search, fetch], middleware=[ContextcMiddleware(store)])

A framework runs only functions that it was given. Adapters therefore add no tools by themselves: a request that fits is
the framework's own. If `fetch_result` is among its tools, what an adapter leaves out names the id to fetch it by.
"""

from collections.abc import Callable
from typing import NamedTuple

from contextc.compiler.history import FETCH_TOOL, SEARCH_TOOL, answer_history_call
from contextc.messages import ToolCall, Viewer
from contextc.models.tokens import get_counter
from contextc.store import Store
from contextc.store.message_log import DEFAULT_AGENT


class HistoryFunctions(NamedTuple):
    """The two functions, with the names, parameters and descriptions that a model gets."""

    search_history: Callable[[str], str]
    fetch_result: Callable[..., str]


def history_functions(
    store: Store, conversation: str | Callable[[], str], *, agent: str = DEFAULT_AGENT
) -> HistoryFunctions:
    """Return functions that search a recorded conversation, and read a message of it by its id.

    `conversation` is a name, or a function that returns the name when one of them is called. `agent` is the name that
    the replies of the adapter have. Both return what that agent may see. An answer is limited by estimated tokens, the
    same for every model.
    """
    counter = get_counter("unknown")

    def answer(name: str, **arguments: str | int) -> str:
        where = conversation if isinstance(conversation, str) else conversation()
        viewer = Viewer(agent, None, (agent,), shows_failed=False, is_going=frozenset[str]().__contains__)
        return answer_history_call(store, where, ToolCall(id="", name=name, arguments=dict(arguments)), viewer, counter)

    def search_history(query: str) -> str:
        return answer(SEARCH_TOOL.name, query=query)

    def fetch_result(id: str, offset: int = 0) -> str:
        return answer(FETCH_TOOL.name, id=id, offset=offset)

    search_history.__doc__, fetch_result.__doc__ = SEARCH_TOOL.description, FETCH_TOOL.description
    return HistoryFunctions(search_history, fetch_result)
