"""Check of ledgers against the log: what was sent, and what was summarized, must still be in the conversation.

If rows of messages are deleted from outside, or a backup is restored in part, the chain may still be sound, because it
only ends earlier. The ledgers of its channels show what is missing. A repair makes the next request of such a channel
start a new session with the full context, and removes summaries of lost messages. A channel that cannot be read is
repaired in the same way.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from contextc.compiler.ledger import repository
from contextc.compiler.ledger.log_check import LOG_LOST, has_lost_messages, is_tip_lost, without_rows
from contextc.compiler.ledger.summaries import is_summary_lost
from contextc.doctor.findings import Finding
from contextc.errors import StoreCorrupt
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel, ChannelState
from contextc.store.message_rows import SEQ_MASK, find_tip

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
        else store.read(lambda tx: [str(name) for (name,) in tx.rows("SELECT name FROM conversation ORDER BY name")])
    )
    for name in names:
        yield from store.read(lambda tx, name=name: list(_findings(tx, name)))


def _findings(tx: Transaction, name: str) -> Iterator[Finding]:
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
        repository.replace_state(tx, number, state, close_attempt=bool(error))
        done.append(f"The next request of {channel} sends the whole context.")
    for anchor in _lost_summaries(tx, name):
        tx.run("DELETE FROM overlay WHERE anchor = ?", anchor)
        done.append(f"Deleted the summary up to message {anchor & SEQ_MASK}.")
    return done


def _damaged_channels(tx: Transaction, name: str) -> list[DamagedChannel]:
    try:
        at = find_tip(tx, name, False)
    except StoreCorrupt:  # reported by other checks
        return []
    found: list[DamagedChannel] = []
    for number, channel, stored, attempt in repository.load_encoded_channels(tx, name) if at is not None else ():
        try:
            state = repository.decode_state(name, stored)
            repository.decode_attempt(attempt)
            rows = [row for _, row, _ in repository.load_row_items(tx, state.layout)]
        except StoreCorrupt as error:
            repaired = replace(repository.recover_counters(tx, number), lost=UNREADABLE)
            found.append(DamagedChannel(number, channel, repaired, f"{error.problem}."))
            continue
        with suppress(StoreCorrupt):  # of the log: reported by other checks
            if at is not None and state.layout and (is_tip_lost(tx, state, at) or has_lost_messages(tx, rows)):
                found.append(DamagedChannel(number, channel, without_rows(state, LOG_LOST), ""))
    return found


def _lost_summaries(tx: Transaction, name: str) -> list[int]:
    rows = tx.rows(
        "SELECT o.anchor, o.body, m.id FROM overlay o JOIN conversation c ON c.tree = o.tree"
        " JOIN branch b ON b.number = o.anchor / 4294967296 AND b.conversation = c.name"
        " LEFT JOIN message m ON m.place = o.anchor WHERE c.name = ? ORDER BY o.anchor",
        name,
    )
    return [anchor for anchor, body, identity in rows if is_summary_lost(body, identity)]
