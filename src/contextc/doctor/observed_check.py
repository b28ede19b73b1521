"""Check of observed requests: each can be rebuilt to the byte, and none contains a credential in a field like a header.

The rows of a request are compared with the hash that was stored when it was recorded. Redacted rows are skipped.
"""

import re
from collections.abc import Iterator, Mapping
from typing import cast

from contextc._json import JSON, JSONObject, decode_json
from contextc.compiler.ledger import repository
from contextc.compiler.ledger.observed_compression import PACKED
from contextc.compiler.ledger.row_encoding import hash_chunks
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.doctor.findings import Finding
from contextc.errors import StoreCorrupt
from contextc.observation.credential_values import CREDENTIAL_FIELDS
from contextc.observation.head_facts import hash_head
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel, RowRange, StoredRow
from contextc.store.message_rows import SEQ_MASK, make_place

_FIELD = re.compile(b'"(?:%b)"' % "|".join(sorted(CREDENTIAL_FIELDS)).encode(), re.IGNORECASE)
_CREDENTIAL = re.compile(r"(?i:(?:bearer|basic)\s+)?[^\s\[\]{}<>$]{16,}|.*=[^\s;]{16,}.*", re.DOTALL)


def check_observed(store: Store, conversation: str | None = None) -> Iterator[Finding]:
    """Return the findings of the observed requests of all conversations, or of one."""
    for number, channel in store.read(_load_channels):
        if conversation in (None, channel.conversation):
            yield from store.read(lambda tx, number=number, channel=channel: list(_check_channel(tx, number, channel)))


def _load_channels(tx: Transaction) -> list[tuple[int, Channel]]:
    """Return the channels with observed requests, whose manifests are compressed."""
    rows = tx.rows(
        "SELECT h.number, h.conversation, h.agent, h.provider, h.model, h.directory FROM channel h WHERE EXISTS"
        " (SELECT 1 FROM manifest m WHERE m.place BETWEEN h.number * 4294967296 AND h.number * 4294967296 + 4294967295"
        " AND substr(m.body, 1, 1) = ?) ORDER BY h.number",
        PACKED,
    )
    return [(number, Channel(*names)) for number, *names in rows]


def _check_channel(tx: Transaction, number: int, channel: Channel) -> Iterator[Finding]:
    try:
        rows = {row.place: row for row in repository.load_rows(tx, [RowRange(number, 0, SEQ_MASK)])}
        records = [record_from_json(body) for body in reversed(repository.load_manifests(tx, number))]
    except (StoreCorrupt, ValueError) as error:
        yield _damaged(channel, f"Its requests cannot be read: {error}")
        return
    heads: dict[str, bool] = {}
    broken: list[int] = []
    chain, last = "", 0
    for record in records:
        if record.observed is not None:
            if record.head not in heads:
                heads[record.head] = _is_sound_head(tx, number, record.head)
            found = _hash_rows(record, rows, number, chain, last)
            if found != record.chain or not heads[record.head]:
                broken.append(record.request)
        chain, last = record.chain, record.rows
    if broken:
        some = ", ".join(map(str, broken[:5])) + (" and more" if len(broken) > 5 else "")
        yield _damaged(
            channel, f"Recorded requests {some} cannot be rebuilt: their stored bytes do not match their hash."
        )
    yield from _find_credentials(tx, number, channel, rows)


def _hash_rows(record: RequestRecord, rows: Mapping[int, StoredRow], number: int, chain: str, last: int) -> str:
    """Return the hash of the rows of a request as they are stored now; that of the record if some were redacted."""
    if record.layout is None:
        before, layout = chain, (RowRange(number, last + 1, record.rows),)
    else:
        before, layout = "", record.layout
    places = [make_place(each.channel, row) for each in layout for row in range(each.first, each.last + 1)]
    stored = [rows.get(place) for place in places]
    if any(each.channel != number for each in layout) or any(row is not None and row.row.gone for row in stored):
        return record.chain
    return hash_chunks(before, [row.chunk for row in stored if row is not None])


def _is_sound_head(tx: Transaction, number: int, name: str) -> bool:
    """Return True if a head is stored unchanged, or was redacted."""
    head = repository.load_head(tx, number, bytes.fromhex(name))
    return head is None or name in (hash_head(head).hex(), hash_head(b"").hex())


def _find_credentials(
    tx: Transaction, number: int, channel: Channel, rows: Mapping[int, StoredRow]
) -> Iterator[Finding]:
    names: set[str] = set()
    for (head,) in tx.rows("SELECT body FROM head WHERE channel = ?", number):
        names.update(find_credential_fields(bytes(head)))
    for (whole,) in tx.rows(
        "SELECT body FROM replaced WHERE place BETWEEN ? AND ?", make_place(number, 0), make_place(number, SEQ_MASK)
    ):
        names.update(find_credential_fields(bytes(whole)))
    for row in rows.values():
        names.update(find_credential_fields(b"[%b]" % row.chunk))
    if names:
        yield Finding(
            kind="note",
            code="stored-credential",
            conversation=channel.conversation,
            where=str(channel),
            text=f"Recorded requests of other software have a credential in the field {', '.join(sorted(names))}.",
            why="Everyone who can read the store can read it.",
            would="is not changed. Replace the key at its provider and delete the conversation. To store no keys, "
            'record with redact="keys" (contextc watch and proxy: --redact keys)',
        )


def find_credential_fields(body: bytes) -> set[str]:
    """Return the names of fields like headers in which a request in JSON contains a credential."""
    if _FIELD.search(body) is None:
        return set()
    try:
        return set(_iter_credentials(decode_json(body)))
    except ValueError:
        return set()


def _iter_credentials(value: JSON) -> Iterator[str]:
    if isinstance(value, list):
        for each in cast(list[JSON], value):
            yield from _iter_credentials(each)
    elif isinstance(value, dict):
        for name, each in cast(JSONObject, value).items():
            if name.lower() in CREDENTIAL_FIELDS and isinstance(each, str) and _CREDENTIAL.fullmatch(each):
                yield name.lower()
            elif not isinstance(each, str):
                yield from _iter_credentials(each)


def _damaged(channel: Channel, text: str) -> Finding:
    return Finding(
        kind="fault",
        code="changed-request",
        conversation=channel.conversation,
        where=str(channel),
        text=text,
        why="Something other than contextc changed the store, so the exact bytes that were sent are lost.",
        would="is not changed. The messages of the conversation are not affected: they are checked separately",
    )
