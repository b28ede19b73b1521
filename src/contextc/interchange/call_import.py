"""Recording of the model calls of an imported session, whose messages are in the store already.

A transcript has no bodies. Each is put together from the messages so far, and marked as inexact.
"""

from collections.abc import Mapping, Sequence

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
from contextc.observation.exchange_parser import (
    ElementCache,
    ObservedInput,
    ObservedReply,
    parse_elements,
    resolve_provider,
)
from contextc.observation.record_options import IMPORTED, RecordOptions, StoredMessages
from contextc.observation.recorder import ExchangeRecording, record_exchanges
from contextc.store import Store, append_and_load
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import SEQ_BITS, SEQ_MASK, find_tip, make_place

BATCH_SIZE = 64


def record_calls(
    store: Store, conversation: str, calls: Sequence[ModelCall], lines: Mapping[int, tuple[list[Message], list[int]]]
) -> int:
    """Record the calls that are not recorded yet, many in one transaction, and return their number.

    `lines` has the messages of each line of the conversation and their places; a message that was left out is at 0.
    """
    found = store.read(lambda tx: [find_exchange(tx, _key_of(conversation, call)) for call in calls])
    new = [
        call
        for call, known in zip(calls, found, strict=True)
        if known is None or (call.finished and known[1].observed is not None and known[1].observed.status != "ok")
    ]
    redacted = store.read(lambda tx: _find_redacted(tx, lines)) if new else frozenset[int]()
    elements = ElementCache()
    for start in range(0, len(new), BATCH_SIZE):
        record_exchanges(
            store, [_prepare(conversation, call, lines, redacted, elements) for call in new[start : start + BATCH_SIZE]]
        )
    return found.count(None)


def _prepare(
    conversation: str,
    call: ModelCall,
    lines: Mapping[int, tuple[list[Message], list[int]]],
    redacted: frozenset[int],
    elements: ElementCache,
) -> ExchangeRecording:
    messages, places = lines[call.line]
    own = [(start, index) for start, index in call.messages if places[index]]
    stored = StoredMessages(
        messages=[messages[index] for _, index in own],
        starts=[start for start, _ in own],
        places=[places[index] for _, index in own],
        replies=[(places[index], messages[index]) for index in call.reply if places[index]],
        redacted=redacted,
    )
    return ExchangeRecording(
        _make_input(call, elements),
        ObservedReply(status="ok" if call.finished else "unfinished", usage=call.usage),
        conversation,
        began=call.began or call.ended or append_and_load.now_ms(),
        ended=call.ended,
        options=RecordOptions(key=f"{conversation}/{call.id}", inexact=True, stored=stored),
    )


def _key_of(conversation: str, call: ModelCall) -> bytes:
    return make_key("exchange", "", f"{conversation}/{call.id}")


def _find_redacted(tx: Transaction, lines: Mapping[int, tuple[list[Message], list[int]]]) -> frozenset[int]:
    branches = {place >> SEQ_BITS for _, places in lines.values() for place in places if place}
    return frozenset(
        [
            place
            for branch in sorted(branches)
            for (place,) in tx.rows(
                "SELECT place FROM message WHERE place BETWEEN ? AND ? AND redacted <> 0",
                make_place(branch, 0),
                make_place(branch, SEQ_MASK),
            )
        ]
    )


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


def _make_input(call: ModelCall, elements: ElementCache) -> ObservedInput:
    form = formatter(call.format)
    known = list(call.elements) if call.messages else []  # without stored messages, text could not be redacted
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
        parsed=parse_elements(known, elements),
        is_split=True,
    )
