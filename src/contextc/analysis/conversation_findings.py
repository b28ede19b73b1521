"""All findings about a conversation."""

from contextc.analysis.cache_misses import find_cache_misses
from contextc.analysis.finding import Finding, sort_by_cost
from contextc.analysis.registry import conversation_functions
from contextc.analysis.stored_conversation import StoredConversation, load_stored_conversation
from contextc.store import Store


def findings(store: Store, conversation: str) -> list[Finding]:
    """Return the findings about a conversation, the most expensive first; those of unknown cost last.

    Raises `UnknownConversation`.
    """
    return sort_by_cost(find_all(load_stored_conversation(store, conversation)))


def find_all(view: StoredConversation) -> list[Finding]:
    """Return the findings about a conversation that is loaded already: cache misses by request, then all others."""
    found = list(find_cache_misses(view))
    for find in conversation_functions():
        found += find(view)
    return found
