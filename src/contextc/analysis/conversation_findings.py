"""All findings about a conversation, or about all conversations of a store."""

from contextc.analysis.cache_misses import find_cache_misses
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.finding import Finding
from contextc.analysis.registry import conversation_functions
from contextc.store import Store


def findings(store: Store, conversation: str) -> list[Finding]:
    """Return the findings about a conversation: cache misses by request, then all others.

    Raises `UnknownConversation`.
    """
    view = load_conversation_view(store, conversation)
    found = list(find_cache_misses(view))
    for find in conversation_functions():
        found += find(view)
    return found
