"""Transcripts: a provider's own record of its sessions, as entries in the order of arrival.

The store does not interpret the entries. An entry with a `uuid` is stored once, however often it is appended. Its JSON
is returned unchanged, lone surrogates included. A transcript belongs to one conversation. It is deleted with that
conversation, and emptied when a message of its tree is redacted; later entries of a running program are then refused.
A fork does not own its parent's transcripts.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidInput, UnknownConversation
from contextc.store.message_log import SEQ_MASK, check_name, decode_row, make_place, now_ms
from contextc.store.transaction_engine import Transaction

NAMES_PER_QUERY = 500
UpdateSummary: TypeAlias = Callable[[JSONObject | None, list[JSONObject]], JSONObject]
"""Returns the summary that a provider keeps beside a transcript, from the previous one and the new entries."""


class TranscriptKey(NamedTuple):
    """The key of a transcript. `subpath` is "" for the main transcript of a session."""

    project: str
    session: str
    subpath: str = ""


class TranscriptRow(NamedTuple):
    """A transcript: its number, the number of entries ever appended, and the summary beside it."""

    number: int
    entries: int
    is_redacted: bool
    summary: JSONObject | None


class EntryBatch:
    """Entries to append, each under a name that identifies it when the transaction is retried."""

    def __init__(self, entries: Sequence[JSONObject]) -> None:
        mark = b"\0" + os.urandom(8)
        self.entries: dict[bytes, tuple[JSONObject, bytes]] = {}
        for index, entry in enumerate(entries):
            name = _uuid(entry) or mark + index.to_bytes(4)
            self.entries.setdefault(name, (entry, encode_entry(entry)))


def append_entries(
    tx: Transaction,
    key: TranscriptKey,
    batch: EntryBatch,
    conversation: str = "",
    update_summary: UpdateSummary | None = None,
) -> int:
    """Append entries to a transcript, which is created if needed. Return the number of new entries."""
    check_key(key)
    if not batch.entries:
        return 0
    if conversation:
        _check_owner(tx, conversation)
    if _is_redacted(tx, key):
        return 0
    tx.run(
        "INSERT INTO main.transcript (project, session, subpath, conversation, time, entries, redacted)"
        " VALUES (?, ?, ?, ?, 0, 0, 0) ON CONFLICT DO NOTHING",
        *key,
        conversation,
    )
    row = tx.row(
        "SELECT number, conversation, time, entries, redacted, summary FROM main.transcript"
        f" WHERE project = ? AND session = ? AND subpath = ?{tx.dialect.row_lock}",
        *key,
    )
    if row is None or row[4]:  # redacted while this waited for the lock
        return 0
    number, owner, time, last, _, summary = row
    known = _find_known(tx, number, list(batch.entries))
    fresh = {name: entry for name, entry in batch.entries.items() if name not in known}
    if not fresh:
        return 0
    tx.run_many(
        "INSERT INTO main.transcript_entry (place, transcript, name, body) VALUES (?, ?, ?, ?)",
        [
            (make_place(number, last + index), number, name, body)
            for index, (name, (_, body)) in enumerate(fresh.items(), 1)
        ],
    )
    if update_summary is not None:
        before = None if summary is None else decode_entry(summary)
        summary = encode_entry(update_summary(before, [entry for entry, _ in fresh.values()]))
    tx.run(
        "UPDATE main.transcript SET conversation = ?, time = ?, entries = ?, summary = ? WHERE number = ?",
        owner or conversation,
        max(now_ms(), time + 1),
        last + len(fresh),
        summary,
        number,
    )
    return len(fresh)


def load_entries(tx: Transaction, key: TranscriptKey) -> list[JSONObject] | None:
    """Return all entries of a transcript in order, or None if it does not exist."""
    check_key(key)
    row = tx.row(
        "SELECT number FROM main.transcript WHERE project = ? AND session = ? AND subpath = ? AND redacted = 0", *key
    )
    if row is None:
        return None
    return [
        decode_entry(body)
        for (body,) in tx.rows(
            "SELECT body FROM main.transcript_entry WHERE place BETWEEN ? AND ? ORDER BY place",
            make_place(row[0], 0),
            make_place(row[0], SEQ_MASK),
        )
    ]


def list_sessions(tx: Transaction, project: str) -> list[tuple[str, int, JSONObject | None]]:
    """Return the sessions of a project: id, time of the last write (ms), and summary."""
    rows = tx.rows(
        "SELECT session, time, summary FROM main.transcript"
        " WHERE project = ? AND subpath = '' AND redacted = 0 ORDER BY time",
        project,
    )
    return [(session, time, None if summary is None else decode_entry(summary)) for session, time, summary in rows]


def list_subpaths(tx: Transaction, project: str, session: str) -> list[str]:
    rows = tx.rows(
        "SELECT subpath FROM main.transcript WHERE project = ? AND session = ? AND subpath <> '' AND redacted = 0"
        " ORDER BY number",
        project,
        session,
    )
    return [subpath for (subpath,) in rows]


def delete_transcript(tx: Transaction, key: TranscriptKey) -> None:
    """Remove a transcript. The main one is removed with all its subpaths."""
    check_key(key)
    some = " AND subpath = ?" if key.subpath else ""
    values = key if key.subpath else key[:2]
    where = f"WHERE project = ? AND session = ?{some}"
    _drop_entries(tx, [number for (number,) in tx.rows(f"SELECT number FROM main.transcript {where}", *values)])
    tx.run(f"DELETE FROM main.transcript {where}", *values)


def delete_of_conversation(tx: Transaction, conversation: str) -> None:
    """Remove the transcripts of a deleted conversation."""
    rows = tx.rows(f"SELECT number FROM main.transcript WHERE conversation = ?{tx.dialect.row_lock}", conversation)
    _drop_entries(tx, [number for (number,) in rows])
    tx.run("DELETE FROM main.transcript WHERE conversation = ?", conversation)


def redact_of_tree(tx: Transaction, tree: int) -> set[str]:
    """Empty all transcripts of a tree, and refuse further entries. Return their sessions.

    The redacted text may be anywhere in them.
    """
    rows = tx.rows(
        "SELECT number, session FROM main.transcript WHERE redacted = 0 AND conversation IN"
        f" (SELECT name FROM main.conversation WHERE tree = ?) ORDER BY number{tx.dialect.row_lock}",
        tree,
    )
    for number, _ in rows:
        tx.run("UPDATE main.transcript SET redacted = 1, summary = NULL WHERE number = ?", number)
    _drop_entries(tx, [number for number, _ in rows])
    return {session for _, session in rows}


def delete_unowned_older(tx: Transaction, before: int) -> int:
    """Remove transcripts without a conversation that were last written before a time (ms). Return their number."""
    rows = tx.rows(
        f"SELECT number FROM main.transcript WHERE conversation = '' AND time < ? ORDER BY number{tx.dialect.row_lock}",
        before,
    )
    _drop_entries(tx, [number for (number,) in rows])
    for (number,) in rows:
        tx.run("DELETE FROM main.transcript WHERE number = ?", number)
    return len(rows)


# ── transcripts whose summary is replaced together with new entries ───────────────────────────────────────────────────


def find_transcript(tx: Transaction, key: TranscriptKey, *, lock: bool = False) -> TranscriptRow | None:
    """Return a transcript, redacted or not; None if it does not exist. With `lock`, its row is locked."""
    row = tx.row(
        "SELECT number, entries, redacted, summary FROM main.transcript"
        f" WHERE project = ? AND session = ? AND subpath = ?{tx.dialect.row_lock if lock else ''}",
        *key,
    )
    if row is None:
        return None
    number, entries, redacted, summary = row
    return TranscriptRow(number, entries, bool(redacted), None if summary is None else decode_entry(summary))


def open_transcript(tx: Transaction, key: TranscriptKey, conversation: str) -> TranscriptRow:
    """Return a locked transcript of a conversation, which is created if needed."""
    check_key(key)
    tx.run(
        "INSERT INTO main.transcript (project, session, subpath, conversation, time, entries, redacted)"
        " VALUES (?, ?, ?, ?, 0, 0, 0) ON CONFLICT DO NOTHING",
        *key,
        conversation,
    )
    found = find_transcript(tx, key, lock=True)
    assert found is not None, "a row that was inserted, or was there, is found"
    return found


def save_transcript(tx: Transaction, row: TranscriptRow, summary: JSONObject, entries: Sequence[JSONObject]) -> None:
    """Append entries, each with a `uuid` that the transcript does not have, and replace the summary.

    A transcript that was emptied by a redaction accepts entries again.
    """
    batch = EntryBatch(entries)
    if batch.entries:
        tx.run_many(
            "INSERT INTO main.transcript_entry (place, transcript, name, body) VALUES (?, ?, ?, ?)",
            [
                (make_place(row.number, row.entries + index), row.number, name, body)
                for index, (name, (_, body)) in enumerate(batch.entries.items(), 1)
            ],
        )
    tx.run(
        "UPDATE main.transcript SET time = ?, entries = ?, redacted = 0, summary = ? WHERE number = ?",
        now_ms(),
        row.entries + len(batch.entries),
        encode_entry(summary),
        row.number,
    )


def find_entry(tx: Transaction, project: str, uuid: str, number: int | None = None) -> tuple[int, JSONObject] | None:
    """Return an entry of any transcript of a project, or of one transcript, with the number of its transcript."""
    where, values = ("t.number = ?", (number,)) if number is not None else ("t.project = ?", (project,))
    row = tx.row(
        "SELECT t.number, e.body FROM main.transcript t"
        " JOIN main.transcript_entry e ON e.transcript = t.number AND e.name = ?"
        f" WHERE {where} ORDER BY t.number LIMIT 1",
        uuid.encode("utf-8", "surrogatepass"),
        *values,
    )
    return None if row is None else (row[0], decode_entry(row[1]))


def load_entries_before(tx: Transaction, number: int, before: int, limit: int) -> list[tuple[int, JSONObject]]:
    """Return the last `limit` entries of a transcript before position `before`, newest first, with their positions."""
    rows = tx.rows(
        "SELECT place, body FROM main.transcript_entry WHERE place >= ? AND place < ? ORDER BY place DESC LIMIT ?",
        make_place(number, 0),
        make_place(number, before),
        limit,
    )
    return [(place & SEQ_MASK, decode_entry(body)) for place, body in rows]


def check_key(key: TranscriptKey) -> None:
    check_name(key.project, "project")
    check_name(key.session, "session")
    if key.subpath:
        check_name(key.subpath, "part of a session")


def encode_entry(value: JSONObject) -> bytes:
    """Return the value as JSON that `decode_entry` decodes to the same value, lone surrogates included."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate, or a file name that is not valid UTF-8
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"transcript entry must be JSON: {error}.") from error


