"""`ContextcConversationStore`: pydantic-ai's conversation store on a store of contextc.

    conversations = ContextcConversationStore(cc.open_store("sqlite:///chat.db"))
    conversation = await conversations.load("demo") or Conversation(conversation_id="demo")
    result = await agent.run("Hello", conversation=conversation)
    await conversations.save(result)

A conversation has the same name in both. Records and entries are stored as pydantic-ai serializes them, in one
transaction: a save that lost a race stores nothing. The messages are then recorded in the conversation of contextc,
unless `PrepareRequests` has recorded them already. So the web UI, the inspector and every other tool have them too.

An entry belongs to one conversation. A fork copies the entries that it keeps; its messages in contextc are shared.
"""

from collections.abc import Sequence
from typing import cast

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from contextc._json import JSONObject
from contextc._worker_threads import run_blocking
from contextc.adapters.pydantic_ai.message_conversion import (
    convert_messages,
    dump_message,
    load_message,
    to_model_messages,
)
from contextc.adapters.request_preparation import RequestPreparer
from contextc.messages import Message
from contextc.providers import provider
from contextc.store import Store, branches, message_log, session_transcripts
from contextc.store.message_log import SEQ_MASK, find_tip
from contextc.store.message_matching import align_histories
from contextc.store.session_transcripts import TranscriptKey, TranscriptRow
from contextc.store.store import delete_selected, drop_transcript
from contextc.store.transaction_engine import Transaction

PROJECT = "pydantic-ai"
"""The project of the transcripts that hold records and entries."""
BATCH = 64
RECORD_ONLY = "openai-chat:unknown"
"""The model of a recorder that never compiles a request."""
_records: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


