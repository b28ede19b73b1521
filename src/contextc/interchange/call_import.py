"""Recording of the model calls of an imported session, whose messages are in the store already.

A transcript has no bodies. Each is put together from the messages so far, and marked as inexact.
"""

from collections.abc import Sequence

from contextc._json import JSONObject, encode
from contextc.compiler.body_splitting import split_body
from contextc.formats import formatter
from contextc.interchange.found_conversation import AgentLink, ModelCall
from contextc.messages import Message
from contextc.observation.client_ids import ClientIds
from contextc.observation.conversation_index import (
    ConversationMatch,
    find_by_key,
    find_exchange,
    last_request,
    make_key,
    save_thread,
)
from contextc.observation.exchange_parser import ObservedInput, ObservedReply, parse_elements, resolve_provider
from contextc.observation.record_options import IMPORTED, RecordOptions, StoredMessages
from contextc.observation.recorder import record_exchange
from contextc.store import Store, message_chain
from contextc.store.message_rows import find_tip
from contextc.store.types import Transaction


def record_calls(
    store: Store, conversation: str, calls: Sequence[ModelCall], messages: Sequence[Message], places: Sequence[int]
) -> int:
    """Record the calls that are not recorded yet, one transaction each, and return their number.

    `messages` and `places` are those of the conversation; a message that was left out is at place 0.
    """
    keys = [f"{conversation}/{call.id}" for call in calls]

    def find(tx: Transaction) -> list[bool]:
        return [find_exchange(tx, make_key("exchange", "", key)) is not None for key in keys]

    known = store.read(find) if calls else []
    for call, key in [(call, key) for call, key, is_known in zip(calls, keys, known, strict=True) if not is_known]:
        own = [(start, index) for start, index in call.messages if places[index]]
        stored = StoredMessages(
            messages=[messages[index] for _, index in own],
            starts=[start for start, _ in own],
            places=[places[index] for _, index in own],
            replies=[(places[index], messages[index]) for index in call.reply if places[index]],
        )
        record_exchange(
            store,
            _make_input(call),
            ObservedReply(status="ok", usage=call.usage),
            conversation,
            began=call.began or call.ended or message_chain.now_ms(),
            ended=call.ended,
            options=RecordOptions(key=key, inexact=True, stored=stored),
        )
    return known.count(False)


def link_agent(store: Store, conversation: str, client: str, link: AgentLink, caller: str) -> None:
    """Store that a conversation is that of a sub-agent, and the request of its caller whose reply started it."""

    def work(tx: Transaction) -> None:
        at, parent = find_tip(tx, conversation, False), find_tip(tx, caller, False) if caller else None
        if at is None:
            return
        place = 0
        if parent is not None:
            known = find_by_key(tx, make_key("exchange", "", f"{caller}/{link.call}")) if link.call else []
            place = known[0][2] if known else last_request(tx, caller)
        match = ConversationMatch("", "agent", parent.conversation if parent is not None else 0, place)
        save_thread(tx, at.conversation, client, f"{IMPORTED}{link.session}", link.agent, match)

    store.write(work, repeatable=True)


def _make_input(call: ModelCall) -> ObservedInput:
    form = formatter(call.format)
    facts: JSONObject = {"model": call.model, **call.head}
    parts = split_body(encode({**facts, form.messages_key: [0]}), form.messages_key)
    return ObservedInput(
        body=b"",
        json=facts,
        form=form,
        provider=resolve_provider(call.provider, call.model, form.name),
        provider_name=call.provider,
        model=call.model,
        ids=ClientIds(),
        head=parts.head if parts is not None else b"{}",
        gaps=(),
        parsed=parse_elements(list(call.elements)),
        is_split=True,
    )