def decode_entry(body: bytes) -> JSONObject:
    found: JSON = decode_row(lambda given: json.loads(bytes(given)), body, "Transcript entry")
    return found


def _uuid(entry: JSONObject) -> bytes:
    found: object = entry.get("uuid")
    return found.encode("utf-8", "surrogatepass") if isinstance(found, str) else b""


def _check_owner(tx: Transaction, conversation: str) -> None:
    """Raise `UnknownConversation` if the conversation was deleted while a program still writes."""
    check_name(conversation)
    if tx.row(f"SELECT 1 FROM main.conversation WHERE name = ?{tx.dialect.row_lock}", conversation) is None:
        raise UnknownConversation(conversation)


def _is_redacted(tx: Transaction, key: TranscriptKey) -> bool:
    sql = "SELECT 1 FROM main.transcript WHERE project = ? AND session = ? AND redacted = 1"
    return tx.row(sql, key.project, key.session) is not None


def _find_known(tx: Transaction, transcript: int, names: list[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for start in range(0, len(names), NAMES_PER_QUERY):
        some = names[start : start + NAMES_PER_QUERY]
        marks = ", ".join("?" * len(some))
        sql = f"SELECT name FROM main.transcript_entry WHERE transcript = ? AND name IN ({marks})"
        found |= {bytes(name) for (name,) in tx.rows(sql, transcript, *some)}
    return found


def _drop_entries(tx: Transaction, transcripts: list[int]) -> None:
    for number in transcripts:
        low, high = make_place(number, 0), make_place(number, SEQ_MASK)
        tx.run("DELETE FROM main.transcript_entry WHERE place BETWEEN ? AND ?", low, high)
