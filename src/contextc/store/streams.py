"""Messages that are still being written. They live outside the chain, and survive the process that writes them.

A stream collects deltas and journals them in batches, at most a quarter of a second apart. Ending it puts the message
into the chain in the same transaction that removes the journal, so it is never in both places and never in neither.
"""

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Literal, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from contextc.errors import InvalidMessage
from contextc.messages import AnyPart, Message, Reasoning, Text, ToolCall, admit, from_json, to_json
from contextc.store.base import Lease, Transaction
from contextc.store.places import by_name, check_name, head

BATCH_SECONDS = 0.25
Ending: TypeAlias = Literal["sent", "error", "cancelled"]
Delta: TypeAlias = Text | Reasoning | ToolCall

_parts_to_json = msgspec.json.Encoder().encode
_parts_from_json = msgspec.json.Decoder(list[AnyPart]).decode


def begin(tx: Transaction, lease: Lease, beginning: Message) -> None:
    """Make the journal of a message, which so far has everything but its parts."""
    uid = beginning.uid
    check_name(uid, "message")
    made = tx.run(
        "INSERT INTO stream (uid, conversation, agent, lease, head) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        uid,
        lease.conversation,
        lease.agent,
        lease.number,
        to_json(beginning),
    )
    if (not made and not tx.again) or by_name(tx, head(tx, lease.conversation).tree, uid):
        raise InvalidMessage(
            f"there is already a message {uid!r}. Leave uid empty for a new one.",
            field="uid",
            conversation=lease.conversation,
        )


def journal(tx: Transaction, uid: str, number: int, parts: list[AnyPart]) -> None:
    tx.run(
        "INSERT INTO stream_delta (uid, number, parts) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        uid,
        number,
        _parts_to_json(parts),
    )


def open_under(tx: Transaction, lease: Lease) -> list[str]:
    """The streams that a turn, or one before it, has not ended."""
    rows = tx.rows(
        "SELECT uid FROM stream WHERE conversation = ? AND agent = ? AND lease <= ? ORDER BY uid",
        lease.conversation,
        lease.agent,
        lease.number,
    )
    return [uid for (uid,) in rows]


def assemble(tx: Transaction, uid: str, final: Message) -> Message | None:
    """The message as it ends: its head, with the ending and whatever else `final` says. None where it has ended."""
    row = tx.row("SELECT head FROM stream WHERE uid = ?", uid)
    if row is None:
        return None
    begun = from_json(row[0])
    if final.parts or final.finish is not None:
        return replace(final, uid=uid, author=final.author or begun.author, time=begun.time)
    deltas = tx.rows("SELECT parts FROM stream_delta WHERE uid = ? ORDER BY number", uid)
    parts = join(part for (batch,) in deltas for part in _parts_from_json(batch))
    return replace(begun, parts=parts, status=final.status, error=final.error)


def forget(tx: Transaction, uid: str) -> None:
    tx.run("DELETE FROM stream_delta WHERE uid = ?", uid)
    tx.run("DELETE FROM stream WHERE uid = ?", uid)


def join(deltas: Iterable[AnyPart]) -> tuple[AnyPart, ...]:
    """Deltas as whole parts: neighbouring text and reasoning run together, and so do pieces of one call's arguments."""
    joined: list[AnyPart] = []
    for delta in deltas:
        merged = _merge(joined[-1], delta) if joined else None
        if merged is None:
            joined.append(delta)
        else:
            joined[-1] = merged
    return tuple(joined)


def _merge(before: AnyPart, delta: AnyPart) -> AnyPart | None:
    match before, delta:
        case Text(), Text():
            return Text(before.text + delta.text)
        case Reasoning(), Reasoning() if not before.signature and before.id == delta.id:
            return replace(
                before, text=before.text + delta.text, signature=delta.signature, data=delta.data or before.data
            )
        case ToolCall(), ToolCall() if before.id == delta.id:
            written = (before.raw or "") + (delta.raw or "")
            return ToolCall(id=before.id, name=before.name, arguments=written)  # pyright: ignore[reportArgumentType]
        case _:
            return None


class Stream:
    """A message being written. Use it in a `with`: an exception ends it as `error`, a cancellation as `cancelled`."""

    def __init__(
        self,
        uid: str,
        save: Callable[[int, list[AnyPart]], None],
        close: Callable[[int, list[AnyPart], Message], Message],
    ) -> None:
        self.uid = uid
        self.message: Message | None = None
        """The message as it was stored, once the stream has ended."""
        self._save, self._close = save, close
        self._waiting: list[AnyPart] = []
        self._batches = 0
        self._lock = threading.Lock()

    def write(self, delta: Delta | str) -> None:
        """Add what came in: text, reasoning, or a call whose `arguments` are the next piece of its JSON text."""
        part = Text(delta) if isinstance(delta, str) else delta
        if not isinstance(part, Text | Reasoning | ToolCall):
            raise InvalidMessage(f"a {type(delta).__name__} cannot be streamed. Write text, Reasoning or a ToolCall.")
        (sound,) = admit(Message(role="assistant", parts=(part,), status="error")).message.parts
        with self._lock:
            self._waiting.append(sound)

    def flush(self) -> None:
        """Journal what has been written so far. The store does this by itself, four times a second."""
        with self._lock:
            if self._waiting and self.message is None:
                self._save(self._batches, list(join(self._waiting)))
                self._batches, self._waiting = self._batches + 1, []

    def end(self, message: Message | None = None, *, status: Ending | None = None, error: str | None = None) -> Message:
        """Put the message into the chain: what was written, or `message`, which is the same with all that is known
        now.
        """
        final = message or Message(role="assistant")
        final = replace(final, status=status or final.status, error=error or final.error)
        with self._lock:
            if self.message is None:
                self.message = self._close(self._batches, list(join(self._waiting)), final)
            return self.message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.end()
        elif self.message is None:
            failed = isinstance(error, Exception)
            self.end(status="error" if failed else "cancelled", error=f"{type(error).__name__}: {error}")
