"""Check of ledgers against the log: what was sent, and what was summarized, must still be in the conversation.

If rows of messages are deleted from outside, or a backup is restored in part, the chain may still be sound, because it
only ends earlier. The ledgers of its channels show what is missing. A repair makes the next request of such a channel
start a new session with the full context, and removes summaries of lost messages. A channel that cannot be read is
repaired in the same way.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, decode_json
from contextc.compiler import ledger
from contextc.compiler.draft import hash_chunks
from contextc.compiler.ledger import has_lost_messages, is_summary_lost, is_tip_lost, without_rows
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.doctor.findings import Finding
from contextc.errors import StoreCorrupt
from contextc.observation.exchange_redaction import CREDENTIAL_FIELDS
from contextc.observation.request_rows import hash_head
from contextc.store import Store
from contextc.store.ledger_schema import PACKED, Channel, ChannelState, EpochReason, RowRange, StoredRow
from contextc.store.message_log import SEQ_MASK, find_tip, make_place
from contextc.store.transaction_engine import Transaction

UNREADABLE = "the state of the channel could not be read"
LOST_TEXT = "Messages that were sent on this channel are missing from the conversation, or were replaced."
LOST_CONSEQUENCE = "The prompt cache of its provider, or its session, has content that the conversation has not."


class DamagedChannel(NamedTuple):
    """A channel that needs a repair: its number, its repaired state, and the error if it is unreadable."""

    number: int
    channel: Channel
    repaired: ChannelState
    error: str


def check_ledgers(store: Store, conversation: str | None = None) -> Iterator[Finding]:
    """Return the findings of the ledgers and summaries of all conversations, or of one."""
    names = (
        [conversation]
        if conversation is not None
        else store.read(
            lambda tx: [str(name) for (name,) in tx.rows("SELECT name FROM main.conversation ORDER BY name")]
        )
    )
    for name in names:
        yield from store.read(lambda tx, name=name: list(_ledger_findings(tx, name)))


def _ledger_findings(tx: Transaction, name: str) -> Iterator[Finding]:
    for _, channel, _, error in _damaged_channels(tx, name):
        yield Finding(
            kind="fault",
            code="unreadable-channel" if error else "lost-sent-messages",
            conversation=name,
            where=str(channel),
            text=error or LOST_TEXT,
            why="No request of this channel can be compiled." if error else LOST_CONSEQUENCE,
            would="would send the whole context again with the next request of this channel, in a new session",
            healing="ledger",
        )
    for anchor in _lost_summaries(tx, name):
        yield Finding(
            kind="fault",
            code="lost-summary",
            conversation=name,
            where=f"message {anchor & SEQ_MASK}",
            text="A summary ends at a message that is missing, or was replaced.",
            why="Requests do not use it, because it contains messages that are lost.",
            would="would delete the summary",
            healing="ledger",
        )


def repair_ledgers(tx: Transaction, name: str) -> list[str]:
    """Repair the ledgers and summaries of a conversation, and return what was done."""
    done: list[str] = []
    for number, channel, state, error in _damaged_channels(tx, name):
        ledger.replace_state(tx, number, state, close_attempt=bool(error))
        done.append(f"The next request of {channel} sends the whole context.")
    for anchor in _lost_summaries(tx, name):
        tx.run("DELETE FROM main.overlay WHERE anchor = ?", anchor)
        done.append(f"Deleted the summary up to message {anchor & SEQ_MASK}.")
    return done


def _damaged_channels(tx: Transaction, name: str) -> list[DamagedChannel]:
    try:
        at = find_tip(tx, name, False)
    except StoreCorrupt:  # reported by other checks
        return []
    found: list[DamagedChannel] = []
    for number, channel, stored, attempt in ledger.load_encoded_channels(tx, name) if at is not None else ():
        try:
            state = ledger.decode_state(name, stored)
            ledger.decode_attempt(attempt)
            rows = [row for _, row, _ in ledger.load_row_items(tx, state.layout)]
        except StoreCorrupt as error:
            repaired = replace(ledger.recover_counters(tx, number), lost=UNREADABLE)
            found.append(DamagedChannel(number, channel, repaired, f"{error.problem}."))
            continue
        with suppress(StoreCorrupt):  # of the log: reported by other checks
            if at is not None and state.layout and (is_tip_lost(tx, state, at) or has_lost_messages(tx, rows)):
                found.append(DamagedChannel(number, channel, without_rows(state, EpochReason.LOG_LOST), ""))
    return found


def _lost_summaries(tx: Transaction, name: str) -> list[int]:
    rows = tx.rows(
        "SELECT o.anchor, o.body, m.id FROM main.overlay o JOIN main.conversation c ON c.tree = o.tree"
        " JOIN main.branch b ON b.number = o.anchor / 4294967296 AND b.conversation = c.name"
        " LEFT JOIN main.message m ON m.place = o.anchor WHERE c.name = ? ORDER BY o.anchor",
        name,
    )
    return [anchor for anchor, body, identity in rows if is_summary_lost(body, identity)]


# ── observed requests ─────────────────────────────────────────────────────────────────────────────────────────────────
# Check of observed requests: each can be rebuilt to the byte, and none contains a credential in a field like a header.
#
# The rows of a request are compared with the hash that was stored when it was recorded. Redacted rows are skipped.


_FIELD = re.compile(b'"(?:%b)"' % "|".join(sorted(CREDENTIAL_FIELDS)).encode(), re.IGNORECASE)
_CREDENTIAL = re.compile(r"(?i:(?:bearer|basic)\s+)?[^\s\[\]{}<>$]{16,}|.*=[^\s;]{16,}.*", re.DOTALL)


def check_observed(store: Store, conversation: str | None = None) -> Iterator[Finding]:
    """Return the findings of the observed requests of all conversations, or of one."""
    for number, channel in store.read(_load_observed_channels):
        if conversation in (None, channel.conversation):
            yield from store.read(
                lambda tx, number=number, channel=channel: list(_check_observed_channel(tx, number, channel))
            )


def _load_observed_channels(tx: Transaction) -> list[tuple[int, Channel]]:
    """Return the channels with observed requests, whose manifests are compressed."""
    rows = tx.rows(
        "SELECT h.number, h.conversation, h.agent, h.provider, h.model, h.directory FROM main.channel h WHERE EXISTS"
        " (SELECT 1 FROM main.manifest m"
        " WHERE m.place BETWEEN h.number * 4294967296 AND h.number * 4294967296 + 4294967295"
        " AND substr(m.body, 1, 1) = ?) ORDER BY h.number",
        PACKED,
    )
    return [(number, Channel(*names)) for number, *names in rows]


def _check_observed_channel(tx: Transaction, number: int, channel: Channel) -> Iterator[Finding]:
    try:
        rows = {row.place: row for row in ledger.load_rows(tx, [RowRange(number, 0, SEQ_MASK)])}
        records = [record_from_json(body) for body in reversed(ledger.load_manifests(tx, number))]
    except (StoreCorrupt, ValueError) as error:
        yield _changed_request(channel, f"Its requests cannot be read: {error}")
        return
    heads: dict[str, bool] = {}
    broken: list[int] = []
    chain, last = "", 0
    for record in records:
        if record.observed is not None:
            if record.head not in heads:
                # stored unchanged, or redacted
                head = ledger.load_head(tx, number, bytes.fromhex(record.head))
                heads[record.head] = head is None or record.head in (hash_head(head).hex(), hash_head(b"").hex())
            found = _hash_rows(record, rows, number, chain, last)
            if found != record.chain or not heads[record.head]:
                broken.append(record.request)
        chain, last = record.chain, record.rows
    if broken:
        some = ", ".join(map(str, broken[:5])) + (" and more" if len(broken) > 5 else "")
        yield _changed_request(
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


def _find_credentials(
    tx: Transaction, number: int, channel: Channel, rows: Mapping[int, StoredRow]
) -> Iterator[Finding]:
    names: set[str] = set()
    for (head,) in tx.rows("SELECT body FROM main.head WHERE channel = ?", number):
        names.update(find_credential_fields(bytes(head)))
    for (whole,) in tx.rows(
        "SELECT body FROM main.replaced WHERE place BETWEEN ? AND ?",
        make_place(number, 0),
        make_place(number, SEQ_MASK),
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


def _changed_request(channel: Channel, text: str) -> Finding:
    return Finding(
        kind="fault",
        code="changed-request",
        conversation=channel.conversation,
        where=str(channel),
        text=text,
        why="Something other than contextc changed the store, so the exact bytes that were sent are lost.",
        would="is not changed. The messages of the conversation are not affected: they are checked separately",
    )
