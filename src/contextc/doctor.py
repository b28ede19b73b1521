"""Looks a store over and says what is wrong with it, and what to do. It changes nothing.

Every chain is followed link by link: the numbers have no gap, and each message's content gives its id. The database's
own check comes first, because nothing else can be believed where that fails.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from contextc._json import blob_name
from contextc.messages import Message, chain_id, content_of, from_json
from contextc.store import Store, chain, places
from contextc.store.base import Transaction

CHUNK = 1000


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know about. A `fault` should not be; a `note` may be as it is."""

    kind: Literal["fault", "note"]
    code: str
    conversation: str | None
    where: str
    text: str


def examine(store: Store, progress: Callable[[int, int], None] | None = None) -> Iterator[Finding]:
    """Every finding; `progress` is told how many messages were looked at, of how many."""
    faults = store.read(_damage)
    if not faults:
        faults = [*store.read(_bases), *_chains(store, progress), *_blobs(store)]
    yield from faults
    if not faults:  # what cannot be read cannot be asked for its open calls
        yield from store.read(_open_calls)


def _chains(store: Store, progress: Callable[[int, int], None] | None) -> Iterator[Finding]:
    total = store.read(lambda tx: _number(tx, "SELECT count(*) FROM message"))
    done = 0
    for number, conversation, base, base_id in store.read(_branches):
        last = store.read(lambda tx, b=number: places.branch_end(tx, b)[0])
        before = base_id
        for start in range(base, last, CHUNK):
            stop = min(start + CHUNK, last)
            rows = store.read(lambda tx, b=number, low=start, high=stop: _rows(tx, b, low, high))
            findings, before = _follow(conversation, number, start, rows, before)
            yield from findings
            done += len(rows)
            if progress:
                progress(done, total)


def _damage(tx: Transaction) -> list[Finding]:
    rows = tx.rows(tx.dialect.check) if tx.dialect.check else [("ok",)]
    return [
        Finding(
            kind="fault",
            code="damaged-file",
            conversation=None,
            where="database",
            text=f"{text} Restore a copy, or recover the file with the database's own tools.",
        )
        for (text,) in rows
        if text != "ok"
    ]


def _bases(tx: Transaction) -> list[Finding]:
    """Branches that begin after a message which is not there, or is another."""
    rows = tx.rows(
        "SELECT b.number, b.conversation, b.base_seq FROM branch b LEFT JOIN message m"
        " ON m.place = b.parent * 4294967296 + b.base_seq AND m.id = b.base_id WHERE b.base_seq > 0 AND m.place IS NULL"
    )
    return [
        Finding(
            kind="fault",
            code="lost-base",
            conversation=conversation,
            where=f"branch {number}",
            text=f"Message {base}, after which it begins, is not there. Restore a copy of the store.",
        )
        for number, conversation, base in rows
    ]


def _branches(tx: Transaction) -> list[tuple[int, str | None, int, bytes]]:
    return [
        (number, name, base, base_id)
        for number, name, base, base_id in tx.rows(
            "SELECT number, conversation, base_seq, base_id FROM branch ORDER BY number"
        )
    ]


def _rows(tx: Transaction, branch: int, after: int, upto: int) -> list[tuple[int, bytes, bytes]]:
    return [
        (place & places.SEQ_MASK, identity, body)
        for place, identity, body in tx.rows(
            "SELECT place, id, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place",
            places.place(branch, after + 1),
            places.place(branch, upto),
        )
    ]


def _follow(
    conversation: str | None, branch: int, after: int, rows: list[tuple[int, bytes, bytes]], before: bytes
) -> tuple[list[Finding], bytes]:
    """Hold a stretch of a chain against its ids; what is wrong in it, and the id it ends with."""
    findings: list[Finding] = []

    def fault(code: str, seq: int, text: str) -> None:
        where = f"branch {branch}, message {seq}"
        findings.append(Finding(kind="fault", code=code, conversation=conversation, where=where, text=text))

    expected = after + 1
    for seq, identity, body in rows:
        try:
            message: Message = from_json(body)
        except msgspec.MsgspecError as error:
            fault("unreadable", seq, f"It cannot be read: {error}. Redact it, or restore a copy of the store.")
        else:
            if seq != expected:
                fault("gap", seq, f"Message {expected} is missing. Restore a copy of the store.")
            elif (message.seq, message.id) != (seq, identity.hex()) or (
                not message.redacted and chain_id(before, content_of(message)) != identity
            ):
                fault(
                    "broken-link", seq, "Its content or its place is not what its id says. Restore a copy of the store."
                )
        before, expected = identity, seq + 1
    return findings, before


def _open_calls(tx: Transaction) -> list[Finding]:
    """Calls that nothing answers, in conversations where no turn is running."""
    findings: list[Finding] = []
    running = {name for (name,) in tx.rows("SELECT conversation FROM lease WHERE holder <> ''")}
    for (name,) in tx.rows("SELECT name FROM conversation ORDER BY name"):
        if name in running:
            continue
        at = places.head(tx, name)
        recent = chain.messages_between(tx, at.branch, max(0, at.seq - CHUNK), at.seq)
        answered = {result.call_id for message in recent for result in message.tool_results}
        findings += [
            Finding(
                kind="note",
                code="open-call",
                conversation=name,
                where=f"message {message.seq}",
                text=f"Call {call.id!r} of {call.name!r} has no result. Append one, or rewind to before it.",
            )
            for message in recent
            for call in message.tool_calls
            if call.id not in answered
        ]
    return findings


def _blobs(store: Store) -> Iterator[Finding]:
    missing = store.read(
        lambda tx: tx.rows(
            "SELECT u.name, u.place FROM blob_use u LEFT JOIN blob b ON b.name = u.name WHERE b.name IS NULL"
        )
    )
    for name, place in missing:
        where = f"branch {place >> places.SEQ_BITS}, message {place & places.SEQ_MASK}"
        yield Finding(kind="fault", code="missing-blob", conversation=None, where=where, text=f"Blob {name} is gone.")
    for (name,) in store.read(lambda tx: tx.rows("SELECT name FROM blob ORDER BY name")):
        if blob_name(store.blob(name)) != name:
            text = "Its bytes are not the ones it was named for. Restore a copy of the store."
            yield Finding(kind="fault", code="changed-blob", conversation=None, where=f"blob {name}", text=text)


def _number(tx: Transaction, sql: str) -> int:
    row = tx.row(sql)
    return row[0] if row else 0