class ContextcConversationStore(ConversationStore):
    """pydantic-ai's conversations in a store of contextc. Any number of instances and processes may write.

    `delete` also deletes the conversation of contextc, with all of its entries.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None if the store does not have it.

        The record of a conversation in which something was redacted is made from its messages: the entries have new
        ids, and scope, usage and branches are those of a new record.
        """
        return await run_blocking(_read_record, self.store, conversation_id)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records, the one that was saved last first."""
        return await run_blocking(_read_records, self.store, scope, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries in one transaction."""
        await run_blocking(_write_record, self.store, record, list(new_entries), expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation: its record, its entries and its messages, except those that a fork needs."""
        await run_blocking(_delete_record, self.store, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry. Raises `KeyError` if the store does not have it."""

        def work(tx: Transaction) -> ConversationEntry:
            found = session_transcripts.find_entry(tx, PROJECT, entry_id)
            if found is None:
                raise KeyError(entry_id)
            return _entry(found[1])

        return await run_blocking(self.store.read, work)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to `head_id` in order, or the last `limit` of them."""

        def work(tx: Transaction) -> list[ConversationEntry]:
            return [_entry(body) for body in _load_path(tx, head_id, limit)]

        return await run_blocking(self.store.read, work)


# ── on a worker thread: names of the base class are its own, so these are functions ──────────────────────────────────


def _read_record(store: Store, conversation_id: str) -> ConversationRecord | None:
    row = store.read(lambda tx: session_transcripts.find_transcript(tx, _key(conversation_id)))
    if row is not None and row.is_redacted:
        row = store.write(lambda tx: _restore(tx, conversation_id))
    return None if row is None or row.summary is None else _records.validate_python(row.summary["record"])


def _read_records(store: Store, scope: str | None, limit: int | None) -> list[ConversationRecord]:
    rows = store.read(lambda tx: session_transcripts.list_sessions(tx, PROJECT))
    records = [_records.validate_python(summary["record"]) for _, _, summary in rows if summary is not None]
    records = [record for record in records if scope is None or record.scope == scope]
    records.sort(key=lambda record: record.updated_at, reverse=True)
    return records[:limit]


def _write_record(
    store: Store, record: ConversationRecord, entries: list[ConversationEntry], expected_revision: str | None
) -> None:
    name = record.conversation_id
    bodies = [_body(entry) for entry in entries]
    added = [
        message_log.prepare_entry(message_log.validate_for(message, name))
        for message in convert_messages([entry.message for entry in entries])
    ]

    def work(tx: Transaction) -> bool:
        here = find_tip(tx, name, True)
        row = session_transcripts.find_transcript(tx, _key(name), lock=True)
        stored = row.summary if row is not None else None
        if tx.is_retry and stored is not None and stored["record"]["revision"] == record.revision:
            return False  # the commit of the first attempt was not confirmed
        if _revision(stored) != expected_revision:
            raise ConversationConflict(name)
        is_extension = stored is not None and _follows(record, entries, stored["record"]["head_id"])
        path = [] if is_extension else _find_path(tx, record, bodies)
        if here is None:
            _create_conversation(tx, record, path)
        row = session_transcripts.open_transcript(tx, _key(name), name)
        if _revision(row.summary) != expected_revision:  # another process created it meanwhile
            raise ConversationConflict(name)
        tip = ""
        if here is not None and stored is not None and is_extension and stored["tip"] == here.id.hex():
            new = message_log.insert_messages(tx, name, here, added)
            tip = new[-1].id if new else here.id.hex()
        missing = list(_list_missing(tx, row, path, bodies))
        session_transcripts.save_transcript(tx, row, _summary(record, tip), [*missing, *bodies])
        return bool(tip)

    if not store.write(work, repeatable=True):
        _record_messages(store, record)


def _revision(summary: JSONObject | None) -> str | None:
    return summary["record"]["revision"] if summary is not None else None


def _follows(record: ConversationRecord, entries: Sequence[ConversationEntry], head_id: str | None) -> bool:
    """Return True if new entries extend the history that ends with `head_id`, one after the other."""
    for entry in entries:
        if entry.parent_id != head_id:
            return False
        head_id = entry.id
    return record.head_id == head_id


def _summary(record: ConversationRecord, tip: str) -> JSONObject:
    """Return what is stored beside the entries. `tip` is the last message of contextc's conversation, if it has all."""
    return {"record": _records.dump_python(record, mode="json"), "tip": tip}


def _list_missing(
    tx: Transaction, row: TranscriptRow, path: Sequence[JSONObject], new: Sequence[JSONObject]
) -> list[JSONObject]:
    """Return the entries of a history that belong to other conversations. A transcript has all before one it has."""
    names = {body["uuid"] for body in new}
    missing: list[JSONObject] = []
    for body in reversed(path):
        if body["uuid"] in names:
            continue
        if session_transcripts.find_entry(tx, PROJECT, str(body["uuid"]), row.number) is not None:
            break
        missing.append(body)
    return missing[::-1]


def _record_messages(store: Store, record: ConversationRecord) -> None:
    """Record the messages of a history in the conversation. What is there already is not recorded again."""
    name = record.conversation_id
    history = store.read(lambda tx: _messages(_load_path(tx, record.head_id, None)))
    if not history:
        return
    recorded = RequestPreparer(store, name, provider(RECORD_ONLY, window=1_000_000)).record(history)
    if align_histories(recorded, history).stored < len(recorded):
        return  # the history ends earlier: what is saved next begins a branch

    def work(tx: Transaction) -> None:
        row = session_transcripts.find_transcript(tx, _key(name), lock=True)
        if row is not None and _revision(row.summary) == record.revision:
            session_transcripts.save_transcript(tx, row, _summary(record, recorded[-1].id), [])

    store.write(work, repeatable=True)


def _delete_record(store: Store, conversation_id: str, expected_revision: str) -> None:
    def select(tx: Transaction) -> list[str]:
        has_conversation = find_tip(tx, conversation_id, True) is not None
        row = session_transcripts.find_transcript(tx, _key(conversation_id), lock=True)
        if row is None or _revision(row.summary) != expected_revision:
            raise ConversationConflict(conversation_id)
        return [conversation_id] if has_conversation else []

    if not delete_selected(store, select):
        drop_transcript(store, _key(conversation_id))


def _key(conversation_id: str) -> TranscriptKey:
    return TranscriptKey(PROJECT, conversation_id)


def _body(entry: ConversationEntry) -> JSONObject:
    return {
        "uuid": entry.id,
        "parent_id": entry.parent_id,
        "kind": entry.kind,
        "message": dump_message(entry.message),
    }


def _entry(body: JSONObject) -> ConversationEntry:
    return ConversationEntry(
        id=body["uuid"], parent_id=body["parent_id"], kind=body["kind"], message=load_message(body["message"])
    )


def _messages(path: Sequence[JSONObject]) -> list[Message]:
    return convert_messages([load_message(body["message"]) for body in path])


def _find_path(tx: Transaction, record: ConversationRecord, new: Sequence[JSONObject]) -> list[JSONObject]:
    """Return the entries up to the head of a record. Raise `ConversationConflict` if one was deleted."""
    try:
        return _load_path(tx, record.head_id, None, new)
    except KeyError as error:
        raise ConversationConflict(record.conversation_id) from error


def _load_path(
    tx: Transaction, head_id: str | None, limit: int | None, new: Sequence[JSONObject] = ()
) -> list[JSONObject]:
    """Return the entries up to a head in order. Entries are read in batches, from the end of their transcript."""
    known = {str(body["uuid"]): body for body in new}
    number, before = 0, 0
    path: list[JSONObject] = []
    entry_id = head_id
    while entry_id is not None and (limit is None or len(path) < limit):
        while entry_id not in known and before:
            batch = session_transcripts.load_entries_before(tx, number, before, BATCH)
            known |= {str(body["uuid"]): body for _, body in batch}
            before = batch[-1][0] if len(batch) == BATCH else 0
        if entry_id not in known:
            found = session_transcripts.find_entry(tx, PROJECT, entry_id)
            if found is None:
                raise KeyError(entry_id)
            known[entry_id] = found[1]
            if found[0] != number:
                number, before = found[0], SEQ_MASK
        path.append(known[entry_id])
        entry_id = cast("str | None", known[entry_id]["parent_id"])
    path.reverse()
    return path


def _create_conversation(tx: Transaction, record: ConversationRecord, path: Sequence[JSONObject]) -> None:
    """Create the conversation of contextc: a fork, if the record is one and has the messages of the other."""
    source, history = record.forked_from, _messages(path)
    if source is not None and history and find_tip(tx, source, True) is not None:
        stored = message_log.load_messages(tx, source)
        alignment = align_histories(stored, history)
        if alignment.given == len(history):
            branches.fork(tx, source, record.conversation_id, stored[alignment.stored - 1].seq)
            return
    message_log.insert_conversation(tx, record.conversation_id)


def _restore(tx: Transaction, conversation_id: str) -> TranscriptRow | None:
    """Make record and entries from the messages of a conversation in which something was redacted."""
    row = session_transcripts.find_transcript(tx, _key(conversation_id), lock=True)
    if row is None or not row.is_redacted or find_tip(tx, conversation_id, True) is None:
        return row
    bodies: list[JSONObject] = []
    parent: str | None = None
    for message in to_model_messages(message_log.load_messages(tx, conversation_id)):
        entry = ConversationEntry(parent_id=parent, message=message)
        bodies.append(_body(entry))
        parent = entry.id
    record = ConversationRecord(conversation_id=conversation_id, head_id=parent)
    session_transcripts.save_transcript(tx, row, _summary(record, ""), bodies)
    return session_transcripts.find_transcript(tx, _key(conversation_id))
