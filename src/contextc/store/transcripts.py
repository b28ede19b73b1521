"""A provider's own record of its sessions: entries in the order they came, as functions over a transaction.

The store keeps them and does not read them. An entry that has a `uuid` is stored once, however often it is given; its
JSON comes back as it was, half an emoji included. A transcript belongs to the conversation whose words are in it. It
goes with that one, and where a message of its tree is redacted; what a program that still runs says afterwards is not
taken any more. A fork owns nothing of its parent.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidInput, UnknownConversation
from contextc.store.base import Transaction
from contextc.store.chain import now_ms
from contextc.store.places import SEQ_MASK, check_name, place
from contextc.store.reading import read_as

SOME = 500
Fold: TypeAlias = Callable[[JSONObject | None, list[JSONObject]], JSONObject]
"""What a provider keeps beside a transcript, from what it was before, and the entries that are new."""


class TranscriptKey(NamedTuple):
    """Which transcript: `subpath` is "" for the main one of a session."""

    project: str
    session: str
    subpath: str = ""


class Batch:
    """Entries on their way in, each under the name by which it is known again if the transaction is run twice."""

    def __init__(self, entries: Sequence[JSONObject]) -> None:
        mark = b"\0" + os.urandom(8)
        self.entries: dict[bytes, tuple[JSONObject, bytes]] = {}
        for index, entry in enumerate(entries):
            name = _uuid(entry) or mark + index.to_bytes(4)
            self.entries.setdefault(name, (entry, written(entry)))


def append(tx: Transaction, key: TranscriptKey, batch: Batch, conversation: str = "", fold: Fold | None = None) -> int:
    """Put entries at the end of a transcript, which is made if it is new; how many of them were not there yet."""
    check_key(key)
    if not batch.entries:
        return 0
    if conversation:
        _check_owner(tx, conversation)
    if _is_redacted(tx, key):
        return 0
    tx.run(
        "INSERT INTO transcript (project, session, subpath, conversation, time, entries, redacted)"
        " VALUES (?, ?, ?, ?, 0, 0, 0) ON CONFLICT DO NOTHING",
        *key,
        conversation,
    )
    row = tx.row(
        "SELECT number, conversation, time, entries, redacted, summary FROM transcript"
        f" WHERE project = ? AND session = ? AND subpath = ?{tx.dialect.lock}",
        *key,
    )
    if row is None or row[4]:  # redacted while we waited for it
        return 0
    number, owner, time, last, _, summary = row
    known = _known(tx, number, list(batch.entries))
    fresh = {name: entry for name, entry in batch.entries.items() if name not in known}
    if not fresh:
        return 0
    tx.run_many(
        "INSERT INTO transcript_entry (place, transcript, name, body) VALUES (?, ?, ?, ?)",
        [(place(number, last + index), number, name, body) for index, (name, (_, body)) in enumerate(fresh.items(), 1)],
    )
    if fold is not None:
        before = None if summary is None else read(summary)
        summary = written(fold(before, [entry for entry, _ in fresh.values()]))
    tx.run(
        "UPDATE transcript SET conversation = ?, time = ?, entries = ?, summary = ? WHERE number = ?",
        owner or conversation,
        max(now_ms(), time + 1),
        last + len(fresh),
        summary,
        number,
    )
    return len(fresh)


def load(tx: Transaction, key: TranscriptKey) -> list[JSONObject] | None:
    """All entries of a transcript in order; None where there is none."""
    check_key(key)
    row = tx.row(
        "SELECT number FROM transcript WHERE project = ? AND session = ? AND subpath = ? AND redacted = 0", *key
    )
    if row is None:
        return None
    return [
        read(body)
        for (body,) in tx.rows(
            "SELECT body FROM transcript_entry WHERE place BETWEEN ? AND ? ORDER BY place",
            place(row[0], 0),
            place(row[0], SEQ_MASK),
        )
    ]


def sessions(tx: Transaction, project: str) -> list[tuple[str, int, JSONObject | None]]:
    """The sessions of a project: id, when it was last written (milliseconds), and what is kept beside it."""
    rows = tx.rows(
        "SELECT session, time, summary FROM transcript"
        " WHERE project = ? AND subpath = '' AND redacted = 0 ORDER BY time",
        project,
    )
    return [(session, time, None if summary is None else read(summary)) for session, time, summary in rows]


def subpaths(tx: Transaction, project: str, session: str) -> list[str]:
    rows = tx.rows(
        "SELECT subpath FROM transcript WHERE project = ? AND session = ? AND subpath <> '' AND redacted = 0"
        " ORDER BY number",
        project,
        session,
    )
    return [subpath for (subpath,) in rows]


def drop(tx: Transaction, key: TranscriptKey) -> None:
    """Remove a transcript; the main one with everything beneath it."""
    check_key(key)
    some = " AND subpath = ?" if key.subpath else ""
    values = key if key.subpath else key[:2]
    where = f"WHERE project = ? AND session = ?{some}"
    _drop_entries(tx, [number for (number,) in tx.rows(f"SELECT number FROM transcript {where}", *values)])
    tx.run(f"DELETE FROM transcript {where}", *values)


def drop_owned(tx: Transaction, conversation: str) -> None:
    """Remove the transcripts of a conversation that is deleted."""
    rows = tx.rows(f"SELECT number FROM transcript WHERE conversation = ?{tx.dialect.lock}", conversation)
    _drop_entries(tx, [number for (number,) in rows])
    tx.run("DELETE FROM transcript WHERE conversation = ?", conversation)


def forget(tx: Transaction, tree: int) -> set[str]:
    """Take everything out of the transcripts of a tree, whose words may be anywhere in them; the sessions they were of.

    Nothing is appended to them any more.
    """
    rows = tx.rows(
        "SELECT number, session FROM transcript WHERE redacted = 0 AND conversation IN"
        f" (SELECT name FROM conversation WHERE tree = ?) ORDER BY number{tx.dialect.lock}",
        tree,
    )
    for number, _ in rows:
        tx.run("UPDATE transcript SET redacted = 1, summary = NULL WHERE number = ?", number)
    _drop_entries(tx, [number for number, _ in rows])
    return {session for _, session in rows}


def expire(tx: Transaction, before: int) -> int:
    """Remove what nobody owns and nobody has written to since a moment (milliseconds); how many it were."""
    rows = tx.rows(
        f"SELECT number FROM transcript WHERE conversation = '' AND time < ? ORDER BY number{tx.dialect.lock}", before
    )
    _drop_entries(tx, [number for (number,) in rows])
    for (number,) in rows:
        tx.run("DELETE FROM transcript WHERE number = ?", number)
    return len(rows)


def check_key(key: TranscriptKey) -> None:
    check_name(key.project, "project")
    check_name(key.session, "session")
    if key.subpath:
        check_name(key.subpath, "part of a session")


def written(value: JSONObject) -> bytes:
    """The value as JSON, of which `read` makes the same value again, whatever its strings are."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half an emoji, or a file's name that is no text
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"An entry of a transcript is no JSON: {error}.") from error


