"""The sub-agents of an observed conversation: when each began and ended, its requests and its cost."""

from typing import NamedTuple

from contextc.inspection.request_timeline import TimelineEntry, load_timeline
from contextc.store import Store
from contextc.store.message_rows import load_tip
from contextc.store.observed_conversation_sources import ObservedSource, ObservedThread, ParentRequest, load_thread_tree


class SubAgent(NamedTuple):
    """One conversation of a session. `parent` is the name of the conversation above it, "" for the main one.

    `request` is the request of that conversation during which it began. `began` and `ended` are Unix milliseconds;
    None if they are unknown. `failed` is the number of requests without a complete answer. Tokens are those that the
    provider reported.
    """

    name: str
    source: ObservedSource
    parent: str
    request: ParentRequest | None
    began: int | None
    ended: int | None
    requests: int
    failed: int
    input: int
    output: int
    cost: float | None


def load_sub_agents(store: Store, conversation: str) -> list[SubAgent]:
    """Return the main conversation of a session and its sub-agents, parents first. Raises `UnknownConversation`.

    The list is empty if no other software made the conversation.
    """
    threads = store.read(lambda tx: load_thread_tree(tx, load_tip(tx, conversation).conversation))
    return [_summarize(each, load_timeline(store, each.name, with_uids=False)) for each in threads]


def _summarize(thread: ObservedThread, requests: list[TimelineEntry]) -> SubAgent:
    facts = [each.record.observed for each in requests if each.record.observed is not None]
    began = [each.began for each in facts if each.began]
    ended = [each.ended or each.began for each in facts if each.ended or each.began]
    used = [each.record.usage for each in requests if each.record.usage is not None]
    costs = [each.cost for each in requests if each.cost is not None]
    return SubAgent(
        name=thread.name,
        source=thread.source,
        parent=thread.parent,
        request=thread.request,
        began=min(began, default=None),
        ended=max(ended, default=None),
        requests=len(requests),
        failed=len([each for each in facts if each.status != "ok"]),
        input=sum([each.input for each in used]),
        output=sum([each.output for each in used]),
        cost=sum(costs) if costs else None,
    )
