"""Search over all conversations: hits in messages, tool calls and results."""

from typing import Annotated

from msgspec import Meta, Struct

from contextc.store.conversation_list import ConversationOverview
from contextc.store.conversation_search import MAX_HITS, search_messages
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import endpoint

TAG = "search"
MAX_PAGE_SIZE = 100


class SearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`text` is searched; case is ignored. A blank one finds nothing. `hits` is the maximum per conversation.

    `before` is `next` of the previous page.
    """

    text: str = ""
    before: str = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)] = 20
    hits: Annotated[int, Meta(ge=1, le=MAX_HITS)] = 5


class HitView(Struct, frozen=True, kw_only=True):
    """A message that contains the text. `part` is text, call or result, empty if the match spans several.

    `tool` is the name of the tool of a call or result.
    """

    seq: int
    role: str
    part: str
    tool: str
    excerpt: str


class ConversationHits(Struct, frozen=True, kw_only=True):
    """A conversation and its hits, newest first. Without hits, its name contains the text.

    `count` is the number of its messages with the text that this page has found. If there are more than `hits`, a
    search with `before` set to `more` and `limit` 1 returns older ones; otherwise `more` is "".
    """

    conversation: ConversationOverview
    hits: list[HitView]
    count: int
    more: str


class SearchResults(Struct, frozen=True, kw_only=True):
    """A page of a search. It reads a limited number of messages, so it may be empty although there is `more`.

    `messages` and `conversations` are the numbers of those that this page has searched. A long conversation may be on
    several pages, with older hits on the later ones.
    """

    found: list[ConversationHits]
    messages: int
    conversations: int
    more: bool
    next: str


@endpoint("GET", "/search")
def search(app: AppState, query: SearchQuery) -> SearchResults:
    """Search names, messages, tool calls and results of all conversations, the most recently active first."""
    if not query.text.strip():
        return SearchResults(found=[], messages=0, conversations=0, more=False, next="")
    page = app.store.read(
        lambda tx: search_messages(tx, query.text, before=query.before, limit=query.limit, max_hits=query.hits)
    )
    return SearchResults(
        found=[
            ConversationHits(
                conversation=found.conversation,
                hits=[
                    HitView(seq=each.seq, role=each.role, part=each.part, tool=each.tool, excerpt=each.excerpt)
                    for each in found.hits
                ],
                count=found.total,
                more=found.more,
            )
            for found in page.found
        ],
        messages=page.messages,
        conversations=page.conversations,
        more=bool(page.next),
        next=page.next,
    )