def read(body: bytes) -> JSONObject:
    found: JSON = read_as(lambda given: json.loads(bytes(given)), body, "An entry of a transcript")
    return found


def _uuid(entry: JSONObject) -> bytes:
    found: object = entry.get("uuid")
    return found.encode("utf-8", "surrogatepass") if isinstance(found, str) else b""


def _check_owner(tx: Transaction, conversation: str) -> None:
    """A program may still write when its conversation is gone; its words must not come back that way."""
    check_name(conversation)
    if tx.row(f"SELECT 1 FROM conversation WHERE name = ?{tx.dialect.lock}", conversation) is None:
        raise UnknownConversation(conversation)


def _is_redacted(tx: Transaction, key: TranscriptKey) -> bool:
    sql = "SELECT 1 FROM transcript WHERE project = ? AND session = ? AND redacted = 1"
    return tx.row(sql, key.project, key.session) is not None


def _known(tx: Transaction, transcript: int, names: list[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for start in range(0, len(names), SOME):
        some = names[start : start + SOME]
        marks = ", ".join("?" * len(some))
        sql = f"SELECT name FROM transcript_entry WHERE transcript = ? AND name IN ({marks})"
        found |= {bytes(name) for (name,) in tx.rows(sql, transcript, *some)}
    return found


def _drop_entries(tx: Transaction, transcripts: list[int]) -> None:
    for number in transcripts:
        low, high = place(number, 0), place(number, SEQ_MASK)
        tx.run("DELETE FROM transcript_entry WHERE place BETWEEN ? AND ?", low, high)
