"""Cache reads of each request: what the provider's cache rules predict, beside what the provider reported."""

from msgspec import Struct

from contextc.analysis.cache_misses import explain_miss, iter_cases
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.request_view import ConversationView
from contextc.store import Store


class CacheRead(Struct, frozen=True, kw_only=True):
    """The cache reads of one request, in tokens.

    `possible` could have been read if nothing had changed since an earlier request, and `expected` is what the cache
    rules of the provider predict. `reported` is None if the provider reported no usage. `cause` is the cause of a cache
    miss, "" if there is none; `provider_missed` if the rules do not explain the difference.
    """

    request: int
    channel: str
    provider: str
    input: int
    possible: int
    expected: int
    reported: int | None
    cause: str


class ConversationCacheReads(Struct, frozen=True, kw_only=True):
    """The cache reads of a conversation, in the order of its requests. Requests that use no cache are left out."""

    conversation: str
    requests: tuple[CacheRead, ...]


def cache_reads(store: Store, conversation: str) -> ConversationCacheReads:
    """Return what each request of a conversation should have read from the cache, and what was reported.

    Raises `UnknownConversation`.
    """
    return list_cache_reads(load_conversation_view(store, conversation))


def list_cache_reads(view: ConversationView) -> ConversationCacheReads:
    reads: list[CacheRead] = []
    for case in iter_cases(view):
        found = explain_miss(case)
        reads.append(
            CacheRead(
                request=case.now.number,
                channel=case.now.channel_id,
                provider=case.now.channel.provider,
                input=case.now.input,
                possible=case.potential,
                expected=case.outlook.tokens,
                reported=case.read if case.is_reported else None,
                cause=found[0].cause if found is not None else "",
            )
        )
    return ConversationCacheReads(conversation=view.name, requests=tuple(reads))
